//! The lock under which all processes of the target make their operations on files.
//!
//! It lies in shared memory and holds the number of the thread that has it, so that the host can give it back when that
//! thread was killed. A handler of a signal that interrupts its owner may make operations, too: they are made inside of
//! the other. A handler that never returns would keep the lock, so signals are blocked if the target has handlers.

use core::sync::atomic::{AtomicU32, Ordering};

use powerfail_protocol::file::LOCK_WAITED_FOR;

use crate::host;
use crate::platform::{signals, sys};
use crate::record::threads;

/// What the calling thread has to give back.
struct Held {
    /// Whether the lock was free, and is to be free again.
    is_outermost: bool,
    /// The mask of signals to restore.
    mask: Option<u64>,
}

/// Makes an operation: runs `work` while no other thread of any process makes one. Not for calls that may wait for another
/// thread.
pub(super) fn in_order<R>(work: impl FnOnce() -> R) -> R {
    let Some(number) = threads::number() else {
        return work();
    };
    let mask = signals::target_has_handlers().then(sys::block_signals);
    let held = Held {
        is_outermost: acquire(number + 1),
        mask,
    };
    let result = work();
    release(&held);
    result
}

fn word() -> &'static AtomicU32 {
    &host::control().trees.lock
}

/// Takes the lock; whether it was not held by this thread before.
fn acquire(owner: u32) -> bool {
    let word = word();
    let Err(mut found) = word.compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed)
    else {
        return true;
    };
    loop {
        if found & !LOCK_WAITED_FOR == owner {
            return false;
        }
        if found == 0 {
            // Others may wait, too.
            let taken = owner | LOCK_WAITED_FOR;
            match word.compare_exchange(0, taken, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => found = other,
            }
            continue;
        }
        let waited_for = found | LOCK_WAITED_FOR;
        let marked = found == waited_for
            || word
                .compare_exchange(found, waited_for, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if marked {
            sys::futex_wait(word, waited_for);
        }
        found = word.load(Ordering::Relaxed);
    }
}

fn release(held: &Held) {
    if held.is_outermost {
        let word = word();
        if word.swap(0, Ordering::Release) & LOCK_WAITED_FOR != 0 {
            sys::futex_wake(word);
        }
    }
    if let Some(mask) = held.mask {
        sys::restore_signals(mask);
    }
}
