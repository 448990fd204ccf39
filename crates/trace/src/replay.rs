//! Replays the stores of a trace over the initial images and compares with the final hashes.
//!
//! If that gives the final image byte for byte, the recorder missed nothing. Takes memory for the
//! pages that are not zero, not for the length of pools or of the trace. Knows nothing of flushes:
//! this is what memory held, not what was durable. Reading has checked that every pool that is
//! named exists.

use std::collections::BTreeMap;

use powerfail_model::{Event, EventIndex, PoolIndex};

use crate::error::{Result, TraceError};
use crate::image::{ImageHash, ImageHasher, PAGE_BYTES, is_zero, page_offset};
use crate::reader::Trace;
use crate::record::Body;

/// What became of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolReplay {
    /// The pool.
    pub pool: PoolIndex,
    /// Its length after the last event.
    pub len_bytes: u64,
    /// The hash of its content after the last event.
    pub hash: ImageHash,
    /// The length and hash that the recorder found, if it lived to say.
    pub expected: Option<(u64, ImageHash)>,
    /// How many bytes were stored beyond the length that the pool had then. They do not count.
    pub outside_bytes: u64,
}

impl PoolReplay {
    /// Whether the replay gave what the recorder found; `None` if it did not say.
    pub fn matches(&self) -> Option<bool> {
        self.expected
            .map(|expected| expected == (self.len_bytes, self.hash))
    }
}

/// After how many records an interruption is looked for.
const LOOK_EVERY: u64 = 1 << 14;

/// Replays a trace; one result per pool, in their order.
pub fn replay(trace: &Trace) -> Result<Vec<PoolReplay>> {
    replay_within(trace, u64::MAX)
}

/// The same, but gives up with [`TraceError::TooLarge`] before pages take more than
/// `memory_limit_bytes`. For untrusted traces: a small file can describe large pools.
pub fn replay_within(trace: &Trace, memory_limit_bytes: u64) -> Result<Vec<PoolReplay>> {
    let replayed = replay_unless(trace, memory_limit_bytes, &mut || false)?;
    Ok(replayed.unwrap_or_default())
}

/// The same, but gives up with `None` when it is interrupted, which it asks again and again.
pub fn replay_unless(
    trace: &Trace,
    memory_limit_bytes: u64,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<PoolReplay>>> {
    let mut memory = Memory::new(memory_limit_bytes);
    let mut images: Vec<SparseImage> = trace
        .pools()
        .iter()
        .map(|pool| SparseImage::new(pool.len_bytes))
        .collect();
    let mut runs = trace.initial_images();
    while let Some(run) = runs.next_run()? {
        if let Some(image) = images.get_mut(run.pool.0 as usize) {
            image.store(run.offset.0, run.bytes, &mut memory)?;
        }
    }
    let mut records = trace.records_from(EventIndex(0));
    let mut count = 0_u64;
    while let Some(record) = records.next_record()? {
        count += 1;
        if count.is_multiple_of(LOOK_EVERY) && is_interrupted() {
            return Ok(None);
        }
        match record.body {
            Body::Pm(Event::Store { at, bytes, .. }) => {
                if let Some(image) = images.get_mut(at.pool.0 as usize) {
                    image.store(at.offset.0, bytes, &mut memory)?;
                }
            }
            Body::Pm(Event::Resize { pool, len_bytes }) => {
                if let Some(image) = images.get_mut(pool.0 as usize) {
                    image.resize(len_bytes, &mut memory);
                }
            }
            _ => {}
        }
    }
    let mut results: Vec<PoolReplay> = (0..)
        .map(PoolIndex)
        .zip(images)
        .map(|(pool, image)| PoolReplay {
            pool,
            len_bytes: image.len_bytes,
            hash: image.hash(),
            expected: None,
            outside_bytes: image.outside_bytes,
        })
        .collect();
    for end in trace.final_images() {
        // If a recorder says it twice, the last word counts.
        if let Some(result) = results.get_mut(end.pool.0 as usize) {
            result.expected = Some((end.len_bytes, end.hash));
        }
    }
    Ok(Some(results))
}

/// What pages may still take.
pub(crate) struct Memory {
    limit: u64,
    used: u64,
}

impl Memory {
    pub(crate) const fn new(limit: u64) -> Self {
        Self { limit, used: 0 }
    }
}

/// The content of a pool or a file: the pages that were ever written.
pub(crate) struct SparseImage {
    pub(crate) len_bytes: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
    outside_bytes: u64,
}

impl SparseImage {
    pub(crate) const fn new(len_bytes: u64) -> Self {
        Self {
            len_bytes,
            pages: BTreeMap::new(),
            outside_bytes: 0,
        }
    }

    pub(crate) fn store(&mut self, offset: u64, bytes: &[u8], memory: &mut Memory) -> Result<()> {
        let room = usize::try_from(self.len_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (mut rest, outside) = bytes.split_at(bytes.len().min(room));
        self.outside_bytes = self.outside_bytes.saturating_add(outside.len() as u64);
        let mut position = offset;
        while !rest.is_empty() {
            let start = page_offset(position);
            let (piece, later) = rest.split_at(rest.len().min(PAGE_BYTES - start));
            let number = position / PAGE_BYTES as u64;
            if let Some(page) = self.pages.get_mut(&number) {
                page[start..start + piece.len()].copy_from_slice(piece);
            } else if !is_zero(piece) {
                if memory.limit - memory.used < PAGE_BYTES as u64 {
                    return Err(TraceError::TooLarge {
                        what: "the bytes of memory for a replay",
                        limit: memory.limit,
                    });
                }
                memory.used += PAGE_BYTES as u64;
                let mut page = Box::new([0; PAGE_BYTES]);
                page[start..start + piece.len()].copy_from_slice(piece);
                self.pages.insert(number, page);
            }
            position = position.saturating_add(piece.len() as u64);
            rest = later;
        }
        Ok(())
    }

    pub(crate) fn resize(&mut self, len_bytes: u64, memory: &mut Memory) {
        if len_bytes < self.len_bytes {
            let kept_pages = len_bytes.div_ceil(PAGE_BYTES as u64);
            let dropped = self.pages.split_off(&kept_pages);
            memory.used -= (dropped.len() * PAGE_BYTES) as u64;
            let tail = page_offset(len_bytes);
            if tail > 0
                && let Some(page) = self.pages.get_mut(&(len_bytes / PAGE_BYTES as u64))
            {
                page[tail..].fill(0);
            }
        }
        self.len_bytes = len_bytes;
    }

    /// Sets a range to zeros. The length stays.
    pub(crate) fn zero(&mut self, from: u64, to: u64) {
        let to = to.min(self.len_bytes);
        if from >= to {
            return;
        }
        let last = (to - 1) / PAGE_BYTES as u64;
        for (number, page) in self.pages.range_mut(from / PAGE_BYTES as u64..=last) {
            let start = number * PAGE_BYTES as u64;
            let first = page_offset(from.max(start));
            let end = to.min(start + PAGE_BYTES as u64) - start;
            if let Some(bytes) = page.get_mut(first..end as usize) {
                bytes.fill(0);
            }
        }
    }

    /// Takes the bytes from an offset on out, in pieces. The length stays; where they were is zero.
    pub(crate) fn take_from(&mut self, from: u64, memory: &mut Memory) -> Vec<(u64, Box<[u8]>)> {
        let mut pieces = Vec::new();
        let page_bytes = PAGE_BYTES as u64;
        let tail = page_offset(from);
        if tail > 0
            && let Some(page) = self.pages.get_mut(&(from / page_bytes))
        {
            pieces.push((from, page[tail..].into()));
            page[tail..].fill(0);
        }
        let moved = self.pages.split_off(&from.div_ceil(page_bytes));
        memory.used -= (moved.len() * PAGE_BYTES) as u64;
        for (number, page) in moved {
            pieces.push((number * page_bytes, page as Box<[u8]>));
        }
        pieces
    }

    pub(crate) fn hash(&self) -> ImageHash {
        let mut hasher = ImageHasher::new(self.len_bytes);
        for (number, page) in &self.pages {
            hasher.update(number * PAGE_BYTES as u64, page.as_slice());
        }
        hasher.finish()
    }
}
