//! Minimisation: shorter inputs and fewer test cases with the same effect.
//!
//! [`minimise`] makes one input as small as possible: lines are removed first, then words of lines are removed and
//! simplified, and at last single bytes of what is not text are removed. [`Trials`] asks about each input once. [`cmin`]
//! chooses among inputs.

mod cmin;
mod input;
mod reduce;
mod trials;
mod words;

pub use cmin::cmin;
pub use input::{Minimised, minimise, minimise_lines};
pub use trials::{Judge, Trials};

pub(crate) use reduce::trim_lines;
