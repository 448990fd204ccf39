//! What a closure of a test may return.

use std::fmt::Debug;

/// The result of a closure: `()`, or a `Result` whose error is a failure.
pub trait Outcome {
    /// Why it failed, if it did.
    fn failure(self) -> Option<String>;
}

impl Outcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: Debug> Outcome for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| format!("{error:?}"))
    }
}
