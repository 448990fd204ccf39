//! `--heap`: memory that a program allocates is persistent.

use crate::common::{
    CLEAN, FINDINGS, Folder, UNSUPPORTED, is_found_and_its_twin_is_silent, line_of_store, planted,
};

const HEAP: &[&str] = &["--heap"];

#[test]
fn an_index_with_malloc_as_persistent_memory() {
    is_found_and_its_twin_is_silent("hash.c", &[], HEAP);
}

#[test]
fn an_index_with_operator_new() {
    is_found_and_its_twin_is_silent("tree.cpp", &[], HEAP);
}

#[test]
fn fresh_memory_may_hold_anything() {
    is_found_and_its_twin_is_silent("hash.c", &["-O2"], &["--heap=1M", "--fill", "0xa5"]);
}

#[test]
fn recovery_finds_what_was_acknowledged() {
    let folder = Folder::with("good", "hash.c", &[]);
    let options = [
        "--heap",
        "--ack",
        "stored ([0-9]+)",
        "--dump",
        "./good dump",
    ];
    let run = folder.check("good", &options).ends_with(CLEAN);
    assert!(run.report().findings.is_empty(), "{}", run.stdout);
    // A dump that lacks one of them shows that it is compared.
    let options = [
        "--heap",
        "--ack",
        "stored ([0-9]+)",
        "--dump",
        "./good dump | sed 1d",
    ];
    folder.check("good", &options).ends_with(FINDINGS);
}

#[test]
fn a_trace_remembers_the_heap() {
    let folder = Folder::with("bug", "hash.c", &["-DBUG"]);
    let record = ["record", "--heap", "-o", "run.trace", "--", "./bug"];
    folder.powerfail(&record).ends_with(CLEAN);
    assert!(!folder.path("run.trace.memory").exists());
    for strategy in ["eager", "lazy"] {
        let arguments = ["crash", "run.trace", "--strategy", strategy];
        let how = [
            "--recover",
            "./bug recover",
            "--format",
            "json",
            "--out",
            "out",
        ];
        let run = folder.powerfail(&[&arguments[..], &how].concat());
        let run = run.ends_with(FINDINGS);
        let found = run.errors();
        let lines: Vec<_> = found.iter().map(line_of_store).collect();
        assert!(lines.contains(&Some(planted("hash.c"))), "{}", run.stdout);
        for finding in found {
            let replay = ["replay", &finding.id, "--out", "out"];
            let again = folder.powerfail(&replay).ends_with(FINDINGS);
            assert!(again.stdout.contains("the same again"), "{}", again.stdout);
        }
    }
}

#[test]
fn a_second_failure_gives_nothing_out_again() {
    let folder = Folder::with("good", "hash.c", &[]);
    let run = folder.check("good", &["--heap", "--depth", "2", "--no-fork"]);
    let run = run.ends_with(CLEAN);
    let explored = run.report().totals.exploration.expect("it was explored");
    assert!(explored.second_failures > 0, "{explored:?}");
    assert!(run.report().findings.is_empty(), "{}", run.stdout);
}

#[test]
fn reads_of_recovery_are_watched_in_the_heap() {
    let folder = Folder::with("bug", "hash.c", &["-DBUG"]);
    let record = ["record", "--heap", "-o", "run.trace", "--", "./bug"];
    folder.powerfail(&record).ends_with(CLEAN);
    let how = ["--recover", "./bug recover", "--format", "json"];
    let run = folder.powerfail(&[&["races", "run.trace"][..], &how].concat());
    let run = run.ends_with(FINDINGS);
    let races = run.errors();
    let lines: Vec<_> = races.iter().filter_map(line_of_store).collect();
    let first = planted("hash.c");
    // Only the stores to the node.
    assert!(!lines.is_empty(), "{}", run.stdout);
    for line in lines {
        assert!((first..first + 3).contains(&line), "{}", run.stdout);
    }
}

#[test]
fn memory_that_was_used_before_is_not_initialised() {
    let folder = Folder::with("good", "recycled.c", &[]);
    folder.build("bug", "recycled.c", &["-DBUG"]);
    let uninitialised = |program: &str| -> Vec<_> {
        let program = format!("./{program}");
        let recover = format!("{program} recover");
        let record = ["record", "--heap", "-o", "run.trace", "--", &program];
        folder.powerfail(&record).ends_with(CLEAN);
        let how = [
            "races",
            "run.trace",
            "--format",
            "json",
            "--recover",
            &recover,
        ];
        let found = folder.powerfail(&how).report().findings;
        let found = found.iter().filter(|it| it.code.as_str() == "PF0703");
        found.map(|it| it.places.first()?.line).collect()
    };
    assert_eq!(uninitialised("bug"), [Some(planted("recycled.c"))]);
    assert!(uninitialised("good").is_empty());
}

#[test]
fn the_functions_keep_their_promises() {
    let folder = Folder::with("calls", "calls.c", &[]);
    for mode in ["patch", "trap"] {
        let arguments = [
            "record", "--heap", "--json", "--mode", mode, "--", "./calls",
        ];
        folder.powerfail(&arguments).ends_with(CLEAN).summary();
    }
}

#[test]
fn what_the_c_library_allocates_is_volatile() {
    let folder = Folder::with("talkative", "talkative.c", &[]);
    let arguments = ["record", "--heap", "--json", "--", "./talkative", "text"];
    let run = folder.powerfail(&arguments).ends_with(CLEAN);
    assert_eq!(run.summary()["pools"], serde_json::json!([]));
}

#[test]
fn threads_and_children_get_memory_of_their_own() {
    let folder = Folder::with("threads", "threads.c", &[]);
    for more in [&[][..], &["--schedule-seed", "3"]] {
        let arguments = [
            &["record", "--heap", "--json"][..],
            more,
            &["--", "./threads"],
        ];
        folder
            .powerfail(&arguments.concat())
            .ends_with(CLEAN)
            .summary();
    }
}

#[test]
fn a_second_process_finds_what_the_first_has_left() {
    let folder = Folder::with("good", "hash.c", &[]);
    let arguments = [
        "check",
        "--heap",
        "--format",
        "json",
        "--recover",
        "./good recover",
    ];
    let script = ["--", "sh", "-c", "./good && ./good recover"];
    let run = folder.powerfail(&[&arguments[..], &script].concat());
    let run = run.ends_with(CLEAN);
    assert!(run.report().findings.is_empty(), "{}", run.stdout);
}

#[test]
fn a_pool_and_the_heap_are_told_apart() {
    let folder = Folder::with("good", "both.c", &[]);
    folder.build("bug", "both.c", &["-DBUG"]);
    let check = |program: &str| {
        let program = format!("./{program}");
        let recover = format!("{program} {{pool}} recover");
        let what = ["check", "--heap", "--format", "json", "--recover", &recover];
        folder.powerfail(&[&what[..], &["--", &program, "{pool}"]].concat())
    };
    check("good").ends_with(CLEAN);
    let run = check("bug").ends_with(FINDINGS);
    let lines: Vec<_> = run.errors().iter().map(line_of_store).collect();
    assert_eq!(lines, [Some(planted("both.c"))], "{}", run.stdout);
}

#[test]
fn a_heap_that_is_too_small_is_said_to_be() {
    let folder = Folder::with("good", "hash.c", &[]);
    let run = folder.check("good", &["--heap=64K"]).ends_with(UNSUPPORTED);
    assert!(run.stderr.contains("--heap="), "{}", run.stderr);
    assert_eq!(folder.out(), ["run.trace"]);
}

#[test]
fn nothing_is_left_but_the_evidence() {
    let folder = Folder::with("bug", "hash.c", &["-DBUG"]);
    folder.check("bug", HEAP).ends_with(FINDINGS);
    let kept = [
        "coverage.json",
        "outcomes",
        "recovery.json",
        "report.json",
        "run.trace",
        "seal",
        "sources.json",
    ];
    assert_eq!(folder.out(), kept);
}

#[test]
fn programs_run_unchanged_without_powerfail() {
    let folder = Folder::with("hash", "hash.c", &[]);
    folder.build("tree", "tree.cpp", &[]);
    folder.build("static", "hash.c", &["-static"]);
    for program in ["hash", "tree", "static"] {
        folder.run(program, &[]).ends_with(0);
    }
    // Under powerfail, but without a persistent heap, allocated memory is ordinary memory.
    let run = folder.powerfail(&["record", "--json", "--", "./hash"]);
    let run = run.ends_with(CLEAN);
    assert_eq!(run.summary()["pools"], serde_json::json!([]));
}
