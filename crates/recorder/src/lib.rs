//! The host side of recording: starts the target, drains what the runtime in it appends, puts the
//! events in order and writes the trace.
//!
//! [`inspect()`] says before anything runs whether a command can be recorded. [`record()`] runs it.
//! The way of an event:
//!
//! ```text
//! chunk in shared memory ──reader──▶ queue of its thread ──merge──▶ translate ──▶ trace
//! socket ──message──▶ processes, threads, modules, sites, pools ───────▲
//! ```
//!
//! # Duties of this crate, whatever the target does
//!
//! 1. **Nothing is dropped.** A chunk is given back only after all of it has been read. A target
//!    that is faster than the host waits for a chunk.
//! 2. **Order.** Records of all threads are written by ascending stamp, ties by thread and position.
//!    A record is written once no thread can still deliver an older one.
//! 3. **Bounded memory.** What waits for its place is bounded; only if a thread stands still in the
//!    middle of an append for long, order gives way, and a warning says so.
//! 4. **A trace, always.** A target that crashes, is killed or leaves by exec leaves a complete trace
//!    of what it had committed. Records that were never committed are skipped and counted.
//! 5. **Checked.** Replaying the trace gives the pools as they are at the end, byte for byte.
//! 6. **Nothing is left behind**: no process, no descriptor, no file but the trace, also on errors.
//!
//! What this crate does not do: it knows no instructions (`powerfail-patch`), does not look for
//! sources (`powerfail-symbol`), and does not print.

mod check;
mod clock;
mod doorbell;
mod error;
mod fresh_pool;
mod glob;
mod input;
mod inspect;
mod launch;
mod mapping;
mod memory;
mod merge;
mod message;
mod options;
mod output;
mod pool;
mod pool_filter;
mod process;
mod queue;
mod reader;
mod record;
pub mod repeat;
mod replica;
mod session;
mod shared_file;
mod signals;
mod site;
mod sleepers;
mod sparse;
mod summary;
mod target_thread;
mod unperformed;
mod wait;

pub use error::{FirstDifference, RecordError, SelfCheckFailure, Unsupported};
pub use fresh_pool::{input_path, pool_directory, pool_path};
pub use input::Input;
pub use inspect::{Executable, inspect};
pub use options::Options;
pub use powerfail_protocol::memory::{
    HEAP_LEN_DEFAULT, HEAP_LEN_MAX, HEAP_VARIABLE, RANGES_VARIABLE,
};
pub use powerfail_protocol::shared::DESOCK_VARIABLE;
pub use powerfail_protocol::shared::{Mode, Schedule, Stacks};
pub use record::record;
pub use summary::{
    ClientRequests, IgnoreReason, IgnoredFile, PoolSummary, Summary, TacticCounts, TargetStatus,
};
