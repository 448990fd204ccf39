//! Pages of pools: which are stepped, and how they are shown, hidden and settled.

use core::sync::atomic::Ordering;

use powerfail_abi::explore::{ADDRESS, PAGES_AT};

use crate::sys;

use super::file;
use super::pools::{PAGE, State};

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

impl State {
    /// The page of the table at an offset.
    pub(super) fn table_page(&self, pool: u32, offset: u64) -> Option<usize> {
        file::open_pages()
            .binary_search_by(|page| (page.pool, page.offset).cmp(&(pool, offset)))
            .ok()
    }

    /// Whether a page of the table is stepped: has open lines, or lines that somebody wants to know to be
    /// read.
    pub(super) fn is_watched(&self, index: usize) -> bool {
        let page = &self.pages[index];
        let entry = &file::open_pages()[index];
        let unread = entry.watched & !entry.read.load(Ordering::Relaxed);
        !page.is_gone && (page.open > 0 || unread != 0)
    }

    /// Whether every access to a page is made alone.
    pub(super) fn is_stepped(&self, pool: u32, offset: u64) -> bool {
        self.crowded.contains(&(pool, offset))
            || self
                .table_page(pool, offset)
                .is_some_and(|index| self.is_watched(index))
    }

    /// Where the content of a stepped page is.
    pub(super) fn truth(&self, pool: u32, offset: u64, index: Option<usize>) -> u64 {
        let index = index.or_else(|| self.table_page(pool, offset));
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
        if self.is_private && was_written {
            copy(address, truth);
        }
        protect(address, PAGE, sys::PROT_NONE);
    }

    /// Makes a page of a mapping what it must be: hidden, or the recovery's own.
    pub(super) fn arrange(&self, mapping: usize, offset: u64) {
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
            (file::descriptor(), truth - ADDRESS)
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
        let entry = &file::open_pages()[index];
        let (pool, offset) = (entry.pool, entry.offset);
        let is_closed_now = was_open && self.pages[index].open == 0;
        if is_closed_now && !self.is_private {
            // The truth is in the file of the pool from now on.
            let before = ADDRESS + PAGES_AT + index as u64 * PAGE;
            copy(before, self.pools[pool as usize].home + offset);
        }
        let is_free = !self.is_stepped(pool, offset);
        if is_free || is_closed_now && !self.is_private {
            for mapping in 0..self.mappings.len() {
                if self.mappings[mapping].pool == pool {
                    self.arrange(mapping, offset);
                }
            }
        }
    }
}
