//! From a trace to findings: what `powerfail check`, `lint` and `crash` do once there is a trace.
//!
//! - [`lint()`]: patterns of misuse, as findings with sources.
//! - [`crash()`]: recovery must succeed undisturbed; then the power fails at the chosen failure points,
//!   and every failure of recovery is traced back to the stores that explain it.
//!
//! The parts are other crates: `lint` finds patterns, `explore` chooses failure points, `image` makes
//! crash images, `oracle` runs recovery. Here they are put together, and their results grouped by
//! root cause. Words for people that are not in a finding itself are `report`'s.
//!
//! The way of a failure point:
//!
//! ```text
//! plan ──▶ trial ──runner──▶ verdict ──judge──▶ symptom ──reason──▶ stores ──group──▶ finding
//! ```

mod checker;
mod confirm;
mod content;
mod crash;
mod diagnose;
mod eager;
mod error;
mod event;
mod group;
mod lazy;
mod lint;
mod merge;
mod options;
pub mod output_directory;
mod persistent;
mod places;
mod races;
mod reason;
mod recovery;
mod replay;
mod rollback;
mod runner;
mod schedules;
mod sieve;
mod symptom;
mod workload;

pub use checker::Checker;
pub use crash::Crashed;
pub use error::{CheckError, Undisturbed};
pub use event::{Event, Observer, Step};
pub use group::{Cause, cause_of};
pub use lint::{Linted, lint};
pub use options::{CrashOptions, Inference, LazyOptions, LazyTime, RaceOptions, Selection};
pub use places::place_before_end;
pub use recovery::Recovery;
pub use replay::{Replay, Replayed, trace_name};
pub use schedules::{ScheduleError, ScheduledTrace, ScheduledTraces, Schedules, record_schedules};
pub use sieve::{Sieve, SiftedEvents, SiftedReport};
pub use symptom::Symptom;
pub use workload::{
    ServerCommand, ServerWorkload, WorkloadError, WorkloadFailure, free_port, record_workload,
    with_port,
};
