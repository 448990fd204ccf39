//! A fuzzing campaign: workers execute test cases, what is new becomes images and goes through the checks.

mod error;
mod observer;
mod options;
mod stats;

use std::sync::Arc;

pub use error::CampaignError;
pub use observer::Observer;
pub use options::{CampaignOptions, Checks, InputWay, RecoveryOptions, Together};
pub use stats::Stats;

/// What a campaign has come to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// At its end.
    pub stats: Stats,
    /// The findings, with the directories of their evidence.
    pub findings: Vec<StoredFinding>,
    /// The user has stopped it.
    pub is_interrupted: bool,
}

/// A finding and its evidence.
#[derive(Clone, Debug)]
pub struct StoredFinding {
    /// The finding.
    pub finding: powerfail_finding::Finding,
    /// Its directory, which `powerfail replay` understands.
    pub directory: std::path::PathBuf,
}

/// Runs a campaign until its time is over, its executions are made or the observer says so. `runtime` are
/// the bytes of the library that is preloaded into the target.
pub fn run(
    options: &CampaignOptions,
    runtime: &Arc<[u8]>,
    observer: &dyn Observer,
) -> Result<Summary, CampaignError> {
    let _ = (options, runtime, observer);
    todo!("workers")
}
