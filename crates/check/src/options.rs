//! What to try in a crash test. How recovery is run is in [`Recovery`](crate::Recovery).

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use powerfail_config::Partition;
use powerfail_explore::{EagerOptions, FailurePoint, FailurePointOptions};
use powerfail_lint::Hit;
use powerfail_model::EventIndex;
use powerfail_races::CommitVariable;
use powerfail_trace::{Frame, StackId};
use regex::bytes::Regex;

use crate::changed::ChangedSince;
use crate::event::CheckStep;
use crate::places::Places;

/// What a crash test tries.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct CrashOptions {
    /// Which failure points.
    pub tree: FailurePointOptions,
    /// How long all of it may take, about.
    pub budget: Option<Duration>,
    /// When that time began; `None` is when the test begins.
    pub begun: Option<Instant>,
    /// Also report what only costs time.
    pub warnings: bool,
    /// Output of the workload that acknowledges an operation.
    pub ack: Option<Regex>,
    /// Let all stores before a failure survive, at the failure points of the tree.
    pub prefix: bool,
    /// Try every combination of stores that may survive, or a sample of them. The rules are those of recovery.
    pub eager: Option<EagerOptions>,
    /// Fork the recoveries of combinations from snapshots.
    pub snapshots: bool,
    /// Explore everything that recovery can observe.
    pub lazy: Option<LazyOptions>,
    /// Watch what recovery reads.
    pub races: Option<RaceOptions>,
    /// Chooses the failure points and candidates that are tried; `None` tries all.
    pub selection: Option<Arc<dyn Selection>>,
    /// Test whether recovery can fail at all, and say if nothing was checked, also if a selection chooses what is tried.
    pub tests_oracle: bool,
    /// Let the power fail only just before this event.
    pub at: Option<EventIndex>,
    /// Try only this share of what there is to try; `None` tries all.
    pub partition: Option<Partition>,
    /// Call stacks that are new since something are tried first.
    pub changed: Option<Arc<ChangedSince>>,
    /// How long a recovery takes without a crash, if it is known to succeed: it is not tried again.
    pub undisturbed: Option<Duration>,
    /// Tells what a recovery does in which the runtime is not.
    pub watched: Option<Arc<dyn WatchedRecovery>>,
}

/// Runs recovery where the runtime cannot be, as in the kernel of a guest, and tells what it does. An error is a sentence.
pub trait WatchedRecovery: fmt::Debug + Send + Sync {
    /// Which bytes of a pool recovery reads, and what checks the pool after it; in order. `pool` is a crash image.
    fn reads(&self, pool: &Path) -> Result<Vec<Range<u64>>, String>;
    /// What recovery does, before checks begin. `pool` is a crash image.
    fn steps(&self, pool: &Path) -> Result<Vec<WatchedStep>, String>;
}

/// A store, a flush or a fence of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedStep {
    /// Where in the code, innermost first; modules are those of the trace.
    pub frames: Vec<Frame>,
    /// What it stores, and where in the pool; nothing if it is a flush or a fence.
    pub stored: Option<(u64, Vec<u8>)>,
}

/// Decides what is worth trying. Fuzzing uses it, because it checks many traces of one program.
pub trait Selection: fmt::Debug + Send + Sync {
    /// Whether to let the power fail there, in this step.
    fn wants_point(&self, step: CheckStep, point: &FailurePoint) -> bool;
    /// Whether to confirm a candidate of the lint.
    fn wants_candidate(&self, hit: &Hit) -> bool;
}

impl CrashOptions {
    /// Whether only the reads of recovery are watched.
    pub(crate) fn only_races(&self) -> bool {
        self.races.as_ref().is_some_and(|races| races.alone)
    }

    /// Whether only a part of the failure points is tried.
    pub(crate) const fn is_partial(&self) -> bool {
        self.selection.is_some() || self.at.is_some() || self.partition.is_some()
    }

    /// Whether to say that nothing was checked, if that is so.
    pub(crate) const fn judges_oracle(&self) -> bool {
        self.tests_oracle || !self.is_partial()
    }

    /// Whether to confirm a candidate of the lint by crashes.
    pub(crate) fn wants_candidate(&self, hit: &Hit) -> bool {
        let selection = self.selection.as_ref();
        self.at.is_none() && selection.is_none_or(|selection| selection.wants_candidate(hit))
    }

    /// The call stacks that are tried first, and a note about them.
    pub(crate) fn new_stacks(
        &self,
        stacks: impl Iterator<Item = StackId>,
        places: &mut Places<'_>,
    ) -> (BTreeSet<StackId>, Option<String>) {
        let Some(changed) = &self.changed else {
            return (BTreeSet::new(), None);
        };
        let all: BTreeSet<StackId> = stacks.collect();
        let new = changed.new_stacks(all.iter().copied(), places);
        let note = changed.note(new.len(), all.len());
        (new, Some(note))
    }

    /// Whether to let the power fail there.
    pub(crate) fn wants_point(&self, step: CheckStep, point: &FailurePoint) -> bool {
        let selection = self.selection.as_ref();
        selection.is_none_or(|selection| selection.wants_point(step, point))
    }
}

/// How the reads of recovery are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RaceOptions {
    /// Report nothing else.
    pub alone: bool,
    /// Also report reads of bytes that are not surely durable and have the same value in all that a crash can
    /// leave, and make errors of what no run confirms.
    pub strict: bool,
    /// Try whether what was seen matters.
    pub confirm: bool,
    /// Commit variables that the trace does not name.
    pub commit_variables: Vec<CommitVariable>,
    /// Look for variables that decide what recovery reads.
    pub infer: Option<Inference>,
}

/// What becomes of variables that seem to decide what recovery reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inference {
    /// They are proposed.
    Propose,
    /// Reads of them are also taken as those of commit variables: they are not races.
    Use,
}

/// How far lost and reordered lines are explored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LazyOptions {
    /// How often the power fails, at most: 2 is once more while recovery runs.
    pub depth: u32,
    /// Branch by forking where recovery can observe several values.
    pub fork: bool,
    /// Executions at one failure point; with more it is sampled. `None` is any number.
    pub limit: Option<u64>,
    /// Executions in all, about. `None` is any number.
    pub max_executions: Option<u64>,
    /// Crash states that are drawn at random at each failure point, instead of exploring it.
    pub random: Option<u64>,
    /// Look for executions that no moment of the run explains.
    pub robustness: bool,
    /// How long it may take.
    pub time: LazyTime,
}

/// How long lost and reordered lines may be explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LazyTime {
    /// As long as it takes.
    Any,
    /// As long as the budget allows, or as it takes if there is none.
    Budget,
    /// Half of what is left of the budget; without a budget a time that is about that of the other crashes.
    Share,
}

impl Default for LazyOptions {
    fn default() -> Self {
        Self {
            depth: 1,
            fork: true,
            limit: Some(2_000),
            max_executions: None,
            random: None,
            robustness: false,
            time: LazyTime::Share,
        }
    }
}
