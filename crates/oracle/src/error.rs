//! What can go wrong with the set-up, one sentence each. A recovery that fails is a verdict, not one
//! of these.

use std::io;
use std::path::PathBuf;

/// Why recovery could not be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OracleError {
    /// A command has no words.
    #[error("the {command} command is empty")]
    EmptyCommand {
        /// Which.
        command: &'static str,
    },
    /// There is no such program.
    #[error("{} (the {command} command) is not there; check the name and PATH", program.display())]
    NotFound {
        /// Which.
        command: &'static str,
        /// What was looked for.
        program: PathBuf,
    },
    /// The program is there but may not be executed.
    #[error("{} (the {command} command) is not executable; check its permissions", program.display())]
    NotExecutable {
        /// Which.
        command: &'static str,
        /// The file.
        program: PathBuf,
    },
    /// The program could not be started.
    #[error("cannot start {} (the {command} command): {source}", program.display())]
    Start {
        /// Which.
        command: String,
        /// The file.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A string has a zero byte in it.
    #[error("`{text}` contains a zero byte, which no program can be given")]
    ZeroByte {
        /// The string.
        text: String,
    },
    /// There is no pool to recover.
    #[error("there is no pool to run recovery on")]
    NoPool,
    /// A path is relative where it cannot be.
    #[error("{} is not an absolute path", path.display())]
    Relative {
        /// The path.
        path: PathBuf,
    },
    /// The paths of pools cannot be covered, and that was asked for.
    #[error(
        "cannot give recovery a view of its own of the file system: {reason}; try to substitute paths"
    )]
    NoNamespace {
        /// Why.
        reason: String,
    },
    /// A file or directory of the plan cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The dump is longer than allowed.
    #[error("the dump is longer than {max_bytes} bytes; print less")]
    DumpTooLong {
        /// The limit.
        max_bytes: u64,
    },
    /// The operating system refused something.
    #[error("cannot {what}: {reason}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        reason: String,
    },
    /// Recovery does something that cannot be explored.
    #[error("recovery cannot be explored: {reason}")]
    NotExplorable {
        /// What.
        reason: String,
    },
    /// Recovery does something that forbids to fork it. The image must be prepared again, and executions be
    /// asked for one by one.
    #[error("recovery cannot be forked: {reason}")]
    NotForkable {
        /// What.
        reason: String,
    },
    /// The snapshot that recovery was forked from was lost, with the image half recovered. The image must be
    /// prepared again; it will be run without a snapshot.
    #[error("the recovery command could not be forked: {reason}")]
    SnapshotLost {
        /// Why.
        reason: String,
    },
    /// The process that starts recoveries has died.
    #[error("the process that starts recoveries has ended; was it killed, or is memory short?")]
    ZygoteDied,
}

impl OracleError {
    pub(crate) fn system(what: &'static str, error: &dyn std::fmt::Display) -> Self {
        Self::System {
            what,
            reason: error.to_string(),
        }
    }
}
