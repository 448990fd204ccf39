//! Setups that cannot work are refused with a reason, before anything is blamed on a crash.

use std::fs;

use crate::common::{CLEAN, Folder, SETUP, UNSUPPORTED};

fn folder_with_bug() -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "many.c", &[]);
    folder
}

/// Runs `check` on the program with these options; it must be refused with these words.
#[track_caller]
fn check_is_refused(folder: &Folder, options: &[&str], words: &[&str]) {
    let mut arguments = vec!["check"];
    arguments.extend(options);
    arguments.extend(["--", "./bug", "{pool}"]);
    folder.powerfail(&arguments).is_refused_with(SETUP, words);
}

#[test]
fn a_recovery_command_that_cannot_be_run() {
    let folder = folder_with_bug();
    folder.write("text", "no program\n");
    for option in ["--recover", "--checker", "--dump"] {
        check_is_refused(
            &folder,
            &[option, "./missing"],
            &["./missing", "was not found"],
        );
        check_is_refused(&folder, &[option, "./text"], &["./text", "not executable"]);
        check_is_refused(&folder, &[option, ""], &[option, "empty"]);
        check_is_refused(&folder, &[option, "  "], &[option, "empty"]);
    }
}

#[test]
fn a_workload_that_cannot_be_run() {
    let folder = folder_with_bug();
    folder.write("text", "no program\n");
    let check = |workload: &str| folder.powerfail(&["check", "--", workload, "{pool}"]);
    check("./missing").is_refused_with(SETUP, &["./missing", "was not found"]);
    check("./text").is_refused_with(SETUP, &["./text", "not executable"]);
    check("").is_refused_with(SETUP, &["no workload"]);
}

/// Two runs would overwrite each other's trace.
#[test]
fn an_output_directory_that_another_run_uses() {
    let folder = folder_with_bug();
    fs::create_dir(folder.path("shared")).unwrap();
    let other_run = fs::File::open(folder.path("shared")).unwrap();
    other_run.lock().unwrap();
    let out = folder.path("shared").display().to_string();
    check_is_refused(&folder, &["--out", &out], &["shared", "in use"]);
    assert_eq!(fs::read_dir(folder.path("shared")).unwrap().count(), 0);
}

#[test]
fn no_workload_at_all() {
    let run = Folder::new().powerfail(&["check"]);
    run.is_refused_with(SETUP, &["no workload", "--"]);
}

#[test]
fn a_statically_linked_workload() {
    let folder = Folder::new();
    folder.build_own("bug", "many.c", &["-static"]);
    folder
        .powerfail(&["check", "--backend", "preload", "--", "./bug", "{pool}"])
        .is_refused_with(UNSUPPORTED, &["./bug", "statically linked"]);
}

#[test]
fn a_trace_that_is_none() {
    let folder = folder_with_bug();
    folder.write("text", "no trace\n");
    folder.write("empty", "");
    for command in ["crash", "lint"] {
        let run = |trace: &str| folder.powerfail(&[command, trace]);
        run("missing").is_refused_with(SETUP, &["missing"]);
        run("text").is_refused_with(SETUP, &["text", "not a powerfail trace"]);
        run("empty").is_refused_with(SETUP, &["empty"]);
        run("tmp").is_refused_with(SETUP, &["tmp", "regular file"]);
    }
}

#[test]
fn a_trace_that_is_broken() {
    let folder = folder_with_bug();
    folder.record();
    let sound = fs::read(folder.path("run.trace")).expect("the trace");
    folder.powerfail(&["lint", "run.trace"]).ends_with(CLEAN);
    for command in ["crash", "lint"] {
        for part in 1..4 {
            let cut = &sound[..sound.len() * part / 4];
            fs::write(folder.path("cut.trace"), cut).expect("a file");
            let run = folder.powerfail(&[command, "cut.trace"]);
            run.is_refused_with(SETUP, &["cut.trace"]);
        }
        for part in 0..4 {
            let mut flipped = sound.clone();
            flipped[sound.len() * part / 4] ^= 0x10;
            fs::write(folder.path("flipped.trace"), flipped).expect("a file");
            let run = folder.powerfail(&[command, "flipped.trace"]);
            run.is_refused_with(SETUP, &["flipped.trace"]);
        }
    }
}

#[test]
fn options_without_the_others_that_they_need() {
    let folder = folder_with_bug();
    check_is_refused(&folder, &["--ack", "ok"], &["--ack", "--dump"]);
    check_is_refused(&folder, &["--client", "true"], &["--ready"]);
    check_is_refused(&folder, &["--client-recover", "true"], &["--ready"]);
}

#[test]
fn values_that_are_none() {
    let folder = folder_with_bug();
    check_is_refused(&folder, &["--ack", "(", "--dump", "true"], &["`(`"]);
    check_is_refused(&folder, &["--fail-pattern", "("], &["`(`"]);
    let ready = ["--ready", "output:(", "--client", "true"];
    check_is_refused(&folder, &ready, &["`(`"]);
    check_is_refused(&folder, &["--ready", "soon"], &["`soon`"]);
    for fill in ["0x100", "256", "-1", "white", "", "0x"] {
        let fill = format!("--fill={fill}");
        check_is_refused(&folder, &[&fill], &["--fill", "not a byte"]);
    }
    check_is_refused(&folder, &["--jobs", "0"], &["--jobs"]);
    check_is_refused(&folder, &["--timeout", "soon"], &["--timeout"]);
    check_is_refused(&folder, &["--only", "PF9999"], &["PF9999"]);
    check_is_refused(&folder, &["--failure-points", "none"], &["none"]);
    check_is_refused(&folder, &["--ok-exit", "256"], &["256"]);
    check_is_refused(&folder, &["--deny", "errors"], &["errors"]);
}

#[test]
fn what_is_wrong_with_options_is_said_before_the_workload_runs() {
    let folder = Folder::new();
    for options in [
        ["--fill", "white"],
        ["--ack", "("],
        ["--ack", "ok"],
        ["--fail-pattern", "("],
        ["--client-recover", "true"],
        ["--baseline", "missing"],
        ["--recover", ""],
    ] {
        let mut arguments = vec!["check"];
        arguments.extend(options);
        // The program would create a file if it ran.
        arguments.extend(["--", "/usr/bin/touch", "ran"]);
        folder.powerfail(&arguments).is_refused_with(SETUP, &[]);
        assert!(!folder.path("ran").exists(), "{options:?}");
    }
}

#[test]
fn an_output_directory_that_cannot_be_made() {
    let folder = folder_with_bug();
    folder.write("file", "");
    check_is_refused(&folder, &["--out", "file"], &["file"]);
    check_is_refused(&folder, &["--out", "file/below"], &["file/below"]);
}

#[test]
fn a_baseline_that_is_none() {
    let folder = folder_with_bug();
    folder.write("text", "no report\n");
    folder.write("newer", r#"{"schema": 99}"#);
    check_is_refused(&folder, &["--baseline", "missing"], &["missing"]);
    check_is_refused(&folder, &["--baseline", "text"], &["text", "not a report"]);
    check_is_refused(&folder, &["--baseline", "newer"], &["newer", "99"]);
}
