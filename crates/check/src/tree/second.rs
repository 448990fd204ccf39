//! Power failures during recovery. Recovery is recorded on a few crashed trees in which it changes something, as the workload was:
//! the same phases then let the power fail in that recording, and recovery must succeed once more.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use powerfail_finding::Finding;
use powerfail_image::TreeImage;
use powerfail_lint::Trust;
use powerfail_recorder::{PrivateTrees, RecordOptions, Stacks, TargetStatus};
use powerfail_trace::Trace;

use super::engine::{Again, TreeEngine};
use super::lossy::Lossy;
use super::prefix::Prefixes;
use super::recording::TreeRecording;
use super::runner::TreeTrial;
use super::words::in_sentence;
use crate::error::CheckError;
use crate::options::CrashOptions;
use crate::places::Places;

/// On how many crashed trees recovery is recorded.
const RECORDINGS_MAX: usize = 4;

/// How recovery is recorded.
#[derive(Clone, Debug)]
pub(crate) struct RecoveryRecording {
    /// The command, with the directory in place of `{dir}`.
    pub(crate) command: Vec<OsString>,
    /// Where the traces are kept that findings need; `None` keeps none.
    pub(crate) directory: Option<PathBuf>,
    /// The runtime that records.
    pub(crate) runtime: Arc<[u8]>,
    /// The plugin of QEMU, for a recovery that is statically linked.
    pub(crate) plugin: &'static [u8],
    /// What it may write to; `None` is everything.
    pub(crate) writable: Option<Vec<PathBuf>>,
    pub(crate) time_limit: Duration,
    /// Exit statuses besides 0 that count as success.
    pub(crate) ok_exit: Vec<u8>,
    /// Modules whose lines are not those of the program.
    pub(crate) trust: Trust,
}

/// What second failures have shown.
#[derive(Default)]
struct SecondFailures {
    findings: Vec<Finding>,
    notes: Vec<String>,
    /// Crash states of recoveries that were tried.
    states: u64,
}

/// Recoveries that do the same to files of the same kinds are alike.
type Likeness = Vec<(String, String)>;

impl TreeEngine<'_, '_> {
    /// Lets the power fail again, if that is wanted, where recovery changes something after the first failure. What is found
    /// is added to what the first failures have shown.
    pub(super) fn fail_during_recovery(
        &mut self,
        prefixes: &Prefixes,
        lossy: &mut Lossy,
        how: Result<&RecoveryRecording, &str>,
        options: &CrashOptions,
    ) -> Result<(), CheckError> {
        let mut changed: Vec<TreeTrial> = prefixes.changed().collect();
        changed.append(&mut lossy.changed);
        let depth = options.lazy.as_ref().map_or(1, |it| it.depth);
        if depth < 2 || changed.is_empty() || self.is_interrupted || options.is_partial() {
            return Ok(());
        }
        let second = match how {
            Ok(how) => {
                self.allow(95);
                let failed = self.second_failures(&changed, how, options);
                self.unless_interrupted(failed)?.unwrap_or_default()
            }
            Err(reason) => SecondFailures {
                notes: vec![reason.to_owned()],
                ..SecondFailures::default()
            },
        };
        lossy.totals.second_states = second.states;
        lossy.notes.extend(second.notes);
        lossy.findings.extend(second.findings);
        Ok(())
    }

    /// Lets the power fail while recovery repairs some of these trees.
    fn second_failures(
        &mut self,
        trials: &[TreeTrial],
        how: &RecoveryRecording,
        options: &CrashOptions,
    ) -> Result<SecondFailures, CheckError> {
        let mut second = SecondFailures::default();
        let mut options = options.clone();
        // Recoveries of one program are much alike: one failure point of each call stack, unless all are asked for.
        options.tree.per_stack = options.tree.per_stack.min(1);
        let options = &options;
        let roots = &self.recording.roots;
        let is_nested = |one: &PathBuf| roots.iter().any(|it| it != one && one.starts_with(it));
        if roots.iter().any(is_nested) {
            second.notes.push(not_tried("one tree lies in another"));
            return Ok(second);
        }
        let mut known: BTreeSet<Likeness> = BTreeSet::new();
        for (number, trial) in spread(trials, RECORDINGS_MAX).into_iter().enumerate() {
            if self.is_stopped() {
                break;
            }
            let name = format!("recovery-{number}.trace");
            let directory = how.directory.as_deref();
            let path = directory.unwrap_or(self.runner.path()).join(&name);
            let image = self.recording.image(trial.place, &trial.difference);
            if let Err(reason) = self.record_recovery(&image, how, &path) {
                let _ = fs::remove_file(&path);
                second.notes.push(not_tried(&reason));
                break;
            }
            let before = second.findings.len();
            let result = self.fail_again(trial, how, (&name, &path), &mut known, options);
            let done = self.unless_interrupted(result);
            if let Ok(Some(found)) = &done {
                second.findings.extend(found.findings.iter().cloned());
                second.states += found.states;
            }
            if second.findings.len() == before {
                let _ = fs::remove_file(&path);
            }
            done?;
        }
        Ok(second)
    }

    /// Records recovery on a tree. An error is a sentence that says why it cannot be.
    fn record_recovery(
        &mut self,
        image: &TreeImage,
        how: &RecoveryRecording,
        trace: &std::path::Path,
    ) -> Result<(), String> {
        let mut slot = self.runner.another_slot();
        slot.prepare(image).map_err(|error| error.to_string())?;
        let trees = slot.roots();
        let trees = trees.map(|(original, private)| (original.to_path_buf(), private));
        let mut options = RecordOptions::new(how.command.clone(), trace);
        options.private_trees = Some(PrivateTrees {
            trees: trees.collect(),
            writable: how.writable.clone(),
        });
        options.plugin = how.plugin;
        options.stacks = Stacks::Full;
        options.time_limit = Some(how.time_limit);
        options.discard_output = true;
        options.forward_signals = false;
        options.input = Some(powerfail_recorder::Input {
            bytes: Vec::new(),
            channel: powerfail_recorder::InputChannel::Stdin,
        });
        let summary = powerfail_recorder::record(&options, &how.runtime)
            .map_err(|error| format!("recovery cannot be recorded: {error}"))?;
        let is_good = |code: i32| code == 0 || how.ok_exit.iter().any(|it| i32::from(*it) == code);
        if let Some(sentence) = summary.fatal.iter().chain(&summary.unrecorded).next() {
            return Err(format!("recovery cannot be recorded: {sentence}"));
        }
        match summary.status {
            TargetStatus::Exited(code) if is_good(code) => Ok(()),
            status => Err(format!(
                "recovery does not succeed while it is recorded ({status})"
            )),
        }
    }

    /// Lets the power fail in a recording of recovery.
    fn fail_again(
        &mut self,
        trial: &TreeTrial,
        how: &RecoveryRecording,
        (name, path): (&str, &std::path::Path),
        known: &mut BTreeSet<Likeness>,
        options: &CrashOptions,
    ) -> Result<SecondFailures, CheckError> {
        let trace = Trace::open(path)?;
        // Stores to mappings count as data of their files only where they did so in the workload.
        let maps = |trace: &Trace| !trace.pools().is_empty();
        let Some(recording) = TreeRecording::of(&trace, &mut |_| ())? else {
            return Ok(SecondFailures::default());
        };
        if maps(&trace) && !maps(self.trace)
            || !recording.changes_files()
            || recording.roots != self.recording.roots
            || !known.insert(likeness(&recording))
        {
            return Ok(SecondFailures::default());
        }
        let first = self.event_at(trial.place);
        let again = Again {
            trace: name.to_owned(),
            first: in_sentence(self.recording, trial.place),
        };
        let mut contents = self.contents.fixed_at(first);
        let mut places = Places::new(&trace, &how.trust);
        let (file_system, clock) = (self.file_system, self.clock);
        let observer = &mut *self.observer;
        self.runner.on(&recording, |runner| {
            let mut engine =
                TreeEngine::new(&trace, runner, observer, &mut contents, file_system, clock);
            engine.again = Some(again);
            engine.allow(95);
            let mut prefixes = engine.prefixes(options, true, &mut places)?;
            let mut found = SecondFailures {
                states: prefixes.judged.len() as u64,
                ..SecondFailures::default()
            };
            let mut explained = Vec::new();
            engine.explain_prefixes(&mut prefixes, &mut places, &mut explained)?;
            for finding in &explained {
                engine.announce(finding);
            }
            found.findings.extend(explained);
            let lossy = engine.lossy(options, &mut prefixes, &mut places)?;
            found.states += lossy.totals.states;
            for finding in lossy.findings {
                super::join(finding, &mut found.findings);
            }
            Ok(found)
        })
    }
}

/// The note about what was not done.
fn not_tried(reason: &str) -> String {
    format!("the power did not fail again during recovery: {reason}")
}

/// Some of a list, from all parts of it.
fn spread(trials: &[TreeTrial], count: usize) -> Vec<&TreeTrial> {
    let step = trials.len().div_ceil(count.max(1)).max(1);
    trials.iter().step_by(step).collect()
}

fn likeness(recording: &TreeRecording) -> Likeness {
    let roles = recording.roles();
    let operations = (0..).zip(&recording.operations).map(|(place, it)| {
        let node = it.operation.node();
        let role = node.and_then(|node| roles.get(&node)).cloned();
        (
            super::words::noun(recording, place),
            role.unwrap_or_default(),
        )
    });
    let mut likeness: Likeness = operations.collect();
    // A log that is replayed is the same for any number of records.
    likeness.dedup();
    likeness
}
