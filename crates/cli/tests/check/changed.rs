//! `--changed-since`: what is new since a run, or since a revision of git.

use crate::common::{CLEAN, FINDINGS, Folder, SETUP};

const MISSING: &str = "/* persist(pool->record) is missing here. */";
const THERE: &str = "persist(pool->record);";

fn note(folder: &Folder, since: &str, code: i32) -> String {
    let arguments = [
        "check",
        "--changed-since",
        since,
        "--format",
        "json",
        "--",
        "./counter",
        "{pool}",
    ];
    let report = folder.powerfail(&arguments).ends_with(code).report();
    let mut notes = report.notes.into_iter();
    let note = notes.find(|note| note.starts_with("new since "));
    note.unwrap_or_default()
}

#[test]
fn what_the_last_run_has_not_tried_is_new() {
    let folder = Folder::new();
    folder.build_example("counter", None);
    folder
        .powerfail(&["check", "--out", "last", "--", "./counter", "{pool}"])
        .ends_with(FINDINGS);
    // The flush in `persist`, called from one place.
    let none = note(&folder, "last", FINDINGS);
    assert_eq!(none, "new since last: 0 of 1 call stack");
    // Another place calls it, and the lines below move.
    folder.build_example("counter", Some((MISSING, &format!("\n\n{THERE}"))));
    let some = note(&folder, "last", CLEAN);
    assert_eq!(some, "new since last: 1 of 2 call stacks, tried first");
    // The output directory of the run itself is read before it is written.
    let none = note(&folder, "powerfail-out", CLEAN);
    assert_eq!(none, "new since powerfail-out: 0 of 2 call stacks");
}

#[test]
fn what_passes_through_a_changed_function_is_new() {
    let folder = Folder::new();
    folder.build_example("counter", None);
    let git = |arguments: &[&str]| {
        let mut command = folder.command("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
        let output = command.args(arguments).output().expect("git is installed");
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "--quiet"]);
    git(&["add", "counter.c"]);
    git(&["commit", "--quiet", "--message", "first"]);
    let none = note(&folder, "HEAD", FINDINGS);
    assert_eq!(none, "new since HEAD: 0 of 1 call stack");
    folder.build_example("counter", Some((MISSING, THERE)));
    // Both are called from `main`, which was changed.
    let all = note(&folder, "HEAD", CLEAN);
    assert_eq!(all, "new since HEAD: 2 of 2 call stacks, tried first");
    let arguments = [
        "check",
        "--changed-since",
        "-p",
        "--",
        "./counter",
        "{pool}",
    ];
    let refused = folder.powerfail(&arguments);
    assert_eq!(refused.code, SETUP);
    let arguments = [
        "check",
        "--changed-since=no-such",
        "--",
        "./counter",
        "{pool}",
    ];
    let refused = folder.powerfail(&arguments);
    refused.is_refused_with(SETUP, &["no-such", "neither", "run", "revision"]);
}
