//! Repeats a target, thousands of times a second: the host side of the fork server in the runtime.
//!
//! A [`Repeater`] starts the target once. It is told an image with [`Repeater::open`] and inputs with
//! [`Repeater::run`]; what an execution covered and left is there until the next one.

mod arguments;
mod directory;
mod error;
mod fold;
mod mappings;
mod options;
mod outcome;
mod places;
mod repeater;
mod session;
mod trace;

pub use arguments::split_arguments;
pub use error::RepeatError;
pub use options::{InputWay, RepeatOptions};
pub use outcome::{Coverage, End, Opened, Outcome, Speed, SpeedReport};
pub use repeater::Repeater;
pub use trace::{TraceLocation, locations_of};
