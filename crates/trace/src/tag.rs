//! The tag byte of a record: what it is, how long it is, and which guesses were right.

use powerfail_model::{FenceKind, FlushKind, StoreKind};

/// The stack is the guessed one and not written out.
pub(crate) const STACK_GUESSED: u8 = 0x40;
/// The address is the guessed one and not written out.
pub(crate) const ADDRESS_GUESSED: u8 = 0x80;
/// What is left of the tag: the code.
pub(crate) const CODE_MASK: u8 = 0x3f;

/// The first code after the stores: four kinds of store with eight length classes each.
pub(crate) const STORE_END: u8 = 32;
pub(crate) const FLUSH: u8 = 32;
pub(crate) const FENCE: u8 = 35;
pub(crate) const SYNC: u8 = 38;
pub(crate) const VOLATILE_FLUSH: u8 = 39;
pub(crate) const RESIZE: u8 = 42;
pub(crate) const THREAD_START: u8 = 43;
pub(crate) const THREAD_END: u8 = 44;
pub(crate) const MARK: u8 = 45;
/// Not a record: the records that follow are of another thread.
pub(crate) const THREAD_SWITCH: u8 = 46;
/// Not a record: what this thread does next is in another pool.
pub(crate) const POOL_SWITCH: u8 = 47;

/// An operation on the files of a tree.
pub(crate) const FILE: u8 = 48;
/// A file of a tree is mapped as a pool.
pub(crate) const MAPPED: u8 = 49;

/// The codes of operations on files.
pub(crate) const FILE_CREATE: u64 = 0;
pub(crate) const FILE_LINK: u64 = 1;
pub(crate) const FILE_UNLINK: u64 = 2;
pub(crate) const FILE_RENAME: u64 = 3;
pub(crate) const FILE_EXCHANGE: u64 = 4;
pub(crate) const FILE_WRITE: u64 = 5;
pub(crate) const FILE_TRUNCATE: u64 = 6;
pub(crate) const FILE_ALLOCATE: u64 = 7;
pub(crate) const FILE_ZERO: u64 = 8;
pub(crate) const FILE_PUNCH_HOLE: u64 = 9;
pub(crate) const FILE_COLLAPSE: u64 = 10;
pub(crate) const FILE_INSERT: u64 = 11;
pub(crate) const FILE_SYNC: u64 = 12;
pub(crate) const FILE_SYNC_ALL: u64 = 13;
pub(crate) const FILE_CLOSE: u64 = 14;
pub(crate) const FILE_FAILED_SYNC: u64 = 15;
pub(crate) const FILE_CROSSED_DEVICES: u64 = 16;

/// The codes of kinds of nodes.
pub(crate) const NODE_FILE: u8 = 0;
pub(crate) const NODE_DIRECTORY: u8 = 1;
pub(crate) const NODE_SYMLINK: u8 = 2;
pub(crate) const NODE_OTHER: u8 = 3;
/// Only at the end: a file whose content is not recorded.
pub(crate) const NODE_UNRECORDED: u8 = 4;

/// The codes of marks.
pub(crate) const MARK_OUTPUT: u64 = 0;
pub(crate) const MARK_ANNOTATION: u64 = 1;
pub(crate) const MARK_OPERATION_BEGIN: u64 = 2;
pub(crate) const MARK_OPERATION_END: u64 = 3;

/// The length class whose length is written out.
pub(crate) const LENGTH_OTHER: u8 = 7;

#[inline]
pub(crate) const fn length_class(len: usize) -> u8 {
    match len {
        1 => 0,
        2 => 1,
        4 => 2,
        8 => 3,
        16 => 4,
        32 => 5,
        64 => 6,
        _ => LENGTH_OTHER,
    }
}

#[inline]
pub(crate) const fn store_code(kind: StoreKind, class: u8) -> u8 {
    let kind = match kind {
        StoreKind::Plain => 0,
        StoreKind::NonTemporal => 1,
        StoreKind::Locked => 2,
        StoreKind::System => 3,
    };
    kind * 8 + class
}

#[inline]
pub(crate) const fn store_kind(code: u8) -> StoreKind {
    match code / 8 {
        0 => StoreKind::Plain,
        1 => StoreKind::NonTemporal,
        2 => StoreKind::Locked,
        _ => StoreKind::System,
    }
}

#[inline]
pub(crate) const fn flush_number(kind: FlushKind) -> u8 {
    match kind {
        FlushKind::Clflush => 0,
        FlushKind::Clflushopt => 1,
        FlushKind::Clwb => 2,
    }
}

#[inline]
pub(crate) const fn flush_kind(number: u8) -> FlushKind {
    match number {
        0 => FlushKind::Clflush,
        1 => FlushKind::Clflushopt,
        _ => FlushKind::Clwb,
    }
}

#[inline]
pub(crate) const fn fence_number(kind: FenceKind) -> u8 {
    match kind {
        FenceKind::Sfence => 0,
        FenceKind::Mfence => 1,
        FenceKind::Locked => 2,
    }
}

#[inline]
pub(crate) const fn fence_kind(number: u8) -> FenceKind {
    match number {
        0 => FenceKind::Sfence,
        1 => FenceKind::Mfence,
        _ => FenceKind::Locked,
    }
}
