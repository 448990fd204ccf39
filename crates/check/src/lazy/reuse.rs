//! Failure points that need no run, because recovery reads nothing that has changed since another point.
//!
//! There is one [`Reuse`] for each round. It knows the points of the round and those of earlier rounds, in the order
//! of the trace. The result of an earlier round counts as soon as the round has reached its moment.

use std::collections::BTreeMap;

use powerfail_explore::FailurePoint;
use powerfail_explore::lazy::{ChangeLog, Decision, PageLines, ReadSets, Remarks, ReuseLimits};
use powerfail_model::{EventIndex, Rules};
use powerfail_trace::Trace;

use crate::content::ExpectedContents;
use crate::error::CheckError;

/// With how many explored points a new one is compared.
const CANDIDATES: usize = 64;

/// Which lines recovery read at a failure point, out of those that were watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads {
    pub(crate) watched: Vec<PageLines>,
    pub(crate) read: Vec<PageLines>,
}

/// A failure point at which recovery was executed.
pub(crate) trait ExecutedPoint {
    /// When the power failed.
    fn at(&self) -> EventIndex;
    /// How often recovery was executed.
    fn executions(&self) -> u64;
    /// Executions that other points have shown.
    fn saved(&self) -> u64;
    /// What it read; `None` if that is not known of all executions.
    fn reads(&self) -> Option<&Reads>;
}

/// The point that has shown everything that a superfluous point could show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoveredBy {
    pub(crate) at: EventIndex,
    pub(crate) executions: u64,
}

/// What has changed from point to point of a round.
pub(crate) struct Changes {
    log: ChangeLog,
    numbers: BTreeMap<EventIndex, usize>,
}

impl Changes {
    /// Changes are not known, so no point is superfluous.
    pub(crate) fn none() -> Self {
        Self {
            log: ChangeLog::default(),
            numbers: BTreeMap::new(),
        }
    }

    /// Computed by a pass over the trace. `points` are in its order.
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

    /// The same, where something besides the content of a line matters to its readers.
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

/// Decides which failure points of a round need no run.
pub(crate) struct Reuse<'c> {
    changes: &'c Changes,
    sets: ReadSets<'c>,
    contents: &'c ExpectedContents,
    /// Explored in earlier rounds; their moment is not reached yet. The latest first.
    before: Vec<(EventIndex, u64, Reads)>,
}

impl<'c> Reuse<'c> {
    /// `before` are points of earlier rounds; all of them are points of `changes`.
    pub(crate) fn new<'s, R: ExecutedPoint + 's>(
        changes: &'c Changes,
        contents: &'c ExpectedContents,
        before: impl Iterator<Item = &'s R>,
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

    /// The lines of which it must be known at a point whether recovery reads them.
    pub(crate) fn watch(&self, point: &FailurePoint) -> Vec<PageLines> {
        let number = self.changes.numbers.get(&point.at);
        number.map_or_else(Vec::new, |number| self.sets.watch(*number))
    }

    /// Whether the results so far make a point superfluous. Results of points before it may still be missing.
    pub(crate) fn foresee(&self, point: &FailurePoint) -> Option<CoveredBy> {
        let number = *self.changes.numbers.get(&point.at)?;
        // The latest first, so this is the earliest.
        if self.before.last().is_none_or(|(at, _, _)| *at >= point.at) {
            return self.covered_by(self.sets.foresee(number), point);
        }
        let mut ahead = Self {
            changes: self.changes,
            sets: self.sets.clone(),
            contents: self.contents,
            before: self.before.clone(),
        };
        ahead.decide(point)
    }

    /// Whether a point is superfluous. Points come in the order of the trace.
    pub(crate) fn decide(&mut self, point: &FailurePoint) -> Option<CoveredBy> {
        let number = *self.changes.numbers.get(&point.at)?;
        while let Some((at, executions, reads)) = self.before.pop_if(|(at, _, _)| *at < point.at) {
            self.add(at, executions, &reads);
        }
        let decision = self.sets.decide(number);
        self.covered_by(decision, point)
    }

    /// The point of a decision, if what was acknowledged by then makes no difference.
    fn covered_by(&self, decision: Decision, point: &FailurePoint) -> Option<CoveredBy> {
        let Decision::Same {
            point: then,
            executions,
        } = decision
        else {
            return None;
        };
        let at = self.changes.log.at(then);
        let is_same = self.contents.expects_the_same(at, point.at);
        is_same.then_some(CoveredBy { at, executions })
    }

    /// Adds the result of a point.
    pub(crate) fn learn(&mut self, result: &dyn ExecutedPoint) {
        if let Some(reads) = result.reads() {
            self.add(result.at(), result.executions(), reads);
        }
    }

    fn add(&mut self, at: EventIndex, executions: u64, reads: &Reads) {
        if let Some(number) = self.changes.numbers.get(&at) {
            let (watched, read) = (&reads.watched, &reads.read);
            self.sets.explored(*number, executions, watched, read);
        }
    }
}
