//! Files that were removed, truncated, rebuilt or never valid: always a reason, never a panic and never a wrong line.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use powerfail_symbol::{BuildId, NoSource, Problem, Resolved, Symbolizer};
use powerfail_trace::{Module, ModuleIndex};

use crate::program::{Program, expect_chain, instruction};

/// Resolves an address in an unusable module, and returns the reason.
fn problem_of(module: &Module) -> Problem {
    let mut symbolizer =
        Symbolizer::new(std::slice::from_ref(module)).with_debug_directories([""; 0]);
    let resolved = instruction(&mut symbolizer, 0x1139);
    assert_eq!(resolved.frames, []);
    let name = module.path.file_name().unwrap().to_string_lossy();
    assert_eq!(resolved.to_string(), format!("{name}+0x1139"));
    let Some(NoSource::Module(problem)) = &resolved.no_source else {
        panic!("{:?}", resolved.no_source);
    };
    let (module, first) = symbolizer.problems().next().unwrap();
    assert_eq!((module, first), (ModuleIndex(0), &**problem));
    (**problem).clone()
}

fn module(path: &Path) -> Module {
    Module {
        path: path.into(),
        build_id: vec![1, 2, 3],
        load_address: 0,
        len_bytes: 0x4000,
        function: None,
    }
}

/// A file with these bytes.
fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("module");
    fs::write(&path, bytes).unwrap();
    (directory, path)
}

#[test]
fn a_vanished_file_is_named() {
    let path = PathBuf::from("/nonexistent/libgone.so (deleted)");
    let kind = io::ErrorKind::NotFound;
    assert_eq!(
        problem_of(&module(&path)),
        Problem::Unreadable { path, kind }
    );
}

#[test]
fn what_is_no_file_is_not_opened() {
    for path in ["/dev/null", "/proc"] {
        let path = PathBuf::from(path);
        assert_eq!(problem_of(&module(&path)), Problem::NotAFile { path });
    }
}

#[test]
fn what_is_no_elf_file_is_told() {
    for bytes in [
        &b""[..],
        b"\x7f",
        b"\x7fEL",
        b"#!/bin/sh\nexit 0\n",
        &[0xff; 5000],
    ] {
        let (_directory, path) = file(bytes);
        assert_eq!(problem_of(&module(&path)), Problem::NotElf { path });
    }
}

#[test]
fn files_for_other_machines_are_told() {
    let bytes = fs::read(Program::btree().path).unwrap();
    for (at, value, what) in [(4, 1, "32-bit"), (5, 2, "big-endian")] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let (_directory, path) = file(&bytes);
        assert_eq!(
            problem_of(&module(&path)),
            Problem::OtherArchitecture { path, what }
        );
    }
}

#[test]
fn a_rebuilt_file_gives_no_lines() {
    let program = Program::btree();
    let recorded = program.module();
    let rebuilt = Program::compile("gcc", &["-g", "-O1"], &["btree.c", "main.c"]);
    fs::copy(&rebuilt.path, &program.path).unwrap();
    let found = BuildId(rebuilt.module().build_id);
    let path = program.path.clone();
    let expected = Problem::Rebuilt {
        path: path.clone(),
        recorded: BuildId(recorded.build_id.clone()),
        found: found.clone(),
    };
    assert_eq!(problem_of(&recorded), expected);

    // A build-id that was added or removed also means another file.
    let without = Module {
        build_id: Vec::new(),
        ..recorded.clone()
    };
    let expected = Problem::Rebuilt {
        path: path.clone(),
        recorded: BuildId::default(),
        found,
    };
    assert_eq!(problem_of(&without), expected);
    let rebuilt = Program::compile(
        "gcc",
        &["-g", "-Wl,--build-id=none"],
        &["btree.c", "main.c"],
    );
    fs::copy(&rebuilt.path, &program.path).unwrap();
    let expected = Problem::Rebuilt {
        path,
        recorded: BuildId(recorded.build_id.clone()),
        found: BuildId::default(),
    };
    assert_eq!(problem_of(&recorded), expected);
}

#[test]
fn a_file_without_build_id_is_used_with_a_warning() {
    let program = Program::compile(
        "gcc",
        &["-g", "-O2", "-Wl,--build-id=none"],
        &["btree.c", "main.c"],
    );
    let mut symbolizer = program.symbolizer();
    let resolved = instruction(&mut symbolizer, program.offsets()["here_update"]);
    expect_chain(&resolved, "btree.c", &[("update", "update after")]);
    let problems: Vec<_> = symbolizer.problems().collect();
    let path = program.path.clone();
    assert_eq!(problems, [(ModuleIndex(0), &Problem::Unverified { path })]);
}

/// A library whose file is changed repeatedly.
struct Patient {
    _program: Program,
    module: Module,
    bytes: Vec<u8>,
    /// Some addresses in it.
    offsets: Vec<u64>,
}

impl Patient {
    fn new() -> Self {
        let program = Program::compile("gcc", &["-g", "-O2", "-fPIC", "-shared"], &["btree.c"]);
        let symbols = program.offsets();
        let places = ["here_persist", "here_update", "update", "run", "say_caller"];
        Self {
            module: program.module(),
            bytes: fs::read(&program.path).unwrap(),
            offsets: places.iter().map(|it| symbols[*it]).collect(),
            _program: program,
        }
    }

    /// Resolves the addresses with the current content of the file.
    fn resolve(&self) -> Vec<Arc<Resolved>> {
        let modules = std::slice::from_ref(&self.module);
        let mut symbolizer = Symbolizer::new(modules).with_debug_directories([""; 0]);
        self.offsets
            .iter()
            .map(|&offset| instruction(&mut symbolizer, offset))
            .collect()
    }

    /// Resolves the addresses with another content of the file.
    fn resolve_with(&self, bytes: &[u8]) -> Vec<Arc<Resolved>> {
        fs::write(&self.module.path, bytes).unwrap();
        self.resolve()
    }

    /// The offset of the section table, the last part of the file.
    fn section_table(&self) -> usize {
        u64::from_le_bytes(self.bytes[40..48].try_into().unwrap()) as usize
    }
}

#[test]
fn a_file_can_be_cut_anywhere() {
    let patient = Patient::new();
    let bytes = &patient.bytes;
    let whole = patient.resolve();
    assert!(whole.iter().all(|resolved| resolved.no_source.is_none()));
    for len in (0..bytes.len()).step_by(61).chain(0..130) {
        for (cut, whole) in patient.resolve_with(&bytes[..len]).iter().zip(&whole) {
            // The section table is at the end: without it nothing is known.
            assert_eq!(cut.frames, []);
            assert_eq!(cut.offset(), whole.offset());
            let Some(NoSource::Module(problem)) = &cut.no_source else {
                panic!("{:?}", cut.no_source);
            };
            match **problem {
                Problem::NotElf { .. } => assert!(len < 4),
                Problem::Truncated {
                    needed_bytes,
                    len_bytes,
                    ..
                } => {
                    assert_eq!(len_bytes, len as u64);
                    assert!(needed_bytes > len_bytes && needed_bytes <= bytes.len() as u64);
                }
                _ => panic!("{problem}"),
            }
        }
    }
}

#[test]
fn any_byte_of_a_file_can_be_wrong() {
    let patient = Patient::new();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&patient.module.path)
        .unwrap();
    // Headers, tables and debug information; the code and the data do not matter.
    let interesting = (0..1024).chain(0x3000..patient.bytes.len());
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for at in interesting.step_by(5) {
        random = random
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let wrong = [0x00, 0x7f, 0x80, 0xff, (random >> 56) as u8][(random >> 32) as usize % 5];
        file.write_all_at(&[wrong], at as u64).unwrap();
        for resolved in patient.resolve() {
            let has_source = resolved
                .innermost()
                .is_some_and(|frame| frame.file.is_some());
            assert_eq!(resolved.no_source.is_none(), has_source);
        }
        file.write_all_at(&patient.bytes[at..=at], at as u64)
            .unwrap();
    }
}

#[test]
fn absurd_lengths_are_not_believed() {
    let patient = Patient::new();
    let bytes = &patient.bytes;
    for header in (patient.section_table()..bytes.len()).step_by(64) {
        for len in [u64::MAX, 1 << 60, 1 << 40, bytes.len() as u64] {
            // The length of a section; and the same for the uncompressed length in it.
            let mut changed = bytes.clone();
            changed[header + 32..][..8].copy_from_slice(&len.to_le_bytes());
            patient.resolve_with(&changed);

            let mut changed = bytes.clone();
            changed[header + 9] |= 0x08;
            let at = u64::from_le_bytes(changed[header + 24..][..8].try_into().unwrap()) as usize;
            if let Some(compression) = changed.get_mut(at..at + 24) {
                compression[..4].copy_from_slice(&1u32.to_le_bytes());
                compression[8..16].copy_from_slice(&len.to_le_bytes());
            }
            patient.resolve_with(&changed);
        }
    }
}

#[test]
fn a_sparse_file_does_not_fill_the_memory() {
    let patient = Patient::new();
    let len = 1_u64 << 40;
    let mut bytes = patient.bytes.clone();
    for header in (patient.section_table() + 64..bytes.len()).step_by(64) {
        bytes[header + 32..][..8].copy_from_slice(&(len / 2).to_le_bytes());
    }
    let path = patient.module.path.clone();
    fs::write(&path, bytes).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(len)
        .unwrap();
    let expected = NoSource::Module(Arc::new(Problem::TooLarge {
        path,
        needed_bytes: len / 2,
    }));
    for resolved in patient.resolve() {
        assert_eq!(resolved.no_source.as_ref(), Some(&expected));
    }
}
