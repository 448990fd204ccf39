//! Rounds: each covers the whole trace, and the first are small. What comes first in the trace would otherwise take all the time if
//! there is not enough of it.

use std::hash::Hash;

use powerfail_explore::spread;
use rustc_hash::FxHashSet;

/// How many the first round has; each further one has twice as many.
const FIRST_ROUND: usize = 16;

/// Divides what is to be tried: every round has some from all parts.
pub(super) fn rounds<T: Copy + Ord + Hash>(all: impl Iterator<Item = T>) -> Vec<FxHashSet<T>> {
    let mut all: Vec<T> = all.collect();
    all.sort_unstable();
    let mut order = spread(all.len()).map(|place| all[place]);
    let mut rounds = Vec::new();
    let mut size = FIRST_ROUND;
    loop {
        let round: FxHashSet<T> = order.by_ref().take(size).collect();
        if round.is_empty() {
            return rounds;
        }
        rounds.push(round);
        size *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_covers_everything() {
        let rounds = rounds((0..100_u64).rev());
        let sizes: Vec<usize> = rounds.iter().map(FxHashSet::len).collect();
        assert_eq!(sizes, [16, 32, 52]);
        let all: FxHashSet<u64> = rounds.iter().flatten().copied().collect();
        assert_eq!(all.len(), 100);
        for round in &rounds {
            for part in 0..10 {
                let mut part = part * 10..part * 10 + 10;
                assert!(part.any(|number| round.contains(&number)), "{round:?}");
            }
        }
    }
}
