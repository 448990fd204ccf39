//! The one place where a check is assembled: recovery, oracle, runner and options.
//!
//! `check`, `crash`, `races`, `replay` and `fuzz` all go through a [`Checker`]. Callers say what to do
//! ([`CrashOptions`]) and how recovery is run ([`Recovery`]); they need not know the oracle or the runner.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use powerfail_finding::Finding;
use powerfail_model::EventIndex;
use powerfail_oracle::{Isolation, Oracle, OracleSettings, Substitution};
use powerfail_trace::{DIRECTORY_NOTE, Trace};

use crate::crash::{Crashed, crash};
use crate::error::CheckError;
use crate::event::{CheckEvent, Observer};
use crate::fresh_name::FreshName;
use crate::options::{CrashOptions, RaceOptions};
use crate::outcomes::Outcomes;
use crate::persistent::{Persistent, has_addresses, imitates_dax};
use crate::places::Places;
use crate::recovery::{Recovery, TIMEOUT_DEFAULT};
use crate::runner::{Runner, RunnerOptions};
use crate::tree::{self, RecoveryRecording, TreeRecording, TreeRunner};

/// Checks one trace with one recovery.
#[derive(Clone, Debug)]
pub struct Checker<'t> {
    trace: &'t Trace,
    recovery: &'t Recovery,
    /// The library that is preloaded into recovery where its reads are watched.
    runtime: Arc<[u8]>,
    /// The plugin of QEMU, which records a recovery that is statically linked.
    plugin: &'static [u8],
    jobs: usize,
    outcomes: Outcomes,
    /// Where traces of recoveries are kept.
    traces: Option<PathBuf>,
}

/// What the oracle is asked for besides running commands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Instruments {
    /// The runtime is preloaded into recovery.
    pub(crate) runtime: bool,
    /// Recoveries are forked from snapshots.
    pub(crate) snapshots: bool,
}

impl<'t> Checker<'t> {
    /// A checker that runs up to `jobs` recoveries at a time.
    pub fn new(trace: &'t Trace, recovery: &'t Recovery, runtime: Arc<[u8]>, jobs: usize) -> Self {
        Self {
            trace,
            recovery,
            runtime,
            plugin: &[],
            jobs,
            outcomes: Outcomes::default(),
            traces: None,
        }
    }

    /// The same, with the plugin of QEMU.
    pub(crate) fn with_plugin(self, plugin: &'static [u8]) -> Self {
        Self { plugin, ..self }
    }

    /// The same, with a directory in which traces of recoveries are kept that findings need.
    pub(crate) fn with_traces(self, traces: Option<&Path>) -> Self {
        let traces = traces.map(Path::to_path_buf);
        Self { traces, ..self }
    }

    /// The same, with outcomes that are known, or are to be kept.
    pub(crate) fn with_outcomes(self, outcomes: Outcomes) -> Self {
        Self { outcomes, ..self }
    }

    /// Lints the trace and lets the power fail in it.
    pub fn crash(
        &self,
        options: &CrashOptions,
        observer: &mut dyn Observer,
    ) -> Result<Crashed, CheckError> {
        // Reads are watched in pools where there are any, also where these are beside other files.
        if (!options.only_races() || self.trace.pools().is_empty())
            && let Some(recording) = self.tree(&mut |read| observer.read(self.trace, read))?
        {
            return self.crash_tree(&recording, options, observer);
        }
        let mut options = options.clone();
        if let Some(eager) = &mut options.eager {
            eager.pass.rules = self.recovery.rules();
        }
        let lint = self.recovery.lint_options(options.warnings);
        let instruments = Instruments {
            runtime: options.lazy.is_some() || options.eager.is_some() || options.races.is_some(),
            snapshots: options.eager.is_some() && options.snapshots,
        };
        let oracle = self.oracle(instruments, &mut |read| observer.read(self.trace, read))?;
        if has_addresses(oracle.plan()) {
            let problem = if imitates_dax(self.trace) {
                "the workload maps pools with MAP_SYNC, which recovery may not be able to do on a file that is not on DAX"
            } else {
                "pools hold addresses, and recovery may not find them where the workload had them"
            };
            for command in oracle.commands_without_runtime() {
                observer.event(CheckEvent::Warning(&format!(
                    "{problem}, because the runtime cannot be loaded into {command}"
                )));
            }
        }
        let mut runner = self.runner_of(&oracle)?;
        let crashed = crash(self.trace, &options, &lint, &mut runner, observer)?;
        Ok(self.finished(crashed, runner.isolation()))
    }

    /// The trees of the trace, if these are crashed and not only pools: the workload maps none, or it also writes other
    /// files, and only syncs make either durable. `progress` hears how many bytes of the trace were read.
    pub(crate) fn tree(
        &self,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<TreeRecording>, CheckError> {
        if !TreeRecording::crashes(self.trace, self.recovery.domain) {
            return Ok(None);
        }
        let recording = TreeRecording::of(self.trace, progress)?;
        Ok(recording.filter(TreeRecording::changes_files))
    }

    /// Whether ordinary files are crashed.
    pub(crate) fn crashes_tree(&self) -> Result<bool, CheckError> {
        Ok(!self.trace.trees().is_empty() && self.tree(&mut |_| ())?.is_some())
    }

    fn crash_tree(
        &self,
        recording: &TreeRecording,
        options: &CrashOptions,
        observer: &mut dyn Observer,
    ) -> Result<Crashed, CheckError> {
        let mut runner = self.tree_runner(recording)?;
        let places = Places::new(self.trace, &self.recovery.trusted());
        let file_system = self.recovery.file_system;
        let again = self.recovery_recording(recording);
        let crashed = tree::crash(
            self.trace,
            options,
            file_system,
            &mut runner,
            again.as_ref().map_err(|reason| *reason),
            places,
            observer,
        )?;
        Ok(self.finished(crashed, runner.isolation()))
    }

    /// How recovery is recorded, to let the power fail while it runs; else a sentence that says why it is not.
    fn recovery_recording(
        &self,
        recording: &TreeRecording,
    ) -> Result<RecoveryRecording, &'static str> {
        let recovery = self.recovery;
        if recovery.ready.is_some() {
            return Err(
                "the power did not fail again during recovery: a recovery that is a server is not recorded",
            );
        }
        if recovery.desock || recovery.derandomise || recovery.input.is_some() {
            return Err(
                "the power did not fail again during recovery: one with an input of its own is not recorded",
            );
        }
        if !rustix::process::geteuid().is_root() {
            return Err(
                "the power did not fail again during recovery: recording it takes mounts of its own, which only root can make",
            );
        }
        let current = std::env::current_dir().unwrap_or_default();
        let directory = std::path::absolute(&recovery.working_directory);
        if directory.is_ok_and(|it| it != current) {
            return Err(
                "the power did not fail again during recovery: it is only recorded in the current directory",
            );
        }
        let note = self.trace.meta().note(DIRECTORY_NOTE).map(PathBuf::from);
        let tree = note.or_else(|| recording.roots.first().cloned());
        let pool = Persistent::of(self.trace).pool().unwrap_or_default();
        let substitution =
            Substitution::of_paths(&pool, &[], &current).with_directory(&tree.unwrap_or_default());
        let words = recovery.with_input(&recovery.recover);
        Ok(RecoveryRecording {
            command: words.iter().map(|it| substitution.apply(it)).collect(),
            directory: self.traces.clone(),
            runtime: Arc::clone(&self.runtime),
            plugin: self.plugin,
            writable: (!recovery.unconfined).then(|| recovery.writable.clone()),
            time_limit: recovery.timeout.unwrap_or(TIMEOUT_DEFAULT),
            ok_exit: recovery.ok_exit.clone(),
            trust: recovery.trusted(),
        })
    }

    /// Adds how recovery was isolated, and hides random names.
    fn finished(&self, mut crashed: Crashed, isolation: Option<&Isolation>) -> Crashed {
        for reason in isolation.iter().flat_map(|isolation| &isolation.reasons) {
            let note = format!("recovery is not fully isolated: {reason}");
            crashed.notes.push(note);
        }
        let Crashed {
            findings,
            totals,
            notes,
            ..
        } = &mut crashed;
        FreshName::of(self.trace).hide_in(findings, totals, notes);
        crashed
    }

    pub(crate) fn tree_runner<'r>(
        &self,
        recording: &'r TreeRecording,
    ) -> Result<TreeRunner<'r>, CheckError> {
        let mut plan = self.recovery.plan(self.trace, &mut |_| ());
        plan.directory = plan.directory.or_else(|| recording.roots.first().cloned());
        let settings = OracleSettings {
            runtime: plan.preload.then(|| Arc::clone(&self.runtime)),
            confinement: self.recovery.confinement(),
            ..OracleSettings::default()
        };
        let oracle = Oracle::new(plan, settings)?;
        let parent = powerfail_image::default_parent();
        TreeRunner::new(recording, &oracle, &parent, self.jobs)
    }

    /// The findings about reads of recovery if the power fails just before one event. `strict` also reports reads
    /// whose value cannot differ.
    pub fn reads_at(
        &self,
        at: EventIndex,
        strict: bool,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Finding>, CheckError> {
        let options = CrashOptions {
            races: Some(RaceOptions {
                alone: true,
                strict,
                ..RaceOptions::default()
            }),
            at: Some(at),
            ..CrashOptions::default()
        };
        Ok(self.crash(&options, observer)?.findings)
    }

    pub(crate) fn runner(&self, instruments: Instruments) -> Result<Runner<'t>, CheckError> {
        self.runner_of(&self.oracle(instruments, &mut |_| ())?)
    }

    fn oracle(
        &self,
        instruments: Instruments,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Oracle, CheckError> {
        let plan = self.recovery.plan(self.trace, progress);
        let settings = OracleSettings {
            runtime: (instruments.runtime || plan.preload).then(|| Arc::clone(&self.runtime)),
            snapshot: instruments.snapshots,
            confinement: self.recovery.confinement(),
            ..OracleSettings::default()
        };
        Ok(Oracle::new(plan, settings)?)
    }

    fn runner_of(&self, oracle: &Oracle) -> Result<Runner<'t>, CheckError> {
        let parent = powerfail_image::default_parent();
        let options = RunnerOptions {
            jobs: self.jobs,
            rules: self.recovery.rules(),
            fill: self.recovery.fill(),
            companions: Vec::new(),
            outcomes: self.outcomes.clone(),
        };
        Runner::new(self.trace, oracle, &parent, options)
    }
}
