//! Several instances: a find of one instance reaches the others.

use std::fs;
use std::net::TcpListener;

use rustix::process::Signal;

use crate::common::{CLEAN, Folder};
use crate::running::{mark, send, start, wait_until, wait_until_all_are_gone};
use crate::ways::queue_has;
use crate::{folder, has_run, summary};

/// No mutation creates this word by chance, and the target reacts to it with new coverage.
const WORD: &str = "SALE";

/// A directory with the word as a seed.
fn write_seed(folder: &Folder) {
    fs::create_dir(folder.path("seeds")).expect("a folder");
    folder.write("seeds/word", WORD);
}

#[test]
fn by_directories() {
    let folder = folder();
    write_seed(&folder);
    let run = |flags: &[&str]| {
        let mut arguments = vec!["fuzz", "--execs", "50", "--check-with", "none"];
        arguments.extend(flags);
        arguments.extend(["--timeout", "10s", "--", "./shop", "{pool}"]);
        has_run(&folder.powerfail(&arguments));
    };
    run(&["--out", "team", "--name", "a", "--seeds", "seeds"]);
    let queue = fs::read(folder.path("team/a/queue.jsonl")).expect("a queue");
    run(&["--out", "team", "--name", "b", "--seed", "1"]);
    run(&["--out", "alone", "--sync", "team"]);
    for out in ["team/b", "alone"] {
        assert!(queue_has(&folder, out, WORD), "{out}");
        let shown = folder.powerfail(&["fuzz", "show", out, "--json"]);
        let shown = summary(&shown.ends_with(CLEAN));
        let cases = shown["cases"].as_array().expect("a list");
        let is_from = |case: &serde_json::Value| {
            let from = case["entry"]["found_by"].as_str();
            from.is_some_and(|from| from.ends_with("team/a"))
        };
        assert!(cases.iter().any(is_from), "{out}: {cases:?}");
    }
    let untouched = fs::read(folder.path("team/a/queue.jsonl")).expect("a queue");
    assert_eq!(untouched, queue, "no other instance writes there");
}

#[test]
fn by_tcp() {
    let folder = folder();
    write_seed(&folder);
    let mark = mark("tcp");
    let port = {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.local_addr().expect("an address").port()
    };
    let (port, address) = (port.to_string(), format!("127.0.0.1:{port}"));
    let run = |flags: &[&str]| {
        let mut arguments = flags.to_vec();
        arguments.extend(["--check-with", "none", "--timeout", "10s", "--time", "1h"]);
        arguments.extend(["--jobs", "2", "--json", "--", "./shop", "{pool}"]);
        start(&folder, &mark, &arguments)
    };
    let broker = run(&["--out", "broker", "--broker", &port, "--seeds", "seeds"]);
    let base = folder.path("");
    wait_until(&base, &["broker/queue"], "the broker has the word", || {
        queue_has(&folder, "broker", WORD)
    });
    let joined = run(&["--out", "joined", "--join", &address]);
    wait_until(&base, &["joined/queue"], "the word arrives", || {
        queue_has(&folder, "joined", WORD)
    });
    for child in [joined, broker] {
        send(&child, Signal::INT);
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(CLEAN), "{output:?}");
    }
    wait_until_all_are_gone(&mark);
}

/// Campaigns that start at the same moment compete for the processors, also while their first recordings end.
#[test]
fn ten_start_at_once() {
    let folder = folder();
    write_seed(&folder);
    let mark = mark("ten");
    let campaigns: Vec<_> = (0..10)
        .map(|number| {
            let out = format!("out-{number}");
            let mut arguments = vec!["--out", &out, "--seeds", "seeds", "--execs", "1"];
            arguments.extend(["--jobs", "1", "--timeout", "10s"]);
            arguments.extend(["--check-with", "prefix", "--", "./shop", "{pool}"]);
            start(&folder, &mark, &arguments)
        })
        .collect();
    for child in campaigns {
        let output = child.wait_with_output().expect("an end");
        has_run(&output.into());
    }
    wait_until_all_are_gone(&mark);
}
