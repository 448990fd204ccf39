//! Why a campaign ends early.

use std::path::PathBuf;

use thiserror::Error;

/// See the module header. Whatever was reported before is on disk, and the campaign can be resumed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CampaignError {
    /// There is no room for what has to be kept.
    #[error(
        "no room is left in {}: the campaign has stopped, and --resume goes on with it when there is",
        path.display()
    )]
    NoRoom {
        /// Where.
        path: PathBuf,
    },
}
