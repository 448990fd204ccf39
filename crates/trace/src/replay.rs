//! Replays the stores of a trace over the initial images and compares with the final hashes.
//!
//! If that gives the final image byte for byte, the recorder missed nothing. Takes memory for the
//! pages that are not zero, not for the length of pools or of the trace, and never more than
//! `PASS_BYTES`: where pages take more, only the first of them are kept, and further passes over the
//! trace do the others. Knows nothing of flushes: this is what memory held, not what was durable. Reading
//! has checked that every pool that is named exists.

use std::collections::BTreeMap;
use std::ops::Range;

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
/// What the pages of one pass take at most.
const PASS_BYTES: u64 = 512 << 20;

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
    in_passes(trace, memory_limit_bytes, PASS_BYTES, is_interrupted)
}

/// Replays a trace in passes, none of which keeps more than `pass_bytes` in pages.
fn in_passes(
    trace: &Trace,
    memory_limit_bytes: u64,
    pass_bytes: u64,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<PoolReplay>>> {
    let mut memory = Memory::new(memory_limit_bytes);
    let mut hashers: Vec<ImageHasher> = Vec::new();
    let mut next = Some((0, 0));
    let mut lengths: Vec<Lengths> = Vec::new();
    while let Some(first) = next {
        let mut pass = Pass::new(trace, first, pass_bytes, &memory);
        if !pass.run(trace, &mut memory, is_interrupted)? {
            return Ok(None);
        }
        if hashers.is_empty() {
            // Every pass finds the same lengths.
            let hasher = |image: &SparseImage| ImageHasher::new(image.len_bytes);
            hashers = pass.images.iter().map(hasher).collect();
        }
        for (hasher, image) in hashers.iter_mut().zip(&pass.images) {
            image.add_to(hasher);
        }
        next = pass.end;
        lengths = pass.images.iter().map(SparseImage::lengths).collect();
    }
    let mut results: Vec<PoolReplay> = (0..)
        .map(PoolIndex)
        .zip(lengths.iter().zip(hashers))
        .map(|(pool, (lengths, hasher))| PoolReplay {
            pool,
            len_bytes: lengths.len_bytes,
            hash: hasher.finish(),
            expected: None,
            outside_bytes: lengths.outside_bytes,
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

/// The place of a page among all pages: its pool, and its number there.
type PagePlace = (usize, u64);

/// One pass over a trace, which keeps the pages from one place up to another.
struct Pass {
    images: Vec<SparseImage>,
    /// Where the next pass begins; `None` if this one keeps all pages that are left.
    end: Option<PagePlace>,
    max_bytes: u64,
    /// What the pages of the passes before have taken.
    before_bytes: u64,
}

impl Pass {
    fn new(trace: &Trace, first: PagePlace, max_bytes: u64, memory: &Memory) -> Self {
        let pools = trace.pools().iter().enumerate();
        let images = pools.map(|(pool, defined)| {
            let kept = match pool.cmp(&first.0) {
                std::cmp::Ordering::Less => 0..0,
                std::cmp::Ordering::Equal => first.1..u64::MAX,
                std::cmp::Ordering::Greater => 0..u64::MAX,
            };
            SparseImage {
                kept,
                ..SparseImage::new(defined.len_bytes)
            }
        });
        Self {
            images: images.collect(),
            end: None,
            max_bytes,
            before_bytes: memory.used,
        }
    }

    /// Applies everything in the trace; `false` if it was interrupted.
    fn run(
        &mut self,
        trace: &Trace,
        memory: &mut Memory,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let mut runs = trace.initial_images();
        while let Some(run) = runs.next_run()? {
            self.store(run.pool, run.offset.0, run.bytes, memory)?;
        }
        let mut records = trace.records_from(EventIndex(0));
        let mut count = 0_u64;
        while let Some(record) = records.next_record()? {
            count += 1;
            if count.is_multiple_of(LOOK_EVERY) && is_interrupted() {
                return Ok(false);
            }
            match record.body {
                Body::Pm(Event::Store { at, bytes, .. }) => {
                    self.store(at.pool, at.offset.0, bytes, memory)?;
                }
                Body::Pm(Event::Resize { pool, len_bytes }) => {
                    if let Some(image) = self.images.get_mut(pool.0 as usize) {
                        image.resize(len_bytes, memory);
                    }
                }
                _ => {}
            }
        }
        Ok(true)
    }

    fn store(
        &mut self,
        pool: PoolIndex,
        offset: u64,
        bytes: &[u8],
        memory: &mut Memory,
    ) -> Result<()> {
        if let Some(image) = self.images.get_mut(pool.0 as usize) {
            image.store(offset, bytes, memory)?;
        }
        if memory.used - self.before_bytes > self.max_bytes {
            self.shed(memory);
        }
        Ok(())
    }

    /// Leaves the last eighth of the pages to the next pass.
    fn shed(&mut self, memory: &mut Memory) {
        let count: usize = self.images.iter().map(|image| image.pages.len()).sum();
        let mut left = (count - count.div_ceil(8)).max(1);
        let mut end = None;
        for (pool, image) in self.images.iter_mut().enumerate() {
            if end.is_some() {
                image.keep_until(0, memory);
            } else if let Some(number) = image.pages.keys().nth(left).copied() {
                image.keep_until(number, memory);
                end = Some((pool, number));
            } else {
                left -= image.pages.len();
            }
        }
        // A single page stays, however little memory there is.
        self.end = end.or(self.end);
    }
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

/// What is left of an image when its pages are gone.
struct Lengths {
    len_bytes: u64,
    outside_bytes: u64,
}

/// The content of a pool or a file: the pages that were ever written.
pub(crate) struct SparseImage {
    pub(crate) len_bytes: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
    /// The numbers of pages that are kept. Stores to others do nothing.
    kept: Range<u64>,
    outside_bytes: u64,
}

impl SparseImage {
    pub(crate) const fn new(len_bytes: u64) -> Self {
        Self {
            len_bytes,
            pages: BTreeMap::new(),
            kept: 0..u64::MAX,
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
            if !self.kept.contains(&number) {
                // Another pass does it.
            } else if let Some(page) = self.pages.get_mut(&number) {
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

    /// Forgets the pages from a number on, and keeps none there any more.
    fn keep_until(&mut self, end: u64, memory: &mut Memory) {
        let dropped = self.pages.split_off(&end);
        memory.used -= (dropped.len() * PAGE_BYTES) as u64;
        self.kept.end = end.max(self.kept.start);
    }

    const fn lengths(&self) -> Lengths {
        Lengths {
            len_bytes: self.len_bytes,
            outside_bytes: self.outside_bytes,
        }
    }

    /// Adds the pages that are kept to a hash.
    fn add_to(&self, hasher: &mut ImageHasher) {
        for (number, page) in &self.pages {
            hasher.update(number * PAGE_BYTES as u64, page.as_slice());
        }
    }

    pub(crate) fn hash(&self) -> ImageHash {
        let mut hasher = ImageHasher::new(self.len_bytes);
        self.add_to(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use powerfail_model::{Place, PoolOffset, StoreKind};

    use super::*;
    use crate::{Meta, Pool, PoolKind, StackId, Thread, TraceWriter, WriterOptions};

    const POOLS: u64 = 3;
    const PAGES: u64 = 12;

    /// A trace whose stores are all over three pools, with pools that shrink and grow.
    fn scattered() -> Trace {
        let mut bytes = Vec::new();
        let mut writer = TraceWriter::new(&mut bytes, &Meta::default(), WriterOptions::default())
            .expect("memory does not fail");
        let pools: Vec<PoolIndex> = (0..POOLS)
            .map(|number| {
                let defined = writer.define_pool(&Pool {
                    path: format!("/pool{number}").into(),
                    kind: PoolKind::File,
                    len_bytes: PAGES * PAGE_BYTES as u64,
                    address: 0x7f00_0000_0000 + (number << 32),
                });
                defined.expect("good")
            })
            .collect();
        let thread = writer.define_thread(&Thread {
            os_id: 1,
            name: None,
        });
        let thread = thread.expect("good");
        for number in 0..400_u64 {
            let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let pool = pools[(random % POOLS) as usize];
            let content = [number as u8 | 1; 300];
            let event = if number % 50 == 49 {
                Event::Resize {
                    pool,
                    len_bytes: (random / 7 % PAGES) * PAGE_BYTES as u64 + random % 5000,
                }
            } else {
                Event::Store {
                    kind: StoreKind::Plain,
                    at: Place::new(
                        pool,
                        PoolOffset(random / 7 % (PAGES * PAGE_BYTES as u64 - 300)),
                    ),
                    bytes: &content,
                }
            };
            let appended = writer.append(thread, StackId::NONE, Body::Pm(event));
            appended.expect("good");
        }
        writer.finish(&[]).expect("memory does not fail");
        Trace::from_bytes(bytes).expect("the trace is good")
    }

    #[test]
    fn passes_give_what_one_pass_gives() {
        let trace = scattered();
        let never = &mut || false;
        let whole = in_passes(&trace, u64::MAX, u64::MAX, never).expect("good");
        for pages in 0..=POOLS * PAGES {
            let passes = in_passes(&trace, u64::MAX, pages * PAGE_BYTES as u64, never);
            assert_eq!(passes.expect("good"), whole, "{pages} pages in a pass");
        }
    }

    #[test]
    fn a_pass_keeps_no_more_than_it_may() {
        let trace = scattered();
        let mut memory = Memory::new(u64::MAX);
        let mut next = Some((0, 0));
        let mut passes = 0;
        while let Some(first) = next {
            let mut pass = Pass::new(&trace, first, 8 * PAGE_BYTES as u64, &memory);
            assert!(pass.run(&trace, &mut memory, &mut || false).expect("good"));
            let kept: usize = pass.images.iter().map(|image| image.pages.len()).sum();
            assert!(kept <= 8, "{kept} pages");
            assert!(pass.end.is_none_or(|end| end > first), "it ends at last");
            next = pass.end;
            passes += 1;
        }
        assert!(passes > 2, "{passes} passes");
    }
}
