//! Client requests of Valgrind: all of them are recorded, and the target gets the answers that it expects.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::common::{Mode, Recorder, Recording, native, target};

const FLAG: &str = "--valgrind-requests";

/// Codes of marks, as `powerfail_protocol::mark` has them.
const REQUEST: u64 = 0x8300;
const CLEAN: u64 = 0x8301;
const USER: u64 = 0x0208;
const BEGIN: u64 = 0x0100;
const END: u64 = 0x0101;
const NESTED_BEGIN: u64 = 0x0104;
const NESTED_END: u64 = 0x0105;
const ADD: u64 = 0x8120;

fn program() -> PathBuf {
    target("requests.c", &["-O2", "-pthread"])
}

fn record(mode: Mode, with_flag: bool, what: &[&str]) -> Recording {
    let arguments = [&["{pool}"], what].concat();
    let recorder = Recorder::new(program(), &arguments).mode(mode);
    let recorder = if with_flag {
        recorder.flag(FLAG)
    } else {
        recorder
    };
    let recording = recorder.run();
    recording.assert_exit(0);
    recording
}

/// Everything except outputs and starts and ends of threads: the kind, or the code and the value of a mark, and the
/// location. Text payloads are given as text.
fn events(recording: &Recording) -> Vec<String> {
    let describe = |event: &Value| {
        let payload = event["payload"].as_str().map(parse);
        match (&event["code"], &event["offset"]) {
            (Value::Null, Value::Null) => event["kind"].as_str().expect("a kind").to_owned(),
            (Value::Null, offset) => {
                format!("{} {offset}", event["kind"].as_str().expect("a kind"))
            }
            (code, _) => {
                let payload = payload.expect("a payload");
                let rest = match code.as_u64() {
                    Some(USER) => String::from_utf8(payload).expect("text"),
                    _ => payload
                        .chunks_exact(24)
                        .map(|range| {
                            let word = |at: usize| {
                                i64::from_le_bytes(range[at..at + 8].try_into().expect("a word"))
                            };
                            format!("{}:{}+{}", word(0), word(8), word(16))
                        })
                        .collect::<Vec<_>>()
                        .join(" "),
                };
                format!("{code}/{} {rest}", event["value"])
                    .trim_end()
                    .to_owned()
            }
        }
    };
    recording
        .json_events_of(&[])
        .iter()
        .filter(|event| {
            let kind = event["kind"].as_str().expect("a kind");
            !["output", "thread-start", "thread-end"].contains(&kind)
        })
        .map(describe)
        .collect()
}

fn parse(hex: &str) -> Vec<u8> {
    crate::common::parse_hex(hex)
}

fn expected() -> Vec<String> {
    let mark =
        |code: u64, value: u64, rest: &str| format!("{code}/{value} {rest}").trim_end().to_owned();
    vec![
        mark(REQUEST, 0x00, "0:0+65536"),
        mark(REQUEST, 0x01, "0:0+65536"),
        mark(REQUEST, 0x04, ""),
        mark(USER, 0, "one.BEGIN"),
        "store 4096".to_owned(),
        mark(REQUEST, 0x05, "0:4096+130"),
        "clwb 4096".to_owned(),
        "clwb 4160".to_owned(),
        "clwb 4224".to_owned(),
        mark(REQUEST, 0x06, ""),
        "locked-fence".to_owned(),
        mark(USER, 0, "one.END"),
        mark(BEGIN, 0, ""),
        mark(NESTED_BEGIN, 0, ""),
        mark(ADD, 0, "0:4104+8"),
        mark(ADD, 0, "0:4112+8"),
        "store 4104".to_owned(),
        "store 4112".to_owned(),
        mark(REQUEST, 0x18, "0:4104+8"),
        mark(REQUEST, 0x19, "0:4112+8"),
        mark(NESTED_END, 0, ""),
        mark(END, 0, ""),
        mark(BEGIN, 0, ""),
        mark(END, 0, ""),
        mark(REQUEST, 0x1c, "0:4120+8"),
        mark(CLEAN, 0, "0:4096+64"),
        mark(REQUEST, 0x08, ""),
        mark(REQUEST, 0x02, "0:0+65536"),
    ]
}

#[test]
fn natively_they_do_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = folder.path().join("pool");
    let run = native(&program(), &[pool.to_str().expect("text")]);
    assert!(run.status.success());
    let said = String::from_utf8(run.stdout).expect("text");
    assert_eq!(
        said,
        "valgrind 0\nmapping 0\nother 0\nmemcheck 11\nreserved 12\nunknown 13\n"
    );
}

#[test]
fn all_requests_arrive() {
    for mode in Mode::BOTH {
        for with_flag in [false, true] {
            let recording = record(mode, with_flag, &[]);
            let running = u8::from(with_flag);
            assert_eq!(
                recording.output,
                format!(
                    "valgrind {running}\nmapping 1\nother 0\nmemcheck 11\nreserved 12\nunknown 13\n"
                )
            );
            assert_eq!(events(&recording), expected());
            assert_eq!(
                recording.summary["client_requests"],
                json!({"understood": 24, "of_other_tools": 1, "unknown": 2})
            );
            let warnings = recording.summary["warnings"].as_array().expect("warnings");
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            let sentence = warnings[0].as_str().expect("a sentence");
            assert!(sentence.contains("2 unknown client requests"), "{sentence}");
            assert!(sentence.contains("0x5043000c"), "{sentence}");
        }
    }
}

#[test]
fn a_request_has_the_stack_of_its_caller() {
    let recording = record(Mode::Patch, false, &[]);
    let marks = recording.json_events_of(&["--stacks"]);
    let clean = marks.iter().find(|event| event["code"] == CLEAN);
    let stack = &clean.expect("it is there")["stack"];
    let frames = stack.as_array().expect("a stack").iter();
    let of_program =
        frames.filter(|frame| frame.as_str().is_some_and(|it| it.contains("requests")));
    assert!(of_program.count() >= 2, "{stack}");
}

#[test]
fn many_flushes_and_fences() {
    for mode in Mode::BOTH {
        let recording = record(mode, false, &["many", "5000"]);
        assert_eq!(recording.count("clwb"), 5000);
        assert_eq!(recording.count("locked-fence"), 5000);
        assert_eq!(recording.count("store"), 5000);
    }
}

#[test]
fn threads_that_make_requests_while_they_are_being_patched() {
    for mode in Mode::BOTH {
        let recording = record(mode, false, &["threads"]);
        assert_eq!(recording.output, "right\nright\nright\nright\n");
        let count = recording.summary["client_requests"]["understood"].as_u64();
        assert!(count.expect("a count") > 0);
    }
}

#[test]
fn memory_that_is_no_pool_is_named() {
    let recording = record(Mode::Patch, false, &["anonymous"]);
    let warnings = recording.summary["warnings"].to_string();
    assert!(
        warnings.contains("registers 4096 bytes at 0x"),
        "{warnings}"
    );
    assert!(warnings.contains("no recorded pool"), "{warnings}");
}

fn asking() -> PathBuf {
    target("asking.c", &["-O2", "-shared", "-fPIC"])
}

/// Records a program that prints the answers its library got: in its constructor (running, pmemcheck), and now.
fn answers(program: &PathBuf, arguments: &[&str], mode: Mode, with_flag: bool) -> String {
    let recorder = Recorder::new(program, arguments).mode(mode);
    let recorder = if with_flag {
        recorder.flag(FLAG)
    } else {
        recorder
    };
    let recording = recorder.run();
    recording.assert_exit(0);
    assert_eq!(recording.summary["warnings"], json!([]));
    assert_eq!(recording.count("store"), 1);
    recording.output.trim_end().to_owned()
}

#[test]
fn constructors_are_answered() {
    let library = asking();
    let library = library.to_str().expect("text");
    let linked = target("asked.c", &["-O2", "-DLINKED", library]);
    let opened = target("asked.c", &["-O2"]);
    for mode in Mode::BOTH {
        for (with_flag, said) in [(false, "0"), (true, "111")] {
            let linked = answers(&linked, &["{pool}", "linked"], mode, with_flag);
            assert_eq!(linked, said, "linked, {mode:?}");
            let after = answers(&opened, &["{pool}", library], mode, with_flag);
            assert_eq!(after, said, "opened after the pool was mapped, {mode:?}");
            let before = ["{pool}", library, "before"];
            let before = answers(&opened, &before, mode, with_flag);
            assert_eq!(before, said, "opened before the pool was mapped, {mode:?}");
        }
    }
}

/// The PMDK libraries make requests when they are configured to, and behave the same otherwise.
#[test]
fn libpmemobj_makes_requests() {
    let program = target("object_map.c", &["-O2", "-pthread", "-lpmemobj"]);
    let record = |with_flag: bool| {
        let recorder = Recorder::new(&program, &["{pool}", "1", "50"]);
        let recorder = if with_flag {
            recorder.flag(FLAG)
        } else {
            recorder
        };
        let recording = recorder.run();
        recording.assert_exit(0);
        assert_eq!(recording.summary["warnings"], json!([]));
        recording
    };
    let (without, with) = (record(false), record(true));
    assert_eq!(without.output, with.output);
    assert_eq!(without.summary["client_requests"]["understood"], 0);
    let understood = with.summary["client_requests"]["understood"].as_u64();
    assert!(understood.expect("a count") > 100, "{}", with.summary);
    let [without, with] = [without, with].map(|it| it.json_events_of(&["--kind", "annotation"]));
    let count =
        |events: &[Value], code: u64| events.iter().filter(|event| event["code"] == code).count();
    for code in [BEGIN, END, ADD] {
        assert!(count(&without, code) > 0, "{code:#x}");
        assert_eq!(count(&without, code), count(&with, code), "{code:#x}");
    }
    assert!(count(&with, CLEAN) > 0);
    assert!(count(&with, REQUEST) > 0);
}
