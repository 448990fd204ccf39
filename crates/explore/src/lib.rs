//! Failure points and strategies: where to let the power fail, and which crash states to try there.
//!
//! - [`FailurePointTree`]: one pass over a trace finds the failure points, deduplicated by call stack:
//!   a path of code that is passed a million times is worth a few failures, not a million.
//! - [`Plan`]: which of them to try within a budget, and what that leaves out.
//! - [`PointKeys`]: names of failure points that are the same in other traces of the program.
//! - [`Strategy`]: given the frontier at a failure point, which crash states, in which order.
//!   [`Prefix`] and [`LostLines`] are strategies.
//! - [`SegmentPass`], [`Survey`], [`EagerStates`]: eager exploration, every combination of what may
//!   survive. It goes on while a trace is passed, so it is no [`Strategy`] of one frontier.
//! - [`Representatives`]: which of many crash states come first under a budget.
//! - [`lazy`]: what a crash can leave is decided only when recovery reads it. Tables of what is possible,
//!   what choices rule out, whether one moment explains what was read, which failure points need no run,
//!   and failures during recovery.
//!
//! Knows no processes and no files: it reads a [`Trace`](powerfail_trace::Trace) and answers with
//! numbers. Crash images are the matter of `powerfail-image`. Everything here is a function of the
//! trace, the options and a seed.

mod creation;
mod digest;
mod eager;
mod granularity;
mod interleaving;
mod keys;
pub mod lazy;
mod lost_lines;
mod ordering;
mod plan;
mod point;
mod prefix;
mod random;
mod representatives;
mod samples;
mod strategy;
mod tree;

pub use digest::{DigestedImage, ImageDigest};
pub use eager::{
    EagerOptions, EagerState, EagerStates, LineVersions, Magnitude, PassOptions, Segment,
    SegmentCount, SegmentPass, Survey,
};
pub use granularity::Granularity;
pub use interleaving::Interleaving;
pub use keys::{PointKey, PointKeys, StackNames};
pub use lost_lines::{LostLine, LostLines};
pub use plan::{LeftOut, Plan, PlanOptions, PlannedPoint, runs_within};
pub use point::{FailurePoint, Trigger};
pub use powerfail_protocol::mark::{CREATION_BEGIN as CREATE_BEGIN, CREATION_END as CREATE_END};
pub use prefix::Prefix;
pub use random::Random;
pub use representatives::{GroupId, Representatives};
pub use strategy::{FrontierView, Strategy};
pub use tree::{FailurePointTree, StackPoints, TreeBuilder, TreeOptions};
