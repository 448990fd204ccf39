//! One run of the commands of a plan, one after another, and what becomes of them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use powerfail_protocol::explore::Order;

use crate::explore::Begun;
use crate::message::{End, PreparedReady, Refusal, RunReply};
use crate::substitute::with_port;
use crate::verdict::Stage;
use crate::zygote::conversation::Message;
use crate::zygote::kit::{Command, Kit};
use crate::zygote::runtime::cannot_preload;
use crate::zygote::session::{Ended, Session};
use crate::zygote::snapshots::Snapshots;
use crate::zygote::stages::ServerCommands;
use crate::zygote::template::Template;
use crate::zygote::{stack, system};

/// How often one looks whether a server is ready: often at first, as most are.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(20);
/// How long a server that dies may take to be gone after its client has noticed.
const SERVER_DIES: Duration = Duration::from_millis(50);
/// The status with which a shell says that SIGTERM ended a command.
const SHELL_TERMINATED: i32 = 128 + libc::SIGTERM;
/// How long a snapshot may take to say that an execution that was killed has ended.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// Why a run has no verdict, or has one early.
#[derive(Debug)]
pub(crate) enum Stopped {
    Reply(RunReply),
    /// It cannot be explored.
    Refused(Refusal),
    Trouble(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Trouble(error)
    }
}

/// How commands are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As they are.
    Plain,
    /// Forked from snapshots where that works.
    Snapshot,
    /// With the runtime in them, to be explored.
    Lazy,
}

/// One run.
pub(crate) struct Run<'r, 's, 'a> {
    pub(crate) session: Session<'s, 'a>,
    pub(crate) kit: &'r mut Kit,
    pub(crate) snapshots: &'r mut Snapshots,
    pub(crate) ok_exit: &'r [i32],
    pub(crate) mode: Mode,
    /// What the runtime wants to be known.
    pub(crate) warnings: Vec<String>,
    /// In a lazy run the commands so far, and how many choices were made before each.
    pub(crate) begun: Vec<Begun>,
    /// Whether a command was forked from a snapshot.
    pub(crate) by_snapshot: bool,
    /// The snapshot that the last command was forked from, while it runs.
    pub(crate) from: Option<Rc<Template>>,
}

impl<'r, 's, 'a> Run<'r, 's, 'a> {
    pub(crate) fn new(
        session: Session<'s, 'a>,
        kit: &'r mut Kit,
        snapshots: &'r mut Snapshots,
        ok_exit: &'r [i32],
        mode: Mode,
    ) -> Self {
        Self {
            session,
            kit,
            snapshots,
            ok_exit,
            mode,
            warnings: Vec::new(),
            begun: Vec::new(),
            by_snapshot: false,
            from: None,
        }
    }

    pub(crate) fn stages(
        &mut self,
        recover: &Command,
        server: Option<&ServerCommands>,
        checker: Option<&Command>,
        dump: Option<&Command>,
    ) -> Result<RunReply, Stopped> {
        match server {
            Some(server) => self.serve(recover, server)?,
            None => {
                self.judged(Stage::Recovery, recover)?;
            }
        }
        if let Some(checker) = checker {
            self.judged(Stage::Checker, checker)?;
        }
        let mut content = None;
        if let Some(dump) = dump {
            let place = self.judged(Stage::Dump, dump)?;
            content = Some(std::mem::take(
                &mut self.session.running[place].content_bytes,
            ));
        }
        Ok(RunReply::Success { dump: content })
    }

    /// Runs a command to its end, and whatever it left behind, and judges it.
    fn judged(&mut self, stage: Stage, command: &Command) -> Result<usize, Stopped> {
        let place = match self.snapshot_of(stage, command)? {
            Some(template) => self.fork_from(template)?,
            None => self.start(stage, command)?,
        };
        let waited = self.wait_for(place, place);
        if waited.is_err() || self.session.running[place].ended.is_none() {
            // It was refused, or its dump is too long: it need not go on.
            self.stop_execution(place)?;
        }
        waited?;
        self.from = None;
        self.session.end_all()?;
        if self.session.too_long(place) {
            return Err(Stopped::Reply(RunReply::DumpTooLong));
        }
        self.judge(place, false)?;
        Ok(place)
    }

    /// The snapshot of a command, if it is to be forked from one.
    pub(crate) fn snapshot_of(
        &mut self,
        stage: Stage,
        command: &Command,
    ) -> Result<Option<Rc<Template>>, Stopped> {
        if self.mode == Mode::Plain {
            return Ok(None);
        }
        let (session, kit) = (&mut self.session, &mut *self.kit);
        self.snapshots.of(stage, command, session, kit)
    }

    /// Starts an execution from a snapshot.
    pub(crate) fn fork_from(&mut self, template: Rc<Template>) -> Result<usize, Stopped> {
        self.begin(template.stage, true)?;
        template.conversation.forget()?;
        let running = template.running()?;
        let place = self.session.add(running);
        let ordered = template.conversation.order(Order::Run);
        self.by_snapshot = true;
        self.from = Some(template);
        if ordered.is_err() {
            return Err(self.lost());
        }
        Ok(place)
    }

    /// Starts a command that is not forked from a snapshot.
    fn start(&mut self, stage: Stage, command: &Command) -> Result<usize, Stopped> {
        // Clients and those who stop a server have no business with pools.
        let explored = self.mode == Mode::Lazy && !matches!(stage, Stage::Client | Stage::Stop);
        if explored {
            if let Some(reason) = cannot_preload(&command.prepared.program) {
                let reason = format!("the {stage} command: {reason}");
                return Err(Stopped::Refused(Refusal::not_explorable(reason)));
            }
            self.begin(stage, false)?;
        }
        let traced = self.session.tracer.is_some();
        match self.kit.start(stage, command, traced, explored)? {
            Ok(running) => Ok(self.session.add(running)),
            Err(error) => Err(cannot_start(stage, command, &error)),
        }
    }

    /// A command with the runtime in it begins.
    fn begin(&mut self, stage: Stage, from_snapshot: bool) -> io::Result<()> {
        if let Some(runtime) = &self.kit.runtime {
            runtime.file.nobody_runs()?;
            if self.mode == Mode::Lazy {
                self.snapshots
                    .use_sites(from_snapshot.then_some(stage), &runtime.file)?;
                self.begun.push(Begun {
                    stage,
                    choices: runtime.file.choice_count()?,
                    notes: runtime.file.note_count()?,
                });
            }
        }
        Ok(())
    }

    /// The snapshot is gone, and with it whatever was forked from it.
    pub(crate) fn lost(&mut self) -> Stopped {
        let reason = "its snapshot ended in the middle of a run";
        if let Some(template) = self.from.take() {
            self.snapshots.switch_off(template.stage, reason);
        }
        if let Err(error) = self.session.end_all() {
            return Stopped::Trouble(error);
        }
        Stopped::Reply(RunReply::Lost {
            reason: reason.into(),
        })
    }

    /// Waits for something to happen, and deals with what the runtime says.
    fn pump(&mut self, deadline: Instant) -> Result<(), Stopped> {
        self.session.pump(deadline)?;
        self.deal_with_messages()
    }

    fn deal_with_messages(&mut self) -> Result<(), Stopped> {
        let from = self.from.as_ref().map(|template| template.pid);
        for place in 0..self.session.running.len() {
            while let Some(said) = self.session.running[place].said.pop_front() {
                let running = &mut self.session.running[place];
                match said.what {
                    Message::AtSnapshot => {
                        self.snapshots.note_modules(running.stage, said.sender);
                        if let Some(conversation) = &running.conversation {
                            let _ = conversation.order(Order::Go);
                        }
                    }
                    // A branch says so, too, of those that it has forked: the execution goes on.
                    Message::Ended { .. } if from.is_some_and(|it| it != said.sender) => {}
                    Message::Ended { status } => running.ended = Ended::of_status(status),
                    Message::Refused(refusal) => return Err(Stopped::Refused(refusal)),
                    Message::NoSnapshot(_) => {}
                    Message::Warning(text) => self.warn(text),
                }
            }
        }
        if let Some(template) = &self.from
            && !self.session.is_kept(template.pid)
        {
            return Err(self.lost());
        }
        Ok(())
    }

    pub(crate) fn warn(&mut self, text: String) {
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Ends an execution that was forked from a snapshot.
    pub(crate) fn stop_execution(&mut self, place: usize) -> Result<(), Stopped> {
        let Some(template) = self.from.clone() else {
            return Ok(());
        };
        let deadline = Instant::now() + GRACE;
        self.session.goes_on();
        for process in template.children() {
            system::kill(process, libc::SIGKILL);
        }
        loop {
            match self.deal_with_messages() {
                // It was refused already.
                Ok(()) | Err(Stopped::Refused(_)) => {}
                Err(stopped) => return Err(stopped),
            }
            if self.session.running[place].ended.is_some() || Instant::now() >= deadline {
                break;
            }
            self.session.pump(deadline)?;
        }
        if self.session.running[place].ended.is_none() {
            self.session.give_up(template.pid)?;
            self.snapshots
                .switch_off(template.stage, "it does not end executions");
            self.session.running[place].ended = Some(Ended::Signaled(libc::SIGKILL));
        }
        self.from = None;
        Ok(())
    }

    /// A server, its client, and its end.
    fn serve(&mut self, recover: &Command, commands: &ServerCommands) -> Result<(), Stopped> {
        let server = self.start(Stage::Recovery, recover)?;
        self.wait_until_ready(server, &commands.ready)?;
        if let Some(client) = &commands.client {
            let client = self.start(Stage::Client, client)?;
            self.wait_for(client, server)?;
            system::kill(-self.session.running[client].pid, libc::SIGKILL);
            if self.end_of(client).is_some() {
                // If the server died, that is the cause; its sockets close before its end is seen.
                let deadline = Instant::now() + SERVER_DIES;
                while self.session.running[server].ended.is_none() && Instant::now() < deadline {
                    self.pump(deadline)?;
                }
                if self.session.running[server].ended.is_some() {
                    self.session.end_all()?;
                    self.judge(server, false)?;
                }
            }
            self.judge(client, false)?;
        }
        let signalled = commands.stop.is_none();
        match &commands.stop {
            Some(stop) => {
                let stop = self.start(Stage::Stop, stop)?;
                self.wait_for(stop, server)?;
                self.judge(stop, false)?;
            }
            None => system::kill(self.session.running[server].pid, libc::SIGTERM),
        }
        if !self.wait(server)? {
            return Err(self.hang(server, server, "it did not stop when it was told to"));
        }
        self.session.end_all()?;
        if commands.judge_exit {
            self.judge(server, signalled)?;
        } else if let Some(end @ End::Matched(_)) = self.end_of(server) {
            return Err(self.failure(server, end, ""));
        }
        Ok(())
    }

    fn wait_until_ready(&mut self, server: usize, ready: &PreparedReady) -> Result<(), Stopped> {
        let deadline = Instant::now() + self.kit.timeout;
        let mut look = FIRST_LOOK;
        loop {
            let is_ready = match ready {
                PreparedReady::Output(_) => self.session.running[server].capture.ready,
                PreparedReady::Port(port) => {
                    let port = port.unwrap_or(self.kit.port);
                    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                    TcpStream::connect_timeout(&address, LAST_LOOK).is_ok()
                }
                PreparedReady::Unix(path) => {
                    UnixStream::connect(with_port(path, self.kit.port)).is_ok()
                }
            };
            if is_ready {
                return Ok(());
            }
            if let Some(ended) = self.session.running[server].ended {
                self.session.end_all()?;
                let end = match ended {
                    Ended::Exited(status) => End::Exited(status),
                    Ended::Signaled(signal) => End::Signaled(signal),
                };
                return Err(self.failure(server, end, "it ended before it was ready"));
            }
            if Instant::now() >= deadline {
                return Err(self.hang(server, server, "it was not ready in time"));
            }
            let next = match ready {
                PreparedReady::Output(_) => deadline,
                _ => deadline.min(Instant::now() + look),
            };
            self.pump(next)?;
            look = LAST_LOOK.min(look * 2);
        }
    }

    /// Waits for a command; a hang is blamed on `culprit`, whose stack is taken.
    fn wait_for(&mut self, place: usize, culprit: usize) -> Result<(), Stopped> {
        if self.wait(place)? {
            return Ok(());
        }
        Err(self.hang(place, culprit, ""))
    }

    /// Whether it ended in time.
    fn wait(&mut self, place: usize) -> Result<bool, Stopped> {
        let deadline = Instant::now() + self.kit.timeout;
        while self.session.running[place].ended.is_none() && !self.session.too_long(place) {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            self.pump(deadline)?;
        }
        Ok(true)
    }

    /// How a command that ended failed, if it did.
    pub(crate) fn end_of(&self, place: usize) -> Option<End> {
        let running = &self.session.running[place];
        match running.ended? {
            Ended::Signaled(signal) => return Some(End::Signaled(signal)),
            Ended::Exited(0) => {}
            Ended::Exited(status) if self.ok_exit.contains(&status) => {}
            Ended::Exited(status) => return Some(End::Exited(status)),
        }
        let pattern = &self.kit.patterns.fail[running.capture.failed?];
        Some(End::Matched(pattern.as_str().into()))
    }

    /// Fails if the command did. `terminated`: it was sent SIGTERM, and may end of it.
    fn judge(&self, place: usize, terminated: bool) -> Result<(), Stopped> {
        match self.end_of(place) {
            None => Ok(()),
            Some(End::Signaled(libc::SIGTERM) | End::Exited(SHELL_TERMINATED)) if terminated => {
                Ok(())
            }
            Some(end) => Err(self.failure(place, end, "")),
        }
    }

    fn hang(&mut self, place: usize, culprit: usize, note: &str) -> Stopped {
        let process = match (&self.from, &self.kit.runtime) {
            (Some(template), Some(runtime)) => template.active(runtime),
            _ => Some(self.session.running[culprit].pid),
        };
        let backtrace = match self.session.tracer {
            Some(_) => None,
            None => process.and_then(stack::of_hang),
        };
        if let Err(stopped) = self.stop_execution(place) {
            return stopped;
        }
        if let Err(error) = self.session.end_all() {
            return Stopped::Trouble(error);
        }
        let mut failure = self.failure(place, End::TimedOut, note);
        if let Stopped::Reply(RunReply::Failure { backtrace: it, .. }) = &mut failure {
            *it = backtrace;
        }
        failure
    }

    pub(crate) fn failure(&self, place: usize, end: End, note: &str) -> Stopped {
        let running = &self.session.running[place];
        let mut output = running.capture.text();
        if !note.is_empty() {
            if !output.is_empty() && !output.ends_with('\n') {
                output.push('\n');
            }
            output.push_str("[powerfail: ");
            output.push_str(note);
            output.push_str("]\n");
        }
        Stopped::Reply(RunReply::Failure {
            stage: running.stage,
            end,
            output,
            backtrace: self
                .session
                .tracer
                .as_ref()
                .and_then(|it| it.crash(running.pid)),
        })
    }
}

fn cannot_start(stage: Stage, command: &Command, error: &io::Error) -> Stopped {
    Stopped::Reply(RunReply::CannotStart {
        stage,
        program: command.prepared.program.clone(),
        errno: error.raw_os_error().unwrap_or(0),
    })
}
