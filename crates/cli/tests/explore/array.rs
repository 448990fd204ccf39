//! An array with a commit store: the number of executions does not depend on its length, the number of states does.

use crate::common::{Explored, Run, program};

fn explore(len: usize, bug: u32) -> Explored {
    let len = len.to_string();
    let run = Run::record(&program("array", bug), &["fill", &len]);
    run.explore(&["recover", &len], &["--exhaustive"])
}

#[test]
fn executions_are_constant_in_the_length() {
    let small = explore(8, 0);
    assert!(small.is_silent(), "{small:?}");
    // Once before the commit, twice at the commit store, once at the end; fewer if some results are known.
    assert!(small.exploration.executions <= 4, "{small:?}");
    for len in [64, 512, 4096] {
        let large = explore(len, 0);
        assert!(large.is_silent(), "{large:?}");
        let (large, small) = (&large.exploration, &small.exploration);
        assert_eq!(large.executions, small.executions, "{len}");
        assert_eq!(large.choices, small.choices, "{len}");
    }
}

#[test]
fn states_are_nine_to_the_power_of_the_lines() {
    let short = explore(16, 0);
    // Before the fence of the array, before that of the commit store, and at the end if that is a failure point.
    let states: u64 = short.exploration.states.parse().expect("a small number");
    assert!((81 + 2..=81 + 2 + 1).contains(&states), "{states}");
}

#[test]
fn an_array_that_is_committed_too_early_is_found() {
    let explored = explore(64, 1);
    assert_eq!(explored.code, Some(1));
    assert!(!explored.report.findings.is_empty());
}
