//! What a project says once: `powerfail.toml`, its suppressions, and the baseline.
//!
//! `[check]` has the names of the flags of `powerfail check`, so that a line of a script becomes a line
//! of the file; a flag that is given wins, and that decision is the binary's. `[[suppress]]` takes
//! away findings that somebody has looked at, and says why. A [`Baseline`] is an older report: what is
//! in it is known.
//!
//! An unknown key is an error, because a misspelt one would be a silent change of what is checked.
//! Nothing here reads a file or prints: text comes in, typed values or one sentence come out.

mod baseline;
mod check;
mod duration;
mod error;
mod file;
mod glob;
mod suppress;
mod table;

pub use baseline::{Baseline, BaselineError, Comparison};
pub use check::{CheckSection, Only};
pub use duration::parse_duration;
pub use error::{ConfigError, Problem};
pub use file::{Config, FILE_NAME};
pub use suppress::{Sifted, Suppression, sift};
