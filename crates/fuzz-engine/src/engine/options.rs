//! The options of an engine.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::coverage::PathSet;
use crate::grammar::Grammar;

/// The options of an engine. All fields have defaults.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The seed of all random decisions. With the same seed, the same calls and the same answers of the target (including
    /// times), an engine does the same.
    pub seed: u64,
    /// Words that inputs of this program contain.
    pub tokens: Vec<Vec<u8>>,
    /// What inputs look like.
    pub grammar: Option<Arc<Grammar>>,
    /// The maximum length of inputs.
    pub max_input_bytes: usize,
    /// How many mutated inputs are run in a step.
    pub runs_per_step: RangeInclusive<u64>,
    /// How many times a new test case is run again to find unstable locations.
    pub calibration_runs: u32,
    /// The PM paths that all workers of a campaign have seen.
    pub paths: Arc<PathSet>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            tokens: Vec::new(),
            grammar: None,
            max_input_bytes: 8 << 10,
            runs_per_step: 50..=400,
            calibration_runs: 2,
            paths: Arc::default(),
        }
    }
}
