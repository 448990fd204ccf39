//! A race is tried at every failure point at which it exists, in both ways, and what was tried is said.

use powerfail_finding::{Role, Severity};

use crate::common::{CLEAN, FINDINGS, Folder, RECOVER};
use crate::{line_of, races};

const RECORDS: &str = include_str!("programs/records.c");
const COPIES: &str = include_str!("programs/copies.c");
const ELSEWHERE: &str = include_str!("programs/elsewhere.c");

fn recorded(program: &str, define: &str) -> Folder {
    let folder = Folder::new();
    folder.build_at("bug", "races", program, &[define]);
    folder.record();
    folder
}

fn line(source: &str, text: &str) -> Option<u32> {
    let found = source.lines().position(|line| line.ends_with(text))?;
    u32::try_from(found + 1).ok()
}

/// The race exists at 40 failure points, and recovery fails at one of them, whichever that is.
#[test]
fn one_failure_point_of_many_is_enough() {
    for checkpoint in [2, 14, 27, 39] {
        let folder = recorded("records.c", &format!("-DCHECKPOINT={checkpoint}"));
        let run = races(&folder, &[]).ends_with(FINDINGS);
        let report = run.report();
        let [finding] = &report.findings[..1] else {
            panic!("{}", run.stdout);
        };
        assert_eq!(finding.severity, Severity::Error, "{checkpoint}");
        let store = line(RECORDS, "// stores a record");
        assert_eq!(line_of(finding, Role::Store), store, "{checkpoint}");
        let evidence = finding.evidence.as_ref().expect("a run shows it");
        let lost: Vec<u64> = evidence
            .failure
            .lost_lines
            .iter()
            .map(|it| it.pool_offset)
            .collect();
        assert_eq!(lost, [64 * checkpoint], "the line of the record");
    }
}

#[test]
fn what_was_tried_is_said_and_counted() {
    let folder = recorded("records.c", "-DCHECKPOINT=0");
    let run = races(&folder, &[]).ends_with(CLEAN);
    let report = run.report();
    let store = line(RECORDS, "// stores a record");
    let mut findings = report.findings.iter();
    let finding = findings.find(|it| line_of(it, Role::Store) == store);
    let read = finding.and_then(|it| it.read.as_ref()).expect("a read");
    let tried = read.tried.expect("it was tried");
    assert_eq!((read.failure_points, tried.undecided), (40, 0));
    assert_eq!((tried.other_value, tried.survivor), (40, 40), "{tried:?}");
    assert!(tried.executions >= 80, "{tried:?}");
    let text = folder.powerfail(&["races", "run.trace", "--recover", RECOVER]);
    let text = text.ends_with(CLEAN).stdout;
    let ways = [
        "tried at 40 of 40 failure points: the store lost, all others there",
        "tried at 40 of 40 failure points: the store there, others lost",
        "recovery succeeded each time (",
    ];
    assert!(ways.iter().all(|it| text.contains(it)), "{text}");
}

/// Recovery reads the same at most failure points as long as it sees the newest values, so it was not watched there. With
/// the older value it reads something else, and fails at one of them.
#[test]
fn a_failure_point_for_which_another_one_stood_is_tried_as_well() {
    let store = line(ELSEWHERE, "// stores the record");
    for step in [2, 13, 20] {
        let folder = recorded("elsewhere.c", &format!("-DFAILS_AT={step}"));
        let run = races(&folder, &[]).ends_with(FINDINGS);
        let report = run.report();
        let unchanged = report.totals.races.as_ref().map_or(0, |it| it.unchanged);
        assert!(unchanged > 10, "{}", run.stdout);
        let mut errors = report.findings.iter();
        let error = errors.find(|it| it.severity == Severity::Error);
        let error = error.expect("an error");
        assert_eq!(line_of(error, Role::Store), store, "{step}");
        let evidence = error.evidence.as_ref().expect("a run shows it");
        let lost = evidence.failure.lost_lines.iter();
        let lost: Vec<u64> = lost.map(|it| it.pool_offset).collect();
        assert_eq!(lost, [64], "the line of the record");
        let again = folder.powerfail(&["replay", &error.id, "--out", "out"]);
        again.ends_with(FINDINGS);
    }
    let folder = recorded("elsewhere.c", "-DFAILS_AT=0");
    let report = races(&folder, &[]).ends_with(CLEAN).report();
    let mut findings = report.findings.iter();
    let finding = findings.find(|it| line_of(it, Role::Store) == store);
    let read = finding.and_then(|it| it.read.as_ref()).expect("a read");
    let tried = read.tried.expect("it was tried");
    assert!(read.failure_points > 20, "{read:?}");
    assert_eq!(tried.other_value, read.failure_points, "{tried:?}");
}

/// Neither the loss of the bit nor that of a copy makes recovery fail, but the bit alone does.
#[test]
fn a_store_that_survives_alone_is_an_error() {
    let folder = recorded("copies.c", "-DUNORDERED");
    let run = races(&folder, &[]).ends_with(FINDINGS);
    let report = run.report();
    let errors = report.findings.iter();
    let errors: Vec<_> = errors.filter(|it| it.severity == Severity::Error).collect();
    let [finding] = &errors[..] else {
        panic!("{}", run.stdout);
    };
    let bit = line(COPIES, "// stores the bit");
    assert_eq!(line_of(finding, Role::Store), bit);
    assert_eq!(
        line_of(finding, Role::Load),
        line(COPIES, "// reads the bit")
    );
    let evidence = finding.evidence.as_ref().expect("a run shows it");
    let lost: Vec<u64> = evidence
        .failure
        .lost_lines
        .iter()
        .map(|it| it.pool_offset)
        .collect();
    assert_eq!(lost, [64, 128], "the lines of the copies");
    let explanation = finding.explanation.as_deref().unwrap_or_default();
    assert!(
        explanation.contains("survives while others are lost"),
        "{finding:?}"
    );
    let again = folder.powerfail(&["replay", &finding.id, "--out", "out"]);
    let again = again.ends_with(FINDINGS);
    assert!(again.stdout.contains("the same again"), "{}", again.stdout);
}

#[test]
fn copies_that_are_durable_first_are_no_error() {
    let folder = recorded("copies.c", "-DORDERED");
    races(&folder, &[]).ends_with(CLEAN);
}

/// As `XFDetector` does, `--strict` reports what no run confirms as an error.
#[test]
fn strict_makes_unconfirmed_races_errors() {
    let folder = recorded("copies.c", "-DORDERED");
    let usual = races(&folder, &[]).ends_with(CLEAN).report();
    let strict = races(&folder, &["--strict"]).ends_with(FINDINGS).report();
    let bit = line(COPIES, "// stores the bit");
    let severity = |findings: &[powerfail_finding::Finding]| {
        let mut findings = findings.iter();
        let finding = findings.find(|it| line_of(it, Role::Store) == bit);
        finding.map(|it| (it.severity, it.evidence.is_some()))
    };
    assert_eq!(severity(&usual.findings), Some((Severity::Warning, false)));
    assert_eq!(severity(&strict.findings), Some((Severity::Error, false)));
    folder.write("powerfail.toml", "[races]\nstrict = true\n");
    races(&folder, &[]).ends_with(FINDINGS);
}
