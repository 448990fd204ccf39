//! Findings of a campaign, and how far their test cases are minimised.

use std::fs;
use std::path::{Path, PathBuf};

use powerfail_finding::Finding;
use serde::{Deserialize, Serialize};

/// The file that describes the minimised test case of a finding.
pub const MINIMISED_FILE: &str = "minimised.json";

/// A finding and the directory of its evidence.
#[derive(Clone, Debug)]
pub struct StoredFinding {
    /// The finding.
    pub finding: Finding,
    /// Its directory, which `powerfail replay` can read.
    pub directory: PathBuf,
    /// How far its test case is minimised; `None` if that was not tried yet.
    pub minimised: Option<MinimisedInput>,
}

/// How far the test case of a finding is minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinimisedInput {
    /// Whether it can be minimised further.
    pub state: MinimisedState,
    /// The length of the input before, in bytes.
    pub from_bytes: u64,
    /// The length of the input now, in bytes.
    pub to_bytes: u64,
    /// The number of inputs that were tried.
    pub trials: u64,
}

/// Whether an input can be minimised further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MinimisedState {
    /// Nothing more can be left out.
    Complete,
    /// There was no time to try everything.
    CutShort,
    /// Its test case does not show the finding again.
    NotReproduced,
}

impl StoredFinding {
    /// The finding whose evidence is in a directory.
    pub fn new(finding: Finding, directory: PathBuf) -> Self {
        Self {
            finding,
            minimised: read_minimised(&directory),
            directory,
        }
    }
}

/// How far the test case of the finding in a directory is minimised; `None` if that was not tried yet. Campaigns of older
/// versions did not store it.
pub fn read_minimised(directory: &Path) -> Option<MinimisedInput> {
    #[derive(Deserialize)]
    struct Stored {
        minimised: MinimisedInput,
    }
    let text = fs::read(directory.join(MINIMISED_FILE)).ok()?;
    let stored: Stored = serde_json::from_slice(&text).ok()?;
    Some(stored.minimised)
}
