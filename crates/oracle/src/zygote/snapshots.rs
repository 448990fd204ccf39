//! The snapshots of the commands of a plan: made when they are first needed, or not at all, and why.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use powerfail_trace::Module;

use crate::explore::ExploreFile;
use crate::verdict::Stage;
use crate::zygote::conversation::Message;
use crate::zygote::kit::{Command, Kit};
use crate::zygote::modules;
use crate::zygote::run::Stopped;
use crate::zygote::runtime::cannot_preload;
use crate::zygote::session::{Running, Session};
use crate::zygote::template::Template;

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    all: HashMap<Stage, Snapshot>,
    /// Where files lay in the processes of each command.
    modules: HashMap<Stage, Vec<Module>>,
    /// Instructions that were noted in executions of each snapshot, but for the last one's, which are in the
    /// shared file.
    sites: HashMap<Stage, Vec<u8>>,
    last: Option<Stage>,
}

#[derive(Debug)]
enum Snapshot {
    Ready(Rc<Template>),
    /// There is none.
    Off(String),
}

impl Snapshots {
    /// The snapshot of a command, made now if it is the first time; nothing if there cannot be one.
    pub(crate) fn of(
        &mut self,
        stage: Stage,
        command: &Command,
        session: &mut Session<'_, '_>,
        kit: &mut Kit,
    ) -> Result<Option<Rc<Template>>, Stopped> {
        match self.all.get(&stage) {
            Some(Snapshot::Ready(template)) if session.is_kept(template.pid) => {
                return Ok(Some(Rc::clone(template)));
            }
            Some(Snapshot::Ready(_)) => {
                self.switch_off(stage, "its snapshot has ended");
                return Ok(None);
            }
            Some(Snapshot::Off(_)) => return Ok(None),
            None => {}
        }
        let made = match unsuitable(command, kit) {
            Some(reason) => Err(reason.into()),
            None => self.make(stage, command, session, kit)?,
        };
        match made {
            Ok(template) => {
                let template = Rc::new(template);
                let ready = Snapshot::Ready(Rc::clone(&template));
                self.all.insert(stage, ready);
                Ok(Some(template))
            }
            Err(reason) => {
                self.switch_off(stage, &reason);
                Ok(None)
            }
        }
    }

    /// From now on a command does without.
    pub(crate) fn switch_off(&mut self, stage: Stage, reason: &str) {
        self.all.insert(stage, Snapshot::Off(reason.into()));
    }

    /// Why not every command is forked from a snapshot.
    pub(crate) fn note(&self) -> Option<String> {
        let reasons = [Stage::Recovery, Stage::Checker, Stage::Dump].map(|stage| {
            let Snapshot::Off(reason) = self.all.get(&stage)? else {
                return None;
            };
            Some(format!("the {stage} command: {reason}"))
        });
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Ends all of them; they are made again when they are needed.
    pub(crate) fn end(&mut self, session: &mut Session<'_, '_>) -> io::Result<()> {
        for snapshot in self.all.values() {
            if let Snapshot::Ready(template) = snapshot {
                session.give_up(template.pid)?;
            }
        }
        self.all.retain(|_, it| matches!(it, Snapshot::Off(_)));
        Ok(())
    }

    /// Takes note of where files lie in a process, once for each command.
    pub(crate) fn note_modules(&mut self, stage: Stage, process: i32) {
        let known = self.modules.entry(stage).or_default();
        if known.is_empty() {
            *known = modules::files_of(process);
        }
    }

    /// Where files lay in a process, if some of these addresses are in none of those that are known.
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

    /// Instructions in the shared file are those of the program that runs next: a command that is forked from
    /// its snapshot, or nobody knows which.
    pub(crate) fn use_sites(&mut self, next: Option<Stage>, file: &ExploreFile) -> io::Result<()> {
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

    pub(crate) fn modules(&self) -> Vec<(Stage, Vec<Module>)> {
        let all = self.modules.iter();
        all.map(|(stage, modules)| (*stage, modules.clone()))
            .collect()
    }

    /// Starts the command and waits until it is about to touch a pool.
    fn make(
        &mut self,
        stage: Stage,
        command: &Command,
        session: &mut Session<'_, '_>,
        kit: &mut Kit,
    ) -> Result<Result<Template, String>, Stopped> {
        let deadline = Instant::now() + kit.timeout;
        let running = match kit.start(stage, command, false, true)? {
            Ok(running) => running,
            // It cannot be started without the runtime either, and that will be said.
            Err(error) => return Ok(Err(error.to_string())),
        };
        let place = session.add(running);
        let stopped = loop {
            let running = &mut session.running[place];
            if let Some(reason) = stopped(running) {
                break reason;
            }
            if running.ended.is_some() {
                break Err("it ended before it opened a pool".into());
            }
            if Instant::now() >= deadline {
                break Err("it did not come to its pool in time".into());
            }
            session.pump(deadline)?;
        };
        let running = &mut session.running[place];
        let process = running.pid;
        let made = match (stopped, &kit.runtime) {
            (Ok(()), Some(runtime)) => Template::new(running, runtime),
            (stopped, _) => Err(stopped.err().unwrap_or_default()),
        };
        if made.is_ok() {
            self.note_modules(stage, process);
            session.keep(process);
        } else {
            session.end_all()?;
        }
        session.running.truncate(place);
        Ok(made)
    }
}

/// Why there cannot be a snapshot of a command, if that is known before it is started.
fn unsuitable(command: &Command, kit: &Kit) -> Option<&'static str> {
    if kit.runtime.is_none() {
        return Some("there is no runtime");
    }
    if command.has_port || kit.environment_has_port {
        return Some("it is told another port each time");
    }
    if kit.limits.memory_bytes.is_some() {
        return Some("its memory is limited, and the runtime needs some");
    }
    cannot_preload(&command.prepared.program)
}

/// Whether it has come to its snapshot, or why it never will.
fn stopped(running: &mut Running) -> Option<Result<(), String>> {
    while let Some(said) = running.said.pop_front() {
        match said.what {
            Message::AtSnapshot if said.sender == running.pid => return Some(Ok(())),
            Message::AtSnapshot => return Some(Err("a child of it opens the pool".into())),
            Message::NoSnapshot(reason) => return Some(Err(reason)),
            Message::Refused(refusal) => return Some(Err(refusal.reason)),
            Message::Ended { .. } | Message::Warning(_) => {}
        }
    }
    None
}
