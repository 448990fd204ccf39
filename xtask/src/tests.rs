//! Builds all tests, runs them on all cores at once, and counts them.
//!
//! `cargo test` runs one test binary after the other, so that the last slow test of each keeps all cores but one
//! idle. This builds the binaries with cargo, asks each for its tests, and runs several binaries at a time. It needs
//! nothing that is not part of a Rust toolchain.
//!
//! A binary is started with one test thread, which makes the cost of each test known. The slow ones, [`SPLIT`], are
//! run in parts. No test is run twice: one that fails has failed.

mod part;

use std::collections::{BTreeMap, VecDeque};
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

use part::{Part, Report};

/// Test binaries that are run in parts of this many tests, the slowest first: package, name, tests in a part.
const SPLIT: [(&str, &str, usize); 11] = [
    ("powerfail", "planted", 2),
    ("powerfail", "fuzz", 3),
    ("powerfail", "check", 10),
    ("powerfail", "record", 20),
    ("powerfail", "software", 2),
    ("powerfail", "heap", 10),
    ("powerfail-oracle", "oracle", 30),
    ("powerfail", "races", 10),
    ("powerfail-runtime", "explore", 30),
    ("powerfail", "explore", 2),
    ("powerfail", "shell", 4),
];

/// How many of the most expensive tests are named in the end.
const MOST_EXPENSIVE: usize = 25;

/// How many of the most expensive test binaries are named in the end.
const MOST_EXPENSIVE_BINARIES: usize = 12;

/// How many tests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    pub(crate) fn all_passed(self) -> bool {
        self.failed == 0 && self.passed > 0
    }
}

/// A test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Binary {
    package: String,
    name: String,
    executable: PathBuf,
    /// The folder of its package, in which cargo runs tests too.
    folder: PathBuf,
}

/// Builds and runs all tests. `cargo` makes a command of cargo from its arguments.
pub(crate) fn run(cargo: impl Fn(&[&str]) -> Command) -> anyhow::Result<Tally> {
    let build = [
        "test",
        "--workspace",
        "--no-run",
        "--locked",
        "--message-format=json-render-diagnostics",
    ];
    let mut binaries = Vec::new();
    crate::step("building tests", || {
        binaries = built(cargo(&build))?;
        Ok(())
    })?;
    let mut parts = Vec::new();
    for binary in &binaries {
        let tests = part::list(binary)?;
        let split = split_of(binary).map(|at| SPLIT[at].2);
        for tests in tests.chunks(split.unwrap_or(tests.len().max(1))) {
            parts.push(Part::new(binary, tests));
        }
    }
    // The slowest first, so that no slow one is left when all others are done.
    parts.sort_by_key(|part| split_of(part.binary).unwrap_or(SPLIT.len()));
    let reports = run_all(parts)?;
    let mut tally = Tally::default();
    for report in &reports {
        tally.passed += report.passed;
        tally.failed += report.failed.len() as u64;
    }
    show_most_expensive(&reports);
    for failed in reports.iter().flat_map(|report| &report.failed) {
        println!("failed: {failed}");
    }
    let mut documented = Tally::default();
    crate::step("tests in documentation", || {
        documented = documentation_tests(cargo(&["test", "--workspace", "--doc", "--locked"]))?;
        Ok(())
    })?;
    tally.passed += documented.passed;
    tally.failed += documented.failed;
    Ok(tally)
}

/// The place of a binary among those that are run in parts.
fn split_of(binary: &Binary) -> Option<usize> {
    SPLIT
        .iter()
        .position(|(package, name, _)| (*package, *name) == (&binary.package, &binary.name))
}

/// Runs a build and returns the test binaries that it made.
fn built(mut command: Command) -> anyhow::Result<Vec<Binary>> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("the tests do not compile");
    }
    let text = String::from_utf8(output.stdout).context("what cargo prints is not text")?;
    let binaries: Vec<_> = text.lines().filter_map(binary_of_message).collect();
    if binaries.is_empty() {
        bail!("cargo names no test binary");
    }
    Ok(binaries)
}

/// The test binary that a message of cargo names.
fn binary_of_message(line: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(line).ok()?;
    if !message["profile"]["test"].as_bool()? {
        return None;
    }
    let executable = message["executable"].as_str()?;
    let folder = PathBuf::from(message["manifest_path"].as_str()?);
    let folder = folder.parent()?.to_owned();
    // `path+file:///folder#name@version`, or `path+file:///folder/name#version`.
    let (path, fragment) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = fragment.split_once('@').map_or_else(
        || path.rsplit_once('/').map(|(_, name)| name),
        |(name, _)| Some(name),
    )?;
    Some(Binary {
        package: package.to_owned(),
        name: message["target"]["name"].as_str()?.to_owned(),
        executable: executable.into(),
        folder,
    })
}

/// Test binaries that run campaigns. A campaign keeps all cores busy by itself and is repeated thousands of times a
/// second, so two of them at a time starve each other and everything else.
const CAMPAIGNS: [(&str, &str); 5] = [
    ("powerfail", "fuzz"),
    ("powerfail", "fuzz_server"),
    ("powerfail", "shell"),
    ("powerfail-fuzz", "campaign"),
    ("powerfail-runtime", "campaign"),
];

/// Runs all parts, one more than there are cores at a time, because some tests wait for a target that hangs. Of the
/// campaigns, one at a time.
fn run_all(parts: Vec<Part<'_>>) -> anyhow::Result<Vec<Report>> {
    let workers = 1 + std::thread::available_parallelism().map_or(1, usize::from);
    let count = parts.len();
    let is_campaign =
        |part: &Part<'_>| CAMPAIGNS.contains(&(&part.binary.package, &part.binary.name));
    let (campaigns, others): (VecDeque<_>, VecDeque<_>) = parts.into_iter().partition(is_campaign);
    let (campaigns, others) = (Mutex::new(campaigns), Mutex::new(others));
    let next = |queue: &Mutex<VecDeque<_>>| {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.pop_front()
    };
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let sender = sender.clone();
            let (campaigns, others) = (&campaigns, &others);
            scope.spawn(move || {
                // The first worker runs the campaigns before it helps with the others.
                let campaign = || (worker == 0).then(|| next(campaigns)).flatten();
                while let Some(part) = campaign().or_else(|| next(others)) {
                    if sender.send(part.run()).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut reports = Vec::new();
        for report in receiver {
            let report = report?;
            println!("[{}/{count}] {report}", reports.len() + 1);
            reports.push(report);
        }
        Ok(reports)
    })
}

/// Names the test binaries and the tests that took the most CPU time.
fn show_most_expensive(reports: &[Report]) {
    let mut binaries = BTreeMap::<&str, Duration>::new();
    for report in reports {
        let spent = report.times.iter().map(|(_, time)| *time).sum::<Duration>();
        *binaries.entry(&report.binary).or_default() += spent;
    }
    let mut binaries: Vec<_> = binaries.into_iter().collect();
    binaries.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    println!("the {MOST_EXPENSIVE_BINARIES} test binaries that took the most CPU time:");
    for (name, time) in binaries.iter().take(MOST_EXPENSIVE_BINARIES) {
        println!("{:7.1} s  {name}", time.as_secs_f64());
    }
    let mut tests: Vec<&(String, Duration)> =
        reports.iter().flat_map(|report| &report.times).collect();
    tests.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    println!("the {MOST_EXPENSIVE} tests that took the most CPU time:");
    for (name, time) in tests.iter().take(MOST_EXPENSIVE) {
        println!("{:7.1} s  {name}", time.as_secs_f64());
    }
}

/// Runs the tests in documentation, which only cargo can build, and counts them.
fn documentation_tests(mut command: Command) -> anyhow::Result<Tally> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        for line in part::lines(BufReader::new(output)) {
            println!("{line}");
            if let Some((passed, failed)) = part::result(&line) {
                tally.passed += passed;
                tally.failed += failed;
            }
        }
    }
    let status = child.wait().context("cannot wait for the tests")?;
    if !status.success() && tally.failed == 0 {
        // Something did not compile, or crashed before it could give a result.
        tally.failed = 1;
    }
    Ok(tally)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn messages_of_cargo_name_test_binaries() {
        let message = |id: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/a/b/Cargo.toml",
                "target":{{"name":"planted"}},"profile":{{"test":{test}}},"executable":"/a/planted-1"}}"#
            )
            .replace('\n', "")
        };
        let expected = Binary {
            package: "powerfail".to_owned(),
            name: "planted".to_owned(),
            executable: "/a/planted-1".into(),
            folder: "/a/b".into(),
        };
        for id in [
            "path+file:///a/b#powerfail@0.1.0",
            "path+file:///a/powerfail#0.1.0",
        ] {
            let found = binary_of_message(&message(id, true));
            assert_eq!(found.as_ref(), Some(&expected));
        }
        let program = message("path+file:///a/powerfail#0.1.0", false);
        assert_eq!(binary_of_message(&program), None);
        assert_eq!(
            binary_of_message(r#"{"reason":"build-finished","success":true}"#),
            None
        );
    }
}
