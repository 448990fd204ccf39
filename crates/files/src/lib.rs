//! Files in directories that powerfail does not trust: bundles of others, and output directories in which a link may lie.
//!
//! - [`Directory`]: names that were read from a file are resolved beneath a directory. `..`, absolute paths and symbolic
//!   links are errors.
//! - [`content`]: what a file holds, copied without filling its holes.
//! - [`input`]: files with fixed names in such a directory.
//! - [`output`]: files and directories that powerfail writes. The last component of a path is never a link.
//! - [`memory`]: files in memory that cannot be changed any more.
//! - [`seal`]: recognises a directory that this user made on this machine.
//!
//! Errors are of the type [`std::io::Error`], with a sentence where that of the system would not explain the refusal.
//! This crate knows nothing of what the files contain.

pub mod content;
mod directory;
pub mod input;
pub mod memory;
pub mod output;
mod refusal;
pub mod seal;

pub use directory::{Directory, is_beneath};
