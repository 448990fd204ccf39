//! What exploring all that a crash can leave adds to a finding and to a report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::place::SourcePlace;

/// A load of recovery that could have read from several stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// The load, with the calls that led to it.
    pub load: SourcePlace,
    /// What it could have read from, the newest store first.
    pub sources: Vec<Source>,
    /// Whether recovery would have succeeded with another one.
    pub decisive: bool,
}

/// Something that a load could have read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// The newest store that has reached memory; nothing if it is what was surely there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<SourcePlace>,
    /// What the load reads then, in hexadecimal, lowest address first; a prefix if it is long.
    pub bytes: String,
    /// Whether it was this one.
    pub taken: bool,
}

/// A power failure during the recovery from an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecondFailure {
    /// How often the power has failed by then: 2 or more.
    pub failures: u32,
    /// How many stores, flushes and fences the recovery that was interrupted had made.
    pub events: u64,
    /// What it had made of the pools, as far as that survives.
    pub written: Vec<Written>,
}

/// Bytes of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// The pool, by its number in the trace.
    pub pool: u32,
    /// The offset of the first byte.
    pub pool_offset: u64,
    /// The bytes, in hexadecimal, lowest address first.
    pub bytes: String,
}

/// How far the crash states of a run were explored, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exploration {
    /// Moments that cover all crash states of the run.
    pub failure_points: u64,
    /// Those at which everything that recovery can observe was tried.
    pub exhaustive: u64,
    /// Those of them that needed no run: other failure points had shown all that recovery can observe there.
    pub unchanged: u64,
    /// Those at which only a part was tried, chosen at random.
    pub sampled: u64,
    /// Those that were not tried.
    pub not_tried: u64,
    /// Power failures during recovery that were explored.
    pub second_failures: u64,
    /// Executions of recovery.
    pub executions: u64,
    /// Executions that were not needed, because an earlier failure point had shown the same.
    pub executions_saved: u64,
    /// Loads that could read from several stores, over all executions.
    pub choices: u64,
    /// How many crash states trying each of them would take: decimal, rounded if it is large.
    pub states: String,
}

/// Eager exploration, in numbers: how many combinations of what may survive there are, and how many were
/// tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Eager {
    /// Stores of the run.
    pub writes: u64,
    /// Flushes of the run.
    pub flushes: u64,
    /// Fences of the run.
    pub fences: u64,
    /// Segments that were to be tried.
    pub segments: u64,
    /// Combinations of different contents in all of them: decimal, rounded if it is large.
    pub combinations: String,
    /// The same, where stores that change nothing and contents that come back count, too.
    pub raw_combinations: String,
    /// Segments with more combinations than this were sampled.
    pub threshold: u64,
    /// How many combinations of such a segment were chosen.
    pub sample: u64,
    /// Segments of which all combinations were chosen.
    pub exhaustive_segments: u64,
    /// Their combinations.
    pub exhaustive_combinations: u64,
    /// Combinations that were chosen, in all segments.
    pub chosen: u64,
    /// Of these, how many were not run because an earlier one has the same image.
    pub equal_images: u64,
    /// Crash states on which recovery ran.
    pub run: u64,
    /// Those on which it failed.
    pub failed: u64,
    /// Kinds of crash states: by call stack at the failure, and by the stores that are lost and kept.
    pub groups: u64,
    /// Kinds of which at least one state was run.
    pub groups_covered: u64,
    /// What is known about the reads of recovery, if it was watched: only lines that it reads are varied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<EagerReads>,
}

/// How eager exploration used what recovery reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EagerReads {
    /// Crash images on which recovery was watched.
    pub images: u64,
    /// Lines that can be lost and were not varied, because recovery does not read them; over all segments.
    pub unread_lines: u64,
    /// Combinations of the lines that recovery reads: decimal, rounded if it is large.
    pub combinations: String,
}
