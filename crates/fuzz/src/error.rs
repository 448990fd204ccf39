//! The errors that end a campaign.

use std::path::PathBuf;

use thiserror::Error;

/// Why a campaign ended early. Everything that was reported before is on disk, and the campaign can be resumed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CampaignError {
    /// The disk is full.
    #[error(
        "no space left in {}; free some, then continue with --resume",
        path.display()
    )]
    DiskFull {
        /// The file that could not be written.
        path: PathBuf,
    },
    /// The campaign directory cannot be used.
    #[error(transparent)]
    Store(powerfail_fuzz_store::StoreError),
    /// The target cannot be recorded.
    #[error(transparent)]
    Record(#[from] powerfail_recorder::RecordError),
    /// The target cannot be executed.
    #[error(transparent)]
    Execute(#[from] powerfail_recorder::executor::ExecutorError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] powerfail_trace::TraceError),
    /// An image cannot be made.
    #[error(transparent)]
    Image(#[from] powerfail_image::ImageError),
    /// A check cannot be made.
    #[error(transparent)]
    Check(powerfail_check::CheckError),
    /// Evidence cannot be stored.
    #[error(transparent)]
    Evidence(powerfail_check::output_directory::DirectoryError),
    /// A file cannot be read or written.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An option or an input file of the user is invalid.
    #[error("{0}")]
    Wrong(String),
    /// The target behaves in a way that does not allow fuzzing.
    #[error("{0}")]
    Target(String),
    /// The user has interrupted powerfail.
    #[error("interrupted")]
    Interrupted,
}

impl CampaignError {
    /// Adds the file to an error of the operating system.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { path }
            }
            _ => Self::File { path, source },
        }
    }
}

impl From<powerfail_fuzz_store::StoreError> for CampaignError {
    fn from(error: powerfail_fuzz_store::StoreError) -> Self {
        match &error {
            powerfail_fuzz_store::StoreError::File { path, .. } if error.is_full() => {
                Self::DiskFull { path: path.clone() }
            }
            _ => Self::Store(error),
        }
    }
}

impl From<powerfail_check::output_directory::DirectoryError> for CampaignError {
    fn from(error: powerfail_check::output_directory::DirectoryError) -> Self {
        match error {
            powerfail_check::output_directory::DirectoryError::File { path, source } => {
                Self::file(&path)(source)
            }
            other => Self::Evidence(other),
        }
    }
}

impl From<powerfail_check::CheckError> for CampaignError {
    fn from(error: powerfail_check::CheckError) -> Self {
        match error {
            powerfail_check::CheckError::Interrupted => Self::Interrupted,
            other => Self::Check(other),
        }
    }
}
