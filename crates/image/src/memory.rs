//! The content of one pool in memory: the pages that were touched, found in constant time and visited
//! in order. Pages beyond the pool's end do not exist, and the rest of its last page is zero.

use std::collections::BTreeMap;
use std::ops::Range;

use powerfail_trace::PAGE_BYTES;

use crate::page::{PAGE, Page};

const CHUNK_PAGES: usize = 512;
const CHUNK: u64 = CHUNK_PAGES as u64;

/// Neighbouring pages. Pools are used in clusters, so there are few chunks and finding one is fast.
#[derive(Clone, Debug)]
struct Chunk([Option<Box<Page>>; CHUNK_PAGES]);

/// The pages of one pool that were touched.
#[derive(Clone, Debug)]
pub(crate) struct PoolMemory {
    len_bytes: u64,
    chunks: BTreeMap<u64, Box<Chunk>>,
    page_count: u64,
    /// What bytes hold before they are written.
    fill: u8,
    /// Where they hold zeros nevertheless: whole pages, ascending.
    unfilled: Vec<Range<u64>>,
}

impl PoolMemory {
    pub(crate) const fn new(len_bytes: u64) -> Self {
        Self {
            len_bytes,
            chunks: BTreeMap::new(),
            page_count: 0,
            fill: 0,
            unfilled: Vec::new(),
        }
    }

    pub(crate) const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(crate) const fn page_count(&self) -> u64 {
        self.page_count
    }

    /// Bytes that are written nowhere are `fill` from now on, in pages that are touched and do not lie in an area of
    /// `except`.
    pub(crate) fn set_fill(&mut self, fill: u8, except: &[Range<u64>]) {
        self.fill = fill;
        let pages = except
            .iter()
            .map(|it| it.start / PAGE..it.end.div_ceil(PAGE));
        self.unfilled = pages.collect();
    }

    /// What bytes of a page hold before they are written.
    fn fill_of(&self, number: u64) -> u8 {
        if self.unfilled.iter().any(|pages| pages.contains(&number)) {
            0
        } else {
            self.fill
        }
    }

    /// A page that was touched.
    pub(crate) fn page(&self, number: u64) -> Option<&Page> {
        let chunk = self.chunks.get(&(number / CHUNK))?;
        chunk.0[(number % CHUNK) as usize].as_deref()
    }

    /// The touched pages with numbers in `range`, ascending.
    pub(crate) fn pages(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Page)> {
        let chunks = range.start / CHUNK..range.end.div_ceil(CHUNK).max(range.start / CHUNK);
        self.chunks.range(chunks).flat_map(move |(&first, chunk)| {
            let from = range.start.saturating_sub(first * CHUNK).min(CHUNK);
            let to = range.end.saturating_sub(first * CHUNK).min(CHUNK);
            (from..to).filter_map(move |place| {
                let page = chunk.0[place as usize].as_deref()?;
                Some((first * CHUNK + place, page))
            })
        })
    }

    /// Fills `out` with the bytes from `offset` on; beyond the end they are zero.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        let mut position = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let start = (position % PAGE) as usize;
            let (piece, later) = rest.split_at_mut((PAGE_BYTES - start).min(rest.len()));
            let number = position / PAGE;
            match self.page(number) {
                Some(page) => piece.copy_from_slice(&page.0[start..start + piece.len()]),
                None if self.fill == 0 => piece.fill(0),
                None => {
                    let end = self.bytes_in(number).clamp(start, start + piece.len());
                    piece[..end - start].fill(self.fill_of(number));
                    piece[end - start..].fill(0);
                }
            }
            position = position.saturating_add(piece.len() as u64);
            rest = later;
        }
    }

    /// Writes bytes; what lies beyond the end is dropped. Zeros do not touch a page that is zero.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let room = usize::try_from(self.len_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut rest = &bytes[..bytes.len().min(room)];
        let mut position = offset;
        while !rest.is_empty() {
            let start = (position % PAGE) as usize;
            let (piece, later) = rest.split_at((PAGE_BYTES - start).min(rest.len()));
            let number = position / PAGE;
            let skipped = self.fill_of(number) == 0
                && piece.iter().all(|&byte| byte == 0)
                && self.page(number).is_none();
            if !skipped {
                self.touch(number).0[start..start + piece.len()].copy_from_slice(piece);
            }
            position += piece.len() as u64;
            rest = later;
        }
    }

    /// A page to write to, which exists from now on.
    pub(crate) fn touch(&mut self, number: u64) -> &mut Page {
        let (fill, len) = (self.fill_of(number), self.bytes_in(number));
        let chunk = self
            .chunks
            .entry(number / CHUNK)
            .or_insert_with(|| Box::new(Chunk([const { None }; CHUNK_PAGES])));
        chunk.0[(number % CHUNK) as usize].get_or_insert_with(|| {
            self.page_count += 1;
            Page::filled(fill, len)
        })
    }

    /// Cuts or extends the pool.
    pub(crate) fn resize(&mut self, len_bytes: u64) {
        let old = std::mem::replace(&mut self.len_bytes, len_bytes);
        if len_bytes < old {
            let kept_pages = len_bytes.div_ceil(PAGE);
            drop(self.chunks.split_off(&kept_pages.div_ceil(CHUNK)));
            if let Some(chunk) = self.chunks.get_mut(&(kept_pages / CHUNK)) {
                chunk.0[(kept_pages % CHUNK) as usize..].fill(None);
            }
            self.page_count = self
                .chunks
                .values()
                .map(|chunk| chunk.0.iter().flatten().count() as u64)
                .sum();
        }
        // In the page that holds the shorter end, cut bytes are gone and new ones are fresh.
        let end = len_bytes.min(old);
        let (number, from) = (end / PAGE, (end % PAGE) as usize);
        if from > 0 && self.page(number).is_some() {
            let to = self.bytes_in(number);
            let fill = self.fill_of(number);
            let page = self.touch(number);
            page.0[from..to].fill(fill);
            page.0[to..].fill(0);
        }
    }

    /// How many bytes of a page lie within the pool.
    fn bytes_in(&self, number: u64) -> usize {
        let left = self.len_bytes.saturating_sub(number.saturating_mul(PAGE));
        left.min(PAGE) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(memory: &PoolMemory) -> Vec<u8> {
        let mut out = vec![0xee; memory.len_bytes() as usize];
        memory.read(0, &mut out);
        out
    }

    #[test]
    fn only_what_is_not_zero_takes_memory() {
        let mut memory = PoolMemory::new(1 << 43);
        memory.write(1 << 42, &vec![0; 1 << 20]);
        assert_eq!(memory.page_count(), 0);
        memory.write((1 << 42) + 4095, &[1, 2]);
        assert_eq!(memory.page_count(), 2);
        let numbers: Vec<u64> = memory
            .pages(0..u64::MAX)
            .map(|(number, _)| number)
            .collect();
        assert_eq!(numbers, [1 << 30, (1 << 30) + 1]);
        assert_eq!(memory.pages(0..1 << 30).count(), 0);
        assert_eq!(memory.pages((1 << 30) + 1..(1 << 30) + 2).count(), 1);
    }

    #[test]
    fn cutting_and_extending_gives_zeros() {
        let mut memory = PoolMemory::new(5000 * PAGE);
        for page in [0, 3, 511, 512, 1023, 1024, 4999] {
            memory.write(page * PAGE, &[7; PAGE_BYTES]);
        }
        memory.resize(512 * PAGE + 10);
        assert_eq!(memory.page_count(), 4);
        memory.resize(1024 * PAGE);
        let out = content(&memory);
        assert!(
            out[511 * PAGE_BYTES..512 * PAGE_BYTES + 10]
                .iter()
                .all(|&byte| byte == 7)
        );
        assert!(out[512 * PAGE_BYTES + 10..].iter().all(|&byte| byte == 0));
        memory.resize(0);
        assert_eq!(memory.page_count(), 0);
    }

    #[test]
    fn some_areas_are_not_filled() {
        let mut memory = PoolMemory::new(4 * PAGE);
        memory.set_fill(0xaa, &[PAGE + 5..PAGE + 6, 2 * PAGE..2 * PAGE + 1]);
        for page in 0..4 {
            memory.write(page * PAGE, &[1, 0]);
            let expected = if page == 0 || page == 3 { 0xaa } else { 0 };
            assert_eq!(memory.page(page).unwrap().0[..3], [1, 0, expected]);
        }
    }

    #[test]
    fn fresh_bytes_of_touched_pages_hold_the_fill() {
        let mut memory = PoolMemory::new(PAGE + 100);
        memory.set_fill(0xaa, &[]);
        let mut line = [0; 64];
        memory.read(PAGE + 64, &mut line);
        assert_eq!(line[..36], [0xaa; 36]);
        assert_eq!(line[36..], [0; 28], "beyond the end");
        memory.write(PAGE + 1, &[0]);
        let page = memory.page(1).unwrap();
        assert_eq!(page.0[..3], [0xaa, 0, 0xaa]);
        assert_eq!(page.0[99..101], [0xaa, 0]);
        memory.resize(2 * PAGE);
        assert_eq!(memory.page(1).unwrap().0[99..], [0xaa; PAGE_BYTES - 99]);
        memory.resize(PAGE + 2);
        assert_eq!(memory.page(1).unwrap().0[..4], [0xaa, 0, 0, 0]);
    }
}
