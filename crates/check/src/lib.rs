//! From a workload to findings: what `powerfail check`, `lint`, `crash`, `races` and `replay` do, and what `fuzz` does
//! with each trace.
//!
//! [`Session`] has one call for each command: settings in, a report out. It assembles these parts:
//!
//! - `workload.rs` and `schedules.rs` record a program or a server, once or in several orders of threads.
//! - [`lint()`] finds patterns of misuse in a trace.
//! - [`Checker`] runs recovery on crash images, and traces every failure back to the stores that explain it.
//! - `sieve.rs` decides which findings are reported; [`output_directory`] keeps what [`Replay`] needs to show one again.
//!
//! Fuzzing, which has its own recordings, uses [`lint()`] and [`Checker`] directly. A caller hears what happens through an [`Observer`]. The parts are other crates: `lint` finds patterns, `explore`
//! chooses failure points, `image` makes crash images, `oracle` runs recovery. Text that is not part of a finding is
//! `report`'s.
//!
//! The route of a failure point:
//!
//! ```text
//! plan ──▶ trial ──runner──▶ verdict ──judge──▶ symptom ──reason──▶ stores ──group──▶ finding
//! ```

mod bundle;
mod changed;
mod checker;
mod confirm;
mod content;
mod coverage;
mod crash;
mod denials;
mod diagnose;
mod doctor;
mod domain;
mod eager;
mod error;
mod event;
mod file_lint;
mod fix;
mod fresh_name;
mod group;
mod helpers;
mod init;
mod kept_outcomes;
mod lazy;
mod lint;
mod marks;
mod merge;
mod options;
mod outcomes;
pub mod output_directory;
mod persistent;
mod places;
mod races;
mod raw_pointers;
mod reading;
mod reason;
mod recovery;
mod remedy;
mod replay;
mod rollback;
mod root_cause;
mod runner;
mod schedules;
mod session;
mod share;
mod shares;
mod sieve;
mod symptom;
mod transient;
mod tree;
mod window;
mod workload;

pub use changed::ChangedSince;
pub use checker::Checker;
pub use crash::Crashed;
pub use doctor::diagnose;
pub use domain::domain_of;
pub use error::{CheckError, Undisturbed};
pub use event::{CheckEvent, CheckStep, ForeignTrace, Observer};
pub use group::{BugKey, bug_key, is_same_bug, joins_bugs, list_beside, list_outcomes, says_more};
pub use init::{InitError, InitOptions, init};
pub use kept_outcomes::count_outcomes;
pub use lint::{LintFindings, lint};
pub use options::{
    CrashOptions, Inference, LazyOptions, LazyTime, RaceOptions, Selection, WatchedRecovery,
    WatchedStep,
};
pub use outcomes::{About, OutcomesError};
pub use places::place_before_end;
pub use recovery::{Recovery, TIMEOUT_DEFAULT};
pub use replay::{ImageCommands, Replay, Replayed, trace_name};
pub use schedules::ScheduleError;
pub use session::{RunDetails, Session, SessionError, SessionResult};
pub use shares::{LostShare, Shares, SharesError};
pub use symptom::Symptom;
pub use workload::{WorkloadError, WorkloadFailure};
