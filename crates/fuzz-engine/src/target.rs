//! The interface to the code that runs test cases.

use std::time::Duration;

use powerfail_image::ImageId;

use crate::Observation;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The process exited with this code, which is never a crash.
    Exit(i32),
    /// This signal killed the process.
    Signal(i32),
    /// It timed out and was killed.
    Timeout,
}

impl End {
    /// Whether the process exited.
    #[must_use]
    pub fn is_normal(self) -> bool {
        matches!(self, Self::Exit(_))
    }
}

/// The result of a run, borrowed from the target.
#[derive(Clone, Copy, Debug)]
pub struct TargetRun<'a> {
    /// How it ended.
    pub end: End,
    /// Counters of PM path locations, not in buckets.
    pub pm: &'a [u8],
    /// Counters of branches; empty if the program has none.
    pub branches: &'a [u8],
    /// How long it took. The power schedule prefers fast test cases.
    pub elapsed: Duration,
    /// It ended before it read its input, so all inputs on this image have the same result.
    pub input_untouched: bool,
}

/// Runs test cases.
pub trait Target {
    /// The error of a failed run. It ends the step.
    type Error;

    /// Runs the program with an input on an image. Consecutive calls often have the same image, so implementations should
    /// keep it open.
    ///
    /// # Errors
    /// The program cannot be run. A crash is not an error.
    fn run(&mut self, image: ImageId, input: &[u8]) -> Result<TargetRun<'_>, Self::Error>;

    /// As [`Target::run`], and what the program did with its input, if that can be observed. Observing may take time,
    /// so only few runs are observed.
    ///
    /// # Errors
    /// As [`Target::run`].
    fn observe(
        &mut self,
        image: ImageId,
        input: &[u8],
    ) -> Result<(TargetRun<'_>, Vec<Observation>), Self::Error> {
        Ok((self.run(image, input)?, Vec::new()))
    }
}
