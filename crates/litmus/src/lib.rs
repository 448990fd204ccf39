//! Litmus files: small programs and recorded traces with the complete set of memory contents that
//! a crash may leave behind. `tests/litmus/README.md` describes the format and the semantics.
//!
//! This crate reads them, asks the model, and compares. It opens no files and prints nothing.

mod check;
mod fields;
mod program_file;
mod trace_file;

use std::collections::BTreeSet;

pub use check::{Mismatch, Verdict, check};
pub use fields::FormatError;
pub use program_file::{
    ProgramExpectation, ProgramFile, ProgramStates, Variant, VariantExpectation,
};
pub use trace_file::{
    Cell, Counts, CountsExpectation, PositionStates, TraceExpectation, TraceFile, TraceStates,
};

/// A set of memory contents or register values.
pub type States = BTreeSet<Vec<i64>>;

/// How many states of a program the explorer may visit before a file is refused.
pub const STATE_LIMIT: usize = 10_000_000;

/// A litmus file of either kind.
#[derive(Clone, Debug)]
pub enum LitmusFile {
    /// A program with all its interleavings.
    Program(ProgramFile),
    /// One recorded order of events.
    Trace(TraceFile),
}

impl LitmusFile {
    /// Reads a file of either kind from its text.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| FormatError::json(&error))?;
        let root = fields::Node::root(&value);
        root.object()?;
        if root.optional("threads")?.is_some() {
            Ok(Self::Program(ProgramFile::read(&root)?))
        } else if root.optional("events")?.is_some() {
            Ok(Self::Trace(TraceFile::read(&root)?))
        } else {
            Err(root.error("has neither `threads` (a program) nor `events` (a trace)"))
        }
    }

    /// The name that the file gives itself.
    pub fn name(&self) -> &str {
        match self {
            Self::Program(file) => &file.name,
            Self::Trace(file) => &file.name,
        }
    }
}
