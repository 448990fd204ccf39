//! The error of one step of the isolation.

use std::borrow::Cow;
use std::io;

/// A step of the isolation that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {source}")]
pub(crate) struct StepError {
    step: Cow<'static, str>,
    source: io::Error,
}

impl StepError {
    /// `step` completes "cannot ...".
    pub(crate) fn new(step: impl Into<Cow<'static, str>>, error: impl Into<io::Error>) -> Self {
        Self {
            step: step.into(),
            source: error.into(),
        }
    }
}

impl From<StepError> for io::Error {
    fn from(error: StepError) -> Self {
        Self::other(error)
    }
}
