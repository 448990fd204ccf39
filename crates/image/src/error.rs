//! What can go wrong, one sentence each.

use std::io;
use std::path::{Path, PathBuf};

use powerfail_model::{EventIndex, LineId};
use powerfail_trace::TraceError;

/// Why there is no crash image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
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
    /// There is no room for the images.
    #[error("no room is left for the crash image {}; give another directory for images", path.display())]
    NoRoom {
        /// What could not be written.
        path: PathBuf,
    },
    /// The pages of the pools take more memory than is allowed.
    #[error("the pools of this trace need more than {limit_bytes} bytes of memory")]
    TooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// A pass goes forward only.
    #[error("the pass is at event {position} already and cannot go back to {wanted}")]
    Backwards {
        /// Where it is.
        position: EventIndex,
        /// Where it was sent.
        wanted: EventIndex,
    },
    /// The trace ends before.
    #[error("the trace has {event_count} events, and there is no moment {wanted}")]
    BeyondEnd {
        /// Where it ends.
        event_count: u64,
        /// Where the pass was sent.
        wanted: EventIndex,
    },
    /// A crash state names a version that its line does not have here.
    #[error("pool {} line {} has no version {version} at this moment", line.pool, line.line)]
    NoSuchVersion {
        /// The line.
        line: LineId,
        /// The version.
        version: usize,
    },
    /// A crash state names versions, but the pass keeps no frontier.
    #[error("a crash state with older versions needs a pass that keeps the frontier")]
    NoFrontier,
    /// A companion is not a regular file.
    #[error("{} is no regular file and cannot go with the pools", path.display())]
    NotACompanion {
        /// The path.
        path: PathBuf,
    },
}

/// The result of this crate's functions.
pub type Result<T, E = ImageError> = std::result::Result<T, E>;

/// Gives an error of the operating system its path.
pub(crate) trait Context<T> {
    fn context(self, what: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| {
            let source: io::Error = error.into();
            let path = path.to_path_buf();
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    ImageError::NoRoom { path }
                }
                _ => ImageError::File { what, path, source },
            }
        })
    }
}
