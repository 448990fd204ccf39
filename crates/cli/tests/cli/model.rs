//! `powerfail model`, as users run it.

use crate::common::{Run, litmus, powerfail, powerfail_into_closed_pipe, write};

#[test]
fn the_whole_suite_passes() {
    let run = powerfail(&["model", "check", &litmus("")]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "410 passed, 0 failed\n"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_missing_and_an_extra_state_are_named() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let text = std::fs::read_to_string(litmus("MP.json")).expect("readable");
    let mut file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    file["allowed"] = serde_json::json!([[0, 0], [7, 7]]);
    let path = write(&folder, "wrong.json", &file.to_string());
    let run = powerfail(&["model", "check", &path, &litmus("SB.json")]);
    assert_eq!(run.code, 1);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", run.stdout);
    assert!(lines[0].starts_with(&format!("FAIL {path}: allowed: missing [7, 7], extra ")));
    assert!(lines[0].contains("[1, 1]"), "{}", lines[0]);
    assert_eq!(lines[1], "1 passed, 1 failed");
}

#[test]
fn a_wrong_count_or_position_is_named() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let text = std::fs::read_to_string(litmus("traces/yat_figure3.json")).expect("readable");
    let path = write(&folder, "yat.json", &text.replacen(": 60,", ": 61,", 1));
    let run = powerfail(&["model", "check", &path]);
    assert_eq!(run.code, 1);
    assert!(
        run.stdout.contains("expected 61, found 60"),
        "{}",
        run.stdout
    );
}

#[test]
fn malformed_files_are_one_sentence_with_file_and_field() {
    let program = |threads: &str| {
        format!(
            r#"{{"name": "n", "lines": {{"x": 0}}, "init": {{"x": 0}}, "threads": {threads},
                "crash": "any", "vars": ["x"], "allowed": [[0]], "allowed_eadr": [[0]],
                "regs": [], "outcomes": [[]], "final_mem": [[0]]}}"#
        )
    };
    let trace = |event: &str| {
        format!(r#"{{"name": "n", "events": [{event}], "cells": [[0, 0]], "states_at": {{}}}}"#)
    };
    let cases = [
        ("not JSON".to_owned(), "not valid JSON"),
        ("[]".to_owned(), "must be an object"),
        ("{}".to_owned(), "neither `threads`"),
        (program("3"), "field `threads` must be a list"),
        (
            program(r#"[[["stroe", "x", 1]]]"#),
            "field `threads[0][0][0]`",
        ),
        (
            program(r#"[[["store", "x"]]]"#),
            "field `threads[0][0]` must be",
        ),
        (
            program(r#"[[["store", "y", 1]]]"#),
            "field `threads[0][0][1]` names `y`",
        ),
        (program(r#"[[["store", "x", "r0"]]]"#), "uses register `r0`"),
        (
            program(r#"[[["load", "x", "r0"], ["load", "x", "r0"]]]"#),
            "a second time",
        ),
        (
            program("[]").replace("\"any\"", "\"sometimes\""),
            "field `crash`",
        ),
        (
            program("[]").replace("\"allowed\": [[0]]", "\"allowed\": [[0, 1]]"),
            "`allowed[0]`",
        ),
        (
            program("[]").replace(", \"final_mem\": [[0]]", ""),
            "field `final_mem` is missing",
        ),
        (
            program("[]").replace("\"regs\": []", "\"regs\": [\"0:r9\"]"),
            "field `regs[0]`",
        ),
        (
            trace(r#"{"op": "sfence"}"#),
            "field `events[0].t` is missing",
        ),
        (trace(r#"{"t": 0, "op": "wait"}"#), "field `events[0].op`"),
        (
            trace(r#"{"t": 0, "op": "store", "line": 0, "off": 4, "val": 1}"#),
            "field `events[0].off` must be a multiple of 8",
        ),
        (
            trace(r#"{"t": 0, "op": "sfence"}"#),
            "field `states_at.0` is missing",
        ),
    ];
    let folder = tempfile::tempdir().expect("temporary folder");
    for (text, expected) in cases {
        let path = write(&folder, "bad.json", &text);
        let run = powerfail(&["model", "check", &path]);
        assert_not_judged(&run, &path, expected);
    }
}

/// One sentence on standard error that names the file; exit code 2; nothing counted.
fn assert_not_judged(run: &Run, path: &str, expected: &str) {
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert_eq!(
        run.stderr.lines().count(),
        1,
        "one sentence: {}",
        run.stderr
    );
    assert!(
        run.stderr.starts_with(&format!("error: {path}: ")),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains(expected),
        "{expected:?} is not in {}",
        run.stderr
    );
    assert_eq!(run.stdout, "0 passed, 0 failed\n");
}

#[test]
fn a_file_that_is_not_text_says_so() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = write(&folder, "bad.json", b"{\"name\": \"\xff\"}");
    let run = powerfail(&["model", "check", &path]);
    assert_not_judged(&run, &path, "the file is not text: byte 10 is not UTF-8");
}

/// A limit of the tool says nothing about the file: such a file used to be counted as failed.
#[test]
fn a_file_beyond_the_limits_is_an_error_and_not_a_failure() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let events: Vec<String> = (0..90)
        .map(|event| {
            let (line, offset) = (event % 15, event / 15 * 8);
            format!(r#"{{"t": 0, "op": "store", "line": {line}, "off": {offset}, "val": 1}}"#)
        })
        .collect();
    let positions = (0..=90)
        .map(|position| format!(r#""{position}": []"#))
        .collect::<Vec<_>>()
        .join(", ");
    let text = format!(
        r#"{{"name": "wide", "events": [{}], "cells": [[0, 0]],
            "states_at": {{{positions}}}, "states_at_eadr": {{{positions}}}}}"#,
        events.join(", ")
    );
    let path = write(&folder, "wide.json", &text);
    let expected = "not decided: position 18 of the trace has more than 100000 states";
    let run = powerfail(&["model", "check", &path]);
    assert_not_judged(&run, &path, expected);
    let shown = powerfail(&["model", "show", &path]);
    assert_eq!((shown.code, shown.stdout.as_str()), (2, ""));
    assert!(shown.stderr.contains(expected), "{}", shown.stderr);
}

/// The exit code used to be 0 whatever was found.
#[test]
fn a_closed_standard_output_does_not_hide_a_failure() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let text = std::fs::read_to_string(litmus("MP.json")).expect("readable");
    let mut file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    file["allowed"] = serde_json::json!([[0, 0]]);
    let wrong = write(&folder, "wrong.json", &file.to_string());
    for (arguments, code) in [
        (&["model", "check", &wrong][..], 1),
        (&["model", "check", "--json", &wrong], 1),
        (&["model", "check", &litmus("MP.json")], 0),
        (&["model", "check", "/does/not/exist.json"], 2),
    ] {
        let run = powerfail_into_closed_pipe(arguments);
        assert_eq!(run.code, code, "{arguments:?}: {}", run.stderr);
        assert!(!run.stderr.contains("pipe"), "{}", run.stderr);
    }
    // More than the buffer of standard output holds.
    let long = powerfail_into_closed_pipe(&["model", "show", "--json", &long_trace(&folder)]);
    assert_eq!((long.code, long.stderr.as_str()), (0, ""));
}

fn long_trace(folder: &tempfile::TempDir) -> String {
    let events = vec![r#"{"t": 0, "op": "sfence"}"#; 2000].join(", ");
    let text = format!(r#"{{"name": "long", "events": [{events}], "cells": [[0, 0]]}}"#);
    write(folder, "long.json", &text)
}

#[test]
fn counts_that_differ_with_durable_caches_are_shown() {
    let run = powerfail(&["model", "show", &litmus("traces/yat_figure3.json")]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout
            .contains("  crash at 10: 60 states  <- failure point\n  durable caches: 1 state\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn names_are_aligned_by_characters_and_cannot_move_the_cursor() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let text = r#"{"name": "a\u001b[2J", "lines": {"größe": 0, "y\n": 1}, "init": {"größe": 0},
        "threads": [[["store", "größe", 1]]], "crash": "any", "vars": ["größe", "y\n"]}"#;
    let path = write(&folder, "names.json", text);
    let run = powerfail(&["model", "show", &path]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.starts_with("a\\u{1b}[2J\n"), "{}", run.stdout);
    assert!(
        run.stdout
            .contains("  größe  y\\n\n      0    0   adr, eadr\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_bad_file_does_not_keep_others_from_being_checked() {
    let run = powerfail(&["model", "check", "/does/not/exist.json", &litmus("MP.json")]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("/does/not/exist.json: No such file"),
        "{}",
        run.stderr
    );
    assert_eq!(run.stdout, "1 passed, 0 failed\n");
}

#[test]
fn states_can_be_shown_without_expectations() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let flag = |fence: &str| {
        format!(
            r#"{{"name": "flag", "lines": {{"data": 0, "flag": 1}}, "init": {{"data": 0, "flag": 0}},
                "threads": [[["store", "data", 1], ["clwb", "data"], {fence} ["store", "flag", 1]]],
                "crash": "any", "vars": ["data", "flag"]}}"#
        )
    };
    let bad = write(&folder, "bad.json", &flag(""));
    let good = write(&folder, "good.json", &flag("[\"sfence\"],"));
    let shown = powerfail(&["model", "show", &bad]);
    assert_eq!(shown.code, 0);
    assert!(
        shown.stdout.contains("     0     1   adr\n"),
        "{}",
        shown.stdout
    );
    let allowed = |path: &str| {
        let run = powerfail(&["model", "show", "--json", path]);
        let value: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        value["allowed"].clone()
    };
    assert_eq!(
        allowed(&bad),
        serde_json::json!([[0, 0], [0, 1], [1, 0], [1, 1]])
    );
    assert_eq!(allowed(&good), serde_json::json!([[0, 0], [1, 0], [1, 1]]));
    let check = powerfail(&["model", "check", &bad]);
    assert_eq!(check.code, 2, "nothing to compare with");
    assert!(
        check.stderr.contains("field `regs` is missing"),
        "{}",
        check.stderr
    );
}

#[test]
fn json_lists_every_file() {
    let run = powerfail(&["model", "check", "--json", &litmus("traces")]);
    let value: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(value["passed"], 60);
    assert_eq!(value["files"].as_array().map(Vec::len), Some(60));
}
