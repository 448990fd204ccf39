//! Chooses a few test cases that reach everything that all of them reach.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::coverage::Footprint;

/// Chooses test cases by their footprints and costs (length, time), so that they reach every location in every bucket that
/// any test case reaches. Greedy: the one that adds most comes first, then the cheaper one, then the older one. Returns
/// their numbers in ascending order.
pub fn cmin<'a>(cases: impl IntoIterator<Item = (&'a Footprint, u64)>) -> Vec<usize> {
    let mut numbers = FxHashMap::default();
    let mut sets: Vec<Vec<u32>> = Vec::new();
    let mut waiting = BinaryHeap::new();
    for (case, (footprint, cost)) in cases.into_iter().enumerate() {
        let pm = footprint.pm.iter().map(|touched| (false, *touched));
        let all = pm.chain(footprint.branches.iter().map(|touched| (true, *touched)));
        let set: Vec<u32> = all
            .map(|element| {
                let next = numbers.len() as u32;
                *numbers.entry(element).or_insert(next)
            })
            .collect();
        waiting.push((set.len(), Reverse(cost), Reverse(case)));
        sets.push(set);
    }
    let mut covered: FxHashSet<u32> = FxHashSet::default();
    let mut chosen = Vec::new();
    // What a test case adds can only shrink, so the first one whose number is up to date is the best.
    while let Some((promised, cost, Reverse(case))) = waiting.pop() {
        let adds = sets[case]
            .iter()
            .filter(|element| !covered.contains(element))
            .count();
        if adds == 0 {
            continue;
        }
        if adds < promised {
            waiting.push((adds, cost, Reverse(case)));
            continue;
        }
        covered.extend(&sets[case]);
        chosen.push(case);
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::Touched;

    fn footprint(pm: &[(u32, u8)], branches: &[u32]) -> Footprint {
        Footprint {
            pm: pm
                .iter()
                .map(|&(location, bucket)| Touched { location, bucket })
                .collect(),
            branches: branches
                .iter()
                .map(|&location| Touched {
                    location,
                    bucket: 1,
                })
                .collect(),
        }
    }

    #[test]
    fn everything_stays_reached_by_few() {
        let cases = [
            (footprint(&[(1, 1)], &[]), 1),
            (footprint(&[(1, 1), (2, 1), (3, 1)], &[]), 100),
            (footprint(&[(1, 1), (2, 1), (3, 1)], &[]), 10),
            (footprint(&[(3, 1), (4, 1)], &[]), 1),
            (footprint(&[(3, 2)], &[]), 1),
            (footprint(&[(4, 1)], &[4]), 1),
        ];
        let chosen = cmin(cases.iter().map(|(footprint, cost)| (footprint, *cost)));
        assert_eq!(
            chosen,
            [2, 4, 5],
            "the cheaper of two equals, another bucket, a branch"
        );
        assert!(cmin([]).is_empty());
    }
}
