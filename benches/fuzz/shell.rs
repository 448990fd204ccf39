//! The key-value shell with all of its bugs, uninstrumented and instrumented by AFL++, and the initial inputs of both
//! fuzzers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The one input that both fuzzers begin with.
pub(crate) const SEED: &str = "put 1 1\n";

/// How many processors both fuzzers use.
pub(crate) const JOBS: usize = 2;

pub(crate) struct Shell {
    /// Where the sources are.
    pub(crate) sources: PathBuf,
    /// Built by an ordinary compiler.
    pub(crate) plain: PathBuf,
    /// Built with the instrumentation of AFL++.
    pub(crate) for_afl: PathBuf,
    /// The words of its commands, for AFL++, which does not extract them from the program by itself.
    pub(crate) dictionary: PathBuf,
    /// A directory with the seed.
    pub(crate) seeds: PathBuf,
    /// The directory for results.
    pub(crate) folder: PathBuf,
}

impl Shell {
    pub(crate) fn build(folder: &Path) -> Self {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/targets/fuzz/kv");
        let shell = Self {
            sources: sources.canonicalize().expect("the sources of the shell"),
            plain: folder.join("kv"),
            for_afl: folder.join("kv-afl"),
            dictionary: folder.join("kv.dict"),
            seeds: folder.join("seeds"),
            folder: folder.to_owned(),
        };
        shell.compile("gcc", &shell.plain);
        shell.compile("afl-clang-fast", &shell.for_afl);
        // The words that AFL++ collects while it compiles, and the names that the program compares in a loop.
        let mut words = fs::read_to_string(&shell.dictionary).unwrap_or_default();
        words += "\"btree\"\n\"hash\"\n\"radix\"\n\"skip\"\n";
        fs::write(&shell.dictionary, words).expect("a dictionary that can be written");
        fs::create_dir(&shell.seeds).expect("a folder for the seed");
        fs::write(shell.seeds.join("seed"), SEED).expect("a seed that can be written");
        shell
    }

    fn compile(&self, compiler: &str, output: &Path) {
        let mut script = Command::new(self.sources.join("build.sh"));
        script.arg(output).arg("-DBUGS_ALL").env("CC", compiler);
        script.env("AFL_QUIET", "1");
        script.env("AFL_LLVM_DICT2FILE", &self.dictionary);
        let output = script.output().expect("a script that can be run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler}: {errors}");
    }
}
