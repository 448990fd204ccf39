//! A snapshot of a command: a process that has stopped just before it first touches a pool, from which
//! executions are forked.

use std::fs;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;

use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use crate::verdict::Stage;
use crate::zygote::capture::Capture;
use crate::zygote::processes::StartedCommand;
use crate::zygote::runtime::{NotPreloadable, Runtime};
use crate::zygote::runtime_socket::RuntimeSocket;
use crate::zygote::stack;

/// A process that has stopped just before it first touches a pool.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) stage: Stage,
    pub(crate) pid: i32,
    pub(crate) socket: Rc<RuntimeSocket>,
    output: Rc<OwnedFd>,
    content: Option<Rc<OwnedFd>>,
    /// What it wrote before it stopped: the output of every execution begins with it.
    written: Capture,
    written_content: Vec<u8>,
    /// Files that it reads, and its positions in them, which executions share.
    positions: Vec<(OwnedFd, u64)>,
}

/// Why a command has no snapshot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotObstacle {
    #[error("there is no runtime")]
    NoRuntime,
    #[error("its port is different each time")]
    PortChanges,
    #[error("its memory is limited, and the runtime needs some")]
    MemoryLimited,
    #[error(transparent)]
    NotPreloadable(NotPreloadable),
    #[error("{0}")]
    NotStarted(io::Error),
    #[error("it ended before it opened a pool")]
    EndedEarly,
    #[error("it did not open a pool within the timeout")]
    TimedOut,
    #[error("its child process opens the pool")]
    ChildOpensPool,
    #[error("it has several threads before it opens its pool")]
    Threads,
    #[error("it has children before it opens its pool")]
    Children,
    #[error("it closed its output before it opened its pool")]
    OutputClosed,
    #[error("it has a file open for writing before it opens its pool")]
    OpenForWriting,
    #[error("there are temporary files before it opens its pool")]
    TemporaryFiles,
    #[error("its open files cannot be examined: {0}")]
    Files(#[from] io::Error),
    #[error("its snapshot has ended")]
    Ended,
    #[error("its snapshot ended during a run")]
    EndedInRun,
    #[error("its snapshot does not end executions")]
    Stuck,
    /// The reason that the runtime gave.
    #[error("{0}")]
    Runtime(String),
}

impl From<rustix::io::Errno> for SnapshotObstacle {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Files(error.into())
    }
}

impl Snapshot {
    /// Makes a snapshot of a process that has stopped, unless executions would disturb each other.
    pub(crate) fn new(
        started: &mut StartedCommand,
        runtime: &Runtime,
    ) -> Result<Self, SnapshotObstacle> {
        let pid = started.pid;
        if stack::threads_of(pid).len() != 1 {
            return Err(SnapshotObstacle::Threads);
        }
        if !stack::children_of(pid).is_empty() {
            return Err(SnapshotObstacle::Children);
        }
        let positions = positions(pid, runtime)?;
        let (Some(output), Some(socket)) = (&started.output, &started.socket) else {
            return Err(SnapshotObstacle::OutputClosed);
        };
        Ok(Self {
            stage: started.stage,
            pid,
            socket: Rc::clone(socket),
            output: Rc::clone(output),
            content: started.content.clone(),
            written: started.capture.clone(),
            written_content: started.content_bytes.clone(),
            positions,
        })
    }

    /// An execution that is about to be forked from it.
    pub(crate) fn execution(&self) -> io::Result<StartedCommand> {
        for (file, position) in &self.positions {
            rustix::fs::seek(file, SeekFrom::Start(*position))?;
        }
        let mut started = StartedCommand::new(
            self.stage,
            0,
            Rc::clone(&self.output),
            self.content.clone(),
            self.written.clone(),
        );
        started.content_bytes.clone_from(&self.written_content);
        started.socket = Some(Rc::clone(&self.socket));
        Ok(started)
    }

    /// The execution that runs now.
    pub(crate) fn active(&self, runtime: &Runtime) -> Option<i32> {
        let said = runtime.file.active().filter(|pid| *pid != self.pid);
        said.or_else(|| {
            // The innermost one.
            let mut found = None;
            let mut process = self.pid;
            while let Some(child) = stack::children_of(process).first() {
                process = *child;
                found = Some(process);
            }
            found
        })
    }

    /// Its children: the root of all that was forked from it.
    pub(crate) fn children(&self) -> Vec<i32> {
        stack::children_of(self.pid)
    }
}

/// The positions of a process in the files that it reads.
fn positions(pid: i32, runtime: &Runtime) -> Result<Vec<(OwnedFd, u64)>, SnapshotObstacle> {
    let process =
        Pid::from_raw(pid).ok_or(SnapshotObstacle::Files(io::ErrorKind::NotFound.into()))?;
    let process = rustix::process::pidfd_open(process, PidfdFlags::empty())?;
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))?;
    let mut positions = Vec::new();
    for entry in entries.flatten() {
        let number = entry.file_name().to_str().and_then(|it| it.parse().ok());
        let Some(number) = number.filter(|it: &RawFd| !runtime.owns_number(*it)) else {
            continue;
        };
        let file = rustix::process::pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?;
        if is_same(&file, &runtime.file) || !is_regular(&file) {
            continue;
        }
        let flags = rustix::fs::fcntl_getfl(&file)?;
        if flags.contains(OFlags::PATH) {
            continue;
        }
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            return Err(SnapshotObstacle::OpenForWriting);
        }
        let position = rustix::fs::tell(&file)?;
        positions.push((file, position));
    }
    Ok(positions)
}

fn is_regular(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|it| FileType::from_raw_mode(it.st_mode).is_file())
}

fn is_same(file: &OwnedFd, shared: &crate::lazy::SharedFile) -> bool {
    let identity = |it: rustix::fs::Stat| (it.st_dev, it.st_ino);
    match (rustix::fs::fstat(file), rustix::fs::fstat(shared.as_fd())) {
        (Ok(file), Ok(shared)) => identity(file) == identity(shared),
        _ => false,
    }
}
