//! Starts `powerfail check` on this test binary, and turns its result into that of the test.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Settings;
use crate::child::{Part, argument};
use crate::data::Data;

/// The environment variable with the binary, or `once`.
const VARIABLE: &str = "POWERFAIL";
const BINARY: &str = "powerfail";

/// Whether the environment says that closures run once, without powerfail.
pub(crate) fn is_once() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "once")
}

/// Runs the closures one after the other in this process.
pub(crate) fn run_once<D: Data>(
    len_bytes: u64,
    workload: impl FnOnce(&mut D) -> Option<String>,
    recover: impl FnOnce(&mut D) -> Option<String>,
) {
    let folder = tempfile::tempdir().expect("a directory for the data");
    let path = folder.path().join("data");
    let open = || D::open(&path, len_bytes).expect("data that can be opened");
    if let Some(error) = workload(&mut open()) {
        panic!("the workload fails: {error}");
    }
    if let Some(error) = recover(&mut open()) {
        panic!("recovery fails without a crash: {error}");
    }
}

/// Runs the check of a test. The error is the message of the test.
pub(crate) fn check<D: Data>(settings: &Settings, name: &str, number: u64) -> Result<(), String> {
    let binary = match &settings.binary {
        Some(binary) => binary.clone(),
        None => find_binary().ok_or_else(missing)?,
    };
    let test = std::env::current_exe()
        .map_err(|error| format!("the test binary is not known: {error}"))?;
    let out = output_directory(&test, name, number);
    if let Some(parent) = out.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|error| format!("{}: {error}", parent.display()))?;
    }
    let mut command = Command::new(&binary);
    command.arg("check").arg("--out").arg(&out);
    command.arg("--recover").arg(shell_line(&words::<D>(
        &test,
        name,
        Part::Recovery,
        number,
    ))?);
    command.args(&settings.arguments).arg("--");
    command.args(words::<D>(&test, name, Part::Workload, number));
    command.stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}\n{}", binary.display(), missing()))?;
    let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(1) => Err(format!(
            "{name} is not crash-consistent:\n\n{}",
            read(&output.stdout)
        )),
        Some(5) => Err(format!(
            "{name}: nothing was checked:\n\n{}{}",
            read(&output.stdout),
            read(&output.stderr)
        )),
        _ => Err(format!(
            "{name} cannot be checked:\n\n{}{}",
            read(&output.stdout),
            read(&output.stderr)
        )),
    }
}

/// The command that plays a part of a check.
fn words<D: Data>(test: &Path, name: &str, part: Part, number: u64) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![test.into()];
    words.extend(
        [
            name,
            "--exact",
            "--include-ignored",
            "--nocapture",
            "--test-threads=1",
        ]
        .map(Into::into),
    );
    words.extend([argument(part, number).into(), D::PLACEHOLDER.into()]);
    words
}

/// The words as one text that is split into the same words.
fn shell_line(words: &[OsString]) -> Result<String, String> {
    let quoted = words.iter().map(|word| {
        let text = word
            .to_str()
            .ok_or_else(|| format!("{} is not UTF-8", word.display()))?;
        Ok(format!("'{}'", text.replace('\'', r"'\''")))
    });
    Ok(quoted.collect::<Result<Vec<String>, String>>()?.join(" "))
}

/// The binary of the environment.
fn find_binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(BINARY))
        .find(|file| file.is_file())
}

/// What to do about a binary that is not there.
fn missing() -> String {
    format!(
        "this test needs the program {BINARY}, which is not in PATH\n\
         help: cargo install --path crates/cli, in a checkout of powerfail; or set {VARIABLE} to its path\n\
         help: {VARIABLE}=once runs workload and recovery once, without a crash"
    )
}

/// Where evidence is kept, for `powerfail replay`: in the directory of the build.
fn output_directory(test: &Path, name: &str, number: u64) -> PathBuf {
    let build = test
        .ancestors()
        .find(|it| it.file_name() == Some(OsStr::new("target")));
    let build = build.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let program = test.file_name().unwrap_or_default().to_string_lossy();
    // Without the hash that cargo adds.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let name = name.replace("::", ".");
    let number = match number {
        0 => String::new(),
        number => format!(".{number}"),
    };
    build
        .join("powerfail")
        .join(program)
        .join(format!("{name}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_quoted() {
        let words = ["/a b/it's", "x"].map(OsString::from);
        assert_eq!(shell_line(&words), Ok(r"'/a b/it'\''s' 'x'".to_owned()));
    }

    #[test]
    fn evidence_is_in_the_directory_of_the_build() {
        let path = output_directory(Path::new("/p/target/debug/deps/store-0123"), "tests::a", 1);
        assert_eq!(path, Path::new("/p/target/powerfail/store/tests.a.1"));
    }
}
