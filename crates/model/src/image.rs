//! The bytes of pools.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ids::{Place, PoolIndex, PoolOffset};

/// The content of pools, as the model needs it: the newest bytes, read when a line opens and
/// written by every store. The model does not decide where they are kept (memory, a mapped file).
///
/// Reading and writing cannot fail: bytes that were never written are zero, or what fresh memory is filled with.
pub trait Image {
    /// Fills `out` with the bytes from `at` on.
    fn read(&self, at: Place, out: &mut [u8]);
    /// Writes `bytes` from `at` on.
    fn write(&mut self, at: Place, bytes: &[u8]);
    /// Makes every byte of `pool` from `from` on zero.
    fn clear_from(&mut self, pool: PoolIndex, from: PoolOffset);
    /// The file of `pool` now has this length. For images that know lengths; the bytes beyond it are
    /// zero in any case.
    fn resize(&mut self, pool: PoolIndex, len_bytes: u64) {
        self.clear_from(pool, PoolOffset(len_bytes));
    }
}

/// Holds nothing: for passes that ask what is durable, and not what it holds.
impl Image for () {
    fn read(&self, _: Place, _: &mut [u8]) {}
    fn write(&mut self, _: Place, _: &[u8]) {}
    fn clear_from(&mut self, _: PoolIndex, _: PoolOffset) {}
}

const PAGE_BYTES: usize = 4096;

/// An image in memory that holds only the pages that were written.
#[derive(Clone, Debug, Default)]
pub struct SparseImage {
    pages: FxHashMap<(PoolIndex, u64), Box<[u8; PAGE_BYTES]>>,
    /// What bytes hold that were never written.
    fill: u8,
    /// Pools in which such bytes are zero all the same.
    zeroed: FxHashSet<PoolIndex>,
}

impl SparseImage {
    /// An image of zeros.
    pub fn new() -> Self {
        Self::default()
    }

    /// An image in which bytes that were never written hold `fill`, except in pools that are [zeroed](Self::zero).
    pub fn filled(fill: u8) -> Self {
        Self {
            fill,
            ..Self::default()
        }
    }

    /// From here on, bytes of `pool` that were never written are zero.
    pub fn zero(&mut self, pool: PoolIndex) {
        self.zeroed.insert(pool);
    }

    fn fill_of(&self, pool: PoolIndex) -> u8 {
        if self.fill == 0 || self.zeroed.contains(&pool) {
            0
        } else {
            self.fill
        }
    }
}

/// Cuts `len` bytes from `offset` on at page borders: page, offset in it, range in the buffer.
fn page_pieces(
    offset: PoolOffset,
    len: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset.0.wrapping_add(done as u64);
        let in_page = (at % PAGE_BYTES as u64) as usize;
        let piece = (PAGE_BYTES - in_page).min(len - done);
        let range = done..done + piece;
        done += piece;
        Some((at / PAGE_BYTES as u64, in_page, range))
    })
}

impl Image for SparseImage {
    fn read(&self, at: Place, out: &mut [u8]) {
        for (page, in_page, range) in page_pieces(at.offset, out.len()) {
            let target = &mut out[range];
            match self.pages.get(&(at.pool, page)) {
                Some(bytes) => target.copy_from_slice(&bytes[in_page..in_page + target.len()]),
                None => target.fill(self.fill_of(at.pool)),
            }
        }
    }

    fn write(&mut self, at: Place, bytes: &[u8]) {
        let fill = self.fill_of(at.pool);
        for (page, in_page, range) in page_pieces(at.offset, bytes.len()) {
            let source = &bytes[range];
            let target = self
                .pages
                .entry((at.pool, page))
                .or_insert_with(|| Box::new([fill; PAGE_BYTES]));
            target[in_page..in_page + source.len()].copy_from_slice(source);
        }
    }

    fn clear_from(&mut self, pool: PoolIndex, from: PoolOffset) {
        let (first, in_page) = (
            from.0 / PAGE_BYTES as u64,
            (from.0 % PAGE_BYTES as u64) as usize,
        );
        let fill = self.fill_of(pool);
        self.pages
            .retain(|&(p, page), _| p != pool || page <= first);
        if let Some(bytes) = self.pages.get_mut(&(pool, first)) {
            bytes[in_page..].fill(fill);
        }
    }
}
