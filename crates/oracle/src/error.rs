//! Errors of the set-up, one sentence each. A recovery that fails is a verdict, not an error.

use std::io;
use std::path::PathBuf;

use crate::verdict::Stage;

/// Why recovery could not be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OracleError {
    /// A command has no words.
    #[error("the {command} command is empty")]
    EmptyCommand {
        /// The command.
        command: Stage,
    },
    /// The program of a command does not exist.
    #[error("{} (the {command} command) was not found; check the name and PATH", program.display())]
    NotFound {
        /// The command.
        command: Stage,
        /// Its program.
        program: PathBuf,
    },
    /// The program of a command exists but may not be executed.
    #[error("{} (the {command} command) is not executable; check its permissions", program.display())]
    NotExecutable {
        /// The command.
        command: Stage,
        /// Its program.
        program: PathBuf,
    },
    /// The program of a command could not be started.
    #[error("cannot start {} (the {command} command): {source}", program.display())]
    Start {
        /// The command.
        command: Stage,
        /// Its program.
        program: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An argument or variable contains a zero byte.
    #[error("`{text}` contains a zero byte, which cannot be passed to a program")]
    ZeroByte {
        /// The argument or variable.
        text: String,
    },
    /// There is no pool to recover.
    #[error("there is no pool to run recovery on")]
    NoPool,
    /// A path is relative where it must be absolute.
    #[error("{} is not an absolute path", path.display())]
    Relative {
        /// The path.
        path: PathBuf,
    },
    /// Images cannot be mounted over pools, and the settings require it.
    #[error("cannot isolate recovery in namespaces: {reason}; try path substitution instead")]
    NoNamespace {
        /// The reasons, joined by semicolons.
        reason: String,
    },
    /// Images cannot be mounted over pools, and recovery does not get the path of its pool from us.
    #[error(
        "recovery would open the pool itself: namespaces are not available ({reason}), and no argument or variable of \
         recovery is the path of the pool; pass {{pool}} to it"
    )]
    PoolNotNamed {
        /// Why there are no namespaces.
        reason: String,
    },
    /// A file or directory of the plan cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The dump is longer than allowed.
    #[error("the dump is longer than {max_bytes} bytes; print less")]
    DumpTooLong {
        /// The limit.
        max_bytes: u64,
    },
    /// The operating system refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried; completes "cannot ...".
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Recovery does something that cannot be explored.
    #[error("recovery cannot be explored: {reason}")]
    NotExplorable {
        /// What it does.
        reason: String,
    },
    /// Recovery does something that cannot be explored by forking. Prepare the image again, and ask for
    /// executions one by one.
    #[error("recovery cannot be forked: {reason}")]
    NotForkable {
        /// What it does.
        reason: String,
    },
    /// The snapshot that recovery was forked from ended during a run. Prepare the image again; it will be run
    /// without a snapshot.
    #[error("the recovery command could not be forked: {reason}")]
    SnapshotLost {
        /// What happened to the snapshot.
        reason: String,
    },
    /// The process that starts recoveries has died.
    #[error("the process that starts recoveries has ended; it was killed, or memory ran out")]
    ZygoteDied,
}

impl OracleError {
    /// For `map_err`: the error of an action, which completes "cannot ...".
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::System {
            action,
            source: error.into(),
        }
    }
}
