//! Litmus files: small programs and recorded traces with the complete set of memory contents that
//! a crash may leave behind, and lists of operations on files with the complete set of trees.
//! `tests/litmus/README.md` describes the format and the semantics of the first two,
//! `docs/reference/litmus.md` and `docs/design/files.md` those of the third.
//!
//! This crate reads them, asks the model, and compares. It opens no files and prints nothing.

mod check;
mod duplicates;
mod fields;
mod files_file;
mod limit;
mod program_file;
mod trace_file;

use std::collections::BTreeSet;

pub use check::{LitmusError, Mismatch, Verdict, check};
pub use fields::FormatError;
pub use files_file::{FilesFile, TreeText, Trees};
pub use limit::{POSITION_STATE_LIMIT, THREADS_MAX, Undecided};
pub use program_file::{
    ProgramExpectation, ProgramFile, ProgramStates, Variant, VariantExpectation,
};
pub use trace_file::{
    Cell, Counts, CountsExpectation, PositionStates, TraceExpectation, TraceFile, TraceStates,
};

/// A set of memory contents or register values.
pub type States = BTreeSet<Vec<i64>>;

/// A litmus file of any kind.
#[derive(Clone, Debug)]
pub enum LitmusFile {
    /// A program with all its interleavings.
    Program(ProgramFile),
    /// One recorded order of events.
    Trace(TraceFile),
    /// Operations on ordinary files.
    Files(FilesFile),
}

impl LitmusFile {
    /// Reads a file of any kind from its text.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| FormatError::json(&error))?;
        duplicates::refuse_duplicates(text)?;
        let root = fields::Node::root(&value);
        root.object()?;
        let kinds = [
            ("threads", "a program"),
            ("events", "a trace"),
            ("operations", "a list of operations on files"),
        ];
        let mut present = Vec::new();
        for (member, kind) in kinds {
            if root.optional(member)?.is_some() {
                present.push((member, kind));
            }
        }
        match present[..] {
            [("threads", _)] => Ok(Self::Program(ProgramFile::read(&root)?)),
            [("events", _)] => Ok(Self::Trace(TraceFile::read(&root)?)),
            [_] => Ok(Self::Files(FilesFile::read(&root)?)),
            [] => Err(root.error(
                "has neither `threads` (a program) nor `events` (a trace) nor `operations` (on files)",
            )),
            [(first, first_kind), (second, second_kind), ..] => Err(root.error(format!(
                "has both `{first}` ({first_kind}) and `{second}` ({second_kind})"
            ))),
        }
    }

    /// Reads a file of any kind from its bytes, which need not be text.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        Self::parse(std::str::from_utf8(bytes).map_err(FormatError::not_text)?)
    }

    /// The name that the file gives itself.
    pub fn name(&self) -> &str {
        match self {
            Self::Program(file) => &file.name,
            Self::Trace(file) => &file.name,
            Self::Files(file) => &file.name,
        }
    }
}
