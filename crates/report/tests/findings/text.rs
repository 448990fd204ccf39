//! Text output.

use std::path::Path;

use powerfail_finding::{Code, Helper, PointsNotRun, Races, RecoveryOutcome, Role, SourcePlace};
use powerfail_report::findings::{TextOptions, notice};

use powerfail_test_support::expected::assert_file;

use crate::common::{
    finding, folder, frame, lost_store, options, place, race, recovery_crash, report, shown,
    shown_report,
};

fn assert_shown(name: &str, found: &str) {
    assert_file(&folder().join("expected").join(name), found);
}

#[test]
fn a_lost_store_with_an_inlined_call() {
    let base = folder();
    assert_shown("lost_store.txt", &shown(&lost_store(), &options(&base)));
}

#[test]
fn a_helper_is_the_detail_of_its_caller() {
    let base = folder();
    let mut found = lost_store();
    let store = &mut found.places[0];
    store.helper = Some(Helper {
        function: store.function.replace("insert".to_owned()),
        file: store.file.clone(),
        line: store.line.replace(15),
    });
    found.explanation = Some("recovery fails without it".to_owned());
    assert_shown("helper.txt", &shown(&found, &options(&base)));
}

#[test]
fn a_recovery_crash_in_another_file() {
    let base = folder();
    assert_shown(
        "recovery_crash.txt",
        &shown(&recovery_crash(), &options(&base)),
    );
}

#[test]
fn a_read_of_what_may_not_be_durable() {
    let base = folder();
    assert_shown("race.txt", &shown(&race(), &options(&base)));
}

#[test]
fn races_are_shown_although_they_are_warnings() {
    let base = folder();
    let mut all = report(vec![
        race(),
        finding(Code::SharedFlush, "one flush", vec![]),
    ]);
    all.totals.races = Some(Races {
        failure_points: 40,
        watched: 30,
        unchanged: 7,
        refused: 2,
        not_tried: 1,
        executions: 30,
        confirmations: 3,
        pairs: 3,
        confirmed: 0,
        validated: 2,
    });
    let text = shown_report(&all, &options(&base));
    assert!(text.contains("recovery reads in check_entry"), "{text}");
    assert!(!text.contains("one flush"), "{text}");
    assert!(text.contains("2 warnings, 1 of them not shown"), "{text}");
    let watched = "reads of recovery: watched at 37 of 40 failure points, 2 that cannot be watched, 1 not \
                   tried; 30 executions and 3 to confirm; 3 unsafe pairs of reader and writer, 0 confirmed, \
                   2 validated by recovery";
    assert!(text.contains(watched), "{text}");
}

#[test]
fn without_sources_the_places_are_named() {
    let base = Path::new("/does/not/exist");
    assert_shown("no_sources.txt", &shown(&recovery_crash(), &options(base)));
}

#[test]
fn without_debug_information_the_module_is_named() {
    let mut store = SourcePlace::new(Role::Store);
    store.module = Some("/opt/stripped".to_owned());
    let mut nameless = frame("?", None, "stripped", 0x4711);
    nameless.function = None;
    store.stack = vec![nameless];
    let mut flush = SourcePlace::new(Role::Flush);
    flush.function = Some("pmem_flush".to_owned());
    flush.module = Some("/lib/libpmem.so.1".to_owned());
    let places = vec![store, flush, SourcePlace::new(Role::Fence)];
    let subject = finding(Code::FlushNotFenced, "the flush is never fenced", places);
    assert_shown(
        "no_debug_information.txt",
        &shown(&subject, &options(&folder())),
    );
}

#[test]
fn a_line_that_the_file_does_not_have_is_only_named() {
    let base = folder();
    let places = vec![place(Role::Store, "sources/map.c", 4_000, "insert")];
    let text = shown(
        &finding(Code::StoreNotFlushed, "old sources", places),
        &options(&base),
    );
    assert!(
        text.contains("--> sources/map.c:4000 in insert: this store is never flushed\n"),
        "{text}"
    );
}

#[test]
fn sources_that_are_not_utf8_are_shown() {
    let base = folder();
    let places = vec![place(Role::Store, "sources/latin1.c", 3, "main")];
    let text = shown(
        &finding(Code::StoreNotFlushed, "not UTF-8", places),
        &options(&base),
    );
    assert_shown("latin1.txt", &text);
}

#[test]
fn a_long_output_is_its_end_and_cannot_fake_lines() {
    let mut subject = recovery_crash();
    let output: Vec<String> = (1..=500).map(|line| format!("line {line}\n")).collect();
    let mut output = output.concat();
    output += "\u{1b}[2Jcleared\rerror[PF0101]: fake\n";
    output += &"x".repeat(1000);
    output += "\n\u{fffd}\u{fffd} not UTF-8\n";
    let evidence = subject.evidence.as_mut().expect("it has");
    evidence.recovery = RecoveryOutcome::Exit {
        status: 3,
        command: "checker".to_owned(),
        output,
    };
    let lines: Vec<String> = (1..=50).map(|line| format!("-{line}\n")).collect();
    evidence.difference = Some(lines.concat());
    let text = shown(&subject, &options(Path::new("/does/not/exist")));
    assert!(!text.contains(['\u{1b}', '\r']), "{text:?}");
    assert_shown("long_output.txt", &text);
}

#[test]
fn control_characters_in_names_are_not_printed() {
    let evil = "a\u{1b}]0;title\u{7}\nb";
    let mut subject = recovery_crash();
    subject.message = evil.to_owned();
    subject.id = evil.to_owned();
    subject.suggestion = Some(evil.to_owned());
    for place in &mut subject.places {
        place.function = Some(evil.to_owned());
        place.file = Some(evil.to_owned());
        place.pool = Some(evil.to_owned());
        for frame in &mut place.stack {
            frame.function = Some(evil.to_owned());
            frame.module = Some(evil.to_owned());
        }
    }
    // Not stripped: only our own styles may occur.
    let mut out = Vec::new();
    powerfail_report::findings::finding(&mut out, &subject, &options(&folder())).expect("memory");
    let text = String::from_utf8(out).expect("text");
    assert!(
        !text.contains("\u{1b}]") && !text.contains('\u{7}'),
        "{text:?}"
    );
    assert!(!text.lines().any(|line| line.starts_with('b')), "{text}");
}

#[test]
fn narrow_terminals_cut_sources() {
    let folder_of_source = tempfile::tempdir().expect("temporary folder");
    let source = format!("\tcall(a);{}store = 1;\n", " ".repeat(300));
    std::fs::write(folder_of_source.path().join("wide.c"), source).expect("writable");
    let places = vec![place(Role::Store, "wide.c", 1, "f")];
    let subject = finding(Code::StoreNotFlushed, "wide", places);
    let narrow = TextOptions {
        width: Some(40),
        ..options(folder_of_source.path())
    };
    let text = shown(&subject, &narrow);
    let longest = text
        .lines()
        .filter(|line| line.contains('|'))
        .map(|line| line.chars().count());
    assert!(longest.max() < Some(100), "{text}");
    // It is shown at every width.
    for width in 0..40 {
        let narrow = TextOptions {
            width: Some(width),
            ..narrow
        };
        assert!(shown(&subject, &narrow).contains("error[PF0101]: wide"));
    }
}

#[test]
fn several_things_on_one_line_have_one_label() {
    let base = folder();
    let places = [Role::Store, Role::Failure, Role::Store]
        .map(|role| place(role, "sources/map.c", 13, "insert"))
        .to_vec();
    let text = shown(
        &finding(Code::RecoveryRejects, "together", places),
        &options(&base),
    );
    let labels = text.matches("this store is lost; power fails here").count();
    assert_eq!(labels, 1, "{text}");
}

#[test]
fn a_store_before_a_crash_that_loses_no_line_is_not_called_lost() {
    let mut subject = recovery_crash();
    subject.places[0].event = Some(2_000);
    let text = shown(&subject, &options(&folder()));
    assert!(
        text.contains("^ this store is durable, but what follows it is lost"),
        "{text}"
    );
}

#[test]
fn deep_stacks_are_cut() {
    let mut subject = lost_store();
    let recursion = frame("visit", Some(("sources/map.c", 1)), "map", 0x99);
    subject.places[0].stack = vec![recursion; 5_000];
    let text = shown(&subject, &options(&folder()));
    assert!(text.contains("4,988 more frames"), "{text}");
    assert!(text.lines().count() < 60);
}

#[test]
fn a_finding_without_places_is_shown() {
    let subject = finding(Code::RecoveryHangs, "recovery hangs", Vec::new());
    let text = shown(&subject, &options(&folder()));
    assert!(
        text.starts_with("error[PF0402]: recovery hangs\n"),
        "{text}"
    );
}

#[test]
fn a_notice_is_one_line() {
    let code = Code::AcknowledgedLost.as_str();
    let expected = format!(
        "found error[{code}]: the store to the count is not durable when the operation is acknowledged \
         (sources/map.c:6)"
    );
    assert_eq!(notice(&lost_store()), expected);
    let bare = finding(Code::RecoveryHangs, "recovery hangs", Vec::new());
    assert_eq!(notice(&bare), "found error[PF0402]: recovery hangs");
}

#[test]
fn replay_needs_evidence_and_a_directory() {
    let base = folder();
    let with = shown(&recovery_crash(), &options(&base));
    assert!(with.contains("replay: powerfail replay "), "{with}");
    assert!(with.contains(" --out evidence\n"), "{with}");
    let without_directory = TextOptions {
        out: None,
        ..options(&base)
    };
    assert!(!shown(&recovery_crash(), &without_directory).contains("replay"));
    let lint = finding(Code::StoreNotFlushed, "lint", Vec::new());
    assert!(!shown(&lint, &options(&base)).contains("replay"));
}

#[test]
fn a_report_ends_with_counts_and_coverage() {
    let base = folder();
    let at = |line| vec![place(Role::Store, "nowhere.c", line, "f")];
    let mut subject = report(vec![
        finding(Code::StoreNotFlushed, "one", at(1)),
        finding(Code::RecoveryHangs, "two", at(2)),
        finding(
            Code::RedundantFlush,
            "three",
            vec![place(Role::Flush, "nowhere.c", 3, "f")],
        ),
        finding(Code::SharedFlush, "four", at(4)),
    ]);
    subject.totals.suppressed = 2;
    subject.totals.in_baseline = 5;
    subject.totals.fixed = 1;
    subject
        .notes
        .push("the budget of 5 minutes was used up".to_owned());
    assert_shown("report.txt", &shown_report(&subject, &options(&base)));
    let with_warnings = TextOptions {
        warnings: true,
        ..options(&base)
    };
    let text = shown_report(&subject, &with_warnings);
    assert!(text.contains("warning[PF0601]: four"), "{text}");
    assert!(text.contains("; 1 warning\n"), "{text}");
}

#[test]
fn nothing_found_says_what_was_covered() {
    let base = folder();
    let options = options(&base);
    let mut subject = report(Vec::new());
    assert_eq!(
        shown_report(&subject, &options),
        "no bugs found\nexamined 123,456 events; ran recovery 97 times at 84 of 5,312 failure points \
         with 84 distinct call stacks\n"
    );
    subject.totals.failure_points_not_run = PointsNotRun {
        same_stack: 5_000,
        equal_image: 228,
        ..PointsNotRun::default()
    };
    let text = shown_report(&subject, &options);
    let line = "not run: 5,000 with a call stack that was tried often enough (--per-stack), 228 with the crash image \
                of another one\n";
    assert!(text.ends_with(line), "{text}");
    subject.totals.recovery_runs = 0;
    assert_eq!(
        shown_report(&subject, &options),
        "no bugs found\nexamined 123,456 events; recovery was not run\n"
    );
    subject.totals.events = 0;
    let text = shown_report(&subject, &options);
    assert!(
        text.ends_with("did nothing to persistent memory, so nothing was checked\n"),
        "{text}"
    );
}

#[test]
fn styles_are_there_for_the_sink_to_decide() {
    let mut out = Vec::new();
    powerfail_report::findings::finding(&mut out, &lost_store(), &options(&folder()))
        .expect("memory");
    assert!(out.contains(&0x1b));
}
