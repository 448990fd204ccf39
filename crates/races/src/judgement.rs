//! What can be said about bytes that recovery reads.

use powerfail_model::{EventIndex, PoolIndex, PoolOffset};

/// Bytes of a line of 64 bytes of which a read is worth noting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteWatch {
    /// The pool.
    pub pool: PoolIndex,
    /// The offset of the line.
    pub offset: PoolOffset,
    /// Its bytes: a bit each.
    pub bytes: u64,
}

/// Why a read after a failure is not safe. `bytes` are those of the line that was read that it is true of, a
/// bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// They are not surely durable. Said only under the strict rule; whether the value that was read is the only
    /// one possible, the exploration knows.
    Race {
        /// The bytes.
        bytes: u64,
        /// Who wrote them last.
        writer: EventIndex,
        /// Why they are not durable.
        why: NotDurable,
    },
    /// They are durable, and their commit variable was not stored since they were.
    Uncommitted {
        /// The bytes.
        bytes: u64,
        /// Who wrote them last.
        writer: EventIndex,
        /// The commit write after them, if there is one: it did not wait until they were durable.
        commit: Option<EventIndex>,
    },
    /// They are durable, and older than what their commit variable says to be valid.
    Stale {
        /// The bytes.
        bytes: u64,
        /// Who wrote them last.
        writer: EventIndex,
        /// The last but one commit write, and the last one. If the writer comes after the first of them, it did
        /// not wait until that was durable.
        commits: [EventIndex; 2],
    },
    /// They were allocated, and not written since.
    Uninitialised {
        /// The bytes.
        bytes: u64,
        /// The mark of the allocation.
        allocation: EventIndex,
    },
}

/// Why a store is not surely durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotDurable {
    /// No flush of its line since the line was last durable as a whole.
    NeverFlushed,
    /// Flushed, but no fence of that thread since. The flush of a non-temporal store is the store itself.
    NotFenced {
        /// The last flush.
        flush: EventIndex,
    },
    /// Its line was flushed, and then came this store.
    FlushedBefore {
        /// The last flush.
        flush: EventIndex,
    },
}

/// The persistence state of a byte: figure 9 of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// Stored, and not flushed since.
    Modified,
    /// Flushed since its last store, and not fenced.
    WritebackPending,
    /// Persisted, or never stored: a reader sees no difference, so nothing is kept of either.
    Settled,
}
