//! The configuration file, suppressions and the baseline, as the binary uses them.

mod baseline;
mod common;
mod file;
mod options;
mod suppress;
