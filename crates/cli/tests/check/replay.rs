//! The replay command that a finding prints reproduces the finding.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use crate::common::{CLEAN, FINDINGS, Folder, Run, SETUP, files_below};

const COUNT_BEFORE_ENTRY: &str = "fail/atomicity/count_before_entry.c";

/// The replay commands that a report prints.
fn replay_lines(run: &Run) -> Vec<&str> {
    let lines = run.stdout.lines();
    lines
        .filter_map(|line| line.trim_start().strip_prefix("= replay: "))
        .collect()
}

/// Runs a line as a user would who copies it into a shell.
fn run_in_shell(folder: &Folder, line: &str) -> Run {
    let binary = Path::new(env!("CARGO_BIN_EXE_powerfail"));
    let mut path = binary.parent().expect("a folder").as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    let mut shell = folder.command("/bin/sh");
    shell.args(["-c", line]).env("PATH", path);
    shell.output().expect("a shell").into()
}

/// Checks a program, runs the printed command, and compares the findings.
fn is_shown_again(source: &str, code: &str, options: &[&str]) {
    let folder = Folder::new();
    folder.build_planted("bug", source);
    let checked = folder.check_into_text(options).ends_with(FINDINGS);
    let lines = replay_lines(&checked);
    assert_eq!(lines.len(), 1, "{}", checked.stdout);
    let replayed = run_in_shell(&folder, lines[0]).ends_with(FINDINGS);
    let shown = replayed.stdout.lines().collect::<Vec<_>>();
    let (verdict, shown) = shown.split_last().expect("some lines");
    assert!(verdict.starts_with("the same again"), "{}", replayed.stdout);
    assert!(shown[0].contains(code), "{}", replayed.stdout);
    let shown = shown.join("\n");
    assert!(
        checked.stdout.contains(&shown),
        "{}\n{}",
        checked.stdout,
        replayed.stdout
    );
}

#[test]
fn a_bug_of_atomicity() {
    is_shown_again(COUNT_BEFORE_ENTRY, "PF0301", &[]);
}

#[test]
fn a_recovery_that_crashes() {
    is_shown_again("fail/recovery-crash/division.c", "PF0401", &[]);
}

#[test]
fn a_recovery_that_hangs() {
    // Far more than it takes where it does not hang, on a machine that is busy.
    let options = ["--timeout", "5s", "--no-lazy"];
    is_shown_again("fail/recovery-hang/cycle.c", "PF0402", &options);
}

#[test]
fn the_printed_command_is_one_for_a_shell_whatever_the_directory_is_called() {
    for out in ["two words", "it's", "$HOME"] {
        is_shown_again(COUNT_BEFORE_ENTRY, "PF0301", &["--out", out]);
    }
}

#[test]
fn a_finding_of_the_lint_by_its_id() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/redundant-flush/twice.c");
    let arguments = ["check", "--format", "json", "--", "./bug", "{pool}"];
    let found = folder.powerfail(&arguments).ends_with(FINDINGS);
    let id = found.finding("PF0501").id;
    let again = folder.powerfail(&["replay", &id]).ends_with(FINDINGS);
    assert!(again.stdout.contains("PF0501"), "{}", again.stdout);
    assert!(again.stdout.contains("twice.c:11"), "{}", again.stdout);
    // It has no crash image to write.
    let refused = folder.powerfail(&["replay", &id, "--image", "image"]);
    refused.is_refused_with(SETUP, &["no crash image"]);
    assert!(!folder.path("image").exists());
}

#[test]
fn an_image_on_which_recovery_fails_by_hand() {
    let folder = Folder::new();
    folder.build_planted("bug", COUNT_BEFORE_ENTRY);
    let found = folder.check(&[]).ends_with(FINDINGS);
    let id = found.finding("PF0301").id;
    let run = folder.powerfail(&["replay", &id, "--image", "image"]);
    run.ends_with(CLEAN);
    let files = files_below(&folder.path("image"));
    let [pool] = &files[..] else {
        panic!("not one pool: {files:?}");
    };
    let bytes = fs::read(pool).expect("the image of the pool");
    assert_eq!(bytes.len(), 4096);
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    // One entry is counted, but it is missing.
    assert_eq!((word(0), word(64)), (1, 0));
    assert!(bytes[8..].iter().all(|byte| *byte == 0));
    let status = folder.command("./bug").arg(pool).arg("recover").status();
    assert_eq!(status.expect("recovery runs").code(), Some(1));
    // Nothing is overwritten.
    let again = folder.powerfail(&["replay", &id, "--image", "image"]);
    again.is_refused_with(SETUP, &["image"]);
}

#[test]
fn an_image_on_which_recovery_crashes_by_hand() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/recovery-crash/division.c");
    let found = folder.check(&[]).ends_with(FINDINGS);
    let id = found.finding("PF0401").id;
    let run = folder.powerfail(&["replay", &id, "--image", "image"]);
    run.ends_with(CLEAN);
    let pool = files_below(&folder.path("image")).remove(0);
    let status = folder.command("./bug").arg(pool).arg("recover").status();
    assert_eq!(
        status.expect("recovery runs").signal(),
        Some(libc::SIGFPE),
        "a division by zero"
    );
}

#[test]
fn an_exported_copy_stands_alone() {
    let folder = Folder::new();
    folder.build_planted("bug", COUNT_BEFORE_ENTRY);
    let found = folder.check(&[]).ends_with(FINDINGS);
    let id = found.finding("PF0301").id;
    let export = ["replay", &id, "--export", "copy"];
    folder.powerfail(&export).ends_with(CLEAN);
    fs::remove_dir_all(folder.path("powerfail-out")).expect("the evidence");
    let again = folder.powerfail(&["replay", &id, "--out", "copy"]);
    assert!(again.ends_with(FINDINGS).stdout.contains("PF0301"));
    let without = folder.powerfail(&["replay", &id]);
    without.is_refused_with(SETUP, &["no evidence", "powerfail-out"]);
    // An export does not overwrite anything.
    let onto = folder.powerfail(&["replay", &id, "--out", "copy", "--export", "tmp"]);
    onto.is_refused_with(SETUP, &["tmp"]);
}

#[test]
fn an_exported_copy_runs_on_a_machine_without_the_program() {
    let folder = Folder::new();
    folder.build_planted("bug", COUNT_BEFORE_ENTRY);
    let found = folder.check(&[]).ends_with(FINDINGS);
    let id = found.finding("PF0301").id;
    let export = ["replay", &id, "--export", "copy"];
    folder.powerfail(&export).ends_with(CLEAN);
    fs::remove_dir_all(folder.path("powerfail-out")).expect("the evidence");
    fs::remove_file(folder.path("bug")).expect("the program");
    fs::create_dir(folder.path("elsewhere")).expect("a directory");
    let moved = folder.path("elsewhere/moved");
    fs::rename(folder.path("copy"), moved).expect("the copy");
    let again = folder.powerfail(&["replay", &id, "--out", "elsewhere/moved"]);
    assert!(again.ends_with(FINDINGS).stdout.contains("the same again"));
}

#[test]
fn another_recovery_can_be_run_on_the_image() {
    let folder = Folder::new();
    folder.build_planted("bug", COUNT_BEFORE_ENTRY);
    let found = folder.check(&[]).ends_with(FINDINGS);
    let id = found.finding("PF0301").id;
    let run = |recover: &str| folder.powerfail(&["replay", &id, "--recover", recover]);
    let repaired = run("test -s {pool}").ends_with(CLEAN);
    assert!(
        repaired.stderr.contains("not reproduced"),
        "{}",
        repaired.stderr
    );
    run(crate::common::RECOVER).ends_with(FINDINGS);
    // It fails as well, but in another way.
    let other = run("sh -c 'exit 7'").ends_with(FINDINGS);
    assert!(
        other.stdout.contains("recovery exited with status 7"),
        "{}",
        other.stdout
    );
}

#[test]
fn what_was_tried_from_a_trace() {
    let folder = Folder::new();
    folder.build_planted("bug", COUNT_BEFORE_ENTRY);
    folder.record();
    let recover = crate::common::RECOVER;
    let arguments = ["crash", "run.trace", "--recover", recover, "--out", "out"];
    let run = folder.powerfail(&arguments).ends_with(FINDINGS);
    fs::remove_file(folder.path("run.trace")).expect("the trace");
    let lines = replay_lines(&run);
    run_in_shell(&folder, lines[0]).ends_with(FINDINGS);
}

#[test]
fn a_repaired_recovery_does_something_else() {
    let folder = Folder::new();
    folder.build_planted("bug", COUNT_BEFORE_ENTRY);
    let id = folder.check(&[]).finding("PF0301").id;
    fs::remove_file(folder.path("bug")).expect("the program");
    folder.write("bug", "#!/bin/sh\nexit 0\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path("bug"), executable).expect("a mode");
    let again = folder.powerfail(&["replay", &id]).ends_with(CLEAN);
    assert!(again.stderr.contains("not reproduced"), "{}", again.stderr);
}

#[test]
fn a_wrong_id_is_told_which_there_are() {
    let folder = Folder::new();
    folder.build_planted("bug", COUNT_BEFORE_ENTRY);
    let id = folder.check(&[]).finding("PF0301").id;
    let run = folder.powerfail(&["replay", "00000000"]);
    run.is_refused_with(SETUP, &["00000000", &id, "powerfail-out"]);
}

#[test]
fn what_replay_cannot_do_at_once() {
    let folder = Folder::new();
    for conflict in [
        ["--gdb", "--image=a"],
        ["--gdb", "--export=a"],
        ["--image=a", "--export=b"],
    ] {
        let mut arguments = vec!["replay", "00000000"];
        arguments.extend(conflict);
        let run = folder.powerfail(&arguments);
        run.is_refused_with(SETUP, &["cannot be used with"]);
    }
}
