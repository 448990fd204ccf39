//! Running the real binary.

use std::path::Path;
use std::process::{Command, Output};

/// The result of a run of `powerfail`.
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

/// The binary, ready to be given arguments.
pub(crate) fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_powerfail"))
}

/// Runs the binary to its end.
pub(crate) fn powerfail(arguments: &[&str]) -> Run {
    command()
        .args(arguments)
        .output()
        .expect("the binary runs")
        .into()
}

/// Runs the binary with a standard output whose reader has closed it.
pub(crate) fn powerfail_into_closed_pipe(arguments: &[&str]) -> Run {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command()
        .args(arguments)
        .stdout(writer)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .expect("the binary runs")
        .into()
}

/// The path of a litmus file, or of the suite.
pub(crate) fn litmus(name: &str) -> String {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/litmus");
    suite.join(name).to_str().expect("text").to_owned()
}

/// Writes a file into a folder and returns its path.
pub(crate) fn write(
    folder: &tempfile::TempDir,
    name: &str,
    content: &(impl AsRef<[u8]> + ?Sized),
) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("the folder is writable");
    path.to_str().expect("text").to_owned()
}
