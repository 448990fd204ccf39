//! `powerfail replay` of race findings.

use std::fs;

use crate::common::{CLEAN, FINDINGS};
use crate::{folder, races};

#[test]
fn a_confirmed_race_fails_again() {
    let folder = folder(1);
    let report = races(&folder, &[]).ends_with(FINDINGS).report();
    let id = report.findings[0].id.as_str();
    let again = folder
        .powerfail(&["replay", id, "--out", "out"])
        .ends_with(FINDINGS);
    assert!(
        again.stdout.contains("the same again: recovery did"),
        "{}",
        again.stdout
    );
    folder
        .powerfail(&["replay", id, "--out", "out", "--image", "image"])
        .ends_with(CLEAN);
    assert!(folder.path("image").is_dir());
}

#[test]
fn a_race_without_a_run_and_a_semantic_bug_are_read_again() {
    for (case, code) in [(0, "PF0701"), (4, "PF0702"), (5, "PF0701")] {
        let folder = folder(case);
        let run = races(&folder, &["--strict"]);
        let report = run.report();
        let of_code = report.findings.iter().filter(|it| it.code.as_str() == code);
        let mut seen = 0;
        for finding in of_code.filter(|it| it.evidence.is_none()) {
            let again = folder.powerfail(&["replay", &finding.id, "--out", "out"]);
            let again = again.ends_with(FINDINGS);
            let bytes = &finding.read.as_ref().expect("it is about a read").bytes;
            let words = format!("the same again: recovery read {bytes}");
            assert!(again.stdout.contains(&words), "{}", again.stdout);
            seen += 1;
        }
        assert!(seen > 0, "{}", run.stdout);
    }
}

#[test]
fn a_recovery_that_reads_no_more_is_told() {
    let folder = folder(0);
    let report = races(&folder, &[]).report();
    let id = report.findings[0].id.as_str();
    // Another program with the same name.
    folder.build_at("bug", "races", "record.c", &["-DCASE=6"]);
    let again = folder
        .powerfail(&["replay", id, "--out", "out"])
        .ends_with(CLEAN);
    assert!(
        again.stderr.contains("did not read these bytes this time"),
        "{}",
        again.stderr
    );
}

#[test]
fn evidence_can_be_exported() {
    let folder = folder(0);
    let report = races(&folder, &[]).report();
    let id = report.findings[0].id.as_str();
    folder
        .powerfail(&["replay", id, "--out", "out", "--export", "copy"])
        .ends_with(CLEAN);
    let names: Vec<_> = fs::read_dir(folder.path("copy"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert!(names.iter().any(|name| name == "run.trace"), "{names:?}");
    folder
        .powerfail(&["replay", id, "--out", "copy"])
        .ends_with(FINDINGS);
}
