//! Comparing findings with an older report.

use powerfail_config::Baseline;
use powerfail_finding::{Code, Finding, Report, Totals};

use crate::common::finding;

fn baseline(findings: Vec<Finding>) -> Baseline {
    let report = Report {
        schema: 1,
        powerfail: "0.1.0".to_owned(),
        command: vec!["target".to_owned()],
        findings,
        totals: Totals::default(),
        notes: Vec::new(),
    };
    let json = serde_json::to_string(&report).expect("JSON");
    Baseline::parse(&json).expect("a report")
}

#[test]
fn lines_and_directories_may_move() {
    let lost = Code::StoreNotFlushed;
    let old = baseline(vec![
        finding(lost, "insert", "/home/a/map.c", 10),
        finding(lost, "remove", "/home/a/map.c", 50),
    ]);
    let now = vec![
        finding(lost, "insert", "/ci/map.c", 17),
        finding(Code::FlushNotFenced, "insert", "/ci/map.c", 18),
    ];
    let comparison = old.compare(now);
    let new: Vec<_> = comparison.new.iter().map(|new| new.code).collect();
    assert_eq!(new, [Code::FlushNotFenced]);
    assert_eq!((comparison.known, comparison.fixed), (1, 1));
}

#[test]
fn a_second_bug_in_the_same_function_is_new() {
    let lost = Code::StoreNotFlushed;
    let old = baseline(vec![finding(lost, "insert", "map.c", 20)]);
    let now = [10, 20].map(|line| finding(lost, "insert", "map.c", line));
    let comparison = old.compare(now.to_vec());
    // The one whose line has not moved is the known one.
    assert_eq!(comparison.new, now[..1]);
    assert_eq!((comparison.known, comparison.fixed), (1, 0));
}

#[test]
fn other_files_are_refused_with_a_reason() {
    for (json, expected) in [
        ("", "not a report of powerfail: "),
        ("{}", "not a report of powerfail: missing field"),
        (
            "{\"schema\": 2}",
            "a report of version 2, and this powerfail reads version 1",
        ),
    ] {
        let sentence = Baseline::parse(json).expect_err(json).to_string();
        assert!(sentence.starts_with(expected), "{sentence}");
    }
}
