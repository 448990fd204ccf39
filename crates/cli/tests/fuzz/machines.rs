//! Campaigns on two machines. A machine is a network namespace here: nothing but a cable connects the two.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{CLEAN, Folder, Run};
use crate::running::{mark, send, start_by, wait_until, wait_until_all_are_gone};
use crate::ways::queue_has;
use crate::{folder, has_run, summary};

/// What one campaign begins with and the other cannot guess.
const WORDS: [&str; 2] = ["SALE", "GIFT"];
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const PORT: &str = "1337";
/// Shows that its namespaces exist, and keeps them until its input ends.
const HOLD: [&str; 3] = ["sh", "-c", "echo; exec cat"];

/// Two network namespaces in a user namespace, for which no rights are needed, and a cable. They end when it is dropped.
struct Machines([Child; 2]);

impl Machines {
    fn new() -> Self {
        let first = hold(&["unshare", "--user", "--map-root-user", "--net"]);
        let target = first.id().to_string();
        let inside = ["nsenter", "--preserve-credentials", "--user", "--target"];
        let second = hold(&[&inside[..], &[&target, "unshare", "--net"]].concat());
        let machines = Self([first, second]);
        let other = machines.0[1].id();
        let cable = format!("ip link add name cable0 type veth peer name cable1 netns {other}");
        machines.run(0, &cable);
        for (machine, address) in ADDRESSES.iter().enumerate() {
            let up = format!(
                "ip address add {address}/24 dev cable{machine} && ip link set cable{machine} up && ip link set lo up"
            );
            machines.run(machine, &up);
        }
        machines
    }

    /// How a program is executed on a machine.
    fn enter(&self, machine: usize) -> Vec<String> {
        let target = self.0[machine].id().to_string();
        let words = [
            "nsenter",
            "--preserve-credentials",
            "--user",
            "--net",
            "--target",
        ];
        let words = words.map(str::to_owned).into_iter();
        words.chain([target]).collect()
    }

    fn run(&self, machine: usize, script: &str) {
        let enter = self.enter(machine);
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).args(["sh", "-c", script]);
        assert!(command.status().expect("nsenter").success(), "{script}");
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for holder in &mut self.0 {
            // Its input ends.
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }
}

/// Executes a program that makes namespaces, and waits until they are made.
fn hold(by: &[&str]) -> Child {
    let mut command = Command::new(by[0]);
    command.args(&by[1..]).args(HOLD);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a program of util-linux");
    let mut line = String::new();
    let output = child.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "\n", "network namespaces can be made: {by:?}");
    child
}

/// A campaign on a machine, which begins with the word of that machine.
fn start_on(machines: &Machines, machine: usize, folder: &Folder, mark: &str) -> Child {
    let seeds = format!("seeds-{machine}");
    fs::create_dir(folder.path(&seeds)).expect("a folder");
    folder.write(&format!("{seeds}/word"), WORDS[machine]);
    let broker = format!("{}:{PORT}", ADDRESSES[0]);
    let out = format!("machine-{machine}");
    let mut arguments = vec!["--out", &out, "--seeds", &seeds];
    arguments.extend([["--broker", PORT], ["--join", &broker]][machine]);
    arguments.extend(["--check-with", "prefix", "--timeout", "10s", "--time", "1h"]);
    arguments.extend(["--jobs", "1", "--json", "--", "./shop", "{pool}"]);
    let enter = machines.enter(machine);
    let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
    start_by(&enter, folder, mark, &arguments)
}

/// The number of the test case whose whole input is a word.
fn number_of(folder: &Folder, out: &str, word: &str) -> Option<u64> {
    let inputs = fs::read_dir(folder.path(out).join("queue")).ok()?;
    let mut inputs = inputs.flatten();
    inputs.find_map(|entry| {
        let is_it = fs::read(entry.path()).ok()? == word.as_bytes();
        let name = entry.file_name().into_string().ok()?;
        is_it.then(|| name.strip_suffix(".input")?.parse().ok())?
    })
}

/// The lines of the journal of checks about a test case.
fn checks_of(folder: &Folder, out: &str, number: u64) -> Vec<Value> {
    let journal = fs::read_to_string(folder.path(out).join("checks.jsonl")).expect("a journal");
    let lines = journal.lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("a line"));
    lines.filter(|line| line["case"] == number).collect()
}

/// A test case came from another instance, and only that one checks it.
#[track_caller]
fn is_checked_elsewhere(folder: &Folder, out: &str, number: u64) {
    let checks = checks_of(folder, out, number);
    assert_eq!(checks.len(), 1, "{out}: {checks:?}");
    assert_eq!(checks[0]["elsewhere"], true, "{out}: {checks:?}");
}

#[test]
fn what_one_machine_finds_reaches_the_other_and_is_checked_once() {
    let folder = folder();
    let mark = mark("machines");
    let machines = Machines::new();
    let base = folder.path("");
    let broker = start_on(&machines, 0, &folder, &mark);
    wait_until(&base, &["machine-0/queue"], "the broker runs", || {
        queue_has(&folder, "machine-0", WORDS[0])
    });
    let joined = start_on(&machines, 1, &folder, &mark);
    let ways = [("machine-1", WORDS[0]), ("machine-0", WORDS[1])];
    for (out, word) in ways {
        let queue = format!("{out}/queue");
        wait_until(&base, &[&queue], "the word arrives", || {
            number_of(&folder, out, word).is_some()
        });
    }
    for child in [joined, broker] {
        send(&child, Signal::INT);
        has_run(&child.wait_with_output().expect("an end").into());
    }
    wait_until_all_are_gone(&mark);
    for (out, word) in ways {
        let number = number_of(&folder, out, word).expect("it has arrived");
        let shown = folder.powerfail(&["fuzz", "show", out, "--json"]);
        let shown = summary(&shown.ends_with(CLEAN));
        let mut cases = shown["cases"].as_array().expect("a list").iter();
        let case = cases.find(|case| case["number"] == number);
        let case = case.expect("it is shown");
        assert_eq!(case["entry"]["found_by"], "another machine", "{case}");
        is_checked_elsewhere(&folder, out, number);
    }
}

#[test]
fn a_resumed_instance_leaves_the_checks_of_others_to_them() {
    let folder = folder();
    fs::create_dir(folder.path("seeds")).expect("a folder");
    folder.write("seeds/word", WORDS[0]);
    let run = |flags: &[&str]| {
        let mut arguments = vec!["fuzz", "--jobs", "1", "--timeout", "10s"];
        arguments.extend(flags);
        arguments.extend(["--execs", "50", "--", "./shop", "{pool}"]);
        has_run(&folder.powerfail(&arguments));
    };
    run(&[
        "--out",
        "team",
        "--name",
        "a",
        "--seeds",
        "seeds",
        "--check-with",
        "none",
    ]);
    run(&["--out", "team", "--name", "b", "--check-with", "none"]);
    let number = number_of(&folder, "team/b", WORDS[0]).expect("it was read");
    run(&[
        "--out",
        "team",
        "--name",
        "b",
        "--resume",
        "--check-with",
        "prefix",
    ]);
    is_checked_elsewhere(&folder, "team/b", number);
    let own = number_of(&folder, "team/a", WORDS[0]).expect("it was given");
    run(&[
        "--out",
        "team",
        "--name",
        "a",
        "--resume",
        "--check-with",
        "prefix",
    ]);
    let checks = checks_of(&folder, "team/a", own);
    assert!(checks.iter().any(|line| line["done"] == true), "{checks:?}");
}

#[test]
fn the_recipe_for_slurm() {
    let folder = folder();
    fs::create_dir(folder.path("seeds")).expect("a folder");
    folder.write("seeds/word", WORDS[0]);
    let limits = ["--execs", "50", "--jobs", "1", "--check-with", "none"];
    let target = ["--timeout", "10s", "--", "./shop", "{pool}"];
    let mut arguments = vec!["fuzz", "--out", "the team", "--name", "first"];
    arguments.extend(["--seeds", "seeds"].into_iter().chain(limits).chain(target));
    has_run(&folder.powerfail(&arguments));
    folder.make_sbatch();
    // The second time the jobs are requeued, and resume their campaigns.
    for job in ["1", "2"] {
        let run: Run = folder
            .slurm_recipe("slurm-fuzz.sh")
            .args(["2", "the team"])
            .args(limits.into_iter().chain(target))
            .output()
            .expect("a shell")
            .into();
        let logs = ["1", "2"].map(|number| {
            let log = folder.path("the team").join(number).with_extension("log");
            fs::read_to_string(log).unwrap_or_default()
        });
        assert_eq!(run.ends_with(CLEAN).stdout.trim(), job, "{logs:?}");
        assert!(folder.path(&format!("jobs/{job}.ok")).exists(), "{logs:?}");
    }
    for out in ["the team/1", "the team/2"] {
        assert!(queue_has(&folder, out, WORDS[0]), "{out}");
    }
}
