//! Running the tests and counting them over all test binaries.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::Context;

/// How many tests passed and failed. A test binary that ended without a result counts as failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// A binary has begun and has not given its result yet.
    running: bool,
}

impl Tally {
    pub(crate) fn all_passed(self) -> bool {
        self.failed == 0 && self.passed > 0
    }

    fn add(&mut self, line: &str) {
        if is_beginning(line) {
            self.close();
            self.running = true;
        }
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let count = |name: &str| {
            result
                .split([';', '.'])
                .filter_map(|part| part.trim().strip_suffix(name)?.trim().parse::<u64>().ok())
                .sum::<u64>()
        };
        self.passed += count("passed");
        self.failed += count("failed");
        self.running = false;
    }

    /// Counts a binary that has ended without a result.
    fn close(&mut self) {
        self.failed += u64::from(self.running);
        self.running = false;
    }
}

/// Whether a test binary begins with this line: `running 3 tests`.
fn is_beginning(line: &str) -> bool {
    line.strip_prefix("running ")
        .and_then(|rest| {
            rest.strip_suffix(" tests")
                .or_else(|| rest.strip_suffix(" test"))
        })
        .is_some_and(|count| count.parse::<u64>().is_ok())
}

/// Runs `cargo test`, shows what it prints, and counts.
pub(crate) fn run(mut command: Command) -> anyhow::Result<Tally> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.context("cannot read what the tests print")?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            tally.add(&line);
        }
    }
    tally.close();
    let status = child.wait().context("cannot wait for the tests")?;
    if !status.success() && tally.failed == 0 {
        // Something did not compile or crashed before it could give a result.
        tally.failed = 1;
    }
    Ok(tally)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn results_of_all_binaries_are_added() {
        let mut tally = Tally::default();
        tally.add("running 3 tests");
        tally.add("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        tally.add("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured");
        assert_eq!(
            tally,
            Tally {
                passed: 15,
                failed: 2,
                running: false
            }
        );
        assert!(!tally.all_passed());
    }

    #[test]
    fn a_binary_without_a_result_is_counted_beside_others_that_failed() {
        let mut tally = Tally::default();
        tally.add("running 1 test");
        tally.add("test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured");
        tally.add("running 7 tests");
        tally.add("test crashes ... running wild");
        tally.add("running 2 tests");
        tally.add("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured");
        tally.add("running 3 tests");
        tally.close();
        assert_eq!((tally.passed, tally.failed), (2, 3));
    }
}
