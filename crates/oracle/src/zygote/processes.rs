//! The processes of one run: their output, their ends, and the end of all of them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::message::Usage;
use crate::verdict::Stage;
use crate::zygote::branches::Branches;
use crate::zygote::capture::Capture;
use crate::zygote::runtime_socket::{Received, RuntimeSocket, SentMessage};
use crate::zygote::stack;
use crate::zygote::system::{self, Waited};
use crate::zygote::tracer::{self, Tracer};
use crate::zygote::usage;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Exited(i32),
    Signaled(i32),
}

impl Exit {
    /// From a status of `wait4`; `None` if the process has not ended.
    pub(crate) fn from_status(status: i32) -> Option<Self> {
        if libc::WIFEXITED(status) {
            Some(Self::Exited(libc::WEXITSTATUS(status)))
        } else if libc::WIFSIGNALED(status) {
            Some(Self::Signaled(libc::WTERMSIG(status)))
        } else {
            None
        }
    }
}

/// A command that was started in this run.
#[derive(Debug)]
pub(crate) struct StartedCommand {
    pub(crate) stage: Stage,
    /// The process, if it is a child of this one; 0 if it was forked from a snapshot.
    pub(crate) pid: i32,
    pub(crate) ended: Option<Exit>,
    /// The pipe of its output, except the content of a dump.
    pub(crate) output: Option<Rc<OwnedFd>>,
    pub(crate) capture: Capture,
    /// The pipe of its standard error, if that is not the same.
    pub(crate) errors: Option<OwnedFd>,
    /// The standard output of a dump.
    pub(crate) content: Option<Rc<OwnedFd>>,
    pub(crate) content_bytes: Vec<u8>,
    /// If it runs with the runtime.
    pub(crate) socket: Option<Rc<RuntimeSocket>>,
    /// Messages that were received and not yet handled.
    pub(crate) messages: VecDeque<SentMessage>,
    /// If it is a tree of forked branches.
    pub(crate) branches: Option<Branches>,
}

impl StartedCommand {
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
            errors: None,
            content,
            content_bytes: Vec::new(),
            socket: None,
            messages: VecDeque::new(),
            branches: None,
        }
    }
}

/// What lasts from one run to the next.
#[derive(Debug)]
pub(crate) struct Supervision<'a> {
    pub(crate) socket: &'a UnixStream,
    pub(crate) signals: OwnedFd,
    /// Whether this process is the first of its namespace.
    pub(crate) owns_namespace: bool,
    pub(crate) max_content_bytes: u64,
    /// For tests: readable when the current command is to time out, instead of waiting for that.
    expiry: Option<File>,
    /// How much commands may use, if that is restricted.
    pub(crate) usage: Option<Usage>,
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
        expiry: Option<File>,
    ) -> io::Result<Self> {
        Ok(Self {
            expiry,
            socket,
            signals: system::child_signals()?,
            owns_namespace,
            max_content_bytes,
            usage: None,
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
pub(crate) struct Processes<'s, 'a> {
    supervision: &'s mut Supervision<'a>,
    pub(crate) commands: Vec<StartedCommand>,
    pub(crate) tracer: Option<Tracer>,
    all_ended: bool,
    has_expired: bool,
}

impl<'s, 'a> Processes<'s, 'a> {
    pub(crate) fn new(supervision: &'s mut Supervision<'a>, tracer: Option<Tracer>) -> Self {
        Self {
            supervision,
            commands: Vec::new(),
            tracer,
            all_ended: false,
            has_expired: false,
        }
    }

    /// The deadline of a command that starts now, for [`Self::is_over`].
    pub(crate) fn deadline(&mut self, timeout: Duration) -> Instant {
        self.has_expired = false;
        Instant::now() + timeout
    }

    /// For tests: whether the current command is to time out.
    pub(crate) const fn has_expired(&self) -> bool {
        self.has_expired
    }

    /// All processes of the run, but for snapshots, which only wait for what was forked from them.
    pub(crate) fn descendants(&self) -> Vec<i32> {
        let mut found = self.supervision.children();
        let mut next = 0;
        while let Some(process) = found.get(next).copied() {
            for thread in stack::threads_of(process) {
                found.extend(stack::children_of_thread(process, thread));
            }
            next += 1;
        }
        found.retain(|it| !self.supervision.kept.contains(it));
        found
    }

    /// What the processes of the run use beyond their limits, in words. `kept_bytes` is memory that no process has for itself.
    pub(crate) fn excess(&self, kept_bytes: u64) -> Option<String> {
        let limits = self.supervision.usage.as_ref()?;
        usage::excess(&self.descendants(), kept_bytes, limits)
    }

    /// Whether a signal has stopped a process of the run.
    pub(crate) fn has_stopped(&self) -> bool {
        self.descendants().iter().any(|it| stack::is_stopped(*it))
    }

    /// Whether a deadline has passed.
    pub(crate) fn is_over(&self, deadline: Instant) -> bool {
        self.has_expired || Instant::now() >= deadline
    }

    pub(crate) fn add(&mut self, command: StartedCommand) -> usize {
        self.all_ended = false;
        if let Some(tracer) = &mut self.tracer {
            tracer.expect(command.pid);
        }
        self.commands.push(command);
        self.commands.len() - 1
    }

    /// Whether a dump has become too long.
    pub(crate) fn too_long(&self, place: usize) -> bool {
        self.commands[place].content_bytes.len() as u64 > self.supervision.max_content_bytes
    }

    /// Waits until something happens or the deadline passes, and handles it.
    pub(crate) fn pump(&mut self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let (child, gone, expired) = {
            let mut watched = vec![
                PollFd::new(&self.supervision.signals, PollFlags::IN),
                PollFd::new(self.supervision.socket, PollFlags::RDHUP),
            ];
            if let Some(expiry) = &self.supervision.expiry {
                watched.push(PollFd::new(expiry, PollFlags::IN));
            }
            for command in &self.commands {
                let pipes = command.output.iter().chain(&command.content);
                watched.extend(pipes.map(|pipe| PollFd::new(&**pipe, PollFlags::IN)));
                let errors = command.errors.iter();
                watched.extend(errors.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
                let socket = command.socket.iter();
                watched.extend(socket.map(|it| PollFd::new(&**it, PollFlags::IN)));
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
                self.supervision.expiry.is_some() && !watched[2].revents().is_empty(),
            )
        };
        if gone {
            // The oracle does not wait for the result any more.
            self.supervision.kept.clear();
            self.all_ended = false;
            self.end_all()?;
            std::process::exit(0);
        }
        if expired && let Some(expiry) = &self.supervision.expiry {
            let buffer = &mut self.supervision.buffer;
            self.has_expired |= rustix::io::read(expiry, buffer).is_ok_and(|len| len > 0);
        }
        if child {
            let _ = rustix::io::read(&self.supervision.signals, &mut self.supervision.buffer);
            self.reap()?;
            self.end_stopped_snapshots();
        }
        self.receive()?;
        // Afterwards: what ended has written all that it will.
        self.drain()
    }

    /// Receives the messages of runtimes.
    fn receive(&mut self) -> io::Result<()> {
        for command in &mut self.commands {
            while let Some(socket) = &command.socket {
                match socket.receive()? {
                    Received::Message(sent) => command.messages.push_back(sent),
                    Received::Nothing => break,
                    Received::Closed => command.socket = None,
                }
            }
        }
        Ok(())
    }

    /// Reads the output of all commands.
    fn drain(&mut self) -> io::Result<()> {
        let limit = self.supervision.max_content_bytes;
        let buffer = &mut self.supervision.buffer;
        for command in &mut self.commands {
            while let Some(pipe) = &command.output {
                match rustix::io::read(pipe.as_fd(), &mut *buffer) {
                    Ok(0) => {
                        command.capture.end();
                        command.output = None;
                    }
                    Ok(len) => match &mut command.branches {
                        Some(branches) => branches.take(&mut command.capture, &buffer[..len]),
                        None => command.capture.take(&buffer[..len]),
                    },
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            while let Some(pipe) = &command.errors {
                match rustix::io::read(pipe, &mut *buffer) {
                    Ok(0) => command.errors = None,
                    Ok(len) => command.capture.take_errors(&buffer[..len]),
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            while let Some(pipe) = &command.content {
                match rustix::io::read(pipe.as_fd(), &mut *buffer) {
                    Ok(0) => command.content = None,
                    Ok(len) => {
                        // One byte more than allowed says that it is too long.
                        let room = (limit + 1).saturating_sub(command.content_bytes.len() as u64);
                        let len = len.min(usize::try_from(room).unwrap_or(len));
                        command.content_bytes.extend_from_slice(&buffer[..len]);
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Waits for children that have ended or stopped.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            match system::wait(-1, false)? {
                Waited::Child(pid, status) => self.note(pid, status),
                Waited::Nothing => return Ok(()),
                Waited::NoChildren => {
                    self.all_ended = true;
                    return Ok(());
                }
            }
        }
    }

    /// A snapshot that was stopped can neither fork nor report the end of what it forked.
    fn end_stopped_snapshots(&self) {
        let kept = self.supervision.kept.iter();
        for snapshot in kept.filter(|it| system::has_stopped(**it)) {
            system::kill(*snapshot, libc::SIGKILL);
        }
    }

    fn note(&mut self, pid: i32, status: i32) {
        let Some(ended) = Exit::from_status(status) else {
            if let Some(tracer) = &mut self.tracer {
                tracer.stopped(pid, status);
            }
            return;
        };
        self.supervision.kept.retain(|kept| *kept != pid);
        // Others are orphans that this process adopted.
        if let Some(command) = self.commands.iter_mut().find(|it| it.pid == pid) {
            command.ended.get_or_insert(ended);
        }
    }

    /// Whether a snapshot is still alive.
    pub(crate) fn is_kept(&self, pid: i32) -> bool {
        self.supervision.kept.contains(&pid)
    }

    /// A process that is not a child of this one runs again.
    pub(crate) fn expect_more(&mut self) {
        self.all_ended = false;
    }

    /// Keeps a child alive from one run to the next.
    pub(crate) fn keep(&mut self, pid: i32) {
        self.supervision.kept.push(pid);
    }

    /// Ends a child that was kept.
    pub(crate) fn end_kept(&mut self, pid: i32) -> io::Result<()> {
        self.supervision.kept.retain(|kept| *kept != pid);
        self.all_ended = false;
        self.end_all()
    }

    /// Ends everything that still runs, but for snapshots, and reads what it wrote last.
    pub(crate) fn end_all(&mut self) -> io::Result<()> {
        while !self.all_ended {
            if self.supervision.kept.is_empty() {
                self.kill_all();
            } else if !self.kill_all_but_kept() {
                self.all_ended = true;
                break;
            }
            match system::wait(-1, true)? {
                Waited::Child(pid, status) if libc::WIFSTOPPED(status) => {
                    // A tracee that stopped before it was killed: it continues, and dies.
                    tracer::let_go(pid);
                }
                Waited::Child(pid, status) => self.note(pid, status),
                Waited::Nothing => {}
                Waited::NoChildren => self.all_ended = true,
            }
        }
        self.drain()?;
        for command in &mut self.commands {
            match &mut command.branches {
                Some(branches) => branches.end(&mut command.capture),
                None => command.capture.end(),
            }
        }
        Ok(())
    }

    fn kill_all(&self) {
        if self.supervision.owns_namespace {
            system::kill(-1, libc::SIGKILL);
            return;
        }
        let commands = self.commands.iter();
        for command in commands.filter(|it| it.pid != 0 && it.ended.is_none()) {
            system::kill(-command.pid, libc::SIGKILL);
        }
        for child in self.supervision.children() {
            system::kill(child, libc::SIGKILL);
        }
    }

    /// Whether there was a process to kill. Processes that lose their parent so become children of this one.
    fn kill_all_but_kept(&self) -> bool {
        let mut children = self.supervision.children();
        children.retain(|child| !self.supervision.kept.contains(child));
        for child in &children {
            system::kill(*child, libc::SIGKILL);
        }
        !children.is_empty()
    }
}
