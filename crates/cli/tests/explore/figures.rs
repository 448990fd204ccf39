//! Figures 2, 3 and 4 of the Jaaru paper: fewer executions than the paper counts, which counts each failure point by itself,
//! and no fewer than there are distinguishable observations in the whole run.

use crate::common::{Explored, Run, program};

fn explore(name: &str, workload: &str, recover: &str, flags: &[&str]) -> Explored {
    let run = Run::record(&program(name, 0), &[workload]);
    // The last stores of figure 2 are never flushed, which the lint reports correctly.
    let crashes = [
        "--exhaustive",
        "--only",
        "atomicity,ordering,recovery-crash",
    ];
    let explored = run.explore(&[recover], &[&crashes, flags].concat());
    assert!(explored.is_silent(), "{explored:?}");
    explored
}

/// Forking and re-execution give the same number.
fn executions(name: &str, workload: &str, recover: &str) -> u64 {
    let forked = explore(name, workload, recover, &[]).exploration;
    let again = explore(name, workload, recover, &["--no-fork"]).exploration;
    assert_eq!(forked.executions, again.executions, "{name} {recover}");
    assert_eq!(forked.choices, again.choices, "{name} {recover}");
    forked.executions
}

#[test]
fn one_of_two_variables_in_a_line() {
    // x is 0 or 2, then 2, 4 or 6. The paper counts 2 twice.
    assert_eq!(executions("two_variables", "store", "recover"), 4);
}

#[test]
fn both_variables_in_a_line() {
    // 0 0, 0 1, 2 1; then 2 1, 2 3, 4 3, 4 5, 6 5. The paper counts 2 1 twice.
    assert_eq!(executions("two_variables", "store", "recover-both"), 7);
}

#[test]
fn a_commit_store_is_read_first() {
    // No child; no child or one; one, which is known by then.
    let executions = executions("commit_store", "add", "read");
    assert!((2..=4).contains(&executions), "{executions}");
}

#[test]
fn data_is_read_without_its_commit_store() {
    let executions = executions("commit_store", "add", "read-data");
    assert!((2..=4).contains(&executions), "{executions}");
}
