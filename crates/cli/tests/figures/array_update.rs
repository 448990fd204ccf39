//! Figure 2: a backup whose valid bit has the wrong values.

use powerfail_finding::{Code, Severity};

use crate::common::Figure;

#[test]
fn recovery_reads_a_stale_backup() {
    let figure = Figure::record("array_update", &[], "update");
    let semantic = Code::CrossFailureSemantic;
    let bugs = [figure.expect(semantic, &["INDEX", "VALUE"], "READ_INDEX", "DONE")];
    assert_eq!(figure.found("recover", &[]), bugs);
    assert_eq!(figure.found("recover", &["--strict"]), bugs);
}

#[test]
fn a_stale_backup_is_an_error() {
    let figure = Figure::record("array_update", &[], "update");
    let report = figure.races("recover", &[]);
    assert!(
        report
            .findings
            .iter()
            .all(|it| it.severity == Severity::Error)
    );
}

#[test]
fn the_right_values_of_the_valid_bit_are_silent() {
    let figure = Figure::record("array_update", &["CORRECT"], "update");
    assert_eq!(figure.found("recover", &[]), []);
    assert_eq!(figure.found("recover", &["--strict"]), []);
}
