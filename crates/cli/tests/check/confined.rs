//! Recoveries that write to files of the user: they are denied, and the report says so.

use std::fs;

use crate::common::{CLEAN, FINDINGS, Folder, NOT_CHECKED, Run, SETUP};

/// A program whose recovery is followed by a line of shell, in which `$count` is the number of records.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "hostile.c", &[]);
    fs::create_dir(folder.path("logs")).expect("a folder");
    folder
}

fn check(folder: &Folder, after: &str, options: &[&str]) -> Run {
    let recover =
        format!("count=$(od -An -tu8 -N8 {{pool}} | tr -d ' '); ./bug {{pool}} none && {after}");
    let mut arguments = vec!["check", "--jobs", "1", "--no-lazy", "--recover", &recover];
    arguments.extend(options);
    arguments.extend(["--", "./bug", "{pool}"]);
    folder.powerfail(&arguments)
}

const LOGS: &str = "echo $count > logs/recovery";

#[test]
fn a_recovery_that_must_write_elsewhere_is_refused_by_name() {
    let folder = folder();
    let logs = folder.text_path("logs");
    let denied = format!("denied writing {logs}/recovery; allow it with --writable {logs}");
    check(&folder, LOGS, &[]).is_refused_with(SETUP, &["fails without any crash", &denied]);
    assert!(!folder.path("logs/recovery").exists());
}

#[test]
fn what_is_allowed_is_written() {
    let folder = folder();
    for options in [&["--writable", "logs"][..], &["--no-confine"]] {
        let run = check(&folder, LOGS, options);
        assert!([CLEAN, NOT_CHECKED].contains(&run.code), "{run:?}");
        assert!(!run.stdout.contains("denied"), "{}", run.stdout);
        fs::remove_file(folder.path("logs/recovery")).expect("a file that was written");
    }
    folder.write("powerfail.toml", "[check]\nwritable = [\"logs\"]\n");
    check(&folder, LOGS, &[]);
    assert!(folder.path("logs/recovery").exists());
}

#[test]
fn what_a_successful_recovery_is_denied_is_told() {
    let folder = folder();
    let run = check(&folder, "{ echo x > logs/recovery || true; }", &[]);
    let note = format!(
        "recovery was denied writing {}",
        folder.text_path("logs/recovery")
    );
    assert!(run.stdout.contains(&note), "{run:?}");
}

#[test]
fn temporary_files_are_no_reason_to_fail() {
    let folder = folder();
    let run = check(
        &folder,
        "f=$(mktemp) && echo x > $f && echo x > /tmp/powerfail-log",
        &[],
    );
    assert!([CLEAN, NOT_CHECKED].contains(&run.code), "{run:?}");
    assert!(!run.stdout.contains("denied"), "{}", run.stdout);
}

#[test]
fn a_failure_that_confinement_may_have_caused_is_no_error() {
    let folder = folder();
    let writes = "{ test $count != 3 || echo x > logs/recovery; }";
    let run = check(&folder, writes, &[]).ends_with(NOT_CHECKED);
    let logs = folder.text_path("logs");
    let note = format!(
        "1 failure is a warning, because after the crash recovery was denied writing {logs}/recovery"
    );
    assert!(run.stdout.contains(&note), "{}", run.stdout);
    // A bug stays a bug.
    let fails = "{ test $count != 3 || exit 9; }";
    check(&folder, fails, &[]).ends_with(FINDINGS);
}
