//! `--at`: the power fails before one event only, by the number that reports give it.

use crate::common::{CLEAN, FINDINGS, Folder, RECOVER, Run, SETUP};

fn built() -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "annotated.c", &[]);
    folder
}

/// The event before which the power fails in the first finding that a crash showed.
fn event(run: &Run) -> u64 {
    let findings = run.report().findings.into_iter();
    let mut shown = findings.filter_map(|finding| finding.evidence);
    let evidence = shown.next().unwrap_or_else(|| panic!("{}", run.stdout));
    evidence.failure.event
}

#[test]
fn the_number_of_a_report_gives_its_finding() {
    let folder = built();
    let all = folder.check(&["--no-lazy"]).ends_with(FINDINGS);
    let at = event(&all).to_string();
    let text = folder.check_into_text(&["--no-lazy"]).ends_with(FINDINGS);
    let line = format!("power fails before event {at},");
    assert!(text.stdout.contains(&line), "{}", text.stdout);
    for options in [&["--no-lazy"][..], &[], &["--races"]] {
        let run = folder.check(&[options, &["--at", &at]].concat());
        let run = run.ends_with(FINDINGS);
        assert_eq!(event(&run).to_string(), at, "{options:?}");
        let totals = run.report().totals;
        assert_eq!(totals.failure_points, 1, "{options:?}");
        assert_eq!(totals.failure_points_run, 1, "{options:?}");
        let note = format!("--at: the power fails only before event {at}");
        assert!(run.report().notes.contains(&note), "{}", run.stdout);
    }
}

#[test]
fn a_moment_without_the_bug_is_clean() {
    let folder = built();
    folder.record();
    let crash = |options: &[&str]| {
        let usual = [
            "crash",
            "run.trace",
            "--recover",
            RECOVER,
            "--format",
            "json",
        ];
        folder.powerfail(&[&usual, options].concat())
    };
    let failing = event(&crash(&[]));
    for strategy in ["prefix", "lazy"] {
        let found = |at: u64| {
            let run = crash(&["--strategy", strategy, "--at", &at.to_string()]);
            run.codes().contains(&"PF0301")
        };
        assert!(found(failing), "{strategy}");
        assert!(
            !found(0),
            "{strategy}: nothing has happened before the first event"
        );
    }
}

#[test]
fn it_is_one_of_the_failure_points_that_are_asked_for() {
    let folder = built();
    folder.record();
    let crash = |options: &[&str]| {
        let usual = [
            "crash",
            "run.trace",
            "--recover",
            RECOVER,
            "--format",
            "json",
        ];
        folder.powerfail(&[&usual, options].concat())
    };
    let states = ["trace", "events", "run.trace", "--kind", "fences", "--json"];
    let fences = folder.powerfail(&states).ends_with(CLEAN);
    let number = |line: &str| -> u64 {
        let event: serde_json::Value = serde_json::from_str(line).expect("an event");
        event["index"].as_u64().expect("a number")
    };
    let fences: Vec<u64> = fences.stdout.lines().map(number).collect();
    let (first, second) = (fences[0], fences[1]);
    let at = |event: u64| crash(&["--failure-points", "fence", "--at", &event.to_string()]);
    assert_eq!(at(first).report().totals.failure_points_run, 1);
    // The moment before it is one before a flush.
    let nearest = format!("the nearest are {first} and {second}");
    let words = ["--at", "--failure-points", &nearest];
    at(first + 1).is_refused_with(SETUP, &words);
    crash(&["--at", &(first + 1).to_string()]).report();
}

#[test]
fn an_event_that_does_not_exist_is_refused() {
    let folder = built();
    folder.record();
    let info = folder.powerfail(&["trace", "info", "run.trace", "--json"]);
    let info: serde_json::Value = serde_json::from_str(&info.stdout).expect("JSON");
    let events = info["events"].as_u64().expect("a number");
    let range = format!("expected 0 to {events}");
    let beyond = (events + 1).to_string();
    let crash = |at: &str| {
        let usual = [
            "crash",
            "run.trace",
            "--recover",
            RECOVER,
            "--format",
            "json",
        ];
        folder.powerfail(&[&usual[..], &["--at", at]].concat())
    };
    let at_end = crash(&events.to_string()).report();
    assert_eq!(at_end.totals.failure_points_run, 1);
    let run = crash(&beyond);
    run.is_refused_with(SETUP, &["--at", "out of range", &range]);
    let run = folder.check(&["--at", "1000000"]);
    run.is_refused_with(SETUP, &["--at 1000000", "out of range", "expected 0 to"]);
}

#[test]
fn it_does_not_fit_to_several_recordings_or_to_combinations() {
    let folder = built();
    let run = folder.check(&["--at", "3", "--schedules", "2"]);
    run.is_refused_with(SETUP, &["--at cannot be used with --schedules"]);
    folder.record();
    let eager = ["crash", "run.trace", "--strategy", "eager", "--at", "3"];
    let run = folder.powerfail(&eager);
    run.is_refused_with(
        SETUP,
        &["--at cannot be used with --strategy eager", "--segments"],
    );
}
