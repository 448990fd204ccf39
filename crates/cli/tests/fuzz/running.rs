//! Campaigns in the background: how they are started and stopped, and what is left of them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::common::Folder;

/// What the environment of all processes of a campaign has.
const MARK: &str = "POWERFAIL_TEST_MARK";
/// How long something may take that is certain to happen.
const PATIENCE: Duration = Duration::from_mins(2);

/// `powerfail fuzz` with these arguments, in a process group of its own.
pub(crate) fn start(folder: &Folder, mark: &str, arguments: &[&str]) -> Child {
    // Whoever runs the tests in the background has these ignored, and so would powerfail.
    let mut command = folder.command("env");
    command
        .arg("--default-signal=INT,TERM")
        .arg(env!("CARGO_BIN_EXE_powerfail"))
        .arg("fuzz")
        .args(arguments)
        .env(MARK, mark)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command.spawn().expect("powerfail starts")
}

/// A campaign on `./shop` that would run for an hour, into `out`.
pub(crate) fn start_shop(folder: &Folder, mark: &str, flags: &[&str]) -> Child {
    let mut arguments = vec!["--out", "out", "--time", "1h"];
    arguments.extend(flags);
    arguments.extend(["--", "./shop", "{pool}"]);
    start(folder, mark, &arguments)
}

/// A name for the processes of a test.
pub(crate) fn mark(test: &str) -> String {
    format!("{}-{test}", std::process::id())
}

/// Reads standard error until the campaign has made executions.
pub(crate) fn wait_until_it_runs(child: &mut Child) -> impl BufRead + use<> {
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

pub(crate) fn send(child: &Child, signal: Signal) {
    kill_process(id(child), signal).expect("it runs");
}

/// Ends everything in its process group at once.
pub(crate) fn kill_group(mut child: Child) {
    kill_process_group(id(&child), Signal::KILL).expect("it runs");
    child.wait().expect("an end");
}

fn id(child: &Child) -> Pid {
    let id = i32::try_from(child.id()).expect("an id");
    Pid::from_raw(id).expect("an id")
}

/// Waits for something that is certain to happen.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut has_happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !has_happened() {
        assert!(begun.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

/// Waits until no process with this mark is alive.
pub(crate) fn wait_until_all_are_gone(mark: &str) {
    let mark = format!("{MARK}={mark}");
    wait_until("all processes are gone", || {
        processes_with(&mark).is_empty()
    });
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
pub(crate) fn leftovers(id: u32) -> Vec<String> {
    let names = fs::read_dir("/dev/shm").expect("a folder").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.contains(&format!("-{id}-")))
        .collect()
}
