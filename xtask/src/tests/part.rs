//! Some tests of one binary, run in one process.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::Binary;
use crate::cpu_time::CpuTime;

/// Tests of one binary that are run in one process.
#[derive(Debug)]
pub(super) struct Part<'b> {
    pub(super) binary: &'b Binary,
    tests: Vec<String>,
}

/// The result of a part.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) binary: String,
    pub(super) passed: u64,
    /// The names of the failed tests.
    pub(super) failed: Vec<String>,
    /// The CPU time of each completed test.
    pub(super) times: Vec<(String, Duration)>,
    took: Duration,
    /// The complete output.
    output: String,
}

/// The names of the tests of a binary.
pub(super) fn list(binary: &Binary) -> anyhow::Result<Vec<String>> {
    let output = command(binary)
        .args(["--list", "--format=terse"])
        .output()
        .with_context(|| format!("cannot run {}", binary.executable.display()))?;
    if !output.status.success() {
        bail!("{} does not list its tests", binary.executable.display());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

/// The binary as `cargo test` would run it, also where CI runs in the background: a shell lets its background processes
/// ignore SIGINT, and everything that they start would do so, too.
fn command(binary: &Binary) -> Command {
    let mut command = Command::new("env");
    command
        .arg("--default-signal=INT,QUIT,TERM")
        .arg(&binary.executable)
        .current_dir(&binary.folder)
        .env("CARGO_MANIFEST_DIR", &binary.folder)
        .env("CARGO_PKG_NAME", &binary.package)
        .stdin(Stdio::null());
    command
}

impl<'b> Part<'b> {
    pub(super) fn new(binary: &'b Binary, tests: &[String]) -> Self {
        let tests = tests.to_vec();
        Self { binary, tests }
    }

    /// Runs its tests one after the other.
    pub(super) fn run(&self) -> anyhow::Result<Report> {
        let begun = Instant::now();
        let mut child = command(self.binary)
            .args(["--test-threads=1", "--exact"])
            .args(&self.tests)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.binary.executable.display()))?;
        let process = child.id().to_string();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (stamped, errors) = std::thread::scope(|scope| {
            let errors = scope.spawn(move || {
                let mut bytes = Vec::new();
                // Everything that can be read is shown.
                let _ = stderr.map(|mut it| it.read_to_end(&mut bytes));
                String::from_utf8_lossy(&bytes).into_owned()
            });
            let lines = stdout.into_iter().flat_map(|it| lines(BufReader::new(it)));
            let spent = || CpuTime::of(&process).total();
            let stamped: Vec<_> = lines.map(|line| (spent(), line)).collect();
            (stamped, errors.join().unwrap_or_default())
        });
        let status = child.wait().context("cannot wait for a test binary")?;
        Ok(self.report(&stamped, &errors, status, begun.elapsed()))
    }

    fn report(
        &self,
        stamped: &[(Duration, String)],
        errors: &str,
        status: ExitStatus,
        took: Duration,
    ) -> Report {
        let name = format!("{}::{}", self.binary.package, self.binary.name);
        let mut passed = BTreeSet::new();
        let mut ended = Vec::new();
        let mut times = Vec::new();
        let mut before = Duration::ZERO;
        for (at, line) in stamped {
            let Some((test, word)) = ended_test(line) else {
                continue;
            };
            times.push((format!("{name} {test}"), at.saturating_sub(before)));
            before = *at;
            ended.push(test);
            if word == "ok" {
                passed.insert(test);
            }
        }
        let lines = stamped.iter().map(|(_, line)| line.as_str());
        let counted = lines.clone().find_map(result);
        let failed = |tests: &mut dyn Iterator<Item = &String>| -> Vec<String> {
            tests.map(|test| format!("{name} {test}")).collect()
        };
        let without_result =
            || failed(&mut self.tests.iter().filter(|it| !passed.contains(it.as_str())));
        let (passed_count, failed) = match counted {
            Some((count, 0)) if status.success() && count == self.tests.len() as u64 => {
                (count, Vec::new())
            }
            Some((count, _)) if ended.len() == self.tests.len() => (count, without_result()),
            // It ended without a result, or did not run every test: every test that has not passed has failed.
            _ => (passed.len() as u64, without_result()),
        };
        let mut failed = failed;
        if failed.is_empty() && !status.success() {
            failed.push(format!("{name}: {status}"));
        }
        let output = lines.collect::<Vec<_>>().join("\n");
        Report {
            binary: name,
            passed: passed_count,
            failed,
            times,
            took,
            output: format!("{output}\n{errors}"),
        }
    }
}

/// The test that this line ends, and how: `test a::b ... ok`.
fn ended_test(line: &str) -> Option<(&str, &str)> {
    let (test, word) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let test = test.strip_suffix(" - should panic").unwrap_or(test);
    Some((test, word.trim_end()))
}

/// How many tests passed and failed by the last line of a test binary.
pub(super) fn result(line: &str) -> Option<(u64, u64)> {
    let result = line.strip_prefix("test result: ")?;
    let count = |name: &str| {
        let parts = result.split([';', '.']);
        parts
            .filter_map(|part| part.trim().strip_suffix(name)?.trim().parse::<u64>().ok())
            .sum::<u64>()
    };
    Some((count("passed"), count("failed")))
}

/// The lines of a program's output, even if it is not UTF-8.
pub(super) fn lines(reader: impl BufRead) -> impl Iterator<Item = String> {
    let lines = reader.split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).into_owned())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, seconds) = (self.passed, self.took.as_secs_f64());
        let word = if self.failed.is_empty() {
            "ok"
        } else {
            "FAILED"
        };
        write!(
            f,
            "{word} {}: {passed} passed in {seconds:.1} s",
            self.binary
        )?;
        if !self.failed.is_empty() {
            write!(f, "\n{}", self.output)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod unit {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn report(lines: &[&str], tests: &[&str], code: i32) -> Report {
        let binary = Binary {
            package: "package".to_owned(),
            name: "binary".to_owned(),
            executable: "/binary".into(),
            folder: "/".into(),
        };
        let tests: Vec<_> = tests.iter().map(|it| (*it).to_owned()).collect();
        let stamped: Vec<_> = (1..)
            .map(Duration::from_secs)
            .zip(lines.iter().map(|it| (*it).to_owned()))
            .collect();
        let status = ExitStatus::from_raw(code << 8);
        Part::new(&binary, &tests).report(&stamped, "", status, Duration::from_secs(9))
    }

    #[test]
    fn passed_tests_are_counted_and_timed() {
        let lines = [
            "running 2 tests",
            "test a ... ok",
            "test b - should panic ... ok",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out",
        ];
        let report = report(&lines, &["a", "b"], 0);
        assert_eq!((report.passed, report.failed.len()), (2, 0));
        let times: Vec<_> = report.times.iter().map(|(_, it)| it.as_secs()).collect();
        assert_eq!(times, [2, 1]);
    }

    #[test]
    fn a_line_that_a_process_of_a_test_breaks_is_no_failure() {
        let lines = [
            "test a ... something printed",
            "ok",
            "test result: ok. 1 passed; 0 failed; 0 ignored",
        ];
        let report = report(&lines, &["a"], 0);
        assert_eq!((report.passed, report.failed.len()), (1, 0));
    }

    #[test]
    fn failed_tests_are_named() {
        let lines = [
            "test a ... FAILED",
            "test b ... ok",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored",
        ];
        let report = report(&lines, &["a", "b"], 101);
        assert_eq!(report.passed, 1);
        assert_eq!(report.failed, ["package::binary a"]);
    }

    #[test]
    fn what_has_no_result_has_failed() {
        let crashed = report(&["test a ... ok", "test b ... "], &["a", "b", "c"], 134);
        assert_eq!(crashed.passed, 1);
        assert_eq!(crashed.failed, ["package::binary b", "package::binary c"]);
        let silent = report(&[], &["a"], 0);
        assert_eq!(silent.failed, ["package::binary a"]);
    }

    #[test]
    fn a_binary_that_fails_after_its_tests_has_failed() {
        let lines = ["test a ... ok", "test result: ok. 1 passed; 0 failed"];
        let report = report(&lines, &["a"], 1);
        assert_eq!(report.failed, ["package::binary: exit status: 1"]);
    }
}
