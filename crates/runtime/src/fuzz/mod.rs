//! Repeated targets: the runtime in a process that is executed thousands of times a second.
//!
//! [`powerfail_abi::fuzz`] says what is shared with the host and how a target is repeated.

use core::sync::atomic::{AtomicBool, Ordering};

use powerfail_abi::fuzz::{AREA_ADDRESS, AREA_LEN, Area};

use crate::{host, sys};

static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether this process is one of a repeated target.
pub(crate) fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// What is shared with the host. Only if the target is repeated.
pub(crate) fn area() -> &'static Area {
    debug_assert!(is_active());
    // SAFETY: mapped since `attach`, for good; all that changes in it is atomic.
    unsafe { &*(AREA_ADDRESS as *const Area) }
}

/// Whether something is asked for: a bit of [`powerfail_abi::fuzz::flag`].
pub(crate) fn has_flag(bit: u32) -> bool {
    is_active() && area().flags.load(Ordering::Relaxed) & bit != 0
}

/// Maps what the host shares for it, if the target is repeated.
pub(crate) fn attach(shared: i32) {
    let offset = host::control().area_at;
    if offset == 0 {
        return;
    }
    let both = sys::PROT_READ | sys::PROT_WRITE;
    let flags = sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE;
    // SAFETY: nothing is replaced.
    let result = unsafe { sys::mmap(AREA_ADDRESS, AREA_LEN, both, flags, shared, offset) };
    if result != AREA_ADDRESS as isize {
        host::fatal("the addresses that powerfail needs to repeat a target are taken");
    }
    ACTIVE.store(true, Ordering::Relaxed);
}
