//! Options and decisions of the user: flags, `powerfail.toml`, suppressions and the baseline.
//!
//! An option is defined once, in [`options`](crate::CheckArgs), for the command line and for the file. `settle` of
//! a command's arguments merges the two, flag over file over default, into typed settings. `[[suppress]]` removes
//! findings that were reviewed, and says why. A [`Baseline`] is an older report, whose findings are known.
//!
//! An unknown key is an error, because a misspelt one would silently change what is checked. Nothing here reads a
//! file or prints: text comes in, typed values or an error come out.

mod baseline;
mod error;
mod file;
mod options;
mod suppress;
mod table;
mod value;

pub use baseline::{Baseline, BaselineError, Comparison};
pub use error::{ConfigError, Problem, SettingsError};
pub use file::{Config, FILE_NAME};
pub use options::*;
pub use suppress::{Sifted, Suppression, sift};
pub use value::{
    Address, Backend, Byte, CheckNames, CommandText, Count, Deny, FailurePoints, Format, HeapSize,
    Infer, Input, Mebibytes, Mode, NamePattern, Only, Partition, Pattern, Port, Rate, ReportOutput,
    ScheduleDepth, Segments, Stacks, Strategy, Threads, Whole, atomicities, domains,
    parse_duration, parse_size,
};
