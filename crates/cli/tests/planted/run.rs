//! Runs `powerfail check` on a program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::figures;
use crate::program::Program;

/// Ends a check that hangs. Far longer than any check takes.
const GUARD_SECONDS: &str = "300";

/// Directives that are options of `check`.
const OPTIONS: [&str; 8] = [
    "recover",
    "checker",
    "dump",
    "ack",
    "client",
    "client-recover",
    "ready",
    "stop",
];

/// The result of a run of `powerfail check`.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Processor time of powerfail and everything that it started, in milliseconds, if that is counted.
    pub(crate) cpu_ms: Option<u64>,
}

/// A pool whose path is part of a program: it does not exist before the test and is removed after it.
struct OwnPath(Option<PathBuf>);

impl OwnPath {
    fn of(program: &Program) -> Self {
        let own = Self(program.directive("path").map(PathBuf::from));
        own.remove();
        own
    }

    fn remove(&self) {
        if let Some(path) = self.0.as_ref().filter(|path| path.exists()) {
            fs::remove_file(path).expect("a file that can be removed");
        }
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Checks a program, whatever the result is.
pub(crate) fn check(program: &Program, binary: &Path) -> Attempt {
    let folder = tempfile::tempdir().expect("a folder for the results");
    let _own_path = OwnPath::of(program);
    let binary = binary.to_str().expect("a path of text");
    let with_binary = |text: &str| text.replace("{bin}", binary);

    let times = folder.path().join("times");
    let mut command = if figures::are_wanted() {
        timed(&times)
    } else {
        Command::new("timeout")
    };
    command
        .args(["--kill-after=10", GUARD_SECONDS])
        .arg(env!("CARGO_BIN_EXE_powerfail"))
        .args(["check", "--format", "json", "--seed", "1", "--jobs", "1"])
        // Everything is tried, however busy the machine is.
        .args(["--budget", "1h", "--out"])
        .arg(folder.path().join("results"))
        // A program that panics would read its own debug information to print its call stack.
        .env_remove("RUST_BACKTRACE")
        // By default libpmemobj prepares 1,024 lanes whenever it opens a pool, which takes longer than all the rest.
        .env("PMEMOBJ_NLANES", "16");
    for option in OPTIONS {
        if let Some(value) = program.directive(option) {
            command.arg(format!("--{option}")).arg(with_binary(value));
        }
    }
    let flags: Vec<&str> = program.words("flags").collect();
    if !flags
        .iter()
        .any(|flag| ["--depth", "--no-lazy"].contains(flag))
    {
        // Second failures take long where recovery stores much; those programs that need one ask for it.
        command.args(["--depth", "1"]);
    }
    command.args(flags).arg("--");
    let workload = program.directive("workload").unwrap_or("{bin} {pool}");
    command.args(workload.split_whitespace().map(with_binary));
    let output = command.output().expect("powerfail runs");
    Attempt {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        cpu_ms: fs::read_to_string(times).ok().map(|text| cpu_ms(&text)),
    }
}

/// `timeout`, in a shell that writes the processor time of all of it to a file.
fn timed(times: &Path) -> Command {
    const SCRIPT: &str = r#"TIMEFORMAT='%3U %3S'; { time timeout "$@" 2>&3; } 3>&2 2>"$0""#;
    let mut command = Command::new("bash");
    command.args(["-c", SCRIPT]).arg(times);
    command
}

/// The sum of the seconds in a text, in milliseconds.
fn cpu_ms(text: &str) -> u64 {
    let seconds = text
        .split_whitespace()
        .filter_map(|it| it.replace('.', "").parse::<u64>().ok());
    seconds.sum()
}
