//! Codes of marks, by which the target or its libraries describe what they do.
//!
//! A trace has them as annotations with the same codes (`powerfail_trace::Annotation`, where a test compares them). The
//! runtime writes a record of [`EventKind::Mark`](crate::EventKind::Mark) with the words `[code, value, rest...]`.
//! Codes with the bit [`HAS_RANGES`] are about memory: their rest is pairs `[address, length]`. For each pair the host
//! puts a range of a pool into the payload of the trace's mark.

mod function;

pub use function::{FUNCTIONS, function, function_name, orders, stores_for_caller};

/// The thread begins its outermost transaction of libpmemobj.
pub const TRANSACTION_BEGIN: u32 = 0x0100;
/// The thread's outermost transaction of libpmemobj has ended.
pub const TRANSACTION_END: u32 = 0x0101;
/// The thread begins to create a pool of PMDK.
pub const CREATION_BEGIN: u32 = 0x0102;
/// The pool of PMDK is created, or could not be.
pub const CREATION_END: u32 = 0x0103;
/// The thread begins a transaction inside of another one.
pub const NESTED_BEGIN: u32 = 0x0104;
/// A transaction inside of another one has ended.
pub const NESTED_END: u32 = 0x0105;
/// The thread's transaction is about to be committed.
pub const TRANSACTION_COMMIT: u32 = 0x0106;
/// The thread's transaction is about to be rolled back.
pub const TRANSACTION_ABORT: u32 = 0x0107;
/// The thread calls a function of libpmemobj. The value says which: its place in [`FUNCTIONS`];
/// [`orders`] says whether it orders what was stored before. What it calls itself, and what its
/// callbacks call, is not marked.
pub const LIBRARY_ENTER: u32 = 0x0110;
/// It has returned, or a failed transaction has jumped out of it. The value is as that of
/// [`LIBRARY_ENTER`].
pub const LIBRARY_LEAVE: u32 = 0x0111;

/// A range was added to the thread's transaction. Value: bits of [`add`].
pub const TRANSACTION_ADD: u32 = HAS_RANGES | 0x0120;
/// The thread's transaction has allocated an object. Value: bits of [`allocation`].
pub const TRANSACTION_ALLOCATE: u32 = HAS_RANGES | 0x0121;
/// The thread's transaction will free an object when it is committed.
pub const TRANSACTION_FREE: u32 = HAS_RANGES | 0x0122;
/// An object was allocated. Value: bits of [`allocation`].
pub const ALLOCATE: u32 = HAS_RANGES | 0x0130;
/// An object was freed.
pub const FREE: u32 = HAS_RANGES | 0x0131;
/// Reserved objects are allocated from here on, or will be when the thread's transaction is committed
/// (value 1). The ranges are their first bytes.
pub const PUBLISH: u32 = HAS_RANGES | 0x0132;
/// The range is the first byte of a pool of libpmemobj that was created or opened.
pub const OPEN: u32 = HAS_RANGES | 0x0133;
/// The thread asks a library to flush a range: the flushes that follow are made for it.
pub const FLUSH_RANGE: u32 = HAS_RANGES | 0x0134;
/// The heap of the target begins to write for itself: no failure points of the thread until it is done.
pub const HEAP_BEGIN: u32 = 0x0140;
/// The heap has finished, and what it has written is durable.
pub const HEAP_END: u32 = 0x0141;
/// `msync` without `MS_SYNC`, which makes nothing durable. The range is what it is about.
pub const ASYNCHRONOUS_SYNC: u32 = HAS_RANGES | 0x0142;

/// The region of interest begins: failure points and findings outside of such regions are left out.
pub const INTEREST_BEGIN: u32 = 0x0200;
/// The region of interest ends.
pub const INTEREST_END: u32 = 0x0201;
/// Nothing that follows is of interest.
pub const COMPLETE: u32 = 0x0202;
/// No failure points from here on.
pub const SKIP_FAILURE_BEGIN: u32 = 0x0203;
/// From here on there are failure points again.
pub const SKIP_FAILURE_END: u32 = 0x0204;
/// No findings from here on.
pub const SKIP_DETECTION_BEGIN: u32 = 0x0205;
/// From here on there are findings again.
pub const SKIP_DETECTION_END: u32 = 0x0206;
/// A failure point, in addition to all others.
pub const FAILURE_POINT: u32 = 0x0207;
/// A mark of the user, with a value and a payload of their own.
pub const USER: u32 = 0x0208;
/// An operation of the workload begins; the host makes it the trace's own kind of mark.
pub const OPERATION_BEGIN: u32 = 0x0209;
/// An operation of the workload is complete.
pub const OPERATION_END: u32 = 0x020a;
/// A commit variable.
pub const COMMIT_VARIABLE: u32 = HAS_RANGES | 0x0210;
/// The first range is a commit variable, the second one what it decides about.
pub const COMMIT_RANGE: u32 = HAS_RANGES | 0x0211;

/// A client request of pmemcheck that has no other code. The value is the request's number in its tool.
pub const CLIENT_REQUEST: u32 = HAS_RANGES | 0x0300;
/// The program says that a range needs no flush: pmemcheck's `SET_CLEAN`.
pub const CLEAN: u32 = HAS_RANGES | 0x0301;

/// Bit of codes whose marks are about ranges.
pub const HAS_RANGES: u32 = 0x8000;

/// Bits of the value of [`TRANSACTION_ADD`].
pub mod add {
    /// The old content is not kept: rolling back leaves the new one.
    pub const NO_SNAPSHOT: u64 = 1;
    /// The commit does not flush it.
    pub const NO_FLUSH: u64 = 2;
}

/// Bits of the value of [`ALLOCATE`] and [`TRANSACTION_ALLOCATE`].
pub mod allocation {
    /// It is full of zeros.
    pub const ZEROED: u64 = 1;
    /// A constructor of the user's has run, or the content was copied: it is written.
    pub const WRITTEN: u64 = 2;
    /// The commit does not flush it.
    pub const NO_FLUSH: u64 = 4;
    /// It is allocated for good only when it is published; a crash before frees it.
    pub const RESERVED: u64 = 8;
}
