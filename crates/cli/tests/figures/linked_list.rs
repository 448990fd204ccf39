//! Figure 1: a length that is not part of a transaction.

use powerfail_finding::{Code, Severity};

use crate::common::Figure;

fn figure() -> Figure {
    Figure::record("linked_list", &[], "append")
}

#[test]
fn recovery_races_with_the_append_for_the_length() {
    let figure = figure();
    let race = figure.expect(Code::CrossFailureRace, &["APPEND"], "POP", "COMMIT");
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

/// The race exists at every append, and recovery fails at the first one only.
#[test]
fn the_race_is_an_error_although_recovery_survives_later_appends() {
    let figure = Figure::record("linked_list", &["APPENDS=9"], "append");
    let race = figure.expect(Code::CrossFailureRace, &["APPEND"], "POP", "COMMIT");
    assert_eq!(figure.found("recover", &[]), [race]);
    let report = figure.races("recover", &[]);
    let finding = &report.findings[0];
    assert_eq!(finding.severity, Severity::Error);
    let read = finding.read.as_ref().expect("it is about a read");
    assert!(read.failure_points > 8, "{read:?}");
    let evidence = finding.evidence.as_ref().expect("a run shows it");
    assert!(evidence.failure.lost_lines.is_empty(), "{evidence:?}");
}

/// Power failures in recovery show the same mistake again, where nothing of the workload fails at the first one.
#[test]
fn a_check_with_races_blames_the_append_and_nothing_else() {
    let figure = Figure::record("linked_list", &["APPENDS=2"], "append");
    let report = figure.check("append", "recover", &["--races"]);
    let found: Vec<_> = { report.findings.iter() }
        .map(|it| (it.code, it.severity, it.places[0].line))
        .collect();
    let append = Some(figure.line("APPEND"));
    assert_eq!(found, [(Code::StoreNotAdded, Severity::Error, append)]);
}
