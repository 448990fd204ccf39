//! Which test case comes next: corpus, priorities by PM paths, mutators. `LibAFL` does the work; nothing of
//! it is visible outside of this crate.
//!
//! An [`Engine`] is fed with test cases and steps: a step takes one test case and runs many mutations of it on
//! a [`Target`], all on one image, and returns what did something new. It knows images by their names only;
//! who makes them, stores them and runs programs on them is somebody else.
//!
//! What counts as new are PM paths, algorithms 1 and 2 of `PMFuzz`: a location that was never reached has
//! high priority, a counter in a new bucket medium priority; else a test case is kept only for its branches.

mod coverage;
mod engine;
pub mod exchange;
pub mod grammar;
pub mod minimise;
mod mutate;
mod target;
pub mod tokens;

pub use coverage::{Footprint, FootprintError, PathSet, Touched, bucket};
pub use engine::{Discovery, Engine, EngineOptions, EngineStats, KnownCase, Origin, Unstable};
pub use grammar::Grammar;
pub use mutate::Comparison;
pub use powerfail_fuzz_store::{Priority, TestCase};
pub use target::{End, Execution, Target};
