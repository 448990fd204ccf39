//! Coverage: counters in buckets, what was seen of them, and which locations are stable.

mod bucket;
mod footprint;
mod paths;
mod seen;

pub use footprint::{Footprint, FootprintError, Touched};
pub use paths::PathSet;
pub(crate) use seen::{Novelty, SeenCoverage};
