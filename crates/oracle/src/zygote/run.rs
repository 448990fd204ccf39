//! One run of the commands of a plan, one after another, and what becomes of them.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use powerfail_protocol::explore::RecoveryOrder;

use crate::hang::HangKnowledge;
use crate::lazy::StageStart;
use crate::message::{Bytes, FailureKind, Patience, Refusal, RunReply, StartMode};
use crate::plan::{ResolvedCommand, ResolvedPlan, Server};
use crate::ready::Ready;
use crate::verdict::Stage;
use crate::zygote::file_access::FileAccess;
use crate::zygote::hang_watch::{Hang, HangRule, HangWatch};
use crate::zygote::launcher::{CommandObserver, Launcher};
use crate::zygote::processes::{Exit, Processes};
use crate::zygote::runtime::check_preload;
use crate::zygote::runtime_socket::Message;
use crate::zygote::snapshot::{Snapshot, SnapshotObstacle};
use crate::zygote::snapshots::Snapshots;
use crate::zygote::{stack, system};

/// How long a server that dies may take to end after its client has noticed.
const SERVER_DIES: Duration = Duration::from_millis(50);
/// The status of a shell whose command died of SIGTERM.
const SHELL_TERMINATED: i32 = 128 + libc::SIGTERM;
/// How long a snapshot may take to report the end of an execution that was killed.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// A command whose uses of files are watched has this many times as long.
const WATCHED_TIMES: u32 = 10;

/// Why a command may have died of SIGSYS.
const SIGNALLED_SUPERVISOR: &str = "a command gets SIGSYS when it sends a signal to every process or to the process that supervises it, or sets limits of that one";

/// The signal that ended the command of a shell, which exits with 128 and its number then.
fn crash_behind_shell(status: i32) -> Option<i32> {
    let crashes = [
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGSEGV,
        libc::SIGSYS,
    ];
    crashes.into_iter().find(|signal| 128 + signal == status)
}

/// Why a run ended before its last command succeeded.
#[derive(Debug)]
pub(crate) enum EarlyEnd {
    /// The outcome is known: a command failed, or could not be run.
    Reply(RunReply),
    /// The runtime refused the recovery.
    Refused(Refusal),
    /// The zygote could not do its part.
    Io(io::Error),
}

impl From<io::Error> for EarlyEnd {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How commands are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// On the image as it is.
    Run(StartMode),
    /// With the runtime, which decides what open lines hold.
    Lazy,
}

/// One run.
pub(crate) struct Run<'r, 's, 'a> {
    pub(crate) plan: &'r ResolvedPlan,
    pub(crate) processes: Processes<'s, 'a>,
    pub(crate) launcher: &'r mut Launcher,
    pub(crate) snapshots: &'r mut Snapshots,
    pub(crate) mode: Mode,
    pub(crate) patience: Patience,
    /// What earlier runs have shown.
    pub(crate) known: &'r HangKnowledge,
    /// What this run shows.
    pub(crate) shown: HangKnowledge,
    /// What the runtime warned about.
    pub(crate) warnings: Vec<String>,
    /// In a lazy run, the commands so far.
    pub(crate) stages: Vec<StageStart>,
    /// Whether a command was forked from a snapshot.
    pub(crate) from_snapshot: bool,
    /// The snapshot that the last command was forked from, while it runs.
    pub(crate) from: Option<Rc<Snapshot>>,
}

impl<'r, 's, 'a> Run<'r, 's, 'a> {
    pub(crate) fn new(
        plan: &'r ResolvedPlan,
        processes: Processes<'s, 'a>,
        launcher: &'r mut Launcher,
        snapshots: &'r mut Snapshots,
        mode: Mode,
        known: &'r HangKnowledge,
    ) -> Self {
        Self {
            plan,
            processes,
            launcher,
            snapshots,
            mode,
            patience: Patience::Full,
            known,
            shown: HangKnowledge::default(),
            warnings: Vec::new(),
            stages: Vec::new(),
            from_snapshot: false,
            from: None,
        }
    }

    /// Runs the commands of the plan, one after another.
    pub(crate) fn commands(&mut self) -> Result<RunReply, EarlyEnd> {
        let plan = self.plan;
        match &plan.server {
            Some(server) => self.serve(&plan.recover, server)?,
            None => {
                self.run_and_judge(Stage::Recovery, &plan.recover)?;
            }
        }
        if let Some(checker) = &plan.checker {
            self.run_and_judge(Stage::Checker, checker)?;
        }
        let mut content = None;
        if let Some(dump) = &plan.dump {
            let index = self.run_and_judge(Stage::Dump, dump)?;
            let bytes = &mut self.processes.commands[index].content_bytes;
            content = Some(Bytes(std::mem::take(bytes)));
        }
        Ok(RunReply::Success { dump: content })
    }

    /// Runs a command to its end, ends the processes that it left behind, and judges it.
    fn run_and_judge(
        &mut self,
        stage: Stage,
        command: &ResolvedCommand,
    ) -> Result<usize, EarlyEnd> {
        let index = match self.snapshot_of(stage, command)? {
            Some(snapshot) => self.fork_from(snapshot)?,
            None => self.start(stage, command)?,
        };
        let waited = self.wait_for(index, index);
        if waited.is_err() || self.processes.commands[index].ended.is_none() {
            // It was refused, or its dump is too long.
            self.stop_execution(index)?;
        }
        waited?;
        self.from = None;
        self.processes.end_all()?;
        if self.processes.too_long(index) {
            return Err(EarlyEnd::Reply(RunReply::DumpTooLong));
        }
        self.judge(index, false)?;
        Ok(index)
    }

    /// The snapshot of a command, if it is to be forked from one.
    pub(crate) fn snapshot_of(
        &mut self,
        stage: Stage,
        command: &ResolvedCommand,
    ) -> Result<Option<Rc<Snapshot>>, EarlyEnd> {
        let uses_snapshots = matches!(
            self.mode,
            Mode::Run(StartMode::ForkFromSnapshot) | Mode::Lazy
        );
        if !uses_snapshots {
            return Ok(None);
        }
        let (processes, launcher) = (&mut self.processes, &mut *self.launcher);
        self.snapshots
            .of(self.plan, stage, command, processes, launcher)
    }

    /// Starts an execution from a snapshot.
    pub(crate) fn fork_from(&mut self, snapshot: Rc<Snapshot>) -> Result<usize, EarlyEnd> {
        self.begin(snapshot.stage, true)?;
        snapshot.socket.discard()?;
        let execution = snapshot.execution()?;
        let index = self.processes.add(execution);
        let ordered = snapshot.socket.order(RecoveryOrder::Run);
        self.from_snapshot = true;
        self.from = Some(snapshot);
        if ordered.is_err() {
            return Err(self.lost());
        }
        Ok(index)
    }

    /// Starts a command that is not forked from a snapshot.
    fn start(&mut self, stage: Stage, command: &ResolvedCommand) -> Result<usize, EarlyEnd> {
        let observer = match (self.mode, stage) {
            // Clients and stop commands do not open pools.
            (Mode::Lazy, Stage::Client | Stage::Stop) => CommandObserver::None,
            (Mode::Lazy, _) => CommandObserver::Runtime,
            (
                Mode::Run(
                    StartMode::ExecuteTraced
                    | StartMode::ExecuteAudited
                    | StartMode::ExecuteWatched,
                ),
                _,
            ) => CommandObserver::Tracer,
            (Mode::Run(_), _) => CommandObserver::None,
        };
        if observer == CommandObserver::Runtime {
            if let Err(error) = check_preload(&command.program) {
                let reason = format!("the {stage} command: {error}");
                return Err(EarlyEnd::Refused(Refusal::not_explorable(reason)));
            }
            self.begin(stage, false)?;
        }
        match self.launcher.start(stage, command, observer)? {
            Ok(started) => Ok(self.processes.add(started)),
            Err(error) => Err(EarlyEnd::Reply(RunReply::CannotStart {
                stage,
                program: command.program.clone(),
                error: (&error).into(),
            })),
        }
    }

    /// A command that runs with the runtime begins.
    fn begin(&mut self, stage: Stage, from_snapshot: bool) -> io::Result<()> {
        if let Some(runtime) = &self.launcher.runtime {
            runtime.file.reset_processes()?;
            if self.mode == Mode::Lazy {
                self.snapshots
                    .use_sites(from_snapshot.then_some(stage), &runtime.file)?;
                self.stages.push(StageStart {
                    stage,
                    choices: runtime.file.choice_count()?,
                    notes: runtime.file.note_count()?,
                });
            }
        }
        Ok(())
    }

    /// The snapshot has ended, and with it everything that was forked from it.
    pub(crate) fn lost(&mut self) -> EarlyEnd {
        let obstacle = SnapshotObstacle::EndedInRun;
        let reason = obstacle.to_string();
        if let Some(snapshot) = self.from.take() {
            self.snapshots.switch_off(snapshot.stage, obstacle);
        }
        if let Err(error) = self.processes.end_all() {
            return EarlyEnd::Io(error);
        }
        EarlyEnd::Reply(RunReply::SnapshotLost { reason })
    }

    /// Waits until something happens or the deadline passes, and handles the messages of runtimes.
    fn pump(&mut self, deadline: Instant) -> Result<(), EarlyEnd> {
        self.processes.pump(deadline)?;
        self.handle_messages()
    }

    fn handle_messages(&mut self) -> Result<(), EarlyEnd> {
        let from = self.from.as_ref().map(|snapshot| snapshot.pid);
        for index in 0..self.processes.commands.len() {
            while let Some(sent) = self.processes.commands[index].messages.pop_front() {
                let command = &mut self.processes.commands[index];
                match sent.message {
                    Message::AtSnapshot => {
                        self.snapshots.note_modules(command.stage, sent.sender);
                        if let Some(socket) = &command.socket {
                            let _ = socket.order(RecoveryOrder::Go);
                        }
                    }
                    // A branch also reports the ends of those that it forked: the execution continues.
                    Message::Ended { .. } if from.is_some_and(|it| it != sent.sender) => {}
                    Message::Ended { status } => command.ended = Exit::from_status(status),
                    Message::Refused(refusal) => return Err(EarlyEnd::Refused(refusal)),
                    Message::NoSnapshot(_) => {}
                    Message::Warning(text) => self.warn(text),
                }
            }
        }
        if let Some(snapshot) = &self.from
            && !self.processes.is_kept(snapshot.pid)
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
    pub(crate) fn stop_execution(&mut self, index: usize) -> Result<(), EarlyEnd> {
        let Some(snapshot) = self.from.clone() else {
            return Ok(());
        };
        let deadline = Instant::now() + GRACE;
        self.processes.expect_more();
        for process in snapshot.children() {
            system::kill(process, libc::SIGKILL);
        }
        loop {
            match self.handle_messages() {
                // It was refused already.
                Ok(()) | Err(EarlyEnd::Refused(_)) => {}
                Err(stopped) => return Err(stopped),
            }
            if self.processes.commands[index].ended.is_some() || Instant::now() >= deadline {
                break;
            }
            self.processes.pump(deadline)?;
        }
        if self.processes.commands[index].ended.is_none() {
            self.processes.end_kept(snapshot.pid)?;
            self.snapshots
                .switch_off(snapshot.stage, SnapshotObstacle::Stuck);
            self.processes.commands[index].ended = Some(Exit::Signaled(libc::SIGKILL));
        }
        self.from = None;
        Ok(())
    }

    /// A server, its client, and its end.
    fn serve(
        &mut self,
        recover: &ResolvedCommand,
        commands: &Server<ResolvedCommand>,
    ) -> Result<(), EarlyEnd> {
        let server = self.start(Stage::Recovery, recover)?;
        self.wait_until_ready(server, &commands.ready)?;
        if let Some(client) = &commands.client {
            let client = self.start(Stage::Client, client)?;
            self.wait_for(client, server)?;
            system::kill(-self.processes.commands[client].pid, libc::SIGKILL);
            if self.end_of(client).is_some() {
                // If the server died, that is the cause; its sockets close before its end is reported.
                let deadline = Instant::now() + SERVER_DIES;
                while self.processes.commands[server].ended.is_none() && Instant::now() < deadline {
                    self.pump(deadline)?;
                }
                if self.processes.commands[server].ended.is_some() {
                    self.processes.end_all()?;
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
            None => system::kill(self.processes.commands[server].pid, libc::SIGTERM),
        }
        if !self.wait(server)? {
            return Err(self.hang(server, server, "it did not stop within the timeout"));
        }
        self.processes.end_all()?;
        if commands.judge_exit {
            self.judge(server, signalled)?;
        } else if let Some(end @ FailureKind::Matched(_)) = self.end_of(server) {
            return Err(self.failure(server, end, ""));
        }
        Ok(())
    }

    fn wait_until_ready(&mut self, server: usize, ready: &Ready) -> Result<(), EarlyEnd> {
        let deadline = self.processes.deadline(self.plan.timeout);
        let mut pauses = Ready::pauses();
        loop {
            let has_written = self.processes.commands[server].capture.ready;
            if ready.is_met(self.launcher.port, |_| has_written) {
                return Ok(());
            }
            if let Some(ended) = self.processes.commands[server].ended {
                self.processes.end_all()?;
                let end = match ended {
                    Exit::Exited(status) => FailureKind::Exited(status),
                    Exit::Signaled(signal) => FailureKind::Signaled(signal),
                };
                return Err(self.failure(server, end, "it ended before it was ready"));
            }
            if self.processes.is_over(deadline) {
                return Err(self.hang(server, server, "it was not ready within the timeout"));
            }
            let next = match (ready, pauses.next()) {
                (Ready::Port(_) | Ready::Unix(_), Some(pause)) => {
                    deadline.min(Instant::now() + pause)
                }
                // Output wakes us up.
                _ => deadline,
            };
            self.pump(next)?;
        }
    }

    /// Waits for a command. If it does not end in time, `culprit` hangs, and its stack is taken.
    fn wait_for(&mut self, index: usize, culprit: usize) -> Result<(), EarlyEnd> {
        if self.wait(index)? {
            return Ok(());
        }
        Err(self.hang(index, culprit, ""))
    }

    /// What the run uses beyond its limits, in words.
    pub(super) fn excess(&self) -> Option<String> {
        let access = self.launcher.access.as_ref();
        self.processes
            .excess(access.map_or(0, FileAccess::memory_bytes))
    }

    /// Waits for a command; whether it ended in time.
    fn wait(&mut self, index: usize) -> Result<bool, EarlyEnd> {
        self.processes.deadline(self.plan.timeout);
        let mut watch = self.watch(self.processes.commands[index].stage);
        while self.processes.commands[index].ended.is_none() && !self.processes.too_long(index) {
            if Instant::now() >= watch.next()
                && let Some(excess) = self.excess()
            {
                return Err(self.exceeded(index, &excess));
            }
            if self.hangs(&mut watch, index) {
                return Ok(false);
            }
            self.pump(watch.next())?;
        }
        self.shown
            .note_success(watch.time(), self.mode == Mode::Lazy);
        Ok(true)
    }

    /// Watches a command that starts now.
    pub(crate) fn watch(&self, stage: Stage) -> HangWatch {
        // It stops twice in each system call, which takes a shell script that starts many programs ten times as long.
        let slower = match self.mode {
            Mode::Run(StartMode::ExecuteWatched) => WATCHED_TIMES,
            _ => 1,
        };
        let rule = HangRule {
            timeout: self.plan.timeout * slower,
            busy_limit: self.plan.busy_limit,
            patience: self.patience,
            looks: self.processes.tracer.is_none(),
            is_observed: self.mode == Mode::Lazy,
        };
        HangWatch::new(rule, stage)
    }

    /// Whether a command hangs.
    pub(crate) fn hangs(&mut self, watch: &mut HangWatch, index: usize) -> bool {
        if self.processes.has_expired() {
            self.shown.note_hang(watch.place());
            return true;
        }
        if Instant::now() < watch.next() {
            return false;
        }
        let culprit = self.process_of(index);
        match watch.look(&self.processes.descendants(), culprit, self.known) {
            None => false,
            Some(Hang::GivenUp) => true,
            Some(Hang::Confirmed) => {
                self.shown.note_hang(watch.place());
                true
            }
        }
    }

    /// The process of a command.
    fn process_of(&self, index: usize) -> Option<i32> {
        match (&self.from, &self.launcher.runtime) {
            (Some(snapshot), Some(runtime)) => snapshot.active(runtime),
            _ => Some(self.processes.commands[index].pid),
        }
    }

    /// How a command that ended failed, if it did.
    pub(crate) fn end_of(&self, index: usize) -> Option<FailureKind> {
        let command = &self.processes.commands[index];
        match command.ended? {
            Exit::Signaled(signal) => return Some(FailureKind::Signaled(signal)),
            Exit::Exited(0) => {}
            Exit::Exited(status) if self.plan.ok_exit.contains(&status) => {}
            Exit::Exited(status) => {
                return Some(match crash_behind_shell(status) {
                    Some(signal) => FailureKind::Signaled(signal),
                    None => FailureKind::Exited(status),
                });
            }
        }
        let pattern = &self.plan.fail_patterns[command.capture.failed?];
        Some(FailureKind::Matched(pattern.as_str().into()))
    }

    /// Fails if the command did. `terminated`: it was sent SIGTERM, and may die of it.
    fn judge(&self, index: usize, terminated: bool) -> Result<(), EarlyEnd> {
        match self.end_of(index) {
            None => Ok(()),
            Some(FailureKind::Signaled(libc::SIGTERM) | FailureKind::Exited(SHELL_TERMINATED))
                if terminated =>
            {
                Ok(())
            }
            Some(end) => Err(self.failure(index, end, "")),
        }
    }

    /// Ends a command that uses too much.
    fn exceeded(&mut self, index: usize, excess: &str) -> EarlyEnd {
        if let Err(stopped) = self.stop_execution(index) {
            return stopped;
        }
        if let Err(error) = self.processes.end_all() {
            return EarlyEnd::Io(error);
        }
        self.failure(index, FailureKind::Signaled(libc::SIGKILL), excess)
    }

    fn hang(&mut self, index: usize, culprit: usize, note: &str) -> EarlyEnd {
        let process = self.process_of(culprit);
        let backtrace = match self.processes.tracer {
            Some(_) => None,
            None => process.and_then(stack::of_hang),
        };
        if let Err(stopped) = self.stop_execution(index) {
            return stopped;
        }
        if let Err(error) = self.processes.end_all() {
            return EarlyEnd::Io(error);
        }
        let mut failure = self.failure(index, FailureKind::TimedOut, note);
        if let EarlyEnd::Reply(RunReply::Failure { backtrace: it, .. }) = &mut failure {
            *it = backtrace;
        }
        failure
    }

    pub(crate) fn failure(&self, index: usize, kind: FailureKind, note: &str) -> EarlyEnd {
        let command = &self.processes.commands[index];
        let mut output = command.capture.text_with_errors_first();
        let note = match kind {
            FailureKind::Signaled(libc::SIGSYS) if note.is_empty() => SIGNALLED_SUPERVISOR,
            _ => note,
        };
        if !note.is_empty() {
            if !output.is_empty() && !output.ends_with('\n') {
                output.push('\n');
            }
            output.push_str("[powerfail: ");
            output.push_str(note);
            output.push_str("]\n");
        }
        EarlyEnd::Reply(RunReply::Failure {
            stage: command.stage,
            kind,
            output,
            backtrace: self
                .processes
                .tracer
                .as_ref()
                .and_then(|it| it.crash(command.pid)),
        })
    }
}
