//! What powerfail says about recovery itself: that it judges nothing, cannot fail, or reports without failing; and what
//! recovery is given.

use crate::common::{CLEAN, FINDINGS, Folder, NOT_CHECKED, Run};

fn folder() -> Folder {
    let folder = Folder::new();
    folder.build_own("judge", "judge.c", &[]);
    folder
}

/// Checks `./judge {pool}` with this recovery.
fn check(folder: &Folder, recover: &str, options: &[&str]) -> Run {
    let mut arguments = vec!["check", "--format", "json", "--recover", recover];
    arguments.extend(options);
    arguments.extend(["--", "./judge", "{pool}"]);
    folder.powerfail(&arguments)
}

/// Checks `./judge {pool}` and `arguments` with this recovery. The report is text.
fn check_as_text(folder: &Folder, recover: &str, arguments: &[&str]) -> Run {
    let words = ["check", "--recover", recover, "--", "./judge", "{pool}"];
    folder.powerfail(&[&words[..], arguments].concat())
}

/// Asserts whether a note says that recovery cannot fail.
#[track_caller]
fn says_cannot_fail(run: &Run, expected: bool) {
    let notes = run.report().notes;
    let is_said = note(&notes, "cannot fail").is_some();
    assert_eq!(is_said, expected, "{notes:?}");
}

fn note<'r>(notes: &'r [String], words: &str) -> Option<&'r String> {
    notes.iter().find(|note| note.contains(words))
}

#[test]
fn a_recovery_that_opens_no_pool_checks_nothing() {
    let folder = folder();
    folder.write("other", "content");
    for recover in ["true", "cat other"] {
        let run = check_as_text(&folder, recover, &[]).ends_with(NOT_CHECKED);
        let said = "nothing was checked: recovery did not open the pool";
        assert!(run.stdout.contains(said), "{}", run.stdout);
        assert!(run.stdout.contains("help: pass the path"), "{}", run.stdout);
        assert!(!run.stdout.contains("no bugs found"), "{}", run.stdout);
    }
}

#[test]
fn a_workload_without_stores_checks_nothing() {
    let folder = folder();
    let run = check_as_text(&folder, "./judge {pool} strict", &["idle"]);
    let run = run.ends_with(NOT_CHECKED);
    assert!(
        run.stdout.contains("nothing was checked: "),
        "{}",
        run.stdout
    );
}

#[test]
fn a_recovery_that_does_the_same_with_every_pool_checks_nothing() {
    let folder = folder();
    // The second one overwrites what it finds: no pool can hold data for it.
    for mode in ["shrugs", "begins-anew"] {
        let recover = format!("./judge {{pool}} {mode}");
        let run = check_as_text(&folder, &recover, &[]).ends_with(NOT_CHECKED);
        let said = "nothing was checked: recovery does the same with each pool";
        assert!(run.stdout.contains(said), "{}", run.stdout);
        assert!(run.stdout.contains("--checker"), "{}", run.stdout);
        assert!(!run.stdout.contains("no bugs found"), "{}", run.stdout);
    }
    // With races, what it reads is judged.
    check(&folder, "./judge {pool} shrugs", &["--races"]).ends_with(CLEAN);
}

#[test]
fn the_data_that_is_changed_is_what_recovery_reads() {
    let folder = Folder::new();
    folder.build_own("bug", "picky.c", &[]);
    says_cannot_fail(&folder.check(&[]).ends_with(CLEAN), false);
}

#[test]
fn findings_of_the_lint_do_not_hide_that_nothing_else_was_checked() {
    let folder = folder();
    let run = check_as_text(&folder, "./judge {pool} strict", &["flushes"]);
    let run = run.ends_with(FINDINGS);
    let warning = "warning: nothing was checked with power failures: there is no flush";
    assert!(run.stdout.contains(warning), "{}", run.stdout);
    let counted = "1 performance bug; 1 warning\n";
    assert!(run.stdout.contains(counted), "{}", run.stdout);
}

#[test]
fn a_recovery_that_accepts_everything_is_noted() {
    let folder = folder();
    let weak = check(&folder, "cat {pool}", &[]).ends_with(CLEAN);
    says_cannot_fail(&weak, true);
    let strict = check(&folder, "./judge {pool} strict", &[]).ends_with(CLEAN);
    says_cannot_fail(&strict, false);
}

#[test]
fn lines_that_look_like_failures_are_noted_and_can_count() {
    let folder = folder();
    let recover = "./judge {pool} whispers";
    let run = check(&folder, recover, &[]).ends_with(CLEAN);
    let notes = run.report().notes;
    let said = note(&notes, "ASSERTION b == a is wrong").expect("a note");
    assert!(said.contains("--fail-pattern '(?i)assert'"), "{said}");
    let run = check(&folder, recover, &["--fail-pattern", "(?i)assert"]).ends_with(FINDINGS);
    assert!(note(&run.report().notes, "ASSERTION").is_none());
    // What it also writes without a crash says nothing.
    let run = check(&folder, "./judge {pool} always-whispers", &[]).ends_with(CLEAN);
    assert!(note(&run.report().notes, "no crash so far").is_none());
}

#[test]
fn recovery_reads_its_input() {
    let folder = folder();
    folder.write("commands.txt", "commands\n");
    let recover = "./judge {pool} reads-input";
    let run = check(&folder, recover, &["--recover-input", "commands.txt"]);
    run.ends_with(CLEAN);
    let kept = std::fs::read_to_string(folder.path("powerfail-out/recovery.input"));
    assert_eq!(kept.expect("the input is kept"), "commands\n");
}

#[test]
fn a_crash_behind_a_shell_is_a_crash() {
    let folder = folder();
    let run = check(&folder, "./judge {pool} crashes; exit $?", &[]).ends_with(FINDINGS);
    let finding = run.finding("PF0401");
    let places = finding.places.iter();
    let mut functions = places.filter_map(|it| it.function.as_deref());
    assert!(functions.any(|name| name == "recover"), "{}", run.stdout);
}

#[test]
fn standard_error_is_shown_before_other_output() {
    let folder = folder();
    let run = check_as_text(&folder, "./judge {pool} talks", &[]);
    let text = run.ends_with(FINDINGS).stdout;
    let reason = text.find("the reason").expect("standard error");
    let last = text.find("line 99").expect("the end of the output");
    assert!(reason < last, "{text}");
}

#[test]
fn a_replay_has_the_environment_of_the_check() {
    let folder = folder();
    let run = |variable: Option<&str>, arguments: &[&str]| {
        let mut command = folder.command("timeout");
        if let Some(value) = variable {
            command.env("PMEM_TOLD", value);
        }
        Run::powerfail(command, arguments)
    };
    let recover = "./judge {pool} crashes-if-told";
    let arguments = [
        "check",
        "--format",
        "json",
        "--recover",
        recover,
        "--",
        "./judge",
        "{pool}",
    ];
    let checked = run(Some("1"), &arguments).ends_with(FINDINGS);
    let id = checked.finding("PF0401").id;
    run(None, &["replay", &id]).ends_with(FINDINGS);
    run(None, &["replay", &id, "--export", "exported"]);
    let exported = run(None, &["replay", &id, "--out", "exported"]);
    exported.ends_with(FINDINGS);
}
