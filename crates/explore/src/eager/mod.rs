//! The strategy `eager`: every combination of what may survive, segment by segment.
//!
//! The idea is Yat's: record once, cut the trace into segments, and in each segment try every subset of
//! the stores that are not surely durable which the cache allows. A segment here is the interval
//! between two failure points of the model: its crash states are those of the moment at its end, just
//! before the next floor rises, and by subsumption those of every moment in it.
//!
//! - `SegmentPass`: one forward pass that stops at each segment and knows what its open lines can hold.
//! - [`Survey`]: how much there is, before anything runs.
//! - [`EagerStates`]: the crash states to run, one after the other: all of a segment below a threshold, a
//!   sample without repetition above it, and none twice.
//!
//! Deviations from Yat: (1) versions of a line that hold the same bytes are one, and equal images are
//! one, across segments too; (2) the sample always has the corners: nothing lost, all lost, and each
//! single line lost or kept; (3) what a line can hold is followed store by store, so a line that is
//! never flushed costs its new stores and not all of them at every segment.

mod count;
mod creation_spans;
mod line_versions;
mod open_versions;
mod pass;
mod states;
mod survey;
mod walk;

pub use count::Magnitude;
pub use open_versions::PassOptions;
pub use states::{EagerOptions, EagerState, EagerStates, VariedLines};
pub use survey::{SegmentCount, Survey};
