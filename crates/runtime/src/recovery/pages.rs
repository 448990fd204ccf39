//! Pages of pools: which are stepped, and how they are shown, hidden and settled.
//!
//! # Safety
//!
//! Callers have the turn. Addresses are those of mappings of pools and of their homes, which the state of the
//! execution lists, and which stay mapped as long as they are listed.
#![allow(unsafe_code, reason = "maps, copies and protects pages of pools")]

use core::sync::atomic::Ordering;

use powerfail_protocol::explore::{ADDRESS, PAGES_AT};

use crate::platform::sys;

use super::access_table::{self, Moved, Moves};
use super::shared_file;
use super::state::{PAGE, State};

/// Copies a page.
pub(super) fn copy(from: u64, to: u64) {
    // SAFETY: both are mapped, and not the same.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, PAGE as usize) };
}

/// Changes the rights of memory of the target.
pub(super) fn protect(address: u64, len: u64, protection: usize) -> isize {
    let arguments = [address as usize, len as usize, protection, 0, 0, 0];
    // SAFETY: rights of a mapping of a pool, which is ours to watch.
    unsafe { sys::call(sys::number::MPROTECT, arguments) }
}

/// The page of the table at an offset.
pub(super) fn table_page(pool: u32, offset: u64) -> Option<usize> {
    shared_file::open_pages()
        .binary_search_by(|page| (page.pool, page.offset).cmp(&(pool, offset)))
        .ok()
}

impl State {
    /// Whether a page of the table is stepped.
    pub(super) fn is_watched(&self, index: usize) -> bool {
        self.pages[index].is_hidden
    }

    /// Whether a page of the table must be stepped: has open lines, or lines or bytes that are to
    /// know to be read.
    pub(super) fn must_step(&self, index: usize) -> bool {
        let page = &self.pages[index];
        let entry = &shared_file::open_pages()[index];
        let unread = entry.watched & !entry.read.load(Ordering::Relaxed);
        !page.is_gone && (page.open > 0 || unread != 0 || self.noted_units(index) != 0)
    }

    /// Whether every access to a page is made alone.
    pub(super) fn is_stepped(&self, pool: u32, offset: u64) -> bool {
        self.crowded.contains(&(pool, offset))
            || table_page(pool, offset).is_some_and(|index| self.is_watched(index))
    }

    /// Where the content of a stepped page is.
    pub(super) fn truth(&self, pool: u32, offset: u64, index: Option<usize>) -> u64 {
        let index = index.or_else(|| table_page(pool, offset));
        match index {
            Some(index) if !self.is_private && self.pages[index].open > 0 => {
                ADDRESS + PAGES_AT + index as u64 * PAGE
            }
            _ => self.pools[pool as usize].home + offset,
        }
    }

    /// The rights that a mapping has where it is not stepped.
    pub(super) fn rights(&self, mapping: usize) -> usize {
        let mapping = &self.mappings[mapping];
        if self.is_logged && !mapping.is_private {
            mapping.protection & !sys::PROT_WRITE
        } else {
            mapping.protection
        }
    }

    /// Lets a stepped page be seen for one instruction.
    pub(super) fn show(&self, mapping: usize, address: u64, truth: u64) {
        if self.is_private || self.mappings[mapping].is_private {
            protect(address, PAGE, sys::PROT_READ | sys::PROT_WRITE);
            copy(truth, address);
        } else {
            protect(address, PAGE, self.mappings[mapping].protection);
        }
    }

    /// Hides a page that was shown; what was written to it is kept.
    pub(super) fn hide(&self, address: u64, truth: u64, was_written: bool) {
        if self.is_private && self.has_company {
            // Others may have written, too.
            protect(address, PAGE, sys::PROT_READ);
            copy(address, truth);
        } else if self.is_private && was_written {
            copy(address, truth);
        }
        protect(address, PAGE, sys::PROT_NONE);
    }

    /// Makes a page of a mapping what it must be: hidden, or the recovery's own.
    pub(super) fn arrange(&self, mapping: usize, offset: u64) {
        self.arrange_rights(mapping, offset);
        self.publish(mapping, offset);
    }

    /// Whether a page of a new mapping has only to be hidden: nothing else must lie there.
    pub(super) fn only_hides(&self, mapping: usize, offset: u64) -> bool {
        let place = &self.mappings[mapping];
        let home = self.pools[place.pool as usize].home + offset;
        self.is_stepped(place.pool, offset)
            && (self.is_private || place.is_private || self.truth(place.pool, offset, None) == home)
    }

    fn arrange_rights(&self, mapping: usize, offset: u64) {
        let place = &self.mappings[mapping];
        let Some(address) = place.address_of(offset) else {
            return;
        };
        if place.own.contains(&offset) {
            return;
        }
        let pool = place.pool;
        let is_stepped = self.is_stepped(pool, offset);
        let truth = self.truth(pool, offset, None);
        if self.is_private || place.is_private {
            if is_stepped {
                protect(address, PAGE, sys::PROT_NONE);
            } else {
                self.show(mapping, address, truth);
                protect(address, PAGE, self.rights(mapping));
            }
            return;
        }
        let protection = if is_stepped {
            sys::PROT_NONE
        } else {
            self.rights(mapping)
        };
        let home = self.pools[pool as usize].home + offset;
        let (fd, at) = if truth == home {
            (self.pools[pool as usize].fd, offset)
        } else {
            (shared_file::descriptor(), truth - ADDRESS)
        };
        let flags = sys::MAP_SHARED | sys::MAP_FIXED;
        // SAFETY: a page of a mapping of a pool is replaced by what is its content.
        let done = unsafe { sys::mmap(address, PAGE, protection, flags, fd, at) };
        if done < 0 {
            super::refuse("a page of a pool cannot be mapped again");
        }
    }

    /// Lines of a page were closed or read: if it need not be stepped any more, it is the recovery's own.
    pub(super) fn maybe_settle(&mut self, index: usize, was_open: bool) {
        let entry = &shared_file::open_pages()[index];
        let (pool, offset) = (entry.pool, entry.offset);
        let is_closed_now = was_open && self.pages[index].open == 0;
        if is_closed_now && !self.is_private {
            // The truth is in the file of the pool from now on.
            let before = ADDRESS + PAGES_AT + index as u64 * PAGE;
            copy(before, self.pools[pool as usize].home + offset);
        }
        let was_stepped = self.is_stepped(pool, offset);
        if was_stepped {
            self.keep_crowded(pool, offset);
        }
        self.pages[index].is_hidden = self.must_step(index);
        let is_free = was_stepped && !self.is_stepped(pool, offset);
        let is_moved = is_closed_now && !self.is_private;
        for mapping in 0..self.mappings.len() {
            if self.mappings[mapping].pool != pool {
                continue;
            }
            if is_free || is_moved {
                self.arrange(mapping, offset);
            } else {
                self.publish(mapping, offset);
            }
        }
    }

    /// Lines of a page that are open, in units of 64 bytes: a bit each.
    fn open_units(&self, index: usize) -> u64 {
        const UNIT: u64 = 64;
        let (from, to) = self.pages[index].lines;
        let units = self.line_bytes as u64 / UNIT;
        let is_open = |number: &u32| !self.line(*number).is_closed();
        (from..to)
            .filter(is_open)
            .map(|number| shared_file::lines()[number as usize].offset % PAGE / UNIT)
            .fold(0, |bits, first| bits | (u64::MAX >> (64 - units)) << first)
    }

    /// Says to emitted code which lines of a page of a mapping it can access, and where.
    pub(super) fn publish(&self, mapping: usize, offset: u64) {
        let place = &self.mappings[mapping];
        let Some(page) = place.address_of(offset) else {
            return;
        };
        let is_hidden = !place.own.contains(&offset) && self.is_stepped(place.pool, offset);
        if !is_hidden || place.protection == sys::PROT_NONE {
            access_table::clear_page(page);
            return;
        }
        // What is logged must be seen. Who runs an instruction alone, on a copy of a page, would undo what
        // other threads store to the truth meanwhile.
        let may_store = place.protection & sys::PROT_WRITE != 0
            && !(place.is_private || self.is_logged || self.has_company);
        let index = table_page(place.pool, offset);
        let entry = index.map(|index| &shared_file::open_pages()[index]);
        access_table::set_page(&Moved {
            page,
            content: self.truth(place.pool, offset, index),
            moves: if may_store { Moves::All } else { Moves::Loads },
            kept: index.map_or(0, |index| self.open_units(index) | self.noted_units(index)),
            unread: entry.map_or(0, |it| it.watched & !it.read.load(Ordering::Relaxed)),
            mark: entry.map_or(0, |it| it.read.as_ptr() as u64),
        });
    }

    /// Calls `work` with every page of a mapping that may be stepped, by its offset in the pool.
    fn for_each_stepped(&self, mapping: usize, mut work: impl FnMut(u64)) {
        let place = &self.mappings[mapping];
        let (pool, from, to) = (place.pool, place.offset, place.offset + place.len);
        let pages = shared_file::open_pages();
        let first = pages.partition_point(|page| (page.pool, page.offset) < (pool, from));
        let behind = pages.partition_point(|page| (page.pool, page.offset) < (pool, to));
        for page in &pages[first..behind.max(first)] {
            work(page.offset);
        }
        for (_, offset) in self.crowded.range((pool, from)..(pool, to)) {
            work(*offset);
        }
    }

    /// As `publish`, for all pages of a mapping.
    pub(super) fn publish_all(&self, mapping: usize) {
        self.for_each_stepped(mapping, |offset| self.publish(mapping, offset));
    }

    /// A mapping is about to go: emitted code has no business there any more.
    pub(super) fn withdraw(&self, mapping: usize) {
        self.for_each_stepped(mapping, |offset| {
            if let Some(page) = self.mappings[mapping].address_of(offset) {
                access_table::clear_page(page);
            }
        });
    }

    /// A second thread is about to be made.
    pub(super) fn expect_company(&mut self) {
        self.has_company = true;
        for mapping in 0..self.mappings.len() {
            self.publish_all(mapping);
        }
    }
}
