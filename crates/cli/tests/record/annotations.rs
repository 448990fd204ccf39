//! Annotated programs: they run unchanged without powerfail, and with powerfail their annotations are recorded.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use powerfail_trace::{Annotation, MarkKind, Trace};
use serde_json::{Value, json};

use crate::common::{Mode, Recorder, Recording, native, target, target_with};

/// How programs are built; the last two are static and cannot use a library that is loaded at run time.
const BUILDS: [&[&str]; 6] = [
    &["-O0"],
    &["-O2"],
    &["-O0", "-no-pie", "-fno-pie"],
    &["-O2", "-no-pie", "-fno-pie"],
    &["-O2", "-static"],
    &["-O2", "-static-pie"],
];
const RUST_BUILDS: [&[&str]; 4] = [
    &[],
    &["-O"],
    &["-O", "-Crelocation-model=static"],
    &["-O", "-Ctarget-feature=+crt-static"],
];

fn is_static(flags: &[&str]) -> bool {
    flags
        .iter()
        .any(|flag| flag.starts_with("-static") || flag.ends_with("+crt-static"))
}

/// The crate for annotations, compiled for programs that are compiled without cargo.
fn annotate_crate(flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../annotate/src/lib.rs");
    let source = source.to_str().expect("text");
    let library = ["--crate-type=rlib", "--crate-name=powerfail_annotate"];
    target_with(source, "rlib", &[&library, flags].concat())
}

/// All annotated programs: C, C++ and Rust, in all builds, and whether powerfail can reach them.
fn programs() -> Vec<(PathBuf, bool)> {
    let mut programs = Vec::new();
    for flags in BUILDS {
        for source in ["annotated.c", "annotated.cpp"] {
            programs.push((target(source, flags), !is_static(flags)));
        }
    }
    for flags in RUST_BUILDS {
        let library = annotate_crate(flags);
        let library = format!("--extern=powerfail_annotate={}", library.display());
        let flags = [flags, &[&library]].concat();
        programs.push((target("annotated.rs", &flags), !is_static(&flags)));
    }
    programs
}

/// Runs a program alone, optionally with a preloaded library, and returns its output and error output.
fn alone(program: &Path, preloaded: Option<&Path>) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = folder.path().join("pool");
    let output = match preloaded {
        None => native(program, &[pool.to_str().expect("text")]),
        Some(library) => Command::new(program)
            .arg(pool)
            .env("LD_PRELOAD", library)
            .output()
            .expect("the target runs"),
    };
    assert!(output.status.success(), "{}: {output:?}", program.display());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr))
}

#[test]
fn without_powerfail_programs_run_unchanged() {
    let listener = target("listener.c", &["-shared", "-fPIC"]);
    // The annotations, as code, value, lengths and stage.
    let said = [
        "0x200 0 0 0 2",
        "0x200 0 0 0 1",
        "0x203 0 0 0 1",
        "0x204 0 0 0 1",
        "0x205 0 0 0 3",
        "0x206 0 0 0 3",
        "0x8210 0 8 0 3",
        "0x8211 0 8 128 3",
        "0x8210 0 8 0 3",
        "0x209 7 0 0 1",
        "0x207 0 0 0 1",
        "0x20a 7 0 0 1",
        "0x208 42 7 0 1",
        "0x208 43 2000 0 1",
        "0x208 44 0 0 1",
        "0x201 0 0 0 1",
        "0x202 0 0 0 3",
        "0x202 0 0 0 2",
    ];
    let mut expected = String::new();
    for line in said {
        writeln!(expected, "{line}").expect("memory");
    }
    for (program, hears) in programs() {
        let name = program.display();
        assert_eq!(
            alone(&program, None),
            ("1\n".into(), String::new()),
            "{name}"
        );
        let (stdout, stderr) = alone(&program, Some(&listener));
        assert_eq!(stdout, "1\n", "{name}");
        if hears {
            // The recovery region ends with its scope.
            let stderr = stderr.strip_suffix("0x201 0 0 0 2\n").unwrap_or(&stderr);
            assert_eq!(stderr, expected, "{name}");
        } else {
            assert_eq!(stderr, "", "{name}");
        }
    }
}

/// The annotations of a recording: name, value, payload and ranges, without addresses of volatile memory.
fn annotations(recording: &Recording) -> Vec<Value> {
    let mut found = Vec::new();
    for mut record in recording.json_events() {
        let kind = record["kind"].as_str().expect("a kind").to_owned();
        if !["annotation", "operation-begin", "operation-end"].contains(&kind.as_str()) {
            continue;
        }
        let name = record["name"].as_str().unwrap_or(&kind).to_owned();
        let about = match record["ranges"].take() {
            Value::Array(mut ranges) => {
                for range in &mut ranges {
                    if range["address"].take().is_u64() {
                        range["address"] = json!("somewhere");
                    } else if let Some(range) = range.as_object_mut() {
                        range.remove("address");
                    }
                }
                json!(ranges)
            }
            _ => record["payload"].take(),
        };
        found.push(json!([name, record["value"], about]));
    }
    found
}

fn place(offset: u64, len: u64) -> Value {
    json!({ "pool": 0, "offset": offset, "len_bytes": len })
}

#[test]
fn all_annotations_arrive_in_a_trace() {
    let long = "6c".repeat(1008);
    let expected = [
        json!(["interest-begin", 0, ""]),
        json!(["skip-failure-begin", 0, ""]),
        json!(["skip-failure-end", 0, ""]),
        json!(["skip-detection-begin", 0, ""]),
        json!(["skip-detection-end", 0, ""]),
        json!(["commit-variable", 0, [place(0, 8)]]),
        json!(["commit-range", 0, [place(0, 8), place(64, 128)]]),
        json!(["commit-variable", 0, [{ "address": "somewhere", "len_bytes": 8 }]]),
        json!(["operation-begin", 7, ""]),
        json!(["failure-point", 0, ""]),
        json!(["operation-end", 7, ""]),
        json!(["mark", 42, "7061796c6f6164"]),
        json!(["mark", 43, long]),
        json!(["mark", 44, ""]),
        json!(["interest-end", 0, ""]),
        json!(["complete", 0, ""]),
    ];
    for (program, _) in programs().iter().filter(|(_, hears)| *hears) {
        for mode in Mode::BOTH {
            let recording = Recorder::new(program, &["{pool}"]).mode(mode).run();
            recording.assert_exit(0);
            assert_eq!(recording.output, "1\n");
            assert_eq!(annotations(&recording), expected, "{}", program.display());
            let warnings = recording.summary["warnings"].to_string();
            assert!(warnings.contains("longer than 1008 bytes"), "{warnings}");
            assert_places(&recording, program);
        }
    }
}

/// Each annotation has the call stack of the line of the program that makes it, and its position among the stores.
fn assert_places(recording: &Recording, program: &Path) {
    let trace = Trace::open(recording.trace()).expect("a trace");
    let mut records = trace.records_from(powerfail_model::EventIndex(0));
    let mut stored = false;
    let mut flushed = false;
    while let Some(record) = records.next_record().expect("a record") {
        use powerfail_trace::{Body, Frame};
        match record.body {
            Body::Pm(powerfail_model::Event::Store { .. }) => stored = true,
            Body::Pm(powerfail_model::Event::Flush { .. }) => flushed = true,
            Body::Mark(mark) => {
                let MarkKind::Annotation(annotation) = mark.kind else {
                    continue;
                };
                let innermost = trace.stack(record.stack).next();
                let Some(Frame::Module { module, .. }) = innermost else {
                    panic!("no call stack: {record:?}");
                };
                let module = &trace.modules()[module.0 as usize];
                assert_eq!(module.path.file_name(), program.file_name(), "{record:?}");
                if annotation == Annotation::FailurePoint {
                    assert!(stored && !flushed, "between the store and its flush");
                }
            }
            _ => {}
        }
    }
    assert!(flushed);
}

#[test]
fn code_that_is_annotated_for_xfdetector() {
    let program = target("annotated_for_xfdetector.c", &["-O2"]);
    assert_eq!(alone(&program, None), ("1\n".into(), String::new()));
    let recording = Recorder::new(&program, &["{pool}"]).run();
    recording.assert_exit(0);
    let expected = [
        json!(["interest-begin", 0, ""]),
        json!(["commit-variable", 0, [place(0, 8)]]),
        json!(["commit-range", 0, [place(0, 1), place(64, 128)]]),
        json!(["skip-failure-begin", 0, ""]),
        json!(["skip-failure-end", 0, ""]),
        json!(["failure-point", 0, ""]),
        json!(["skip-detection-begin", 0, ""]),
        json!(["skip-detection-end", 0, ""]),
        json!(["skip-detection-begin", 0, ""]),
        json!(["skip-detection-end", 0, ""]),
        json!(["interest-end", 0, ""]),
        json!(["complete", 0, ""]),
    ];
    assert_eq!(annotations(&recording), expected);
}

/// The headers in the binary are those that were compiled here.
#[test]
fn the_binary_gives_its_headers() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    for (arguments, file) in [
        (&["header"][..], "powerfail.h"),
        (&["header", "--xfdetector"], "xfdetector_interface.h"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_powerfail"))
            .args(arguments)
            .output()
            .expect("powerfail runs");
        assert!(output.status.success());
        let expected = std::fs::read(include.join(file)).expect("a header");
        assert!(output.stdout == expected, "{file}");
    }
}
