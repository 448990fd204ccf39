//! What a crash leaves of ordinary files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The crash of a tree of files: what is lost, by the rules of a file system. What is not named has survived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeCrash {
    /// Whose rules permit it: `linux` is at least one of ext4, xfs and btrfs.
    pub file_system: String,
    /// On which file systems recovery fails so.
    pub shows_on: Vec<FileSystemResult>,
    /// The lost operations on names, by their events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<u64>,
    /// The files whose length is not the newest one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lengths: Vec<LostFileLength>,
    /// The pages of files that do not have their newest content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<LostFilePage>,
}

impl TreeCrash {
    /// Whether everything before the failure has survived.
    pub const fn is_prefix(&self) -> bool {
        self.lost.is_empty() && self.lengths.is_empty() && self.pages.is_empty()
    }
}

/// Whether recovery fails on a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileSystemResult {
    /// The file system.
    pub file_system: String,
    /// Whether a crash can leave the state there.
    pub shows: bool,
}

/// A file whose length is not the newest one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostFileLength {
    /// The file, by its number in the trace.
    pub node: u32,
    /// The first event whose change of the length is lost, at least in part.
    pub first_lost: u64,
    /// The length that is left.
    pub len_bytes: u64,
}

/// A page of a file that does not have its newest content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostFilePage {
    /// The file, by its number in the trace.
    pub node: u32,
    /// The number of the page of 4096 bytes.
    pub page: u64,
    /// For each of its eight sectors the first event that is lost, with all later ones; none if nothing is lost.
    pub first_lost: Vec<Option<u64>>,
}

/// How many crashes of ordinary files were tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeTotals {
    /// Whose rules: `linux` is at least one of ext4, xfs and btrfs.
    pub file_system: String,
    /// Operations on files in the trace.
    pub operations: u64,
    /// Crash states that recovery was tried on.
    pub states: u64,
    /// Crash states that were the same tree as one that was tried, and did not run.
    pub repeated: u64,
    /// Crash states that differ from one that was tried only in the bytes of files that recovery did not open, and did not run.
    #[serde(default)]
    pub unread: u64,
    /// Failure points of which every crash state was tried.
    pub exhausted_points: u64,
    /// Failure points of which a selection of crash states was tried.
    pub sampled_points: u64,
    /// Crash states of power failures during recovery that recovery was tried on.
    #[serde(default)]
    pub second_states: u64,
}
