//! Executes a target thousands of times a second, for fuzzing: the host side of the fork server in the runtime.
//!
//! An [`Executor`] starts the target once. [`Executor::open`] lets it open an image, [`Executor::run`] executes it with
//! an input on that image. The coverage of an execution and the pool that it left can be read until the next one.
//!
//! This is a module of the recorder, not a crate, because it shares most of the recorder's inside: how the target is
//! launched with the runtime preloaded, the shared memory with its chunks, the messages of the runtime, the directory
//! of the pool, and the inspection of executables. About twenty items would have to become public for a crate.

mod directory;
mod error;
mod fold;
mod fork_server;
mod mappings;
mod observation;
mod options;
mod outcome;
mod places;
mod session;
mod trace;

pub use error::ExecutorError;
pub use fork_server::Executor;
pub use observation::Observation;
pub use options::ExecutorOptions;
pub use outcome::{Coverage, End, Opened, Outcome, Speed, SpeedReport};
pub use trace::{TraceLocation, locations_of};
