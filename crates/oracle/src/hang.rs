//! What is known about recoveries that hang: where they do, and how long recoveries take that end.
//!
//! A hang is seen once for its whole time limit at each place. From then on a recovery that runs for much longer than
//! those that end, and is at a known place, is not waited for. All slots of an oracle share what one of them has seen.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::verdict::Stage;

/// An address that is the same in each execution: the path of its module, as a digest, and the offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CodeAddress {
    pub(crate) module: u64,
    pub(crate) offset: u64,
}

/// Where a command hangs: in a loop of the function that was called by the frames of `outer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HangPlace {
    stage: Stage,
    /// The frames that all samples had in common, outermost first.
    outer: Vec<CodeAddress>,
    /// The module of the next frame, and the lowest and the highest offset that a sample had there.
    module: u64,
    offsets: (u64, u64),
}

impl HangPlace {
    /// Code around the samples that is taken for the same loop.
    const MARGIN_BYTES: u64 = 64;

    /// The place that call stacks have in common, each outermost first. Stacks that begin elsewhere than the first
    /// were not unwound completely, and do not count.
    pub(crate) fn of(stage: Stage, stacks: &[Vec<CodeAddress>]) -> Option<Self> {
        let start = stacks.first()?.first()?;
        let whole: Vec<&Vec<CodeAddress>> = stacks
            .iter()
            .filter(|it| it.first() == Some(start))
            .collect();
        let (first, rest) = whole.split_first()?;
        let mut common = first.len() - 1;
        for stack in rest {
            let same = first.iter().zip(*stack).take_while(|(a, b)| a == b);
            common = common.min(same.count()).min(stack.len() - 1);
        }
        if common == 0 {
            return None;
        }
        let module = first[common].module;
        let of_module = whole.iter().map(|it| it[common]);
        let offsets = of_module.filter(|it| it.module == module);
        let offsets = offsets.map(|it| it.offset);
        Some(Self {
            stage,
            outer: first[..common].to_vec(),
            module,
            offsets: (offsets.clone().min()?, offsets.max()?),
        })
    }

    /// Whether a call stack, outermost first, is at this place.
    pub(crate) fn has(&self, stage: Stage, stack: &[CodeAddress]) -> bool {
        let (low, high) = self.offsets;
        let near = low.saturating_sub(Self::MARGIN_BYTES)..=high.saturating_add(Self::MARGIN_BYTES);
        self.stage == stage
            && stack.starts_with(&self.outer)
            && stack
                .get(self.outer.len())
                .is_some_and(|it| it.module == self.module && near.contains(&it.offset))
    }
}

/// What one or more runs have shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HangKnowledge {
    /// The longest time of a command that succeeded; `None` before the first one.
    longest: Option<Duration>,
    /// The same for commands whose loads are observed, which takes longer.
    longest_observed: Option<Duration>,
    /// Where commands hung for all of their time.
    places: Vec<HangPlace>,
}

impl HangKnowledge {
    /// The longest time of a command that ended.
    pub(crate) fn longest(&self, is_observed: bool) -> Option<Duration> {
        if is_observed {
            self.longest.max(self.longest_observed)
        } else {
            self.longest
        }
    }

    /// A command has succeeded.
    pub(crate) fn note_success(&mut self, took: Duration, is_observed: bool) {
        let longest = if is_observed {
            &mut self.longest_observed
        } else {
            &mut self.longest
        };
        *longest = (*longest).max(Some(took));
    }

    /// A command has hung for all of its time.
    pub(crate) fn note_hang(&mut self, place: Option<HangPlace>) {
        self.places.extend(place);
    }

    /// Whether a command has hung where this call stack is, outermost first.
    pub(crate) fn has(&self, stage: Stage, stack: &[CodeAddress]) -> bool {
        self.places.iter().any(|it| it.has(stage, stack))
    }

    /// Adds what other runs have shown. Whether that is new.
    pub(crate) fn add(&mut self, other: Self) -> bool {
        let before = (self.longest, self.longest_observed);
        self.longest = self.longest.max(other.longest);
        self.longest_observed = self.longest_observed.max(other.longest_observed);
        let has_places = !other.places.is_empty();
        self.places.extend(other.places);
        has_places || before != (self.longest, self.longest_observed)
    }
}

/// What the slots of an oracle share.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedKnowledge(Arc<Mutex<(u64, HangKnowledge)>>);

impl SharedKnowledge {
    /// Adds what a run has shown.
    pub(crate) fn add(&self, shown: HangKnowledge) {
        let mut shared = self.lock();
        if shared.1.add(shown) {
            shared.0 += 1;
        }
    }

    /// The knowledge and its version, if that is not the known one.
    pub(crate) fn newer_than(&self, version: u64) -> Option<(u64, HangKnowledge)> {
        let shared = self.lock();
        (shared.0 != version).then(|| shared.clone())
    }

    fn lock(&self) -> MutexGuard<'_, (u64, HangKnowledge)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(offsets: &[u64]) -> Vec<CodeAddress> {
        let address = |offset: &u64| CodeAddress {
            module: 1,
            offset: *offset,
        };
        offsets.iter().map(address).collect()
    }

    #[test]
    fn a_loop_is_where_stacks_begin_to_differ() {
        let samples = [
            stack(&[10, 200, 3000]),
            stack(&[10, 200, 3040, 9000]),
            stack(&[10, 200, 3008, 7000, 1]),
            // Not unwound to the end.
            stack(&[77]),
        ];
        let place = HangPlace::of(Stage::Recovery, &samples).unwrap();
        assert!(place.has(Stage::Recovery, &stack(&[10, 200, 3020, 5])));
        assert!(!place.has(Stage::Checker, &stack(&[10, 200, 3020, 5])));
        assert!(!place.has(Stage::Recovery, &stack(&[10, 200, 5000])));
        assert!(!place.has(Stage::Recovery, &stack(&[10, 216, 3020])));
        assert!(!place.has(Stage::Recovery, &stack(&[10, 200])));
        assert!(!place.has(Stage::Recovery, &stack(&[77])));
    }

    #[test]
    fn a_stack_of_one_frame_is_no_place() {
        assert_eq!(HangPlace::of(Stage::Recovery, &[stack(&[10])]), None);
        assert_eq!(HangPlace::of(Stage::Recovery, &[]), None);
    }

    #[test]
    fn slots_learn_from_each_other() {
        let shared = SharedKnowledge::default();
        assert!(shared.newer_than(0).is_none());
        let mut shown = HangKnowledge::default();
        shown.note_success(Duration::from_millis(3), false);
        shown.note_hang(HangPlace::of(Stage::Recovery, &[stack(&[10, 200])]));
        shared.add(shown.clone());
        let (version, known) = shared.newer_than(0).unwrap();
        assert_eq!((version, &known), (1, &shown));
        assert!(known.has(Stage::Recovery, &stack(&[10, 200])));
        let mut shorter = HangKnowledge::default();
        shorter.note_success(Duration::from_millis(2), false);
        shared.add(shorter);
        assert!(shared.newer_than(1).is_none(), "shorter times say nothing");
    }
}
