//! Random decisions, all based on the engine's random numbers.

use libafl_bolts::rands::{Rand, StdRand};

/// Random decisions.
pub(crate) struct Dice<'a>(pub(crate) &'a mut StdRand);

impl Dice<'_> {
    /// A number below a bound; 0 if the bound is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.below_or_zero(bound)
    }

    /// A number between two bounds, both inclusive.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in one of this many cases.
    pub(crate) fn one_in(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }

    /// True in this many of a hundred cases.
    pub(crate) fn percent(&mut self, cases: usize) -> bool {
        self.below(100) < cases
    }

    /// All bits random.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next()
    }

    /// A random element, if there is one.
    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len()))
    }

    /// A random index, weighted.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        let all = weights.iter().map(|weight| *weight as usize).sum();
        let mut at = self.below(all);
        for (index, weight) in weights.iter().enumerate() {
            if at < *weight as usize {
                return index;
            }
            at -= *weight as usize;
        }
        0
    }

    /// Shuffles the elements.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at + 1));
        }
    }
}
