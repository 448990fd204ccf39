//! Where to let the power fail, and which crash states to try there.
//!
//! - [`FailurePointsByStack`]: one pass over a trace finds the failure points, deduplicated by call stack:
//!   code that runs a million times deserves a few failures, not a million.
//! - [`Plan`]: which of them to try within a budget, and what the budget leaves out.
//! - [`PointKeys`]: names of failure points that stay the same in other traces of the program.
//! - [`LostLines`]: the crash state in which chosen lines are lost and everything else survives.
//! - [`Survey`], [`EagerStates`]: eager exploration, every combination of what may survive.
//! - [`Representatives`]: which of many crash states come first under a budget.
//! - [`tree_plan`]: which crash states of ordinary files are tried, and in which order.
//! - [`lazy`]: lazy exploration, where the content of a line is chosen only when recovery reads it.
//!
//! This crate starts no processes and opens no files: it reads a [`Trace`](powerfail_trace::Trace) and computes.
//! Crash images are made by `powerfail-image`, recoveries are run by `powerfail-oracle`, and `powerfail-check` joins
//! them. Every result is a function of the trace, the options and a seed.

mod by_stack;
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
mod representatives;
mod samples;
mod trees;

pub use by_stack::{FailurePointOptions, FailurePointsByStack, PointSearch, StackPoints};
pub use digest::ImageDigest;
pub use eager::{
    EagerOptions, EagerState, EagerStates, Magnitude, PassOptions, SegmentCount, Survey,
    VariedLines,
};
pub use granularity::{Granularity, OperationKind};
pub use interleaving::Interleaving;
pub use keys::{PointKey, PointKeys, StackNames};
pub use lost_lines::{LostLines, OlderVersion};
pub use plan::{LeftOut, Plan, PlanOptions, PlannedPoint, runs_within, spread};
pub use point::{FailurePoint, Trigger};
pub use powerfail_protocol::random::Random;
pub use representatives::{GroupId, Representatives};
pub use trees::{
    Aim, OperationAt, PlannedState, TreePlan, TreePlanOptions, prefix_places, tree_plan,
};
