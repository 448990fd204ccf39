//! Asks whether inputs still have the wanted effect: about each input once, and not more often than allowed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use rustc_hash::FxHashSet;

/// Says whether an input has the wanted effect, or that there is no more time.
pub type Judge<'a> = dyn FnMut(&[u8]) -> ControlFlow<(), bool> + 'a;

/// What was asked so far. It can be kept to continue a search that was interrupted.
#[derive(Clone, Debug)]
pub struct Trials {
    /// Hashes of inputs without the effect. If two inputs had the same hash, one would not be tried.
    rejected: FxHashSet<u64>,
    made: u64,
    most: u64,
}

impl Trials {
    /// At most this many inputs are judged.
    pub fn at_most(most: u64) -> Self {
        Self {
            rejected: FxHashSet::default(),
            made: 0,
            most,
        }
    }

    /// How many inputs were judged.
    pub const fn made(&self) -> u64 {
        self.made
    }

    /// Counts an input that was judged otherwise.
    pub const fn count_one(&mut self) {
        self.made += 1;
    }

    /// Counts those of another search.
    pub const fn add(&mut self, other: &Self) {
        self.made += other.made;
    }

    /// Asks about an input, unless the answer is known.
    pub(super) fn ask(&mut self, input: &[u8], judge: &mut Judge<'_>) -> ControlFlow<(), bool> {
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        let hash = hasher.finish();
        if self.rejected.contains(&hash) {
            return ControlFlow::Continue(false);
        }
        if self.made >= self.most {
            return ControlFlow::Break(());
        }
        self.made += 1;
        let has_effect = judge(input)?;
        if !has_effect {
            self.rejected.insert(hash);
        }
        ControlFlow::Continue(has_effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_judged_once() {
        let mut trials = Trials::at_most(2);
        let mut judged = Vec::new();
        let mut ask = |input: &[u8]| {
            trials.ask(input, &mut |input| {
                judged.push(input.to_vec());
                ControlFlow::Continue(false)
            })
        };
        assert_eq!(ask(b"a"), ControlFlow::Continue(false));
        assert_eq!(ask(b"a"), ControlFlow::Continue(false));
        assert_eq!(ask(b"b"), ControlFlow::Continue(false));
        assert_eq!(ask(b"c"), ControlFlow::Break(()), "two are enough");
        assert_eq!(ask(b"b"), ControlFlow::Continue(false), "this is known");
        assert_eq!(judged, [b"a", b"b"]);
    }

    #[test]
    fn an_answer_that_did_not_come_is_not_kept() {
        let mut trials = Trials::at_most(9);
        let stopped = trials.ask(b"a", &mut |_| ControlFlow::Break(()));
        assert_eq!(stopped, ControlFlow::Break(()));
        let asked = trials.ask(b"a", &mut |_| ControlFlow::Continue(true));
        assert_eq!(asked, ControlFlow::Continue(true));
    }
}
