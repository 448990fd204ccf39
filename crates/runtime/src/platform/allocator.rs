//! Memory of our own: one large reservation, given out from its beginning.
//!
//! The runtime allocates tables when it starts and little afterwards, so nothing is given back. An
//! allocation is one addition, which makes it safe in handlers and against other threads without a
//! lock.
//!
//! # Safety
//!
//! Blocks come from one anonymous mapping of the runtime, begin at multiples of their alignment, and never overlap,
//! because each addition to the counter gives its bytes to one caller. Nothing is given back.
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

// SAFETY: blocks come from one mapping, are aligned, and never overlap: each addition to `used` gives
// its bytes to one caller.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (len, alignment) = (layout.size() as u64, layout.align() as u64);
        let Some(start) = self.start() else {
            return core::ptr::null_mut();
        };
        let padded = len + alignment;
        let used = self.used.fetch_add(padded, Ordering::Relaxed);
        if used + padded > RESERVED_LEN {
            return core::ptr::null_mut();
        }
        (start + used).next_multiple_of(alignment) as *mut u8
    }

    unsafe fn dealloc(&self, _block: *mut u8, _layout: Layout) {}
}
