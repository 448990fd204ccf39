//! Which results count as bugs, and which bugs are reported.

use crate::common::{CLEAN, FINDINGS, Folder, RECOVER, SETUP};

fn folder_with(source: &str) -> Folder {
    let folder = Folder::new();
    folder.build_planted("bug", source);
    folder
}

const COUNT_BEFORE_ENTRY: &str = "fail/atomicity/count_before_entry.c";

#[test]
fn an_exit_status_can_be_fine() {
    let folder = folder_with(COUNT_BEFORE_ENTRY);
    assert_eq!(folder.check(&[]).ends_with(FINDINGS).codes(), ["PF0301"]);
    folder.check(&["--ok-exit", "1"]).ends_with(CLEAN);
    folder.check(&["--ok-exit", "3,1"]).ends_with(CLEAN);
    folder.check(&["--ok-exit", "2"]).ends_with(FINDINGS);
}

#[test]
fn a_line_of_output_can_be_a_failure() {
    let folder = folder_with(COUNT_BEFORE_ENTRY);
    // Recovery succeeds on every image, and prints its opinion.
    let recover = "./bug {pool} recover || echo LOST an entry";
    let check = |more: &[&str]| {
        let mut arguments = vec!["check", "--format", "json", "--recover", recover];
        arguments.extend(more);
        arguments.extend(["--", "./bug", "{pool}"]);
        folder.powerfail(&arguments)
    };
    check(&[]).ends_with(CLEAN);
    check(&["--fail-pattern", "^an entry"]).ends_with(CLEAN);
    let run = check(&["--fail-pattern", "x", "--fail-pattern", "^LOST"]);
    let finding = run.ends_with(FINDINGS).finding("PF0301");
    let evidence = format!("{:?}", finding.evidence);
    assert!(evidence.contains("LOST an entry"), "{evidence}");
}

#[test]
fn only_some_classes_or_codes() {
    let folder = Folder::new();
    folder.build_own("bug", "two_bugs.c", &[]);
    let check = |more: &[&str]| folder.check(more);
    let all = check(&[]).ends_with(FINDINGS);
    assert_eq!(all.codes(), ["PF0301", "PF0501"]);
    let flush = check(&["--only", "redundant-flush"]).ends_with(FINDINGS);
    assert_eq!(flush.codes(), ["PF0501"]);
    let crash = check(&["--only", "PF0301"]).ends_with(FINDINGS);
    assert_eq!(crash.codes(), ["PF0301"]);
    let both = check(&["--only", "PF0301,redundant-flush"]).ends_with(FINDINGS);
    assert_eq!(both.codes(), ["PF0301", "PF0501"]);
    check(&["--only", "PF0402"]).ends_with(CLEAN);
}

#[test]
fn warnings_count_only_if_they_are_denied() {
    let folder = folder_with("fail/shared-flush/pair.c");
    let check = |more: &[&str]| {
        let mut arguments = vec!["check", "--format", "json"];
        arguments.extend(more);
        arguments.extend(["--", "./bug", "{pool}"]);
        folder.powerfail(&arguments)
    };
    let silent = check(&[]).ends_with(CLEAN);
    assert!(silent.codes().is_empty(), "{}", silent.stdout);
    let shown = check(&["--warnings"]).ends_with(CLEAN);
    assert_eq!(shown.codes(), ["PF0601"]);
    let denied = check(&["--deny", "warnings"]).ends_with(FINDINGS);
    assert_eq!(denied.codes(), ["PF0601"]);
}

#[test]
fn a_baseline_leaves_what_is_new() {
    let folder = Folder::new();
    folder.build_own("bug", "two_bugs.c", &[]);
    let old = folder.check(&["--only", "PF0301"]).ends_with(FINDINGS);
    folder.write("old.json", &old.stdout);
    let new = folder.check(&["--baseline", "old.json"]);
    let new = new.ends_with(FINDINGS);
    assert_eq!(new.codes(), ["PF0501"]);
    assert_eq!(new.report().totals.in_baseline, 1);
    // All findings are known.
    let all = folder.check(&[]).ends_with(FINDINGS);
    folder.write("all.json", &all.stdout);
    let none = folder.check(&["--baseline", "all.json"]).ends_with(CLEAN);
    assert_eq!(none.report().totals.in_baseline, 2);
    assert_eq!(none.report().totals.fixed, 0);
    // Fixed findings are counted.
    folder.build_planted("bug", "pass/atomicity/count_before_entry.c");
    let repaired = folder.check(&["--baseline", "all.json"]).ends_with(CLEAN);
    assert_eq!(repaired.report().totals.fixed, 2);
}

#[test]
fn what_is_not_asked_for_is_not_repaired() {
    let folder = Folder::new();
    folder.build_own("bug", "two_bugs.c", &[]);
    let all = folder.check(&[]).ends_with(FINDINGS);
    folder.write("all.json", &all.stdout);
    let options = ["--baseline", "all.json", "--only", "PF0501"];
    let totals = folder.check(&options).ends_with(CLEAN).report().totals;
    // The other finding still exists, although it is filtered out.
    assert_eq!(totals.fixed, 0);
}

#[test]
fn a_twin_is_clean_in_text_and_json() {
    let folder = folder_with("pass/atomicity/count_before_entry.c");
    let text = folder.check_into_text(&[]).ends_with(CLEAN);
    assert!(
        text.stdout.starts_with("no bugs found\n"),
        "{}",
        text.stdout
    );
    assert!(folder.check(&[]).ends_with(CLEAN).codes().is_empty());
    folder.record();
    let crash = ["crash", "run.trace", "--recover", RECOVER];
    folder.powerfail(&crash).ends_with(CLEAN);
}

#[test]
fn one_run_writes_several_formats() {
    let folder = Folder::new();
    folder.build_own("bug", "two_bugs.c", &[]);
    let formats = [
        "--format=sarif=out.sarif",
        "--format=junit=out.xml",
        "--format=github=out.txt",
        "--format=gitlab=out.json",
        "--format=text=report.txt",
    ];
    let run = folder.check(&formats).ends_with(FINDINGS);
    assert_eq!(run.codes(), ["PF0301", "PF0501"]);
    let text = |name: &str| std::fs::read_to_string(folder.path(name)).expect(name);
    for name in ["out.sarif", "out.xml", "out.txt", "out.json", "report.txt"] {
        for code in ["PF0301", "PF0501"] {
            assert!(text(name).contains(code), "{name}: {}", text(name));
        }
    }
    assert!(!text("report.txt").contains('\u{1b}'));
    // Standard output has text if no other format is for it.
    let run = folder.check_into_text(&["--format", "sarif=again.sarif"]);
    assert!(run.stdout.contains("error[PF0301]"), "{}", run.stdout);
    assert_eq!(text("again.sarif"), text("out.sarif"));
}

#[test]
fn two_formats_need_two_places() {
    let folder = Folder::new();
    let check = |formats: [&str; 2]| {
        let [one, other] = formats;
        folder.powerfail(&[
            "check",
            "--format",
            one,
            "--format",
            other,
            "--",
            "/bin/true",
        ])
    };
    check(["json", "sarif"]).is_refused_with(SETUP, &["only one --format", "sarif=out.sarif"]);
    check(["json=a", "sarif=a"]).is_refused_with(SETUP, &["the same file"]);
}
