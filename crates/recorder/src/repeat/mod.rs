//! Repeats a target, thousands of times a second: the host side of the fork server in the runtime.
//!
//! A [`Repeater`] starts the target once. It is told an image with [`Repeater::open`] and inputs with
//! [`Repeater::run`]; what an execution covered and left is there until the next one.

mod arguments;
mod error;
mod options;
mod outcome;

pub use arguments::split_arguments;
pub use error::RepeatError;
pub use options::{InputWay, RepeatOptions};
pub use outcome::{Coverage, End, Opened, Outcome, Speed, SpeedReport};
pub use repeater::Repeater;

mod repeater {
    use super::{Coverage, Opened, Outcome, RepeatError, RepeatOptions, SpeedReport};
    use powerfail_image::Contents;

    /// A target that is repeated.
    #[derive(Debug)]
    pub struct Repeater {
        never: std::convert::Infallible,
    }

    impl Repeater {
        /// Starts the target. `runtime` is the shared object that is preloaded.
        ///
        /// # Errors
        /// See [`RepeatError`].
        pub fn start(_options: &RepeatOptions, _runtime: &[u8]) -> Result<Self, RepeatError> {
            Err(RepeatError::Refused {
                reason: "repeating is not there yet".into(),
            })
        }

        /// Lets the target open an image, up to where it touches its input.
        ///
        /// # Errors
        /// See [`RepeatError`].
        pub fn open(&mut self, _image: &Contents) -> Result<Opened, RepeatError> {
            match self.never {}
        }

        /// Runs an input on the image.
        ///
        /// # Errors
        /// See [`RepeatError`].
        pub fn run(&mut self, _input: &[u8]) -> Result<Outcome, RepeatError> {
            match self.never {}
        }

        /// What the last execution covered, with what came before its input.
        pub fn coverage(&self) -> Coverage<'_> {
            match self.never {}
        }

        /// What the last execution left.
        ///
        /// # Errors
        /// See [`RepeatError`].
        pub fn contents(&mut self) -> Result<Contents, RepeatError> {
            match self.never {}
        }

        /// Operands of comparisons that the last execution made.
        pub fn comparisons(&self) -> Vec<Vec<u8>> {
            match self.never {}
        }

        /// The locations of the last execution, in their order.
        pub fn operations(&self) -> impl Iterator<Item = u32> + use<'_> {
            let _ = self.never;
            std::iter::empty()
        }

        /// How executions are made, and why not faster.
        pub fn speed_report(&self) -> SpeedReport {
            match self.never {}
        }
    }
}
