//! The coverage that was seen so far.
//!
//! The counters are inspected after each run, so this loop must be fast: it passes over a map once, skips zeros by 64
//! bytes, and inspects only words that are not zero.

use super::Touched;
use super::bucket::buckets;

const WORD: usize = 8;
const BLOCK: usize = 8 * WORD;

/// What is new in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Novelty {
    /// Nothing.
    Nothing,
    /// A known location is in a new bucket.
    Bucket,
    /// A location is new.
    Location,
}

/// The intermediate result of inspecting counters.
struct Look {
    hash: u64,
    novelty: Novelty,
}

/// The coverage that was seen in a map.
#[derive(Debug, Default)]
pub(crate) struct SeenCoverage {
    /// All buckets in which each location was seen, eight locations in a word.
    buckets: Vec<u64>,
    /// All bits of stable locations.
    stable: Vec<u64>,
    locations: usize,
    unstable: usize,
    unstable_reached: usize,
}

impl SeenCoverage {
    /// How many stable locations were reached.
    pub(crate) fn locations(&self) -> usize {
        self.locations
    }

    /// How many locations are ignored.
    pub(crate) fn unstable(&self) -> usize {
        self.unstable
    }

    /// The share of stable locations in all reached locations.
    #[expect(clippy::cast_precision_loss, reason = "maps are small")]
    pub(crate) fn stability(&self) -> f64 {
        let all = self.locations + self.unstable_reached;
        if all == 0 {
            1.0
        } else {
            self.locations as f64 / all as f64
        }
    }

    /// Inspects the counters of a run; returns what is new, and a hash of the buckets of all stable locations.
    pub(crate) fn look(&mut self, counters: &[u8]) -> (Novelty, u64) {
        self.cover(counters.len());
        let mut look = Look {
            hash: 0,
            novelty: Novelty::Nothing,
        };
        let (blocks, rest) = counters.as_chunks();
        for (at, block) in blocks.iter().enumerate() {
            self.look_at(at, block, &mut look);
        }
        if !rest.is_empty() {
            let mut block = [0; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            self.look_at(blocks.len(), &block, &mut look);
        }
        (look.novelty, look.hash)
    }

    #[inline]
    fn look_at(&self, at: usize, block: &[u8; BLOCK], look: &mut Look) {
        if block.iter().fold(0, |all, byte| all | byte) == 0 {
            return;
        }
        let (words, _) = block.as_chunks();
        for (index, bytes) in (at * (BLOCK / WORD)..).zip(words) {
            let raw = u64::from_le_bytes(*bytes);
            if raw == 0 {
                continue;
            }
            let touched = buckets(raw) & self.stable[index];
            if touched == 0 {
                continue;
            }
            look.hash = mix(look.hash, index as u64, touched);
            let seen = self.buckets[index];
            if touched & !seen != 0 && look.novelty != Novelty::Location {
                look.novelty = look.novelty.max(compare(touched, seen));
            }
        }
    }

    /// The stable locations that a run has touched.
    pub(crate) fn touched(&mut self, counters: &[u8]) -> Vec<Touched> {
        self.cover(counters.len());
        let mut list = Vec::new();
        for (index, bytes) in counters.chunks(WORD).enumerate() {
            let raw = word(bytes);
            if raw != 0 {
                let word = buckets(raw) & self.stable[index];
                list.extend(each(index, word));
            }
        }
        list
    }

    /// The new locations of a run, and the known locations in new buckets.
    pub(crate) fn news(&mut self, touched: &[Touched]) -> (Vec<u32>, Vec<u32>) {
        let mut locations = Vec::new();
        let mut changed = Vec::new();
        for &Touched { location, bucket } in touched {
            self.cover(location as usize + 1);
            let (index, shift) = place(location);
            if byte(self.stable[index], shift) == 0 {
                continue;
            }
            let seen = byte(self.buckets[index], shift);
            if seen == 0 {
                locations.push(location);
            } else if seen & bucket == 0 {
                changed.push(location);
            }
        }
        (locations, changed)
    }

    /// Adds the coverage of a run.
    pub(crate) fn add(&mut self, touched: &[Touched]) {
        for &Touched { location, bucket } in touched {
            self.cover(location as usize + 1);
            let (index, shift) = place(location);
            if byte(self.buckets[index], shift) == 0 {
                let stable = byte(self.stable[index], shift) != 0;
                self.locations += usize::from(stable);
                self.unstable_reached += usize::from(!stable);
            }
            self.buckets[index] |= u64::from(bucket) << shift;
        }
    }

    /// Ignores a location from now on; returns whether it was stable before.
    pub(crate) fn ignore(&mut self, location: u32) -> bool {
        self.cover(location as usize + 1);
        let (index, shift) = place(location);
        if byte(self.stable[index], shift) == 0 {
            return false;
        }
        self.stable[index] &= !(0xff << shift);
        self.unstable += 1;
        self.unstable_reached += 1;
        if byte(self.buckets[index], shift) == 0 {
            // It was reached: otherwise it would not be known to be unstable.
            self.buckets[index] |= 1 << shift;
        } else {
            self.locations -= 1;
        }
        true
    }

    /// The locations that are ignored.
    pub(crate) fn ignored(&self) -> impl Iterator<Item = u32> {
        self.stable
            .iter()
            .enumerate()
            .filter(|(_, word)| **word != u64::MAX)
            .flat_map(|(index, word)| {
                (0..WORD)
                    .filter(move |at| word.to_le_bytes()[*at] == 0)
                    .map(move |at| (index * WORD + at) as u32)
            })
    }

    fn cover(&mut self, len: usize) {
        let words = len.div_ceil(WORD);
        if self.buckets.len() < words {
            self.buckets.resize(words, 0);
            self.stable.resize(words, u64::MAX);
        }
    }
}

fn place(location: u32) -> (usize, u32) {
    (location as usize / WORD, 8 * (location % WORD as u32))
}

fn byte(word: u64, shift: u32) -> u8 {
    (word >> shift) as u8
}

fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => bytes
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

fn each(index: usize, word: u64) -> impl Iterator<Item = Touched> {
    word.to_le_bytes()
        .into_iter()
        .enumerate()
        .filter(|(_, bucket)| *bucket != 0)
        .map(move |(byte, bucket)| Touched {
            location: (index * WORD + byte) as u32,
            bucket,
        })
}

fn compare(touched: u64, seen: u64) -> Novelty {
    let unseen = |(now, before): (u8, u8)| now != 0 && before == 0;
    if touched
        .to_le_bytes()
        .into_iter()
        .zip(seen.to_le_bytes())
        .any(unseen)
    {
        Novelty::Location
    } else {
        Novelty::Bucket
    }
}

/// One step of a hash: the product of two 64-bit numbers, with both halves combined.
fn mix(hash: u64, index: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15)
        * u128::from((index << 1 | 1).wrapping_mul(0xd6e8_feb8_6659_fd93));
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(counters: &[(usize, u8)]) -> Vec<u8> {
        let mut map = vec![0; 200];
        for &(at, count) in counters {
            map[at] = count;
        }
        map
    }

    fn take(seen: &mut SeenCoverage, counters: &[(usize, u8)]) -> Novelty {
        let (novelty, _) = seen.look(&map(counters));
        let touched = seen.touched(&map(counters));
        seen.add(&touched);
        novelty
    }

    #[test]
    fn locations_are_more_than_buckets() {
        let mut seen = SeenCoverage::default();
        assert_eq!(take(&mut seen, &[(3, 1), (199, 1)]), Novelty::Location);
        assert_eq!(take(&mut seen, &[(3, 1), (199, 1)]), Novelty::Nothing);
        assert_eq!(take(&mut seen, &[(3, 2)]), Novelty::Bucket);
        assert_eq!(take(&mut seen, &[(3, 4)]), Novelty::Bucket);
        assert_eq!(take(&mut seen, &[(3, 7)]), Novelty::Nothing);
        assert_eq!(take(&mut seen, &[(3, 9), (4, 1)]), Novelty::Location);
        assert_eq!(seen.locations(), 3);
    }

    #[test]
    fn what_is_ignored_is_neither_new_nor_hashed() {
        let mut seen = SeenCoverage::default();
        take(&mut seen, &[(3, 1), (100, 1)]);
        let before = seen.look(&map(&[(100, 1)])).1;
        assert!(seen.ignore(3));
        assert!(!seen.ignore(3));
        assert!(seen.ignore(150));
        assert_eq!(
            seen.look(&map(&[(3, 200), (100, 1), (150, 1)])),
            (Novelty::Nothing, before)
        );
        assert_eq!(seen.touched(&map(&[(3, 200), (100, 1)])).len(), 1);
        assert_eq!(seen.ignored().collect::<Vec<_>>(), [3, 150]);
        assert_eq!((seen.locations(), seen.unstable()), (1, 2));
        assert!((seen.stability() - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn paths_differ_by_place_and_bucket() {
        let mut seen = SeenCoverage::default();
        let mut hash = |counters: &[(usize, u8)]| seen.look(&map(counters)).1;
        let all = [
            hash(&[(1, 1)]),
            hash(&[(2, 1)]),
            hash(&[(1, 2)]),
            hash(&[(9, 1)]),
            hash(&[(1, 1), (9, 1)]),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(hash(&[(1, 4)]), hash(&[(1, 7)]));
    }
}
