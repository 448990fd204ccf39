//! Shares of a run and their merge: the report is that of one run, byte for byte, and a share that is lost is named.

use std::fs;

use crate::common::{CLEAN, FINDINGS, Folder, RECOVER, Run, SETUP, recipe};

/// Runs a command on `run.trace` as a whole.
fn whole(folder: &Folder, command: &[&str]) -> Run {
    let mut arguments = command.to_vec();
    arguments.extend(["--recover", RECOVER, "--format", "json", "--out", "whole"]);
    folder.powerfail(&arguments)
}

/// Runs one of its shares, in the directory that it has if none is given.
fn share(folder: &Folder, command: &[&str], number: usize, of: usize) -> Run {
    let share = format!("{number}/{of}");
    let mut arguments = command.to_vec();
    arguments.extend(["--recover", RECOVER, "--partition", &share]);
    // A share has done its work, whatever it has found.
    folder.powerfail(&arguments).ends_with(CLEAN)
}

fn merge(folder: &Folder, of: usize) -> Run {
    let directories: Vec<String> = (1..=of).rev().map(|it| directory(it, of)).collect();
    let mut arguments = vec!["merge", "--format", "json", "--out", "merged"];
    arguments.extend(directories.iter().map(String::as_str));
    folder.powerfail(&arguments)
}

fn directory(number: usize, of: usize) -> String {
    format!("powerfail-out.{number}-of-{of}")
}

/// How many results of recoveries were known, and how many were not.
fn counts(run: &Run) -> (u64, u64) {
    let line = run
        .stderr
        .lines()
        .find(|line| line.contains("results of recoveries were known"));
    let line = line.unwrap_or_else(|| panic!("no counts: {}", run.stderr));
    let numbers: Vec<u64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    (numbers[0], numbers[1])
}

/// Checks that merged shares give the report of one run. Returns it, and how many results were known and new.
#[track_caller]
fn shares_are_one_run(folder: &Folder, command: &[&str], of: usize) -> (Run, (u64, u64)) {
    let one = whole(folder, command);
    for number in 1..=of {
        share(folder, command, number, of);
    }
    let merged = merge(folder, of);
    assert_eq!(merged.stdout, one.stdout, "{}", merged.stderr);
    assert_eq!(merged.code, one.code);
    let kept = |out: &str| fs::read(folder.path(out).join("report.json")).expect("a report");
    assert_eq!(kept("merged"), kept("whole"));
    let counts = counts(&merged);
    (one, counts)
}

#[test]
fn a_check_of_one_bug() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/count_before_entry.c");
    folder.record();
    let (run, _) = shares_are_one_run(&folder, &["check", "--trace", "run.trace"], 3);
    assert_eq!(run.codes().len(), 1, "{}", run.stdout);
    // The evidence of the merged run is whole.
    let id = run.report().findings[0].id.clone();
    let replayed = folder.powerfail(&["replay", &id, "--out", "merged"]);
    replayed.ends_with(FINDINGS);
}

#[test]
fn a_check_of_several_bugs() {
    let folder = Folder::new();
    folder.build_own("bug", "two_bugs.c", &[]);
    folder.record();
    let command = ["check", "--trace", "run.trace", "--races", "--warnings"];
    let (run, _) = shares_are_one_run(&folder, &command, 2);
    assert!(run.codes().len() > 1, "{}", run.stdout);
}

#[test]
fn a_check_of_no_bug() {
    let folder = Folder::new();
    folder.build_planted("bug", "pass/atomicity/count_before_entry.c");
    folder.record();
    let (run, (known, new)) = shares_are_one_run(&folder, &["check", "--trace", "run.trace"], 4);
    run.ends_with(CLEAN);
    // What is new is the test whether recovery can fail, which only the whole run can ask for.
    assert!(known > new, "{known} known, {new} new");
}

#[test]
fn prefix_crashes_in_more_shares_than_some_have_work_for() {
    let folder = Folder::new();
    folder.build_own("bug", "many.c", &[]);
    folder.record();
    let command = [
        "crash",
        "run.trace",
        "--failure-points",
        "all",
        "--seed",
        "4",
    ];
    let (run, (known, new)) = shares_are_one_run(&folder, &command, 5);
    run.ends_with(FINDINGS);
    assert!(known > 2 * new, "{known} known, {new} new");
}

#[test]
fn all_combinations_and_all_observations() {
    let folder = Folder::new();
    folder.build_own("bug", "lost_lines.c", &["-DBUG=1"]);
    folder.record();
    for strategy in ["eager", "lazy"] {
        let command = ["crash", "run.trace", "--strategy", strategy];
        let (run, _) = shares_are_one_run(&folder, &command, 2);
        run.ends_with(FINDINGS);
    }
}

/// The result would replace a share before it is read.
#[test]
fn a_share_is_no_output_directory() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/count_before_entry.c");
    folder.record();
    for number in [1, 2] {
        share(&folder, &["crash", "run.trace"], number, 2);
    }
    let outcomes = || fs::read(folder.path(&directory(1, 2)).join("outcomes")).expect("outcomes");
    let before = outcomes();
    let (one, two) = (directory(1, 2), directory(2, 2));
    let out = format!("./{one}");
    let run = folder.powerfail(&["merge", &one, &two, "--out", &out]);
    let run = run.ends_with(SETUP);
    assert!(
        run.stderr.contains("is one of the shares"),
        "{}",
        run.stderr
    );
    assert!(outcomes() == before);
}

#[test]
fn unsafe_reads() {
    let folder = Folder::new();
    folder.build_planted("bug", "fail/atomicity/count_before_entry.c");
    folder.record();
    shares_are_one_run(&folder, &["races", "run.trace"], 2);
}

/// Runs a command that powerfail has named.
fn run_named(folder: &Folder, command: &str) -> Run {
    let words = command
        .strip_prefix("powerfail ")
        .expect("a command of ours");
    let mut shell = folder.command("sh");
    let binary = env!("CARGO_BIN_EXE_powerfail");
    shell.args(["-c", &format!("'{binary}' {words}")]);
    shell.output().expect("a shell").into()
}

/// The commands between backquotes.
fn named_commands(run: &Run) -> Vec<String> {
    let words = run.stderr.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

#[test]
fn a_share_that_is_lost_is_named_and_can_be_run_again() {
    let folder = Folder::new();
    folder.build_own("bug", "many.c", &[]);
    folder.record();
    let command = ["crash", "run.trace", "--per-stack", "4"];
    let one = whole(&folder, &command);
    for number in [1, 3] {
        share(&folder, &command, number, 3);
    }
    let (first, third) = (directory(1, 3), directory(3, 3));
    let missing = folder.powerfail(&["merge", &first, &third]);
    missing.is_refused_with(SETUP, &["share 2/3 is missing", "--partition 2/3"]);
    run_named(&folder, &named_commands(&missing)[0]).ends_with(CLEAN);

    // A share that was killed has no end.
    let path = folder.path(&third).join("outcomes");
    let bytes = fs::read(&path).expect("outcomes");
    fs::write(&path, &bytes[..bytes.len() - 20]).expect("a file that can be written");
    let second = directory(2, 3);
    let unfinished = folder.powerfail(&["merge", &first, &second, &third]);
    unfinished.is_refused_with(SETUP, &["share 3/3", "was not finished", "--resume"]);
    let resumed = run_named(&folder, &named_commands(&unfinished)[0]).ends_with(CLEAN);
    assert!(counts(&resumed).0 > 0, "{}", resumed.stderr);

    let merged = merge(&folder, 3);
    assert_eq!(merged.stdout, one.stdout, "{}", merged.stderr);
}

#[test]
fn what_are_not_the_shares_of_one_run_is_refused() {
    let folder = Folder::new();
    folder.build_own("bug", "two_bugs.c", &[]);
    folder.record();
    let command = ["crash", "run.trace"];
    share(&folder, &command, 1, 2);
    let (first, second) = (directory(1, 2), directory(2, 2));
    let twice = folder.powerfail(&["merge", &first, &first]);
    twice.is_refused_with(SETUP, &["share 1/2 is there twice"]);

    share(&folder, &["crash", "run.trace", "--seed", "2"], 2, 2);
    let options = folder.powerfail(&["merge", &first, &second]);
    options.is_refused_with(SETUP, &["not shares of one run", "the options are others"]);

    fs::rename(folder.path("run.trace"), folder.path("first.trace")).expect("a trace");
    folder.record();
    share(&folder, &command, 2, 2);
    let traces = folder.powerfail(&["merge", &first, &second]);
    traces.is_refused_with(
        SETUP,
        &["not shares of one run", "the trace is another one"],
    );

    let other = folder.powerfail(&["merge", "tmp"]);
    other.is_refused_with(SETUP, &["not the output directory"]);
    let shares = folder.check(&["--partition", "1/2"]);
    shares.is_refused_with(SETUP, &["--partition needs --trace"]);
}

/// A folder with a trace of a program with bugs, and the report of one check.
fn scene() -> (Folder, String) {
    let folder = Folder::new();
    folder.build_own("bug", "two_bugs.c", &[]);
    folder.record();
    let one = whole(&folder, &["check", "--trace", "run.trace"]);
    let report = one.ends_with(FINDINGS).stdout;
    (folder, report)
}

#[test]
fn the_recipe_for_gnu_parallel() {
    let (folder, report) = scene();
    let run: Run = folder
        .command(&recipe("parallel.sh"))
        .args(["3", "run.trace", "results", "--recover", RECOVER])
        .env("POWERFAIL", env!("CARGO_BIN_EXE_powerfail"))
        // Its notice asks to be cited, once for each user.
        .env("PARALLEL", "--will-cite")
        .output()
        .expect("a shell")
        .into();
    assert_eq!(run.stdout, report, "{}", run.stderr);
    assert_eq!(run.code, FINDINGS);
}

#[test]
fn the_recipe_for_slurm() {
    let (folder, report) = scene();
    folder.make_sbatch();
    let submit = |directory: &str, recover: &str| -> Run {
        folder
            .slurm_recipe("slurm.sh")
            .args(["2", "run.trace", directory, "--recover", recover])
            .output()
            .expect("a shell")
            .into()
    };
    let submitted = submit("the results", RECOVER).ends_with(CLEAN);
    assert_eq!(submitted.stdout, "2\n", "{}", submitted.stderr);
    let read = |name: &str| fs::read_to_string(folder.path(name)).unwrap_or_default();
    let log = read("the results/merge.log");
    assert_eq!(read("the results/report.json"), report, "{log}");
    assert!(folder.path("jobs/2.ok").exists(), "{log}");

    // Shares that fail are not merged.
    submit("failed", "./no-such-program {pool}").ends_with(CLEAN);
    assert!(folder.path("jobs/3.failed").exists());
    assert!(folder.path("jobs/4.never").exists());
}

#[test]
fn the_recipe_for_kubernetes() {
    let (folder, report) = scene();
    let text = fs::read_to_string(recipe("kubernetes.json")).expect("a manifest");
    let job: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&job["apiVersion"], &job["kind"]),
        (&"batch/v1".into(), &"Job".into())
    );
    let spec = &job["spec"];
    assert_eq!(spec["completionMode"], "Indexed");
    assert_eq!(spec["completions"], spec["parallelism"]);
    let shares = spec["completions"].as_u64().expect("a number");
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "OnFailure");
    let container = &pod["containers"][0];
    let mount = &container["volumeMounts"][0];
    assert_eq!(mount["name"], pod["volumes"][0]["name"]);
    assert_eq!(mount["mountPath"], container["workingDir"]);
    let words = container["command"].as_array().expect("a command");
    let words: Vec<&str> = words.iter().filter_map(serde_json::Value::as_str).collect();
    let [shell, "-c", script] = words[..] else {
        panic!("{words:?}");
    };
    // The program of the test instead of that of a user.
    let script = script.replace("./your-program --verify {pool}", RECOVER);
    let script = script.replace("exec powerfail", "exec \"$POWERFAIL\"");
    fs::create_dir(folder.path("shares")).expect("a folder");
    let mut arguments = vec!["merge".to_owned(), "--format".to_owned(), "json".to_owned()];
    for index in 0..shares {
        let run: Run = folder
            .command(shell)
            .args(["-c", &script])
            .env("JOB_COMPLETION_INDEX", index.to_string())
            .env("POWERFAIL", env!("CARGO_BIN_EXE_powerfail"))
            .output()
            .expect("a shell")
            .into();
        run.ends_with(CLEAN);
        arguments.push(format!("shares/{}", index + 1));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let merged = folder.powerfail(&arguments);
    assert_eq!(merged.stdout, report, "{}", merged.stderr);
}
