//! Codes of marks that the runtime makes by itself: what libraries of the target say about their work.
//!
//! A trace has them as annotations with the same codes.

/// The thread begins its outermost transaction of libpmemobj.
pub const TRANSACTION_BEGIN: u32 = 0x0100;
/// The thread's outermost transaction of libpmemobj has ended.
pub const TRANSACTION_END: u32 = 0x0101;
/// The thread begins to create a pool of PMDK.
pub const CREATION_BEGIN: u32 = 0x0102;
/// The pool of PMDK is created, or could not be.
pub const CREATION_END: u32 = 0x0103;
