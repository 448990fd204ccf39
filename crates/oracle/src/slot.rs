//! A slot: private files, and the zygote that runs recovery on them. This is the oracle's end of the
//! conversation; the other is `zygote/`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use powerfail_abi::explore::flag;
use powerfail_finding::RecoveryOutcome;
use powerfail_trace::Module;

use crate::backup::Backup;
use crate::descriptors;
use crate::error::OracleError;
use crate::explore::{
    Execution, ExploreFile, ExploreRequest, Explored, Unfit, choices_of, log_of, read_masks,
    write_pools, write_table,
};
use crate::message::{
    End, ExecutionReply, ExploreReply, Level, ModulesReply, Ran, Request, RunReply, Setup,
    SetupReply,
};
use crate::oracle::Settings;
use crate::plan::PoolMapping;
use crate::verdict::{Backtrace, Failure, Stage, Verdict};
use crate::wire;
use crate::zygote::ZYGOTE_NAME;

/// On so many images recovery is run with and without snapshots, to see that it makes no difference.
const COMPARED_IMAGES: u32 = 3;
/// With this a runtime says that recovery can be executed one by one but not forked.
const REEXECUTE: &str = "reexecute:";

/// How far a slot is kept apart from the rest of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// Whether recovery sees the image at the pool's own path; if not, paths are substituted.
    pub own_mounts: bool,
    /// Whether processes are in a namespace of their own.
    pub own_processes: bool,
    /// Why not both; empty if both.
    pub reasons: Vec<String>,
}

/// A place to run recovery. It can be sent to another thread; runs in one slot come one after another.
#[derive(Debug)]
pub struct Slot {
    zygote: Child,
    socket: UnixStream,
    isolation: Isolation,
    timeout_ms: u64,
    max_dump_bytes: u64,
    /// Private directories that held nothing but pools, and the names of these.
    owned: BTreeMap<PathBuf, Vec<OsString>>,
    /// What the zygote has put there, to mount on.
    placeholders: Vec<PathBuf>,
    mappings: Vec<PoolMapping>,
    /// Shared with recovering processes; nothing without a runtime.
    file: Option<ExploreFile>,
    only_recovery: bool,
    snapshots: Snapshots,
}

/// Whether recovery is forked from snapshots.
#[derive(Debug)]
enum Snapshots {
    /// It is, and on so many more images it is compared with plain execution.
    On {
        to_compare: u32,
        note: Option<String>,
    },
    /// It is not, and why, if it was to be.
    Off(Option<String>),
}

/// What became of an attempt to start one.
pub(crate) enum Started {
    Ready(Slot),
    NotPossible(String),
}

impl Slot {
    /// Starts a zygote and waits until it is set up.
    pub(crate) fn start(
        settings: &Settings,
        runtime: Option<&OwnedFd>,
        setup: &Setup,
        mappings: &[PoolMapping],
    ) -> Result<Started, OracleError> {
        let failed = |error: io::Error| {
            OracleError::system("start the process that starts recoveries", &error)
        };
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        let program = settings.zygote.as_deref();
        let zygote = Command::new(program.unwrap_or(Path::new("/proc/self/exe")))
            .arg0(ZYGOTE_NAME)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut slot = Self {
            zygote,
            socket,
            isolation: Isolation {
                own_mounts: !setup.cover.is_empty(),
                own_processes: setup.level == Level::Full,
                reasons: Vec::new(),
            },
            timeout_ms: setup.timeout_ms,
            max_dump_bytes: setup.max_dump_bytes,
            owned: directories_of_pools_only(mappings),
            placeholders: Vec::new(),
            mappings: mappings.to_vec(),
            file: None,
            only_recovery: setup.server.is_none()
                && setup.checker.is_none()
                && setup.dump.is_none(),
            snapshots: match settings.snapshot && runtime.is_some() {
                true => Snapshots::On {
                    to_compare: COMPARED_IMAGES,
                    note: None,
                },
                false => Snapshots::Off(None),
            },
        };
        if runtime.is_some() {
            let file = ExploreFile::create().map_err(failed)?;
            let paths: Vec<&Path> = mappings.iter().map(|it| slot.path_seen(it)).collect();
            write_pools(&file, &paths).map_err(failed)?;
            slot.file = Some(file);
        }
        // If it cannot be written, the zygote is gone, which reading tells.
        let _ = setup.encode().send(&slot.socket);
        if let (Some(runtime), Some(file)) = (runtime, &slot.file) {
            let _ = descriptors::send(&slot.socket, [runtime.as_fd(), file.as_fd()]);
        }
        match SetupReply::decode(&slot.receive()?).map_err(failed)? {
            SetupReply::Ready { placeholders } => {
                slot.placeholders = placeholders;
                Ok(Started::Ready(slot))
            }
            SetupReply::NotPossible { reason } => Ok(Started::NotPossible(reason)),
            SetupReply::Failed { path, errno } => Err(OracleError::Path {
                path,
                source: io::Error::from_raw_os_error(errno),
            }),
        }
    }

    /// Remembers what was tried before.
    pub(crate) fn note_fallback(&mut self, reasons: &[String]) {
        self.isolation.reasons = reasons.to_vec();
    }

    /// How far it is kept apart.
    pub fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    /// The zygote, for those who look at processes.
    pub fn zygote_id(&self) -> u32 {
        self.zygote.id()
    }

    /// Why some or all commands are not forked from snapshots although that was asked for.
    pub fn snapshot_note(&self) -> Option<&str> {
        match &self.snapshots {
            Snapshots::On { note, .. } => note.as_deref(),
            Snapshots::Off(reason) => reason.as_deref(),
        }
    }

    /// Whether runs are forked from snapshots, as far as is known.
    pub fn uses_snapshots(&self) -> bool {
        matches!(self.snapshots, Snapshots::On { .. })
    }

    /// Runs the plan on what the private files hold now, and judges it: forked from snapshots if the settings
    /// allow it and it works.
    ///
    /// What an earlier recovery left in a private directory that held only pools is removed before, and
    /// when the slot is dropped.
    pub fn run(&mut self) -> Result<Verdict, OracleError> {
        let Snapshots::On { to_compare, .. } = self.snapshots else {
            return self.run_plain();
        };
        if to_compare > 0 {
            return self.run_both_ways();
        }
        let ran = self.ask(false, true, false)?;
        self.take_note(&ran);
        self.verdict_of(ran.reply)
    }

    /// Runs the plan as [`run`](Self::run) does, but executes every command.
    pub fn run_plain(&mut self) -> Result<Verdict, OracleError> {
        let ran = self.ask(false, false, false)?;
        self.verdict_of(ran.reply)
    }

    /// Runs it by snapshots and then plainly, and sees whether that makes a difference.
    fn run_both_ways(&mut self) -> Result<Verdict, OracleError> {
        let privates = self.mappings.iter().map(|it| &it.private);
        let backup = match Backup::of(privates) {
            Ok(backup) => backup,
            Err(error) => {
                let reason = format!("an image cannot be copied, to compare: {error}");
                self.snapshots = Snapshots::Off(Some(reason));
                return self.run_plain();
            }
        };
        let restore = |slot: &Self| {
            let failed = |error| OracleError::system("restore an image", &error);
            slot.remove_leftovers(&slot.placeholders)?;
            backup.restore().map_err(failed)
        };
        let forked = self.ask(false, true, true)?;
        self.take_note(&forked);
        restore(self)?;
        let plain = self.ask(false, false, true)?;
        if !forked.by_snapshot {
            return self.verdict_of(plain.reply);
        }
        if !is_same(&forked, &plain) {
            // It may be different each time.
            restore(self)?;
            let again = self.ask(false, false, true)?;
            let steady = is_same(&plain, &again);
            if steady || !is_alike(&forked.reply, &plain.reply) {
                let reason = difference(&forked, &plain);
                self.snapshots = Snapshots::Off(Some(reason));
            }
        }
        if let Snapshots::On { to_compare, .. } = &mut self.snapshots {
            *to_compare -= 1;
        }
        self.verdict_of(plain.reply)
    }

    /// Takes note of what a run says about snapshots.
    fn take_note(&mut self, ran: &Ran) {
        let Snapshots::On { note, .. } = &mut self.snapshots else {
            return;
        };
        note.clone_from(&ran.note);
        if !ran.by_snapshot && is_verdict(&ran.reply) {
            let reason = ran.note.clone();
            self.snapshots = Snapshots::Off(reason);
        }
    }

    fn verdict_of(&self, reply: RunReply) -> Result<Verdict, OracleError> {
        match reply {
            RunReply::Success { dump } => Ok(Verdict::Success { dump }),
            RunReply::Failure {
                stage,
                end,
                output,
                backtrace,
            } => {
                let command = stage.as_str().to_owned();
                let outcome = match end {
                    End::Exited(status) => RecoveryOutcome::Exit {
                        status,
                        command,
                        output,
                    },
                    End::Signaled(signal) => RecoveryOutcome::Signal {
                        signal,
                        command,
                        output,
                    },
                    End::TimedOut => RecoveryOutcome::Timeout {
                        after_ms: self.timeout_ms,
                        command,
                        output,
                    },
                    End::Matched(pattern) => RecoveryOutcome::Output {
                        pattern,
                        command,
                        output,
                    },
                };
                Ok(Verdict::Failure(Box::new(Failure {
                    stage,
                    outcome,
                    backtrace,
                })))
            }
            reply => Err(self.error_of(reply)),
        }
    }

    /// Runs the plan once more, slower, to learn where it is when a signal ends it. The private files must
    /// be again what they were before the run that crashed. Nothing if it does not crash this time.
    pub fn backtrace_of_crash(&mut self) -> Result<Option<Backtrace>, OracleError> {
        match self.ask(true, false, false)?.reply {
            RunReply::Success { .. } => Ok(None),
            RunReply::Failure { backtrace, .. } => Ok(backtrace),
            reply => Err(self.error_of(reply)),
        }
    }

    /// Explores what recovery can observe on the private files, which must hold the newest content of
    /// everything. With forks they stay as they are; without, the one execution changes them.
    ///
    /// Fails with [`OracleError::NotExplorable`] if that is not possible with this recovery, and with
    /// [`OracleError::NotForkable`] if it is possible only without forking.
    pub fn explore(&mut self, request: &ExploreRequest<'_>) -> Result<Explored, OracleError> {
        let fork = request.fork && self.only_recovery;
        let Some(file) = &self.file else {
            return Err(OracleError::NotExplorable {
                reason: "there is no runtime".into(),
            });
        };
        let mut flags = flag::LAZY;
        if fork {
            flags |= flag::FORK | flag::PRIVATE;
        }
        if request.log {
            flags |= flag::LOG;
        }
        let places = self.places_of(&request.table.pools)?;
        let lines = match write_table(file, request.table, &places, request.prefix, flags) {
            Ok(lines) => lines,
            Err(Unfit::Table(reason)) => return Err(OracleError::NotExplorable { reason }),
            Err(Unfit::System(error)) => {
                return Err(OracleError::system("describe a crash", &error));
            }
        };
        self.remove_leftovers(&self.placeholders)?;
        self.say(Request::Explore {
            fork,
            log: request.log,
            max_executions: request.max_executions,
        })?;
        let mut explored = Explored::default();
        loop {
            let reply =
                ExploreReply::decode(&self.receive()?).map_err(|error| misunderstood(&error))?;
            match reply {
                ExploreReply::Executions(executions) => {
                    for execution in executions {
                        let execution = self.execution_of(execution, &lines, &places)?;
                        explored.executions.push(execution);
                    }
                }
                ExploreReply::Done {
                    stopped,
                    forked,
                    warnings,
                } => {
                    explored.stopped = stopped;
                    explored.forked = forked;
                    explored.warnings = warnings;
                    break;
                }
                ExploreReply::Refused { reason } => {
                    return Err(match reason.strip_prefix(REEXECUTE) {
                        Some(reason) if fork => OracleError::NotForkable {
                            reason: reason.trim_start().into(),
                        },
                        _ => OracleError::NotExplorable { reason },
                    });
                }
                ExploreReply::Trouble(reply) => return Err(self.error_of(reply)),
            }
        }
        if let Some(file) = &self.file {
            let failed = |error| OracleError::system("learn what was read", &error);
            explored.read = read_masks(file, &places).map_err(failed)?;
            explored.traps = file.traps().map_err(failed)?;
            explored.steps = file.steps().map_err(failed)?;
        }
        Ok(explored)
    }

    /// Where files lie in the processes of each command that has been forked from a snapshot or explored, so
    /// that addresses in choices can be resolved.
    pub fn modules(&mut self) -> Result<Vec<(Stage, Vec<Module>)>, OracleError> {
        self.say(Request::Modules)?;
        let reply =
            ModulesReply::decode(&self.receive()?).map_err(|error| misunderstood(&error))?;
        Ok(reply.0)
    }

    /// The path by which recovery knows a pool.
    fn path_seen<'m>(&self, mapping: &'m PoolMapping) -> &'m Path {
        match self.isolation.own_mounts {
            true => &mapping.original,
            false => &mapping.private,
        }
    }

    /// At which places of the slot the pools of a table are.
    fn places_of(&self, pools: &[PathBuf]) -> Result<Vec<u32>, OracleError> {
        let place_of = |pool: &PathBuf| {
            let is_it = |it: &PoolMapping| it.original == *pool || it.private == *pool;
            match self.mappings.iter().position(is_it) {
                Some(place) => Ok(place as u32),
                None => Err(OracleError::NotExplorable {
                    reason: format!("{} is no pool of this slot", pool.display()),
                }),
            }
        };
        pools.iter().map(place_of).collect()
    }

    fn execution_of(
        &self,
        reply: ExecutionReply,
        lines: &[u32],
        places: &[u32],
    ) -> Result<Execution, OracleError> {
        let mut choices = choices_of(&reply.choices);
        for choice in &mut choices {
            choice.line = lines.get(choice.line as usize).copied().unwrap_or(u32::MAX);
        }
        let mut log = log_of(&reply.log);
        for event in &mut log {
            let place = places.iter().position(|it| *it == event.pool);
            event.pool = place.map_or(u32::MAX, |it| it as u32);
        }
        Ok(Execution {
            verdict: self.verdict_of(reply.reply)?,
            choices,
            stages: reply.stages,
            log,
        })
    }

    fn ask(&mut self, traced: bool, snapshot: bool, texts: bool) -> Result<Ran, OracleError> {
        self.remove_leftovers(&self.placeholders)?;
        self.say(Request::Run {
            traced,
            snapshot,
            texts,
        })?;
        Ran::decode(&self.receive()?).map_err(|error| misunderstood(&error))
    }

    fn say(&self, request: Request) -> Result<(), OracleError> {
        request
            .encode()
            .send(&self.socket)
            .map_err(|_| OracleError::ZygoteDied)
    }

    fn error_of(&self, reply: RunReply) -> OracleError {
        match reply {
            RunReply::CannotStart {
                stage,
                program,
                errno,
            } => OracleError::Start {
                command: stage.as_str().into(),
                program,
                source: io::Error::from_raw_os_error(errno),
            },
            RunReply::DumpTooLong => OracleError::DumpTooLong {
                max_bytes: self.max_dump_bytes,
            },
            RunReply::Broken { reason } => OracleError::System {
                what: "run recovery",
                reason,
            },
            RunReply::Lost { reason } => OracleError::SnapshotLost { reason },
            RunReply::Success { .. } | RunReply::Failure { .. } => OracleError::ZygoteDied,
        }
    }

    fn receive(&mut self) -> Result<Vec<u8>, OracleError> {
        match wire::receive(&self.socket) {
            Ok(Some(message)) => Ok(message),
            Ok(None) | Err(_) => Err(OracleError::ZygoteDied),
        }
    }

    /// Removes what a recovery made beside its pools: the next one must not find it.
    fn remove_leftovers(&self, keep: &[PathBuf]) -> Result<(), OracleError> {
        for (directory, names) in &self.owned {
            let failed = |source| OracleError::Path {
                path: directory.clone(),
                source,
            };
            for entry in std::fs::read_dir(directory).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                if names.contains(&entry.file_name()) || keep.contains(&entry.path()) {
                    continue;
                }
                let removed = if entry.file_type().is_ok_and(|it| it.is_dir()) {
                    std::fs::remove_dir_all(entry.path())
                } else {
                    std::fs::remove_file(entry.path())
                };
                removed.map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn misunderstood(error: &io::Error) -> OracleError {
    OracleError::system("understand the process that starts recoveries", error)
}

fn is_verdict(reply: &RunReply) -> bool {
    matches!(reply, RunReply::Success { .. } | RunReply::Failure { .. })
}

/// Whether two runs did the same, as far as can be seen. Where a hang was does not count.
fn is_same(one: &Ran, other: &Ran) -> bool {
    let dump = |ran: &Ran| match &ran.reply {
        RunReply::Success { dump } => dump.clone(),
        _ => None,
    };
    is_alike(&one.reply, &other.reply) && one.texts == other.texts && dump(one) == dump(other)
}

/// Whether two runs ended the same way, whatever they wrote.
fn is_alike(one: &RunReply, other: &RunReply) -> bool {
    match (one, other) {
        (
            RunReply::Failure { stage, end, .. },
            RunReply::Failure {
                stage: other_stage,
                end: other_end,
                ..
            },
        ) => stage == other_stage && end == other_end,
        (RunReply::Success { .. }, RunReply::Success { .. }) => true,
        _ => false,
    }
}

/// In words.
fn difference(forked: &Ran, plain: &Ran) -> String {
    let what = if !is_alike(&forked.reply, &plain.reply) {
        "ends differently"
    } else if forked.texts != plain.texts {
        "writes something else"
    } else {
        "has another dump"
    };
    format!("recovery {what} when it is forked from a snapshot")
}

/// Private directories in which there is nothing but pools.
fn directories_of_pools_only(mappings: &[PoolMapping]) -> BTreeMap<PathBuf, Vec<OsString>> {
    let mut directories: BTreeMap<PathBuf, Vec<OsString>> = BTreeMap::new();
    for it in mappings {
        if let (Some(directory), Some(name)) = (it.private.parent(), it.private.file_name()) {
            directories
                .entry(directory.into())
                .or_default()
                .push(name.into());
        }
    }
    directories.retain(|directory, names| {
        std::fs::read_dir(directory).is_ok_and(|entries| {
            entries
                .flatten()
                .all(|entry| names.contains(&entry.file_name()))
        })
    });
    directories
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The end of the conversation is the end of the zygote and of all that it started.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = self.zygote.wait();
        // Its mounts are gone with it. Whoever owns the directory sees what is left.
        let _ = self.remove_leftovers(&[]);
    }
}
