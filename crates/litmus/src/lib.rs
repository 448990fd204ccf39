//! Litmus files: small programs and recorded traces with the complete set of memory contents that
//! a crash may leave behind. `tests/litmus/README.md` describes the format and the semantics.
//!
//! This crate reads them, asks the model, and compares. It opens no files and prints nothing.

mod check;
mod duplicates;
mod fields;
mod limit;
mod program_file;
mod trace_file;

use std::collections::BTreeSet;

pub use check::{LitmusError, Mismatch, Verdict, check};
pub use fields::FormatError;
pub use limit::{POSITION_STATE_LIMIT, THREADS_MAX, Undecided};
pub use program_file::{
    ProgramExpectation, ProgramFile, ProgramStates, Variant, VariantExpectation,
};
pub use trace_file::{
    Cell, Counts, CountsExpectation, PositionStates, TraceExpectation, TraceFile, TraceStates,
};

/// A set of memory contents or register values.
pub type States = BTreeSet<Vec<i64>>;

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
        duplicates::refuse_duplicates(text)?;
        let root = fields::Node::root(&value);
        root.object()?;
        let (threads, events) = (root.optional("threads")?, root.optional("events")?);
        match (threads.is_some(), events.is_some()) {
            (true, false) => Ok(Self::Program(ProgramFile::read(&root)?)),
            (false, true) => Ok(Self::Trace(TraceFile::read(&root)?)),
            (true, true) => {
                Err(root.error("has both `threads` (a program) and `events` (a trace)"))
            }
            (false, false) => {
                Err(root.error("has neither `threads` (a program) nor `events` (a trace)"))
            }
        }
    }

    /// Reads a file of either kind from its bytes, which need not be text.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        Self::parse(std::str::from_utf8(bytes).map_err(FormatError::not_text)?)
    }

    /// The name that the file gives itself.
    pub fn name(&self) -> &str {
        match self {
            Self::Program(file) => &file.name,
            Self::Trace(file) => &file.name,
        }
    }
}
