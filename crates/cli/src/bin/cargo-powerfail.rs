//! `cargo powerfail`: the same as `powerfail`, and `cargo powerfail test`, which runs `cargo test` with this powerfail.
//!
//! cargo calls it with its own name as the first argument.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const BINARY: &str = "powerfail";
/// Where `powerfail-test` finds the binary.
const VARIABLE: &str = "POWERFAIL";

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|it| it == BINARY) {
        arguments.remove(0);
    }
    let binary = binary();
    let is_test = |it: &OsString| it == "test" || it == "nextest";
    let (program, mut command) = if arguments.first().is_some_and(is_test) {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(&cargo);
        command.env(VARIABLE, &binary);
        (cargo, command)
    } else {
        (binary.clone().into_os_string(), Command::new(&binary))
    };
    // Returns only if it fails.
    let error = command.args(arguments).exec();
    eprintln!("error: {}: {error}", program.display());
    ExitCode::from(2)
}

/// The binary beside this one, with which it was installed, or that of `PATH`.
fn binary() -> PathBuf {
    let beside = std::env::current_exe().ok();
    let beside = beside.and_then(|path| Some(path.parent()?.join(BINARY)));
    beside
        .filter(|path| path.is_file())
        .unwrap_or_else(|| BINARY.into())
}
