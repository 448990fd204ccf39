//! The errors of this crate.

use std::io;
use std::path::{Path, PathBuf};

use powerfail_image::ImageId;

use crate::CaseNumber;

/// Why something cannot be stored, found or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operating system refused something.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Bytes contradict their checksum, the format or each other, before the end that a kill may leave incomplete.
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
    #[error("{} has a newer format than this powerfail reads; update powerfail", path.display())]
    Version {
        /// The file.
        path: PathBuf,
    },
    /// There is no such image.
    #[error("no image {0} in this campaign")]
    UnknownImage(ImageId),
    /// An image is in the tree, but the pack ends before its contents.
    #[error("the contents of image {image} are missing in {}; powerfail fuzz repair makes them again", path.display())]
    Missing {
        /// The image.
        image: ImageId,
        /// The pack.
        path: PathBuf,
    },
    /// There is no such test case.
    #[error("no test case {0} in this campaign")]
    UnknownCase(CaseNumber),
    /// An edge of the tree led to another image.
    #[error(
        "edge {edge} of the path to image {wanted} led to image {got} instead of {expected}: \
         the target is not deterministic"
    )]
    OtherImage {
        /// The image that was to be rebuilt.
        wanted: ImageId,
        /// Which edge of its path, from 1.
        edge: usize,
        /// The image that it led to when it was stored.
        expected: ImageId,
        /// The image that it led to now.
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
    /// An image that the user gave is lost. No run of the target leads to it.
    #[error("image {image} was given as `{name}` by --images, and that directory has it no more")]
    GivenLost {
        /// The image.
        image: ImageId,
        /// Its name.
        name: String,
    },
    /// An image cannot be rebuilt, because the image that it was made from is lost.
    #[error("image {image} was made from image {parent}, which is lost")]
    ParentLost {
        /// The image.
        image: ImageId,
        /// The image that it was made from.
        parent: ImageId,
    },
    /// The user has interrupted powerfail while images were rebuilt.
    #[error("interrupted")]
    Interrupted,
    /// The files were opened for reading only.
    #[error("{} was opened for reading only", path.display())]
    ReadOnly {
        /// The directory.
        path: PathBuf,
    },
    /// Another process uses the directory.
    #[error("{} is in use by {by}; give another --out, or wait until that process has ended", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that uses it, if it is known.
        by: String,
    },
    /// A new campaign would overwrite an old one.
    #[error("{} already contains a campaign; give --resume to continue it, or another --out", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// There is no campaign to resume.
    #[error("no campaign in {}", path.display())]
    NoCampaign {
        /// The directory.
        path: PathBuf,
    },
}

/// The result of most functions of this crate.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

impl StoreError {
    /// Adds the operation and the file to an error of the operating system.
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

    /// Whether the disk is full, or a quota or a size limit is reached. Nothing has changed then, and the call can be
    /// repeated.
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
