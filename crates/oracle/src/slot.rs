//! A slot: private files, and the zygote that runs recovery on them. This is the oracle's end of the
//! conversation; the other is `zygote/`.

mod explore;
mod kill;
mod snapshot;

pub use kill::KillHandle;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use powerfail_finding::RecoveryOutcome;
use powerfail_trace::Module;

use crate::descriptors;
use crate::error::OracleError;
use crate::explore::{ExploreFile, write_pools};
use crate::message::{End, Level, ModulesReply, Ran, Request, RunReply, Setup, SetupReply};
use crate::oracle::Settings;
use crate::plan::PoolMapping;
use crate::slot::snapshot::Snapshots;
use crate::verdict::{Backtrace, Failure, Stage, Verdict};
use crate::wire;
use crate::zygote::ZYGOTE_NAME;

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
    kill_handle: KillHandle,
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
    /// An execution of recovery that was forked could not do what it does without the private files.
    needs_files: bool,
    snapshots: Snapshots,
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
        let kill_handle = KillHandle::of(&zygote).map_err(failed)?;
        let mut slot = Self {
            zygote,
            kill_handle,
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
            needs_files: false,
            snapshots: Snapshots::new(settings.snapshot && runtime.is_some()),
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

    /// A handle that kills the recoveries of this slot from another thread.
    pub fn kill_handle(&self) -> KillHandle {
        self.kill_handle.clone()
    }

    pub(super) fn verdict_of(&self, reply: RunReply) -> Result<Verdict, OracleError> {
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
        if self.isolation.own_mounts {
            &mapping.original
        } else {
            &mapping.private
        }
    }

    pub(super) fn ask(
        &mut self,
        traced: bool,
        snapshot: bool,
        texts: bool,
    ) -> Result<Ran, OracleError> {
        self.remove_leftovers(&self.placeholders)?;
        self.say(Request::Run {
            traced,
            snapshot,
            texts,
        })?;
        Ran::decode(&self.receive()?).map_err(|error| misunderstood(&error))
    }

    pub(super) fn say(&self, request: Request) -> Result<(), OracleError> {
        request
            .encode()
            .send(&self.socket)
            .map_err(|_| OracleError::ZygoteDied)
    }

    pub(super) fn error_of(&self, reply: RunReply) -> OracleError {
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

    pub(super) fn receive(&mut self) -> Result<Vec<u8>, OracleError> {
        match wire::receive(&self.socket) {
            Ok(Some(message)) => Ok(message),
            Ok(None) | Err(_) => Err(OracleError::ZygoteDied),
        }
    }

    /// Removes what a recovery made beside its pools: the next one must not find it.
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

pub(super) fn misunderstood(error: &io::Error) -> OracleError {
    OracleError::system("understand the process that starts recoveries", error)
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
