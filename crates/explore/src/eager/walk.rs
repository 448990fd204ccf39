//! The combinations of one segment that are tried: all of them, or a sample without repetition.
//!
//! A combination is a digit for each uncertain line: the number of its content. The sample begins with
//! the corners, because most bugs need few lines: nothing lost, all lost, and each single line lost or
//! kept, line by line in an order that the seed decides. Then come random ones. Where the number of
//! combinations fits into a word they are drawn as from an urn (a Fisher-Yates shuffle of which only
//! the part that was touched is kept), so a draw costs the same however many are left; beyond that
//! two equal draws are so unlikely that they are just drawn again.

use powerfail_protocol::random::{Random, mix};
use rustc_hash::{FxHashMap, FxHashSet};

/// What one line can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wheel {
    /// How many contents it has, at least two.
    pub(crate) len: usize,
    /// Which of them is the newest; the durable floor is 0.
    pub(crate) newest: usize,
}

impl Wheel {
    /// The oldest content that is not the newest.
    const fn lost(self) -> usize {
        if self.newest == 0 { 1 } else { 0 }
    }
}

/// Iterates over the combinations of a segment: all, or a sample.
#[derive(Debug)]
pub(crate) enum Walk {
    All { next: u64, total: u64 },
    Sample(Sample),
}

#[derive(Debug)]
pub(crate) struct Sample {
    left: usize,
    /// The next corner; beyond the last one there are random combinations.
    corner: usize,
    /// The lines in the order in which their corners come.
    order: Vec<usize>,
    random: Random,
    taken: FxHashSet<u128>,
    /// Numbers that were not drawn, if all can be numbered.
    urn: Option<Urn>,
}

#[derive(Debug)]
struct Urn {
    left: u64,
    /// Which number is where, as far as it is not its own place.
    moved: FxHashMap<u64, u64>,
}

impl Urn {
    fn draw(&mut self, random: &mut Random) -> Option<u64> {
        let last = self.left.checked_sub(1)?;
        let place = random.below(self.left);
        let drawn = self.moved.get(&place).copied().unwrap_or(place);
        let end = self.moved.remove(&last).unwrap_or(last);
        if place != last {
            self.moved.insert(place, end);
        }
        self.left = last;
        Some(drawn)
    }
}

impl Walk {
    /// All combinations, nothing lost first.
    pub(crate) const fn all(total: u64) -> Self {
        Self::All { next: 0, total }
    }

    /// A sample of so many; `total` is the number of all combinations, if it fits into a word.
    pub(crate) fn sample(
        count: usize,
        wheels: usize,
        total: Option<u64>,
        mut random: Random,
    ) -> Self {
        let mut order: Vec<usize> = (0..wheels).collect();
        for last in (1..wheels).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        Self::Sample(Sample {
            left: count,
            corner: 0,
            order,
            random,
            taken: FxHashSet::default(),
            urn: total.map(|left| Urn {
                left,
                moved: FxHashMap::default(),
            }),
        })
    }

    /// The next combination.
    pub(crate) fn next(&mut self, wheels: &[Wheel]) -> Option<Vec<usize>> {
        match self {
            Self::All { next, total } => {
                if next == total {
                    return None;
                }
                *next += 1;
                Some(digits(wheels, *next - 1))
            }
            Self::Sample(sample) => sample.next(wheels),
        }
    }
}

impl Sample {
    fn next(&mut self, wheels: &[Wheel]) -> Option<Vec<usize>> {
        if self.left == 0 {
            return None;
        }
        loop {
            let combination = match self.next_corner(wheels) {
                Some(corner) => corner,
                None => match &mut self.urn {
                    Some(urn) => digits(wheels, urn.draw(&mut self.random)?),
                    None => wheels
                        .iter()
                        .map(|wheel| self.random.below(wheel.len as u64) as usize)
                        .collect(),
                },
            };
            if self.taken.insert(name(&combination)) {
                self.left -= 1;
                return Some(combination);
            }
        }
    }

    fn next_corner(&mut self, wheels: &[Wheel]) -> Option<Vec<usize>> {
        let corner = self.corner;
        let of_line = corner.checked_sub(2).map(|rest| (rest / 2, rest % 2 == 0));
        let newest = || wheels.iter().map(|wheel| wheel.newest).collect::<Vec<_>>();
        let combination = match (corner, of_line) {
            (0, _) => newest(),
            (_, None) => vec![0; wheels.len()],
            (_, Some((line, is_lost))) => {
                let line = *self.order.get(line)?;
                if is_lost {
                    let mut lost = newest();
                    lost[line] = wheels[line].lost();
                    lost
                } else {
                    let mut kept = vec![0; wheels.len()];
                    kept[line] = wheels[line].newest;
                    kept
                }
            }
        };
        self.corner += 1;
        Some(combination)
    }
}

/// The combination with a number; in number 0 every line is newest.
fn digits(wheels: &[Wheel], mut number: u64) -> Vec<usize> {
    wheels
        .iter()
        .map(|wheel| {
            let len = wheel.len as u64;
            let digit = (number % len) as usize;
            number /= len;
            (wheel.newest + wheel.len - digit) % wheel.len
        })
        .collect()
}

/// Combinations with the same name are the same, but for odds below one in 10^26.
fn name(combination: &[usize]) -> u128 {
    let mut name = 0_u128;
    for (line, &digit) in (1_u64..).zip(combination) {
        let low = mix(mix(line) ^ digit as u64);
        let high = mix(mix(line ^ 0x6e61_6d65) ^ digit as u64);
        name = name.wrapping_add(u128::from(high) << 64 | u128::from(low));
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn wheel() -> impl Strategy<Value = Wheel> {
        (2_usize..5).prop_flat_map(|len| (0..len).prop_map(move |newest| Wheel { len, newest }))
    }

    fn all_of(mut walk: Walk, wheels: &[Wheel]) -> Vec<Vec<usize>> {
        std::iter::from_fn(|| walk.next(wheels)).collect()
    }

    fn total(wheels: &[Wheel]) -> u64 {
        wheels.iter().map(|wheel| wheel.len as u64).product()
    }

    proptest! {
        #[test]
        fn all_are_all_and_each_once(wheels in prop::collection::vec(wheel(), 0..5)) {
            let combinations = all_of(Walk::all(total(&wheels)), &wheels);
            let newest: Vec<usize> = wheels.iter().map(|wheel| wheel.newest).collect();
            prop_assert_eq!(&combinations[0], &newest);
            let distinct: BTreeSet<_> = combinations.iter().collect();
            prop_assert_eq!(distinct.len() as u64, total(&wheels));
            prop_assert_eq!(combinations.len(), distinct.len());
            for combination in &combinations {
                prop_assert!(combination.iter().zip(&wheels).all(|(digit, wheel)| *digit < wheel.len));
            }
        }

        #[test]
        fn a_sample_repeats_nothing_and_has_the_corners(
            wheels in prop::collection::vec(wheel(), 1..6),
            count in 1_usize..2000,
            seed in any::<u64>(),
            is_numbered in any::<bool>(),
        ) {
            let all = total(&wheels);
            // Without numbers a sample of all would be drawn for ever.
            prop_assume!(is_numbered || (count as u64) < all / 2);
            let sample = || {
                let total = is_numbered.then_some(all);
                let walk = Walk::sample(count, wheels.len(), total, Random::new(seed));
                all_of(walk, &wheels)
            };
            let combinations = sample();
            prop_assert_eq!(&combinations, &sample(), "the same seed, the same sample");
            let distinct: BTreeSet<Vec<usize>> = combinations.iter().cloned().collect();
            prop_assert_eq!(distinct.len(), combinations.len());
            prop_assert_eq!(combinations.len() as u64, all.min(count as u64));
            let newest: Vec<usize> = wheels.iter().map(|wheel| wheel.newest).collect();
            let floors = vec![0; wheels.len()];
            // Some of them are the same where a line's newest content is its durable one.
            let mut corners = BTreeSet::from([newest.clone(), floors.clone()]);
            for (line, wheel) in wheels.iter().enumerate() {
                let mut lost = newest.clone();
                lost[line] = usize::from(wheel.newest == 0);
                let mut kept = floors.clone();
                kept[line] = wheel.newest;
                corners.extend([lost, kept]);
            }
            if corners.len() <= count {
                prop_assert!(corners.iter().all(|corner| distinct.contains(corner)));
            } else {
                prop_assert!(combinations.iter().all(|it| corners.contains(it)));
            }
        }
    }

    #[test]
    fn every_combination_is_equally_likely() {
        let wheels = [Wheel { len: 4, newest: 3 }; 3];
        let mut counts = std::collections::BTreeMap::new();
        for seed in 0..4000 {
            let walk = Walk::sample(18, 3, Some(64), Random::new(seed));
            for combination in all_of(walk, &wheels).into_iter().skip(8) {
                *counts.entry(combination).or_insert(0_u32) += 1;
            }
        }
        // Ten draws of the 56 that are no corners: 714 each, with a standard deviation of 24.
        assert_eq!(counts.len(), 56);
        assert!(
            counts.values().all(|count| (590..840).contains(count)),
            "{counts:?}"
        );
    }
}
