//! Figure 1: a length that is not part of a transaction.

use powerfail_finding::{Code, Severity};

use crate::common::Figure;

fn figure() -> Figure {
    Figure::record("linked_list", &[], "append")
}

#[test]
fn recovery_races_with_the_append_for_the_length() {
    let figure = figure();
    let race = figure.expect(Code::CrossFailureRace, "APPEND", "POP", "COMMIT");
    assert_eq!(figure.found("recover", &[]), [race]);
}

#[test]
fn the_race_is_an_error_because_pop_can_crash() {
    let report = figure().races("recover", &[]);
    let severities: Vec<_> = report.findings.iter().map(|it| it.severity).collect();
    assert_eq!(severities, [Severity::Error]);
}

#[test]
fn a_recovery_that_counts_again_is_silent() {
    let figure = figure();
    assert_eq!(figure.found("recover-alt", &[]), []);
    assert_eq!(figure.found("recover-alt", &["--strict"]), []);
}
