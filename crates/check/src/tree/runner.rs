//! Runs recovery on crashed trees, several at a time. Each worker has a slot of its own, makes the tree in it and runs
//! recovery there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use powerfail_image::{ImageError, RunDirectory, TreeImage, TreeSlot, TreeUse};
use powerfail_model::files::Difference;
use powerfail_oracle::{
    Backtrace, DeniedAccess, KillHandle, Oracle, OracleError, PoolMapping, Slot, Verdict,
};

use super::races::{NodeUse, WatchedTree};
use super::recording::TreeRecording;
use crate::error::CheckError;
use crate::runner::{answer_unless_interrupted, kill, note_suspects, run_in};

/// A crashed tree to try.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeTrial {
    /// The power fails before the operation at this place of the list.
    pub(crate) place: usize,
    /// What the tree lacks.
    pub(crate) difference: Difference,
}

impl TreeTrial {
    /// Nothing is lost.
    pub(crate) fn newest(place: usize) -> Self {
        Self {
            place,
            ..Self::default()
        }
    }
}

/// What recovery did on a tree that no crash has left.
pub(super) struct RunOnTree {
    pub(super) verdict: Verdict,
    pub(super) outputs: Vec<String>,
    pub(super) used: TreeUse,
}

/// A worker: private directories, and the process that runs recovery on them.
struct Worker {
    // Dropped first: its mounts are on the tree.
    recovery: Slot,
    tree: TreeSlot,
}

/// What a worker could not do.
enum WorkerError {
    Image(ImageError),
    Oracle(OracleError),
}

impl From<WorkerError> for CheckError {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Image(error) => error.into(),
            WorkerError::Oracle(error) => error.into(),
        }
    }
}

/// Runs recovery on crashed trees.
pub(crate) struct TreeRunner<'r> {
    pub(crate) recording: &'r TreeRecording,
    workers: Vec<Worker>,
    is_confined: bool,
    /// Lines that look like failures, of recoveries that succeeded: one for each word.
    suspects: BTreeMap<String, String>,
    /// Recoveries run so far.
    pub(crate) runs: u64,
    /// What each recovery of the last call of `run` did to its tree.
    pub(super) uses: Vec<TreeUse>,
    // Dropped last, because the slots are in it.
    directory: Arc<RunDirectory>,
}

impl<'r> TreeRunner<'r> {
    /// Makes the slots, in a new directory under `parent`.
    pub(crate) fn new(
        recording: &'r TreeRecording,
        oracle: &Oracle,
        parent: &Path,
        jobs: usize,
    ) -> Result<Self, CheckError> {
        let directory = RunDirectory::create_in(parent)?;
        let initial = recording.newest(0).image();
        let mut workers = Vec::new();
        for number in 0..jobs.max(1) {
            let mut tree = directory.tree_slot(number, recording.roots.clone());
            // A zygote mounts the directories, so they must exist.
            tree.prepare(&initial)?;
            let roots = tree.roots();
            let mappings: Vec<PoolMapping> = roots
                .map(|(original, private)| PoolMapping {
                    original: original.to_owned(),
                    private,
                })
                .collect();
            let recovery = oracle.slot(&mappings)?;
            workers.push(Worker { recovery, tree });
        }
        Ok(Self {
            recording,
            workers,
            is_confined: oracle.is_confined(),
            suspects: BTreeMap::new(),
            runs: 0,
            uses: Vec::new(),
            directory: Arc::new(directory),
        })
    }

    /// A directory that exists as long as this.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A slot without a recovery.
    pub(super) fn another_slot(&self) -> TreeSlot {
        let roots = self.recording.roots.clone();
        self.directory.tree_slot(self.workers.len(), roots)
    }

    /// Works with the same slots on another recording of the same trees.
    pub(super) fn on<'s, T>(
        &mut self,
        recording: &'s TreeRecording,
        work: impl FnOnce(&mut TreeRunner<'s>) -> T,
    ) -> T {
        let mut other = TreeRunner {
            recording,
            workers: std::mem::take(&mut self.workers),
            is_confined: self.is_confined,
            suspects: std::mem::take(&mut self.suspects),
            runs: self.runs,
            uses: Vec::new(),
            directory: Arc::clone(&self.directory),
        };
        let result = work(&mut other);
        (self.workers, self.suspects, self.runs) = (other.workers, other.suspects, other.runs);
        result
    }

    /// How well recovery is isolated.
    pub(crate) fn isolation(&self) -> Option<&powerfail_oracle::Isolation> {
        self.workers.first().map(|it| it.recovery.isolation())
    }

    /// Runs all trials, until it is late: then no further one begins. A trial without a verdict has not run.
    pub(crate) fn run(
        &mut self,
        trials: &[TreeTrial],
        is_late: &(dyn Fn() -> bool + Sync),
        is_interrupted: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Option<Verdict>>, CheckError> {
        let mut results: Vec<Option<Verdict>> = vec![None; trials.len()];
        let mut uses = vec![TreeUse::default(); trials.len()];
        let recording = self.recording;
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let handles: Vec<KillHandle> = { self.workers.iter() }
            .map(|it| it.recovery.kill_handle())
            .collect();
        let (sender, answers) = mpsc::channel();
        let outcome = std::thread::scope(|scope| {
            for worker in &mut self.workers {
                let (sender, next, stop) = (sender.clone(), &next, &stop);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(trial) = trials.get(number) else {
                            return;
                        };
                        if stop.load(Ordering::Relaxed) || is_late() {
                            return;
                        }
                        let image = recording.image(trial.place, &trial.difference);
                        let verdict = worker.run(&image);
                        let is_error = verdict.is_err();
                        if sender.send((number, verdict)).is_err() || is_error {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let mut done = 0;
            loop {
                match answer_unless_interrupted(&answers, is_interrupted) {
                    Ok((number, verdict)) => {
                        match verdict {
                            Ok((verdict, tree)) => {
                                results[number] = Some(verdict);
                                uses[number] = tree;
                            }
                            Err(error) => {
                                stop.store(true, Ordering::Relaxed);
                                return Err(error.into());
                            }
                        }
                        done += 1;
                        progress(done);
                    }
                    // All workers have ended.
                    Err(CheckError::Oracle(OracleError::ZygoteDied)) => return Ok(done),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        kill(&handles);
                        return Err(error);
                    }
                }
            }
        });
        self.note_suspects();
        self.runs += outcome?;
        self.uses = uses;
        Ok(results)
    }

    /// Runs recovery several times on one tree, one after the other, without making it new.
    pub(crate) fn run_in_a_row(
        &mut self,
        trial: &TreeTrial,
        times: usize,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<Verdict>, CheckError> {
        let verdicts = self.first(trial, is_interrupted, |slot| {
            (0..times).map(|_| slot.run_plain()).collect()
        })?;
        self.runs += times as u64;
        Ok(verdicts)
    }

    /// Runs recovery on any tree. The run is not counted, because it is not about a crash.
    pub(super) fn run_on(
        &mut self,
        image: &TreeImage,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<RunOnTree, CheckError> {
        self.workers[0].tree.prepare(image)?;
        let mut ran = self.run_prepared(is_interrupted, |slot| {
            Ok(vec![slot.run_on_changed_pools()?])
        })?;
        let ran = ran.pop();
        let (verdict, outputs) = ran.ok_or(CheckError::Oracle(OracleError::ZygoteDied))?;
        Ok(RunOnTree {
            verdict,
            outputs,
            used: self.workers[0].tree.used(),
        })
    }

    /// Runs recovery on a tree, and watches what it reads and writes.
    pub(super) fn watch(
        &mut self,
        trial: &TreeTrial,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<WatchedTree, CheckError> {
        self.runs += 1;
        let mut ran = self.first(trial, is_interrupted, |slot| Ok(vec![slot.run_watched()?]))?;
        let ran = ran
            .pop()
            .ok_or(CheckError::Oracle(OracleError::ZygoteDied))?;
        let tree = &self.workers[0].tree;
        let uses = ran.uses.into_iter().filter_map(|used| {
            Some(NodeUse {
                node: tree.node_of(used.device, used.inode)?,
                range: used.range,
                reader: used.reader,
            })
        });
        Ok(WatchedTree {
            verdict: ran.verdict,
            outputs: ran.outputs,
            uses: uses.collect(),
        })
    }

    /// Where recovery crashes on a tree.
    pub(crate) fn backtrace(
        &mut self,
        trial: &TreeTrial,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Backtrace>, CheckError> {
        self.runs += 1;
        let mut found = self.first(trial, is_interrupted, |slot| {
            Ok(vec![slot.backtrace_of_crash()?])
        })?;
        Ok(found.pop().flatten())
    }

    /// What the confinement of recovery denies on a tree, and how often.
    pub(crate) fn denied(
        &mut self,
        trial: &TreeTrial,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<(DeniedAccess, u64)>, CheckError> {
        if !self.is_confined {
            return Ok(Vec::new());
        }
        match self.first(trial, is_interrupted, Slot::denied_accesses) {
            // Where processes may not be traced, or are not to run any more, that is not known.
            Err(CheckError::Oracle(OracleError::Start { .. } | OracleError::ZygoteDied)) => {
                Ok(Vec::new())
            }
            denied => denied,
        }
    }

    /// Lines that look like failures, of recoveries that succeeded since the last call, by the word that does.
    pub(crate) fn take_suspects(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.suspects)
    }

    fn first<T: Send>(
        &mut self,
        trial: &TreeTrial,
        is_interrupted: &dyn Fn() -> bool,
        run: impl FnOnce(&mut Slot) -> Result<Vec<T>, OracleError> + Send,
    ) -> Result<Vec<T>, CheckError> {
        let image = self.recording.image(trial.place, &trial.difference);
        self.workers[0].tree.prepare(&image)?;
        self.run_prepared(is_interrupted, run)
    }

    fn run_prepared<T: Send>(
        &mut self,
        is_interrupted: &dyn Fn() -> bool,
        run: impl FnOnce(&mut Slot) -> Result<Vec<T>, OracleError> + Send,
    ) -> Result<Vec<T>, CheckError> {
        let ran = run_in(&mut self.workers[0].recovery, is_interrupted, run)?;
        self.note_suspects();
        Ok(ran)
    }

    fn note_suspects(&mut self) {
        for worker in &mut self.workers {
            note_suspects(&mut self.suspects, worker.recovery.take_suspects());
        }
    }
}

impl Worker {
    fn run(&mut self, image: &TreeImage) -> Result<(Verdict, TreeUse), WorkerError> {
        self.tree.prepare(image).map_err(WorkerError::Image)?;
        let verdict = self.recovery.run_plain().map_err(WorkerError::Oracle)?;
        Ok((verdict, self.tree.used()))
    }
}
