//! What is known of each line for the whole run, in eight bytes; and the lines that are open.
//!
//! Lines here are cache lines in every domain: where sectors are the unit, a sync covers several of
//! them. A line is *open* while some store to it is not surely durable.

use powerfail_model::PoolIndex;
use powerfail_trace::Pool;
use rustc_hash::FxHashMap;

/// The bytes of a line.
pub(crate) const LINE_BYTES: u64 = 64;
const LINES_PER_PAGE: usize = 64;
const NOT_OPEN: u32 = u32::MAX;
/// Pools up to this many pages (64 GiB) in all have directories, whose memory is touched only where
/// pages are; in others, and beyond the first end of a pool, pages are found by hashing.
const MAX_DIRECTORY_PAGES: u64 = 1 << 24;

/// Bits of [`Line::flags`].
pub(crate) mod flag {
    /// A flush covered the line at some time.
    pub(crate) const EVER_FLUSHED: u8 = 1;
    /// It was durable with content, so something may refer to it.
    pub(crate) const REACHABLE: u8 = 2;
    /// Stored to, other than non-temporally, since a flush instruction covered it. (What only a client
    /// request has flushed still is: an instruction that comes then is not in vain.)
    pub(crate) const WRITTEN_SINCE_FLUSH: u8 = 4;
    /// A flush covered the line at some time that was no library's own.
    pub(crate) const USER_FLUSHED: u8 = 8;
}

/// What is known of a line for the whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    open: u32,
    pub(crate) flags: u8,
    /// The words that locked operations wrote.
    pub(crate) locked_words: u8,
    /// Threads, by [`writer`], that have stored to it as [`flag::WRITTEN_SINCE_FLUSH`] says, and not flushed it
    /// themselves since.
    pub(crate) writers: u16,
}

/// The bit of a thread in [`Line::writers`]. Several share one where there are many.
pub(crate) const fn writer(thread: u32) -> u16 {
    1 << (thread % u16::BITS)
}

impl Line {
    const NEW: Self = Self {
        open: NOT_OPEN,
        flags: 0,
        locked_words: 0,
        writers: 0,
    };

    pub(crate) fn has(self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Its place among the open lines.
    pub(crate) fn open(self) -> Option<OpenSlot> {
        (self.open != NOT_OPEN).then_some(OpenSlot(self.open))
    }
}

/// Where a line is kept, for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LineSlot(usize);

/// Where an open line is kept, until it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenSlot(u32);

/// An open line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) line: LineSlot,
    /// The newest of its stores; see `stores.rs`.
    pub(crate) stores: u32,
    /// Threads, by bit, that flushed all of it and have not fenced since.
    pub(crate) flushers: u64,
    /// Some store is not flushed.
    pub(crate) dirty: bool,
    position: u32,
}

/// All lines that were ever touched.
#[derive(Debug)]
pub(crate) struct Lines {
    /// For each pool, one more than the number of each page; zero if it was never touched.
    directories: Vec<Vec<u32>>,
    pages: FxHashMap<(u32, u64), u32>,
    keys: Vec<(u32, u64)>,
    table: Vec<Line>,
    open: Vec<Open>,
    free: Vec<u32>,
    /// The open slots in use, in no order.
    in_use: Vec<u32>,
}

impl Lines {
    pub(crate) fn new(pools: &[Pool]) -> Self {
        let mut room = MAX_DIRECTORY_PAGES;
        let directory = |pool: &Pool| {
            let pages = pool.len_bytes.div_ceil(LINE_BYTES * LINES_PER_PAGE as u64);
            let pages = if pages <= room { pages } else { 0 };
            room -= pages;
            vec![0; pages as usize]
        };
        Self {
            directories: pools.iter().map(directory).collect(),
            pages: FxHashMap::default(),
            keys: Vec::new(),
            table: Vec::new(),
            open: Vec::new(),
            free: Vec::new(),
            in_use: Vec::new(),
        }
    }

    /// The line with this number, if its page was ever touched.
    #[inline]
    pub(crate) fn find(&self, pool: PoolIndex, number: u64) -> Option<LineSlot> {
        let (key, within) = Self::key(pool, number);
        let directory = self.directories.get(key.0 as usize);
        let page = match directory.and_then(|directory| directory.get(key.1 as usize)) {
            Some(page) => page.checked_sub(1)?,
            None => *self.pages.get(&key)?,
        };
        Some(LineSlot(page as usize * LINES_PER_PAGE + within))
    }

    /// The line with this number.
    #[inline]
    pub(crate) fn touch(&mut self, pool: PoolIndex, number: u64) -> LineSlot {
        self.find(pool, number)
            .unwrap_or_else(|| self.add_page(pool, number))
    }

    #[cold]
    fn add_page(&mut self, pool: PoolIndex, number: u64) -> LineSlot {
        let (key, within) = Self::key(pool, number);
        let page = u32::try_from(self.keys.len()).expect("fewer than 2^32 pages are touched");
        self.keys.push(key);
        self.table
            .resize(self.keys.len() * LINES_PER_PAGE, Line::NEW);
        let directory = self.directories.get_mut(key.0 as usize);
        match directory.and_then(|directory| directory.get_mut(key.1 as usize)) {
            Some(entry) => *entry = page + 1,
            None => {
                self.pages.insert(key, page);
            }
        }
        LineSlot(page as usize * LINES_PER_PAGE + within)
    }

    fn key(pool: PoolIndex, number: u64) -> ((u32, u64), usize) {
        let within = (number % LINES_PER_PAGE as u64) as usize;
        ((pool.0, number / LINES_PER_PAGE as u64), within)
    }

    /// The pool and the number of a line.
    pub(crate) fn id(&self, slot: LineSlot) -> (PoolIndex, u64) {
        let (pool, page) = self.keys[slot.0 / LINES_PER_PAGE];
        let number = page * LINES_PER_PAGE as u64 + (slot.0 % LINES_PER_PAGE) as u64;
        (PoolIndex(pool), number)
    }

    pub(crate) fn line(&self, slot: LineSlot) -> &Line {
        &self.table[slot.0]
    }

    pub(crate) fn line_mut(&mut self, slot: LineSlot) -> &mut Line {
        &mut self.table[slot.0]
    }

    pub(crate) fn opened(&self, slot: OpenSlot) -> &Open {
        &self.open[slot.0 as usize]
    }

    pub(crate) fn opened_mut(&mut self, slot: OpenSlot) -> &mut Open {
        &mut self.open[slot.0 as usize]
    }

    /// The open slot of a line, which is opened if it was not.
    pub(crate) fn open(&mut self, slot: LineSlot) -> OpenSlot {
        if let Some(open) = self.line(slot).open() {
            return open;
        }
        let fresh = Open {
            line: slot,
            stores: crate::stores::END,
            flushers: 0,
            dirty: false,
            position: self.in_use.len() as u32,
        };
        let open = match self.free.pop() {
            Some(open) => {
                self.open[open as usize] = fresh;
                open
            }
            None => {
                self.open.push(fresh);
                self.open.len() as u32 - 1
            }
        };
        self.in_use.push(open);
        self.table[slot.0].open = open;
        OpenSlot(open)
    }

    /// Forgets that a line was open: all of its stores are durable or gone.
    pub(crate) fn close(&mut self, slot: OpenSlot) {
        let Open { line, position, .. } = *self.opened(slot);
        self.table[line.0].open = NOT_OPEN;
        self.in_use.swap_remove(position as usize);
        if let Some(&moved) = self.in_use.get(position as usize) {
            self.open[moved as usize].position = position;
        }
        self.free.push(slot.0);
    }

    /// How many lines are open.
    pub(crate) fn open_count(&self) -> usize {
        self.in_use.len()
    }

    /// The open lines, in no order.
    pub(crate) fn open_slots(&self) -> impl Iterator<Item = OpenSlot> {
        self.in_use.iter().map(|&slot| OpenSlot(slot))
    }
}

#[cfg(test)]
mod tests {
    use powerfail_trace::PoolKind;

    use super::*;

    #[test]
    fn lines_close_and_open_again() {
        // The first pool has a directory, but not for all lines; the second is too large for one.
        let pools = [10 << 12, 1 << 50].map(|len_bytes| Pool {
            path: "/pool".into(),
            kind: PoolKind::File,
            len_bytes,
            address: 0,
        });
        let mut lines = Lines::new(&pools);
        let ids: Vec<(PoolIndex, u64)> = (0..200)
            .map(|n: u32| (PoolIndex(n % 3), u64::from(n) * 7))
            .collect();
        for (pool, number) in &ids {
            assert!(
                lines
                    .find(*pool, *number)
                    .is_none_or(|slot| lines.line(slot).open().is_none())
            );
            let slot = lines.touch(*pool, *number);
            lines.open(slot);
        }
        let slots: Vec<LineSlot> = ids
            .iter()
            .map(|(pool, number)| lines.find(*pool, *number).expect("it was touched"))
            .collect();
        assert_eq!(lines.open_count(), 200);
        for slot in slots.iter().step_by(2) {
            let open = lines.line(*slot).open().expect("it is open");
            lines.close(open);
        }
        let still: Vec<LineSlot> = lines
            .open_slots()
            .map(|open| lines.opened(open).line)
            .collect();
        assert_eq!(still.len(), 100);
        for (n, (slot, id)) in slots.iter().zip(&ids).enumerate() {
            assert_eq!(still.contains(slot), n % 2 == 1);
            assert_eq!(lines.line(*slot).open().is_some(), n % 2 == 1);
            assert_eq!(lines.id(*slot), *id);
        }
        assert_eq!(lines.find(PoolIndex(9), 0), None);
    }
}
