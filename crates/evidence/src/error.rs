//! What can go wrong with evidence.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why evidence cannot be kept or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EvidenceError {
    /// A file or directory.
    #[error("{}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What a file says is not what it should.
    #[error("{}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Somebody else writes to the directory.
    #[error("{} is in use by another run; give another --out", path.display())]
    InUse {
        /// Which.
        path: PathBuf,
    },
    /// No regular expression.
    #[error("`{text}` is not a regular expression")]
    Pattern {
        /// What was given.
        text: String,
        /// What is wrong with it.
        source: regex::Error,
    },
    /// No readiness check.
    #[error("{0}")]
    Ready(String),
}

impl EvidenceError {
    /// Names the file that an error is about.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        |source| Self::File { path, source }
    }

    /// Names the file whose content is wrong.
    pub(crate) fn damaged(path: &Path) -> impl FnOnce(serde_json::Error) -> Self {
        let path = path.to_path_buf();
        |source| Self::Damaged { path, source }
    }
}
