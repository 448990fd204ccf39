//! What can go wrong, one sentence each.

use std::io;

use crate::error::RecordError;

/// Why a target cannot be repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// What is wrong for recording, too.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The operating system refused something.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The command has no place for the input.
    #[error("the command has no {{input}}, in whose place the input is to stand")]
    NoInput,
    /// The target does what cannot be repeated.
    #[error("the target cannot be repeated: {reason}")]
    Refused {
        /// What it does.
        reason: String,
    },
    /// The processes of the target do not do what they are told.
    #[error("the target does not answer: {reason}")]
    Silent {
        /// What was expected.
        reason: String,
    },
    /// Nothing was run yet.
    #[error("there is no image on which the target could run; open one first")]
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
