//! Decides which test case comes next: corpus, priorities by PM paths, mutations. `LibAFL` does most of the work, but is
//! not visible outside of this crate.
//!
//! An [`Engine`] receives test cases and is stepped: a step takes one test case, runs many mutations of it on a [`Target`],
//! all on one image, and returns those that did something new. The engine knows images only by their ids. It does not make
//! or store them, and it starts no processes.
//!
//! A [`Learner`] finds out which commands a program understands, from what it does with its inputs.
//!
//! New coverage is that of PM paths, by algorithms 1 and 2 of `PMFuzz`: a test case that reaches a new location has high
//! priority, one with a counter in a new bucket medium priority. Others are kept only for their branches.

mod coverage;
mod engine;
pub mod exchange;
pub mod grammar;
mod learn;
pub mod minimise;
mod mutate;
mod target;
pub mod tokens;

pub use coverage::{Footprint, FootprintError, PathSet, Touched};
pub use engine::{Discovery, Engine, EngineOptions, EngineStats, KnownCase, Origin, Unstable};
pub use grammar::Grammar;
pub use learn::{Learner, Observation, Trial};
pub use powerfail_fuzz_store::{Priority, TestCase};
pub use target::{End, Target, TargetRun};
