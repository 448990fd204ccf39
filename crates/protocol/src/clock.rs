//! The clock by which the records of several threads are ordered: a count in shared memory.
//!
//! A thread that records something looks at the clock. If it still has the stamp that the thread has taken last, no other
//! thread has taken one since, and the thread uses that stamp again: the places of its records order them. Else it takes a
//! new one, with one instruction that adds to the clock. So a stamp belongs to one thread, or to the host.
//!
//! Why stamps have the order of what happens: let one thread record A, and another one B that may depend on A, because it was
//! recorded after memory was read that the first thread has written behind A. When the first thread looked at the clock for
//! A, it had the stamp of A. The processor makes loads and stores visible in their order, so when the other thread looks at
//! the clock for B, that has the stamp of A or a later one. The stamp of B is what the clock has then, or a new one; it is not
//! that of A, which belongs to the first thread. So it is later. Stores to the same bytes that race are made under
//! [`crate::store_lock`], which brings them into this case.
//!
//! Why not the time stamp counter: reading it takes 10 ns, and twice that if it must not be read before earlier loads are
//! complete. This is a load, and loads are not reordered. As long as one thread runs, the line of the clock stays in the cache
//! of its processor. If threads run at the same time, each records what it can while the line travels.
//!
//! **The host adds to the clock before it looks at the cursor of a thread.** A thread looks at the clock after its reservation is
//! visible: there is a locked instruction in between. So what the host does not see as reserved has a later stamp than its
//! own.

use core::sync::atomic::{AtomicU64, Ordering};

/// The clock. Alone in its line.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Clock(AtomicU64);

impl Clock {
    /// A clock at its beginning.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes a stamp that is later than all before. It is never zero.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The stamp that was taken last.
    pub fn newest(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn stamps_are_later_than_all_before() {
        let clock = Clock::new();
        assert_eq!((clock.tick(), clock.newest(), clock.tick()), (1, 1, 2));
    }
}
