//! Failure points take turns, so that none of them keeps the others waiting.
//!
//! In the first turn each failure point gets a few executions, which is all that most of them need. Then the power fails a
//! second time, during a few executions at each point: recovery is slow there, because its stores are logged one by one.
//! After that, points with more to observe (a checksum reads everything) get more executions, all of them in each turn,
//! and at last those with more second failures. A point at which recovery fails is left as soon as that is confirmed: its
//! cause is looked for elsewhere, and thousands of equal failures say no more than one. `--max-executions` is divided by
//! the failure points for the first turn. `--exhaustive` has a single turn without limit.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_explore::FailurePoint;
use powerfail_finding::Code;
use powerfail_model::EventIndex;
use powerfail_trace::StackId;

use super::point::{PointResult, Reason, Thoroughness};
use crate::options::LazyOptions;

/// Executions at one failure point in the first turn, and how many times more there are in each further turn.
const FIRST: u64 = 64;
const FACTOR: u64 = 8;
/// In how many executions at one failure point the power fails again in the first turn of that.
const FIRST_SECOND: u64 = 8;
/// How many times more executions second failures may take at a failure point than the crash before them.
pub(crate) const SECOND_FACTOR: u64 = 8;

/// Which failure points a turn is for, and what happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnKind {
    /// All failure points.
    First,
    /// Those of which not everything was tried.
    Again,
    /// All at which recovery does not fail: the power fails again while it runs.
    Second,
    /// Those of which not all second failures were tried.
    SecondAgain,
}

/// A turn of all failure points that take part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) kind: TurnKind,
    /// Executions at one failure point.
    pub(crate) limit: Option<u64>,
    /// How often the power fails, at most.
    pub(crate) depth: u32,
}

/// The turns of an exploration of so many failure points.
pub(crate) fn turns(options: &LazyOptions, points: u64) -> Vec<Turn> {
    let once = |limit: u64, kind| Turn {
        kind,
        limit: Some(limit),
        depth: 1,
    };
    let most = match options.limit {
        // Random crash states are drawn once.
        Some(most) if options.random.is_none() => most,
        limit => {
            return vec![Turn {
                kind: TurnKind::First,
                limit,
                depth: options.depth,
            }];
        }
    };
    let again = |limit: u64, kind| Turn {
        kind,
        limit: Some(limit.min(most)),
        depth: options.depth,
    };
    let share = options.max_executions.map(|max| max / points.max(1));
    let first = share.map_or(FIRST, |share| share.clamp(1, FIRST)).min(most);
    let mut turns = vec![once(first, TurnKind::First)];
    if options.depth > 1 {
        turns.push(again(FIRST_SECOND, TurnKind::Second));
    }
    let mut limit = first;
    while limit < most {
        limit = limit.saturating_mul(FACTOR).min(most);
        turns.push(once(limit, TurnKind::Again));
    }
    if options.depth > 1 {
        turns.push(again(FIRST, TurnKind::SecondAgain));
    }
    turns
}

/// The points that take part in a turn, in their order. `results` are those of earlier turns: for `SecondAgain`, of second
/// failures.
pub(crate) fn points_of(
    turn: Turn,
    all: &[FailurePoint],
    results: &[PointResult],
) -> Vec<FailurePoint> {
    let with = |fits: &dyn Fn(&PointResult) -> bool| -> BTreeSet<EventIndex> {
        let fit = results.iter().filter(|result| fits(result));
        fit.map(|result| result.at).collect()
    };
    let points = all.iter();
    match turn.kind {
        TurnKind::First => points.copied().collect(),
        TurnKind::Again | TurnKind::SecondAgain => {
            let large = with(&|result| result.is_large() && !result.fails());
            let again = points.filter(|point| large.contains(&point.at));
            again.copied().collect()
        }
        TurnKind::Second => {
            let left = with(&|result| result.is_large() && result.fails());
            let others = points.filter(|point| !left.contains(&point.at));
            others.copied().collect()
        }
    }
}

/// Adds what a turn has shown to what earlier ones have. `covered` are points that other points make superfluous.
/// Returns how many of the earlier results these replace.
pub(crate) fn merge(
    results: &mut Vec<PointResult>,
    turn: Vec<PointResult>,
    covered: &[EventIndex],
) -> u64 {
    let before = results.len();
    let covered: BTreeSet<EventIndex> = covered.iter().copied().collect();
    results.retain(|result| !covered.contains(&result.at));
    let replaced = before - results.len();
    let places = results.iter().map(|result| result.at).zip(0..);
    let mut places: BTreeMap<EventIndex, usize> = places.collect();
    for mut now in turn {
        let place = *places.entry(now.at).or_insert(results.len());
        match results.get_mut(place) {
            Some(then) => {
                now.executions += then.executions;
                now.saved += then.saved;
                now.unconfirmed += then.unconfirmed;
                *then = now;
            }
            None => results.push(now),
        }
    }
    replaced as u64
}

/// Says why the points were left that had more to observe. `most` is the limit of the last turn.
pub(crate) fn settle_reasons(results: &mut [PointResult], most: Option<u64>) {
    for result in results.iter_mut().filter(|result| result.is_large()) {
        let reason = if result.fails() {
            Reason::Fails
        } else if most.is_some_and(|most| result.limit < most) {
            Reason::Time
        } else {
            continue;
        };
        result.thoroughness = Thoroughness::Sampled { reason };
    }
}

/// What recovery does, with its signal or exit status, and the store to blame.
pub(crate) type KnownKind = (Code, i32, StackId);

/// The kinds of failures that were confirmed at other failure points.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownFailures(BTreeSet<KnownKind>);

impl KnownFailures {
    pub(crate) fn of(results: &[PointResult]) -> Self {
        let failures = results.iter().flat_map(|result| &result.failures);
        Self(failures.filter_map(kind_of).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, kind: KnownKind) -> bool {
        self.0.contains(&kind)
    }
}

/// The kind of a failure, if a lost store is to blame.
pub(crate) fn kind_of(failure: &super::LazyFailure) -> Option<KnownKind> {
    let is_lost = failure.recovery_crash.is_none() && !failure.state.versions.is_empty();
    let key = &failure.key;
    Some((key.code, key.number, key.store.filter(|_| is_lost)?))
}
