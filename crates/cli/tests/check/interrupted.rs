//! However a check is interrupted, nothing of it stays: no process, no file, no mount.
//!
//! The moments are chosen at random from a seed. What a moment meets depends on how fast everything is,
//! and so the moments are spread over a whole run; all of them have to be harmless.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{CLEAN, FINDINGS, Folder, SETUP};

/// How often a run is interrupted, and how many are at it at a time.
const INTERRUPTIONS: u64 = 100;
const WORKERS: u64 = 4;
/// How many runs are tried at most for an interruption: some end by themselves before it.
const ATTEMPTS_EACH: u64 = 5;
const KILLS: u64 = 8;

/// How long processes that were killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the environment of all processes of a run has.
const MARK: &str = "POWERFAIL_TEST_MARK";

/// Numbers that look random, from a seed: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// A folder with the slow program, and a mark of its own.
struct Scene {
    folder: Folder,
    mark: String,
}

impl Scene {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Folder::new();
        folder.build_own("bug", "many.c", &[]);
        fs::create_dir(folder.path("pm")).expect("a folder for pools");
        let mark = format!("{}-{number}", std::process::id());
        Self { folder, mark }
    }

    /// Starts a check with many failure points and a slow recovery that leaves a process behind.
    fn start(&self) -> Child {
        // Whoever runs the tests in the background has these ignored, and so would powerfail.
        let mut command = self.folder.command("env");
        command
            .arg("--default-signal=INT,TERM")
            .arg(env!("CARGO_BIN_EXE_powerfail"))
            .args(["check", "--failure-points", "store", "--per-stack", "4"])
            .args(["--jobs", "4", "--pm-dir", "pm", "--out", "out"])
            .args(["--recover", "./bug {pool} slow", "--", "./bug", "{pool}"])
            .env(MARK, &self.mark)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.spawn().expect("powerfail starts")
    }

    /// Waits until no process of ours is alive.
    fn wait_until_all_are_gone(&self) {
        let mark = format!("{MARK}={}", self.mark);
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

    /// What is left in files and mounts of a run with this process id.
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

/// The processes whose environment has this, with their command lines.
fn processes_with(mark: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")
        .expect("a list of processes")
        .flatten()
    {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        if variables.any(|variable| variable == mark.as_bytes()) {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let id = entry.file_name();
            let (id, command) = (id.to_string_lossy(), String::from_utf8_lossy(&command));
            found.push(format!("{id} {command}"));
        }
    }
    found
}

fn send(child: &Child, signal: rustix::process::Signal) {
    let id = i32::try_from(child.id()).expect("an id");
    let id = rustix::process::Pid::from_raw(id).expect("an id");
    // It may have ended by itself.
    let _ = rustix::process::kill_process(id, signal);
}

/// How long a run takes that nobody interrupts, with as many at a time as later.
fn whole_run(workers: u64) -> Duration {
    let run = || {
        let scene = Scene::new();
        let begun = Instant::now();
        let output = scene.start().wait_with_output().expect("an end");
        let took = begun.elapsed();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(FINDINGS), "{errors}");
        scene.wait_until_all_are_gone();
        took
    };
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..workers).map(|_| scope.spawn(run)).collect();
        let took = runs.into_iter().map(|run| run.join().expect("a run"));
        took.max().expect("a run")
    })
}

/// Interrupts one run; gives whether it was interrupted before its end, and what is wrong.
fn interrupt(
    scene: &Scene,
    moment: Duration,
    signal: rustix::process::Signal,
) -> (bool, Vec<String>) {
    let child = scene.start();
    let id = child.id();
    std::thread::sleep(moment);
    send(&child, signal);
    let output = child.wait_with_output().expect("an end");
    scene.wait_until_all_are_gone();
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut wrong = scene.leftovers(id);
    let interrupted = match (output.status.code(), output.status.signal()) {
        // Before it had begun with anything.
        (None, Some(ended_by)) => ended_by == signal.as_raw(),
        (Some(SETUP), _) => {
            if !errors.contains("error: interrupted") {
                wrong.push(format!("an end without a reason: {errors}"));
            }
            true
        }
        (Some(CLEAN | FINDINGS), _) => false,
        _ => {
            wrong.push(format!("{}: {errors}", output.status));
            false
        }
    };
    (interrupted, wrong)
}

/// Interrupts runs until as many as are wanted were interrupted before their end. Gives how many were,
/// and what is wrong.
fn interrupt_many(seed: u64, wanted: u64, whole: Duration) -> (u64, Vec<String>) {
    let mut random = Random(seed);
    let scene = Scene::new();
    let mut micros = u64::try_from(whole.as_micros()).expect("a short time");
    let (mut interrupted, mut complaints) = (0, Vec::new());
    for round in 0..wanted * ATTEMPTS_EACH {
        if interrupted == wanted {
            break;
        }
        // A quarter of them early: much happens in a short time there.
        let limit = if round % 4 == 0 { micros / 4 } else { micros };
        let moment = random.below(limit.max(1));
        let signal = if round % 2 == 0 {
            rustix::process::Signal::INT
        } else {
            rustix::process::Signal::TERM
        };
        let (was_interrupted, wrong) = interrupt(&scene, Duration::from_micros(moment), signal);
        if was_interrupted {
            interrupted += 1;
        } else {
            // Too late: the machine has less to do than when a whole run was measured.
            micros = u64::midpoint(micros, moment);
        }
        let told = wrong.into_iter();
        complaints.extend(told.map(|wrong| format!("{signal:?} after {moment} us: {wrong}")));
    }
    (interrupted, complaints)
}

#[test]
fn interrupted_a_hundred_times() {
    let whole = whole_run(WORKERS);
    let each = INTERRUPTIONS / WORKERS;
    let results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| scope.spawn(move || interrupt_many(worker, each, whole)))
            .collect();
        let workers = workers.into_iter();
        workers.map(|it| it.join().expect("a worker")).collect()
    });
    for (interrupted, complaints) in results {
        assert!(complaints.is_empty(), "{complaints:#?}");
        assert_eq!(interrupted, each, "signals do not interrupt");
    }
}

#[test]
fn killed_and_started_again() {
    let micros = u64::try_from(whole_run(1).as_micros()).expect("a short time");
    let mut random = Random(1000);
    let scene = Scene::new();
    let mut killed = Vec::new();
    for _ in 0..KILLS {
        let child = scene.start();
        killed.push(child.id());
        std::thread::sleep(Duration::from_micros(random.below(micros)));
        send(&child, rustix::process::Signal::KILL);
        child.wait_with_output().expect("an end");
        scene.wait_until_all_are_gone();
    }
    // The next one sweeps.
    let last = scene.start();
    let id = last.id();
    let output = last.wait_with_output().expect("an end");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(FINDINGS), "{errors}");
    scene.wait_until_all_are_gone();
    for id in killed.into_iter().chain([id]) {
        assert_eq!(scene.leftovers(id), Vec::<String>::new(), "of {id}");
    }
}
