//! `powerfail init`: what it sees of real programs, the file that it writes, and that the file drives a check.

use std::fs;

use crate::common::{CLEAN, FINDINGS, Folder, NOT_CHECKED, SETUP};
use crate::run::Run;

const FILE: &str = "powerfail.toml";

fn init(folder: &Folder, arguments: &[&str]) -> Run {
    let mut all = vec!["init"];
    all.extend(arguments);
    folder.powerfail(&all)
}

/// The lines of the file that are no comments.
fn settings(folder: &Folder) -> Vec<String> {
    let text = fs::read_to_string(folder.path(FILE)).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// `check` without any argument but the format.
fn check(folder: &Folder) -> Run {
    folder.powerfail(&["check", "--format", "json"])
}

const FLUSH: (&str, &str) = (
    "/* persist(pool->record) is missing here. */",
    "persist(pool->record);",
);
const FSYNC: (&str, &str) = ("/* fsync(fd) is missing here. */", "fsync(fd);");

#[test]
fn a_pool_is_seen_and_its_bug_is_found() {
    let folder = Folder::new();
    folder.build_example("counter", None);
    let run = init(&folder, &["--", "./counter", "data.pool"]).ends_with(CLEAN);
    let expected = [
        "[check]",
        r#"command = ["./counter", "{pool}"]"#,
        r#"domain = "adr""#,
        r#"budget = "2m""#,
    ];
    assert_eq!(settings(&folder), expected);
    for words in [
        "maps      data.pool",
        "recovery  the workload again: succeeds without a crash",
        "not seen: what the program does with other arguments",
        "wrote powerfail.toml; next: powerfail check",
    ] {
        assert!(run.stdout.contains(words), "no `{words}` in {}", run.stdout);
    }
    let found = check(&folder).ends_with(FINDINGS);
    assert_eq!(found.codes(), ["PF0101"]);
    // The repaired program is clean, with the same file.
    folder.build_example("counter", Some(FLUSH));
    check(&folder).ends_with(CLEAN);
}

#[test]
fn files_are_seen_and_their_bug_is_found() {
    let folder = Folder::new();
    folder.build_example("settings", None);
    let run = init(&folder, &["--", "./settings", "data"]).ends_with(CLEAN);
    let expected = [
        "[check]",
        r#"command = ["./settings", "{dir}"]"#,
        r#"fs = "linux""#,
        r#"budget = "2m""#,
    ];
    assert_eq!(settings(&folder), expected);
    assert!(run.stdout.contains("data/settings.new"), "{}", run.stdout);
    let found = check(&folder).ends_with(FINDINGS);
    assert_eq!(found.codes(), ["PF0901"]);
    folder.build_example("settings", Some(FSYNC));
    check(&folder).ends_with(CLEAN);
}

#[test]
fn an_existing_file_is_not_replaced() {
    let folder = Folder::new();
    folder.build_example("counter", Some(FLUSH));
    folder.write(FILE, "# mine\n");
    let arguments = ["--", "./counter", "{pool}"];
    init(&folder, &arguments).is_refused_with(SETUP, &["powerfail.toml exists", "--force"]);
    assert_eq!(fs::read_to_string(folder.path(FILE)).unwrap(), "# mine\n");
    let mut forced = vec!["--force"];
    forced.extend(arguments);
    init(&folder, &forced).ends_with(CLEAN);
    let words = r#"command = ["./counter", "{pool}"]"#;
    assert!(settings(&folder).contains(&words.to_owned()));
}

/// A program that must not find its data, and one that accepts everything: both need a recovery of their own.
#[test]
fn a_recovery_that_shows_nothing_is_named() {
    let folder = Folder::new();
    let once = ["--", "/bin/sh", "-c", "set -C; echo 1 > \"$0\"", "{dir}/a"];
    let run = init(&folder, &once);
    assert_eq!(run.code, SETUP, "{run:?}");
    for words in [
        "fails without a crash",
        "which is not complete",
        "--recover",
    ] {
        assert!(run.stdout.contains(words), "no `{words}` in {}", run.stdout);
    }
    let text = fs::read_to_string(folder.path(FILE)).unwrap();
    assert!(
        text.contains("# In the trial, recovery fails without any crash"),
        "{text}"
    );
    // With a recovery that reads it.
    let mut with_recovery = vec![
        "--force",
        "--recover",
        "/bin/sh -c 'test ! -e {dir}/a || test 1 = \"$(cat {dir}/a)\"'",
    ];
    with_recovery.extend(once);
    init(&folder, &with_recovery).ends_with(CLEAN);
    // One that does not look.
    folder.build_example("counter", Some(FLUSH));
    let blind = [
        "--force",
        "--recover",
        "/bin/true {pool}",
        "--",
        "./counter",
        "{pool}",
    ];
    let run = init(&folder, &blind);
    assert_eq!(run.code, NOT_CHECKED, "{run:?}");
    assert!(
        run.stdout.contains("recovery did not open the pool"),
        "{}",
        run.stdout
    );
    // One that accepts everything, and repairs it.
    folder.build_example("forgotten_flush", None);
    let run = init(&folder, &["--force", "--", "./forgotten_flush", "{pool}"]).ends_with(CLEAN);
    assert!(
        run.stdout.contains("this recovery cannot fail"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_program_that_stores_nothing_has_no_file() {
    let folder = Folder::new();
    init(&folder, &["--", "/bin/true"]).is_refused_with(NOT_CHECKED, &["mapped no file"]);
    init(&folder, &["--", "/bin/false"])
        .is_refused_with(SETUP, &["exit code 1", "an empty standard input"]);
    init(
        &folder,
        &["--record-timeout", "200ms", "--", "/bin/sleep", "60"],
    )
    .is_refused_with(SETUP, &["did not end in time", "--client"]);
    assert!(!folder.path(FILE).exists());
}

/// QEMU records it.
#[test]
fn a_program_that_is_statically_linked_is_tried() {
    let folder = Folder::new();
    for name in ["counter", "settings"] {
        folder.build_static_example(name);
    }
    init(&folder, &["--", "./counter", "data.pool"]).ends_with(CLEAN);
    let command = r#"command = ["./counter", "{pool}"]"#;
    assert!(settings(&folder).contains(&command.to_owned()));
    init(&folder, &["--force", "--", "./settings", "data"]).ends_with(CLEAN);
    let command = r#"command = ["./settings", "{dir}"]"#;
    assert!(settings(&folder).contains(&command.to_owned()));
}

/// Threads are what `schedules` is about; the children of a shell are none.
#[test]
fn the_children_of_a_script_are_no_threads() {
    let folder = Folder::new();
    folder.write("save.sh", "mkdir -p $1; echo 1 > $1/a; mv $1/a $1/b\n");
    let run = init(&folder, &["--", "/bin/sh", "./save.sh", "data"]);
    assert!(run.stdout.contains("budget "), "{run:?}");
    for words in ["schedules", "debug information"] {
        assert!(!run.stdout.contains(words), "{words}: {}", run.stdout);
    }
}

/// A database in the current directory, which no argument names.
#[test]
fn a_program_that_writes_where_it_runs_is_recorded_there() {
    let folder = Folder::new();
    let script = "echo 1 > a.new; mv a.new a.db; read line < a.db; test \"$line\" = 1";
    let run = init(&folder, &["--", "/bin/sh", "-c", script]).ends_with(CLEAN);
    let lines = settings(&folder);
    assert!(lines.contains(&r#"tree = ["auto"]"#.to_owned()), "{run:?}");
    let check = folder.powerfail(&["check", "--format", "json"]);
    assert!(check.report().totals.tree.is_some(), "{check:?}");
}

/// The program names its file itself.
#[test]
fn a_program_without_arguments_is_recorded_where_it_writes() {
    let folder = Folder::new();
    fs::create_dir(folder.path("state")).unwrap();
    let script = "test ! -e state/a || test \"$(cat state/a)\" = 1 || exit 1; echo 1 > state/b; mv state/b state/a";
    let run = init(&folder, &["--", "/bin/sh", "-c", script]);
    assert!(
        settings(&folder).contains(&r#"tree = ["state"]"#.to_owned()),
        "{run:?}"
    );
    assert!(
        run.stdout.contains("begins with what the last run left"),
        "{}",
        run.stdout
    );
}
