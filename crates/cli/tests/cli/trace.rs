//! `powerfail trace`, as users run it.

use std::io::Read;
use std::process::Stdio;

use crate::common::{Run, command, litmus, powerfail, write};
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
    // One sector holds lines 401180 and 4011c0 with 5 stores; another the 4 of 001080.
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
    assert_eq!(indexes(&["--thread", "1"]), [] as [u64; 0]);
    assert_eq!(indexes(&["--pool", "1"]), [] as [u64; 0]);
    let text = powerfail(&["trace", "events", "--limit", "1", &path]);
    assert_eq!(
        text.stdout,
        "         0    0  store        0:0x401182 +6 = 010101010101\n"
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
    assert_eq!(powerfail(&["trace", "check", &cut]).code, 1);
}

#[test]
fn bad_traces_are_one_sentence_and_exit_code_2() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = import(&folder, "yat_figure3");
    let good = std::fs::read(&path).expect("readable");
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let cases: [(&str, &[u8]); 3] = [
        ("empty", b""),
        ("noise", b"this is not a trace"),
        ("flipped", &flipped),
    ];
    for (name, bytes) in cases {
        let bad = write(&folder, name, bytes);
        for arguments in [
            ["trace", "info"],
            ["trace", "events"],
            ["trace", "states"],
            ["trace", "check"],
        ] {
            let run = powerfail(&[arguments[0], arguments[1], &bad]);
            assert_eq!(run.code, 2, "{name}: {arguments:?}: {}", run.stdout);
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
    let mut child = command()
        .args(["trace", "events", &path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let status = child.wait().expect("it ends");
    let mut complaint = String::new();
    child
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut complaint)
        .expect("text");
    assert_eq!((status.code(), complaint.as_str()), (Some(0), ""));
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
