//! The output directory: what a finding rests on, so that `powerfail replay` can show it again.
//!
//! - `run.trace` is the trace; findings of other traces name theirs.
//! - `report.json` is the [`Report`](powerfail_finding::Report).
//! - `recovery.json` says how recovery was run ([`Recovery`]).
//!
//! A fuzzing campaign has one such directory for each finding ([`locate`] knows where).

mod directory;
mod error;
mod persistent;
mod recovery;

pub use directory::{
    DEFAULT, FINDINGS, RECOVERY, REPORT, TRACE, create, export, keep_trace, load, locate, save,
};
pub use error::EvidenceError;
pub use persistent::Persistent;
pub use recovery::{Recovery, regex};
