//! The seam to whatever runs test cases.

use std::time::Duration;

use powerfail_image::ImageId;

use crate::Comparison;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// With this exit code. Whatever it is, it is no crash.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It was killed because it took too long.
    Timeout,
}

impl End {
    /// Whether the program ended by itself.
    #[must_use]
    pub fn is_normal(self) -> bool {
        matches!(self, Self::Exit(_))
    }
}

/// What a run did, borrowed from whoever ran it.
#[derive(Clone, Copy, Debug)]
pub struct Execution<'a> {
    /// How it ended.
    pub end: End,
    /// Counters of PM path locations, as they were counted.
    pub pm: &'a [u8],
    /// Counters of branches; empty if the program has none.
    pub branches: &'a [u8],
    /// How long it took. The power schedule prefers fast test cases.
    pub elapsed: Duration,
    /// It ended before it touched its input: any other input on this image would do the same.
    pub input_untouched: bool,
}

/// Runs test cases.
pub trait Target {
    /// Why a run is impossible. It ends the step.
    type Error;

    /// Runs the program on an image with an input. Calls with the same image come together; opening an
    /// image again for each of them would be a waste.
    ///
    /// # Errors
    /// The program cannot be run. That it crashes is no error.
    fn run(&mut self, image: ImageId, input: &[u8]) -> Result<Execution<'_>, Self::Error>;

    /// What the program has compared in the last run, if that is known.
    fn comparisons(&self) -> Vec<Comparison> {
        Vec::new()
    }
}
