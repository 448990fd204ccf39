//! The vocabulary of results: what a finding is, and nothing about how it is found or shown.
//!
//! A [`Finding`] is one distinct bug. Its [`Code`] is stable, has a documentation page
//! (`docs/reference/findings/`), a [`Class`] and a [`Severity`]. Its [`SourcePlace`]s say where; the store to
//! blame comes first. Everything here is JSON as it is printed by `--format json`; the schema is
//! derived from these types.

mod code;
mod commit;
mod coverage;
mod diagnosis;
mod exploration;
mod finding;
mod fix;
mod hex;
mod id;
mod mark;
mod place;
mod proposal;
mod read;
mod tree;

pub use code::{Class, Code, Severity};
pub use commit::{DecidedRange, InferredCommitVariable, ReadWith};
pub use coverage::{Coverage, CoverageBuilder, KeptSources, StackCoverage, Tries};
pub use diagnosis::{Diagnosis, Health};
pub use exploration::{Choice, Eager, EagerReads, Exploration, SecondFailure, Source, Written};
pub use finding::{
    DurableBy, Evidence, FailurePoint, Finding, LostLine, NotChecked, PointsNotRun,
    RecoveryOutcome, Report, Totals,
};
pub use fix::{Action, Change, Fix, Operation};
pub use hex::{from_hex, hex};
pub use id::{assign_ids, finding_id};
pub use mark::{Marks, ProgramMark};
pub use place::{Helper, Role, SourcePlace, StackFrame};
pub use proposal::{Proposal, ProposedDomain, RecoveryTrial};
pub use read::{NotDurable, Races, Tried, UnsafeRead};
pub use tree::{FileSystemResult, LostFileLength, LostFilePage, TreeCrash, TreeTotals};
