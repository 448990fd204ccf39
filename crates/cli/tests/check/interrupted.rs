//! An interrupted check leaves nothing behind: no process, no file, no mount.
//!
//! The program and its recovery execute one step at a time and wait for permission before each, so a test chooses the
//! step at which the signal arrives: steps spread over the whole run, and points during startup, before the first
//! step. What powerfail itself is doing at that moment is not controlled; every case must be harmless.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use powerfail_test_support::events::{Pipe, wait_for_entries, wait_for_file, wait_until_none_has};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{FINDINGS, Folder, SETUP};

/// The number of interrupted runs, and how many of them run at the same time.
const INTERRUPTIONS: usize = 100;
const WORKERS: usize = 4;
const KILLS: usize = 8;
/// More permissions than any run uses.
const ALL_STEPS: usize = 4096;

/// An environment variable that all processes of a run have.
const MARK: &str = "POWERFAIL_TEST_MARK";

/// When a run is interrupted.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Just after it was started.
    Started,
    /// When it has created the output directory.
    OutputMade,
    /// When it has created the directory of the pool.
    PoolMade,
    /// When this many steps are done and the next one is waiting.
    Step(usize),
}

impl Moment {
    /// The moment for each round. A quarter of the rounds interrupt early, because much happens there in a short time.
    fn of_round(round: usize, rounds: usize, steps: usize) -> Self {
        match round % 12 {
            0 => Self::Started,
            4 => Self::OutputMade,
            8 => Self::PoolMade,
            // Not the last steps: the run may finish before the signal arrives.
            _ => Self::Step(round * (steps * 9 / 10) / rounds),
        }
    }
}

/// A folder with the program, and its own mark.
struct Scene {
    folder: Folder,
    mark: String,
}

/// A run that advances step by step.
struct Paced {
    child: Child,
    arrived: Pipe,
    go: Pipe,
}

impl Scene {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Folder::new();
        folder.build_own("bug", "paced.c", &[]);
        fs::create_dir(folder.path("pm")).expect("a folder for pools");
        let mark = format!("{}-{number}", std::process::id());
        Self { folder, mark }
    }

    /// Starts a check with many failure points and a recovery that leaves a process behind.
    fn start(&self) -> Paced {
        let pipe = |name| {
            let path = self.folder.path(name);
            let _ = fs::remove_file(&path);
            Pipe::new(&path)
        };
        let (arrived, go) = (pipe("arrived"), pipe("go"));
        let _ = fs::remove_dir_all(self.folder.path("out"));
        // These are ignored where the tests run in the background, and powerfail would inherit that.
        let mut command = self.folder.command("env");
        command
            .arg("--default-signal=INT,TERM")
            .arg(env!("CARGO_BIN_EXE_powerfail"))
            .args(["check", "--failure-points", "store", "--per-stack", "4"])
            .args(["--jobs", "4", "--timeout", "100s"])
            .args(["--pm-dir", "pm", "--out", "out"])
            .args(["--recover", "./bug {pool} recover"])
            .args(["--", "./bug", "{pool}"])
            .env(MARK, &self.mark)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = command.spawn().expect("powerfail starts");
        Paced { child, arrived, go }
    }

    /// Runs a check to its end, and returns its process id and its number of steps.
    fn run(&self) -> (u32, usize) {
        let Paced { child, arrived, go } = self.start();
        let id = child.id();
        go.allow(ALL_STEPS);
        let output = child.wait_with_output().expect("an end");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(FINDINGS), "{errors}");
        self.wait_until_all_are_gone();
        (id, arrived.count())
    }

    /// Starts a check and sends it a signal at this moment. Returns its process id and how it ended.
    fn signalled(&self, moment: Moment, signal: Signal) -> (u32, Output) {
        let paced = self.start();
        let id = paced.child.id();
        match moment {
            Moment::Started => {}
            Moment::OutputMade => wait_for_file(&self.folder.path("out"), &paced.child),
            Moment::PoolMade => {
                let pools = self.folder.path("pm");
                wait_for_entries(&pools, "a pool", || !names_in(&pools).is_empty());
            }
            Moment::Step(step) => {
                paced.go.allow(step);
                for _ in 0..=step {
                    paced.arrived.wait(&paced.child);
                }
            }
        }
        let process = i32::try_from(id).ok().and_then(Pid::from_raw);
        kill_process(process.expect("an id"), signal).expect("a process that was not waited for");
        // Processes that are still running may end by themselves.
        paced.go.allow(ALL_STEPS);
        let output = paced.child.wait_with_output().expect("an end");
        self.wait_until_all_are_gone();
        (id, output)
    }

    /// Waits until no process of ours is alive.
    fn wait_until_all_are_gone(&self) {
        wait_until_none_has(&format!("{MARK}={}", self.mark));
    }

    /// The remaining files and mounts of a run with this process id.
    fn leftovers(&self, id: u32) -> Vec<String> {
        let mut left = Vec::new();
        for folder in ["pm", "tmp"] {
            left.extend(names_in(&self.folder.path(folder)));
        }
        let run = format!("powerfail-{id}-");
        let shared = names_in(Path::new("/dev/shm")).into_iter();
        left.extend(shared.filter(|name| name.starts_with(&run)));
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("a list of mounts");
        let ours = self.folder.text_path("");
        let of_run = |line: &&str| line.contains(&ours) || line.contains(&run);
        left.extend(mounts.lines().filter(of_run).map(str::to_owned));
        left
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names.map(|name| name.to_string_lossy().into()).collect()
}

/// Interrupts one run, and returns everything that is wrong.
fn interrupt(scene: &Scene, moment: Moment, signal: Signal) -> Vec<String> {
    let (id, output) = scene.signalled(moment, signal);
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut wrong = scene.leftovers(id);
    match (output.status.code(), output.status.signal()) {
        // Killed before it handled the signal.
        (None, Some(ended_by)) if ended_by == signal.as_raw() => {}
        (Some(SETUP), _) if errors.contains("error: interrupted") => {}
        // The earlier findings are reported, and so is the interruption.
        (Some(FINDINGS), _)
            if matches!(moment, Moment::Step(_)) && errors.contains("error: interrupted") => {}
        _ => wrong.push(format!("{}: {errors}", output.status)),
    }
    let told = wrong.into_iter();
    told.map(|wrong| format!("{signal:?} at {moment:?}: {wrong}"))
        .collect()
}

#[test]
fn interrupted_a_hundred_times() {
    let (_, steps) = Scene::new().run();
    assert!(steps > 50, "a run has only {steps} steps");
    let work = |worker: usize| {
        let scene = Scene::new();
        let rounds = (worker..INTERRUPTIONS).step_by(WORKERS);
        let complaints = rounds.flat_map(|round| {
            let moment = Moment::of_round(round, INTERRUPTIONS, steps);
            let signal = [Signal::INT, Signal::TERM][round / WORKERS % 2];
            interrupt(&scene, moment, signal)
        });
        complaints.collect::<Vec<_>>()
    };
    let complaints: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        let workers = workers.into_iter();
        workers
            .flat_map(|it| it.join().expect("a worker"))
            .collect()
    });
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn killed_and_started_again() {
    let scene = Scene::new();
    let (_, steps) = scene.run();
    let mut runs = Vec::new();
    for round in 0..KILLS {
        let moment = Moment::Step(round * steps / KILLS);
        let (id, _) = scene.signalled(moment, Signal::KILL);
        runs.push(id);
    }
    // The next run cleans up.
    runs.push(scene.run().0);
    for id in runs {
        assert_eq!(scene.leftovers(id), Vec::<String>::new(), "of {id}");
    }
}
