//! Campaigns in the background: starts them, waits for their effects, and stops them. All waiting is for events.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, WatchFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use crate::common::Folder;

/// The environment variable that all processes of a campaign inherit.
const MARK: &str = "POWERFAIL_TEST_MARK";
/// The time limit for an event that is certain to happen.
const PATIENCE: Duration = Duration::from_mins(2);

/// `powerfail fuzz` with these arguments, in its own process group.
pub(crate) fn start(folder: &Folder, mark: &str, arguments: &[&str]) -> Child {
    start_by(&[], folder, mark, arguments)
}

/// The same, by a program that executes it.
pub(crate) fn start_by(by: &[&str], folder: &Folder, mark: &str, arguments: &[&str]) -> Child {
    // A shell ignores these signals in its background jobs, and powerfail would inherit that.
    let words = [by, &["env", "--default-signal=INT,TERM"]].concat();
    let mut command = folder.command(words[0]);
    command
        .args(&words[1..])
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

/// A unique mark for the processes of a test.
pub(crate) fn mark(test: &str) -> String {
    format!("{}-{test}", std::process::id())
}

/// Reads standard error until the campaign reports executions.
pub(crate) fn wait_until_it_runs(child: &mut Child) -> impl BufRead + use<> {
    let mut errors = BufReader::new(child.stderr.take().expect("standard error"));
    wait_for_line(&mut errors, " executions, ");
    errors
}

/// Reads lines until one has this text.
#[track_caller]
pub(crate) fn wait_for_line(from: &mut impl BufRead, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        let len = from.read_line(&mut line).expect("text");
        assert!(len > 0, "it ends without `{text}`");
    }
}

pub(crate) fn send(child: &Child, signal: Signal) {
    kill_process(id(child), signal).expect("it runs");
}

/// Kills its whole process group immediately.
pub(crate) fn kill_group(mut child: Child) {
    kill_process_group(id(&child), Signal::KILL).expect("it runs");
    child.wait().expect("an end");
}

fn id(child: &Child) -> Pid {
    let id = i32::try_from(child.id()).expect("an id");
    Pid::from_raw(id).expect("an id")
}

/// Waits for an event that is certain to happen and that changes files in these directories below `base`. They need
/// not exist yet.
#[track_caller]
pub(crate) fn wait_until(
    base: &Path,
    directories: &[&str],
    what: &str,
    mut has_happened: impl FnMut() -> bool,
) {
    let changes = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
    let deadline = Instant::now() + PATIENCE;
    loop {
        watch(&changes, base, directories);
        // Every change from here on is an event.
        if has_happened() {
            return;
        }
        assert!(wait_for(&changes, deadline), "not in {PATIENCE:?}: {what}");
        // The content of the events does not matter.
        rustix::io::read(&changes, &mut [0; 4096]).expect("events");
    }
}

/// Watches directories and all of their parents, from the outermost to the innermost: a directory created after its
/// parent is watched is an event, and one created before is watched itself.
fn watch(changes: &OwnedFd, base: &Path, directories: &[&str]) {
    let events = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::MOVED_TO
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::DELETE;
    inotify::add_watch(changes, base, events).expect("a directory");
    for directory in directories {
        let mut path = base.to_path_buf();
        for name in Path::new(directory) {
            path.push(name);
            if inotify::add_watch(changes, &path, events).is_err() {
                break;
            }
        }
    }
}

/// Waits until a descriptor is readable; returns false on timeout.
fn wait_for(descriptor: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("a short time");
        match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until no process with this mark is alive.
#[track_caller]
pub(crate) fn wait_until_all_are_gone(mark: &str) {
    let mark = format!("{MARK}={mark}");
    let deadline = Instant::now() + PATIENCE;
    while let Some((process, command)) = process_with(&mark) {
        assert!(wait_for(&process, deadline), "still alive: {command}");
    }
}

/// A process whose environment has this entry, with its command line.
fn process_with(mark: &str) -> Option<(OwnedFd, String)> {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    entries.into_iter().find_map(|entry| {
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let has_mark = || {
            let environment = read("environ");
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| variable == mark.as_bytes())
        };
        if !has_mark() {
            return None;
        }
        let id = entry.file_name().to_str()?.parse().ok()?;
        let process = pidfd_open(Pid::from_raw(id)?, PidfdFlags::empty()).ok()?;
        // The id may belong to another process by now.
        has_mark().then(|| {
            (
                process,
                String::from_utf8_lossy(&read("cmdline")).into_owned(),
            )
        })
    })
}

/// The files that a process has left in the directory for pools.
pub(crate) fn leftovers(id: u32) -> Vec<String> {
    let names = fs::read_dir("/dev/shm").expect("a folder").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.contains(&format!("-{id}-")))
        .collect()
}
