//! The programs that benchmarks run: `powerfail` itself, and C programs that are compiled for the occasion.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The `powerfail` that is measured: that of the variable `POWERFAIL`, or the one that was built in release mode.
///
/// # Panics
/// There is none.
pub fn powerfail() -> PathBuf {
    let built = || here().join("../target/release/powerfail");
    let powerfail = std::env::var_os("POWERFAIL").map_or_else(built, PathBuf::from);
    assert!(powerfail.exists(), "{} is not built", powerfail.display());
    powerfail
}

/// The folder of the benchmarks, which has their C programs.
pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a C program into a folder, under the name of its source. Options that begin with `-l` name libraries.
///
/// # Panics
/// It does not compile.
pub fn compile(source: &Path, folder: &Path, options: &[&str]) -> PathBuf {
    let program = folder.join(source.file_stem().unwrap_or_default());
    let (libraries, flags): (Vec<&str>, Vec<&str>) =
        options.iter().partition(|option| option.starts_with("-l"));
    let status = Command::new("gcc")
        .args(flags)
        .arg("-o")
        .args([&program, source])
        .args(libraries)
        .status()
        .expect("gcc runs");
    assert!(status.success(), "{} does not compile", source.display());
    program
}

/// Runs a command that must succeed, and returns what it prints.
///
/// # Panics
/// It cannot be started, or it fails.
pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("it can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let printed = text(&output.stdout);
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {printed}{errors}");
    printed
}
