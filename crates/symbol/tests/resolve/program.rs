//! Programs compiled for a test, and facts about them that tests know without the crate.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSegment as _, ObjectSymbol};
use powerfail_symbol::{AddressKind, Resolved, SourceFrame, Symbolizer};
use powerfail_trace::{Frame, Module, ModuleIndex};
use tempfile::TempDir;

/// The path of a source. An absolute path is returned unchanged.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/resolve/programs")
        .join(name)
}

/// The number of the line with the mark `at: MARK`, and its text.
pub(crate) fn marked(source_name: &str, mark: &str) -> (u32, String) {
    let text = fs::read_to_string(source(source_name)).unwrap();
    let mut marked = text.lines().zip(1..).filter(|(line, _)| {
        line.split_once("// at: ")
            .is_some_and(|(_, found)| found.trim() == mark)
    });
    let (line, number) = marked.next().unwrap_or_else(|| panic!("no mark {mark}"));
    assert!(marked.next().is_none(), "two marks {mark}");
    (number, line.into())
}

/// Runs a tool, which must succeed, and returns its output.
pub(crate) fn run<I>(tool: &str, arguments: I) -> String
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let mut command = Command::new(tool);
    command.args(arguments);
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{tool}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// A compiled program or library, in its own directory.
pub(crate) struct Program {
    directory: TempDir,
    pub(crate) path: PathBuf,
}

impl Program {
    /// Compiles sources with a compiler of the gcc family.
    pub(crate) fn compile(compiler: &str, options: &[&str], sources: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let mut command = Command::new(compiler);
        command
            .current_dir(&directory)
            .args(options)
            .arg("-o")
            .arg(&path);
        let output = command
            .args(sources.iter().map(|it| source(it)))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {stderr}");
        Self { directory, path }
    }

    /// The C program with debug information and optimisation.
    pub(crate) fn btree() -> Self {
        Self::compile("gcc", &["-g", "-O2"], &["btree.c", "main.c"])
    }

    /// Its directory, which is removed with it.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The module as the recorder would record it now.
    pub(crate) fn module(&self) -> Module {
        let bytes = fs::read(&self.path).unwrap();
        let file = ElfFile64::<LittleEndian>::parse(&*bytes).unwrap();
        Module {
            path: self.path.clone(),
            build_id: file.build_id().unwrap().unwrap_or_default().to_vec(),
            load_address: 0x7f12_3456_7000,
            len_bytes: 0x10_0000,
            function: None,
        }
    }

    /// The offsets of all symbols in the module.
    pub(crate) fn offsets(&self) -> HashMap<String, u64> {
        let bytes = fs::read(&self.path).unwrap();
        let file = ElfFile64::<LittleEndian>::parse(&*bytes).unwrap();
        let base = file
            .segments()
            .map(|segment| segment.address())
            .min()
            .unwrap()
            & !0xfff;
        let symbols = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(ObjectSymbol::is_definition);
        symbols
            .map(|it| (it.name().unwrap().into(), it.address().wrapping_sub(base)))
            .collect()
    }

    /// Renames it.
    pub(crate) fn renamed(mut self, name: &str) -> Self {
        let path = self.directory().join(name);
        fs::rename(&self.path, &path).unwrap();
        self.path = path;
        self
    }

    /// Runs it; it prints names and offsets.
    pub(crate) fn said_offsets(&self) -> HashMap<String, u64> {
        let said = run(self.path.to_str().unwrap(), [""; 0]);
        let offset = |line: &str| {
            let (name, offset) = line.split_once(' ').unwrap();
            (name.into(), u64::from_str_radix(offset, 16).unwrap())
        };
        said.lines().map(offset).collect()
    }

    /// A symbolizer for this module alone, which finds no debug files.
    pub(crate) fn symbolizer(&self) -> Symbolizer {
        Symbolizer::new(&[self.module()]).with_debug_directories([""; 0])
    }

    /// The frames at the instruction with a symbol.
    pub(crate) fn resolve(&self, symbol: &str) -> Arc<Resolved> {
        instruction(&mut self.symbolizer(), self.offsets()[symbol])
    }
}

/// An address in the first module.
pub(crate) fn at(offset: u64) -> Frame {
    Frame::Module {
        module: ModuleIndex(0),
        offset,
    }
}

/// The frames at an instruction of the first module.
pub(crate) fn instruction(symbolizer: &mut Symbolizer, offset: u64) -> Arc<Resolved> {
    symbolizer.resolve(at(offset), AddressKind::Instruction)
}

/// Checks one frame: function, file and line.
#[track_caller]
pub(crate) fn expect(frame: &SourceFrame, function: &str, source_name: &str, mark: &str) {
    assert_eq!(frame.function.as_deref(), Some(function));
    assert_eq!(frame.file, Some(source(source_name)));
    assert_eq!(
        frame.line,
        Some(marked(source_name, mark).0),
        "line of {mark}"
    );
}

/// Checks the frames of an address, innermost first: all but the last are inlined.
#[track_caller]
pub(crate) fn expect_chain(resolved: &Resolved, source_name: &str, chain: &[(&str, &str)]) {
    assert_eq!(resolved.frames.len(), chain.len(), "{resolved}");
    for (index, (frame, (function, mark))) in resolved.frames.iter().zip(chain).enumerate() {
        expect(frame, function, source_name, mark);
        assert_eq!(frame.is_inlined, index + 1 < chain.len());
    }
    assert_eq!(resolved.no_source, None);
}
