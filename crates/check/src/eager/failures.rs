//! States that fail: one of each kind, the one that loses least.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use powerfail_explore::{EagerState, GroupId};
use powerfail_finding::Code;
use powerfail_model::EventIndex;
use powerfail_trace::StackId;
use rustc_hash::FxHashSet;

use crate::diagnose::Failing;
use crate::symptom::Symptom;

/// A kind of failure: where the power fails, what recovery does, and which sites lose their stores.
type Kind = (StackId, Code, Vec<StackId>);

/// Keeps one failing state of each kind. Which state is kept does not depend on the order in which they come.
#[derive(Default)]
pub(super) struct Failures {
    kinds: BTreeMap<Kind, FailingState>,
    groups: FxHashSet<GroupId>,
}

/// A state that fails, for all of its kind.
#[derive(Clone)]
pub(super) struct FailingState {
    pub(super) state: EagerState,
    pub(super) symptom: Symptom,
    /// How many states of the kind fail.
    pub(super) count: u64,
    pub(super) is_explained: bool,
}

impl FailingState {
    pub(super) fn failing(&self) -> Failing {
        Failing {
            at: self.state.at,
            state: self.state.state.clone(),
            symptom: self.symptom.clone(),
        }
    }

    /// Those that lose least come first, and of these the earliest.
    fn rank(&self) -> (usize, u64) {
        (self.state.state.versions.len(), self.state.number)
    }
}

impl Failures {
    pub(super) fn push(&mut self, state: EagerState, symptom: Symptom) {
        self.groups.insert(state.group);
        let kind = (state.stack, symptom.code, state.lost.clone());
        let mut found = FailingState {
            state,
            symptom,
            count: 1,
            is_explained: false,
        };
        match self.kinds.get_mut(&kind) {
            None => {
                self.kinds.insert(kind, found);
            }
            Some(known) => {
                found.count += known.count;
                if found.rank() < known.rank() {
                    found.symptom.also(&known.symptom);
                    *known = found;
                } else {
                    known.symptom.also(&found.symptom);
                    known.count = found.count;
                }
            }
        }
    }

    /// The groups of states that fail.
    pub(super) const fn groups(&self) -> &FxHashSet<GroupId> {
        &self.groups
    }

    /// Those with nothing lost, and the others, which lose least first. What fails at a moment where
    /// recovery fails in the same way with nothing lost counts there.
    pub(super) fn into_parts(self) -> (Vec<FailingState>, Vec<FailingState>) {
        let all = self.kinds.into_values();
        let (mut whole, mut lossy): (Vec<FailingState>, Vec<FailingState>) =
            all.partition(|found| found.state.state.versions.is_empty());
        let same = |found: &FailingState, at: EventIndex, code: Code| {
            found.state.at == at && found.symptom.code == code
        };
        lossy.retain(|lossy| {
            let (at, code) = (lossy.state.at, lossy.symptom.code);
            let Some(known) = whole.iter_mut().find(|found| same(found, at, code)) else {
                return true;
            };
            known.count += lossy.count;
            known.symptom.also(&lossy.symptom);
            false
        });
        lossy.sort_by_key(FailingState::rank);
        (whole, lossy)
    }
}

/// The next failures to diagnose: one for each call stack and kind of failure that is not explained yet.
pub(super) fn next_batch(left: &[FailingState], limit: usize) -> Vec<usize> {
    let mut taken: Vec<(StackId, Code)> = Vec::new();
    let mut batch = Vec::new();
    for (number, found) in left.iter().enumerate() {
        let kind = (found.state.stack, found.symptom.code);
        if !found.is_explained && !taken.contains(&kind) && batch.len() < limit {
            taken.push(kind);
            batch.push(number);
        }
    }
    // The most frequent ones are worth it most if there is no room for all of the same size.
    batch.sort_by_key(|number| {
        let found = &left[*number];
        (
            found.state.state.versions.len(),
            Reverse(found.count),
            *number,
        )
    });
    batch
}
