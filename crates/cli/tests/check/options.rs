//! Options that change what is tried and what survives.

use powerfail_finding::RecoveryOutcome;

use crate::common::{CLEAN, FINDINGS, Folder};

fn folder_with(source: &str) -> Folder {
    let folder = Folder::new();
    folder.build_planted("bug", source);
    folder
}

fn folder_with_own(source: &str) -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", source, &[]);
    folder
}

#[test]
fn failure_points_and_a_bug_that_needs_more_of_them() {
    let folder = folder_with("fail/atomicity/between_plain_stores.c");
    // Three rounds of two stores, a flush and a fence. There is no failure point if nothing was stored since the last
    // one.
    for (points, count, code) in [
        ("flush", 3, CLEAN),
        ("fence", 3, CLEAN),
        ("store", 5, FINDINGS),
        ("all", 6, FINDINGS),
    ] {
        let run = folder.check(&["--no-lazy", "--failure-points", points]);
        let run = run.ends_with(code);
        assert_eq!(run.report().totals.failure_points, count, "{points}");
    }
    let run = folder.check(&["--no-lazy"]).ends_with(CLEAN);
    assert_eq!(run.report().totals.failure_points, 3);
    // The loss of one store is tried with every kind of failure point.
    folder.check(&[]).ends_with(FINDINGS);
}

#[test]
fn how_many_points_of_each_call_stack() {
    let folder = folder_with_own("many.c");
    let tried = |per_stack: &str| {
        let run = folder.check(&["--failure-points", "flush", "--per-stack", per_stack]);
        let totals = run.report().totals;
        let not_run = totals.failure_points_not_run;
        let left_out = not_run.same_stack + not_run.equal_image + not_run.failing_stack;
        // Nothing is passed over without a reason.
        assert_eq!(
            totals.failure_points_run + left_out + not_run.no_time,
            totals.failure_points
        );
        totals
    };
    let one = tried("1");
    assert_eq!((one.failure_points, one.failure_point_stacks), (48, 2));
    assert_eq!(one.failure_points_run, 2);
    assert_eq!(tried("2").failure_points_run, 4);
    assert_eq!(tried("5").failure_points_run, 10);
    assert_eq!(tried("0").failure_points_run, 48);
}

#[test]
fn a_budget_leaves_out_and_says_so() {
    let folder = folder_with_own("many.c");
    let all = ["--per-stack", "0", "--only", "atomicity"];
    let whole = folder.check(&all).ends_with(FINDINGS).report();
    assert!(whole.notes.is_empty(), "{:?}", whole.notes);
    let mut some = all.to_vec();
    some.extend(["--budget", "1ms"]);
    let part = folder.check(&some).report();
    assert!(
        part.totals.failure_points_run < whole.totals.failure_points_run,
        "{:?}",
        part.totals
    );
    let note = part.notes.iter().find(|note| note.contains("budget"));
    let left = whole.totals.failure_points_run - part.totals.failure_points_run;
    let note = note.unwrap_or_else(|| panic!("{:?}", part.notes));
    assert!(note.contains(&left.to_string()), "{left}: {note}");
    assert!(note.contains(" after many.c:"), "by call stack: {note}");
    assert_eq!(part.totals.failure_points_not_run.no_time, left);
}

#[test]
fn while_pmdk_creates_a_pool() {
    let folder = folder_with("pass/durability/after_constructor.c");
    // Second failures in recovery by PMDK would take up all of their time, and are not what this is about.
    let options = ["--per-stack", "1", "--depth", "1"];
    let without = folder.check(&options).ends_with(CLEAN).report();
    let is_hint = |note: &String| note.contains("--include-create");
    assert!(without.notes.iter().any(is_hint), "{:?}", without.notes);
    let options = [&options[..], &["--include-create"]].concat();
    let with = folder.check(&options).ends_with(CLEAN).report();
    assert!(!with.notes.iter().any(is_hint), "{:?}", with.notes);
    assert!(
        with.totals.failure_points > without.totals.failure_points
            && with.totals.failure_points_run > without.totals.failure_points_run,
        "{:?}, {:?}",
        with.totals,
        without.totals
    );
}

#[test]
fn a_constructor_that_counts_on_zeros() {
    let folder = folder_with_own("constructor.c");
    folder.check(&[]).ends_with(CLEAN);
    folder.check(&["--fill", "0"]).ends_with(CLEAN);
    for fill in ["0xff", "255", "0xA5"] {
        let run = folder.check(&["--fill", fill]).ends_with(FINDINGS);
        assert_eq!(run.codes(), ["PF0301"], "{fill}");
    }
    // A replay uses the same fill byte as the check.
    let id = folder.check(&["--fill", "0xff"]).finding("PF0301").id;
    folder.powerfail(&["replay", &id]).ends_with(FINDINGS);
}

#[test]
fn caches_that_survive() {
    let folder = folder_with("fail/durability/unflushed_time.c");
    let adr = folder.check(&[]).ends_with(FINDINGS);
    assert_eq!(adr.codes(), ["PF0101"]);
    let adr = folder.check(&["--domain", "adr"]).ends_with(FINDINGS);
    assert_eq!(adr.codes(), ["PF0101"]);
    let eadr = folder.check(&["--domain", "eadr"]).ends_with(CLEAN);
    assert!(eadr.codes().is_empty(), "{}", eadr.stdout);
    // The order of stores still matters.
    let folder = folder_with("fail/atomicity/count_before_entry.c");
    let eadr = folder.check(&["--domain", "eadr"]).ends_with(FINDINGS);
    assert_eq!(eadr.codes(), ["PF0301"]);
}

#[test]
fn a_domain_that_is_noted_in_the_trace() {
    let folder = folder_with("fail/durability/unflushed_time.c");
    let record = ["record", "--domain", "eadr", "-o", "run.trace", "--"];
    let mut arguments = record.to_vec();
    arguments.extend(["./bug", "{pool}"]);
    folder.powerfail(&arguments).ends_with(CLEAN);
    folder.powerfail(&["lint", "run.trace"]).ends_with(CLEAN);
    let adr = ["lint", "run.trace", "--domain", "adr"];
    folder.powerfail(&adr).ends_with(FINDINGS);
}

#[test]
fn a_time_after_which_recovery_hangs() {
    let folder = folder_with("fail/recovery-hang/cycle.c");
    // Far more than it takes where it does not hang, on a machine that is busy.
    let options = ["--timeout", "5s", "--no-lazy"];
    let run = folder.check(&options).ends_with(FINDINGS);
    let evidence = run.finding("PF0402").evidence.expect("evidence");
    let RecoveryOutcome::Timeout { after_ms, .. } = evidence.recovery else {
        panic!("{evidence:?}");
    };
    assert_eq!(after_ms, 5000);
}

#[test]
fn a_seed_decides_what_is_tried() {
    let folder = folder_with_own("many.c");
    folder.record();
    // Only a few of the points show the bug, and they are neither the first nor the last of their stack.
    let is_found = |seed: u64| {
        let seed = seed.to_string();
        let recover = crate::common::RECOVER;
        let arguments = ["crash", "run.trace", "--recover", recover, "--seed", &seed];
        let run = folder.powerfail(&arguments);
        assert!([CLEAN, FINDINGS].contains(&run.code), "{run:?}");
        run.code == FINDINGS
    };
    let found: Vec<bool> = (0..8).map(is_found).collect();
    assert!(found.contains(&true) && found.contains(&false), "{found:?}");
    let again: Vec<bool> = (0..8).map(is_found).collect();
    assert_eq!(found, again);
}
