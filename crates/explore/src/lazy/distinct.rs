//! The different contents among many versions, within a limit.

use std::collections::hash_map::Entry;

use powerfail_protocol::random::mix;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::lazy::digest::hash_bytes;
use crate::lazy::table::Content;

/// The different contents of a line, and how many there are if they are not all here.
#[derive(Debug, Default)]
pub(crate) struct Distinct {
    /// The newest first.
    pub(crate) contents: Vec<Content>,
    /// How many there were, if that was too many.
    pub(crate) left_out_of: Option<usize>,
}

/// Shows versions with their contents, from the oldest to the newest; the same ones whenever it is asked.
pub(crate) type Versions<'v> = dyn Fn(&mut dyn FnMut(usize, &[u8])) + 'v;

/// Finds the different contents among `count` versions. Of more than `limit` it keeps the oldest, the
/// newest and a sample that depends on the seed and on the contents, not on their order. The memory is
/// that of the contents kept and eight bytes for each other one.
pub(crate) fn distinct(count: usize, versions: &Versions<'_>, limit: usize, seed: u64) -> Distinct {
    let limit = limit.max(2);
    let sample = (count > limit)
        .then(|| sample(versions, limit, seed))
        .flatten();
    let mut gather = Gather::default();
    versions(&mut |version, bytes| {
        let is_kept = sample
            .as_ref()
            .is_none_or(|sample| sample.kept.contains(&hash_bytes(bytes)));
        if is_kept {
            gather.add(version, bytes);
        }
    });
    let mut contents = gather.contents;
    contents.sort_by_key(|content| std::cmp::Reverse(content.newest_version()));
    Distinct {
        contents,
        left_out_of: sample.map(|sample| sample.out_of),
    }
}

/// Leaves out contents that are already there, as [`distinct`] would have.
pub(crate) fn thin(contents: &mut Vec<Content>, limit: usize, seed: u64) {
    let limit = limit.max(2);
    if contents.len() <= limit {
        return;
    }
    let ends = [0, contents.len() - 1].map(|at| hash_bytes(&contents[at].bytes));
    let hashes = contents.iter().map(|content| hash_bytes(&content.bytes));
    let kept = choose(hashes.collect(), ends, limit, seed);
    contents.retain(|content| kept.contains(&hash_bytes(&content.bytes)));
}

struct Sample {
    kept: FxHashSet<u64>,
    out_of: usize,
}

fn sample(versions: &Versions<'_>, limit: usize, seed: u64) -> Option<Sample> {
    let mut hashes = FxHashSet::default();
    let mut ends = None;
    versions(&mut |_, bytes| {
        let hash = hash_bytes(bytes);
        hashes.insert(hash);
        let (oldest, _) = ends.unwrap_or((hash, hash));
        ends = Some((oldest, hash));
    });
    let out_of = hashes.len();
    let (oldest, newest) = ends.filter(|_| out_of > limit)?;
    Some(Sample {
        kept: choose(hashes, [oldest, newest], limit, seed),
        out_of,
    })
}

fn choose(hashes: FxHashSet<u64>, ends: [u64; 2], limit: usize, seed: u64) -> FxHashSet<u64> {
    let mut ranked: Vec<(u64, u64)> = hashes
        .into_iter()
        .filter(|hash| !ends.contains(hash))
        .map(|hash| (mix(hash ^ mix(seed)), hash))
        .collect();
    ranked.sort_unstable();
    let sampled = ranked.into_iter().map(|(_, hash)| hash);
    ends.into_iter().chain(sampled.take(limit - 2)).collect()
}

/// Gathers the different contents among those that are shown to it.
#[derive(Debug, Default)]
struct Gather {
    contents: Vec<Content>,
    by_hash: FxHashMap<u64, usize>,
    last: usize,
}

/// Up to this many contents are compared one by one.
const FEW: usize = 8;

impl Gather {
    fn add(&mut self, version: usize, bytes: &[u8]) {
        let number = self.find(bytes).unwrap_or_else(|| {
            self.contents.push(Content {
                bytes: bytes.to_vec(),
                versions: Vec::with_capacity(1),
            });
            self.contents.len() - 1
        });
        self.contents[number].versions.push(version);
        self.last = number;
    }

    fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let same = |content: &Content| content.bytes == bytes;
        // A silent store.
        if self.contents.get(self.last).is_some_and(same) {
            return Some(self.last);
        }
        if self.contents.len() < FEW {
            return self.contents.iter().position(same);
        }
        if self.by_hash.is_empty() {
            let numbers = 0..self.contents.len();
            self.by_hash = numbers
                .map(|at| (hash_bytes(&self.contents[at].bytes), at))
                .collect();
        }
        match self.by_hash.entry(hash_bytes(bytes)) {
            Entry::Vacant(place) => {
                place.insert(self.contents.len());
                None
            }
            Entry::Occupied(number) => {
                let number = *number.get();
                if same(&self.contents[number]) {
                    return Some(number);
                }
                // Two contents share a hash: only one of them can be found by it.
                self.contents.iter().position(same)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(contents: &[u16], limit: usize, seed: u64) -> Distinct {
        let versions = |visit: &mut dyn FnMut(usize, &[u8])| {
            for (version, content) in contents.iter().enumerate() {
                visit(version, &content.to_le_bytes());
            }
        };
        distinct(contents.len(), &versions, limit, seed)
    }

    #[test]
    fn the_newest_comes_first_and_knows_all_its_versions() {
        let found = of(&[5, 5, 7, 5, 9, 7], 99, 0);
        assert_eq!(found.left_out_of, None);
        let found: Vec<_> = found
            .contents
            .iter()
            .map(|content| (content.bytes[0], content.versions.clone()))
            .collect();
        assert_eq!(found, [(7, vec![2, 5]), (9, vec![4]), (5, vec![0, 1, 3])]);
    }

    #[test]
    fn many_contents_are_found_by_hash_as_few_are_one_by_one() {
        let contents: Vec<u16> = (0..4000).map(|at| at % 1000).collect();
        let found = of(&contents, 2000, 0);
        assert_eq!(found.contents.len(), 1000);
        for (rank, content) in found.contents.iter().enumerate() {
            let first = 999 - rank;
            assert_eq!(
                content.versions,
                [first, first + 1000, first + 2000, first + 3000]
            );
        }
    }

    #[test]
    fn of_too_many_the_ends_and_a_sample_are_kept() {
        let contents: Vec<u16> = (0..1000).collect();
        let found = of(&contents, 10, 1);
        assert_eq!(found.left_out_of, Some(1000));
        let versions = |found: &Distinct| -> Vec<usize> {
            found.contents.iter().map(Content::newest_version).collect()
        };
        assert_eq!(found.contents.len(), 10);
        assert_eq!(versions(&found)[0], 999);
        assert_eq!(versions(&found)[9], 0);
        assert!(versions(&found).is_sorted_by(|a, b| a > b));
        assert_ne!(versions(&found), versions(&of(&contents, 10, 2)));
        // What is thinned afterwards is the same.
        let mut all = of(&contents, 5000, 1).contents;
        thin(&mut all, 10, 1);
        assert_eq!(all, found.contents);
    }

    #[test]
    fn many_versions_of_few_contents_are_not_too_many() {
        let contents: Vec<u16> = (0..1000).map(|at| at % 3).collect();
        let found = of(&contents, 10, 1);
        assert_eq!((found.contents.len(), found.left_out_of), (3, None));
    }
}
