//! Open lines: the table's, with what this execution knows of them.
//!
//! # Safety
//!
//! Callers have the turn. Contents lie in the shared file, and the truth of each page is mapped as long as the pool
//! is open.
#![allow(unsafe_code, reason = "reads and writes lines of pools")]

use core::sync::atomic::Ordering;

use powerfail_protocol::explore::{ADDRESS, CONTENTS_AT, OVERWRITTEN_BYTES};
use powerfail_protocol::observe::{ByteSet, Knowledge, Line, words_for};

use super::shared_file;
use super::state::{PAGE, State};

impl State {
    /// A line of the table. Not two of the same at a time.
    pub(super) fn line(&self, index: u32) -> Line<'static> {
        let line = &shared_file::lines()[index as usize];
        let count = line.content_count as usize;
        // SAFETY: the host has written the contents and left room for the knowledge, which only
        // the thread that has the turn reaches.
        unsafe {
            let contents = (ADDRESS + CONTENTS_AT + line.contents_at) as *const u8;
            let contents = core::slice::from_raw_parts(contents, count * self.line_bytes);
            let words = (self.knowledge + line.knowledge_at) as *mut u64;
            let possible = core::slice::from_raw_parts_mut(words, words_for(count));
            let overwritten = words.byte_sub(OVERWRITTEN_BYTES as usize).cast::<ByteSet>();
            let knowledge = Knowledge {
                possible,
                overwritten: &mut *overwritten,
            };
            Line::new(contents, self.line_bytes, knowledge)
        }
    }

    /// The memory of a line, where the truth of its page is.
    pub(super) fn memory_of(&self, page: usize, index: u32) -> &'static mut [u8] {
        let line = &shared_file::lines()[index as usize];
        let truth = self.truth(line.pool, line.offset / PAGE * PAGE, Some(page));
        let place = (truth + line.offset % PAGE) as *mut u8;
        // SAFETY: the truth of a page is mapped, and ours.
        unsafe { core::slice::from_raw_parts_mut(place, self.line_bytes) }
    }

    /// Puts the newest content of each line into a page that was not seen before.
    pub(super) fn fill_page(&mut self, index: usize) {
        let page = self.pages[index];
        if page.lines.0 == page.lines.1 {
            return;
        }
        let entry = &shared_file::open_pages()[index];
        if !self.is_private {
            let home = self.pools[entry.pool as usize].home + entry.offset;
            // Which makes it the truth.
            self.pages[index].open = 1;
            let truth = self.truth(entry.pool, entry.offset, Some(index));
            super::pages::copy(home, truth);
        }
        for number in page.lines.0..page.lines.1 {
            let mut line = self.line(number);
            line.forget();
            if let Some(newest) = line.newest_possible() {
                let memory = self.memory_of(index, number);
                if memory != line.content(newest) {
                    line.fill(newest, memory);
                }
            }
        }
    }

    /// Counts the open lines of a page.
    pub(super) fn count_open(&mut self, index: usize) {
        let (from, to) = self.pages[index].lines;
        let is_open = |number: &u32| !self.line(*number).is_closed();
        let open = (from..to).filter(is_open).count() as u32;
        self.pages[index].open = open;
    }

    /// The lines of a page of the table in a range of bytes of the page.
    pub(super) fn lines_in(
        &self,
        page: usize,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = u32> + use<> {
        let (first, behind) = self.pages[page].lines;
        let len = self.line_bytes as u64;
        (first..behind).filter(move |number| {
            let at = shared_file::lines()[*number as usize].offset % PAGE;
            at < to && from < at + len
        })
    }
}

/// The recovery has read a range of bytes of a page of the table.
pub(super) fn note_read(page: usize, from: u64, to: u64) {
    const UNIT: u64 = 64;
    let (first, last) = (from / UNIT, (to - 1) / UNIT);
    let bits = u64::MAX >> (63 - (last - first)) << first;
    let read = &shared_file::open_pages()[page].read;
    // Most are known, and the file is shared.
    if read.load(Ordering::Relaxed) & bits != bits {
        read.fetch_or(bits, Ordering::Relaxed);
    }
}
