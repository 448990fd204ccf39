//! The host side of recording: starts the target, drains what the runtime in it appends, puts the
//! events in order and writes the trace.
//!
//! [`inspect()`] tells, before anything runs, whether a command can be recorded. [`record()`] runs it.
//! The route of an event:
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
//! 3. **Bounded memory.** The records that wait to be ordered are bounded. If a thread stops in the
//!    middle of an append for long, records are written out of order, and a warning says so.
//! 4. **A trace, always.** A target that crashes, is killed or replaced by exec leaves a complete trace
//!    of what it had committed. Records that were never committed are skipped and counted.
//! 5. **Checked.** Replaying the trace gives the final pools and trees, byte for byte.
//! 6. **Nothing is left behind**: no process, no descriptor, no file but the trace, even after an error.
//!
//! What this crate does not do: it does not decode instructions (`powerfail-patch`), does not find source
//! lines (`powerfail-symbol`), and does not print.

mod author;
mod backend;
mod check;
mod clock;
mod doorbell;
mod drain;
mod error;
mod executed;
pub mod executor;
mod fresh_pool;
mod generated_code;
mod glob;
mod input;
mod inspect;
pub mod interrupt;
pub mod limits;
mod mapping;
mod memory;
mod merge;
mod mounts;
mod options;
mod order_check;
mod output;
mod pool;
mod pool_filter;
mod process;
mod queue;
mod reader;
mod record;
mod replica;
mod shared_file;
mod site;
mod sleepers;
mod socket;
mod sparse;
mod stop;
mod target;
mod target_thread;
mod tree;
mod unperformed;
mod wait;
mod waiting;
mod written;

pub use author::trace_origin;
pub use backend::{Backend, emulator};
pub use error::{
    FirstDifference, RecordError, SelfCheckFailure, TreeCheckFailure, Unsupported, WrongOrder,
};
pub use fresh_pool::{FreshPath, input_path, pool_directory, pool_path};
pub use input::{Input, InputChannel, split_arguments};
pub use inspect::{Executable, check_machine, inspect};
pub use options::{PrivateTrees, RecordOptions};
pub use powerfail_protocol::memory::{
    HEAP_LEN_DEFAULT, HEAP_LEN_MAX, HEAP_VARIABLE, RANGES_VARIABLE,
};
pub use powerfail_protocol::shared::DESOCK_VARIABLE;
pub use powerfail_protocol::shared::{Mode, Schedule, Stacks};
pub use powerfail_trace::recording::{IgnoreReason, RecordingSummary, TargetStatus};
pub use record::{record, record_and_tell};
pub use stop::StopHandle;
