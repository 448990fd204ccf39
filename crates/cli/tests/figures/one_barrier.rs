//! Figure 11: a backup and its valid bit under one barrier.

use powerfail_finding::Code;

use crate::common::{Figure, FoundBug};

/// The race at F1 and the semantic bug at F2, each with both members of the backup.
fn bugs(figure: &Figure) -> Vec<FoundBug> {
    let (race, semantic) = (Code::CrossFailureRace, Code::CrossFailureSemantic);
    vec![
        figure.expect(race, &["INDEX", "VALUE"], "READ_INDEX", "F1"),
        figure.expect(semantic, &["INDEX", "VALUE"], "READ_INDEX", "F2"),
    ]
}

#[test]
fn a_race_at_the_first_barrier_and_a_semantic_bug_at_the_second() {
    let figure = Figure::record("one_barrier", &[], "update");
    assert_eq!(figure.found("recover", &["--strict"]), bugs(&figure));
}

#[test]
fn values_that_are_read_from_another_line_race_by_their_values() {
    let figure = Figure::record("one_barrier", &[], "update");
    assert_eq!(figure.found("recover", &[]), bugs(&figure));
}

#[test]
fn in_one_line_the_race_is_one_by_the_rule_of_the_paper_only() {
    let figure = Figure::record("one_barrier", &["SAME_LINE"], "update");
    let bugs = bugs(&figure);
    assert_eq!(figure.found("recover", &["--strict"]), bugs);
    assert_eq!(figure.found("recover", &[]), bugs[1..]);
}

#[test]
fn a_barrier_after_each_is_silent() {
    let figure = Figure::record("one_barrier", &["CORRECT"], "update");
    assert_eq!(figure.found("recover", &[]), []);
    assert_eq!(figure.found("recover", &["--strict"]), []);
}
