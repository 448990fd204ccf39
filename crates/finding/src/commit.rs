//! Variables that seem to decide which other data is valid.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::place::SourcePlace;

/// A variable that looks like a commit variable, but was not annotated as one: a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InferredCommitVariable {
    /// The pool.
    pub pool: String,
    /// Where it is in the pool.
    pub offset: u64,
    /// How long it is.
    pub len_bytes: u64,
    /// How sure this is, in percent.
    pub confidence: u8,
    /// Where it is stored, each line of code once.
    pub stores: Vec<SourcePlace>,
    /// Where recovery reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<SourcePlace>,
    /// What recovery reads only with one of its values.
    pub decides: Vec<DecidedRange>,
    /// What speaks for it, and what does not: sentences.
    pub evidence: Vec<String>,
    /// Reads of it were taken as those of a commit variable.
    pub used: bool,
}

/// Bytes that recovery reads only with one of the values of a variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct DecidedRange {
    /// The pool.
    pub pool: String,
    /// Where they are in the pool.
    pub offset: u64,
    /// How many there are.
    pub len_bytes: u64,
    /// With which value they are read.
    pub read_with: ReadWith,
}

/// With which value of a variable something is read.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ReadWith {
    /// With the one that was stored last.
    New,
    /// With the one before, if that store is lost.
    Old,
}
