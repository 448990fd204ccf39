//! A lock that is safe in signal handlers: the thread that holds it has all signals blocked.
//!
//! # Safety
//!
//! The value is reached only by `with`, while the word says that it is locked and all signals of the thread are
//! blocked, so neither another thread nor a handler has a second reference. Callers guarantee that `work` does not
//! take the same lock again, and that `reset_after_fork` is called only where no other thread exists.
#![allow(unsafe_code, reason = "gives out a reference to what it protects")]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::platform::sys;
use crate::record::thread_private;

/// A value behind a lock.
pub(crate) struct Lock<T> {
    /// 0 free, 1 held, 2 held and waited for.
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through the lock.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `work` on the value. Not to be nested.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mask = (!thread_private::is_masked()).then(sys::block_signals);
        if self
            .word
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            while self.word.swap(2, Ordering::Acquire) != 0 {
                sys::futex_wait(&self.word, 2);
            }
        }
        // SAFETY: the lock is ours, and no handler can run on this thread.
        let result = work(unsafe { &mut *self.value.get() });
        if self.word.swap(0, Ordering::Release) == 2 {
            sys::futex_wake(&self.word);
        }
        if let Some(mask) = mask {
            sys::restore_signals(mask);
        }
        result
    }

    /// In a child after fork: other threads, which may have held the lock, do not exist.
    pub(crate) fn reset_after_fork(&self) {
        self.word.store(0, Ordering::Release);
    }
}
