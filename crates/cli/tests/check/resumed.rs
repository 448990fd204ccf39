//! A killed run is resumed: its report is that of an undisturbed run, and no recovery runs twice.
//!
//! The recovery of `paced.c` waits for permission once in each execution, so a test chooses after how many executions the
//! run is killed, and counts them.

use std::fs;
use std::process::{Child, Stdio};

use powerfail_test_support::events::Pipe;

use crate::common::{CLEAN, FINDINGS, Folder, RECOVER, Run, SETUP};

/// More permissions than any run uses.
const ALL_STEPS: usize = 4096;

/// A folder with a trace of `paced.c`.
fn scene() -> Folder {
    let folder = Folder::new();
    folder.build_own("bug", "paced.c", &["-DALONE"]);
    let paced = start(
        &folder,
        &["record", "-o", "run.trace", "--", "./bug", "{pool}"],
    );
    let (recorded, _) = paced.run();
    recorded.ends_with(CLEAN);
    folder
}

struct Paced {
    child: Child,
    arrived: Pipe,
    go: Pipe,
}

fn start(folder: &Folder, arguments: &[&str]) -> Paced {
    let pipe = |name| {
        let path = folder.path(name);
        let _ = fs::remove_file(&path);
        Pipe::new(&path)
    };
    let (arrived, go) = (pipe("arrived"), pipe("go"));
    let child = folder
        .command(env!("CARGO_BIN_EXE_powerfail"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("powerfail starts");
    Paced { child, arrived, go }
}

impl Paced {
    /// Runs to the end. Returns how many steps that took.
    fn run(self) -> (Run, usize) {
        self.go.allow(ALL_STEPS);
        let output = self.child.wait_with_output().expect("an end");
        (output.into(), self.arrived.count())
    }

    /// Kills the run while it waits in the execution after these.
    fn kill_after(mut self, steps: usize) {
        self.go.allow(steps);
        for _ in 0..=steps {
            self.arrived.wait(&self.child);
        }
        self.child.kill().expect("a process");
        self.child.wait().expect("an end");
    }
}

fn crash(folder: &Folder, command: &[&str], out: &str, more: &[&str]) -> Paced {
    let mut arguments = command.to_vec();
    arguments.extend(["--recover", RECOVER, "--format", "json", "--jobs", "1"]);
    arguments.extend(["--timeout", "100s", "--out", out]);
    arguments.extend(more);
    start(folder, &arguments)
}

/// Kills runs after some numbers of executions, and resumes them.
fn goes_on_after_kills(command: &[&str], kills: usize) {
    let folder = scene();
    let (whole, steps) = crash(&folder, command, "whole", &[]).run();
    assert!([CLEAN, FINDINGS].contains(&whole.code), "{}", whole.stderr);
    // What a run that knows everything still does: recovery without a crash, to see that it works here.
    let (again, again_steps) = crash(&folder, command, "whole", &["--resume"]).run();
    assert_eq!(again.stdout, whole.stdout);
    assert!(again_steps * 3 < steps, "{again_steps} of {steps}");
    for number in 0..kills {
        let killed_after = again_steps + number * (steps - again_steps - 1) / (kills - 1).max(1);
        let out = format!("out-{number}");
        crash(&folder, command, &out, &[]).kill_after(killed_after);
        let (resumed, rest) = crash(&folder, command, &out, &["--resume"]).run();
        assert_eq!(resumed.stdout, whole.stdout, "after {killed_after}");
        assert_eq!(
            killed_after + rest,
            steps + again_steps,
            "killed after {killed_after} of {steps}"
        );
    }
}

#[test]
fn prefix_crashes_are_resumed() {
    goes_on_after_kills(&["crash", "run.trace", "--failure-points", "store"], 5);
}

#[test]
fn lost_lines_are_resumed() {
    goes_on_after_kills(&["crash", "run.trace", "--strategy", "lazy"], 3);
}

#[test]
fn unsafe_reads_are_resumed() {
    goes_on_after_kills(&["races", "run.trace"], 3);
}

#[test]
fn a_check_goes_on_without_recording_again() {
    let folder = Folder::new();
    folder.build_own("bug", "two_bugs.c", &[]);
    let first = folder.check(&["--out", "out"]).ends_with(FINDINGS);
    // What a kill in the middle would have left.
    let path = folder.path("out").join("outcomes");
    let bytes = fs::read(&path).expect("outcomes");
    fs::write(&path, &bytes[..bytes.len() * 2 / 3]).expect("a file that can be written");
    let trace = || fs::metadata(folder.path("out").join("run.trace")).expect("a trace");
    let recorded = trace().modified().expect("a time");
    let resumed = folder.check(&["--out", "out", "--resume"]);
    assert_eq!(resumed.stdout, first.stdout, "{}", resumed.stderr);
    assert!(
        resumed.stderr.contains("results of recoveries were known"),
        "{}",
        resumed.stderr
    );
    assert_eq!(trace().modified().expect("a time"), recorded);
}

#[test]
fn another_run_is_not_resumed() {
    let folder = Folder::new();
    folder.build_own("bug", "two_bugs.c", &[]);
    folder.record();
    let crash = |more: &[&str]| {
        let mut arguments = vec!["crash", "run.trace", "--recover", RECOVER, "--out", "out"];
        arguments.extend(more);
        folder.powerfail(&arguments)
    };
    crash(&[]).ends_with(FINDINGS);
    crash(&["--resume", "--seed", "9"]).is_refused_with(
        SETUP,
        &["outcomes of another run", "the options are others"],
    );
    let timeout = crash(&["--resume", "--timeout", "7s"]);
    timeout.is_refused_with(SETUP, &["outcomes of another run"]);
    crash(&["--resume", "--jobs", "1"]).ends_with(FINDINGS);
}
