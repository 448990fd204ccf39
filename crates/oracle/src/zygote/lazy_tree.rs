//! Explores lazily: by forking a tree of branches from a snapshot, or by one execution.
//!
//! Branches run one at a time; when one ends, the innermost branch that waits continues.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use powerfail_protocol::explore::RecoveryOrder;

use crate::lazy::{choices_of, notes_of};
use crate::message::{Bytes, ExploreOptions, FailureKind, LazyReply, Refusal, RunReply};
use crate::verdict::{Backtrace, Stage};
use crate::zygote::branches::Branches;
use crate::zygote::processes::Exit;
use crate::zygote::run::{EarlyEnd, Run};
use crate::zygote::runtime_socket::Message;
use crate::zygote::snapshot::Snapshot;
use crate::zygote::{stack, system};

impl Run<'_, '_, '_> {
    /// Runs the plan once, with one value at each choice.
    pub(crate) fn explore_once(
        &mut self,
        options: ExploreOptions,
        report: &mut dyn FnMut(LazyReply) -> io::Result<()>,
    ) -> Result<bool, EarlyEnd> {
        let result = self.commands();
        self.processes.end_all()?;
        let reply = match result {
            Ok(reply) | Err(EarlyEnd::Reply(reply)) => reply,
            Err(end) => return Err(end),
        };
        if !reply.is_verdict() {
            return Err(EarlyEnd::Reply(reply));
        }
        report(self.execution(reply, options)?)?;
        Ok(false)
    }

    /// Runs recovery with all values at all choices. Whether it stopped at the limit of executions.
    pub(crate) fn explore_tree(
        &mut self,
        options: ExploreOptions,
        report: &mut dyn FnMut(LazyReply) -> io::Result<()>,
    ) -> Result<bool, EarlyEnd> {
        let plan = self.plan;
        let Some(snapshot) = self.snapshot_of(Stage::Recovery, &plan.recover)? else {
            // It can still be executed once for each execution.
            let reason = self.snapshots.note().unwrap_or_default();
            return Err(EarlyEnd::Refused(Refusal::not_forkable(reason)));
        };
        let index = self.fork_from(Rc::clone(&snapshot))?;
        if let Some(runtime) = &self.launcher.runtime {
            let branches = Branches::new(runtime.file.output_mark()?);
            self.processes.commands[index].branches = Some(branches);
        }
        let mut executions = 0;
        loop {
            let (sender, ended) = match self.wait_for_branch(index, &snapshot) {
                Ok(ended) => ended,
                Err(stopped) => {
                    self.stop_execution(index)?;
                    return Err(stopped);
                }
            };
            // Processes that lost their parent belonged to the branch that ended.
            self.processes.expect_more();
            self.processes.end_all()?;
            let waiting = match &self.launcher.runtime {
                Some(runtime) => runtime.file.waiting()?,
                None => 0,
            };
            if sender == snapshot.pid && waiting > 0 {
                // Their values are not explored.
                self.from = None;
                let reason = "a branch ended the processes that waited for it";
                return Err(EarlyEnd::Refused(Refusal::not_forkable(reason)));
            }
            let reply = self.reply_of(index, ended);
            let execution = self.execution(reply, options)?;
            self.note_modules(&execution, sender);
            report(execution)?;
            executions += 1;
            if sender == snapshot.pid {
                self.from = None;
                return Ok(false);
            }
            if executions >= options.max_executions {
                self.stop_execution(index)?;
                return Ok(true);
            }
            let command = &mut self.processes.commands[index];
            let branches = command.branches.as_mut();
            if let Some(parent) = branches.and_then(|it| it.resume(waiting as usize)) {
                command.capture = parent;
            }
            snapshot.socket.order(RecoveryOrder::Run)?;
        }
    }

    /// Waits until a branch has ended, within the timeout of an execution. Returns the process that reported
    /// it, the parent of the branch.
    fn wait_for_branch(
        &mut self,
        index: usize,
        snapshot: &Snapshot,
    ) -> Result<(i32, BranchEnd), EarlyEnd> {
        self.processes.deadline(self.plan.timeout);
        let mut watch = self.watch(Stage::Recovery);
        let mut hang = None;
        let mut deadline = None;
        loop {
            while let Some(sent) = self.processes.commands[index].messages.pop_front() {
                match sent.message {
                    Message::Ended { status } => {
                        let ended = match (hang.take(), Exit::from_status(status)) {
                            (Some(backtrace), _) => BranchEnd::Hung(backtrace),
                            (None, Some(ended)) => {
                                self.shown.note_success(watch.time(), true);
                                BranchEnd::Ended(ended)
                            }
                            (None, None) => continue,
                        };
                        return Ok((sent.sender, ended));
                    }
                    Message::Refused(refusal) => return Err(EarlyEnd::Refused(refusal)),
                    Message::NoSnapshot(reason) => {
                        return Err(EarlyEnd::Refused(Refusal::not_explorable(reason)));
                    }
                    Message::Warning(text) => self.warn(text),
                    Message::AtSnapshot => {}
                }
            }
            if !self.processes.is_kept(snapshot.pid) {
                return Err(self.lost());
            }
            if hang.is_none() && Instant::now() >= watch.next() && self.processes.has_stopped() {
                // A branch stopped one that waits for it, which cannot report its end any more.
                self.processes.end_kept(snapshot.pid)?;
                return Err(self.lost());
            }
            if hang.is_none() && Instant::now() >= watch.next() && self.excess().is_some() {
                // It ends as if the kernel had found that there is no memory left.
                self.end_active(snapshot);
            }
            if hang.is_none() && self.hangs(&mut watch, index) {
                hang = Some(self.end_active(snapshot));
                deadline = Some(Instant::now() + super::run::GRACE);
            }
            if deadline.is_some_and(|it| Instant::now() >= it) {
                // Its parent should have reported its end.
                self.processes.end_kept(snapshot.pid)?;
                return Err(self.lost());
            }
            self.processes
                .pump(deadline.unwrap_or_else(|| watch.next()))?;
        }
    }

    /// Ends the branch that runs, and returns where it was.
    fn end_active(&mut self, snapshot: &Snapshot) -> Option<Backtrace> {
        let runtime = self.launcher.runtime.as_ref()?;
        let process = snapshot.active(runtime)?;
        let backtrace = stack::of_hang(process);
        system::kill(process, libc::SIGKILL);
        backtrace
    }

    /// The outcome of the branch that ended.
    fn reply_of(&mut self, index: usize, ended: BranchEnd) -> RunReply {
        let (ended, hang) = match ended {
            BranchEnd::Ended(ended) => (Some(ended), None),
            BranchEnd::Hung(backtrace) => (None, Some(backtrace)),
        };
        self.processes.commands[index].ended = ended;
        let kind = match &hang {
            Some(_) => Some(FailureKind::TimedOut),
            None => self.end_of(index),
        };
        self.processes.commands[index].ended = None;
        let Some(kind) = kind else {
            return RunReply::Success { dump: None };
        };
        match self.failure(index, kind, "") {
            EarlyEnd::Reply(RunReply::Failure {
                stage,
                kind,
                output,
                ..
            }) => RunReply::Failure {
                stage,
                kind,
                output,
                backtrace: hang.flatten(),
            },
            _ => RunReply::Success { dump: None },
        }
    }

    /// What recovery observed and did in the execution that has just ended.
    fn execution(&self, reply: RunReply, options: ExploreOptions) -> io::Result<LazyReply> {
        let [mut choices, mut logged, mut notes] = [const { Vec::new() }; 3];
        if let Some(runtime) = &self.launcher.runtime {
            choices = runtime.file.choices()?;
            if options.with_log {
                logged = runtime.file.log()?;
            }
            if options.with_notes {
                notes = runtime.file.notes()?;
            }
        }
        Ok(LazyReply {
            reply,
            choices: Bytes(choices),
            log: Bytes(logged),
            notes: Bytes(notes),
            stages: self.stages.clone(),
        })
    }

    /// Notes modules that were loaded after the snapshot, if their code made a choice or a note.
    fn note_modules(&mut self, execution: &LazyReply, process: i32) {
        let choice = choices_of(&execution.choices.0).pop().map(|it| it.frames);
        let note = notes_of(&execution.notes.0).pop().map(|it| it.frames);
        let frames = choice.into_iter().chain(note).flatten();
        let addresses: Vec<u64> = frames.filter(|it| *it != 0).collect();
        if addresses.is_empty() {
            return;
        }
        self.snapshots
            .note_more_modules(Stage::Recovery, process, &addresses);
    }
}

/// How a branch ended.
enum BranchEnd {
    Ended(Exit),
    /// It was killed after the timeout; where it was.
    Hung(Option<Backtrace>),
}
