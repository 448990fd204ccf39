//! What to change in the program, as operations on its trace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A change of the program that was verified on the trace. The suggestion of the finding says it in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fix {
    /// Always true. The changes were applied to the recorded events: no moment of the changed trace permits the crash
    /// state of the finding or, where something is removed, one that was not possible before. What cannot be verified
    /// is no fix.
    pub verified: bool,
    /// The changes, in the order of the trace.
    pub changes: Vec<Change>,
}

impl Fix {
    /// A fix that was verified.
    pub const fn verified(changes: Vec<Change>) -> Self {
        Self {
            verified: true,
            changes,
        }
    }
}

/// One change: an operation is inserted into the trace, or removed from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// What to do.
    pub action: Action,
    /// With which operation.
    pub operation: Operation,
    /// Right after this event, or the event that is removed: its number in the trace. The same applies to all other
    /// events of this line of code.
    pub event: u64,
    /// The source file of the event, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its line, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The pool, by its number in the trace, if the operation is about a range of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<u32>,
    /// The first byte of that range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_offset: Option<u64>,
    /// How many bytes it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub len_bytes: Option<u64>,
}

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The operation is added.
    Insert,
    /// It is taken away.
    Remove,
}

/// What is added or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// A flush of the lines of a range.
    Flush,
    /// A fence.
    Fence,
    /// `msync` or `fdatasync` of a range.
    Sync,
    /// `fsync` of a file.
    SyncFile,
    /// `fsync` of a directory.
    SyncDirectory,
    /// The range becomes a part of the transaction, before the event.
    Add,
}
