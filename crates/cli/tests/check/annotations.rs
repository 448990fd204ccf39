//! Annotations of a program determine where crashes are simulated and what is reported.

use crate::common::{CLEAN, FINDINGS, Folder, Run};

/// Checks the annotated program with one kind of annotation.
fn check(folder: &Folder, say: &str, options: &[&str]) -> Run {
    let mut arguments = vec!["check", "--format", "json"];
    arguments.extend(["--recover", "./bug {pool} recover"]);
    arguments.extend(options);
    arguments.extend(["--", "./bug", "{pool}", say]);
    folder.powerfail(&arguments)
}

fn built() -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "annotated.c", &[]);
    folder
}

/// The notes about annotations.
fn notes(run: &Run) -> Vec<String> {
    let mut notes = run.report().notes;
    notes.retain(|note| note.contains("annotations"));
    notes
}

const PREFIX: &[&str] = &["--no-lazy"];

#[test]
fn without_annotations_all_flushes_and_fences_count() {
    let run = check(&built(), "nothing", PREFIX).ends_with(FINDINGS);
    assert_eq!(run.codes(), ["PF0301", "PF0502"]);
    assert_eq!(run.report().totals.failure_points, 3);
    assert_eq!(notes(&run), [] as [String; 0]);
}

#[test]
fn a_failure_point_between_two_stores_of_one_flush() {
    let run = check(&built(), "point", PREFIX).ends_with(FINDINGS);
    assert_eq!(run.codes(), ["PF0301", "PF0301", "PF0502"]);
    assert_eq!(run.report().totals.failure_points, 4);
    let findings = run.report().findings;
    let at_point = findings.iter().find(|finding| {
        let mut places = finding.places.iter();
        places.any(|place| place.role == powerfail_finding::Role::Failure && place.line == Some(22))
    });
    let finding = at_point.expect("a finding where the program wants the power to fail");
    assert!(
        finding.places.iter().all(|place| place
            .file
            .as_deref()
            .is_some_and(|file| file.ends_with("annotated.c"))),
        "{finding:?}"
    );
}

#[test]
fn failures_that_are_skipped_are_counted() {
    let run = check(&built(), "skip", PREFIX).ends_with(FINDINGS);
    assert_eq!(run.codes(), ["PF0502"], "the lint is not concerned");
    assert_eq!(run.report().totals.failure_points, 1);
    assert_eq!(
        notes(&run),
        ["annotations of the program leave out 2 failure points"]
    );
}

#[test]
fn detection_that_is_skipped_leaves_crashes() {
    let run = check(&built(), "quiet", PREFIX).ends_with(FINDINGS);
    assert_eq!(run.codes(), ["PF0301"]);
    assert_eq!(run.report().totals.failure_points, 3);
    assert_eq!(
        notes(&run),
        ["annotations of the program leave out findings about 7 stores, flushes and fences"]
    );
}

#[test]
fn only_the_region_of_interest() {
    for say in ["first", "complete"] {
        let run = check(&built(), say, PREFIX).ends_with(CLEAN);
        assert_eq!(run.report().totals.failure_points, 1, "{say}");
        assert_eq!(
            notes(&run),
            [
                "annotations of the program leave out findings about 7 stores, flushes and fences",
                "annotations of the program leave out 2 failure points",
            ],
            "{say}"
        );
    }
}

#[test]
fn other_strategies_follow_too() {
    let folder = built();
    let record = |say: &str| {
        let arguments = ["record", "-o", "run.trace", "--", "./bug", "{pool}", say];
        folder.powerfail(&arguments).ends_with(CLEAN);
    };
    let crash = |strategy: &str| {
        let arguments = [
            "crash",
            "run.trace",
            "--format",
            "json",
            "--strategy",
            strategy,
        ];
        let recover = ["--recover", "./bug {pool} recover"];
        folder.powerfail(&[&arguments[..], &recover].concat())
    };
    record("skip");
    // A crash between the two numbers of one line is found; a crash in the skipped region is not.
    for (strategy, note) in [
        (
            "lazy",
            "annotations of the program leave out 2 failure points",
        ),
        ("eager", "annotations of the program leave out 2 segments"),
    ] {
        let run = crash(strategy).ends_with(FINDINGS);
        assert_eq!(notes(&run), [note], "{strategy}");
        let lefts = run.report().findings.into_iter().filter(|finding| {
            let mut places = finding.places.iter();
            places.any(|place| place.line.is_some_and(|line| line > 28))
                && finding.code.as_str() != "PF0502"
        });
        assert_eq!(lefts.count(), 0, "{strategy}: {}", run.stdout);
    }
    record("nothing");
    for strategy in ["lazy", "eager"] {
        let run = crash(strategy).ends_with(FINDINGS);
        assert!(run.codes().contains(&"PF0301"), "{strategy}");
        assert_eq!(notes(&run), [] as [String; 0]);
    }
}
