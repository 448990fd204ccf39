//! Debug information in other files, and in compressed sections.

use std::fs;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::read::elf::ElfFile64;
use powerfail_symbol::{BuildId, LineSource, NoSource, Problem, Symbolizer};
use powerfail_trace::{Module, ModuleIndex};

use crate::program::{Program, expect_chain, instruction, run};

const INLINED: [(&str, &str); 3] = [
    ("persist", "persist"),
    ("insert", "insert"),
    ("update", "update"),
];

/// A program whose debug information was moved to a separate file.
struct Stripped {
    program: Program,
    debug_file: PathBuf,
    /// The address of the instruction with the inlined calls.
    offset: u64,
}

impl Stripped {
    fn new(options: &[&str]) -> Self {
        let program = Program::compile("gcc", options, &["btree.c", "main.c"]);
        let offset = program.offsets()["here_persist"];
        let debug_file = program.directory().join("program.debug");
        objcopy(&["--only-keep-debug"], &program.path, &debug_file);
        run("strip", ["--strip-all".as_ref(), program.path.as_os_str()]);
        Self {
            program,
            debug_file,
            offset,
        }
    }

    fn add_debug_link(&self) {
        let link = format!("--add-gnu-debuglink={}", self.debug_file.display());
        objcopy(&[&link], &self.program.path, &self.program.path);
    }

    /// Moves the debug file to the path for its build-id, below the directory of debug files.
    fn install_by_build_id(&self) -> PathBuf {
        let path = self.path_by_build_id();
        move_file(&self.debug_file, &path);
        path
    }

    fn path_by_build_id(&self) -> PathBuf {
        let name = BuildId(self.program.module().build_id).to_string();
        let name = format!(".build-id/{}/{}.debug", &name[..2], &name[2..]);
        self.debug_directory().join(name)
    }

    fn debug_directory(&self) -> PathBuf {
        self.program.directory().join("debug files")
    }

    fn symbolizer(&self, module: Module) -> Symbolizer {
        let missing = self.program.directory().join("missing");
        Symbolizer::new(&[module]).with_debug_directories([missing, self.debug_directory()])
    }

    fn expect_lines(&self, module: Module, source: &LineSource, problems: &[Problem]) {
        let mut symbolizer = self.symbolizer(module);
        expect_chain(
            &instruction(&mut symbolizer, self.offset),
            "btree.c",
            &INLINED,
        );
        let report = symbolizer.module_report(ModuleIndex(0)).unwrap();
        assert_eq!(&report.lines, source);
        assert_eq!(report.problems, problems);
    }

    /// The lines are unknown, for this reason.
    fn expect_problem(&self, module: Module, problem: Problem) {
        let mut symbolizer = self.symbolizer(module);
        let resolved = instruction(&mut symbolizer, self.offset);
        assert_eq!(resolved.frames, []);
        assert_eq!(resolved.no_source, Some(NoSource::Module(problem.into())));
    }
}

fn objcopy(options: &[&str], from: &Path, to: &Path) {
    let paths = [from.as_os_str(), to.as_os_str()];
    run("objcopy", options.iter().map(AsRef::as_ref).chain(paths));
}

fn move_file(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::rename(from, to).unwrap();
}

#[test]
fn the_build_id_leads_to_the_debug_file() {
    for options in [&["-g", "-O2"][..], &["-g", "-O2", "-no-pie", "-fno-pie"]] {
        let stripped = Stripped::new(options);
        let path = stripped.install_by_build_id();
        stripped.expect_lines(stripped.program.module(), &LineSource::BuildId(path), &[]);
    }
}

#[test]
fn the_debug_link_leads_to_the_debug_file() {
    let stripped = Stripped::new(&["-g", "-O2"]);
    stripped.add_debug_link();
    let module = stripped.program.module();
    let directory = stripped.program.directory();
    let below = directory.canonicalize().unwrap();
    let places = [
        stripped.debug_file.clone(),
        directory.join(".debug/program.debug"),
        stripped
            .debug_directory()
            .join(below.strip_prefix("/").unwrap())
            .join("program.debug"),
    ];
    let mut place = stripped.debug_file.clone();
    for next in places {
        move_file(&place, &next);
        stripped.expect_lines(module.clone(), &LineSource::DebugLink(next.clone()), &[]);
        place = next;
    }
}

#[test]
fn a_debug_link_works_without_build_id() {
    let stripped = Stripped::new(&["-g", "-O2", "-Wl,--build-id=none"]);
    stripped.add_debug_link();
    let module = stripped.program.module();
    let unverified = Problem::Unverified {
        path: module.path.clone(),
    };
    let source = LineSource::DebugLink(stripped.debug_file.clone());
    stripped.expect_lines(module, &source, &[unverified]);
}

#[test]
fn a_debug_file_with_another_checksum_is_not_used() {
    let stripped = Stripped::new(&["-g", "-O2"]);
    let wanted = crc32fast::hash(&fs::read(&stripped.debug_file).unwrap());
    stripped.add_debug_link();
    let mut bytes = fs::read(&stripped.debug_file).unwrap();
    bytes.push(0);
    fs::write(&stripped.debug_file, &bytes).unwrap();
    let problem = Problem::OtherChecksum {
        path: stripped.debug_file.clone(),
        wanted,
        found: crc32fast::hash(&bytes),
    };
    stripped.expect_problem(stripped.program.module(), problem);
}

#[test]
fn a_debug_file_of_another_build_is_not_used() {
    let stripped = Stripped::new(&["-g", "-O2"]);
    let other = Stripped::new(&["-g", "-O0"]);
    let path = stripped.path_by_build_id();
    move_file(&other.debug_file, &path);
    let module = stripped.program.module();
    let problem = Problem::OtherBuild {
        path,
        wanted: BuildId(module.build_id.clone()),
        found: BuildId(other.program.module().build_id),
    };
    stripped.expect_problem(module, problem);
}

#[test]
fn a_damaged_debug_file_does_not_hide_a_sound_one() {
    let stripped = Stripped::new(&["-g", "-O2"]);
    stripped.add_debug_link();
    let by_build_id = stripped.path_by_build_id();
    fs::create_dir_all(by_build_id.parent().unwrap()).unwrap();
    fs::write(&by_build_id, "not at all").unwrap();
    let problem = Problem::NotElf { path: by_build_id };
    let source = LineSource::DebugLink(stripped.debug_file.clone());
    stripped.expect_lines(stripped.program.module(), &source, &[problem]);
}

#[test]
fn a_vanished_program_is_still_resolved_by_its_debug_file() {
    for options in [&["-g", "-O2"][..], &["-g", "-O2", "-no-pie", "-fno-pie"]] {
        let stripped = Stripped::new(options);
        let module = stripped.program.module();
        let path = stripped.install_by_build_id();
        fs::remove_file(&stripped.program.path).unwrap();
        let problem = Problem::Unreadable {
            path: stripped.program.path.clone(),
            kind: std::io::ErrorKind::NotFound,
        };
        stripped.expect_lines(module, &LineSource::BuildId(path), &[problem]);
    }
}

#[test]
fn a_rebuilt_program_is_still_resolved_by_the_old_debug_file() {
    let stripped = Stripped::new(&["-g", "-O2"]);
    let module = stripped.program.module();
    let path = stripped.install_by_build_id();
    let rebuilt = Stripped::new(&["-g", "-O0"]);
    fs::copy(&rebuilt.program.path, &stripped.program.path).unwrap();
    let problem = Problem::Rebuilt {
        path: stripped.program.path.clone(),
        recorded: BuildId(module.build_id.clone()),
        found: BuildId(rebuilt.program.module().build_id),
    };
    stripped.expect_lines(module, &LineSource::BuildId(path), &[problem]);
}

#[test]
fn compressed_sections_are_read() {
    for compression in ["zlib", "zlib-gnu", "zlib-gabi"] {
        let program = Program::btree();
        let option = format!("--compress-debug-sections={compression}");
        objcopy(&[&option], &program.path, &program.path);
        expect_chain(&program.resolve("here_persist"), "btree.c", &INLINED);
    }
}

/// Written by hand, because only recent linkers and tools support this compression.
#[test]
fn sections_compressed_with_zstd_are_read() {
    let program = Program::btree();
    let mut bytes = fs::read(&program.path).unwrap();
    for name in [".debug_info", ".debug_line", ".debug_str"] {
        let (header, content) = raw_section(&bytes, name);
        let mut compressed = Vec::new();
        compressed.extend(2u32.to_le_bytes());
        compressed.extend(0u32.to_le_bytes());
        compressed.extend((content.len() as u64).to_le_bytes());
        compressed.extend(1u64.to_le_bytes());
        compressed.extend(zstd::bulk::compress(&content, 3).unwrap());
        let at = bytes.len() as u64;
        // Flags, offset and length of the section.
        let flags = header + 8;
        bytes[flags + 1] |= 0x08;
        bytes[header + 24..][..8].copy_from_slice(&at.to_le_bytes());
        bytes[header + 32..][..8].copy_from_slice(&(compressed.len() as u64).to_le_bytes());
        bytes.extend(compressed);
    }
    fs::write(&program.path, bytes).unwrap();
    expect_chain(&program.resolve("here_persist"), "btree.c", &INLINED);
}

/// The offset of a section header, and the section's content.
fn raw_section(bytes: &[u8], name: &str) -> (usize, Vec<u8>) {
    use object::{Object as _, ObjectSection as _};
    let file = ElfFile64::<LittleEndian>::parse(bytes).unwrap();
    let table = file.elf_header().e_shoff.get(LittleEndian) as usize;
    let section = file.section_by_name(name).unwrap();
    (
        table + section.index().0 * 64,
        section.data().unwrap().to_vec(),
    )
}

#[test]
fn what_debug_files_share_is_found_or_missed() {
    let stripped = Stripped::new(&["-g", "-O2"]);
    let module = stripped.program.module();
    let shared = Stripped::new(&["-g", "-O0"]);
    let mut link = b"../shared.debug\0".to_vec();
    link.extend(shared.program.module().build_id);
    let link_file = stripped.program.directory().join("link");
    fs::write(&link_file, link).unwrap();
    let option = format!("--add-section=.gnu_debugaltlink={}", link_file.display());
    objcopy(&[&option], &stripped.debug_file, &stripped.debug_file);
    let path = stripped.install_by_build_id();

    let problem = Problem::Incomplete {
        path: path.clone(),
        wanted: "../shared.debug".into(),
    };
    let source = LineSource::BuildId(path.clone());
    stripped.expect_lines(module.clone(), &source, std::slice::from_ref(&problem));

    // A file of another build is not accepted.
    let beside = path.parent().unwrap().join("../shared.debug");
    fs::copy(&path, &beside).unwrap();
    stripped.expect_lines(module.clone(), &source, &[problem]);

    fs::rename(&shared.debug_file, &beside).unwrap();
    stripped.expect_lines(module, &source, &[]);
}
