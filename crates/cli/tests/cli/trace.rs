//! `powerfail trace`, as users run it.

use crate::common::{Run, litmus, powerfail, powerfail_into_closed_pipe, write};
use powerfail_trace::{FinalImage, ImageHash, Meta, Pool, PoolKind, TraceWriter, WriterOptions};
use serde_json::Value;

fn import(folder: &tempfile::TempDir, name: &str) -> String {
    let path = folder
        .path()
        .join("trace")
        .to_str()
        .expect("text")
        .to_owned();
    let run = powerfail(&[
        "trace",
        "import",
        &litmus(&format!("traces/{name}.json")),
        "-o",
        &path,
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    path
}

fn json(run: &Run) -> Value {
    assert_eq!(run.code, 0, "{}", run.stderr);
    serde_json::from_str(&run.stdout).expect("JSON")
}

#[test]
fn states_of_an_imported_trace_are_those_of_the_litmus_file() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = import(&folder, "yat_figure3");
    let text = std::fs::read_to_string(litmus("traces/yat_figure3.json")).expect("readable");
    let expected: Value = serde_json::from_str(&text).expect("JSON");
    for (at, counts) in expected["counts_at"].as_object().expect("an object") {
        let found = json(&powerfail(&[
            "trace", "states", "--json", "--at", at, &path,
        ]));
        assert_eq!(
            found["combinations"],
            counts["prefix_combinations"].to_string(),
            "at {at}"
        );
        assert_eq!(
            found["distinct"],
            counts["distinct_images"].to_string(),
            "at {at}"
        );
    }
    let points = powerfail(&["trace", "states", "--failure-points", "covering", &path]);
    assert_eq!(
        points.stdout,
        "        10  3 open lines, 60 crash states\n        16  3 open lines, 48 crash states\n"
    );
    let prefix = powerfail(&[
        "trace",
        "states",
        "--failure-points",
        "prefix",
        "--json",
        &path,
    ]);
    let at: Vec<u64> = prefix
        .stdout
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")["at"]
                .as_u64()
                .expect("number")
        })
        .collect();
    assert_eq!(at, [9, 15]);
}

#[test]
fn domains_and_atomicity_change_the_states() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = import(&folder, "yat_figure3");
    let combinations = |arguments: &[&str]| {
        let mut all = vec!["trace", "states", "--json", "--at", "10", &path];
        all.extend(arguments);
        json(&powerfail(&all))["combinations"]
            .as_str()
            .expect("text")
            .parse::<u64>()
            .expect("number")
    };
    assert_eq!(combinations(&[]), 60);
    assert_eq!(combinations(&["--domain", "eadr"]), 1);
    // One sector contains lines 401180 and 4011c0 with 5 stores; another one contains the 4 stores of 001080.
    assert_eq!(combinations(&["--domain", "pagecache"]), 6 * 5);
    assert!(combinations(&["--atomicity", "8"]) > 60);
}

#[test]
fn events_can_be_filtered() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = import(&folder, "yat_figure3");
    let indexes = |arguments: &[&str]| -> Vec<u64> {
        let mut all = vec!["trace", "events", "--json", &path];
        all.extend(arguments);
        let run = powerfail(&all);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout
            .lines()
            .map(|line| {
                let record: Value = serde_json::from_str(line).expect("JSON");
                record["index"].as_u64().expect("number")
            })
            .collect()
    };
    assert_eq!(indexes(&[]), (0..18).collect::<Vec<_>>());
    assert_eq!(indexes(&["--kind", "flushes,sfence"]), [9, 10, 15, 16]);
    assert_eq!(indexes(&["--range", "0x10c0..0x10cd"]), [12, 14, 15]);
    assert_eq!(
        indexes(&["--from", "4", "--to", "8", "--limit", "3"]),
        [4, 5, 6]
    );
    assert_eq!(indexes(&["--from", "18"]), [] as [u64; 0]);
    let text = powerfail(&["trace", "events", "--limit", "1", &path]);
    assert_eq!(
        text.stdout,
        "         0    0  store        0:0x401182 +6 = 010101010101\n"
    );
}

/// They used to give empty answers.
#[test]
fn filters_that_name_nothing_are_errors() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = import(&folder, "yat_figure3");
    for (flag, value, expected) in [
        ("--thread", "1", "there is no thread 1"),
        ("--pool", "1", "there is no pool 1"),
        ("--from", "19", "--from 19 is beyond its 18 events"),
    ] {
        let run = powerfail(&["trace", "events", &path, flag, value]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{flag}");
        assert!(run.stderr.contains(expected), "{}", run.stderr);
    }
    for with in [&["--json"][..], &["--failure-points", "prefix"]] {
        let arguments = [&["trace", "states", &path, "--lines", "1"], with].concat();
        assert_eq!(powerfail(&arguments).code, 2, "{arguments:?}");
    }
}

#[test]
fn a_crash_after_the_last_event_is_called_that() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = import(&folder, "yat_figure3");
    let first_lines = |at: &str| {
        let run = powerfail(&["trace", "states", "--at", at, &path]);
        let lines: Vec<String> = run.stdout.lines().take(2).map(str::to_owned).collect();
        lines
    };
    assert_eq!(
        first_lines("18"),
        [
            "crash after the last event, 17",
            "2 open lines, 12 crash states"
        ]
    );
    assert_eq!(
        first_lines("0"),
        ["crash just before event 0", "0 open lines, 1 crash state"]
    );
}

#[test]
fn info_counts_by_kind() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = import(&folder, "yat_figure3");
    let info = json(&powerfail(&["trace", "info", "--json", &path]));
    assert_eq!(info["events"], 18);
    assert_eq!(info["counts"]["store"], 12);
    assert_eq!(info["counts"]["clwb"], 2);
    assert_eq!(info["complete"], true);
    assert_eq!(info["store_bytes"], 145);
}

#[test]
fn a_sound_trace_passes_the_check() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = import(&folder, "yat_figure3");
    let run = powerfail(&["trace", "check", &path]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout.contains("the stores give the final image"),
        "{}",
        run.stdout
    );
    assert_eq!(run.stdout.lines().last(), Some("sound"));
    let value = json(&powerfail(&["trace", "check", "--json", &path]));
    assert_eq!(value["sound"], true);
}

/// After a cut or a flipped bit, the last line is the verdict and the exit code is 1.
#[test]
fn an_unsound_trace_has_a_verdict() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let good = std::fs::read(import(&folder, "yat_figure3")).expect("readable");
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cases = [
        (
            "cut",
            good[..good.len() - 60].to_vec(),
            "the recording ended",
        ),
        ("header", good[..10].to_vec(), "ends inside its file header"),
        ("middle", flipped(good.len() / 2), "the trace is damaged"),
        ("trailer", flipped(good.len() - 1), "the trailer is damaged"),
        ("version", flipped(16), "the file header's checksum"),
    ];
    for (name, bytes, expected) in cases {
        let path = write(&folder, name, &bytes);
        let run = powerfail(&["trace", "check", &path]);
        assert_eq!(run.code, 1, "{name}: {}", run.stderr);
        let last = run.stdout.lines().last().expect("a verdict");
        assert!(last.starts_with("NOT sound: "), "{name}: {last}");
        assert!(last.contains(expected), "{name}: {last}");
        let run = powerfail(&["trace", "check", "--json", &path]);
        assert_eq!(run.code, 1, "{name}: {}", run.stderr);
        let value: Value = serde_json::from_str(&run.stdout).expect("JSON");
        assert_eq!(value["sound"], false, "{name}");
        assert_eq!(value["problems"].as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn a_trace_that_contradicts_its_final_image_is_not_sound() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("trace").display().to_string();
    let meta = Meta::default();
    let mut writer = TraceWriter::create(&path, &meta, WriterOptions::default()).expect("writable");
    let pool = writer
        .define_pool(&Pool {
            path: "pool".into(),
            kind: PoolKind::File,
            len_bytes: 4096,
            address: 0,
        })
        .expect("a good pool");
    let hash = ImageHash([7; 32]);
    let len_bytes = 4096;
    writer
        .finish(&[FinalImage {
            pool,
            len_bytes,
            hash,
        }])
        .expect("writable");
    let run = powerfail(&["trace", "check", &path]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert_eq!(
        run.stdout.lines().last(),
        Some("NOT sound: the stores do not give the final image of pool 0")
    );
}

/// A small trace can describe large pools.
#[test]
fn a_trace_that_needs_more_memory_than_allowed_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let events: Vec<String> = (0..100)
        .map(|event| {
            let line = event * 64;
            format!(r#"{{"t": 0, "op": "store", "line": {line}, "off": 0, "val": 1}}"#)
        })
        .collect();
    let text = format!(r#"{{"name": "pages", "events": [{}]}}"#, events.join(", "));
    let litmus = write(&folder, "pages.json", &text);
    let path = folder.path().join("trace").display().to_string();
    assert_eq!(
        powerfail(&["trace", "import", &litmus, "-o", &path]).code,
        0
    );
    for arguments in [
        &["trace", "states", &path][..],
        &["trace", "states", "--failure-points", "covering", &path],
        &["trace", "check", &path],
    ] {
        let too_little = [arguments, &["--memory-limit", "399K"]].concat();
        let run = powerfail(&too_little);
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.stdout);
        assert_eq!(
            run.stderr,
            format!(
                "error: {path}: this needs more than 399.0 KiB of memory; \
                 --memory-limit raises the limit\n"
            )
        );
        let enough = [arguments, &["--memory-limit", "400K"]].concat();
        assert_eq!(powerfail(&enough).code, 0, "{arguments:?}");
    }
}

#[test]
fn a_cut_trace_is_read_up_to_its_last_block_and_says_so() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = import(&folder, "yat_figure3");
    let bytes = std::fs::read(&path).expect("readable");
    let cut = write(&folder, "cut", &bytes[..bytes.len() - 60]);
    let events = powerfail(&["trace", "events", &cut]);
    assert_eq!(events.code, 0);
    assert_eq!(events.stdout.lines().count(), 18);
    assert!(
        events
            .stderr
            .contains("warning: the recording ended before"),
        "{}",
        events.stderr
    );
}

#[test]
fn bad_traces_are_one_sentence_and_exit_code_2() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = import(&folder, "yat_figure3");
    let good = std::fs::read(&path).expect("readable");
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    // `check` judges damaged traces; a file that is not a trace at all is refused by every command.
    let cases: [(&str, &[u8], &[&str]); 3] = [
        ("empty", b"", &["info", "events", "states", "check"]),
        (
            "noise",
            b"this is not a trace",
            &["info", "events", "states", "check"],
        ),
        ("flipped", &flipped, &["info", "events", "states"]),
    ];
    for (name, bytes, commands) in cases {
        let bad = write(&folder, name, bytes);
        for command in commands {
            let run = powerfail(&["trace", command, &bad]);
            assert_eq!(run.code, 2, "{name}: {command}: {}", run.stdout);
            assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
            assert!(
                run.stderr.starts_with(&format!("error: {bad}: ")),
                "{}",
                run.stderr
            );
        }
    }
    let folder_path = folder.path().to_str().expect("text");
    for path in ["/does/not/exist", folder_path] {
        let run = powerfail(&["trace", "info", path]);
        assert_eq!(
            (run.code, run.stderr.lines().count()),
            (2, 1),
            "{}",
            run.stderr
        );
    }
    let beyond = powerfail(&["trace", "states", "--at", "19", &path]);
    assert_eq!(beyond.code, 2);
    assert!(
        beyond.stderr.contains("beyond its 18 events"),
        "{}",
        beyond.stderr
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = import(&folder, "yat_figure3");
    let run = powerfail_into_closed_pipe(&["trace", "events", &path]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
}

#[test]
fn a_closed_standard_output_does_not_make_a_trace_sound() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let good = std::fs::read(import(&folder, "yat_figure3")).expect("readable");
    let cut = write(&folder, "cut", &good[..good.len() - 60]);
    let run = powerfail_into_closed_pipe(&["trace", "check", &cut]);
    assert_eq!(run.code, 1, "{}", run.stderr);
}

/// Opening a FIFO blocks until there is a writer.
#[test]
fn a_fifo_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("fifo").display().to_string();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo is part of coreutils").success());
    let run = powerfail(&["trace", "info", &path]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("not a regular file"), "{}", run.stderr);
}

#[test]
fn an_import_does_not_write_over_its_input() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let text = std::fs::read_to_string(litmus("traces/yat_figure3.json")).expect("readable");
    let input = write(&folder, "input.json", &text);
    let link = folder.path().join("link").display().to_string();
    std::os::unix::fs::symlink(&input, &link).expect("a link");
    for (output, words) in [
        (&input, "this is the input itself"),
        (&link, "it is a symbolic link"),
    ] {
        let run = powerfail(&["trace", "import", &input, "-o", output]);
        assert_eq!(run.code, 2, "{}", run.stdout);
        assert!(run.stderr.contains(words), "{}", run.stderr);
        assert_eq!(std::fs::read_to_string(&input).expect("readable"), text);
    }
}

#[test]
fn an_import_that_fails_leaves_what_was_there() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let long_mark = "x".repeat(1 << 21);
    // The name is stored in the metadata, which cannot hold a text of this length.
    let text = format!(r#"{{"name": "{}", "events": []}}"#, long_mark.repeat(3));
    let input = write(&folder, "input.json", &text);
    let output = write(&folder, "trace", "precious");
    let run = powerfail(&["trace", "import", &input, "-o", &output]);
    assert_eq!(run.code, 2, "{}", run.stdout);
    assert_eq!(
        std::fs::read_to_string(&output).expect("readable"),
        "precious"
    );
    let files = std::fs::read_dir(folder.path()).expect("readable").count();
    assert_eq!(files, 2, "no temporary file is left");
}

#[test]
fn an_import_numbers_threads_as_they_appear_and_keeps_those_of_loads() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let text = r#"{"name": "threads", "events": [
        {"t": 4000000000, "op": "load", "line": 0, "off": 0},
        {"t": 7, "op": "store", "line": 0, "off": 0, "val": 1},
        {"t": 4000000000, "op": "sfence"},
        {"t": 7, "op": "load", "line": 0, "off": 0}]}"#;
    let input = write(&folder, "input.json", text);
    let path = folder.path().join("trace").display().to_string();
    let run = powerfail(&["trace", "import", &input, "-o", &path]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let events = powerfail(&["trace", "events", "--json", &path]);
    let threads: Vec<u64> = events
        .stdout
        .lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line).expect("JSON");
            record["thread"].as_u64().expect("a number")
        })
        .collect();
    assert_eq!(threads, [0, 1, 0, 1]);
    assert_eq!(
        json(&powerfail(&["trace", "info", "--json", &path]))["threads"],
        2
    );
}

#[test]
fn programs_cannot_be_imported() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let output = folder
        .path()
        .join("trace")
        .to_str()
        .expect("text")
        .to_owned();
    let run = powerfail(&["trace", "import", &litmus("MP.json"), "-o", &output]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("import takes litmus traces"),
        "{}",
        run.stderr
    );
    assert!(!std::path::Path::new(&output).exists());
}

/// A log as pmemcheck writes it: two words of one line, flushed, and a third of another line.
const LOG: &str = "==7== pmemcheck-1.0, a simple persistent store checker\n\
    ==7== START|REGISTER_FILE;/mnt/pool;0x10000;0x2000;0x0|libpmem:begin|STORE;0x10040;0x0807060504030201;0x8\
    |STORE;0x10048;0xff;0x1;main (x.c:3)|FLUSH;0x10040;0x40|FENCE|STORE;0x11000;0x2a;0x4|STOP\n";

#[test]
fn a_log_of_pmemcheck_becomes_a_trace_and_a_log_again() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let log = write(&folder, "store.log", LOG);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (trace, exported, again) = (path("trace"), path("exported"), path("again"));
    let run = powerfail(&["trace", "import", &log, "-o", &trace]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(powerfail(&["trace", "check", &trace]).code, 0);
    let info = json(&powerfail(&["trace", "info", "--json", &trace]));
    assert_eq!(info["pools"][0]["path"], "/mnt/pool", "{info}");
    let states = json(&powerfail(&[
        "trace", "states", "--json", "--at", "5", &trace,
    ]));
    assert_eq!(
        states["distinct"], "2",
        "only the last store is uncertain: {states}"
    );
    // The way back, and there again: the same events.
    let run = powerfail(&["trace", "export", &trace, "-o", &exported]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let run = powerfail(&["trace", "import", &exported, "-o", &again]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let events = |trace: &str| powerfail(&["trace", "events", trace]).stdout;
    assert_eq!(events(&again), events(&trace));
    assert_eq!(events(&trace).lines().count(), 5, "{}", events(&trace));
}

#[test]
fn what_a_log_held_before_is_given() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let log = write(&folder, "store.log", LOG);
    let before = write(&folder, "before", &"x".repeat(0x2000));
    let trace = folder.path().join("trace").display().to_string();
    let run = powerfail(&["trace", "import", &log, "--initial", &before, "-o", &trace]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(powerfail(&["trace", "check", &trace]).code, 0);
    // What is wrong with a log is said, and nothing is written.
    let refused = |text: &str, words: &str| {
        let log = write(&folder, "wrong.log", text);
        let out = folder.path().join("none").display().to_string();
        let run = powerfail(&["trace", "import", &log, "-o", &out]);
        assert_eq!(run.code, 2, "{}", run.stdout);
        assert!(run.stderr.contains(words), "{}", run.stderr);
        assert!(!run.stderr.contains(&out), "{}", run.stderr);
        assert!(!std::path::Path::new(&out).exists());
    };
    refused("START|FENCE", "no STOP");
    refused("START|FENCE|STOP", "no file is registered");
    let register = "START|REGISTER_FILE;/p;0x1000;0x1000;0x0";
    refused(
        &format!("{register}|STORE;0x10;0x1;0x8|STOP"),
        "0x10 is in no registered file",
    );
    refused(
        &format!("{register}|STORE;0x1000;0x1;0x20|STOP"),
        "1 to 8 bytes",
    );
    let beyond = "beyond the last address";
    refused(
        &format!("{register}|FLUSH;0x1000;0xffffffffffffffff|STOP"),
        beyond,
    );
    // A short log would give a trace without end.
    refused(
        "START|REGISTER_FILE;/p;0x1000;0x1000000000000;0x0|FLUSH;0x1000;0x100000000000|STOP",
        "a flush has at most 4 GiB",
    );
    let after_end = "0x2003 is in no registered file";
    refused(&format!("{register}|STORE;0x1ffc;0x1;0x8|STOP"), after_end);
    refused(
        &format!("{register}|STORE;0x1000;zero;0x8|STOP"),
        "`zero` is not a number",
    );
}
