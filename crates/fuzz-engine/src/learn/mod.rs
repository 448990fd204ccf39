//! Learns what inputs of a program look like from what the program does with them: the words that it compares with,
//! the delimiters at which it splits, the formats that it scans.
//!
//! | file | subject |
//! | --- | --- |
//! | [`observation`] | what a program did with something that may come from its input |
//! | [`learner`] | which inputs are worth observing, and what follows from the observations |
//! | [`forms`] | commands and their arguments, from comparisons of words |
//! | [`template`] | lines, from formats of `scanf` |
//! | [`context`] | lines that fill a pool, so that other commands find something to work on |
//! | [`substitute`] | inputs with what the program wants to see in the place that it looked at |
//!
//! Nothing here runs a program or knows its coverage. The engine and `fuzz afl` run what [`Learner::next_trial`]
//! returns.

mod context;
mod forms;
mod learner;
mod observation;
mod substitute;
mod template;

pub use learner::{Learner, Trial};
pub use observation::Observation;
