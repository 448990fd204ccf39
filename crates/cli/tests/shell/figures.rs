//! Figures 1, 3 and 7 of the `PMFuzz` paper as programs: their bugs are found with the test cases that reach them, and
//! nothing is found in their clean twins.

use std::path::{Path, PathBuf};
use std::process::Command;

use powerfail_finding::Severity;
use tempfile::TempDir;

use crate::bugs;
use crate::pool::Pool;
use crate::trigger::{Step, Trigger, sources};

fn build(name: &str, flags: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let binary = folder.path().join(name);
    let source = figures().join(format!("{name}.c"));
    let mut compiler = Command::new("gcc");
    compiler.args([
        "-std=gnu11",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wl,-z,now",
    ]);
    compiler.args(flags).arg(source).arg("-o").arg(&binary);
    let output = compiler.args(["-lpmemobj", "-lpmem"]).output();
    let output = output.expect("the compiler is installed");
    assert!(output.status.success(), "{output:?}");
    (folder, binary)
}

fn figures() -> PathBuf {
    sources().join("../figures")
}

fn check(name: &str, trigger: &Trigger) {
    let bugs = bugs::planted(&figures());
    let run = |binary: &Path| {
        let pool = Pool::empty(binary, "");
        for step in &trigger.before {
            pool.prepare(step);
        }
        pool.check(trigger, crate::LOST_LINES).findings
    };
    let (_folder, binary) = build(name, &["-DBUGS_ALL"]);
    let findings = run(&binary);
    for number in &trigger.bugs {
        let is_found = findings.iter().any(|it| bugs[number].is_shown_by(it));
        assert!(is_found, "bug {number} is not found: {findings:#?}");
    }
    let (_folder, clean) = build(name, &[]);
    let mut surplus = run(&clean);
    surplus.retain(|finding| finding.severity != Severity::Warning);
    assert!(surplus.is_empty(), "the twin has {surplus:#?}");
}

#[test]
fn figure_1_needs_a_rotation() {
    let inserts = "insert 1\ninsert 2\ninsert 3\ninsert 4\ninsert 5\ninsert 0\n";
    let commands = format!("{inserts}remove 5\nremove 4\n");
    check(
        "btree",
        &Trigger {
            bugs: vec![1, 2],
            before: Vec::new(),
            commands,
            is_alone: true,
            needs_lost_lines: true,
        },
    );
}

#[test]
fn figure_3_needs_an_image() {
    let before = Step::Run {
        commands: "put 1 2\n".to_owned(),
    };
    check(
        "database",
        &Trigger {
            bugs: vec![3],
            before: vec![before],
            commands: "put 5 6\n".to_owned(),
            is_alone: true,
            needs_lost_lines: true,
        },
    );
}

#[test]
fn figure_7_needs_a_crash_image() {
    let before = Step::Crash {
        function: "update".to_owned(),
        fence: 3,
        commands: "set 1 5\n".to_owned(),
    };
    check(
        "backup",
        &Trigger {
            bugs: vec![4],
            before: vec![before],
            commands: "set 2 6\n".to_owned(),
            is_alone: true,
            needs_lost_lines: true,
        },
    );
}
