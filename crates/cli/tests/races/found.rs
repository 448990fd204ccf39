//! Which races are found, at which lines, and with which severity.

use powerfail_finding::{Code, NotDurable, Role};

use crate::common::{CLEAN, FINDINGS};
use crate::{folder, line, line_of, pairs, races};

#[test]
fn a_bit_without_an_annotation_is_a_warning() {
    let folder = folder(0);
    let run = races(&folder, &[]).ends_with(CLEAN);
    let bit = (
        Some(line("stores the bit")),
        Some(line("reads the bit")),
        false,
    );
    assert_eq!(pairs(&run), [bit], "{}", run.stdout);
    races(&folder, &["--deny", "warnings"]).ends_with(FINDINGS);
}

#[test]
fn a_race_that_makes_recovery_fail_is_an_error_with_its_evidence() {
    let folder = folder(1);
    let run = races(&folder, &[]).ends_with(FINDINGS);
    let value = (
        Some(line("stores the value")),
        Some(line("reads the value")),
        true,
    );
    let bit = (
        Some(line("stores the bit too early")),
        Some(line("reads the bit")),
        false,
    );
    assert_eq!(pairs(&run), [value, bit], "{}", run.stdout);
    let report = run.report();
    let finding = &report.findings[0];
    assert_eq!(finding.code, Code::CrossFailureRace);
    let evidence = finding.evidence.as_ref().expect("a run shows it");
    let lost: Vec<u64> = evidence
        .failure
        .lost_lines
        .iter()
        .map(|it| it.pool_offset)
        .collect();
    assert_eq!(lost, [0], "the line of the value");
    let decisive = evidence
        .choices
        .iter()
        .find(|it| it.decisive)
        .expect("a load decides");
    assert_eq!(decisive.load.line, Some(line("reads the value")));
    let read = finding.read.as_ref().expect("it is about a read");
    assert_eq!(read.bytes, "0700000000000000");
    assert_eq!(read.instead, ["0000000000000000"]);
    assert_eq!(read.not_durable, Some(NotDurable::NotFenced));
    assert_eq!(read.failure_points, finding.count);
    let totals = report.totals.races.expect("reads were watched");
    assert_eq!((totals.pairs, totals.confirmed), (2, 1));
    assert!(totals.confirmations >= 2, "{totals:?}");
}

#[test]
fn a_race_that_recovery_survives_is_a_warning() {
    let folder = folder(2);
    let run = races(&folder, &[]).ends_with(CLEAN);
    let value = (
        Some(line("stores the value")),
        Some(line("reads the value")),
        false,
    );
    assert!(pairs(&run).contains(&value), "{}", run.stdout);
    let text = folder.powerfail(&["races", "run.trace", "--recover", "./bug {pool} recover"]);
    let text = text.ends_with(CLEAN);
    assert!(
        text.stdout.contains("recovery succeeded each time"),
        "{}",
        text.stdout
    );
    assert!(
        text.stdout.contains("no bugs found; 2 warnings"),
        "{}",
        text.stdout
    );
}

#[test]
fn a_read_of_what_is_not_committed_is_an_error_without_a_run() {
    let folder = folder(4);
    let run = races(&folder, &[]).ends_with(FINDINGS);
    let finding = run.finding("PF0702");
    assert_eq!(
        line_of(&finding, Role::Store),
        Some(line("stores the value"))
    );
    let reads = line("reads what is not committed");
    assert_eq!(line_of(&finding, Role::Load), Some(reads));
    assert!(finding.evidence.is_none());
    assert!(
        finding.message.contains("not committed"),
        "{}",
        finding.message
    );
}

/// The value is the same in all crash states: only the strict rule reports it.
#[test]
fn equal_values_are_for_the_strict_rule() {
    let folder = folder(5);
    let again = (
        Some(line("stores the value again")),
        Some(line("reads the value")),
        true,
    );
    let usual = races(&folder, &[]).ends_with(CLEAN);
    assert!(
        pairs(&usual).iter().all(|(store, ..)| *store != again.0),
        "{}",
        usual.stdout
    );
    let strict = races(&folder, &["--strict"]).ends_with(FINDINGS);
    assert!(pairs(&strict).contains(&again), "{}", strict.stdout);
    let report = strict.report();
    let read = report
        .findings
        .iter()
        .find(|it| line_of(it, Role::Store) == again.0)
        .and_then(|it| it.read.as_ref())
        .expect("it is about a read");
    assert!(read.strict && read.instead.is_empty(), "{read:?}");
    assert_eq!(read.not_durable, Some(NotDurable::NeverFlushed));
}

#[test]
fn what_recovery_skips_is_not_reported() {
    let folder = folder(6);
    races(&folder, &["--deny", "warnings"]).ends_with(CLEAN);
}

#[test]
fn workers_change_nothing() {
    let folder = folder(1);
    let one = races(&folder, &["--jobs", "1"]);
    for jobs in ["2", "5"] {
        assert_eq!(
            one.stdout,
            races(&folder, &["--jobs", jobs]).stdout,
            "{jobs}"
        );
    }
}

#[test]
fn only_some_codes_can_be_asked_for() {
    let folder = folder(4);
    let run = races(&folder, &["--only", "cross-failure-race"]).ends_with(CLEAN);
    assert!(
        run.codes().iter().all(|code| *code == "PF0701"),
        "{}",
        run.stdout
    );
}
