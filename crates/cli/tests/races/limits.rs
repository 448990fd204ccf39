//! Budgets and interruptions: the known findings are reported, and so is what was not tried.

use std::process::Stdio;

use powerfail_test_support::events::wait_for_file;

use crate::common::{Folder, RECOVER, Run, SETUP};
use crate::{folder, line, pairs, races};

#[test]
fn a_budget_leaves_out_and_says_so() {
    // Recovery cannot be watched at so many failure points in a millisecond.
    let folder = Folder::new();
    folder.build_at("bug", "check", "many.c", &[]);
    folder.record();
    let report = races(&folder, &["--budget", "1ms"]).report();
    let totals = report.totals.races.expect("reads were to be watched");
    assert!(totals.not_tried > 0, "{totals:?}");
    let is_said = report.notes.iter().any(|note| note.contains("time was up"));
    assert!(is_said, "{:?}", report.notes);
    let all = races(&folder, &["--budget", "1h"]).report();
    assert_eq!(all.totals.races.map(|it| it.not_tried), Some(0));
}

/// Recovery reports that it is waiting, at a failure point after one with a finding.
#[test]
fn an_interruption_keeps_what_is_known() {
    let folder = folder(8);
    // If the tests run in the background, the signal is ignored, and powerfail would inherit that.
    let mut command = folder.command("env");
    command
        .args([
            "--default-signal=INT",
            "timeout",
            "--foreground",
            "--kill-after=10",
            "120",
        ])
        .arg(env!("CARGO_BIN_EXE_powerfail"))
        .args(["races", "run.trace", "--recover", RECOVER, "--jobs", "1"])
        .args(["--timeout", "100s", "--format", "json", "--writable", "."])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("powerfail starts");
    wait_for_file(&folder.path("waiting"), &child);
    let id = i32::try_from(child.id()).expect("an id");
    let id = rustix::process::Pid::from_raw(id).expect("an id");
    // timeout forwards the signal.
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it waits");
    let run = Run::from(child.wait_with_output().expect("an end"));
    assert_eq!(run.code, SETUP, "{run:?}");
    assert!(run.stderr.contains("interrupted"), "{}", run.stderr);
    let bit = (
        Some(line("stores the bit")),
        Some(line("reads the bit")),
        false,
    );
    assert_eq!(pairs(&run), [bit], "{}", run.stdout);
    let report = run.report();
    let totals = report.totals.races.expect("reads were watched");
    assert!(totals.not_tried > 0 && totals.watched > 0, "{totals:?}");
    let is_said = report
        .notes
        .iter()
        .any(|note| note.contains("stopped before the end"));
    assert!(is_said, "{:?}", report.notes);
}
