//! What a program does to persistent memory, as the model sees it.

use crate::ids::{EventIndex, Place, PoolIndex, PoolOffset, ThreadIndex};

/// One event on persistent memory. The bytes of a store are borrowed from the reader of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Bytes are written to a pool. Of any length: the model splits at line borders.
    Store {
        /// How they are written.
        kind: StoreKind,
        /// The first byte written.
        at: Place,
        /// The values written.
        bytes: &'a [u8],
    },
    /// A flush of the line that holds a byte.
    Flush {
        /// The instruction.
        kind: FlushKind,
        /// Any byte of the line.
        at: Place,
    },
    /// A fence of the event's thread.
    Fence(FenceKind),
    /// msync, fsync or fdatasync of a range of a pool: flush of every line in it and fence in one.
    Sync {
        /// The pool.
        pool: PoolIndex,
        /// The first byte made durable.
        offset: PoolOffset,
        /// How many bytes are made durable.
        len_bytes: u64,
    },
    /// The file of a pool was cut or extended. Bytes beyond its new end are gone.
    Resize {
        /// The pool.
        pool: PoolIndex,
        /// Its new length.
        len_bytes: u64,
    },
}

/// The ways to write to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StoreKind {
    /// An ordinary store instruction.
    Plain,
    /// A non-temporal store: it bypasses the cache and is sure after the thread's next fence.
    NonTemporal,
    /// A locked read-modify-write that wrote: a fence of its thread, then a store.
    Locked,
    /// The kernel wrote on behalf of the program: read(2) into the pool, pwrite(2) to its file.
    System,
}

/// The flush instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlushKind {
    /// Ordered with later stores: durable at once.
    Clflush,
    /// Weakly ordered: durable at the thread's next fence.
    Clflushopt,
    /// Weakly ordered: durable at the thread's next fence; the line may stay in the cache.
    Clwb,
}

/// The fence instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FenceKind {
    /// Store fence.
    Sfence,
    /// Full fence.
    Mfence,
    /// A locked operation that wrote nothing to a pool: a compare-and-swap that failed, or any
    /// locked operation on volatile memory.
    Locked,
}

/// An event with its place in the recorded order and its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// Its place; indexes grow from step to step but need not be dense.
    pub index: EventIndex,
    /// The thread that caused it.
    pub thread: ThreadIndex,
    /// What happened.
    pub event: Event<'a>,
}
