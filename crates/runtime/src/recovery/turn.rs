//! The turn: the lock of everything in a recovery that is examined.
//!
//! It is held from the fault of an instruction until that has run alone, that is, between two handlers of
//! the same thread. So it is no [`crate::platform::lock::Lock`]; the thread that holds it has all signals blocked, but
//! for the step itself, which blocks all but ours.
//!
//! # Safety
//!
//! The state is reached by the thread that has the turn. Callers of `state` guarantee that they have it, and that
//! no other reference to the state is in use.
#![allow(unsafe_code, reason = "gives out a reference to the state")]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::platform::sys;
use crate::record::thread_private;

use super::state::State;

/// 0 free, 1 taken, 2 taken and waited for.
static WORD: AtomicU32 = AtomicU32::new(0);

struct StateCell(UnsafeCell<State>);

// SAFETY: reached only by the thread that has the turn.
unsafe impl Sync for StateCell {}

static STATE: StateCell = StateCell(UnsafeCell::new(State::NEW));

/// Takes the turn. With all signals blocked, and not by who has it.
pub(super) fn enter() {
    if WORD
        .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        while WORD.swap(2, Ordering::Acquire) != 0 {
            sys::futex_wait(&WORD, 2);
        }
    }
    thread_private::set_masked(true);
}

/// Gives the turn to the next.
pub(super) fn leave() {
    thread_private::set_masked(false);
    if WORD.swap(0, Ordering::Release) == 2 {
        sys::futex_wake(&WORD);
    }
}

/// The state.
///
/// # Safety
/// The caller has the turn, and no other reference.
pub(super) unsafe fn state() -> &'static mut State {
    // SAFETY: by the contract the caller has the turn, so there is no other reference.
    unsafe { &mut *STATE.0.get() }
}

/// Does something with the state, in a turn of its own.
pub(super) fn take<R>(work: impl FnOnce(&mut State) -> R) -> R {
    let mask = sys::block_signals();
    enter();
    // SAFETY: the turn was just taken, and is left only after `work` has returned.
    let result = work(unsafe { state() });
    leave();
    sys::restore_signals(mask);
    result
}

/// In a copy that the recovery has made of itself: other threads do not exist.
pub(super) fn reset_after_fork() {
    WORD.store(0, Ordering::Release);
}
