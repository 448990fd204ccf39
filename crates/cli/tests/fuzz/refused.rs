//! Setups that cannot work are refused with a reason, before anything runs.

use std::fs;
use std::net::TcpListener;

use crate::common::{CLEAN, Folder, SETUP, UNSUPPORTED};
use crate::{folder, fuzz};

#[test]
fn there_is_no_target() {
    let folder = Folder::new();
    folder
        .powerfail(&["fuzz"])
        .is_refused_with(SETUP, &["no target", "powerfail fuzz -- "]);
    folder
        .powerfail(&["fuzz", "--", ""])
        .is_refused_with(SETUP, &["no target"]);
}

#[test]
fn a_command_without_its_places() {
    let folder = Folder::new();
    for (flags, words) in [
        (&["--", "true"][..], &["no {pool}", "true {pool}"][..]),
        (
            &["--input", "file", "--", "true", "{pool}"],
            &["no {input}"],
        ),
        (
            &["--input", "args", "--", "true", "{pool}"],
            &["no argument {input}"],
        ),
        (
            &["--input", "stdin", "--", "true", "{pool}", "{input}"],
            &["has {input}"],
        ),
    ] {
        let mut arguments = vec!["fuzz"];
        arguments.extend(flags);
        folder.powerfail(&arguments).is_refused_with(SETUP, words);
    }
    assert!(!folder.path("powerfail-fuzz").exists(), "nothing was begun");
}

#[test]
fn paths_that_cannot_be_read() {
    let folder = folder();
    fs::create_dir(folder.path("empty")).expect("a folder");
    for (flag, path) in [
        ("--seeds", "missing"),
        ("--seeds", "shop"),
        ("--seeds", "empty"),
        ("--images", "missing"),
        ("--images", "empty"),
        ("--dict", "missing"),
        ("--dict", "empty"),
        ("--grammar", "missing"),
        ("--sync", "missing"),
    ] {
        let run = fuzz(&folder, &[flag, path]);
        run.is_refused_with(SETUP, &[flag, path]);
    }
    fuzz(&folder, &["--recover-input", "missing"]).is_refused_with(SETUP, &["missing"]);
    assert!(!folder.path("out").exists(), "nothing was begun");
}

#[test]
fn values_that_make_no_sense() {
    let folder = folder();
    for (flag, value) in [
        ("--check-with", "magic"),
        ("--check-with", ""),
        ("--crash-rate", "-1"),
        ("--crash-rate", "often"),
        ("--timeout", "150"),
        ("--time", "soon"),
        ("--jobs", "0"),
        ("--broker", "0"),
        ("--join", "somewhere"),
        ("--input", "socket"),
    ] {
        let run = fuzz(&folder, &[&format!("{flag}={value}")]);
        assert_eq!(run.code, SETUP, "{flag} {value}: {run:?}");
        assert!(run.stderr.contains(flag), "{flag} {value}: {}", run.stderr);
    }
    for (flag, value, word) in [
        ("--name", "../up", "name of a directory"),
        ("--name", "", "name of a directory"),
        ("--recover", " ", "empty"),
        ("--checker", "", "empty"),
        ("--fail-pattern", "(", "regular expression"),
    ] {
        fuzz(&folder, &[flag, value]).is_refused_with(SETUP, &[flag, word]);
    }
    let run = fuzz(&folder, &["--broker", "1337", "--join", "host:1337"]);
    assert_eq!(run.code, SETUP, "{run:?}");
    assert!(!folder.path("out").exists(), "nothing was begun");
}

#[test]
fn an_output_directory_that_is_a_file() {
    let folder = folder();
    folder.write("out", "mine");
    let run = fuzz(&folder, &["--execs", "1"]);
    assert_eq!(run.code, SETUP, "{run:?}");
    assert_eq!(
        fs::read_to_string(folder.path("out")).expect("a file"),
        "mine"
    );
}

#[test]
fn there_is_no_campaign_to_go_on_with() {
    let folder = folder();
    for out in ["missing", "tmp"] {
        folder
            .powerfail(&["fuzz", "--resume", "--out", out])
            .is_refused_with(SETUP, &["no campaign", out, "--resume"]);
    }
    for command in [
        &["show", "tmp"][..],
        &["cmin", "tmp"],
        &["tmin", "tmp", "1"],
    ] {
        let mut arguments = vec!["fuzz"];
        arguments.extend(command);
        folder
            .powerfail(&arguments)
            .is_refused_with(SETUP, &["tmp"]);
    }
}

#[test]
fn commands_that_cannot_be_run() {
    let folder = folder();
    folder.build_at("static", "fuzz", "shop.c", &["-static"]);
    let run = |arguments: &[&str]| {
        let mut all = vec!["fuzz", "--out", "out"];
        all.extend(arguments);
        folder.powerfail(&all)
    };
    run(&["--", "./missing", "{pool}"]).is_refused_with(SETUP, &["missing"]);
    run(&["--", "./static", "{pool}"])
        .is_refused_with(UNSUPPORTED, &["./static", "statically linked"]);
    for flag in ["--recover", "--checker", "--dump"] {
        let run = run(&[flag, "./missing {pool}", "--", "./shop", "{pool}"]);
        run.is_refused_with(SETUP, &["missing"]);
    }
    assert!(!folder.path("out").exists(), "nothing was begun");
}

/// A late refusal, after the setup, leaves nothing that blocks the next attempt.
#[test]
fn what_is_refused_late_was_never_begun() {
    let folder = folder();
    folder.write("grammar", "start = unknown ;");
    folder.write("words", "word\n");
    // The port is taken by another process, so the broker cannot listen there.
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener
        .local_addr()
        .expect("an address")
        .port()
        .to_string();
    for (flag, value, word) in [
        ("--grammar", "grammar", "unknown"),
        ("--dict", "words", "line 1"),
        ("--broker", &port, "--broker"),
    ] {
        fuzz(&folder, &[flag, value]).is_refused_with(SETUP, &[word]);
        assert!(!folder.path("out").exists(), "{flag}");
    }
    // A directory of the user is kept with all of its content.
    fs::create_dir(folder.path("out")).expect("a folder");
    folder.write("out/notes", "mine");
    fuzz(&folder, &["--grammar", "grammar"]).is_refused_with(SETUP, &["unknown"]);
    let left: Vec<_> = fs::read_dir(folder.path("out"))
        .expect("a folder")
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let flags = ["--execs", "1", "--check-with", "none"];
    fuzz(&folder, &flags).ends_with(CLEAN);
    assert!(folder.path("out/notes").exists());
}

#[test]
fn afl_fuzz_is_not_there() {
    let folder = folder();
    folder
        .powerfail(&["fuzz", "afl", "--", "./shop", "{pool}"])
        .is_refused_with(SETUP, &["afl-fuzz must start this command"]);
    folder
        .powerfail(&["fuzz", "afl", "--", "./shop"])
        .is_refused_with(SETUP, &["no {pool}"]);
    folder
        .powerfail(&[
            "fuzz", "afl", "--image", "missing", "--", "./shop", "{pool}",
        ])
        .is_refused_with(SETUP, &["--image", "missing"]);
}
