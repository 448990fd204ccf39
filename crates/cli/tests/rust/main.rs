//! Tests with `powerfail-test`, as its users write them: right ones pass, wrong ones fail with places and a replay line.
//! And `cargo powerfail`.

use std::fs::File;
use std::io::{self, Write};
use std::process::Command;
use std::time::Duration;

use powerfail_test::{Check, Directory, Pool};

const POWERFAIL: &str = env!("CARGO_BIN_EXE_powerfail");
const CARGO_POWERFAIL: &str = env!("CARGO_BIN_EXE_cargo-powerfail");
const RECORD: &[u8] = b"a record";

/// Stores a record and then its length.
fn store(pool: &mut Pool, is_persisted: bool) {
    pool.bytes_mut()[64..64 + RECORD.len()].copy_from_slice(RECORD);
    if is_persisted {
        pool.persist(64..64 + RECORD.len());
    }
    pool.bytes_mut()[0] = 8;
    pool.persist(0..1);
}

fn load(pool: &mut Pool) {
    if pool.bytes()[0] != 0 {
        assert_eq!(
            &pool.bytes()[64..64 + RECORD.len()],
            RECORD,
            "the record is damaged"
        );
    }
}

#[powerfail_test::test]
fn a_right_pool_passes(check: Check) {
    let check = check.binary(POWERFAIL).len_bytes(4096);
    check.workload(|pool| store(pool, true)).recover(load).run();
}

#[powerfail_test::test]
#[should_panic(expected = "error[PF0101]")]
fn a_wrong_pool_fails(check: Check) {
    let check = check.binary(POWERFAIL).len_bytes(4096);
    check
        .workload(|pool| store(pool, false))
        .recover(load)
        .run();
}

/// The first check of a test is right, the second is wrong. The thread has the name of the test.
#[test]
fn the_failure_has_places_and_a_replay_line() {
    let thread = std::thread::current();
    if thread.name() == Some("main") {
        // With --test-threads=1 only the attribute knows the name: see the next test.
        return;
    }
    let check = || {
        Check::new()
            .binary(POWERFAIL)
            .len_bytes(4096)
            .budget(Duration::from_mins(1))
    };
    check()
        .workload(|pool| store(pool, true))
        .recover(load)
        .run();
    let failed = std::panic::catch_unwind(|| {
        check()
            .workload(|pool| store(pool, false))
            .recover(load)
            .run();
    });
    let message = failed.expect_err("a failure");
    let message = message.downcast_ref::<String>().expect("a message");
    for words in [
        "the_failure_has_places_and_a_replay_line is not crash-consistent",
        "rust/main.rs:",
        "pool.bytes_mut()[64..64 + RECORD.len()].copy_from_slice(RECORD);",
        "the record is damaged",
        "= replay: powerfail replay ",
        "the_failure_has_places_and_a_replay_line.1",
    ] {
        assert!(message.contains(words), "no `{words}` in {message}");
    }
}

fn replace(directory: &Directory, is_synced: bool) -> io::Result<()> {
    let (new, old) = (directory.join("settings.new"), directory.join("settings"));
    let mut file = File::create(&new)?;
    file.write_all(RECORD)?;
    if is_synced {
        file.sync_all()?;
    }
    drop(file);
    std::fs::rename(new, old)
}

fn read(directory: &Directory) -> Result<(), String> {
    match std::fs::read(directory.join("settings")) {
        Ok(text) if text == RECORD => Ok(()),
        Ok(text) => Err(format!("{} bytes of settings", text.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[powerfail_test::test]
fn a_right_directory_passes(check: Check<Directory>) {
    let check = check.binary(POWERFAIL);
    check
        .workload(|it| replace(it, true))
        .recover(|it| read(it))
        .run();
}

#[powerfail_test::test]
#[should_panic(expected = "error[PF0901]")]
fn a_wrong_directory_fails(check: Check<Directory>) {
    let check = check.binary(POWERFAIL);
    check
        .workload(|it| replace(it, false))
        .recover(|it| read(it))
        .run();
}

#[powerfail_test::test]
#[should_panic(expected = "nothing was checked")]
fn a_recovery_that_looks_at_nothing_fails(check: Check) {
    let check = check.binary(POWERFAIL).len_bytes(4096);
    check
        .workload(|pool| store(pool, true))
        .recover(|_| ())
        .run();
}

#[powerfail_test::test]
#[should_panic(expected = "cargo install --path crates/cli")]
fn a_missing_binary_is_explained(check: Check) {
    check
        .binary("/nowhere/powerfail")
        .workload(|_| ())
        .recover(|_| ())
        .run();
}

#[powerfail_test::test]
#[should_panic(expected = "recovery fails without a crash: \"wrong\"")]
fn closures_can_run_once(check: Check) {
    let check = check.workload(|pool| store(pool, true));
    check.recover(|_| Err("wrong")).once().run();
}

#[test]
fn cargo_powerfail_is_powerfail() {
    let version = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .output()
            .expect("a program");
        (output.status.code(), output.stdout)
    };
    let expected = version(POWERFAIL, &["--version"]);
    assert_eq!(
        version(CARGO_POWERFAIL, &["powerfail", "--version"]),
        expected
    );
    assert_eq!(expected.0, Some(0));
    assert_eq!(
        version(CARGO_POWERFAIL, &["powerfail", "frobnicate"]).0,
        Some(2)
    );
}

/// cargo is replaced by a program that shows what it is given.
#[test]
fn cargo_powerfail_test_gives_tests_the_binary() {
    let folder = tempfile::tempdir().expect("a folder");
    let cargo = folder.path().join("cargo");
    std::fs::write(&cargo, "#!/bin/sh\necho \"$POWERFAIL $*\"\n").expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&cargo, mode).expect("a mode");
    let mut command = Command::new(CARGO_POWERFAIL);
    command
        .args(["powerfail", "test", "--workspace"])
        .env("CARGO", &cargo);
    let output = command.output().expect("a program");
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(text, format!("{POWERFAIL} test --workspace\n"));
}
