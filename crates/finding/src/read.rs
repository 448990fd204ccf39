//! What watching the reads of recovery adds to a finding and to a report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A read of recovery that is not safe, whether or not recovery survives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnsafeRead {
    /// The first failure point at which recovery reads it: the power fails just before this event.
    pub event: u64,
    /// At how many failure points it does.
    pub failure_points: u64,
    /// Which command reads: `recovery`, `checker`, or another one of the plan.
    pub command: String,
    /// What it reads if every store before the failure has survived, in hexadecimal; a prefix if it is long.
    pub bytes: String,
    /// What it reads if a store is lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instead: Vec<String>,
    /// Why the bytes are not surely durable, if that is what is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_durable: Option<NotDurable>,
    /// The trace that shows it, in the output directory, if that is not `run.trace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Only the strict rule finds it: all that the bytes can hold is equal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// What was tried to find out whether recovery fails because of it, if no run shows that it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<Tried>,
}

/// What was tried to make recovery fail because of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    /// The number of failure points at which recovery read another value: the store was lost while others survived, or
    /// memory that was never written held other bytes.
    pub other_value: u64,
    /// The number of failure points at which the store survived while others were lost.
    pub survivor: u64,
    /// How many of these times recovery failed with either value, so that nothing is blamed on the read.
    pub undecided: u64,
    /// Executions of recovery for all of that.
    pub executions: u64,
}

/// Why a store may be lost.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NotDurable {
    /// Nothing has flushed its line.
    NeverFlushed,
    /// Its line was flushed, and no fence has followed.
    NotFenced,
    /// Its line was flushed before the store.
    FlushedBefore,
}

/// How the reads of recovery were watched, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Races {
    /// Moments before an ordering point with something done since the last one.
    pub failure_points: u64,
    /// Those at which recovery was watched.
    pub watched: u64,
    /// Those that needed no run: recovery reads nothing that differs from an earlier one.
    pub unchanged: u64,
    /// Those at which it cannot be watched.
    pub refused: u64,
    /// Those that were not tried.
    pub not_tried: u64,
    /// Executions of recovery to watch it.
    pub executions: u64,
    /// Executions of recovery to confirm what was seen.
    pub confirmations: u64,
    /// Distinct pairs of a reader and a writer, of all kinds.
    pub pairs: u64,
    /// Pairs of which a run shows that recovery fails.
    pub confirmed: u64,
    /// Pairs that are not findings: recovery validates what it reads.
    #[serde(default)]
    pub validated: u64,
}
