//! Until the first pool is mapped, one thread at a time maps what may be one: where the first pool is mapped decides where
//! the window is, and no other thread may choose an address in the meantime.
//!
//! Signals are not blocked, because the code of the target is patched meanwhile. A handler that maps a pool on the thread
//! that has the turn takes part in it.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::platform::sys;

/// The thread that has the turn; 0 if none has it.
static TURN: AtomicU32 = AtomicU32::new(0);
static IS_MAPPED: AtomicBool = AtomicBool::new(false);

/// Maps something that may be the first pool.
pub(crate) fn in_turn<R>(map: impl FnOnce() -> R) -> R {
    if IS_MAPPED.load(Ordering::Acquire) {
        return map();
    }
    let me = sys::gettid();
    loop {
        match TURN.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => break,
            Err(owner) if owner == me => return map(),
            Err(owner) => sys::futex_wait(&TURN, owner),
        }
    }
    let result = map();
    TURN.store(0, Ordering::Release);
    sys::futex_wake(&TURN);
    result
}

/// A pool is mapped: the window stays where it is.
pub(crate) fn is_mapped() {
    IS_MAPPED.store(true, Ordering::Release);
}

/// A fork takes the turn, so that the copy is not made in the middle of a change; false if another thread has had it for too
/// long, or if it is not needed.
pub(crate) fn hold_for_fork(patience_ns: u64) -> bool {
    let me = sys::gettid();
    while !IS_MAPPED.load(Ordering::Acquire) {
        match TURN.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(owner) if owner == me => return false,
            Err(owner) => {
                if sys::futex_wait_for(&TURN, owner, patience_ns) {
                    return false;
                }
            }
        }
    }
    false
}

/// The fork is done, in both processes: no thread has the turn.
pub(crate) fn give_back_after_fork() {
    TURN.store(0, Ordering::Release);
    sys::futex_wake(&TURN);
}
