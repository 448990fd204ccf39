//! Targets that lose what they have inherited, descriptors or environment, and the programs that they start.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{Mode, Recorder, Recording, target};

fn program() -> std::path::PathBuf {
    target("detached.c", &["-O2"])
}

/// The words of the pool: what was stored there, by number of the line.
fn lines(recording: &Recording) -> BTreeMap<u64, u64> {
    let stores = recording.stores();
    let line = |store: &crate::common::Event| (store.offset / 64, store.value());
    stores.iter().map(line).collect()
}

/// Records a case, in which these lines are stored to.
fn assert_stores(what: &str, expected: &[u64]) {
    let recording = Recorder::new(program(), &[what, "{pool}"]).run();
    recording.assert_exit(0);
    let expected: BTreeMap<u64, u64> = expected.iter().map(|line| (*line, line + 100)).collect();
    assert_eq!(lines(&recording), expected, "{what}");
    assert_eq!(recording.count("clflush"), expected.len() as u64, "{what}");
}

#[test]
fn closed_descriptors() {
    for what in [
        "close",
        "close_range",
        "close_range_syscall",
        "closefrom",
        "close_raw",
        "dup2",
    ] {
        assert_stores(what, &[1, 2, 3, 4]);
    }
}

#[test]
fn closed_descriptors_in_both_modes() {
    for mode in Mode::BOTH {
        let recorder = Recorder::new(program(), &["close_raw", "{pool}"]).mode(mode);
        assert_eq!(lines(&recorder.run()).len(), 4);
    }
}

#[test]
fn programs_that_are_executed_with_an_empty_environment() {
    for what in [
        "execve",
        "close_execve",
        "execle",
        "execlp",
        "raw_execve",
        "posix_spawn",
        "posix_spawn_closing",
        "system",
    ] {
        assert_stores(what, &[1]);
    }
    assert_stores("execl", &[1, 2, 3, 4]);
    assert_stores("vfork", &[1, 2]);
}

#[test]
fn processes_that_outlive_their_parents() {
    assert_stores("fork_twice", &[1]);
    assert_stores("daemon", &[2, 1]);
    assert_stores("forkpty", &[1]);
}

#[test]
fn a_program_that_does_not_exist_is_not_missed() {
    assert_stores("no_program", &[1]);
}

/// Runs a command that stores to line 1.
fn assert_command_stores(command: &str, arguments: &[&str]) {
    let recording = Recorder::new(command, arguments).run();
    recording.assert_exit(0);
    let expected = BTreeMap::from([(1, 101)]);
    assert_eq!(lines(&recording), expected, "{command} {arguments:?}");
}

#[test]
fn commands_that_clear_the_environment() {
    let program = program();
    let program = program.to_str().expect("a name");
    assert_command_stores("env", &["-i", program, "store", "{pool}", "1"]);
    assert_command_stores("setsid", &["--wait", program, "store", "{pool}", "1"]);
    let script = format!("env -i {program} store \"$1\" 1");
    assert_command_stores("sh", &["-c", &script, "sh", "{pool}"]);
    // The shell does not wait for it.
    let script = format!("exec 3>&-; setsid {program} store \"$1\" 1 &");
    assert_command_stores("sh", &["-c", &script, "sh", "{pool}"]);
}

#[test]
fn a_script_in_between() {
    let recorder = Recorder::new("sh", &[]);
    let script = recorder.folder().join("script");
    let text = format!("#!/bin/sh\n{} store \"$1\" 1\n", program().display());
    std::fs::write(&script, text).expect("a script");
    make_executable(&script);
    let script = script.to_str().expect("a name");
    let command = format!("env -i {script} \"$1\"");
    assert_command_stores("sh", &["-c", &command, "sh", "{pool}"]);
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("a mode");
}

#[test]
fn subprocesses_of_python() {
    let script = "import subprocess, sys\n\
        for options in ({}, {'close_fds': True}, {'env': {}}, {'start_new_session': True}):\n\
        \x20   subprocess.run([sys.argv[1], 'store', sys.argv[2], '1'], check=True, **options)\n";
    let program = program();
    let program = program.to_str().expect("a name");
    let recording = Recorder::new("/usr/bin/python3", &["-c", script, program, "{pool}"]).run();
    recording.assert_exit(0);
    assert_eq!(recording.stores().len(), 4);
}

#[test]
fn a_program_that_cannot_be_recorded_is_named() {
    let program = program();
    let fixed = target("detached.c", &["-O2", "-static"]);
    let fixed = fixed.to_str().expect("a name");
    let cases: [&[&str]; 2] = [
        // It stores, and the recording lacks that.
        &["run", "{pool}", fixed, "store", "{pool}", "1"],
        // It does not even touch a pool, but no other program did.
        &["run", "{pool}", fixed, "store", "/dev/null"],
    ];
    for arguments in cases {
        let attempt = Recorder::new(&program, arguments).attempt();
        assert_eq!(attempt.code, 4, "{attempt:?}");
        let sentence =
            format!("executed {fixed} and was not recorded: {fixed} is statically linked");
        assert!(attempt.stderr.contains(&sentence), "{attempt:?}");
    }
}

/// Runs a recorded program that stores to the pool, and then a script that gives something to one that is not recorded.
fn beside_a_static_program(script: &str) -> (crate::common::Attempt, String) {
    let program = program();
    let program = program.to_str().expect("a name");
    let fixed = target("detached.c", &["-O2", "-static"]);
    let fixed = fixed.to_str().expect("a name");
    let script = format!("{program} store \"$1\" 1 && {script}").replace("STATIC", fixed);
    let attempt = Recorder::new("sh", &["-c", &script, "sh", "{pool}"]).attempt();
    (attempt, fixed.to_owned())
}

#[test]
fn a_static_program_without_a_way_to_the_pool_is_a_note() {
    let (attempt, fixed) =
        beside_a_static_program("STATIC store /dev/null && STATIC store /dev/null");
    assert_eq!(attempt.code, 0, "{attempt:?}");
    let sentence = format!(
        "a program that is not recorded was executed 2 times: {fixed} is statically linked"
    );
    assert!(attempt.stdout.contains(&sentence), "{attempt:?}");
}

#[test]
fn a_static_program_with_a_way_to_the_pool_is_an_error() {
    for (script, way) in [
        ("STATIC store \"$1\"", "its arguments name a pool"),
        (
            "STATIC store $(dirname \"$1\")/other",
            "its arguments name a pool or its directory",
        ),
        (
            "POOL=\"$1\" STATIC store /dev/null",
            "its environment names a pool",
        ),
        (
            "STATIC store /dev/null >> \"$1\"",
            "it inherited a descriptor of a pool",
        ),
    ] {
        let (attempt, fixed) = beside_a_static_program(script);
        assert_eq!(attempt.code, 4, "{script}: {attempt:?}");
        let sentence = format!("executed {fixed} and was not recorded");
        assert!(attempt.stderr.contains(&sentence), "{script}: {attempt:?}");
        assert!(attempt.stderr.contains(way), "{script}: {attempt:?}");
    }
}
