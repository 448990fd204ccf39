//! Explores by forking: branches run one at a time, and the innermost that waits goes on next.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use powerfail_protocol::explore::Order;

use crate::explore::{choices_of, notes_of};
use crate::message::{End, ExecutionReply, Refusal, RunReply};
use crate::verdict::{Backtrace, Stage};
use crate::zygote::branches::Branches;
use crate::zygote::conversation::Message;
use crate::zygote::kit::Command;
use crate::zygote::run::{Run, Stopped};
use crate::zygote::session::Ended;
use crate::zygote::template::Template;
use crate::zygote::{stack, system};

/// What to explore.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exploration {
    /// By forking from one snapshot, with no file changed.
    pub(crate) private: bool,
    pub(crate) log: bool,
    pub(crate) notes: bool,
    pub(crate) max_executions: u64,
}

impl Run<'_, '_, '_> {
    /// Takes all classes of all choices, until there are no more or it is enough. Whether it was enough.
    pub(crate) fn explore_tree(
        &mut self,
        command: &Command,
        request: Exploration,
        tell: &mut dyn FnMut(ExecutionReply) -> io::Result<()>,
    ) -> Result<bool, Stopped> {
        let Some(template) = self.snapshot_of(Stage::Recovery, command)? else {
            // It can still be executed each time.
            let reason = self.snapshots.note().unwrap_or_default();
            return Err(Stopped::Refused(Refusal::not_forkable(reason)));
        };
        let place = self.fork_from(Rc::clone(&template))?;
        if let Some(runtime) = &self.kit.runtime {
            let branches = Branches::new(runtime.file.output_mark()?);
            self.session.running[place].branches = Some(branches);
        }
        let mut executions = 0;
        loop {
            let (sender, ended) = match self.wait_for_branch(place, &template) {
                Ok(ended) => ended,
                Err(stopped) => {
                    self.stop_execution(place)?;
                    return Err(stopped);
                }
            };
            // Whoever lost its parent belonged to the branch that ended.
            self.session.goes_on();
            self.session.end_all()?;
            let waiting = match &self.kit.runtime {
                Some(runtime) => runtime.file.waiting()?,
                None => 0,
            };
            if sender == template.pid && waiting > 0 {
                // What they had still to do is lost.
                self.from = None;
                let reason = "a branch has ended those that waited for it";
                return Err(Stopped::Refused(Refusal::not_forkable(reason)));
            }
            let reply = self.reply_of(place, ended);
            let execution = self.execution(reply, request)?;
            self.note_modules(&execution, sender);
            tell(execution)?;
            executions += 1;
            if sender == template.pid {
                self.from = None;
                return Ok(false);
            }
            if executions >= request.max_executions {
                self.stop_execution(place)?;
                return Ok(true);
            }
            let running = &mut self.session.running[place];
            let branches = running.branches.as_mut();
            if let Some(parent) = branches.and_then(|it| it.go_on(waiting as usize)) {
                running.capture = parent;
            }
            template.conversation.order(Order::Run)?;
        }
    }

    /// Waits until a branch has ended, and for no longer than an execution may take. Who said so: the parent
    /// of the branch.
    fn wait_for_branch(
        &mut self,
        place: usize,
        template: &Template,
    ) -> Result<(i32, BranchEnd), Stopped> {
        let deadline = Instant::now() + self.kit.timeout;
        let mut hang = None;
        loop {
            while let Some(said) = self.session.running[place].said.pop_front() {
                match said.what {
                    Message::Ended { status } => {
                        let ended = match (hang.take(), Ended::of_status(status)) {
                            (Some(backtrace), _) => BranchEnd::Hung(backtrace),
                            (None, Some(ended)) => BranchEnd::Ended(ended),
                            (None, None) => continue,
                        };
                        return Ok((said.sender, ended));
                    }
                    Message::Refused(refusal) => return Err(Stopped::Refused(refusal)),
                    Message::NoSnapshot(reason) => {
                        return Err(Stopped::Refused(Refusal::not_explorable(reason)));
                    }
                    Message::Warning(text) => self.warn(text),
                    Message::AtSnapshot => {}
                }
            }
            if !self.session.is_kept(template.pid) {
                return Err(self.lost());
            }
            if Instant::now() >= deadline && hang.is_none() {
                hang = Some(self.end_active(template));
            }
            let deadline = match hang {
                Some(_) => deadline + super::run::GRACE,
                None => deadline,
            };
            if Instant::now() >= deadline {
                // Its parent should have said something.
                self.session.give_up(template.pid)?;
                return Err(self.lost());
            }
            self.session.pump(deadline)?;
        }
    }

    /// Ends the branch that runs; where it was.
    fn end_active(&mut self, template: &Template) -> Option<Backtrace> {
        let runtime = self.kit.runtime.as_ref()?;
        let process = template.active(runtime)?;
        let backtrace = stack::of_hang(process);
        system::kill(process, libc::SIGKILL);
        backtrace
    }

    /// What is said about the branch that ended.
    fn reply_of(&mut self, place: usize, ended: BranchEnd) -> RunReply {
        let (ended, hang) = match ended {
            BranchEnd::Ended(ended) => (Some(ended), None),
            BranchEnd::Hung(backtrace) => (None, Some(backtrace)),
        };
        self.session.running[place].ended = ended;
        let end = match &hang {
            Some(_) => Some(End::TimedOut),
            None => self.end_of(place),
        };
        self.session.running[place].ended = None;
        let Some(end) = end else {
            return RunReply::Success { dump: None };
        };
        match self.failure(place, end, "") {
            Stopped::Reply(RunReply::Failure {
                stage, end, output, ..
            }) => RunReply::Failure {
                stage,
                end,
                output,
                backtrace: hang.flatten(),
            },
            _ => RunReply::Success { dump: None },
        }
    }

    /// What was observed and done in the execution that has just ended.
    pub(crate) fn execution(
        &self,
        reply: RunReply,
        request: Exploration,
    ) -> io::Result<ExecutionReply> {
        let [mut choices, mut logged, mut notes] = [const { Vec::new() }; 3];
        if let Some(runtime) = &self.kit.runtime {
            choices = runtime.file.choices()?;
            if request.log {
                logged = runtime.file.log()?;
            }
            if request.notes {
                notes = runtime.file.notes()?;
            }
        }
        Ok(ExecutionReply {
            reply,
            choices,
            log: logged,
            notes,
            stages: self.begun.clone(),
        })
    }

    /// Takes note of files that were loaded after the snapshot, if their code has chosen or read something.
    fn note_modules(&mut self, execution: &ExecutionReply, process: i32) {
        let choice = choices_of(&execution.choices).pop().map(|it| it.frames);
        let note = notes_of(&execution.notes).pop().map(|it| it.frames);
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
    Ended(Ended),
    /// It was ended, after the time that it may take; where it was.
    Hung(Option<Backtrace>),
}
