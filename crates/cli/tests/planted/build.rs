//! Builds each program once.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::program::{Kind, Program};

/// The directory for binaries.
fn folder() -> &'static TempDir {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder for programs"))
}

/// Whether the processor lacks clwb, so that programs must use clflushopt.
fn lacks_clwb() -> bool {
    let processors = fs::read_to_string("/proc/cpuinfo").expect("a list of processors");
    !processors.split_whitespace().any(|flag| flag == "clwb")
}

/// The compiler flags that all programs of a language share.
fn compiler(language: &str) -> Command {
    let (name, flags): (_, &[_]) = match language {
        "c" => ("gcc", &["-std=gnu11"]),
        "cc" => ("g++", &["-std=c++20"]),
        "rs" => ("rustc", &["--edition=2024", "-Dwarnings", "-g"]),
        _ => panic!("no compiler for {language}"),
    };
    let mut compiler = Command::new(name);
    compiler.args(flags);
    if language == "rs" {
        if lacks_clwb() {
            compiler.args(["--cfg", "pm_clflushopt"]);
        }
        return compiler;
    }
    // No lazy binding: the dynamic linker would take a lock at the first call of a function, and a
    // locked operation is a fence.
    compiler.args(["-Wall", "-Wextra", "-Werror", "-g", "-Wl,-z,now"]);
    if lacks_clwb() {
        compiler.arg("-DPM_CLFLUSHOPT");
    }
    compiler
}

/// Builds a program. It belongs to one test, so this happens once.
pub(crate) fn binary(program: &Program) -> PathBuf {
    if program.is_script() {
        return program.source.clone();
    }
    let kind = match program.kind {
        Kind::Fail => "fail",
        Kind::Pass => "pass",
    };
    let name = program.name().replace(['/', '.'], "-");
    let binary = folder().path().join(format!("{kind}-{name}"));
    let mut compiler = compiler(&program.language);
    compiler.args(program.words("opt"));
    compiler.arg(&program.source).arg("-o").arg(&binary);
    compiler.args(program.words("needs"));
    let output = compiler.output().expect("the compiler is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", program.name());
    binary
}
