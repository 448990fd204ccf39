//! A slot: private files, and the zygote that runs recovery on them. Requests are sent here and answered in
//! `zygote/`.

mod kill;
mod lazy;
mod snapshot;
mod zygote_process;

pub use kill::KillHandle;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use powerfail_finding::RecoveryOutcome;
use powerfail_trace::Module;

use crate::denied::DeniedAccess;
use crate::error::OracleError;
use crate::file_use::WatchedRun;
use crate::hang::SharedKnowledge;
use crate::lazy::{SharedFile, WrittenWatches, write_pools};
use crate::message::{
    FailureKind, IsolationLevel, Request, RunOptions, RunReply, RunResult, Setup, SetupReply,
    StageModules, StartMode,
};
use crate::oracle::OracleSettings;
use crate::plan::PoolMapping;
use crate::slot::snapshot::Snapshots;
use crate::slot::zygote_process::{Launch, ZygoteProcess};
use crate::verdict::{Backtrace, Failure, Stage, SuspectLine, Verdict};

/// The number of the signal.
const SIGKILL: i32 = 9;
/// What a recovery did during which its zygote died.
pub(crate) const ENDED_SUPERVISOR: &str =
    "the process that supervises recovery ended: recovery killed it, or memory ran out";

/// How far a slot is isolated from the rest of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// Whether the image is mounted at the path of the pool; if not, paths are substituted.
    pub own_mounts: bool,
    /// Whether processes have a namespace of their own.
    pub own_processes: bool,
    /// Why better isolation or confinement is not available; empty if all of it is.
    pub reasons: Vec<String>,
}

/// Runs recovery on one set of private files. It can be sent to another thread; its runs are sequential.
#[derive(Debug)]
pub struct Slot {
    launch: Launch,
    zygote: ZygoteProcess,
    kill_handle: KillHandle,
    isolation: Isolation,
    timeout: Duration,
    max_dump_bytes: u64,
    /// Private directories that held only pools, and the names of these.
    owned: BTreeMap<PathBuf, Vec<OsString>>,
    /// Files that the zygote created there, as mount points.
    placeholders: Vec<PathBuf>,
    mappings: Vec<PoolMapping>,
    /// Shared with recovering processes; `None` without a runtime.
    file: Option<SharedFile>,
    /// The watches that are in it.
    watches: Option<WrittenWatches>,
    only_recovery: bool,
    /// Whether a forked execution needed to change the private files.
    needs_files: bool,
    snapshots: Snapshots,
    /// What is known about hangs, and the version that the zygote has.
    hangs: SharedKnowledge,
    hangs_version: u64,
    suspects: Vec<SuspectLine>,
}

/// The result of an attempt to start a slot.
pub(crate) enum StartedSlot {
    Ready(Box<Slot>),
    /// This kind of isolation is not available, for a reason.
    NotIsolated(String),
}

impl Slot {
    /// Starts a zygote and waits until it is set up.
    pub(crate) fn start(
        settings: &OracleSettings,
        runtime: Option<&OwnedFd>,
        setup: &Setup,
        mappings: &[PoolMapping],
        hangs: &SharedKnowledge,
    ) -> Result<StartedSlot, OracleError> {
        let failed = OracleError::system::<io::Error>("start the process that starts recoveries");
        let launch = Launch {
            program: settings.zygote.clone(),
            setup: setup.clone(),
            runtime: runtime
                .map(OwnedFd::try_clone)
                .transpose()
                .map_err(&failed)?,
        };
        let zygote = ZygoteProcess::start(&launch).map_err(&failed)?;
        let kill_handle = KillHandle::of(&zygote.child).map_err(&failed)?;
        let mut slot = Self {
            launch,
            zygote,
            kill_handle,
            isolation: Isolation {
                own_mounts: !setup.mounted_pools.is_empty(),
                own_processes: setup.level == IsolationLevel::Full,
                reasons: Vec::new(),
            },
            timeout: setup.plan.timeout,
            max_dump_bytes: setup.plan.max_dump_bytes,
            owned: directories_of_pools_only(mappings),
            placeholders: Vec::new(),
            mappings: mappings.to_vec(),
            file: None,
            watches: None,
            only_recovery: setup.plan.is_recovery_only(),
            needs_files: false,
            snapshots: Snapshots::new(settings.snapshot && runtime.is_some()),
            hangs: hangs.clone(),
            hangs_version: 0,
            suspects: Vec::new(),
        };
        if runtime.is_some() {
            let file = SharedFile::create().map_err(&failed)?;
            let paths: Vec<&Path> = mappings.iter().map(|it| slot.path_seen(it)).collect();
            write_pools(&file, &paths).map_err(&failed)?;
            slot.file = Some(file);
        }
        slot.zygote.set_up(&slot.launch, slot.file.as_ref());
        match slot.zygote.receive()? {
            SetupReply::Ready {
                placeholders,
                notes,
            } => {
                slot.placeholders = placeholders;
                slot.isolation.reasons = notes;
                Ok(StartedSlot::Ready(Box::new(slot)))
            }
            SetupReply::NotIsolated { reason } => Ok(StartedSlot::NotIsolated(reason)),
            SetupReply::Failed { path, error } => Err(OracleError::Path {
                path,
                source: error.into(),
            }),
        }
    }

    /// Keeps the reasons why better isolation is not available.
    pub(crate) fn note_fallback(&mut self, mut reasons: Vec<String>) {
        reasons.append(&mut self.isolation.reasons);
        self.isolation.reasons = reasons;
    }

    /// How far it is isolated.
    pub fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    /// A handle that kills the recoveries of this slot from another thread.
    pub fn kill_handle(&self) -> KillHandle {
        self.kill_handle.clone()
    }

    pub(super) fn verdict_of(&self, reply: RunReply) -> Result<Verdict, OracleError> {
        match reply {
            RunReply::Success { dump } => Ok(Verdict::Success {
                dump: dump.map(|it| it.0),
            }),
            RunReply::Failure {
                stage,
                kind,
                output,
                backtrace,
            } => {
                let command = stage.as_str().to_owned();
                let outcome = match kind {
                    FailureKind::Exited(status) => RecoveryOutcome::Exit {
                        status,
                        command,
                        output,
                    },
                    FailureKind::Signaled(signal) => RecoveryOutcome::Signal {
                        signal,
                        command,
                        output,
                    },
                    FailureKind::TimedOut => RecoveryOutcome::Timeout {
                        after_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
                        command,
                        output,
                    },
                    FailureKind::Matched(pattern) => RecoveryOutcome::Output {
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

    /// Runs the plan once more under ptrace, which is slower, to learn where it is when a signal ends it. The
    /// private files must be prepared as before the run that crashed. `None` if it does not crash this time.
    pub fn backtrace_of_crash(&mut self) -> Result<Option<Backtrace>, OracleError> {
        let options = RunOptions {
            start: StartMode::ExecuteTraced,
            ..RunOptions::default()
        };
        match self.request_run(options)?.reply {
            RunReply::Success { .. } => Ok(None),
            RunReply::Failure { backtrace, .. } => Ok(backtrace),
            reply => Err(self.error_of(reply)),
        }
    }

    /// Runs the plan once more under ptrace, which is slower, to learn what its confinement denies, and how often.
    pub fn denied_accesses(&mut self) -> Result<Vec<(DeniedAccess, u64)>, OracleError> {
        let options = RunOptions {
            start: StartMode::ExecuteAudited,
            ..RunOptions::default()
        };
        let ran = self.request_run(options)?;
        if ran.reply.is_verdict() {
            Ok(ran.denied)
        } else {
            Err(self.error_of(ran.reply))
        }
    }

    /// Runs the plan under ptrace, which is slower, to learn what it reads of the files of trees and writes to them.
    pub fn run_watched(&mut self) -> Result<WatchedRun, OracleError> {
        let options = RunOptions {
            start: StartMode::ExecuteWatched,
            ..RunOptions::default().with_outputs()
        };
        let ran = self.request_run(options)?;
        Ok(WatchedRun {
            verdict: self.verdict_of(ran.reply)?,
            outputs: ran.outputs,
            uses: ran.uses,
        })
    }

    /// The modules that each command had loaded when it was forked from a snapshot or explored, to resolve
    /// addresses in choices.
    pub fn modules(&mut self) -> Result<Vec<(Stage, Vec<Module>)>, OracleError> {
        self.zygote.send(&Request::Modules)?;
        let of_stages: Vec<StageModules> = self.zygote.receive()?;
        let pair = |it: StageModules| (it.stage, it.modules);
        Ok(of_stages.into_iter().map(pair).collect())
    }

    /// The path at which recovery opens a pool.
    fn path_seen<'m>(&self, mapping: &'m PoolMapping) -> &'m Path {
        if self.isolation.own_mounts {
            &mapping.original
        } else {
            &mapping.private
        }
    }

    pub(super) fn request_run(&mut self, options: RunOptions) -> Result<RunResult, OracleError> {
        let mut ran = match self.exchange_run(options) {
            Err(OracleError::ZygoteDied) if self.revive() => ended_its_supervisor(),
            ran => ran?,
        };
        self.hangs.add(std::mem::take(&mut ran.shown));
        self.add_suspects(std::mem::take(&mut ran.suspects));
        Ok(ran)
    }

    fn exchange_run(&mut self, options: RunOptions) -> Result<RunResult, OracleError> {
        self.remove_leftovers(&self.placeholders)?;
        self.tell_hangs()?;
        self.zygote.send(&Request::Run(options))?;
        self.zygote.receive()
    }

    /// Starts another zygote in place of one that has died. Whether there is one now: not if the slot was killed.
    pub(super) fn revive(&mut self) -> bool {
        if self.kill_handle.is_killed() {
            return false;
        }
        let Ok(zygote) = ZygoteProcess::start(&self.launch) else {
            return false;
        };
        // The mounts of the old one are gone as soon as it was waited for.
        self.zygote = zygote;
        let replaced = self.kill_handle.replace(&self.zygote.child);
        self.hangs_version = 0;
        let cleared = self.remove_leftovers(&[]);
        self.zygote.set_up(&self.launch, self.file.as_ref());
        match self.zygote.receive() {
            Ok(SetupReply::Ready { placeholders, .. }) => {
                self.placeholders = placeholders;
                replaced.is_ok() && cleared.is_ok()
            }
            _ => false,
        }
    }

    /// Adds lines that look like failures, as if a run had written them. The least of each word is kept.
    pub fn add_suspects(&mut self, suspects: Vec<SuspectLine>) {
        for suspect in suspects {
            let same = self.suspects.iter_mut().find(|it| it.word == suspect.word);
            match same {
                Some(known) if known.line <= suspect.line => {}
                Some(known) => *known = suspect,
                None => self.suspects.push(suspect),
            }
        }
    }

    /// Lines that look like failures, from runs that succeeded since the last call: one for each word.
    pub fn take_suspects(&mut self) -> Vec<SuspectLine> {
        std::mem::take(&mut self.suspects)
    }

    /// Tells the zygote what other slots have learned about hangs.
    pub(super) fn tell_hangs(&mut self) -> Result<(), OracleError> {
        if let Some((version, known)) = self.hangs.newer_than(self.hangs_version) {
            self.zygote.send(&Request::Learn(known))?;
            self.hangs_version = version;
        }
        Ok(())
    }

    pub(super) fn error_of(&self, reply: RunReply) -> OracleError {
        match reply {
            RunReply::CannotStart {
                stage,
                program,
                error,
            } => OracleError::Start {
                command: stage,
                program,
                source: error.into(),
            },
            RunReply::DumpTooLong => OracleError::DumpTooLong {
                max_bytes: self.max_dump_bytes,
            },
            RunReply::ZygoteFailed(error) => OracleError::System {
                action: "run recovery",
                source: error.into(),
            },
            RunReply::SnapshotLost { reason } => OracleError::SnapshotLost { reason },
            RunReply::Success { .. } | RunReply::Failure { .. } => OracleError::ZygoteDied,
        }
    }

    /// Removes files that a recovery created beside its pools, so that the next one does not find them.
    pub(super) fn remove_leftovers(&self, keep: &[PathBuf]) -> Result<(), OracleError> {
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

/// Private directories that hold only pools.
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
        self.zygote.end();
        // Its mounts are gone with it. Files that cannot be removed stay.
        let _ = self.remove_leftovers(&[]);
    }
}

/// The outcome of a recovery during which the zygote died.
fn ended_its_supervisor() -> RunResult {
    let output = format!("[powerfail: {ENDED_SUPERVISOR}]\n");
    RunResult::of(RunReply::Failure {
        stage: Stage::Recovery,
        kind: FailureKind::Signaled(SIGKILL),
        output,
        backtrace: None,
    })
}
