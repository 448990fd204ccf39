//! However a campaign is stopped, it ends with its summary, and nothing of it runs on.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{CLEAN, FINDINGS, Folder};
use crate::folder;

/// What the environment of all processes of a campaign has.
const MARK: &str = "POWERFAIL_TEST_MARK";
/// How long processes that were killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// A campaign that would run for an hour.
fn start(folder: &Folder, mark: &str, flags: &[&str]) -> Child {
    // Whoever runs the tests in the background has these ignored, and so would powerfail.
    let mut command = folder.command("env");
    command
        .arg("--default-signal=INT,TERM")
        .arg(env!("CARGO_BIN_EXE_powerfail"))
        .args(["fuzz", "--out", "out", "--time", "1h"])
        .args(flags)
        .args(["--", "./shop", "{pool}"])
        .env(MARK, mark)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("powerfail starts")
}

/// Reads standard error until the campaign has made executions.
fn wait_until_it_runs(child: &mut Child) -> impl BufRead + use<> {
    let mut errors = BufReader::new(child.stderr.take().expect("standard error"));
    let mut line = String::new();
    loop {
        line.clear();
        let len = errors.read_line(&mut line).expect("text");
        assert!(len > 0, "it ends before it runs");
        if line.contains(" executions, ") {
            return errors;
        }
    }
}

fn send(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id()).expect("an id");
    kill_process(Pid::from_raw(id).expect("an id"), signal).expect("it runs");
}

/// Waits until no process with this mark is alive.
fn wait_until_all_are_gone(mark: &str) {
    let mark = format!("{MARK}={mark}");
    let begun = Instant::now();
    loop {
        let alive = processes_with(&mark);
        if alive.is_empty() {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "still there: {alive:?}");
        std::thread::yield_now();
    }
}

/// The processes whose environment has this, with their command lines.
fn processes_with(mark: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("processes").flatten() {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment
            .split(|byte| *byte == 0)
            .any(|it| it == mark.as_bytes())
        {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&command).into_owned());
        }
    }
    found
}

/// What a process has left where pools are.
fn leftovers(id: u32) -> Vec<String> {
    let names = fs::read_dir("/dev/shm").expect("a folder").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.contains(&format!("-{id}-")))
        .collect()
}

#[test]
fn the_first_signal_ends_it_with_its_summary() {
    for (number, signal) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
        let folder = folder();
        let mark = format!("{}-first-{number}", std::process::id());
        let mut child = start(&folder, &mark, &["--json"]);
        let id = child.id();
        // Nobody reads it any more, which must not disturb.
        drop(wait_until_it_runs(&mut child));
        send(&child, signal);
        let output = child.wait_with_output().expect("an end");
        let code = output.status.code().expect("no signal");
        assert!([CLEAN, FINDINGS].contains(&code), "{:?}", output.status);
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a summary");
        assert_eq!(summary["interrupted"], true);
        wait_until_all_are_gone(&mark);
        assert_eq!(leftovers(id), Vec::<String>::new());
        assert_eq!(
            fs::read_dir(folder.path("tmp")).expect("a folder").count(),
            0
        );
    }
}

#[test]
fn killed_and_gone_on_with() {
    let folder = folder();
    let mark = format!("{}-killed", std::process::id());
    let mut child = start(&folder, &mark, &[]);
    let killed = child.id();
    let errors = wait_until_it_runs(&mut child);
    send(&child, Signal::KILL);
    child.wait().expect("an end");
    drop(errors);
    wait_until_all_are_gone(&mark);
    let run = folder.powerfail(&["fuzz", "--resume", "--out", "out", "--time", "1s", "--json"]);
    assert!([CLEAN, FINDINGS].contains(&run.code), "{run:?}");
    assert_eq!(
        leftovers(killed),
        Vec::<String>::new(),
        "the next one sweeps"
    );
}
