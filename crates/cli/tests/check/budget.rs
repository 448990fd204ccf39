//! How a check uses its time: one bug leaves time for the others, second failures are tried, and a budget ends it.

use powerfail_finding::{Exploration, Report, Role};

use crate::common::{CLEAN, FINDINGS, Folder, Run};

fn folder(source: &str, flags: &[&str]) -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", source, flags);
    folder
}

/// However busy the machine is.
fn check(folder: &Folder, more: &[&str]) -> Run {
    let mut options = vec!["--budget", "1h"];
    options.extend(more);
    folder.check(&options)
}

fn exploration(report: &Report) -> Exploration {
    report.totals.exploration.clone().expect("it was explored")
}

/// The line of the source that has this text.
fn line(text: &str) -> Option<u32> {
    let source = include_str!("programs/large_record.c");
    let found = source.lines().position(|line| line.contains(text));
    u32::try_from(found.expect("the text is there") + 1).ok()
}

#[test]
fn a_failure_that_repeats_does_not_starve_the_others() {
    let folder = folder("large_record.c", &[]);
    let run = check(&folder, &["--depth", "1"]).ends_with(FINDINGS);
    let report = run.report();
    let places = report.findings.iter().flat_map(|it| &it.places);
    let stores = places.filter(|place| place.role == Role::Store);
    let lines: Vec<_> = stores.map(|place| place.line).collect();
    for text in [".value = line + 1;", "pool->data = 7;"] {
        assert!(lines.contains(&line(text)), "{text}: {}", run.stdout);
    }
    let explored = exploration(&report);
    assert_eq!(explored.not_tried, 0, "{explored:?}");
    // Recovery can observe 65,536 things at each of four moments, and fails in all but a few.
    assert!(explored.executions < 1_000, "{explored:?}");
    assert!(report.totals.recovery_runs < 2_000, "{:?}", report.totals);
    let is_said = |note: &String| note.contains("because recovery fails there");
    assert!(report.notes.iter().any(is_said), "{:?}", report.notes);
}

#[test]
fn moments_with_much_to_observe_take_turns_and_are_sampled() {
    let folder = folder("large_record.c", &["-DSUM"]);
    let run = check(&folder, &["--depth", "1"]).ends_with(CLEAN);
    let report = run.report();
    let explored = exploration(&report);
    assert!(explored.sampled > 0, "{explored:?}");
    assert_eq!(explored.not_tried, 0, "{explored:?}");
    let is_said = |note: &String| note.contains("more executions than the limit");
    assert!(report.notes.iter().any(is_said), "{:?}", report.notes);
}

#[test]
fn second_failures_are_tried_unless_told_not_to() {
    let folder = folder("lost_lines.c", &["-DBUG=2"]);
    check(&folder, &["--depth", "1"]).ends_with(CLEAN);
    let run = check(&folder, &[]).ends_with(FINDINGS);
    let report = run.report();
    let [finding] = &report.findings[..] else {
        panic!("{}", run.stdout);
    };
    assert!(finding.message.contains("again"), "{}", finding.message);
    let explored = exploration(&report);
    assert!(explored.second_failures > 0, "{explored:?}");
    let repaired = self::folder("lost_lines.c", &[]);
    let report = check(&repaired, &[]).ends_with(CLEAN).report();
    assert!(exploration(&report).second_failures > 0);
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

#[test]
fn a_spent_budget_leaves_out_and_says_so() {
    let folder = folder("large_record.c", &[]);
    let report = folder.check(&["--budget", "1ms"]).report();
    assert_eq!(report.totals.failure_points_run, 0);
    let is_said = |note: &String| note.contains("budget");
    assert!(report.notes.iter().any(is_said), "{:?}", report.notes);
}

#[test]
fn the_default_budget_is_said() {
    let folder = folder("large_record.c", &[]);
    let said = folder.check(&[]).stderr;
    assert!(said.contains("120 s at most (--budget)"), "{said}");
    let said = folder.check(&["--budget", "30m"]).stderr;
    assert!(said.contains("1800 s at most (--budget)"), "{said}");
}

/// Prefix crashes in a trace that is long enough to try failure points while they are found.
fn crash_long_run(flags: &[&str], options: &[&str]) -> Run {
    let folder = folder("long_run.c", flags);
    folder.record();
    let mut arguments = vec![
        "crash",
        "run.trace",
        "--format",
        "json",
        "--strategy",
        "prefix",
    ];
    arguments.extend(["--recover", "./bug {pool} recover"]);
    arguments.extend(options);
    folder.powerfail(&arguments)
}

#[test]
fn no_failure_point_of_a_long_run_is_tried_twice() {
    let report = crash_long_run(&[], &[]).ends_with(CLEAN).report();
    let totals = &report.totals;
    assert!(totals.events > 1 << 18, "{totals:?}");
    assert_eq!(totals.failure_point_stacks, 3, "{totals:?}");
    assert_eq!(totals.failure_points, 100_002, "{totals:?}");
    // The first, the last and one more of the loop, and the two behind it.
    assert_eq!(totals.failure_points_run, 5, "{totals:?}");
    // Twice without a crash.
    assert_eq!(totals.recovery_runs, 7, "{totals:?}");
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

#[test]
fn a_bug_at_the_end_of_a_long_run_is_explained() {
    let run = crash_long_run(&["-DBUG"], &["--budget", "1h"]).ends_with(FINDINGS);
    let report = run.report();
    let [finding] = &report.findings[..] else {
        panic!("{}", run.stdout);
    };
    let functions = finding
        .places
        .iter()
        .filter_map(|it| it.function.as_deref());
    assert!(functions.clone().any(|it| it == "put"), "{}", run.stdout);
    // The power fails before the second store of the record: the search found both of its borders.
    let evidence = finding.evidence.as_ref().expect("a crash has shown it");
    let events = report.totals.events;
    assert!(evidence.failure.event + 10 > events, "{}", run.stdout);
    assert!(evidence.last_good_event.is_some(), "{}", run.stdout);
    assert!(evidence.next_good_event.is_some(), "{}", run.stdout);
}

#[test]
fn what_a_budget_leaves_of_a_long_run_is_said() {
    let report = crash_long_run(&[], &["--budget", "1ms"]).report();
    assert_eq!(report.totals.failure_points_run, 0, "{:?}", report.totals);
    let is_said = |note: &String| note.contains("were not searched for failure points");
    assert!(report.notes.iter().any(is_said), "{:?}", report.notes);
}
