//! The key-value shell for testing the fuzzer: each of its planted bugs is found at its line when the workload that
//! triggers it is checked, and nothing is found in the clean twin with the same workloads.
//!
//! `cargo xtask bench fuzz` measures whether the fuzzer finds these workloads.

#[path = "../../../../benches/fuzz/bugs.rs"]
mod bugs;
mod figures;
mod pool;
mod trigger;

use std::path::{Path, PathBuf};
use std::process::Command;

use powerfail_finding::{Report, Severity};
use tempfile::TempDir;

use pool::Pool;
use trigger::Trigger;

/// The shell, built with some flags.
fn build(flags: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let binary = folder.path().join("kv");
    let mut script = Command::new(trigger::sources().join("build.sh"));
    let output = script.arg(&binary).args(flags).output();
    let output = output.expect("a script that can be run");
    assert!(output.status.success(), "{output:?}");
    (folder, binary)
}

/// The workloads that are checked for a structure: its triggers, combined where possible.
fn workloads(structure: &str) -> Vec<Trigger> {
    let mut workloads: Vec<Trigger> = Vec::new();
    for bug in bugs::planted(&trigger::sources()).into_keys() {
        let trigger = trigger::of(bug);
        if trigger.structure() != structure {
            continue;
        }
        let mut together = workloads.iter_mut().filter(|it| it.is_mergeable());
        match together.next().filter(|_| trigger.is_mergeable()) {
            Some(workload) => workload.append(&trigger),
            None => workloads.push(trigger),
        }
    }
    workloads
}

fn check(binary: &Path, workload: &Trigger, flags: &[&str]) -> Report {
    // Creating a pool is a separate workload.
    let makes_pool = workload.before.is_empty() && workload.is_alone && workload.bugs == [CREATION];
    let pool = if makes_pool {
        Pool::absent(binary, CHECK)
    } else {
        Pool::empty(binary, CHECK)
    };
    for step in &workload.before {
        pool.prepare(step);
    }
    pool.check(workload, flags)
}

/// The commands that make the shell check everything.
const CHECK: &str = "--check";

/// The bug that shows before any command.
const CREATION: u32 = 39;

#[test]
fn there_are_forty_bugs() {
    let bugs = bugs::planted(&trigger::sources());
    assert_eq!(
        bugs.keys().copied().collect::<Vec<_>>(),
        (1..=40).collect::<Vec<_>>()
    );
    for (number, bug) in &bugs {
        assert!(!bug.what.is_empty(), "bug {number} says nothing");
    }
}

/// Flags for triggers that do not need lost lines, which take longest; one failure point per call stack is enough.
const QUICK: &[&str] = &["--no-lazy", "--failure-points", "fence", "--per-stack", "1"];

/// Flags for triggers that need them. The first failure shows the bug; second ones in recovery by PMDK would take up all
/// of their time.
const LOST_LINES: &[&str] = &["--depth", "1"];

/// Checks the triggers of a structure with all bugs of the shell, and with none.
fn check_structure(structure: &str) {
    let (_folder, binary) = build(&["-DBUGS_ALL"]);
    let (_clean_folder, clean) = build(&[]);
    let bugs = bugs::planted(&trigger::sources());
    let mut complaints = Vec::new();
    for workload in workloads(structure) {
        let flags = if workload.needs_lost_lines {
            LOST_LINES
        } else {
            QUICK
        };
        let findings = check(&binary, &workload, flags).findings;
        let mut missed = workload.bugs.clone();
        missed.retain(|number| !findings.iter().any(|it| bugs[number].is_shown_by(it)));
        if !missed.is_empty() {
            complaints.push(format!("bugs {missed:?} are not found: {findings:#?}"));
        }
        let mut surplus = check(&clean, &workload, flags).findings;
        surplus.retain(|finding| finding.severity != Severity::Warning);
        if !surplus.is_empty() {
            complaints.push(format!("{:?}: the twin has {surplus:#?}", workload.bugs));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn bugs_of_the_btree() {
    check_structure("btree");
}

#[test]
fn bugs_of_the_hash_map() {
    check_structure("hash");
}

#[test]
fn bugs_of_the_radix_tree() {
    check_structure("radix");
}

#[test]
fn bugs_of_the_skip_list() {
    check_structure("skip");
}
