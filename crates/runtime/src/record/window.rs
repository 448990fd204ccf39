//! The window: the range of addresses in which pools are recorded, and the alias, where the same bytes are writable.
//!
//! It has a place of its own. A target that wants its first pool elsewhere has the window moved there, as long as no code
//! has been emitted that compares addresses with its borders. The alias stays.

use core::sync::atomic::{AtomicU64, Ordering};

use powerfail_protocol::PoolWindow;
use powerfail_protocol::memory::RANGES_ADDRESS;
use powerfail_protocol::shared::{WINDOW_ADDRESS, WINDOW_LEN};

static BASE: AtomicU64 = AtomicU64::new(WINDOW_ADDRESS);
static LEN: AtomicU64 = AtomicU64::new(WINDOW_LEN);

/// Where all pools are.
pub(crate) fn window() -> PoolWindow {
    const ALIAS_ADDRESS: u64 = WINDOW_ADDRESS + WINDOW_LEN;
    let base = BASE.load(Ordering::Relaxed);
    PoolWindow {
        base,
        len_bytes: LEN.load(Ordering::Relaxed),
        alias_delta: ALIAS_ADDRESS.wrapping_sub(base),
    }
}

/// The window is elsewhere from now on. It is not longer than the alias.
pub(crate) fn set(base: u64, len_bytes: u64) {
    BASE.store(base, Ordering::Relaxed);
    LEN.store(len_bytes.min(WINDOW_LEN), Ordering::Relaxed);
}

/// Behind the last address that a pool may have. At its own place, the window ends with the addresses of the heap and of
/// registered ranges.
pub(crate) fn end_for_pools() -> u64 {
    let window = window();
    if window.base == WINDOW_ADDRESS {
        RANGES_ADDRESS
    } else {
        window.base + window.len_bytes
    }
}
