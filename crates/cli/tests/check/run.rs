//! The result of a run of `powerfail`: the part that tests of several folders need.

use std::process::{Command, Output};

use powerfail_finding::Report;

/// Ends a run that hangs. Far longer than any run takes.
const GUARD_SECONDS: &str = "120";

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("not killed by a signal"),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

impl Run {
    /// Runs `powerfail` by `timeout`, a command that lacks its arguments.
    pub(crate) fn powerfail(mut timeout: Command, arguments: &[&str]) -> Self {
        timeout
            .args(["--kill-after=10", GUARD_SECONDS])
            .arg(env!("CARGO_BIN_EXE_powerfail"))
            .args(arguments);
        timeout.output().expect("powerfail runs").into()
    }

    /// The report on standard output.
    pub(crate) fn report(&self) -> Report {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no report: {error}: {self:?}"))
    }

    /// Checks the exit code, and prints all output if it differs.
    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.stdout, self.stderr);
        self
    }
}
