//! Mistakes in litmus files are reported, not ignored.

use powerfail_litmus::{LitmusError, LitmusFile, check};

/// The error for a file, whether reading or checking finds the mistake.
fn complaint(text: &str) -> String {
    let file = match LitmusFile::parse(text) {
        Ok(file) => file,
        Err(error) => return error.to_string(),
    };
    check(&file).map_or_else(|error| error.to_string(), |_| String::new())
}

fn program(more: &str) -> String {
    format!(
        r#"{{"name": "n", "lines": {{"x": 0}}, "init": {{"x": 0}}, "threads": [],
            "crash": "any", "vars": ["x"], "allowed": [[0]], "allowed_eadr": [[0]],
            "regs": [], "outcomes": [[]], "final_mem": [[0]]{more}}}"#
    )
}

fn trace(event: &str) -> String {
    format!(
        r#"{{"name": "n", "events": [{event}], "cells": [[0, 0]],
            "states_at": {{"0": [[0]], "1": [[0]]}}, "states_at_eadr": {{"0": [[0]], "1": [[0]]}}}}"#
    )
}

#[test]
fn the_files_of_this_test_are_good_without_the_mistake() {
    assert_eq!(complaint(&program("")), "");
    assert_eq!(complaint(&trace(r#"{"t": 0, "op": "sfence"}"#)), "");
}

#[test]
fn unknown_members_are_refused() {
    for (text, expected) in [
        (
            program(r#", "alowed": []"#),
            "field `alowed` is not known; a program has name",
        ),
        (
            program(r#", "nt_variants": {"nt_inorder": {"alowed": []}}"#),
            "field `nt_variants.nt_inorder.alowed` is not known; a variant has allowed",
        ),
        (
            trace(r#"{"t": 0, "op": "sfence", "line": 1}"#),
            "field `events[0].line` is not known; the operation sfence has t, op",
        ),
        (
            trace(r#"{"t": 0, "op": "clwb", "addr": "0", "line": 1}"#),
            "field `events[0].line` is not known",
        ),
        (
            trace(r#"{"t": 0, "op": "sfence"}"#).replace("\"cells\"", "\"cels\""),
            "field `cels` is not known; a trace has name",
        ),
        (
            trace(r#"{"t": 0, "op": "sfence"}"#).replacen("\"1\":", "\"+1\":", 1),
            "field `states_at.+1` is not a position",
        ),
    ] {
        let found = complaint(&text);
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn a_member_that_stands_twice_is_refused() {
    assert_eq!(
        complaint(&program(r#", "allowed": [[1]]"#)),
        "field `allowed` is there twice"
    );
    assert_eq!(
        complaint(&trace(r#"{"t": 0, "op": "sfence", "t": 1}"#)),
        "field `events[0].t` is there twice"
    );
}

#[test]
fn a_file_that_is_program_and_trace_is_refused() {
    assert_eq!(
        complaint(&program(r#", "events": []"#)),
        "the file has both `threads` (a program) and `events` (a trace)"
    );
}

#[test]
fn addresses_are_hexadecimal_digits_after_one_prefix() {
    let store = |address: &str| trace(&format!(r#"{{"t": 0, "op": "clwb", "addr": "{address}"}}"#));
    for good in ["0", "0x0", "0xFf", "00"] {
        assert_eq!(complaint(&store(good)), "", "{good}");
    }
    for bad in ["0x0x0x0", "+0", "", "0x", "-1", "0X1", "1 "] {
        assert_eq!(
            complaint(&store(bad)),
            format!("field `events[0].addr` is not a hexadecimal address: \"{bad}\"")
        );
    }
}

#[test]
fn wrong_numbers_are_shown() {
    for (number, expected) in [
        ("-1", "must be an integer from 0 to 2^64 - 1, but is -1"),
        ("0.5", "must be an integer from 0 to 2^64 - 1, but is 0.5"),
        (
            "18446744073709551616",
            "must be an integer from 0 to 2^64 - 1, but is 1.8446744073709552e",
        ),
        (
            "18446744073709551615",
            "must be less than 4294967295, but is 18446744073709551615",
        ),
        ("true", "must be an integer from 0 to 2^64 - 1, but is true"),
    ] {
        let found = complaint(&trace(&format!(r#"{{"t": {number}, "op": "sfence"}}"#)));
        let expected = format!("field `events[0].t` {expected}");
        assert!(found.starts_with(&expected), "{found}");
    }
    let value = r#"{"t": 0, "op": "store", "line": 0, "off": 0, "val": 9223372036854775808}"#;
    assert_eq!(
        complaint(&trace(value)),
        "field `events[0].val` must be an integer from -2^63 to 2^63 - 1, but is 9223372036854775808"
    );
}

#[test]
fn one_value_is_no_plural() {
    let text = program("").replace("\"allowed\": [[0]]", "\"allowed\": [[0, 1]]");
    assert_eq!(
        complaint(&text),
        "field `allowed[0]` must have 1 value, but has 2"
    );
}

#[test]
fn no_cells_are_not_the_same_as_an_empty_list_of_cells() {
    let empty = r#"{"name": "n", "events": [], "cells": [],
        "states_at": {"0": [[]]}, "states_at_eadr": {"0": [[]]}}"#;
    assert_eq!(complaint(empty), "");
    let LitmusFile::Trace(file) = LitmusFile::parse(empty).expect("good") else {
        panic!("a trace");
    };
    assert_eq!(file.cells.as_deref(), Some(&[][..]));
    let wrong = empty.replacen("[[]]", "[]", 1);
    let verdict = check(&LitmusFile::parse(&wrong).expect("good")).expect("decided");
    assert!(!verdict.passed(), "the one state without cells is missing");
    let none = empty.replace("\"cells\": [],", "");
    assert_eq!(complaint(&none), "field `cells` is missing");
}

#[test]
fn a_program_of_many_threads_is_refused() {
    let threads = |count: usize| {
        let threads = vec![r#"[["store", "x", 1]]"#; count].join(", ");
        let text = program("").replace("\"threads\": []", &format!("\"threads\": [{threads}]"));
        LitmusFile::parse(&text)
    };
    assert!(threads(16).is_ok());
    assert_eq!(
        threads(100).expect_err("too many").to_string(),
        "field `threads` has 100 threads, but the explorer takes at most 16"
    );
}

/// 90 stores on 15 lines: 7^15 states at the last position.
#[test]
fn a_trace_with_too_many_states_is_not_decided() {
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
    let file = LitmusFile::parse(&text).expect("good");
    assert!(matches!(check(&file), Err(LitmusError::Undecided(_))));
}

fn files(operation: &str) -> String {
    format!(
        r#"{{"name": "n", "tree": {{"a": 10, "d/": null}}, "operations": [{operation}],
            "trees": {{"ext4": [{{"a": "old:10", "d": "/"}}]}}}}"#
    )
}

#[test]
fn mistakes_in_operations_on_files_are_refused() {
    assert_eq!(complaint(&files(r#"["sync"]"#)), "");
    for (operation, expected) in [
        (r#"["sink"]"#, "has the unknown operation `sink`"),
        (
            r#"["write", "a", 0]"#,
            "must be `write`, 1 paths and 2 numbers",
        ),
        (r#"["write", "b", 0, 1]"#, "`b` is not there"),
        (r#"["write", "d", 0, 1]"#, "`d` is not a file"),
        (r#"["create", "a"]"#, "`a` is there"),
        (r#"["create", "a/b"]"#, "`a` is not a directory"),
        (r#"["create", ".."]"#, "`..` is not a path"),
        (r#"["unlink", "d"]"#, "`d` cannot be removed so"),
        (r#"["rename", "a", "a"]"#, "renames a file to itself"),
        (
            r#"["tmpfile", "t"]"#,
            "needs a new handle that begins with #",
        ),
    ] {
        let found = complaint(&files(operation));
        assert_eq!(found, format!("field `operations[0]` {expected}"));
    }
    for (from, to, expected) in [
        (
            "ext4",
            "ext5",
            "field `trees.ext5` has an unknown name: expected linux, ext4",
        ),
        (
            "ext4",
            "linux",
            "field `trees.linux` is the union of ext4, xfs and btrfs: list these",
        ),
        (
            "ext4",
            "ext4 ext4",
            "field `trees.ext4 ext4` lists ext4 twice",
        ),
        (
            "\"trees\"",
            "\"threads\"",
            "the file has both `threads` (a program) and `operations`",
        ),
        (
            "\"tree\"",
            "\"three\"",
            "field `three` is not known; a list of operations has name",
        ),
    ] {
        let found = complaint(&files(r#"["sync"]"#).replacen(from, to, 1));
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn a_wrong_set_of_trees_is_a_mismatch() {
    let text = files(r#"["unlink", "a"]"#);
    let file = LitmusFile::parse(&text).expect("well-formed");
    let verdict = check(&file).expect("decided");
    assert_eq!(
        verdict.mismatches.len(),
        1,
        "the tree without `a` is missing"
    );
}
