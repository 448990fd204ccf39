//! A digest of all pools that is kept up to date store by store.
//!
//! The digest is a sum over all words of 8 bytes that are not zero, each hashed with its place. So a
//! store changes it by the difference of the words it touches, and moments with the same digest have
//! the same images: silent stores, and stores that are undone, are seen before anything is run.
//!
//! Two sums of 64 bits each: among a million different images the odds that two of them share a
//! digest are below one in 10^26. Not made to resist deliberate collisions.

use std::fmt;

use powerfail_model::{Place, PoolIndex};
use powerfail_protocol::random::mix;
use rustc_hash::FxHashMap;

const PAGE_BYTES: usize = 4096;
const WORD_BYTES: usize = 8;

/// The digest of the content of all pools. Equal digests mean equal contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageDigest([u64; 2]);

impl fmt::Display for ImageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

impl ImageDigest {
    /// What the words of a piece of a pool contribute. The piece starts at a multiple of 8 bytes and
    /// is as long as one.
    pub(crate) fn of_words(at: Place, bytes: &[u8]) -> Self {
        let mut digest = Self::default();
        let first = at.offset.0 / WORD_BYTES as u64;
        for (number, word) in bytes.chunks_exact(WORD_BYTES).enumerate() {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            digest.add(word_key(at.pool, first + number as u64), word);
        }
        digest
    }

    /// Something happened that no word tells: images before and after it are different.
    pub(crate) const fn salt(&mut self, salt: u64) {
        self.0[0] = self.0[0].wrapping_add(mix(salt));
        self.0[1] = self.0[1].wrapping_add(mix(salt ^ 0x5a17_5a17_5a17_5a17));
    }

    /// The sum of two digests: of a whole that has both parts.
    #[must_use]
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self([
            self.0[0].wrapping_add(other.0[0]),
            self.0[1].wrapping_add(other.0[1]),
        ])
    }

    /// What is left when a part is taken away.
    #[must_use]
    pub(crate) const fn minus(self, other: Self) -> Self {
        Self([
            self.0[0].wrapping_sub(other.0[0]),
            self.0[1].wrapping_sub(other.0[1]),
        ])
    }

    fn add(&mut self, key: u64, word: u64) {
        let [first, second] = lanes(key, word);
        self.0[0] = self.0[0].wrapping_add(first);
        self.0[1] = self.0[1].wrapping_add(second);
    }

    fn subtract(&mut self, key: u64, word: u64) {
        let [first, second] = lanes(key, word);
        self.0[0] = self.0[0].wrapping_sub(first);
        self.0[1] = self.0[1].wrapping_sub(second);
    }
}

/// Zero words count nothing, so that pages that were never written need not be visited.
const fn lanes(key: u64, word: u64) -> [u64; 2] {
    if word == 0 {
        return [0; 2];
    }
    [
        mix(word ^ key),
        mix(word.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ key.rotate_left(29)),
    ]
}

const fn word_key(pool: PoolIndex, word: u64) -> u64 {
    mix(word.wrapping_add(mix(pool.0 as u64 + 1)))
}

const fn length_key(pool: PoolIndex) -> u64 {
    mix(mix(pool.0 as u64 + 1) ^ 0x6c65_6e67_7468)
}

/// How many pages an image keeps: 256 MiB.
const PAGES_MAX: usize = 1 << 16;

/// The newest content of the pools with its digest. Takes memory for the pages that are not zero, up to a limit beyond which it
/// is [incomplete](Self::is_incomplete).
#[derive(Clone, Debug, Default)]
pub(crate) struct DigestedImage {
    pages: FxHashMap<(PoolIndex, u64), Box<[u8; PAGE_BYTES]>>,
    len_bytes: Vec<u64>,
    digest: ImageDigest,
    /// How many more pages it may take.
    pages_left: usize,
    is_incomplete: bool,
}

impl DigestedImage {
    /// Pools of these lengths, all zero.
    pub(crate) fn new(len_bytes: impl IntoIterator<Item = u64>) -> Self {
        let mut image = Self {
            len_bytes: len_bytes.into_iter().collect(),
            pages_left: PAGES_MAX,
            ..Self::default()
        };
        for (pool, &len) in (0..).map(PoolIndex).zip(&image.len_bytes) {
            image.digest.add(length_key(pool), len);
        }
        image
    }

    /// The same, with another limit.
    #[cfg(test)]
    pub(crate) fn with_pages(len_bytes: impl IntoIterator<Item = u64>, pages: usize) -> Self {
        Self {
            pages_left: pages,
            ..Self::new(len_bytes)
        }
    }

    /// Whether there were more pages than it keeps, so that its digest says nothing any more.
    pub(crate) const fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// The digest of the present content and lengths.
    pub(crate) const fn digest(&self) -> ImageDigest {
        self.digest
    }

    /// Writes bytes. What lies beyond the end of the pool does not count.
    pub(crate) fn store(&mut self, at: Place, bytes: &[u8]) {
        let Some(&len_bytes) = self.len_bytes.get(at.pool.0 as usize) else {
            return;
        };
        let room = len_bytes.saturating_sub(at.offset.0);
        let mut rest = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let mut position = at.offset.0;
        while !rest.is_empty() {
            let start = (position % PAGE_BYTES as u64) as usize;
            let (piece, later) = rest.split_at(rest.len().min(PAGE_BYTES - start));
            self.store_in_page(at.pool, position / PAGE_BYTES as u64, start, piece);
            position += piece.len() as u64;
            rest = later;
        }
    }

    fn store_in_page(&mut self, pool: PoolIndex, number: u64, start: usize, piece: &[u8]) {
        let page = match self.pages.get_mut(&(pool, number)) {
            Some(page) => page,
            None if piece.iter().all(|&byte| byte == 0) => return,
            None if self.pages_left == 0 => {
                self.is_incomplete = true;
                return;
            }
            None => {
                self.pages_left -= 1;
                self.pages
                    .entry((pool, number))
                    .or_insert_with(|| Box::new([0; PAGE_BYTES]))
            }
        };
        let end = start + piece.len();
        let first_word = number * (PAGE_BYTES / WORD_BYTES) as u64;
        for word in start / WORD_BYTES..end.div_ceil(WORD_BYTES) {
            let old = word_at(page, word);
            let from = start.max(word * WORD_BYTES);
            let to = end.min((word + 1) * WORD_BYTES);
            page[from..to].copy_from_slice(&piece[from - start..to - start]);
            let new = word_at(page, word);
            if old != new {
                let key = word_key(pool, first_word + word as u64);
                self.digest.subtract(key, old);
                self.digest.add(key, new);
            }
        }
    }

    /// Changes the length of a pool. Costs a pass over all pages if it becomes shorter.
    pub(crate) fn resize(&mut self, pool: PoolIndex, len_bytes: u64) {
        let Some(length) = self.len_bytes.get_mut(pool.0 as usize) else {
            return;
        };
        let old = std::mem::replace(length, len_bytes);
        self.digest.subtract(length_key(pool), old);
        self.digest.add(length_key(pool), len_bytes);
        if len_bytes >= old {
            return;
        }
        let digest = &mut self.digest;
        self.pages.retain(|&(owner, number), page| {
            let start = number * PAGE_BYTES as u64;
            if owner != pool || start + PAGE_BYTES as u64 <= len_bytes {
                return true;
            }
            let kept = usize::try_from(len_bytes.saturating_sub(start)).unwrap_or(PAGE_BYTES);
            let first_word = number * (PAGE_BYTES / WORD_BYTES) as u64;
            for word in kept / WORD_BYTES..PAGE_BYTES / WORD_BYTES {
                let old = word_at(page, word);
                page[kept.max(word * WORD_BYTES)..(word + 1) * WORD_BYTES].fill(0);
                let key = word_key(pool, first_word + word as u64);
                digest.subtract(key, old);
                digest.add(key, word_at(page, word));
            }
            kept > 0
        });
    }
}

fn word_at(page: &[u8; PAGE_BYTES], word: usize) -> u64 {
    let mut bytes = [0; WORD_BYTES];
    bytes.copy_from_slice(&page[word * WORD_BYTES..(word + 1) * WORD_BYTES]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use powerfail_model::PoolOffset;

    use super::*;

    fn at(pool: u32, offset: u64) -> Place {
        Place::new(PoolIndex(pool), PoolOffset(offset))
    }

    #[test]
    fn undone_and_silent_stores_leave_no_trace() {
        let mut image = DigestedImage::new([1 << 20, 1 << 20]);
        image.store(at(0, 4090), &[3; 20]);
        let before = image.digest();
        image.store(at(0, 4093), &[3; 9]);
        assert_eq!(image.digest(), before);
        image.store(at(0, 4100), &[1, 2, 3]);
        assert_ne!(image.digest(), before);
        image.store(at(0, 4100), &[3; 3]);
        assert_eq!(image.digest(), before);
    }

    #[test]
    fn place_pool_and_length_matter() {
        let with = |pool, offset| {
            let mut image = DigestedImage::new([1 << 20, 1 << 20]);
            image.store(at(pool, offset), &[9]);
            image.digest()
        };
        assert_ne!(with(0, 0), with(0, 8));
        assert_ne!(with(0, 0), with(0, 1));
        assert_ne!(with(0, 0), with(1, 0));
        assert_ne!(
            DigestedImage::new([4096]).digest(),
            DigestedImage::new([8192]).digest()
        );
    }

    #[test]
    fn what_is_cut_off_does_not_come_back() {
        let mut image = DigestedImage::new([3 * 4096]);
        image.store(at(0, 100), &[5; 5]);
        let short = image.digest();
        image.store(at(0, 105), &[6; 10_000]);
        image.resize(PoolIndex(0), 105);
        image.resize(PoolIndex(0), 3 * 4096);
        assert_eq!(image.digest(), short);
        image.store(at(0, 3 * 4096 - 1), &[0, 7]);
        assert_eq!(image.digest(), short, "bytes beyond the end do not count");
    }
}
