//! Help, exit codes, colour, completions and man pages.

use std::path::Path;
use std::process::Command;

use crate::common::{command, litmus, powerfail};

#[test]
fn help_lists_commands_and_exit_codes() {
    let run = powerfail(&["--help"]);
    assert_eq!(run.code, 0);
    for expected in [
        "model",
        "trace",
        "completions",
        "man",
        "Exit codes:",
        "4  the target is not",
    ] {
        assert!(
            run.stdout.contains(expected),
            "{expected:?} is not in {}",
            run.stdout
        );
    }
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    for arguments in [
        &["frobnicate"][..],
        &["model", "check"],
        &["trace", "events", "x", "--kind", "y"],
        &[],
    ] {
        assert_eq!(powerfail(arguments).code, 2, "{arguments:?}");
    }
}

/// A file system without a journal would be blamed for what its size is the cause of.
#[test]
fn a_guest_needs_room_for_a_journal() {
    let folder = tempfile::tempdir().unwrap();
    let workload = folder.path().join("ops.sh");
    std::fs::write(&workload, "echo new > file\n").unwrap();
    for (name, needed) in [("ext4", "8M"), ("xfs", "300M")] {
        let mut command = command();
        command.args(["vm", "check", "--pm", "4M", "--fs", name, "--workload"]);
        command
            .arg(&workload)
            .arg("--out")
            .arg(folder.path().join("out"));
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        let sentence = format!("error: {name} needs {needed} of persistent memory or more: --pm\n");
        assert_eq!(errors, sentence);
    }
}

#[test]
fn colour_is_for_terminals_or_on_request() {
    let styled = |color: Option<&str>, no_color: bool| {
        let mut command = command();
        command.args(["model", "check", &litmus("MP.json")]);
        if let Some(when) = color {
            command.args(["--color", when]);
        }
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let output = command.output().expect("the binary runs");
        output.stdout.contains(&0x1b)
    };
    assert!(!styled(None, false), "standard output is a pipe");
    assert!(styled(Some("always"), false));
    assert!(!styled(None, true));
    assert!(!styled(Some("never"), false));
}

#[test]
fn completions_and_man_pages_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let run = powerfail(&["completions", shell]);
        assert_eq!(run.code, 0);
        assert!(
            run.stdout.contains("powerfail") && run.stdout.contains("states"),
            "{shell}"
        );
    }
    let page = powerfail(&["man"]);
    assert!(page.stdout.contains(".TH powerfail 1"), "{}", page.stdout);
    assert!(page.stdout.contains("Exit codes:"), "{}", page.stdout);
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().to_str().expect("text");
    assert_eq!(powerfail(&["man", "--out", path]).code, 0);
    let pages = std::fs::read_dir(folder.path()).expect("readable").count();
    assert!(pages >= 9, "one page for each command: {pages}");
    assert_eq!(powerfail(&["man", "--out", "/does/not/exist"]).code, 2);
}

#[test]
fn the_version_says_what_it_was_built_from() {
    let short = powerfail(&["-V"]);
    let version = concat!("powerfail ", env!("CARGO_PKG_VERSION"));
    assert_eq!((short.code, short.stdout.trim_end()), (0, version));
    let long = powerfail(&["--version"]).stdout;
    assert!(long.starts_with(&format!("{version} (from ")), "{long}");
    for words in ["; by rustc 1.", "; for x86_64-"] {
        assert!(long.contains(words), "{long}");
    }
}

/// What a release notes. The tests may run in sources without a repository.
#[test]
fn a_release_names_its_commit() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short", "HEAD"]).current_dir(root);
    let commit = git.output().ok().filter(|output| output.status.success());
    let named = powerfail_runtime_build::commit();
    match commit {
        Some(output) => {
            let commit = String::from_utf8_lossy(&output.stdout);
            assert!(
                named.starts_with(&format!("commit {} of 20", commit.trim())),
                "{named}"
            );
            let log = powerfail_runtime_build::commit_log();
            assert!(log.is_none_or(|log| log.is_file()));
        }
        None => assert_eq!(named, "sources without a repository"),
    }
}
