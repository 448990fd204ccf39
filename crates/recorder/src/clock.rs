//! The clock by which records are stamped: the time stamp counter.
//!
//! # Safety
//!
//! `rdtsc` has no effect but its result and exists on every x86-64 processor. Linux lets programs
//! execute it unless they ask otherwise (`PR_SET_TSC`), which nothing here does.

#![allow(unsafe_code)]

use std::time::{Duration, Instant};

/// A moment, in ticks of the time stamp counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(pub(crate) u64);

impl Stamp {
    /// After every moment.
    pub(crate) const MAX: Self = Self(u64::MAX);

    /// Now.
    pub(crate) fn now() -> Self {
        // SAFETY: as the module's header says, the instruction exists and only reads a counter.
        Self(unsafe { core::arch::x86_64::_rdtsc() })
    }

    /// The moment `ticks` earlier.
    pub(crate) const fn minus(self, ticks: u64) -> Self {
        Self(self.0.saturating_sub(ticks))
    }
}

/// A lower bound of the ticks in a millisecond. Takes a millisecond to measure.
pub(crate) fn ticks_of_a_millisecond() -> u64 {
    let begin = Instant::now();
    let first = Stamp::now();
    while begin.elapsed() < Duration::from_millis(1) {
        std::hint::spin_loop();
    }
    Stamp::now().0.saturating_sub(first.0)
}
