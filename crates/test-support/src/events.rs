//! Waiting for what other processes do: for a byte in a named pipe, for the end of a process, for a change in a
//! directory. The kernel reports each of these, so no test has to sleep or to ask again and again.
//!
//! Each wait has an end: [`PATIENCE`] is far beyond what anything takes, also on a busy machine, and what has not
//! happened by then is a failure.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, inotify, mknodat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How long something may take that is certain to happen.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// A named pipe between a test and the processes that it started.
///
/// The pipe is open at both ends from the start, so that opening it never blocks anyone. A process says that it
/// has reached a point with `echo > PIPE`, and waits for the test with `read line < PIPE`.
#[derive(Debug)]
pub struct Pipe {
    file: File,
}

impl Pipe {
    /// Makes it as a file of this name.
    pub fn new(path: &Path) -> Self {
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0).expect("a named pipe can be made");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(path)
            .expect("a named pipe can be opened");
        Self { file }
    }

    /// Waits until a process has written a byte; it must do so before this child ends.
    #[track_caller]
    pub fn wait(&self, child: &Child) {
        let end = end_of(child);
        let ready = wait_for(&[self.file.as_fd(), end.as_fd()], "a byte in the pipe");
        assert!(ready[0], "the process ended before it wrote to the pipe");
        let mut byte = [0];
        (&self.file).read_exact(&mut byte).expect("a byte");
    }

    /// How many bytes processes have written that were not waited for.
    pub fn count(&self) -> usize {
        let mut bytes = Vec::new();
        // Ends with an error when the pipe is empty, because it is open for writing.
        let _ = (&self.file).read_to_end(&mut bytes);
        bytes.len()
    }

    /// Writes lines, one for each read of a process.
    pub fn allow(&self, count: usize) {
        (&self.file)
            .write_all(&vec![b'\n'; count])
            .expect("the pipe has room");
    }
}

/// Waits until a process has ended. It may be a zombie then.
#[track_caller]
pub fn wait_for_end(process: u32) {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    // An error says that the process was waited for already.
    if let Ok(end) = pidfd_open(id.expect("a process id"), PidfdFlags::empty()) {
        wait_for(&[end.as_fd()], "the end of a process");
    }
}

/// Waits until no process is alive that has this variable, `NAME=value`, in its environment.
#[track_caller]
pub fn wait_until_none_has(variable: &str) {
    loop {
        let alive = processes_with(variable);
        if alive.is_empty() {
            return;
        }
        for process in alive {
            wait_for_end(process);
        }
    }
}

/// Waits until a file is there; it has to be before this child ends.
#[track_caller]
pub fn wait_for_file(path: &Path, child: &Child) {
    let end = end_of(child);
    let directory = path.parent().expect("a file in a directory");
    let changes = changes(directory);
    while !path.exists() {
        let what = path.display().to_string();
        let ready = wait_for(&[changes.as_fd(), end.as_fd()], &what);
        assert!(
            ready[0] || path.exists(),
            "the process ended before it made {what}"
        );
        drain(&changes);
    }
}

/// Waits until something has happened that changes the entries of a directory.
#[track_caller]
pub fn wait_for_entries(directory: &Path, what: &str, has_happened: impl Fn() -> bool) {
    let changes = changes(directory);
    while !has_happened() {
        wait_for(&[changes.as_fd()], what);
        drain(&changes);
    }
}

/// Can be read when an entry of this directory is made or removed.
fn changes(directory: &Path) -> OwnedFd {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let changes = inotify::init(flags).expect("changes can be watched");
    let kinds = inotify::WatchFlags::CREATE
        | inotify::WatchFlags::DELETE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::MOVED_FROM;
    inotify::add_watch(&changes, directory, kinds).expect("a directory that can be watched");
    changes
}

/// Can be read when a child has ended.
fn end_of(child: &Child) -> OwnedFd {
    let id = i32::try_from(child.id()).expect("a process id");
    let id = Pid::from_raw(id).expect("a process id");
    pidfd_open(id, PidfdFlags::empty()).expect("a child that was not waited for")
}

/// The processes that have this variable, `NAME=value`, in their environment.
fn processes_with(variable: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc")
        .expect("a list of processes")
        .flatten();
    let has_it = |entry: &fs::DirEntry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|it| it == variable.as_bytes())
    };
    let ids = entries
        .filter(has_it)
        .map(|entry| entry.file_name().to_string_lossy().parse());
    ids.filter_map(Result::ok).collect()
}

/// Waits until one of these can be read; says which can.
#[track_caller]
fn wait_for(files: &[std::os::fd::BorrowedFd<'_>], what: &str) -> Vec<bool> {
    let mut polled: Vec<_> = files
        .iter()
        .map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN))
        .collect();
    let patience = Timespec {
        tv_sec: PATIENCE.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    let ready = loop {
        match poll(&mut polled, Some(&patience)) {
            Err(rustix::io::Errno::INTR) => {}
            result => break result.expect("files that can be polled"),
        }
    };
    assert!(ready > 0, "not in {PATIENCE:?}: {what}");
    polled.iter().map(|it| !it.revents().is_empty()).collect()
}

fn drain(file: &OwnedFd) {
    let mut buffer = [0; 4096];
    while rustix::io::read(file, &mut buffer).is_ok_and(|len| len > 0) {}
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_byte_in_a_pipe_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let (here, there) = (
            directory.path().join("here"),
            directory.path().join("there"),
        );
        let (arrived, go) = (Pipe::new(&here), Pipe::new(&there));
        let script = "echo > here; read line < there; echo > here";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .current_dir(directory.path())
            .spawn()
            .expect("a shell");
        arrived.wait(&child);
        go.allow(1);
        arrived.wait(&child);
        assert!(child.wait().expect("an end").success());
    }

    #[test]
    fn a_process_that_ends_early_is_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = Pipe::new(&directory.path().join("pipe"));
        let mut child = Command::new("true").spawn().expect("a process");
        let result = catch_unwind(|| pipe.wait(&child));
        child.wait().expect("an end");
        assert!(result.is_err());
    }

    #[test]
    fn processes_are_found_by_their_environment() {
        let value = format!("POWERFAIL_TEST_MARK=support-{}", std::process::id());
        let (name, mark) = value.split_once('=').expect("a name");
        let mut child = Command::new("sh")
            .args(["-c", "read line"])
            .env(name, mark)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        // It has the variable as soon as it is the shell.
        assert_eq!(processes_with(&value), [child.id()]);
        drop(child.stdin.take());
        wait_until_none_has(&value);
        child.wait().expect("an end");
    }

    #[test]
    fn files_are_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        let mut child = Command::new("touch").arg(&file).spawn().expect("touch");
        wait_for_file(&file, &child);
        child.wait().expect("an end");
        let mut child = Command::new("rm").arg(&file).spawn().expect("rm");
        wait_for_entries(directory.path(), "no file", || !file.exists());
        child.wait().expect("an end");
    }

    #[test]
    fn a_process_that_makes_no_file_is_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut child = Command::new("true").spawn().expect("a process");
        let result = catch_unwind(|| wait_for_file(&directory.path().join("file"), &child));
        child.wait().expect("an end");
        assert!(result.is_err());
    }
}
