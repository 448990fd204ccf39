//! Pool content in a trace: the sparse initial image, and the hash of the final one.
//!
//! A pool of a terabyte that holds a megabyte costs a megabyte: pages that are all zero are neither
//! stored nor hashed.

use std::fmt;

use powerfail_model::{PoolIndex, PoolOffset};

use crate::error::{Result, TraceError};
use crate::layout::MAX_IMAGE_CHUNK_BYTES;
use crate::wire::Fields;

/// The unit in which images are sparse.
pub const PAGE_BYTES: usize = 4096;

/// The hash of a pool image: BLAKE3 over the image's length and, in order, the number and the bytes
/// of every page that is not all zero. Numbers are 64-bit little-endian; the last page is filled up
/// with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageHash(pub [u8; 32]);

impl fmt::Display for ImageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ImageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageHash({self})")
    }
}

/// A pool at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalImage {
    /// The pool.
    pub pool: PoolIndex,
    /// Its length.
    pub len_bytes: u64,
    /// The hash of its content.
    pub hash: ImageHash,
}

/// Computes an [`ImageHash`] from pieces of an image that come in ascending order.
///
/// Pieces may have any length and leave gaps; what no piece covers is zero.
#[derive(Debug)]
pub struct ImageHasher {
    hasher: blake3::Hasher,
    len_bytes: u64,
    page: Box<[u8; PAGE_BYTES]>,
    page_number: u64,
    /// Whether `page` holds anything.
    pending: bool,
    /// Where the last piece ended.
    position: u64,
}

impl ImageHasher {
    /// Begins the hash of an image of `len_bytes`.
    pub fn new(len_bytes: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&len_bytes.to_le_bytes());
        Self {
            hasher,
            len_bytes,
            page: Box::new([0; PAGE_BYTES]),
            page_number: 0,
            pending: false,
            position: 0,
        }
    }

    /// Adds the bytes at `offset`. Bytes beyond the image's length do not count.
    ///
    /// # Panics
    ///
    /// If `offset` lies before the end of an earlier piece.
    pub fn update(&mut self, offset: u64, bytes: &[u8]) {
        assert!(
            offset >= self.position,
            "pieces of an image come in ascending order"
        );
        let room = usize::try_from(self.len_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut rest = &bytes[..bytes.len().min(room)];
        let mut position = offset;
        while !rest.is_empty() {
            let page_number = position / PAGE_BYTES as u64;
            let start = page_offset(position);
            let (piece, later) = rest.split_at(rest.len().min(PAGE_BYTES - start));
            if piece.len() == PAGE_BYTES {
                self.flush();
                self.add(page_number, piece);
            } else {
                if page_number != self.page_number {
                    self.flush();
                    self.page_number = page_number;
                }
                self.page[start..start + piece.len()].copy_from_slice(piece);
                self.pending = true;
            }
            position += piece.len() as u64;
            rest = later;
        }
        self.position = position.max(self.position);
    }

    /// The hash of all pieces.
    pub fn finish(mut self) -> ImageHash {
        self.flush();
        ImageHash(*self.hasher.finalize().as_bytes())
    }

    fn flush(&mut self) {
        if self.pending {
            let page = *self.page;
            self.add(self.page_number, &page);
            self.page.fill(0);
            self.pending = false;
        }
    }

    fn add(&mut self, page_number: u64, page: &[u8]) {
        if !is_zero(page) {
            self.hasher.update(&page_number.to_le_bytes());
            self.hasher.update(page);
        }
    }
}

/// The position of a byte inside its page.
pub(crate) const fn page_offset(position: u64) -> usize {
    // The remainder is below the page size, so nothing is cut off.
    (position % PAGE_BYTES as u64) as usize
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

/// The length of an entry in the table of runs.
const RUN_LEN: usize = 12;

/// A piece of a pool's initial image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRun<'a> {
    /// The pool.
    pub pool: PoolIndex,
    /// Where it stands.
    pub offset: PoolOffset,
    /// What stands there.
    pub bytes: &'a [u8],
}

/// Collects runs of one pool until they fill a block.
#[derive(Default)]
pub(crate) struct ImageBuffer {
    pub(crate) pool: u32,
    runs: Vec<(u64, u32)>,
    content: Vec<u8>,
}

impl ImageBuffer {
    pub(crate) const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many more bytes fit.
    pub(crate) fn room(&self) -> usize {
        MAX_IMAGE_CHUNK_BYTES.saturating_sub(self.content.len())
    }

    /// Adds at most [`Self::room`] bytes, as part of the last run where they continue it.
    pub(crate) fn push(&mut self, offset: u64, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        match self.runs.last_mut() {
            Some((start, run_len)) if start.wrapping_add(u64::from(*run_len)) == offset => {
                *run_len += len;
            }
            _ => self.runs.push((offset, len)),
        }
        self.content.extend_from_slice(bytes);
    }

    pub(crate) fn take_into(&mut self, raw: &mut Vec<u8>) {
        raw.clear();
        raw.extend_from_slice(&crate::definitions::count(&self.runs).to_le_bytes());
        for (offset, len) in self.runs.drain(..) {
            raw.extend_from_slice(&offset.to_le_bytes());
            raw.extend_from_slice(&len.to_le_bytes());
        }
        raw.append(&mut self.content);
    }
}

/// One run of a block of an initial image: where it stands in the pool and in the payload.
#[derive(Clone, Copy)]
struct PlacedRun {
    offset: u64,
    start: usize,
    end: usize,
}

/// The runs of one block of an initial image.
pub(crate) struct ImageBlock {
    pool: PoolIndex,
    runs: Vec<PlacedRun>,
}

impl ImageBlock {
    /// Checks the table of runs: some, inside the pool, not empty, and together as long as the
    /// content.
    pub(crate) fn decode(
        payload: &[u8],
        pool: PoolIndex,
        pool_len: u64,
        block_offset: u64,
    ) -> Result<Self> {
        let mut fields = Fields::new(payload, block_offset);
        let run_count = fields.u32()? as usize;
        // Twelve bytes each, and they must be there before anything is set aside for them.
        let table_len = run_count.saturating_mul(RUN_LEN);
        let mut table = Fields::new(fields.take(table_len)?, block_offset);
        let mut runs = Vec::with_capacity(run_count);
        let mut start = table_len + size_of::<u32>();
        while !table.is_empty() {
            let (offset, len) = (table.u64()?, table.u32()?);
            let pool_end = offset.checked_add(u64::from(len));
            if len == 0 || pool_end.is_none_or(|end| end > pool_len) {
                return Err(TraceError::corrupt(
                    "a run of an image lies outside of its pool",
                    block_offset,
                ));
            }
            let end = start.saturating_add(len as usize);
            runs.push(PlacedRun { offset, start, end });
            start = end;
        }
        if runs.is_empty() || start != payload.len() {
            return Err(fields.corrupt("the runs of an image do not fill its block"));
        }
        Ok(Self { pool, runs })
    }

    pub(crate) const fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// A run of the `payload` that this was decoded from.
    pub(crate) fn run<'a>(&self, number: usize, payload: &'a [u8]) -> Option<ImageRun<'a>> {
        let run = self.runs.get(number)?;
        Some(ImageRun {
            pool: self.pool,
            offset: PoolOffset(run.offset),
            bytes: payload.get(run.start..run.end)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(image: &[u8]) -> ImageHash {
        let mut hasher = ImageHasher::new(image.len() as u64);
        hasher.update(0, image);
        hasher.finish()
    }

    #[test]
    fn pieces_and_gaps_do_not_matter() {
        let mut image = vec![0u8; 5 * PAGE_BYTES + 100];
        image[4000..4200].fill(7);
        image[3 * PAGE_BYTES..4 * PAGE_BYTES].fill(9);
        image[5 * PAGE_BYTES + 99] = 1;
        for step in [1, 63, 4096, 5000] {
            let mut hasher = ImageHasher::new(image.len() as u64);
            for (number, piece) in image.chunks(step).enumerate() {
                if !is_zero(piece) {
                    hasher.update((number * step) as u64, piece);
                }
            }
            assert_eq!(hasher.finish(), whole(&image), "in pieces of {step}");
        }
    }

    #[test]
    fn length_position_and_content_matter() {
        let mut one = vec![0u8; 3 * PAGE_BYTES];
        one[0] = 1;
        let mut other = vec![0u8; 3 * PAGE_BYTES];
        other[PAGE_BYTES] = 1;
        assert_ne!(whole(&one), whole(&other));
        assert_ne!(whole(&one), whole(&one[..2 * PAGE_BYTES]));
        assert_ne!(whole(&[]), whole(&[0]));
    }

    #[test]
    fn a_terabyte_of_nothing_is_cheap_and_its_tail_does_not_count() {
        let empty = ImageHasher::new(1 << 40).finish();
        let mut hasher = ImageHasher::new(1 << 40);
        hasher.update(1 << 40, &[1, 2, 3]);
        assert_eq!(hasher.finish(), empty);
    }

    #[test]
    fn the_hash_is_what_the_documentation_says() {
        let mut expected = blake3::Hasher::new();
        expected.update(&5000u64.to_le_bytes());
        expected.update(&1u64.to_le_bytes());
        let mut page = [0; PAGE_BYTES];
        page[4] = 3;
        expected.update(&page);
        let mut hasher = ImageHasher::new(5000);
        hasher.update(4100, &[3]);
        assert_eq!(hasher.finish().0, *expected.finalize().as_bytes());
    }
}
