//! The errors of the executor.

use std::io;

use crate::error::RecordError;

/// Why a target cannot be executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// The target cannot be recorded, either.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The operating system refused something.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The command has no `{input}`.
    #[error("the command has no {{input}}, which stands for the input")]
    NoInput,
    /// The target does something that the executor does not support.
    #[error("the target cannot be fuzzed: {reason}")]
    Refused {
        /// What it does.
        reason: String,
    },
    /// The processes of the target do not follow the protocol.
    #[error("the target does not answer: {reason}")]
    Silent {
        /// What was expected.
        reason: String,
    },
    /// No image is open.
    #[error("no image is open")]
    NothingOpen,
}

impl ExecutorError {
    pub(crate) fn system(what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System {
            what,
            source: source.into(),
        }
    }
}
