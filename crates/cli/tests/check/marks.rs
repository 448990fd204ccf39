//! Findings say between which marks of the program they lie, and in which operation.

use powerfail_finding::{Marks, ProgramMark};

use crate::common::{CLEAN, FINDINGS, Folder, RECOVER};

fn built() -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "marked.c", &["-pthread"]);
    folder
}

/// The marks, without the numbers of their events.
fn named(marks: &Marks) -> [Option<(u64, &str)>; 2] {
    [&marks.after, &marks.before].map(|mark| {
        let mark = mark.as_ref()?;
        Some((mark.number, mark.text.as_deref()?))
    })
}

#[test]
fn marks_of_the_same_thread_around_the_failure() {
    let folder = built();
    // Every failure point: one of many with the same call stack shows the bug.
    let prefix = ["--no-lazy", "--per-stack", "0"];
    for options in [&prefix[..], &[]] {
        let run = folder.check(options).ends_with(FINDINGS);
        let finding = run.finding("PF0301");
        let marks = &finding.marks;
        let around = [Some((2, "insert")), Some((3, "insert"))];
        assert_eq!(named(marks), around, "{options:?}: {}", run.stdout);
        assert_eq!(marks.operation, Some(2), "{options:?}");
        let event = finding.evidence.expect("a crash showed it").failure.event;
        let at = |mark: &Option<ProgramMark>| mark.as_ref().map(|mark| mark.event);
        assert!(at(&marks.after) < Some(event) && Some(event) <= at(&marks.before));
    }
    let text = folder.check_into_text(&prefix).ends_with(FINDINGS);
    for line in [
        "= mark: after 2 \"insert\", before 3 \"insert\"",
        "= operation: 2, which has not ended",
    ] {
        assert!(text.stdout.contains(line), "{line}: {}", text.stdout);
    }
}

#[test]
fn a_finding_of_the_trace_alone_has_the_marks_of_its_place() {
    let folder = Folder::new();
    // The last pair is never flushed.
    folder.build_own("bug", "marked.c", &["-pthread", "-DFORGETS_LAST"]);
    folder.record();
    let run = folder.powerfail(&["lint", "run.trace", "--format", "json"]);
    let finding = run.ends_with(FINDINGS).finding("PF0101");
    assert_eq!(named(&finding.marks), [Some((4, "insert")), None]);
    assert_eq!(finding.marks.operation, Some(4));
    let text = folder.powerfail(&["lint", "run.trace"]).ends_with(FINDINGS);
    for line in [
        "= mark: after 4 \"insert\"\n",
        "= mark: another thread: after 99 \"another thread\"\n",
    ] {
        assert!(text.stdout.contains(line), "{line}: {}", text.stdout);
    }
}

#[test]
fn a_program_without_marks_has_none() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/ordering/one_fence_for_both.c");
    let run = folder.check(&[]).ends_with(FINDINGS);
    assert!(!run.stdout.contains("\"marks\""), "{}", run.stdout);
}

#[test]
fn a_race_has_the_marks_of_its_store() {
    let folder = built();
    folder.record();
    let races = [
        "races",
        "run.trace",
        "--recover",
        RECOVER,
        "--format",
        "json",
    ];
    let run = folder.powerfail(&races);
    let findings = run.report().findings;
    let race = findings.iter().find(|finding| finding.read.is_some());
    let race = race.unwrap_or_else(|| panic!("no race: {}", run.stdout));
    assert_eq!(race.marks.operation, Some(2), "{}", run.stdout);
    let events = ["trace", "events", "run.trace", "--kind", "annotation"];
    let events = folder.powerfail(&events).ends_with(CLEAN);
    assert!(
        events.stdout.contains("another thread"),
        "{}",
        events.stdout
    );
}
