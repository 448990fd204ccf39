//! Bundles and output directories of others: nothing outside of them is read, written or run without consent.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use rustix::pty::OpenptFlags;
use serde_json::{Value, json};

use crate::common::{CLEAN, FINDINGS, Folder, RECOVER, Run, SETUP};

const PRECIOUS: &str = "precious";

/// A folder with a bundle `bundle`, and beside it a file `victim` of the user; and the id of the finding.
fn bundle() -> (Folder, String) {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/count_before_entry.c");
    let found = folder.check(&["--no-lazy"]).ends_with(FINDINGS);
    let id = found.finding("PF0301").id;
    let export = ["replay", &id, "--export", "bundle"];
    folder.powerfail(&export).ends_with(CLEAN);
    folder.write("victim", PRECIOUS);
    (folder, id)
}

/// Changes a JSON file.
fn change(path: &Path, with: impl FnOnce(&mut Value)) {
    let text = fs::read_to_string(path).expect("a file");
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    with(&mut value);
    fs::write(path, value.to_string()).expect("a file that can be written");
}

fn victim_is_unchanged(folder: &Folder) {
    let victim = fs::read_to_string(folder.path("victim")).expect("the victim");
    assert_eq!(victim, PRECIOUS);
}

#[test]
fn a_trace_outside_of_a_bundle_is_neither_read_nor_overwritten() {
    let (folder, id) = bundle();
    let absolute = folder.text_path("victim");
    for name in ["../victim", &absolute, "files/../../victim"] {
        change(&folder.path("bundle/report.json"), |report| {
            report["findings"][0]["evidence"]["trace"] = json!(name);
        });
        for export in [false, true] {
            let mut arguments = vec!["replay", &id, "--out", "bundle", "--yes"];
            if export {
                arguments.extend(["--export", "exported"]);
            }
            let run = folder.powerfail(&arguments);
            run.is_refused_with(SETUP, &["victim", "outside of its directory"]);
            victim_is_unchanged(&folder);
            let _ = fs::remove_dir_all(folder.path("exported"));
        }
    }
}

#[test]
fn a_link_in_a_bundle_is_not_followed() {
    for name in ["run.trace", "report.json", "recovery.json", "files"] {
        let (folder, id) = bundle();
        let path = folder.path("bundle").join(name);
        fs::rename(&path, folder.path("elsewhere")).expect("a part of the bundle");
        symlink(folder.path("elsewhere"), &path).expect("a link");
        for more in [&[][..], &["--export", "exported"]] {
            let arguments = ["replay", &id, "--out", "bundle", "--yes"];
            let run = folder.powerfail(&[&arguments, more].concat());
            run.is_refused_with(SETUP, &[name, "symbolic link"]);
        }
    }
}

#[test]
fn an_exported_bundle_has_no_file_of_the_user_that_a_foreign_one_names() {
    let (folder, id) = bundle();
    let victim = folder.text_path("victim");
    symlink(&victim, folder.path("bundle/files/link")).expect("a link");
    change(&folder.path("bundle/recovery.json"), |recovery| {
        let words = recovery["recover"].as_array_mut().expect("words");
        for word in [victim.as_str(), "./link", "../../victim"] {
            words.push(json!({ "Unix": word.as_bytes() }));
        }
    });
    let export = ["replay", &id, "--out", "bundle", "--export", "exported"];
    let refused = folder.powerfail(&export);
    // A bundle with a link has no seal that could fit.
    refused.is_refused_with(SETUP, &["symbolic link"]);
    fs::remove_file(folder.path("bundle/files/link")).expect("the link");
    let refused = folder.powerfail(&export);
    refused.is_refused_with(SETUP, &["not made by this user", "--yes", &victim]);
    let export = [&export[..], &["--yes"]].concat();
    folder.powerfail(&export).ends_with(CLEAN);
    for file in crate::common::files_below(&folder.path("exported")) {
        let content = fs::read(&file).expect("a file");
        let is_copy = content == PRECIOUS.as_bytes();
        assert!(!is_copy, "{}", file.display());
    }
}

/// Copies a directory as `cp -a` does.
fn copied(folder: &Folder, from: &str, to: &str) {
    let status = folder.command("cp").args(["-a", from, to]).status();
    assert!(status.expect("cp").success());
}

#[test]
fn what_was_copied_asks_and_what_was_made_here_does_not() {
    let (folder, id) = bundle();
    for made in ["powerfail-out", "bundle"] {
        let run = folder.powerfail(&["replay", &id, "--out", made]);
        run.ends_with(FINDINGS);
        copied(&folder, made, "copy");
        let run = folder.powerfail(&["replay", &id, "--out", "copy"]);
        run.is_refused_with(
            SETUP,
            &["copy was not made by this user", "recover", "--yes"],
        );
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        // What runs nothing needs no consent.
        let image = folder.powerfail(&["replay", &id, "--out", "copy", "--image", "image"]);
        image.ends_with(CLEAN);
        let run = folder.powerfail(&["replay", &id, "--out", "copy", "--yes"]);
        run.ends_with(FINDINGS);
        for directory in ["copy", "image"] {
            fs::remove_dir_all(folder.path(directory)).expect("a directory");
        }
    }
}

#[test]
fn what_was_changed_asks() {
    let (folder, id) = bundle();
    // A trace of the same program that another recording has made.
    folder.record();
    let other = fs::read(folder.path("run.trace")).expect("a trace");
    let replay = || folder.powerfail(&["replay", &id, "--out", "bundle"]);
    for name in ["report.json", "recovery.json", "run.trace", "files/bug"] {
        let path = folder.path("bundle").join(name);
        let content = fs::read(&path).expect("a file");
        let changed = match name {
            "run.trace" => other.clone(),
            _ => [&content[..], b"\n"].concat(),
        };
        fs::write(&path, changed).expect("a file that can be written");
        replay().is_refused_with(SETUP, &["not made by this user"]);
        fs::write(&path, content).expect("a file that can be written");
    }
    replay().ends_with(FINDINGS);
    let library = folder.path("bundle/files/lib/libc.so.6");
    fs::write(&library, "").expect("a library that the program would load");
    replay().is_refused_with(SETUP, &["not made by this user"]);
    fs::remove_file(library).expect("the library");
    fs::remove_file(folder.path("bundle/seal")).expect("the seal");
    replay().is_refused_with(SETUP, &["it has no seal"]);
}

#[test]
fn another_user_is_asked() {
    let (folder, id) = bundle();
    let mut timeout = folder.command("timeout");
    timeout.env("XDG_STATE_HOME", folder.path("state"));
    let run = Run::powerfail(timeout, &["replay", &id, "--out", "bundle"]);
    run.is_refused_with(SETUP, &["this user has no key on this machine"]);
    assert!(!folder.path("state").exists(), "a replay makes no key");
}

/// Replays at a terminal, and gives an answer. Returns the exit code and what the terminal shows.
fn at_terminal(folder: &Folder, id: &str, answer: &str) -> (Option<i32>, String) {
    let terminal =
        rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    rustix::pty::unlockpt(&terminal).expect("a terminal");
    let name = rustix::pty::ptsname(&terminal, Vec::new()).expect("its name");
    let name = name.into_string().expect("text");
    let other_end = || File::options().read(true).write(true).open(&name);
    let other_end = || other_end().expect("the other end");
    let mut command = folder.command(env!("CARGO_BIN_EXE_powerfail"));
    command.args(["replay", id, "--out", "copy"]);
    command
        .stdin(other_end())
        .stderr(other_end())
        .stdout(Stdio::null());
    let mut child = command.spawn().expect("powerfail runs");
    drop(command);
    let mut terminal = File::from(terminal);
    // It waits in the terminal until it is read.
    terminal.write_all(answer.as_bytes()).expect("an answer");
    let code = child.wait().expect("it ends").code();
    // Ends with an error, because the other end is closed.
    let mut shown = Vec::new();
    let _ = terminal.read_to_end(&mut shown);
    (code, String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn a_user_at_a_terminal_sees_the_command_and_decides() {
    let (folder, id) = bundle();
    copied(&folder, "bundle", "copy");
    let (code, shown) = at_terminal(&folder, &id, "n\n");
    assert_eq!(code, Some(SETUP), "{shown}");
    assert!(
        shown.contains(&format!("recovery: {}", "./bug '{pool}' recover")),
        "{shown}"
    );
    assert!(shown.contains("nothing was run"), "{shown}");
    let (code, shown) = at_terminal(&folder, &id, "y\n");
    assert_eq!(code, Some(FINDINGS), "{shown}");
}

#[test]
fn outputs_are_not_written_through_links() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/count_before_entry.c");
    folder.write("victim", PRECIOUS);
    let check = |out: &str| folder.check(&["--no-lazy", "--out", out]);
    fs::create_dir(folder.path("out")).expect("a directory");
    // Files that are replaced as a whole are replaced: the link is gone, and its target stays.
    for name in ["report.json", "recovery.json", "seal"] {
        symlink("../victim", folder.path("out").join(name)).expect("a link");
    }
    check("out").ends_with(FINDINGS);
    victim_is_unchanged(&folder);
    for (name, words) in [
        ("run.trace", "symbolic link"),
        ("run.trace.memory", "symbolic link"),
    ] {
        let path = folder.path("out").join(name);
        let _ = fs::remove_file(&path);
        symlink("../victim", &path).expect("a link");
        check("out").is_refused_with(SETUP, &[words]);
        victim_is_unchanged(&folder);
        fs::remove_file(&path).expect("the link");
    }
    fs::hard_link(folder.path("victim"), folder.path("out/run.trace")).expect("a link");
    check("out").is_refused_with(SETUP, &["hard link"]);
    victim_is_unchanged(&folder);
    symlink("out", folder.path("link")).expect("a link");
    check("link").is_refused_with(SETUP, &["link", "symbolic link"]);
    symlink("victim", folder.path("trace")).expect("a link");
    let record = ["record", "-o", "trace", "--", "./bug", "{pool}"];
    let run = folder.powerfail(&record);
    run.is_refused_with(SETUP, &["trace", "symbolic link"]);
    victim_is_unchanged(&folder);
    fs::remove_file(folder.path("trace")).expect("the link");
    folder.record();
    fs::remove_file(folder.path("out/run.trace")).expect("the link");
    symlink("../victim", folder.path("out/run.trace")).expect("a link");
    let crash = ["crash", "run.trace", "--recover", RECOVER, "--out", "out"];
    let run = folder.powerfail(&crash);
    run.is_refused_with(SETUP, &["run.trace", "symbolic link"]);
    victim_is_unchanged(&folder);
}

#[test]
fn the_command_of_a_trace_of_others_runs_only_with_consent() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/count_before_entry.c");
    folder.record();
    let as_other = |arguments: &[&str]| {
        let mut timeout = folder.command("timeout");
        timeout.env("XDG_STATE_HOME", folder.path("state"));
        Run::powerfail(timeout, arguments)
    };
    let ways = [
        &["crash", "run.trace"][..],
        &["races", "run.trace"],
        &["check", "--no-lazy", "--trace", "run.trace"],
    ];
    for way in ways {
        let refused = as_other(way);
        refused.is_refused_with(SETUP, &["run.trace was not made", "./bug", "--yes"]);
        let run = as_other(&[way, &["--yes"]].concat());
        assert_ne!(run.code, SETUP, "{way:?}: {}", run.stderr);
        let run = folder.powerfail(way);
        assert_ne!(run.code, SETUP, "{way:?}: {}", run.stderr);
    }
    // A command of the user runs where the user is, and not where others have recorded.
    fs::create_dir(folder.path("here")).expect("a directory");
    let mut timeout = folder.command("timeout");
    timeout.env("XDG_STATE_HOME", folder.path("state"));
    timeout.current_dir(folder.path("here"));
    let crash = ["crash", "../run.trace", "--recover", RECOVER];
    Run::powerfail(timeout, &crash).is_refused_with(SETUP, &["./bug"]);
}

#[test]
fn the_command_of_shares_of_others_is_shown() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/count_before_entry.c");
    folder.record();
    let share = ["crash", "run.trace", "--recover", RECOVER];
    let whole = ["--partition", "1/1", "--out", "share"];
    folder.powerfail(&[share, whole].concat()).ends_with(CLEAN);
    copied(&folder, "share", "copy");
    let refused = folder.powerfail(&["merge", "copy"]);
    let command = "`powerfail crash run.trace --recover './bug {pool} recover'";
    refused.is_refused_with(SETUP, &["copy was not made by this user", command]);
}
