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
use crate::zygote::conversation::Conversation;
use crate::zygote::runtime::Runtime;
use crate::zygote::session::Running;
use crate::zygote::stack;

/// See the module header.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) stage: Stage,
    pub(crate) pid: i32,
    pub(crate) conversation: Rc<Conversation>,
    output: Rc<OwnedFd>,
    content: Option<Rc<OwnedFd>>,
    /// What it has written before it stopped: all executions begin with it.
    written: Capture,
    written_content: Vec<u8>,
    /// Files that it reads, and where it was in them: executions share the position.
    positions: Vec<(OwnedFd, u64)>,
}

impl Template {
    /// Makes one of a process that has stopped, unless executions would disturb each other.
    pub(crate) fn new(running: &mut Running, runtime: &Runtime) -> Result<Self, String> {
        let pid = running.pid;
        if stack::threads_of(pid).len() != 1 {
            return Err("it has several threads before it opens its pool".into());
        }
        if !stack::children_of(pid).is_empty() {
            return Err("it has children before it opens its pool".into());
        }
        let positions = positions(pid, runtime)?;
        let (Some(output), Some(conversation)) = (&running.output, &running.conversation) else {
            return Err("it closed its output before it opened its pool".into());
        };
        Ok(Self {
            stage: running.stage,
            pid,
            conversation: Rc::clone(conversation),
            output: Rc::clone(output),
            content: running.content.clone(),
            written: running.capture.clone(),
            written_content: running.content_bytes.clone(),
            positions,
        })
    }

    /// An execution that is about to be forked from it.
    pub(crate) fn running(&self) -> io::Result<Running> {
        for (file, position) in &self.positions {
            rustix::fs::seek(file, SeekFrom::Start(*position))?;
        }
        let mut running = Running::new(
            self.stage,
            0,
            Rc::clone(&self.output),
            self.content.clone(),
            self.written.clone(),
        );
        running.content_bytes.clone_from(&self.written_content);
        running.conversation = Some(Rc::clone(&self.conversation));
        Ok(running)
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

/// Where it is in the files that it reads.
fn positions(pid: i32, runtime: &Runtime) -> Result<Vec<(OwnedFd, u64)>, String> {
    let failed = |what: &str, error: io::Error| format!("{what}: {error}");
    let process = Pid::from_raw(pid).ok_or("it is gone")?;
    let process = rustix::process::pidfd_open(process, PidfdFlags::empty())
        .map_err(|error| failed("pidfd_open", error.into()))?;
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .map_err(|error| failed("looking at its files", error))?;
    let mut positions = Vec::new();
    for entry in entries.flatten() {
        let number = entry.file_name().to_str().and_then(|it| it.parse().ok());
        let Some(number) = number.filter(|it: &RawFd| !runtime.owns_number(*it)) else {
            continue;
        };
        let file = rustix::process::pidfd_getfd(&process, number, PidfdGetfdFlags::empty())
            .map_err(|error| failed("pidfd_getfd", error.into()))?;
        if is_same(&file, &runtime.file) || !is_regular(&file) {
            continue;
        }
        let flags = rustix::fs::fcntl_getfl(&file)
            .map_err(|error| failed("looking at its files", error.into()))?;
        if flags.contains(OFlags::PATH) {
            continue;
        }
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            return Err("it has a file open for writing before it opens its pool".into());
        }
        let position = rustix::fs::tell(&file)
            .map_err(|error| failed("looking at its files", error.into()))?;
        positions.push((file, position));
    }
    Ok(positions)
}

fn is_regular(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|it| FileType::from_raw_mode(it.st_mode).is_file())
}

fn is_same(file: &OwnedFd, shared: &crate::explore::ExploreFile) -> bool {
    let identity = |it: rustix::fs::Stat| (it.st_dev, it.st_ino);
    match (rustix::fs::fstat(file), rustix::fs::fstat(shared.as_fd())) {
        (Ok(file), Ok(shared)) => identity(file) == identity(shared),
        _ => false,
    }
}
