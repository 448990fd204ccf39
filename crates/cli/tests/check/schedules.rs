//! `--schedules`: the workload is recorded with other orders of its threads.

use crate::common::{CLEAN, FINDINGS, Folder, SETUP};

const BUG: &str = "fail/atomicity/interleaved_pushes.c";
const REPAIRED: &str = "pass/atomicity/interleaved_pushes.c";

#[test]
fn a_bug_of_another_order_is_found_and_shown_again() {
    let folder = Folder::new();
    folder.build_planted("bug", BUG);
    let run = folder.check(&["--schedules", "20", "--seed", "1"]);
    let run = run.ends_with(FINDINGS);
    let report = run.report();
    assert_eq!(report.totals.schedules, 20);
    assert!(report.totals.distinct_schedules > 1);
    let finding = run.finding("PF0301");
    let evidence = finding.evidence.as_ref().expect("a crash shows it");
    assert!(evidence.trace.is_some(), "a trace besides the first");
    // All traces with findings are kept, and no others.
    let shown = report.findings.iter().filter_map(|it| it.evidence.as_ref());
    let mut shown: Vec<_> = shown.filter_map(|it| it.trace.clone()).collect();
    shown.push("run.trace".to_owned());
    shown.sort();
    shown.dedup();
    let out = folder.path("powerfail-out");
    let mut traces: Vec<_> = std::fs::read_dir(&out)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().unwrap())
        .filter(|name| name.contains(".trace"))
        .collect();
    traces.sort();
    assert_eq!(traces, shown);
    let again = folder.powerfail(&["replay", &finding.id]);
    let again = again.ends_with(FINDINGS);
    assert!(again.stdout.contains("the same again"), "{}", again.stdout);
    // An exported copy contains the trace.
    folder
        .powerfail(&["replay", &finding.id, "--export", "copy"])
        .ends_with(CLEAN);
    let again = folder.powerfail(&["replay", &finding.id, "--out", "copy"]);
    again.ends_with(FINDINGS);
}

#[test]
fn the_repaired_program_is_silent() {
    let folder = Folder::new();
    folder.build_planted("bug", REPAIRED);
    let run = folder.check_into_text(&["--schedules", "10"]);
    let run = run.ends_with(CLEAN);
    assert!(run.stdout.contains("no bugs found"), "{}", run.stdout);
    assert!(
        run.stdout.contains("10 recordings of the workload, with "),
        "{}",
        run.stdout
    );
    let is_one_order = "threads store, and one order of what they do was recorded; --schedules N";
    assert!(!run.stdout.contains(is_one_order), "{}", run.stdout);
    let once = folder.check_into_text(&[]).ends_with(CLEAN);
    assert!(once.stdout.contains(is_one_order), "{}", once.stdout);
}

#[test]
fn one_thread_has_one_order() {
    let folder = Folder::new();
    folder.build_planted("bug", "pass/atomicity/count_before_entry.c");
    let run = folder.check(&["--schedules", "5"]).ends_with(CLEAN);
    let report = run.report();
    let totals = &report.totals;
    assert_eq!((totals.schedules, totals.distinct_schedules), (1, 1));
    let says_why = |note: &String| note.contains("never has two threads at the same time");
    assert!(report.notes.iter().any(says_why), "{:?}", report.notes);
}

/// The second thread touches the pool only if it sees what the first one has stored and not yet made durable. That the
/// first recording may not show it must not end the search, and a seed decides all of it, unless the scheduler timed out:
/// on a busy machine that happens, and a note says so.
#[test]
fn a_thread_that_depends_on_another_one_is_scheduled_again_and_again() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/ordering/copy_of_unflushed_value.c");
    let timed_out = |note: &String| note.contains("something that the scheduler does not know");
    let mut runs = Vec::new();
    for _ in 0..5 {
        let run = folder.check(&["--schedules", "12", "--seed", "4"]);
        let report = run.ends_with(FINDINGS).report();
        assert_eq!(report.totals.schedules, 12);
        // Its own thread flushes it and fences; the advice is about the other one.
        let advice = report
            .findings
            .iter()
            .filter_map(|it| it.suggestion.as_deref());
        let is_of_threads =
            |words: &str| words.contains(" before another thread makes the store at ");
        assert!(
            advice.clone().count() > 0 && advice.clone().all(is_of_threads),
            "{report:?}"
        );
        if !report.notes.iter().any(timed_out) {
            let ids: Vec<String> = report.findings.iter().map(|it| it.id.clone()).collect();
            runs.push((report.totals.distinct_schedules, ids));
        }
    }
    assert!(runs.windows(2).all(|pair| pair[0] == pair[1]), "{runs:?}");
}

/// Nothing but the switch of threads between two reads of the pool makes this workload fail.
#[test]
fn threads_are_switched_between_two_reads() {
    let folder = Folder::new();
    folder.build_own("bug", "reads.c", &["-pthread"]);
    let run = folder.check(&["--schedules", "40"]).ends_with(FINDINGS);
    let notes = run.report().notes;
    let fails = |note: &String| note.contains("the workload itself fails");
    assert!(notes.iter().any(fails), "{notes:?}");
}

#[test]
fn a_workload_that_fails_in_another_order_is_told() {
    let folder = Folder::new();
    folder.build_own("bug", "late.c", &["-pthread"]);
    let run = folder.check(&["--schedules", "20"]).ends_with(FINDINGS);
    let report = run.report();
    assert_eq!(report.findings, []);
    let fails = |note: &String| {
        note.starts_with("with schedule seed ") && note.contains("the workload itself fails")
    };
    assert!(report.notes.iter().any(fails), "{:?}", report.notes);
}

#[test]
fn every_recording_needs_a_fresh_pool() {
    let folder = Folder::new();
    folder.build_planted("bug", REPAIRED);
    let path = folder.text_path("pool");
    let run = folder.powerfail(&["check", "--schedules", "5", "--", "./bug", &path]);
    run.is_refused_with(SETUP, &["--schedules", "{pool}"]);
}
