//! Input channels, seeds, images, dictionaries and grammars, and how operations are identified.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{CLEAN, FINDINGS, Folder};
use crate::running::{
    mark, send, start_shop, wait_until, wait_until_all_are_gone, wait_until_it_runs,
};
use crate::{folder, fuzz, has_run, summary, write_seeds};

/// Checks that the planted bug is found and replayed, with the target as its own recovery.
fn is_found(flags: &[&str], command: &[&str]) {
    let folder = folder();
    write_seeds(&folder);
    let mut arguments = vec![
        "fuzz",
        "--out",
        "out",
        "--timeout",
        "10s",
        "--seeds",
        "seeds",
    ];
    arguments.extend([
        "--until-found",
        "--time",
        "90s",
        "--check-with",
        "prefix",
        "--json",
    ]);
    arguments.extend(flags);
    arguments.push("--");
    arguments.extend(command);
    let run = folder.powerfail(&arguments);
    let summary = summary(&run.ends_with(FINDINGS));
    let finding = &summary["findings"][0]["finding"];
    assert_eq!(finding["code"], "PF0301", "{summary:#}");
    let id = finding["id"].as_str().expect("an id");
    let again = folder.powerfail(&["replay", id, "--out", "out"]);
    let again = again.ends_with(FINDINGS);
    assert!(
        again.stdout.contains("paid for nothing"),
        "{}",
        again.stdout
    );
}

#[test]
fn inputs_in_a_file() {
    is_found(
        &["--input", "file"],
        &["./shop", "{pool}", "file", "{input}"],
    );
}

#[test]
fn inputs_as_arguments() {
    is_found(
        &["--input", "args"],
        &["./shop", "{pool}", "args", "{input}"],
    );
}

/// Its recovery is the server as well, and ends although no client connects.
#[test]
fn inputs_from_clients() {
    is_found(&["--desock"], &["./shop", "{pool}", "serve"]);
}

#[test]
fn pools_to_begin_with() {
    let folder = folder();
    for (pool, commands) in [("pools/a", "abc"), ("pools/b/pool", "aa")] {
        fs::create_dir_all(folder.path("pools/b")).expect("a folder");
        folder.write("commands", commands);
        let status = folder
            .command("./shop")
            .arg(pool)
            .stdin(fs::File::open(folder.path("commands")).expect("a file"))
            .status();
        assert!(status.expect("a run").success());
    }
    let flags = ["--images", "pools", "--execs", "50", "--check-with", "none"];
    has_run(&fuzz(&folder, &flags));
    let shown = shown(&folder);
    let images = shown["images"].as_array().expect("a list").iter();
    let given: Vec<_> = images.filter(|image| image["name"].is_string()).collect();
    let names: Vec<_> = given.iter().map(|image| image["name"].as_str()).collect();
    assert_eq!(names, [Some("a"), Some("b")]);
    for (image, path) in given.iter().zip(["pools/a", "pools/b/pool"]) {
        let id = image["id"].as_str().expect("an id");
        let expected = fs::read(folder.path(path)).expect("a pool");
        assert_eq!(pool_of(&folder, id), expected, "{path}");
    }
    let cases = shown["cases"].as_array().expect("a list");
    assert!(!cases.is_empty());
    for case in cases {
        let is_given = given.iter().any(|image| image["id"] == case["image"]);
        assert!(is_given, "{case}");
    }
}

/// No mutation creates these words by chance.
#[test]
fn words_of_a_dictionary_and_inputs_of_a_grammar() {
    let folder = folder();
    folder.write("words", "# What ends it.\nkill=\"KILL\"\n");
    folder.write("grammar", "start = { letter } \"SALE\" ; letter = [a-h] ;");
    let mark = mark("words");
    let flags = [
        "--dict",
        "words",
        "--grammar",
        "grammar",
        "--check-with",
        "none",
        "--timeout",
        "10s",
    ];
    let mut child = start_shop(&folder, &mark, &flags);
    drop(wait_until_it_runs(&mut child));
    for word in ["KILL", "SALE"] {
        wait_until(&folder.path(""), &["out/queue"], word, || {
            queue_has(&folder, "out", word)
        });
    }
    send(&child, Signal::INT);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(CLEAN), "{output:?}");
    wait_until_all_are_gone(&mark);
}

/// Whether an input of a campaign has this word.
pub(crate) fn queue_has(folder: &Folder, out: &str, word: &str) -> bool {
    let inputs = fs::read_dir(folder.path(out).join("queue"));
    let mut inputs = inputs.into_iter().flatten().flatten();
    inputs.any(|entry| {
        let input = fs::read(entry.path()).unwrap_or_default();
        input
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    })
}

#[test]
fn call_stacks_and_real_time() {
    let folder = folder();
    fs::create_dir(folder.path("seeds")).expect("a folder");
    folder.write("seeds/all", "abaop");
    let run = |flags: &[&str]| {
        let mut all = vec!["--seeds", "seeds", "--execs", "20", "--check-with", "none"];
        all.extend(["--jobs", "1", "--timeout", "10s", "--json"]);
        all.extend(flags);
        let summary = summary(&fuzz(&folder, &all).ends_with(CLEAN));
        let made = time_of_pool(&folder);
        fs::remove_dir_all(folder.path("out")).expect("it was there");
        (summary["stats"]["pm_locations"].as_u64(), made)
    };
    let (locations, made) = run(&[]);
    let (more_locations, made_really) = run(&["--stacks", "--no-derandomise"]);
    assert!(
        more_locations > locations,
        "{more_locations:?} {locations:?}"
    );
    // Each query of the clock advances it by a microsecond.
    assert_eq!(made, 1_700_000_000);
    assert!(made_really > made + 1_000_000, "{made_really}");
}

/// The creation time in the first pool of a campaign.
fn time_of_pool(folder: &Folder) -> u64 {
    const MADE_AT: usize = 11 * 64;
    let shown = shown(folder);
    let mut images = shown["images"].as_array().expect("a list").iter();
    let first = images.find(|image| image["parent"].is_string());
    let id = first.expect("an image")["id"].as_str().expect("an id");
    let pool = pool_of(folder, id);
    u64::from_le_bytes(pool[MADE_AT..][..8].try_into().expect("a word"))
}

/// All inputs of a campaign.
fn shown(folder: &Folder) -> Value {
    let run = folder.powerfail(&["fuzz", "show", "out", "--json"]);
    summary(&run.ends_with(CLEAN))
}

/// The pool of an image.
fn pool_of(folder: &Folder, id: &str) -> Vec<u8> {
    let write = ["fuzz", "show", "out", "--image", id, "--to", "written"];
    folder.powerfail(&write).ends_with(CLEAN);
    let pool = fs::read(folder.path("written/pool")).expect("a pool");
    fs::remove_dir_all(folder.path("written")).expect("it was there");
    pool
}

#[test]
fn the_domain_is_that_of_the_target() {
    let folder = Folder::new();
    folder.build_at("bug", "check", "wrong_sync.c", &["-DBUG"]);
    write_seeds(&folder);
    let found = |options: &[&str], out: &str| {
        let mut words = vec!["fuzz", "--out", out, "--timeout", "10s", "--seeds", "seeds"];
        words.extend(["--until-found", "--time", "90s", "--check-with", "lint"]);
        words.push("--json");
        words.extend(options);
        words.extend(["--", "./bug", "{pool}"]);
        let summary = summary(&folder.powerfail(&words).ends_with(FINDINGS));
        summary["findings"][0]["finding"]["durable_by"].clone()
    };
    assert_eq!(found(&[], "detected"), "sync");
    assert_eq!(found(&["--domain", "adr"], "given"), Value::Null);
}
