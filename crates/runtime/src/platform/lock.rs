//! A lock that is safe in signal handlers: the thread that holds it has all signals blocked.
//!
//! A process that forks holds its locks meanwhile, so that the copy finds no value in the middle of a change
//! (`libc/fork_locks.rs`). The thread that forks may still use the values: it changes none at that moment. A thread that
//! waits long for such a lock takes it, because the fork may be waiting for something of the target that this thread has.
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

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED_FOR: u32 = 2;
/// Held by a thread that forks.
const HELD_BY_FORK: u32 = 3;

/// So long a thread waits for a fork.
const FORK_PATIENCE_NS: u64 = 200_000_000;

/// The thread that forks, and its process; 0 if there is none.
static FORKER: AtomicU32 = AtomicU32::new(0);
static FORKER_PROCESS: AtomicU32 = AtomicU32::new(0);

/// Whether the calling thread forks at this moment, or is the copy that a fork has just made.
fn is_forking() -> bool {
    is_forker() || FORKER_PROCESS.load(Ordering::Acquire) != sys::getpid()
}

/// Whether the calling thread forks at this moment.
pub(crate) fn is_forker() -> bool {
    FORKER.load(Ordering::Acquire) == sys::gettid()
}

/// The calling thread begins to fork; false if another one does.
pub(crate) fn begin_fork() -> bool {
    let begins = FORKER
        .compare_exchange(0, sys::gettid(), Ordering::AcqRel, Ordering::Acquire)
        .is_ok();
    if begins {
        FORKER_PROCESS.store(sys::getpid(), Ordering::Release);
    }
    begins
}

/// The calling thread has forked.
pub(crate) fn end_fork() {
    FORKER.store(0, Ordering::Release);
}

/// What a thread must do that wants a lock.
enum Turn {
    /// The lock is its own.
    Taken,
    /// It is held for this very thread.
    IsForking,
}

/// What says whether a lock is held.
pub(crate) struct Word(AtomicU32);

impl Word {
    fn take(&self) -> Turn {
        let word = &self.0;
        if word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            return Turn::Taken;
        }
        loop {
            match word.load(Ordering::Acquire) {
                HELD_BY_FORK if is_forking() => return Turn::IsForking,
                HELD_BY_FORK => {
                    if sys::futex_wait_for(word, HELD_BY_FORK, FORK_PATIENCE_NS)
                        && self.change(HELD_BY_FORK, WAITED_FOR)
                    {
                        return Turn::Taken;
                    }
                }
                FREE => {
                    if self.change(FREE, WAITED_FOR) {
                        return Turn::Taken;
                    }
                }
                seen => {
                    if seen == WAITED_FOR || self.change(HELD, WAITED_FOR) {
                        sys::futex_wait(word, WAITED_FOR);
                    }
                }
            }
        }
    }

    fn give_back(&self) {
        if self.0.swap(FREE, Ordering::Release) == WAITED_FOR {
            sys::futex_wake(&self.0);
        }
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Holds the lock for a fork, if it is free.
    pub(crate) fn hold_for_fork(&self) -> bool {
        self.change(FREE, HELD_BY_FORK)
    }

    /// Waits until the lock may be free, but not for long; whether it was waited for in vain.
    pub(crate) fn wait_for_fork(&self, patience_ns: u64) -> bool {
        match self.0.load(Ordering::Acquire) {
            FREE | HELD_BY_FORK => false,
            seen => {
                (seen == WAITED_FOR || self.change(HELD, WAITED_FOR))
                    && sys::futex_wait_for(&self.0, WAITED_FOR, patience_ns)
            }
        }
    }

    /// The fork is done, in the process that has made it.
    pub(crate) fn give_back_after_fork(&self) {
        if self.change(HELD_BY_FORK, FREE) {
            sys::futex_wake(&self.0);
        }
    }

    /// In a child after fork: other threads, which may have held the lock, do not exist.
    pub(crate) fn reset_after_fork(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

/// A value behind a lock.
pub(crate) struct Lock<T> {
    word: Word,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through the lock.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            word: Word(AtomicU32::new(FREE)),
            value: UnsafeCell::new(value),
        }
    }

    /// What a fork holds.
    pub(crate) const fn word(&self) -> &Word {
        &self.word
    }

    /// Runs `work` on the value. Not to be nested.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mask = (!thread_private::is_masked()).then(sys::block_signals);
        let turn = self.word.take();
        // SAFETY: the lock is ours, or held for this thread, which is not in `work`: it forks. No handler can run on it.
        let result = work(unsafe { &mut *self.value.get() });
        if matches!(turn, Turn::Taken) {
            self.word.give_back();
        }
        if let Some(mask) = mask {
            sys::restore_signals(mask);
        }
        result
    }

    /// In a child after fork: other threads, which may have held the lock, do not exist.
    pub(crate) fn reset_after_fork(&self) {
        self.word.reset_after_fork();
    }
}
