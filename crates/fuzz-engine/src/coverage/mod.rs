//! What test cases reach: counters by buckets, what was seen of them, and what of it can be relied on.

mod bucket;
mod footprint;
mod paths;
mod seen;

pub use bucket::bucket;
pub use footprint::{Footprint, FootprintError, Touched};
pub use paths::PathSet;
pub(crate) use seen::{Novelty, SeenCoverage};
