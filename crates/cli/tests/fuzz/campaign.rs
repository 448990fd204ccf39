//! A short campaign, the files that it creates, and resuming it.

use std::fs;

use crate::common::{CLEAN, FINDINGS, Folder, NOT_CHECKED, Run, SETUP};
use crate::{folder, fuzz, has_run, summary, write_seeds};

/// Runs until the planted bug is found; the time limits are far longer than that takes.
const UNTIL_FOUND: [&str; 9] = [
    "--timeout",
    "5s",
    "--seeds",
    "seeds",
    "--until-found",
    "--time",
    "90s",
    "--check-with",
    "lint,prefix",
];

/// A campaign that finds the planted bug.
fn found(folder: &Folder) -> Run {
    write_seeds(folder);
    let mut flags = UNTIL_FOUND.to_vec();
    flags.push("--json");
    fuzz(folder, &flags).ends_with(FINDINGS)
}

#[test]
fn a_planted_bug_is_found_and_shown_again() {
    let folder = folder();
    let summary = summary(&found(&folder));
    assert!(summary["stats"]["execs"].as_u64() > Some(1), "{summary}");
    assert!(summary["stats"]["pm_paths"].as_u64() > Some(1), "{summary}");
    assert!(
        summary["stats"]["crash_images"].as_u64() > Some(0),
        "{summary}"
    );
    assert_eq!(summary["interrupted"], false);
    let findings = summary["findings"].as_array().expect("a list");
    let planted = findings.iter().find(|it| it["finding"]["code"] == "PF0301");
    let planted = planted.unwrap_or_else(|| panic!("{summary:#}"));
    let id = planted["finding"]["id"].as_str().expect("an id");
    let again = folder.powerfail(&["replay", id, "--out", "out"]);
    assert!(
        again
            .ends_with(FINDINGS)
            .stdout
            .contains("paid for nothing")
    );

    // Its output can be listed, plotted and resumed.
    let shown = folder
        .powerfail(&["fuzz", "show", "out", "--cases", "--images"])
        .ends_with(CLEAN);
    for text in [
        "./shop {pool}",
        id,
        "test cases:",
        "images:",
        "power failed before event",
    ] {
        assert!(shown.stdout.contains(text), "no {text} in {}", shown.stdout);
    }
    let drawn = folder.powerfail(&["fuzz", "plot", "out"]).ends_with(CLEAN);
    assert!(drawn.stdout.contains(">PM paths<"), "{}", drawn.stdout);
    let more = folder.powerfail(&["fuzz", "--resume", "--out", "out", "--time", "1s", "--json"]);
    let more = crate::summary(&more.ends_with(FINDINGS));
    for number in [
        "time_s", "execs", "pm_paths", "corpus", "images", "findings",
    ] {
        let (before, after) = (&summary["stats"][number], &more["stats"][number]);
        assert!(
            after.as_f64() >= before.as_f64(),
            "{number}: {before} and then {after}"
        );
    }
}

#[test]
fn images_are_written_where_people_can_use_them() {
    let folder = folder();
    found(&folder);
    let run = folder
        .powerfail(&["fuzz", "show", "out", "--json"])
        .ends_with(CLEAN);
    let shown = summary(&run);
    let images = shown["images"].as_array().expect("a list");
    let crashed = images.iter().find(|image| image["failure_point"].is_u64());
    let id = crashed.expect("an image of a crash")["id"]
        .as_str()
        .expect("an id");
    let write = ["fuzz", "show", "out", "--image", &id[..20], "--to", "image"];
    folder.powerfail(&write).ends_with(CLEAN);
    let pool = fs::read(folder.path("image/pool")).expect("a pool");
    assert_eq!(pool.len(), 8192);
    // A second campaign would overwrite it.
    folder.powerfail(&write).is_refused_with(SETUP, &["image"]);
    let run = folder.powerfail(&["fuzz", "show", "out", "--image", "xyz", "--to", "other"]);
    run.is_refused_with(SETUP, &["xyz"]);
}

#[test]
fn a_directory_belongs_to_one_campaign() {
    let folder = folder();
    has_run(&fuzz(&folder, &["--execs", "200", "--check-with", "none"]));
    fuzz(&folder, &["--execs", "1"]).is_refused_with(SETUP, &["out", "--resume"]);
    let other = [
        "fuzz", "--resume", "--out", "out", "--", "./other", "{pool}",
    ];
    folder
        .powerfail(&other)
        .is_refused_with(SETUP, &["another command", "./shop {pool}"]);
    // The same command is accepted.
    let flags = ["--resume", "--execs", "400", "--check-with", "none"];
    has_run(&fuzz(&folder, &flags));
}

#[test]
fn lines_where_there_is_no_terminal() {
    let folder = folder();
    write_seeds(&folder);
    let run = fuzz(&folder, &UNTIL_FOUND).ends_with(FINDINGS);
    assert!(!run.stderr.contains('\u{1b}'), "{}", run.stderr);
    let line = run
        .stderr
        .lines()
        .find(|line| line.contains(" executions, "));
    assert!(
        line.is_some_and(|line| line.starts_with("[0:0")),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("error[PF0301]"), "{}", run.stderr);
    for text in [
        "executions in ",
        "PM paths over ",
        "error[PF0301]",
        "continue with: powerfail fuzz --resume --out out",
    ] {
        assert!(run.stdout.contains(text), "no {text} in {}", run.stdout);
    }
}

#[test]
fn fewer_and_shorter_test_cases() {
    let folder = folder();
    fs::create_dir(folder.path("seeds")).expect("a folder");
    // Most bytes of this input have no effect.
    folder.write(
        "seeds/long",
        "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzaxxxxxxxxxxxxxxxxxxxxxx",
    );
    let flags = ["--seeds", "seeds", "--execs", "300", "--check-with", "none"];
    has_run(&fuzz(&folder, &flags));
    let cases = |folder: &Folder| {
        let shown = folder.powerfail(&["fuzz", "show", "out", "--json"]);
        let shown = summary(&shown.ends_with(CLEAN));
        shown["cases"].as_array().expect("a list").clone()
    };
    let before = cases(&folder);
    let long = before
        .iter()
        .filter(|case| case["retired"].is_null())
        .max_by_key(|case| case["input_len_bytes"].as_u64());
    let long = long.expect("a test case");
    let number = long["number"].to_string();
    let run = folder
        .powerfail(&["fuzz", "tmin", "out", &number])
        .ends_with(CLEAN);
    assert!(run.stdout.contains("minimised from "), "{}", run.stdout);
    let after = cases(&folder);
    let old = after.iter().find(|case| case["number"] == long["number"]);
    let old = old.unwrap_or_else(|| panic!("test case {number} stays on disk"));
    // The campaign may have found the smaller one itself: then it is not added again.
    let replacement = old["retired"]["shortened"]["to"].as_u64();
    let replacement = replacement.unwrap_or_else(|| panic!("{old:#} has a replacement"));
    let new = after.iter().find(|case| case["number"] == replacement);
    let new = new.expect("the replacement is on disk");
    assert!(
        run.stdout.contains(&format!("test case {replacement:06}:")),
        "{}",
        run.stdout
    );
    assert!(new["input_len_bytes"].as_u64() < long["input_len_bytes"].as_u64());
    if after.len() > before.len() {
        assert_eq!(new["entry"]["minimised_from"].to_string(), number);
    }
    let run = folder.powerfail(&["fuzz", "cmin", "out"]).ends_with(CLEAN);
    assert!(run.stdout.contains("reach everything"), "{}", run.stdout);
    let kept = cases(&folder);
    assert_eq!(kept.len(), after.len(), "they stay on disk");
    let run = folder.powerfail(&["fuzz", "tmin", "out", "999999"]);
    run.is_refused_with(SETUP, &["999999"]);
}

#[test]
fn nothing_was_checked() {
    let folder = folder();
    write_seeds(&folder);
    let run = |flags: &[&str]| {
        let mut all = vec!["--seeds", "seeds", "--jobs", "1", "--timeout", "10s"];
        all.extend(flags);
        let run = fuzz(&folder, &all);
        fs::remove_dir_all(folder.path("out")).expect("it was there");
        run
    };
    let checks = ["--check-with", "prefix", "--execs", "700"];
    // A recovery that never looks at the pool, and one that always fails.
    for (recover, why) in [
        ("true", "recovery did not open the pool"),
        ("false", "recovery fails without any power failure"),
    ] {
        let run = run(&[&checks[..], &["--recover", recover]].concat()).ends_with(NOT_CHECKED);
        assert!(run.stdout.contains(why), "{recover}: {run:?}");
    }
    let flags = ["--check-with", "prefix", "--execs", "1", "--json"];
    let told = summary(&run(&flags).ends_with(NOT_CHECKED));
    assert_eq!(told["not_checked"], "no-time", "{told}");
    // Nothing was to be checked.
    let flags = ["--check-with", "none", "--execs", "123", "--json"];
    let told = summary(&run(&flags).ends_with(CLEAN));
    assert!(told.get("not_checked").is_none(), "{told}");
    assert_eq!(told["stats"]["execs"], 123, "{told}");
}
