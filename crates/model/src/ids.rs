//! Identifiers of different spaces, each with its own type so that two of them cannot be swapped.

use std::fmt;

/// A pool of the recorded run, in the order in which the pools were first mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolIndex(pub u32);

/// A byte position inside a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolOffset(pub u64);

/// A thread of the recorded run, in the order in which the threads were first seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadIndex(pub u32);

/// The place of an event in the recorded order; a crash "at `k`" is a crash just before event `k`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventIndex(pub u64);

/// A line inside a pool: its offset divided by the line size of the persistence domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineIndex(pub u64);

/// A byte of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The pool.
    pub pool: PoolIndex,
    /// The position in it.
    pub offset: PoolOffset,
}

impl Place {
    /// The byte at `offset` of `pool`.
    pub const fn new(pool: PoolIndex, offset: PoolOffset) -> Self {
        Self { pool, offset }
    }
}

/// A line of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId {
    /// The pool.
    pub pool: PoolIndex,
    /// The line in it.
    pub line: LineIndex,
}

macro_rules! display_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

display_number!(PoolIndex, ThreadIndex, EventIndex, LineIndex);

impl fmt::Display for PoolOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pool, self.offset)
    }
}
