//! The recorded calls of libpmemobj: which function, from which line, and for which bytes.

use serde_json::Value;

use crate::common::{Mode, Recording, record, target, targets};

/// The annotations of a recording.
fn annotations(recording: &Recording) -> Vec<Value> {
    let text = recording.look(&["events", "--json"]);
    let records = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    records
        .filter(|record: &Value| record["kind"] == "annotation")
        .collect()
}

/// The records of memory and transactions, in words: the call in a line of the source, the kind of record, its flags,
/// and the length of its range.
fn notes(annotations: &[Value], source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().collect();
    let about = annotations.iter().filter(|note| {
        let name = note["name"].as_str().unwrap_or_default();
        !name.starts_with("library-") && !name.starts_with("creation-")
    });
    about
        .map(|note| {
            let mut text = note["name"].as_str().expect("a known name").to_owned();
            for flag in note["flags"].as_array().into_iter().flatten() {
                text = format!("{text} {}", flag.as_str().expect("text"));
            }
            if let Some(range) = note["ranges"].get(0) {
                assert_eq!(range["pool"], 0, "{note}");
                text = format!("{text} {}", range["len_bytes"]);
            }
            let place = note["source"].as_str().and_then(|place| {
                let (_, line) = place.rsplit_once(':')?;
                line.trim_end_matches(')').parse::<usize>().ok()
            });
            if let Some(line) = place {
                let line = lines[line - 1];
                let calls = line
                    .find("pmemobj_")
                    .map(|at| &line[at + "pmemobj_".len()..]);
                let function = calls.and_then(|call| call.split('(').next());
                text = format!("{}: {text}", function.unwrap_or_else(|| line.trim()));
            }
            text
        })
        .collect()
}

/// The program's calls of libpmemobj, in order.
const EXPECTED: &[&str] = &[
    "create: open 1",
    "root: allocate zeroed 112",
    "TX_BEGIN(pool) {: transaction-begin",
    "tx_add_range: transaction-add 8",
    "TX_BEGIN(pool) {: nested-transaction-begin",
    "tx_xadd_range_direct: transaction-add no-flush 8",
    "nested-transaction-end",
    "tx_zalloc: transaction-allocate zeroed 112",
    "tx_realloc: transaction-free 112",
    "tx_realloc: transaction-allocate written 112",
    "tx_realloc: transaction-allocate 896",
    "tx_free: transaction-free 1008",
    "tx_strdup: transaction-allocate written 112",
    "tx_wcsdup: transaction-allocate written 112",
    "reserve: allocate reserved 112",
    "tx_publish: publish 1",
    "} TX_END: transaction-commit",
    "transaction-end",
    "TX_BEGIN(pool) {: transaction-begin",
    "tx_add_range_direct: transaction-add 8",
    "tx_abort: transaction-abort",
    "transaction-abort",
    "transaction-end",
    "TX_BEGIN(pool) {: transaction-begin",
    "transaction-abort",
    "transaction-end",
    "alloc: allocate written 112",
    "free: free 112",
    "zalloc: allocate zeroed 112",
    "reserve: allocate reserved 112",
    "publish: publish 1",
    "reserve: allocate reserved 112",
    "cancel: free 1",
    "list_insert_new: allocate written 8",
    "list_insert_new: allocate written 32",
    "list_insert_new: allocate written 72",
    "open: open 1",
];

fn assert_calls(recording: &Recording) {
    let annotations = annotations(recording);
    let source = std::fs::read_to_string(targets().join("object_calls.c")).expect("the source");
    let notes = notes(&annotations, &source);
    assert_eq!(notes, EXPECTED, "{notes:#?}");
    // Each call has an enter and a leave, even if the library jumps out of it, and calls do not nest.
    let mut open = None;
    let mut functions = Vec::new();
    for note in &annotations {
        let function = note["function"].as_str().map(str::to_owned);
        match note["name"].as_str() {
            Some("library-enter") => {
                assert_eq!(open, None, "{note}");
                functions.extend(function.clone());
                open = function;
            }
            Some("library-leave") => {
                assert_eq!(open, function, "{note}");
                open = None;
            }
            _ => {}
        }
    }
    assert_eq!(open, None);
    let count = |name: &str| functions.iter().filter(|it| *it == name).count();
    // The commit of the inner transaction is a call as well. Calls from constructors are not marked.
    assert_eq!(count("pmemobj_tx_commit"), 2);
    assert_eq!(count("pmemobj_tx_abort"), 1);
    assert_eq!(count("pmemobj_persist"), 0);
    assert_eq!(count("pmemobj_memset_persist"), 1);
    assert_eq!(count("pmemobj_close"), 2);
}

#[test]
fn calls_of_libpmemobj_are_noted_with_their_ranges() {
    let program = target("object_calls.c", &["-O1", "-lpmemobj"]);
    for mode in Mode::BOTH {
        assert_calls(&record(mode, &program, &["{pool}"]));
    }
}

#[test]
fn a_library_that_is_loaded_locally_is_noted_too() {
    let flags = ["-O1", "-shared", "-fPIC", "-DPLUGIN", "-lpmemobj"];
    let library = target("object_calls.c", &flags);
    let program = target("object_plugin.c", &["-O1", "-ldl"]);
    let library = library.to_str().expect("text");
    assert_calls(&record(Mode::Patch, &program, &[library, "{pool}"]));
}

#[test]
fn transactions_of_classes_are_noted() {
    let program = target("object_classes.cpp", &["-O1", "-std=c++17", "-lpmemobj"]);
    let recording = record(Mode::Patch, &program, &["{pool}"]);
    let annotations = annotations(&recording);
    let names: Vec<&str> = annotations
        .iter()
        .filter_map(|note| note["name"].as_str())
        .filter(|name| name.contains("transaction"))
        .collect();
    assert_eq!(
        names,
        [
            "transaction-begin",
            "transaction-add",
            "nested-transaction-begin",
            "transaction-add",
            "transaction-abort",
            "transaction-abort",
            "nested-transaction-end",
            "transaction-abort",
            "transaction-end",
            "transaction-begin",
            "transaction-add",
            "nested-transaction-begin",
            "transaction-add",
            "nested-transaction-end",
            "transaction-commit",
            "transaction-end",
        ]
    );
}

#[test]
fn a_program_without_the_library_has_no_notes() {
    let program = target("steps.c", &["-O1"]);
    let recording = record(Mode::Patch, &program, &["plain", "{pool}"]);
    assert!(recording.count("store") > 0);
    let names: Vec<Value> = annotations(&recording)
        .into_iter()
        .map(|note| note["name"].clone())
        .collect();
    assert_eq!(names, Vec::<Value>::new());
}
