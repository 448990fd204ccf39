//! Setups that cannot be judged are refused with a reason.

use crate::common::{CLEAN, RECOVER, SETUP};
use crate::{folder, line, pairs, races};

#[test]
fn a_trace_that_is_not_there() {
    let folder = folder(0);
    let run = folder.powerfail(&["races", "missing.trace", "--recover", RECOVER]);
    run.is_refused_with(SETUP, &["missing.trace"]);
    folder.write("empty.trace", "");
    let run = folder.powerfail(&["races", "empty.trace", "--recover", RECOVER]);
    run.is_refused_with(SETUP, &["empty.trace"]);
}

#[test]
fn a_recovery_that_does_not_exist() {
    let folder = folder(0);
    let run = folder.powerfail(&["races", "run.trace", "--recover", "./missing {pool}"]);
    run.is_refused_with(SETUP, &["missing"]);
    let run = folder.powerfail(&["races", "run.trace", "--recover", ""]);
    run.is_refused_with(SETUP, &["--recover", "empty"]);
}

#[test]
fn a_recovery_that_fails_undisturbed() {
    let folder = folder(0);
    let run = folder.powerfail(&["races", "run.trace", "--recover", "false"]);
    run.is_refused_with(SETUP, &["without any crash"]);
}

#[test]
fn flags_that_choose_other_failure_points() {
    let folder = folder(0);
    for flag in [["--failure-points", "store"], ["--per-stack", "1"]] {
        let mut arguments = vec!["races", "run.trace", "--recover", RECOVER];
        arguments.extend(flag);
        folder
            .powerfail(&arguments)
            .is_refused_with(SETUP, &[flag[0], "ordering point"]);
    }
}

#[test]
fn strict_belongs_to_races() {
    let folder = folder(0);
    let run = folder.powerfail(&["check", "--strict", "--", "./bug", "{pool}"]);
    assert_eq!(run.code, SETUP, "{run:?}");
    assert!(run.stderr.contains("--races"), "{}", run.stderr);
}

/// Nothing is watched, so nothing can be reported: that is not a clean result.
#[test]
fn a_recovery_that_is_linked_statically_is_refused() {
    let folder = folder(0);
    folder.build_at("static", "races", "record.c", &["-DCASE=0", "-static"]);
    folder
        .powerfail(&["races", "run.trace", "--recover", "./static {pool} recover"])
        .is_refused_with(SETUP, &["cannot be watched", "statically"]);
}

/// Recovery is a shell that runs other programs to read the pool: their reads cannot be watched, and a note says so.
#[test]
fn what_cannot_be_watched_is_named_and_counted() {
    let folder = folder(0);
    let run = folder.powerfail(&[
        "races",
        "run.trace",
        "--recover",
        "sh -c 'cat {pool} > /dev/null'",
        "--format",
        "json",
    ]);
    let report = run.ends_with(CLEAN).report();
    let totals = report.totals.races.expect("reads were to be watched");
    let is_said = report
        .notes
        .iter()
        .any(|note| note.contains("cannot be watched"));
    assert_eq!(totals.refused > 0, is_said, "{:?}", report.notes);
    assert_eq!(
        totals.watched + totals.unchanged + totals.refused,
        totals.failure_points
    );
}

/// Recovery fails at some failure points with all stores in place. `crash` reports that; here the reads are reported.
#[test]
fn a_failure_that_needs_no_loss_is_a_note() {
    let folder = folder(7);
    let run = races(&folder, &[]);
    let report = run.report();
    let says = |words: &str| report.notes.iter().any(|note| note.contains(words));
    assert!(
        says("although every earlier store is durable"),
        "{:?}",
        report.notes
    );
    // If recovery fails with either value, the other value shows nothing.
    let value = (
        Some(line("stores the value")),
        Some(line("reads the value")),
        false,
    );
    assert!(pairs(&run).contains(&value), "{}", run.stdout);
}
