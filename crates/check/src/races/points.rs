//! When the power fails.

use std::collections::BTreeSet;

use powerfail_config::Partition;
use powerfail_explore::{FailurePoint, FailurePointOptions, FailurePointsByStack, Trigger};
use powerfail_lint::Owners;
use powerfail_model::{EventIndex, Rules, ThreadIndex};
use powerfail_trace::{Record, StackId, Trace};

use crate::error::CheckError;
use crate::lazy::{ranked, rounds};
use crate::options::CrashOptions;
use crate::places::Places;
use crate::share::own_moments;

/// Failure points, the most valuable first.
pub(super) struct RacePoints {
    ranked: Vec<FailurePoint>,
    /// The moments of the share, if only a share is tried.
    own: Option<BTreeSet<EventIndex>>,
    pub(super) stacks: usize,
    in_creation: u64,
    out_of_scope: u64,
}

/// The failure points of a trace, or one of them.
pub(super) fn of(
    trace: &Trace,
    rules: Rules,
    options: &CrashOptions,
    places: &mut Places<'_>,
) -> Result<RacePoints, CheckError> {
    let all = FailurePointOptions {
        per_stack: 0,
        ..options.tree
    };
    let trust = places.trust().clone();
    let mut owners = Owners::new(trace, &trust, places);
    let mut is_own = |record: &Record<'_>| owners.is_librarys(record);
    let tree = match options.at {
        Some(at) => FailurePointsByStack::at(trace, at)?,
        None => FailurePointsByStack::ordering(trace, rules, all, &mut is_own)?,
    };
    let (ranked, left_out) = ranked(&tree);
    Ok(RacePoints {
        ranked,
        own: None,
        stacks: tree.stacks().len(),
        in_creation: left_out.in_creation,
        out_of_scope: tree.out_of_scope_count(),
    })
}

/// A failure point of which nothing matters but when it is.
pub(super) fn point_at(at: EventIndex) -> FailurePoint {
    FailurePoint {
        at,
        stack: StackId::NONE,
        thread: ThreadIndex(0),
        trigger: Trigger::End,
        occurrence: 0,
        digest: None,
    }
}

/// A number of failure points, in words.
pub(super) fn counted(count: u64) -> String {
    match count {
        1 => "1 failure point".to_owned(),
        _ => format!("{count} failure points"),
    }
}

impl RacePoints {
    /// Leaves out the points that are not wanted.
    pub(super) fn retain(&mut self, is_wanted: impl FnMut(&FailurePoint) -> bool) {
        self.ranked.retain(is_wanted);
    }

    /// Leaves all points but those of a share to others. Recovery runs once at each.
    pub(super) fn share(&mut self, partition: Partition) {
        let own = own_moments(partition, self.moments().map(|at| (at, 1)));
        self.own = Some(own);
    }

    /// Whether a point is to be tried.
    pub(super) fn is_own(&self, point: &FailurePoint) -> bool {
        let own = self.own.as_ref();
        own.is_none_or(|own| own.contains(&point.at))
    }

    /// When the power fails.
    pub(super) fn moments(&self) -> impl Iterator<Item = EventIndex> {
        let own = self.ranked.iter().filter(|point| self.is_own(point));
        own.map(|point| point.at)
    }

    /// Rounds, each in the order of the trace: everything at once if there is time for all, else call stacks
    /// first once, then more and more.
    pub(super) fn rounds(&self, is_bounded: bool) -> Vec<Vec<FailurePoint>> {
        rounds(&self.ranked, is_bounded.then_some(self.stacks))
    }

    /// What is left out.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let created = (self.in_creation > 0).then(|| {
            format!(
                "{} while PMDK creates a pool are left out; --include-create tries them",
                counted(self.in_creation)
            )
        });
        let annotated = (self.out_of_scope > 0).then(|| {
            format!(
                "{} are left out by annotations of the program",
                counted(self.out_of_scope)
            )
        });
        created.into_iter().chain(annotated)
    }
}
