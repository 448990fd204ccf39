//! When the power fails.

use powerfail_explore::{FailurePoint, FailurePointOptions, FailurePointsByStack, Trigger};
use powerfail_lint::Owners;
use powerfail_model::{EventIndex, Rules, ThreadIndex};
use powerfail_trace::{Record, StackId, Trace};

use crate::error::CheckError;
use crate::lazy::{ranked, rounds};
use crate::options::CrashOptions;
use crate::places::Places;

/// Failure points, the most valuable first.
pub(super) struct RacePoints {
    pub(super) ranked: Vec<FailurePoint>,
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

    /// When the power fails.
    pub(super) fn moments(&self) -> impl Iterator<Item = EventIndex> {
        self.ranked.iter().map(|point| point.at)
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
