//! What the runtime in the target, the code that it emits and the host share. This crate has no dependencies and no
//! behaviour of its own beyond encoding and decoding.
//!
//! A few things, all of fixed layout and under one [`PROTOCOL_VERSION`]:
//!
//! - [`ThreadBlock`]: the state of one recorded thread, at its GS base;
//! - [`PoolWindow`]: where all pools are mapped, and where their writable alias is;
//! - [`Record`]: one event in a [`chunk`] of a thread's ring;
//! - [`clock`]: what orders the records of several threads, and [`store_lock`]: their stores to the same bytes;
//! - [`log`]: what the plugin of QEMU writes of a whole machine;
//! - [`shared`]: the file in which chunks and thread blocks lie, and [`message`]: what is no event.
//!
//! # How an append works, and what a signal or a reader sees
//!
//! A thread appends to the chunk that [`ThreadBlock::cursor`] points into:
//!
//! 1. **Reserve.** One `xadd` moves the cursor and yields where the record begins. One instruction:
//!    a signal comes before or after it, never inside. Whether the record fits is decided by the
//!    yielded address alone ([`chunk::overflows`]), so that a signal handler which exchanges the
//!    chunk in between cannot mislead the code that it interrupted. A reservation that does not fit
//!    is given up, the refill function installs a fresh chunk, and the append begins again.
//! 2. **Describe.** The header is written, then address and value.
//! 3. **Commit.** Where other threads may store to the same bytes, the [`store_lock`] is taken first, and given back after
//!    the operation: no handler of the target runs in between. The stamp is written last. It is never zero. A thread that is
//!    alone takes it from [`ThreadBlock::stamp`], and another one does so as long as the [`clock`] has it, so many records have
//!    the same one, and their places order them. That of an operation that may have to begin again, a locked one, is [`STAMP_TENTATIVE`] at first.
//! 4. **Perform.** The store, flush or fence is executed. Records are written ahead: of each thread
//!    the newest record (at each signal depth) may be of an operation that has not happened, if
//!    the thread was killed just then. The runtime turns the record of an operation that faulted
//!    into [`EventKind::Void`].
//! 5. **Confirm.** A locked operation is performed by an exchange that fails if another thread, or a
//!    handler, has changed the memory meanwhile. Then the stamp is zero again, and value and stamp are
//!    made anew in the same place. When the exchange has succeeded the stamp is tentative no more. Until
//!    then a reader must not take the record for what happened: its thread will change it, perhaps long after.
//!
//! A handler of the target that runs between these steps and appends by itself reserves behind the
//! open record and finishes before it continues. Its scratch slots are the same memory, so **the code that
//! delivers a signal to the target saves [`ThreadBlock::scratch`] before and restores it after**, counts [`ThreadBlock::signal_depth`], and, if the interrupted code ran on the slow
//! stack, lowers [`ThreadBlock::slow_stack_top`] below it meanwhile.
//!
//! A chunk is **handed to a thread full of zeros**. So a reader needs nothing else from its
//! thread, dead or alive: a header of zero is a reservation that was given up or not yet
//! described and is skipped up to the next word that is not zero; a stamp of zero is a record that
//! was not committed ([`Records`] does both), or that is still to be confirmed. A committed record
//! whose stamp is tentative counts only if its thread can go on no more: then it is the newest at its
//! signal depth. If a chunk was retired at a signal depth above zero, code that the signal interrupted
//! may still own an open record in it, until the thread is seen at a lower depth.

#![no_std]

mod block;
pub mod chunk;
pub mod clock;
pub mod explore;
pub mod file;
pub mod fuzz;
pub mod log;
pub mod mark;
pub mod memory;
pub mod message;
pub mod observe;
pub mod random;
mod record;
pub mod request;
mod schedule;
pub mod shared;
pub mod stack;
pub mod store_lock;
mod window;

pub use block::{SCRATCH_SLOTS, ScratchSlot, ThreadBlock, offset, turn};
pub use record::{
    ADDRESS_AT, EventKind, FLAG_ADDRESS, FLAG_FOUND, FLAG_MASKED, FLUSHED_WORD_LEN, Header,
    MAX_VALUE_LEN, Record, Records, Runs, STAMP_AT, STAMP_TENTATIVE, SiteId, VALUE_AT,
};
pub use window::{PoolWindow, WINDOW_GUARD_LEN};

/// Version of everything in this crate. Runtime and host refuse each other if it differs.
pub const PROTOCOL_VERSION: u32 = 12;
