//! Crashes of ordinary files, in traces that are written by hand: what is found does not depend on a recorder.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use powerfail_model::files::{NodeId, NodeKind};
use powerfail_trace::{
    Body, EntryName, FileOperation, InitialNode, Meta, NewNode, StackId, Thread, Trace,
    TraceWriter, Tree, WriterOptions,
};

use crate::common::{CLEAN, FINDINGS, Folder, NOT_CHECKED, SETUP};

const ROOT: NodeId = NodeId(0);
const OLD: NodeId = NodeId(1);
const NEW: NodeId = NodeId(2);
const MODE: u32 = 0o644;

/// A trace of operations on a tree that has a file `config` with the content `old`.
fn trace(folder: &Folder, operations: &[FileOperation<'_>]) -> PathBuf {
    let path = folder.path("run.trace");
    let tree = folder.path("tree");
    let meta = Meta {
        command: vec!["./app".into()],
        working_directory: folder.path(""),
        ..Meta::default()
    };
    let mut writer = TraceWriter::create(&path, &meta, WriterOptions::default()).unwrap();
    for (node, kind, len_bytes) in [(ROOT, NodeKind::Directory, 0), (OLD, NodeKind::File, 4)] {
        let mode = if node == ROOT { 0o755 } else { MODE };
        let node = InitialNode {
            node,
            kind,
            mode,
            len_bytes,
        };
        writer.define_node(&node).unwrap();
    }
    writer
        .define_tree(&Tree {
            path: tree,
            root: ROOT,
        })
        .unwrap();
    writer
        .define_entry(EntryName::new(ROOT, b"config"), OLD)
        .unwrap();
    writer.initial_file(OLD, 0, b"old\n").unwrap();
    let thread = writer
        .define_thread(&Thread {
            os_id: 1,
            name: None,
        })
        .unwrap();
    for operation in operations {
        writer
            .append(thread, StackId::NONE, Body::File(*operation))
            .unwrap();
    }
    writer.finish(&[]).unwrap();
    assert!(Trace::open(&path).is_ok());
    path
}

/// Writes `config.tmp` and renames it to `config`; with or without a sync in between.
fn replace(is_synced: bool) -> Vec<FileOperation<'static>> {
    let temporary = EntryName::new(ROOT, b"config.tmp");
    let mut operations = vec![
        FileOperation::Create {
            node: NEW,
            kind: NewNode::File,
            mode: MODE,
            entry: Some(temporary),
        },
        FileOperation::Write {
            node: NEW,
            offset: 0,
            bytes: b"new\n",
        },
    ];
    if is_synced {
        operations.push(FileOperation::SyncFile {
            node: NEW,
            data_only: false,
        });
    }
    operations.extend([
        FileOperation::Close { node: NEW },
        FileOperation::Rename {
            node: NEW,
            from: temporary,
            to: EntryName::new(ROOT, b"config"),
            replaced: Some(OLD),
        },
    ]);
    operations
}

/// Accepts the old content and the new one, and nothing else.
const RECOVER: &str =
    r#"/bin/sh -c 'x=$(cat {dir}/config) && { [ "$x" = old ] || [ "$x" = new ]; }'"#;

fn crash(folder: &Folder, trace: &Path, options: &[&str]) -> crate::run::Run {
    let trace = trace.to_str().unwrap();
    let mut arguments = vec![
        "crash",
        trace,
        "--strategy",
        "lazy",
        "--format",
        "json",
        "--recover",
        RECOVER,
        "--out",
        "out",
    ];
    arguments.extend(options);
    folder.powerfail(&arguments)
}

#[test]
fn a_rename_that_survives_without_the_data_is_found() {
    let folder = Folder::new();
    let trace = trace(&folder, &replace(false));
    let run = crash(&folder, &trace, &[]);
    assert_eq!(run.code, FINDINGS, "{run:?}");
    let finding = run.finding("PF0901");
    let crash = finding.tree.clone().expect("a crash of files");
    let shows: Vec<(&str, bool)> = { crash.shows_on.iter() }
        .map(|it| (it.file_system.as_str(), it.shows))
        .collect();
    // Also ext4: it allocates blocks for the data before such a rename, which read as zeros until they are written.
    assert_eq!(shows, [("ext4", true), ("xfs", true), ("btrfs", true)]);
    let operations: Vec<_> = { finding.places.iter() }
        .filter_map(|place| place.operation.as_deref())
        .collect();
    assert_eq!(operations, ["write", "rename to config"]);
    let suggestion = finding.suggestion.expect("a fix");
    assert!(
        suggestion.contains("call fsync on config.tmp before the rename"),
        "{suggestion}"
    );
    let replayed = folder.powerfail(&["replay", &finding.id, "--out", "out"]);
    assert_eq!(replayed.code, FINDINGS, "{replayed:?}");
    assert!(
        replayed.stdout.contains("the write to config.tmp is lost"),
        "{replayed:?}"
    );
    let image = folder.text_path("image");
    let written = folder.powerfail(&["replay", &finding.id, "--out", "out", "--image", &image]);
    assert_eq!(written.code, CLEAN, "{written:?}");
    let left = fs::read(folder.path("image/config")).unwrap();
    assert!(left != b"old\n" && left != b"new\n", "{left:?}");
    assert!(
        !folder.path("tree").exists(),
        "the user's files are not touched"
    );
}

#[test]
fn a_file_that_is_synced_before_its_rename_is_right() {
    let folder = Folder::new();
    let trace = trace(&folder, &replace(true));
    for file_system in ["linux", "posix"] {
        let run = crash(&folder, &trace, &["--fs", file_system]);
        assert_eq!(run.code, CLEAN, "{file_system}: {run:?}");
        let totals = run.report().totals;
        let tree = totals.tree.expect("crashes of files");
        assert!(tree.states > 0 && tree.sampled_points == 0, "{tree:?}");
    }
}

/// A recovery that fails without a crash says nothing about crashes.
#[test]
fn recovery_must_succeed_without_a_crash() {
    let folder = Folder::new();
    let trace = trace(&folder, &replace(false));
    let trace = trace.to_str().unwrap();
    let run = folder.powerfail(&[
        "crash",
        trace,
        "--recover",
        "/bin/sh -c 'test -e {dir}/missing'",
    ]);
    run.is_refused_with(SETUP, &["on the files as the workload left them"]);
}

/// What is gone cannot be compared with its recording.
#[test]
fn a_directory_that_the_workload_removes_is_named() {
    let folder = Folder::new();
    let run = folder.powerfail(&["check", "--", "/bin/sh", "-c", "rmdir \"$0\"", "{dir}"]);
    run.is_refused_with(SETUP, &["the workload has removed or renamed"]);
}

/// Replaces `config` in the current directory.
const SAVE: &str = "echo old > config.tmp; sync config.tmp; mv config.tmp config; \
                    echo new > config.tmp; mv config.tmp config";
const SAVE_SYNCED: &str = "echo old > config.tmp; sync config.tmp; mv config.tmp config; \
                           echo new > config.tmp; sync config.tmp; mv config.tmp config";
const CHECK: &str =
    r#"[ -e config ] || exit 0; x=$(cat config) && { [ "$x" = old ] || [ "$x" = new ]; }"#;

/// A folder with these scripts, whose workload writes files below the current directory.
fn scripts(save: &str, check: &str) -> Folder {
    let folder = Folder::new();
    folder.write("save.sh", save);
    folder.write("check.sh", check);
    folder
}

fn check_scripts(folder: &Folder, options: &[&str]) -> crate::run::Run {
    let mut arguments = vec!["check", "--format", "json", "--recover", "sh check.sh"];
    arguments.extend(options);
    arguments.extend(["--", "sh", "save.sh"]);
    folder.powerfail(&arguments)
}

/// Nothing names the files: they are below the current directory. What powerfail itself writes there is not among them.
#[test]
fn files_below_the_current_directory_are_crashed() {
    let folder = scripts(SAVE_SYNCED, CHECK);
    let run = check_scripts(&folder, &[]);
    assert_eq!(run.code, CLEAN, "{run:?}");
    assert!(run.report().totals.tree.is_some(), "{run:?}");
    let folder = scripts(SAVE, CHECK);
    let run = check_scripts(&folder, &[]);
    assert_eq!(run.code, FINDINGS, "{run:?}");
    assert_eq!(run.codes(), ["PF0901"], "{run:?}");
    let left = fs::read_to_string(folder.path("config")).expect("the file of the workload");
    assert_eq!(left, "new\n", "the user's files are not touched");
}

/// The directory of `{pool}` is a tree, whether the pool is mapped or not.
#[test]
fn files_beside_a_pool_are_crashed() {
    let inside = |script: &str| format!("cd $(dirname $1) && {{ {script}; }}");
    let folder = scripts(&inside(SAVE), &inside(CHECK));
    let run = folder.powerfail(&[
        "check",
        "--format",
        "json",
        "--recover",
        "sh check.sh {pool}",
        "--",
        "sh",
        "save.sh",
        "{pool}",
    ]);
    assert_eq!(run.code, FINDINGS, "{run:?}");
    assert_eq!(run.codes(), ["PF0901"], "{run:?}");
}

/// That recovery cannot fail is said, unless the files are too long to be changed. If it opens none of them, nothing was checked.
#[test]
fn a_recovery_that_accepts_all_files_is_noted() {
    let says = |run: &crate::run::Run| {
        let notes = run.report().notes;
        notes.iter().any(|it| it.contains("cannot fail"))
    };
    let folder = scripts(SAVE, "cat *; true");
    let run = check_scripts(&folder, &[]);
    assert_eq!(run.code, CLEAN, "{run:?}");
    assert!(says(&run), "{run:?}");
    let folder = scripts(SAVE, "true");
    let run = check_scripts(&folder, &[]);
    assert_eq!(run.code, NOT_CHECKED, "{run:?}");
    let reason = Some(powerfail_finding::NotChecked::FilesNotOpened);
    assert_eq!(run.report().totals.not_checked, reason, "{run:?}");
    // What the workload has removed at its end was there before.
    let lock = "echo 1 > lock; sync lock; sync .; rm lock";
    let folder = scripts(lock, "test ! -e lock || grep -q . lock || true");
    let run = check_scripts(&folder, &[]);
    assert_eq!(run.code, CLEAN, "{run:?}");
    assert!(says(&run), "{run:?}");
    let long = format!("{SAVE_SYNCED}; truncate -s 64M long; sync");
    let folder = scripts(&long, "cat config; true");
    let run = check_scripts(&folder, &[]);
    assert_eq!(run.code, CLEAN, "{run:?}");
    assert!(!says(&run), "{run:?}");
}

/// While the workload creates its files, recovery fails. It is no bug that it fails later on what was there then, also if a crash has
/// lost something besides that does not matter.
#[test]
fn a_crash_that_loses_the_end_of_the_creation_is_no_bug() {
    let write = |text: &str, at: usize| {
        format!("printf {text} | dd of=db bs=4 seek={at} conv=notrunc status=none; sync -d db\n")
    };
    let writes = [write("head", 0), write("body", 1), write("tail", 2)].concat();
    let save = &format!("touch lock; truncate -s 12 db\n{writes}");
    let folder = scripts(save, "grep -q headbody db");
    for file_system in ["ext4", "xfs", "btrfs", "linux"] {
        let run = check_scripts(&folder, &["--fs", file_system]);
        assert_eq!(run.code, CLEAN, "{file_system}: {run:?}");
    }
}

#[test]
fn files_are_left_alone_without_trees() {
    let folder = scripts(SAVE, CHECK);
    let run = check_scripts(&folder, &["--tree", "none"]);
    run.is_refused_with(NOT_CHECKED, &["nothing was checked"]);
}

/// What lies outside of all trees is not crashed, and that is said if recovery reads it.
#[test]
fn recovery_that_reads_a_file_outside_of_all_trees_is_noted() {
    let elsewhere = Folder::new();
    let path = elsewhere.text_path("list");
    let direct = format!("echo config > {path}");
    let renamed = format!("echo config > {path}.new; mv {path}.new {path}");
    let reads = format!("{CHECK} && cat {path}");
    for (write, check, is_noted) in [
        (&direct, reads.as_str(), true),
        (&renamed, reads.as_str(), true),
        (&direct, CHECK, false),
    ] {
        let folder = scripts(&format!("{SAVE_SYNCED}; {write}"), check);
        let run = check_scripts(&folder, &[]);
        assert_eq!(run.code, CLEAN, "{run:?}");
        let note = format!("recovery reads {path}, which the workload wrote outside of all trees");
        assert_eq!(run.stderr.contains(&note), is_noted, "{run:?}");
    }
}

/// A process that the workload leaves behind belongs to the recording. That it is waited for is said while it runs.
#[test]
fn a_process_that_outlives_the_workload_is_named() {
    let gates = Folder::new();
    let gate = gates.text_path("gate");
    let mkfifo = gates.command("mkfifo").arg(&gate).status();
    assert!(mkfifo.expect("coreutils are installed").success());
    let folder = scripts(&format!("{SAVE_SYNCED}; cat {gate} > read &"), CHECK);
    let mut check = folder.command("timeout");
    check.args(["--kill-after=10", "120", env!("CARGO_BIN_EXE_powerfail")]);
    check.args(["check", "--recover", "sh check.sh", "--", "sh", "save.sh"]);
    let check = check.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = check.spawn().expect("powerfail runs");
    let stderr = child.stderr.take().expect("a pipe");
    let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
    let said = lines.find(|it| it.contains("its recording ends when the processes do"));
    // The other process has opened it, or is about to: then this waits for it.
    let said = said.expect("the process is named while it runs");
    assert!(said.contains("/cat)"), "{said}");
    fs::write(&gate, "end").expect("the other process reads");
    let rest: Vec<String> = lines.collect();
    let status = child.wait().expect("powerfail ends");
    assert_eq!(status.code(), Some(CLEAN), "{rest:?}");
}

/// `--dump` alone compares nothing, which is said.
#[test]
fn contents_without_acknowledgements_are_noted() {
    let folder = scripts(SAVE_SYNCED, CHECK);
    let noted = |options: &[&str]| {
        let run = check_scripts(&folder, &[&["--dump", "cat config"], options].concat());
        assert_eq!(run.code, CLEAN, "{run:?}");
        run.stdout.contains("give the lines that say so with --ack")
    };
    assert!(noted(&[]));
    assert!(
        !noted(&["--ack", "^saved$"]),
        "another note says that no line matches"
    );
}

/// A recovery that fails because its reads are watched is not one that reads nothing.
#[test]
fn a_recovery_that_fails_only_while_it_is_watched_is_noted() {
    const APPEND: &str = "echo one > log; sync log; echo two >> log; sync log";
    const READ: &str = "[ -e log ] || exit 0; cat log";
    for (check, is_noted) in [
        (
            format!("{READ}; grep -q '^TracerPid:.0$' /proc/self/status"),
            true,
        ),
        (READ.to_owned(), false),
    ] {
        let folder = scripts(APPEND, &check);
        let run = check_scripts(&folder, &["--races", "--depth", "1"]);
        assert_eq!(run.code, CLEAN, "{run:?}");
        let note = "recovery fails only while its reads are watched";
        assert_eq!(run.stdout.contains(note), is_noted, "{run:?}");
        let races = run.report().totals.races.expect("watched recoveries");
        assert_eq!(races.refused > 0, is_noted, "{races:?}");
        assert_eq!(races.watched > 0, !is_noted, "{races:?}");
    }
}
