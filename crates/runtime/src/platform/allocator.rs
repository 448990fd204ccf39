//! Memory of our own: one large reservation, given out from its beginning.
//!
//! The runtime allocates tables when it starts and little afterwards, so nothing is given back. An
//! allocation is one exchange, which makes it safe in handlers and against other threads without a
//! lock. A block that grows and is the last one grows where it is: a copy would touch as much memory again.
//!
//! # Safety
//!
//! Blocks come from one anonymous mapping of the runtime, begin at multiples of their alignment, and never overlap,
//! because each exchange of the counter gives its bytes to one caller. Nothing is given back but the end of a block that
//! shrinks, by the one who has it.
#![allow(unsafe_code, reason = "implements the global allocator")]

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::platform::sys;

/// Address space, not memory: pages cost only when they are touched.
const RESERVED_LEN: u64 = 4 << 30;
/// Far from all code: what is near code is needed for trampolines.
const RESERVED_AT: u64 = 0x1b00_0000_0000;

struct Bump {
    /// Start of the reservation; 0 before there is one.
    start: AtomicU64,
    used: AtomicU64,
}

#[global_allocator]
static ALLOCATOR: Bump = Bump {
    start: AtomicU64::new(0),
    used: AtomicU64::new(0),
};

impl Bump {
    fn start(&self) -> Option<u64> {
        let start = self.start.load(Ordering::Acquire);
        if start != 0 {
            return Some(start);
        }
        let fresh = sys::map_at(RESERVED_AT, RESERVED_LEN)?;
        match self
            .start
            .compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => Some(fresh),
            // Another thread was faster; the second reservation costs nothing.
            Err(start) => Some(start),
        }
    }
}

// SAFETY: blocks come from one mapping, are aligned, and never overlap: each exchange of `used` gives its bytes to one
// caller.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (len, alignment) = (layout.size() as u64, layout.align() as u64);
        let Some(start) = self.start() else {
            return core::ptr::null_mut();
        };
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let block = (start + used).next_multiple_of(alignment);
            let behind = block - start + len;
            if behind > RESERVED_LEN {
                return core::ptr::null_mut();
            }
            match self.exchange(used, behind) {
                Ok(_) => return block as *mut u8,
                Err(seen) => used = seen,
            }
        }
    }

    unsafe fn dealloc(&self, _block: *mut u8, _layout: Layout) {}

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        let start = self.start.load(Ordering::Acquire);
        let from = block as u64 - start;
        let (end, new_end) = (from + layout.size() as u64, from + len as u64);
        let is_last = new_end <= RESERVED_LEN && self.exchange(end, new_end).is_ok();
        if is_last || len <= layout.size() {
            return block;
        }
        // SAFETY: the caller guarantees that the length is not zero, and that the block has the layout. The new block is
        // longer, and does not overlap it.
        unsafe {
            let new = Layout::from_size_align_unchecked(len, layout.align());
            let longer = self.alloc(new);
            if !longer.is_null() {
                core::ptr::copy_nonoverlapping(block, longer, layout.size());
            }
            longer
        }
    }
}

impl Bump {
    /// Changes how much is used, if it is what the caller thinks; else tells how much is.
    fn exchange(&self, used: u64, new: u64) -> Result<u64, u64> {
        self.used
            .compare_exchange(used, new, Ordering::Relaxed, Ordering::Relaxed)
    }
}
