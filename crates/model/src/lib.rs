//! What may survive a crash.
//!
//! Pure: no input or output, no clock, no randomness, and no error on well-formed events. The
//! semantics is stated in `tests/litmus/README.md`, and the files beside it test it:
//!
//! - [`Frontier`]: a recorded trace, one forward pass. Feed it [`Step`]s; at any position it knows
//!   the durable floors, the open lines with their versions, the number of crash states, and
//!   whether the next event is worth a failure.
//! - [`files`]: the names, lengths and data of ordinary files, changed by system calls.
//! - [`program`]: a small multi-threaded program, explored exhaustively with its store buffers.

mod event;
pub mod files;
mod frontier;
mod ids;
mod image;
mod line;
mod open_lines;
pub mod program;
mod rules;
mod states;
mod version_counts;

pub use event::{Event, FenceKind, FlushKind, Step, StoreKind};
pub use frontier::{FailurePoints, Frontier};
pub use ids::{EventIndex, LineId, LineIndex, Place, PoolIndex, PoolOffset, ThreadIndex};
pub use image::{Image, SparseImage};
pub use line::{OpenLine, OpenStore};
pub use num_bigint::BigUint;
pub use rules::{Atomicity, Domain, Rules};
pub use states::{CrashState, CrashStates};
