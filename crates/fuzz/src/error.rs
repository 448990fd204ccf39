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
    /// What is kept.
    #[error(transparent)]
    Corpus(powerfail_fuzz_store::CorpusError),
    /// The target cannot be recorded.
    #[error(transparent)]
    Record(#[from] powerfail_recorder::RecordError),
    /// The target cannot be repeated.
    #[error(transparent)]
    Repeat(#[from] powerfail_recorder::repeat::RepeatError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] powerfail_trace::TraceError),
    /// An image cannot be made.
    #[error(transparent)]
    Image(#[from] powerfail_image::ImageError),
    /// A check cannot be made.
    #[error(transparent)]
    Check(powerfail_check::CheckError),
    /// Evidence cannot be kept.
    #[error(transparent)]
    Evidence(powerfail_check::output_directory::DirectoryError),
    /// A file of the user.
    #[error("{}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        source: std::io::Error,
    },
    /// What the user has given.
    #[error("{0}")]
    Wrong(String),
    /// What the target does.
    #[error("{0}")]
    Target(String),
    /// Somebody wants everything to stop.
    #[error("interrupted")]
    Interrupted,
}

impl CampaignError {
    /// Names the file that an error is about.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::NoRoom { path }
            }
            _ => Self::File { path, source },
        }
    }
}

impl From<powerfail_fuzz_store::CorpusError> for CampaignError {
    fn from(error: powerfail_fuzz_store::CorpusError) -> Self {
        match &error {
            powerfail_fuzz_store::CorpusError::File { path, .. } if error.is_full() => {
                Self::NoRoom { path: path.clone() }
            }
            _ => Self::Corpus(error),
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
