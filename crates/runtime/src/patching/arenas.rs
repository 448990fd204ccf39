//! Memory for trampolines, near the code that jumps there or exactly where a pun leads.
//!
//! # Safety
//!
//! Memory is mapped only where nothing is. `write` is called with a range that `place` has given and `take` has
//! reserved, before anything jumps there.
#![allow(unsafe_code, reason = "maps memory for code and writes to it")]

use powerfail_patch::tactic::Targets;

use crate::fuzz;
use crate::platform::sys;

const PAGE: u64 = 4096;
/// What is mapped at a time where nothing forces a place.
const REGION_LEN: u64 = 256 * 1024;
/// How far below the code the first region is tried, out of the way of the heap above it.
const DISTANCE: u64 = 64 << 20;
/// How many places are tried before a jump is given up.
const TRIES_MAX: usize = 512;

/// All memory for trampolines. Ranges are sorted and do not overlap.
#[derive(Default)]
pub(crate) struct Arenas {
    mapped: Vec<(u64, u64)>,
    used: Vec<(u64, u64)>,
    next: Option<u64>,
}

/// The first range of a sorted list that ends behind an address.
fn first_behind(ranges: &[(u64, u64)], address: u64) -> Option<(u64, u64)> {
    ranges
        .get(ranges.partition_point(|range| range.1 <= address))
        .copied()
}

fn insert(ranges: &mut Vec<(u64, u64)>, range: (u64, u64)) {
    let at = ranges.partition_point(|other| other.0 < range.0);
    if at > 0 && ranges[at - 1].1 == range.0 {
        ranges[at - 1].1 = range.1;
    } else {
        ranges.insert(at, range);
    }
}

/// Maps memory for code where nothing is; whether nothing was.
fn map_free(start: u64, len: u64) -> bool {
    let all = sys::PROT_READ | sys::PROT_WRITE | sys::PROT_EXEC;
    let flags =
        sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE | sys::MAP_NORESERVE;
    // SAFETY: MAP_FIXED_NOREPLACE fails where something is mapped, so no memory that is in use changes.
    unsafe { sys::mmap(start, len, all, flags, -1, 0) == start as isize }
}

impl Arenas {
    /// An address among `targets` where `len` bytes can lie, apart from `taken`. Maps memory for it.
    pub(crate) fn place(
        &mut self,
        targets: Targets,
        len: u64,
        taken: Option<(u64, u64)>,
    ) -> Option<u64> {
        let is_wide = targets.last - targets.first > 2 * DISTANCE;
        let middle = targets.first + (targets.last - targets.first) / 2;
        let near = self.next.filter(|next| {
            targets.first <= *next && next.saturating_add(REGION_LEN) <= targets.last
        });
        let start = match near {
            Some(next) if is_wide => next,
            _ if is_wide => middle.saturating_sub(DISTANCE).max(targets.first),
            _ => targets.first,
        };
        self.search(targets, start, len, taken, is_wide)
            .or_else(|| self.search(targets, targets.first, len, taken, false))
    }

    fn search(
        &mut self,
        targets: Targets,
        start: u64,
        len: u64,
        taken: Option<(u64, u64)>,
        by_region: bool,
    ) -> Option<u64> {
        let mut candidate = targets.at_or_above(start)?;
        for _ in 0..TRIES_MAX {
            let end = candidate + len;
            let blocker = first_behind(&self.used, candidate)
                .filter(|used| used.0 < end)
                .or(taken.map(|(at, len)| (at, at + len)))
                .filter(|used| used.0 < end && candidate < used.1);
            if let Some((_, behind)) = blocker {
                candidate = targets.at_or_above(behind)?;
                continue;
            }
            match self.map(candidate, end, by_region) {
                Ok(()) => return Some(candidate),
                Err(behind) => candidate = targets.at_or_above(behind)?,
            }
        }
        None
    }

    /// Sees to it that a range is mapped; else gives the address behind what is in the way.
    fn map(&mut self, start: u64, end: u64, by_region: bool) -> Result<(), u64> {
        let mut page = start / PAGE * PAGE;
        while page < end {
            if let Some(mapped) = first_behind(&self.mapped, page)
                && mapped.0 <= page
            {
                page = mapped.1;
                continue;
            }
            if let Some((from, to)) = fuzz::map_block(page, map_free) {
                insert(&mut self.mapped, (from, to));
                page = to;
                continue;
            }
            let len = if by_region { REGION_LEN } else { PAGE };
            if !map_free(page, len) {
                return Err(page + len);
            }
            insert(&mut self.mapped, (page, page + len));
            page += len;
        }
        Ok(())
    }

    /// Takes what `place` has found.
    pub(crate) fn take(&mut self, start: u64, len: u64) {
        insert(&mut self.used, (start, start + len));
        if self.next.is_none_or(|next| next <= start) {
            self.next = Some((start + len).next_multiple_of(16));
        }
    }

    /// Gives back what was taken: no jump leads there any more, and no thread is there.
    pub(crate) fn release(&mut self, start: u64, len: u64) {
        let end = start + len;
        let at = self.used.partition_point(|range| range.1 <= start);
        if let Some(&(from, to)) = self.used.get(at)
            && from <= start
            && end <= to
        {
            let rest = [(from, start), (end, to)];
            let rest = rest.into_iter().filter(|range| range.0 < range.1);
            self.used.splice(at..=at, rest);
        }
    }

    /// Writes code to memory that was taken and that nothing jumps to yet.
    pub(crate) fn write(&self, start: u64, code: &[u8]) {
        debug_assert!(first_behind(&self.mapped, start).is_some_and(|range| range.0 <= start));
        // SAFETY: mapped writable by `place`, taken by the caller, and not executed yet.
        unsafe {
            core::ptr::copy_nonoverlapping(code.as_ptr(), start as *mut u8, code.len());
        }
    }
}
