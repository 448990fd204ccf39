//! What can go wrong, one sentence each.

use std::io;
use std::path::{Path, PathBuf};

use powerfail_image::ImageId;

use crate::CaseNumber;

/// Why something cannot be kept, found or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// The operating system refused something.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Bytes contradict their checksum, the format, or each other, and it is not the end that a kill tears.
    #[error("{} is damaged at byte {at}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first byte of what is wrong.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// The file is of a version that this powerfail does not know.
    #[error("{} has a format that this powerfail does not read; update powerfail", path.display())]
    Version {
        /// The file.
        path: PathBuf,
    },
    /// There is no such image.
    #[error("there is no image {0} in this campaign")]
    UnknownImage(ImageId),
    /// An image is in the tree, but the pack ends before its contents.
    #[error("the contents of image {image} are missing in {}; it can be rebuilt from its path", path.display())]
    Missing {
        /// The image.
        image: ImageId,
        /// The pack.
        path: PathBuf,
    },
    /// There is no such test case.
    #[error("there is no test case {0} in this campaign")]
    UnknownCase(CaseNumber),
    /// An edge of the tree was followed and led elsewhere.
    #[error(
        "edge {edge} of the path to image {wanted} led to image {got} instead of {expected}: \
         the target does not do the same every time"
    )]
    OtherImage {
        /// The image that was to be rebuilt.
        wanted: ImageId,
        /// Which edge of its path, from 1.
        edge: usize,
        /// Where it leads.
        expected: ImageId,
        /// Where it led now.
        got: ImageId,
    },
    /// An edge of the tree could not be followed.
    #[error("edge {edge} of the path to image {wanted} cannot be run")]
    Rebuild {
        /// The image that was to be rebuilt.
        wanted: ImageId,
        /// Which edge of its path, from 1.
        edge: usize,
        /// Why.
        source: io::Error,
    },
    /// What was opened to be read only cannot be added to.
    #[error("{} was opened to be read only", path.display())]
    ReadOnly {
        /// The directory.
        path: PathBuf,
    },
    /// Another process works on the directory.
    #[error("{} is in use by {by}; give another --out, or wait until it has ended", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Who has it, as far as is known.
        by: String,
    },
    /// A new campaign would overwrite an old one.
    #[error("{} holds a campaign already; give --resume to continue it, or another --out", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// There is nothing to continue.
    #[error("{} holds no campaign", path.display())]
    NoCampaign {
        /// The directory.
        path: PathBuf,
    },
}

/// What most functions here give.
pub type Result<T, E = CorpusError> = std::result::Result<T, E>;

impl CorpusError {
    /// Adds to an error of the operating system what was tried on which file.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File {
            what,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn damaged(path: &Path, at: u64, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            at,
            what: what.into(),
        }
    }

    /// Whether no room was left: the disk is full, or a quota or a limit of sizes is reached. What was to be
    /// kept is not kept, and everything else is as it was; it may be tried again.
    pub fn is_full(&self) -> bool {
        match self {
            Self::File { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::FileTooLarge
            ),
            _ => false,
        }
    }
}
