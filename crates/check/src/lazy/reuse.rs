//! Failure points that need no run, because recovery reads nothing that has changed since another one.
//!
//! One for each round: points of the round and those that were explored before it, in the order of the
//! trace. What was explored in an earlier round counts as soon as the round has come to its moment.

use std::collections::BTreeMap;

use powerfail_explore::FailurePoint;
use powerfail_explore::lazy::{ChangeLog, Decision, PageLines, ReadSets, Remarks, ReuseLimits};
use powerfail_model::{EventIndex, Rules};
use powerfail_trace::Trace;

use crate::content::Contents;
use crate::error::CheckError;

/// With how many explored points a new one is compared.
const CANDIDATES: usize = 64;

/// What a study has shown about reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads {
    pub(crate) watched: Vec<PageLines>,
    pub(crate) read: Vec<PageLines>,
}

/// A failure point at which recovery was executed.
pub(crate) trait Known {
    /// When the power failed.
    fn at(&self) -> EventIndex;
    /// How often recovery was executed.
    fn executions(&self) -> u64;
    /// What it read; nothing if that is not known of all executions.
    fn reads(&self) -> Option<&Reads>;
}

/// A point that has shown all that another one can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Same {
    pub(crate) at: EventIndex,
    pub(crate) executions: u64,
}

/// What has changed from point to point of a round.
pub(crate) struct Changes {
    log: ChangeLog,
    numbers: BTreeMap<EventIndex, usize>,
}

impl Changes {
    /// Nothing is known of any point, so none is superfluous.
    pub(crate) fn none() -> Self {
        Self {
            log: ChangeLog::default(),
            numbers: BTreeMap::new(),
        }
    }

    /// Passes over the trace. `points` are in its order.
    pub(crate) fn of(
        trace: &Trace,
        rules: Rules,
        fill: Option<u8>,
        points: &[EventIndex],
    ) -> Result<Self, CheckError> {
        Ok(Self {
            log: ChangeLog::of(trace, rules, fill, points)?,
            numbers: points.iter().copied().zip(0..).collect(),
        })
    }

    /// The same, where something else than its content matters to who reads a line.
    pub(crate) fn with(
        trace: &Trace,
        rules: Rules,
        fill: Option<u8>,
        points: &[EventIndex],
        remarks: &mut dyn Remarks,
    ) -> Result<Self, CheckError> {
        Ok(Self {
            log: ChangeLog::with(trace, rules, fill, points, remarks)?,
            numbers: points.iter().copied().zip(0..).collect(),
        })
    }
}

/// See the module header.
pub(crate) struct Reuse<'c> {
    changes: &'c Changes,
    sets: ReadSets<'c>,
    contents: &'c Contents,
    /// Explored in earlier rounds, and not come to yet.
    before: Vec<(EventIndex, u64, Reads)>,
}

impl<'c> Reuse<'c> {
    /// `before` are points of earlier rounds; all of them are points of `changes`.
    pub(crate) fn new<'s, S: Known + 's>(
        changes: &'c Changes,
        contents: &'c Contents,
        before: impl Iterator<Item = &'s S>,
    ) -> Self {
        let limits = ReuseLimits {
            candidates: CANDIDATES,
            ..ReuseLimits::default()
        };
        let mut before: Vec<_> = before
            .filter_map(|it| Some((it.at(), it.executions(), it.reads()?.clone())))
            .collect();
        before.sort_by_key(|(at, _, _)| std::cmp::Reverse(*at));
        Self {
            changes,
            sets: ReadSets::new(&changes.log, limits),
            contents,
            before,
        }
    }

    /// Lines of which it must be known whether recovery reads them at a point.
    pub(crate) fn watch(&self, point: &FailurePoint) -> Vec<PageLines> {
        let number = self.changes.numbers.get(&point.at);
        number.map_or_else(Vec::new, |number| self.sets.watch(*number))
    }

    /// Whether what was learned so far makes a point superfluous; points that come before it may still
    /// be learned.
    pub(crate) fn foresee(&self, point: &FailurePoint) -> Option<Same> {
        let mut ahead = Self {
            changes: self.changes,
            sets: self.sets.clone(),
            contents: self.contents,
            before: self.before.clone(),
        };
        ahead.decide(point)
    }

    /// Whether a point is superfluous. Points come in the order of the trace.
    pub(crate) fn decide(&mut self, point: &FailurePoint) -> Option<Same> {
        let number = *self.changes.numbers.get(&point.at)?;
        while let Some((at, executions, reads)) = self.before.pop_if(|(at, _, _)| *at < point.at) {
            self.add(at, executions, &reads);
        }
        match self.sets.decide(number) {
            Decision::Same {
                point: then,
                executions,
            } if self
                .contents
                .expects_the_same(self.changes.log.at(then), point.at) =>
            {
                Some(Same {
                    at: self.changes.log.at(then),
                    executions,
                })
            }
            _ => None,
        }
    }

    /// A point was explored.
    pub(crate) fn learn(&mut self, studied: &dyn Known) {
        if let Some(reads) = studied.reads() {
            self.add(studied.at(), studied.executions(), reads);
        }
    }

    fn add(&mut self, at: EventIndex, executions: u64, reads: &Reads) {
        if let Some(number) = self.changes.numbers.get(&at) {
            let (watched, read) = (&reads.watched, &reads.read);
            self.sets.explored(*number, executions, watched, read);
        }
    }
}
