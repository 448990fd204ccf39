//! `powerfail races` and `powerfail check --races` from the user's side: which races are found at which lines, which
//! are errors and which are warnings, replays of findings, refusals, budgets and interruptions.
//!
//! The tests in `planted` check that planted bugs are found at their lines.

#[path = "../check/common.rs"]
#[allow(dead_code, reason = "these tests need less of it than those of check")]
mod common;
mod every_moment;
mod found;
mod limits;
mod objects;
mod refused;
#[path = "../check/run.rs"]
mod run;
mod shown_again;
mod together;

use powerfail_finding::{Finding, Role};

use common::{CLEAN, Folder, RECOVER, Run};

/// A folder with one of the cases of `programs/record.c` as `./bug`, and a trace of it.
fn folder(case: u32) -> Folder {
    let folder = Folder::new();
    folder.build_at("bug", "races", "record.c", &[&format!("-DCASE={case}")]);
    folder.record();
    folder
}

/// Runs `powerfail races` on the trace, with JSON output.
fn races(folder: &Folder, more: &[&str]) -> Run {
    let mut arguments = vec![
        "races",
        "run.trace",
        "--recover",
        RECOVER,
        "--format",
        "json",
    ];
    arguments.extend(["--out", "out"]);
    arguments.extend(more);
    folder.powerfail(&arguments)
}

/// The line of `programs/record.c` that ends with this text.
fn line(text: &str) -> u32 {
    let source = include_str!("programs/record.c");
    let found = source.lines().position(|line| line.ends_with(text));
    u32::try_from(found.expect("the text is there") + 1).expect("few lines")
}

fn line_of(finding: &Finding, role: Role) -> Option<u32> {
    let mut places = finding.places.iter();
    places.find(|place| place.role == role)?.line
}

/// Writer, reader, and whether it is an error, for each finding.
fn pairs(run: &Run) -> Vec<(Option<u32>, Option<u32>, bool)> {
    let report = run.report();
    let mut pairs: Vec<_> = report
        .findings
        .iter()
        .map(|finding| {
            let is_error = finding.severity == powerfail_finding::Severity::Error;
            let (writer, reader) = (Role::Store, Role::Load);
            (line_of(finding, writer), line_of(finding, reader), is_error)
        })
        .collect();
    pairs.sort_unstable();
    pairs
}

#[test]
fn a_right_program_with_its_commit_variable_named_is_silent() {
    let folder = folder(3);
    let run = races(&folder, &["--deny", "warnings"]).ends_with(CLEAN);
    let report = run.report();
    assert!(report.findings.is_empty(), "{}", run.stdout);
    let races = report.totals.races.expect("reads were watched");
    assert!(races.failure_points >= 2, "{races:?}");
    assert_eq!(races.watched + races.unchanged, races.failure_points);
    assert_eq!((races.refused, races.not_tried, races.pairs), (0, 0, 0));
}
