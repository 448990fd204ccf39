//! Reports for other programs.

use powerfail_finding::{
    Action, Change, Code, Finding, Fix, NotChecked, Operation, Report, Role, Severity,
};
use powerfail_report::formats;
use powerfail_test_support::expected::assert_file;
use serde_json::Value;

use crate::common::{finding, folder, lost_store, options, place, race, recovery_crash, report};

/// A finding with a verified fix in one line, and one without any source.
fn subjects() -> Vec<Finding> {
    let mut fixed = lost_store();
    fixed.fix = Some(Fix::verified(vec![
        change(Action::Insert, Operation::Flush),
        change(Action::Insert, Operation::Fence),
    ]));
    let mut nowhere = place(Role::Flush, "", 0, "");
    (nowhere.file, nowhere.line, nowhere.function) = (None, None, None);
    let code = Code::RedundantFlush;
    let unknown = finding(code, "a line is flushed twice: 100%, <b>", vec![nowhere]);
    vec![fixed, recovery_crash(), unknown, race()]
}

fn change(action: Action, operation: Operation) -> Change {
    Change {
        action,
        operation,
        event: 17,
        file: Some("sources/map.c".to_owned()),
        line: Some(6),
        pool: Some(0),
        pool_offset: Some(0x40),
        len_bytes: Some(8),
    }
}

fn subject() -> Report {
    let mut subject = report(subjects());
    subject.notes.push("one thing was not tried".to_owned());
    subject
}

fn sarif(report: &Report) -> Value {
    let mut out = Vec::new();
    let folder = folder();
    formats::sarif(&mut out, report, &options(&folder)).expect("memory");
    serde_json::from_slice(&out).expect("JSON")
}

/// What the published schema has against a SARIF log.
fn objection(log: &Value) -> Option<String> {
    let file = folder().join("schemas/sarif-schema-2.1.0.json");
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let schema = compiler.compile(file.to_str().expect("text"), &mut schemas);
    let schema = schema.expect("the schema");
    let judged = schemas.validate(log, schema);
    judged.err().map(|error| error.to_string())
}

#[test]
fn sarif_obeys_the_published_schema() {
    let log = sarif(&subject());
    assert_eq!(objection(&log), None);
    assert_eq!(objection(&sarif(&report(Vec::new()))), None);
    // The judge can say no.
    let mut wrong = log.clone();
    wrong["runs"][0]["results"][0]["level"] = "fatal".into();
    assert!(objection(&wrong).is_some());
    let mut wrong = log;
    wrong["runs"][0]["results"][0]["surprise"] = 1.into();
    assert!(objection(&wrong).is_some());
}

#[test]
fn sarif_has_places_fingerprints_and_verified_fixes() {
    let subject = subject();
    let log = sarif(&subject);
    let results = &log["runs"][0]["results"];
    assert_eq!(results.as_array().expect("results").len(), 4);
    let lost = &results[0];
    let id = &subject.findings[0].id;
    let fingerprint = &lost["partialFingerprints"]["powerfail/v1"];
    assert_eq!(*fingerprint, format!("PF0103-{id}"));
    let place = &lost["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "sources/map.c");
    assert_eq!(place["region"]["startLine"], 6);
    let related = &lost["relatedLocations"][0];
    assert_eq!(related["physicalLocation"]["region"]["startLine"], 24);
    assert!(
        related["message"]["text"]
            .as_str()
            .is_some_and(|it| !it.is_empty())
    );
    let replacements = &lost["fixes"][0]["artifactChanges"][0]["replacements"];
    assert_eq!(replacements.as_array().expect("changes").len(), 2);
    assert_eq!(replacements[0]["deletedRegion"]["startLine"], 7);
    assert_eq!(lost["stacks"][0]["frames"][1]["module"], "map");
    // Nothing is advised that was not verified.
    assert_eq!(results[1]["fixes"].as_array().map(Vec::len), Some(0));
    let rule = results[0]["ruleIndex"].as_u64().expect("an index") as usize;
    assert_eq!(
        log["runs"][0]["tool"]["driver"]["rules"][rule]["id"],
        "PF0103"
    );
    let notes = &log["runs"][0]["invocations"][0]["toolExecutionNotifications"];
    assert_eq!(notes[0]["message"]["text"], "one thing was not tried");
}

#[test]
fn github_has_one_command_for_each_finding() {
    let mut out = Vec::new();
    let folder = folder();
    formats::github(&mut out, &subject(), &options(&folder)).expect("memory");
    let text = String::from_utf8(out).expect("text");
    assert_file(&folder.join("expected/github.txt"), &text);
    assert_eq!(text.lines().count(), 4);
}

#[test]
fn gitlab_has_a_place_for_each_finding() {
    let mut out = Vec::new();
    let folder = folder();
    formats::gitlab(&mut out, &subject(), &options(&folder)).expect("memory");
    let text = String::from_utf8(out).expect("text");
    assert_file(&folder.join("expected/gitlab.json"), &text);
    let issues: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    assert_eq!(issues[2]["location"]["path"], "./map");
    let mut prints: Vec<&Value> = issues.iter().map(|it| &it["fingerprint"]).collect();
    prints.dedup();
    assert_eq!(prints.len(), 4);
}

fn junit(report: &Report, denies_warnings: bool) -> String {
    let mut out = Vec::new();
    let folder = folder();
    formats::junit(&mut out, report, &options(&folder), denies_warnings).expect("memory");
    String::from_utf8(out).expect("text")
}

#[test]
fn junit_counts_bugs_as_failures() {
    let text = junit(&subject(), false);
    assert!(text.contains(r#"tests="5""#), "{text}");
    assert!(text.contains(r#"failures="3""#), "{text}");
    assert!(text.contains(r#"errors="0""#), "{text}");
    assert!(
        text.contains("sources/map.c") && text.contains("&lt;b&gt;"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "no colours");
    assert!(
        !text.contains("time=") && !text.contains("timestamp"),
        "no times"
    );
    assert!(junit(&subject(), true).contains(r#"failures="4""#));
}

#[test]
fn junit_fails_where_nothing_was_checked() {
    let clean = junit(&report(Vec::new()), false);
    assert!(
        clean.contains(r#"tests="1""#) && clean.contains(r#"errors="0""#),
        "{clean}"
    );
    let mut nothing = report(Vec::new());
    nothing.totals.not_checked = Some(NotChecked::PoolNotOpened);
    let text = junit(&nothing, false);
    assert!(text.contains(r#"errors="1""#), "{text}");
    assert!(text.contains("recovery did not open the pool"), "{text}");
}

#[test]
fn warnings_are_in_other_formats_if_they_are_in_the_text() {
    let mut warning = lost_store();
    warning.severity = Severity::Warning;
    warning.code = Code::SharedFlush;
    let subject = report(vec![warning]);
    assert_eq!(
        sarif(&subject)["runs"][0]["results"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}
