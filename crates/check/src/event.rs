//! The event stream from the engine to whatever shows it: a terminal, a log, nothing.
//!
//! Everything that a user can see before the report goes through [`Observer::event`]. The report itself is the
//! result of the call.

use std::path::Path;
use std::time::Duration;

use powerfail_finding::{Code, Eager, Finding};
use powerfail_model::EventIndex;
use powerfail_recorder::RecordingSummary;
use powerfail_trace::Trace;

use crate::recovery::Recovery;

/// A step of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStep {
    /// The trace is read. What is done, and what there is to do, are bytes of its file.
    Read,
    /// The workload is recorded with other orders of its threads.
    Schedules,
    /// The trace is linted.
    Lint,
    /// Failure points are collected.
    Points,
    /// Recovery runs without a crash.
    Undisturbed,
    /// Recovery runs on crash images.
    Crashes,
    /// Lost and reordered lines are explored.
    Lazy,
    /// The same, where recovery can observe much.
    LazyAgain,
    /// The power fails again, during recovery.
    Second,
    /// The reads of recovery are watched.
    Races,
    /// Commit variables are inferred.
    Infer,
    /// Failures are traced back to stores.
    Reasons,
    /// Recovery runs on pools that no crash could leave.
    OracleTest,
}

/// Something that happens during a check.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CheckEvent<'a> {
    /// A step has begun (`done` is 0) or got further.
    Progress {
        /// The step.
        step: CheckStep,
        /// How much of it is done.
        done: u64,
        /// How much there is to do.
        of: u64,
    },
    /// Before recovery runs on crash images.
    Plan {
        /// How many recoveries will run.
        runs: u64,
        /// How many failure points there are.
        points: u64,
        /// How long it will take, about.
        estimate: Duration,
        /// How long the whole run takes at most.
        budget: Option<Duration>,
    },
    /// Before recovery runs on combinations of stores that may survive.
    Combinations {
        /// How many combinations there are.
        eager: &'a Eager,
        /// How many will be run.
        states: u64,
        /// How long it will take, about.
        estimate: Duration,
    },
    /// The workload was recorded.
    Recorded(&'a RecordingSummary),
    /// What was decided for the user, in a sentence.
    Note(&'a str),
    /// What the recording of the workload may lack, in a sentence.
    Warning(&'a str),
    /// The workload was recorded with several orders of its threads.
    Schedules {
        /// How many recordings were made.
        recordings: u64,
        /// How many of them have an order of their own.
        distinct: u64,
    },
    /// Recovery fails after a crash, and fails again. Its cause is not known yet; a finding follows.
    Failing {
        /// What recovery does.
        code: Code,
        /// The power fails just before this event.
        at: EventIndex,
    },
    /// A finding was confirmed. The report may merge it with another one of the same root cause.
    Finding(&'a Finding),
}

/// Receives the events of a check.
pub trait Observer {
    /// Something happens.
    fn event(&mut self, event: CheckEvent<'_>);

    /// Whether the user wants to stop. The engine asks often.
    fn is_interrupted(&self) -> bool {
        false
    }

    /// Whether the command may run that a trace of others names; otherwise why not, as a sentence.
    fn allow(&mut self, foreign: &ForeignTrace<'_>) -> Result<(), String> {
        let ForeignTrace { path, reason, .. } = foreign;
        Err(format!(
            "{} was not recorded by this user ({reason})",
            path.display()
        ))
    }
}

/// A trace that another user may have recorded, and whose command would run as recovery.
#[derive(Clone, Copy, Debug)]
pub struct ForeignTrace<'a> {
    /// The trace.
    pub path: &'a Path,
    /// How it is known that it is not one's own.
    pub reason: &'static str,
    /// How recovery would run.
    pub recovery: &'a Recovery,
}

impl dyn Observer + '_ {
    pub(crate) fn progress(&mut self, step: CheckStep, done: u64, of: u64) {
        self.event(CheckEvent::Progress { step, done, of });
    }

    /// So many bytes of a trace were read.
    pub(crate) fn read(&mut self, trace: &Trace, bytes: u64) {
        self.progress(CheckStep::Read, bytes, trace.file_bytes());
    }

    /// The same as `progress`; whether the engine is to continue.
    pub(crate) fn tick(&mut self, step: CheckStep, done: u64, of: u64) -> bool {
        self.progress(step, done, of);
        !self.is_interrupted()
    }
}
