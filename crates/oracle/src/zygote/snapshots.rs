//! The snapshots of the commands of a plan. Each is made when it is first needed; if that is not possible, the
//! obstacle is kept.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use powerfail_trace::Module;

use crate::lazy::SharedFile;
use crate::message::{Refusal, StageModules};
use crate::plan::{ResolvedCommand, ResolvedPlan};
use crate::verdict::Stage;
use crate::zygote::file_access::FileAccess;
use crate::zygote::launcher::{CommandObserver, Launcher};
use crate::zygote::modules;
use crate::zygote::processes::{Processes, StartedCommand};
use crate::zygote::run::EarlyEnd;
use crate::zygote::runtime::check_preload;
use crate::zygote::runtime_socket::Message;
use crate::zygote::snapshot::{Snapshot, SnapshotObstacle};

/// The snapshots of all commands, and what was learned from their processes.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    all: HashMap<Stage, State>,
    /// The modules that the processes of each command had loaded.
    modules: HashMap<Stage, Vec<Module>>,
    /// Instructions that were noted in executions of each snapshot, but for the last one's, which are in the
    /// shared file.
    sites: HashMap<Stage, Vec<u8>>,
    last: Option<Stage>,
}

#[derive(Debug)]
enum State {
    Ready(Rc<Snapshot>),
    /// There is none.
    Off(SnapshotObstacle),
}

impl Snapshots {
    /// The snapshot of a command, made now if it is needed for the first time; `None` if there cannot be one.
    pub(crate) fn of(
        &mut self,
        plan: &ResolvedPlan,
        stage: Stage,
        command: &ResolvedCommand,
        processes: &mut Processes<'_, '_>,
        launcher: &mut Launcher,
    ) -> Result<Option<Rc<Snapshot>>, EarlyEnd> {
        match self.all.get(&stage) {
            Some(State::Ready(snapshot)) if processes.is_kept(snapshot.pid) => {
                return Ok(Some(Rc::clone(snapshot)));
            }
            Some(State::Ready(_)) => {
                self.switch_off(stage, SnapshotObstacle::Ended);
                return Ok(None);
            }
            Some(State::Off(_)) => return Ok(None),
            None => {}
        }
        let made = match unsuitable(plan, command, launcher) {
            Some(obstacle) => Err(obstacle),
            None => self.make(stage, command, plan.timeout, processes, launcher)?,
        };
        match made {
            Ok(snapshot) => {
                let snapshot = Rc::new(snapshot);
                let ready = State::Ready(Rc::clone(&snapshot));
                self.all.insert(stage, ready);
                Ok(Some(snapshot))
            }
            Err(obstacle) => {
                self.switch_off(stage, obstacle);
                Ok(None)
            }
        }
    }

    /// From now on a command has no snapshot.
    pub(crate) fn switch_off(&mut self, stage: Stage, obstacle: SnapshotObstacle) {
        self.all.insert(stage, State::Off(obstacle));
    }

    /// Why not every command is forked from a snapshot.
    pub(crate) fn note(&self) -> Option<String> {
        let reasons = [Stage::Recovery, Stage::Checker, Stage::Dump].map(|stage| {
            let State::Off(obstacle) = self.all.get(&stage)? else {
                return None;
            };
            Some(format!("the {stage} command: {obstacle}"))
        });
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Ends all snapshots; they are made again when they are needed.
    pub(crate) fn end(&mut self, processes: &mut Processes<'_, '_>) -> io::Result<()> {
        for snapshot in self.all.values() {
            if let State::Ready(snapshot) = snapshot {
                processes.end_kept(snapshot.pid)?;
            }
        }
        self.all.retain(|_, it| matches!(it, State::Off(_)));
        Ok(())
    }

    /// Notes the modules of a process, once for each command.
    pub(crate) fn note_modules(&mut self, stage: Stage, process: i32) {
        let known = self.modules.entry(stage).or_default();
        if known.is_empty() {
            *known = modules::files_of(process);
        }
    }

    /// Notes the modules of a process if some of these addresses are in no module noted so far.
    pub(crate) fn note_more_modules(&mut self, stage: Stage, process: i32, addresses: &[u64]) {
        let known = self.modules.entry(stage).or_default();
        let is_known = |address: &u64| {
            known.iter().any(|it| {
                let end = it.load_address.saturating_add(it.len_bytes);
                (it.load_address..end).contains(address)
            })
        };
        if addresses.iter().all(is_known) {
            return;
        }
        for module in modules::files_of(process) {
            if !known.contains(&module) {
                known.push(module);
            }
        }
    }

    /// Puts the instructions of the program that runs next into the shared file: those of a command that is
    /// forked from its snapshot, or none if the program is not known.
    pub(crate) fn use_sites(&mut self, next: Option<Stage>, file: &SharedFile) -> io::Result<()> {
        if next.is_some() && next == self.last {
            return Ok(());
        }
        if let Some(last) = self.last {
            self.sites.insert(last, file.sites()?);
        }
        let sites = next.and_then(|next| self.sites.remove(&next));
        file.set_sites(&sites.unwrap_or_default())?;
        self.last = next;
        Ok(())
    }

    /// The modules that the processes of each command had loaded.
    pub(crate) fn modules(&self) -> Vec<StageModules> {
        let of_stage = |(stage, modules): (&Stage, &Vec<Module>)| StageModules {
            stage: *stage,
            modules: modules.clone(),
        };
        self.modules.iter().map(of_stage).collect()
    }

    /// Starts the command and waits until it is about to touch a pool.
    fn make(
        &mut self,
        stage: Stage,
        command: &ResolvedCommand,
        timeout: Duration,
        processes: &mut Processes<'_, '_>,
        launcher: &mut Launcher,
    ) -> Result<Result<Snapshot, SnapshotObstacle>, EarlyEnd> {
        let deadline = processes.deadline(timeout);
        let started = match launcher.start(stage, command, CommandObserver::Runtime)? {
            Ok(started) => started,
            // It cannot be started without the runtime either, which will be reported.
            Err(error) => return Ok(Err(SnapshotObstacle::NotStarted(error))),
        };
        let index = processes.add(started);
        let stopped = loop {
            let started = &mut processes.commands[index];
            if let Some(stopped) = stopped(started) {
                break stopped;
            }
            if started.ended.is_some() {
                break Err(SnapshotObstacle::EndedEarly);
            }
            if processes.is_over(deadline) {
                break Err(SnapshotObstacle::TimedOut);
            }
            processes.pump(deadline)?;
        };
        let started = &mut processes.commands[index];
        let process = started.pid;
        let made = match (stopped, &launcher.runtime) {
            (Ok(()), Some(_)) if launcher.access.as_ref().is_some_and(FileAccess::is_used) => {
                Err(SnapshotObstacle::TemporaryFiles)
            }
            (Ok(()), Some(runtime)) => Snapshot::new(started, runtime),
            (Ok(()), None) => Err(SnapshotObstacle::NoRuntime),
            (Err(obstacle), _) => Err(obstacle),
        };
        if made.is_ok() {
            self.note_modules(stage, process);
            processes.keep(process);
        } else {
            processes.end_all()?;
        }
        processes.commands.truncate(index);
        Ok(made)
    }
}

/// Why there cannot be a snapshot of a command, if that is known before it is started.
fn unsuitable(
    plan: &ResolvedPlan,
    command: &ResolvedCommand,
    launcher: &Launcher,
) -> Option<SnapshotObstacle> {
    if launcher.runtime.is_none() {
        return Some(SnapshotObstacle::NoRuntime);
    }
    if command.has_port() || plan.environment_has_port() {
        return Some(SnapshotObstacle::PortChanges);
    }
    if plan.limits.memory_bytes.is_some() {
        return Some(SnapshotObstacle::MemoryLimited);
    }
    let preloadable = check_preload(&command.program);
    preloadable.err().map(SnapshotObstacle::NotPreloadable)
}

/// Whether a command has reached its snapshot, or why it never will; `None` if that is not known yet.
fn stopped(started: &mut StartedCommand) -> Option<Result<(), SnapshotObstacle>> {
    while let Some(sent) = started.messages.pop_front() {
        match sent.message {
            Message::AtSnapshot if sent.sender == started.pid => return Some(Ok(())),
            Message::AtSnapshot => return Some(Err(SnapshotObstacle::ChildOpensPool)),
            Message::NoSnapshot(reason) | Message::Refused(Refusal { reason, .. }) => {
                return Some(Err(SnapshotObstacle::Runtime(reason)));
            }
            Message::Ended { .. } | Message::Warning(_) => {}
        }
    }
    None
}
