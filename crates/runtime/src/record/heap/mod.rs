//! The heap of `--heap`: what the target allocates is persistent memory, at the same address in every
//! process.
//!
//! [`powerfail_protocol::memory`] says what lies where in its file. In a recording the heap is a pool like any
//! other, mapped when the target first allocates something; in a recovery the same file, as a crash has left
//! it, is mapped at the same place, and not recorded. Which calls are served here [`callers`] decides;
//! [`functions`] and [`operators`] are the calls, [`space`] gives out memory.
//!
//! # What the heap writes itself is durable at once
//!
//! Only what runs hold is written, as a store of the system and a sync of it, between marks that leave out
//! failure points there. So a crash shows what the target has done, never what the heap does.
//!
//! # What runs here
//!
//! No signal is blocked while memory is given out: in a recovery that is explored every access to the heap
//! may fault, and is ours to answer. As in the C library, handlers of signals must not allocate.

mod allocation;
mod callers;
mod functions;
mod operators;
mod space;

pub(crate) use allocation::{close, look_at_modules, say, start};
pub(crate) use callers::CHANGE;

/// In the child after fork.
pub(crate) fn reset_after_fork() {
    CHANGE.reset_after_fork();
    allocation::reset_after_fork();
}
