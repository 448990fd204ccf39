//! The processes of one run: their output, their ends, and the end of all of them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::verdict::Stage;
use crate::zygote::branches::Branches;
use crate::zygote::capture::Capture;
use crate::zygote::conversation::{Conversation, Heard, Said};
use crate::zygote::system::{self, Waited};
use crate::zygote::tracer::{self, Tracer};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Signaled(i32),
}

impl Ended {
    /// From a status of `wait4`; nothing if it is not that of an end.
    pub(crate) fn of_status(status: i32) -> Option<Self> {
        if libc::WIFEXITED(status) {
            Some(Self::Exited(libc::WEXITSTATUS(status)))
        } else if libc::WIFSIGNALED(status) {
            Some(Self::Signaled(libc::WTERMSIG(status)))
        } else {
            None
        }
    }
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) stage: Stage,
    /// The process, if it is our child; 0 if it is forked from a snapshot.
    pub(crate) pid: i32,
    pub(crate) ended: Option<Ended>,
    /// What it writes, but for the content.
    pub(crate) output: Option<Rc<OwnedFd>>,
    pub(crate) capture: Capture,
    /// The standard output of a dump.
    pub(crate) content: Option<Rc<OwnedFd>>,
    pub(crate) content_bytes: Vec<u8>,
    /// With the runtime in it.
    pub(crate) conversation: Option<Rc<Conversation>>,
    /// What was said and not yet dealt with.
    pub(crate) said: VecDeque<Said>,
    /// If it is a tree of branches.
    pub(crate) branches: Option<Branches>,
}

impl Running {
    pub(crate) fn new(
        stage: Stage,
        pid: i32,
        output: Rc<OwnedFd>,
        content: Option<Rc<OwnedFd>>,
        capture: Capture,
    ) -> Self {
        Self {
            stage,
            pid,
            ended: None,
            output: Some(output),
            capture,
            content,
            content_bytes: Vec::new(),
            conversation: None,
            said: VecDeque::new(),
            branches: None,
        }
    }
}

/// What all runs share.
#[derive(Debug)]
pub(crate) struct Supervision<'a> {
    pub(crate) socket: &'a UnixStream,
    pub(crate) signals: OwnedFd,
    /// Whether this process is the first of its namespace.
    pub(crate) owns_namespace: bool,
    pub(crate) max_content_bytes: u64,
    /// Children that stay from run to run: snapshots.
    pub(crate) kept: Vec<i32>,
    /// The kernel's list of our children.
    children: Option<File>,
    buffer: Vec<u8>,
}

impl<'a> Supervision<'a> {
    pub(crate) fn new(
        socket: &'a UnixStream,
        owns_namespace: bool,
        max_content_bytes: u64,
    ) -> io::Result<Self> {
        Ok(Self {
            socket,
            signals: system::child_signals()?,
            owns_namespace,
            max_content_bytes,
            kept: Vec::new(),
            children: File::open("/proc/thread-self/children").ok(),
            buffer: vec![0; 64 << 10],
        })
    }
}

impl Supervision<'_> {
    /// The children of this process.
    fn children(&self) -> Vec<i32> {
        let mut bytes = vec![0; 4096];
        let mut len = 0;
        // At the beginning the list is made anew.
        while let Some(file) = &self.children
            && let Ok(more @ 1..) = file.read_at(&mut bytes[len..], len as u64)
        {
            len += more;
            if len == bytes.len() {
                bytes.resize(2 * len, 0);
            }
        }
        let text = String::from_utf8_lossy(&bytes[..len]);
        text.split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    }
}

/// The processes of one run.
#[derive(Debug)]
pub(crate) struct Session<'s, 'a> {
    supervision: &'s mut Supervision<'a>,
    pub(crate) running: Vec<Running>,
    pub(crate) tracer: Option<Tracer>,
    nobody_left: bool,
}

impl<'s, 'a> Session<'s, 'a> {
    pub(crate) fn new(supervision: &'s mut Supervision<'a>, traced: bool) -> Self {
        Self {
            supervision,
            running: Vec::new(),
            tracer: traced.then(Tracer::default),
            nobody_left: false,
        }
    }

    pub(crate) fn add(&mut self, running: Running) -> usize {
        self.nobody_left = false;
        if let Some(tracer) = &mut self.tracer {
            tracer.expect(running.pid);
        }
        self.running.push(running);
        self.running.len() - 1
    }

    /// Whether a dump has become too long.
    pub(crate) fn too_long(&self, place: usize) -> bool {
        self.running[place].content_bytes.len() as u64 > self.supervision.max_content_bytes
    }

    /// Waits for something to happen, until the deadline, and deals with it.
    pub(crate) fn pump(&mut self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let (child, gone) = {
            let mut watched = vec![
                PollFd::new(&self.supervision.signals, PollFlags::IN),
                PollFd::new(self.supervision.socket, PollFlags::RDHUP),
            ];
            for running in &self.running {
                let pipes = running.output.iter().chain(&running.content);
                watched.extend(pipes.map(|pipe| PollFd::new(&**pipe, PollFlags::IN)));
                let conversation = running.conversation.iter();
                watched.extend(conversation.map(|it| PollFd::new(&**it, PollFlags::IN)));
            }
            match poll(&mut watched, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            (
                !watched[0].revents().is_empty(),
                watched[1]
                    .revents()
                    .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR),
            )
        };
        if gone {
            // Nobody waits for the result any more.
            self.supervision.kept.clear();
            self.nobody_left = false;
            self.end_all()?;
            std::process::exit(0);
        }
        if child {
            let _ = rustix::io::read(&self.supervision.signals, &mut self.supervision.buffer);
            self.reap()?;
        }
        self.hear()?;
        // Afterwards: what ended has written all that it will.
        self.drain()
    }

    /// Takes note of what the runtime says.
    fn hear(&mut self) -> io::Result<()> {
        for running in &mut self.running {
            while let Some(conversation) = &running.conversation {
                match conversation.hear()? {
                    Heard::Said(said) => running.said.push_back(said),
                    Heard::Nothing => break,
                    Heard::Closed => running.conversation = None,
                }
            }
        }
        Ok(())
    }

    /// Reads what was written.
    fn drain(&mut self) -> io::Result<()> {
        let limit = self.supervision.max_content_bytes;
        let buffer = &mut self.supervision.buffer;
        for running in &mut self.running {
            while let Some(pipe) = &running.output {
                match rustix::io::read(pipe.as_fd(), &mut *buffer) {
                    Ok(0) => {
                        running.capture.end();
                        running.output = None;
                    }
                    Ok(len) => match &mut running.branches {
                        Some(branches) => branches.take(&mut running.capture, &buffer[..len]),
                        None => running.capture.take(&buffer[..len]),
                    },
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            while let Some(pipe) = &running.content {
                match rustix::io::read(pipe.as_fd(), &mut *buffer) {
                    Ok(0) => running.content = None,
                    Ok(len) => {
                        // One byte more than allowed says that it is too long.
                        let room = (limit + 1).saturating_sub(running.content_bytes.len() as u64);
                        let len = len.min(usize::try_from(room).unwrap_or(len));
                        running.content_bytes.extend_from_slice(&buffer[..len]);
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Takes note of children that ended or stopped.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            match system::wait(-1, false)? {
                Waited::Child(pid, status) => self.note(pid, status),
                Waited::Nothing => return Ok(()),
                Waited::NoChildren => {
                    self.nobody_left = true;
                    return Ok(());
                }
            }
        }
    }

    fn note(&mut self, pid: i32, status: i32) {
        let Some(ended) = Ended::of_status(status) else {
            if let Some(tracer) = &mut self.tracer {
                tracer.stopped(pid, status);
            }
            return;
        };
        self.supervision.kept.retain(|kept| *kept != pid);
        // Others are orphans, which became ours.
        if let Some(running) = self.running.iter_mut().find(|it| it.pid == pid) {
            running.ended.get_or_insert(ended);
        }
    }

    /// Whether a snapshot is still there.
    pub(crate) fn is_kept(&self, pid: i32) -> bool {
        self.supervision.kept.contains(&pid)
    }

    /// Somebody runs again, who is not our child.
    pub(crate) fn goes_on(&mut self) {
        self.nobody_left = false;
    }

    /// From now on a child stays from run to run.
    pub(crate) fn keep(&mut self, pid: i32) {
        self.supervision.kept.push(pid);
    }

    /// Ends a child that was to stay.
    pub(crate) fn give_up(&mut self, pid: i32) -> io::Result<()> {
        self.supervision.kept.retain(|kept| *kept != pid);
        self.nobody_left = false;
        self.end_all()
    }

    /// Ends everything that still runs, but for snapshots, and reads what it wrote last.
    pub(crate) fn end_all(&mut self) -> io::Result<()> {
        while !self.nobody_left {
            if self.supervision.kept.is_empty() {
                self.kill_all();
            } else if !self.kill_all_but_kept() {
                self.nobody_left = true;
                break;
            }
            match system::wait(-1, true)? {
                Waited::Child(pid, status) if libc::WIFSTOPPED(status) => {
                    // A tracee that stopped before it was ended: it goes on, to its end.
                    tracer::let_go(pid);
                }
                Waited::Child(pid, status) => self.note(pid, status),
                Waited::Nothing => {}
                Waited::NoChildren => self.nobody_left = true,
            }
        }
        self.drain()?;
        for running in &mut self.running {
            match &mut running.branches {
                Some(branches) => branches.end(&mut running.capture),
                None => running.capture.end(),
            }
        }
        Ok(())
    }

    fn kill_all(&self) {
        if self.supervision.owns_namespace {
            system::kill(-1, libc::SIGKILL);
            return;
        }
        let running = self.running.iter();
        for running in running.filter(|it| it.pid != 0 && it.ended.is_none()) {
            system::kill(-running.pid, libc::SIGKILL);
        }
        for child in self.supervision.children() {
            system::kill(child, libc::SIGKILL);
        }
    }

    /// Whether there was somebody to kill. Whoever loses its parent so becomes a child of ours.
    fn kill_all_but_kept(&self) -> bool {
        let mut children = self.supervision.children();
        children.retain(|child| !self.supervision.kept.contains(child));
        for child in &children {
            system::kill(*child, libc::SIGKILL);
        }
        !children.is_empty()
    }
}
