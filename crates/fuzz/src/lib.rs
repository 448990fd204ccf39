//! A fuzzing campaign: workers execute test cases; new ones become images and go through the checks.
//!
//! ```text
//!  engine ──runs──▶ executor             one of each in every thread that fuzzes
//!    │ discovery
//!    ▼
//!  queue on disk ──▶ record ──▶ lint ──▶ findings
//!                      │
//!                      ├──▶ images in the tree ──▶ test cases on them, for the engines
//!                      └──▶ crashes, lost lines, reads at new moments ──▶ findings ──▶ minimised
//! ```
//!
//! Everything is on disk before it is reported, so a kill at any moment loses nothing that was reported.
//!
//! This crate combines others: `fuzz-store` keeps files, `fuzz-engine` decides which test case comes next, the
//! executor of `recorder` executes it, and `check` judges it. It prints nothing: it reports to a [`CampaignObserver`].
//!
//! Where to look:
//!
//! - [`run()`]: threads and limits; `worker`: a thread that fuzzes; `check_worker`: a thread that checks.
//! - `shared_state`: what threads share; `job`: the work of checkers and its order.
//! - `crash_images`: which images are made from a trace; `rebuild`: how they are made again.
//! - `execution_limit`: when nothing is executed any more.
//! - `checked`: whether anything was checked.
//! - `check_history`, `point_selection`, `check_journal`: what was checked already, and what is checked next.
//! - `failed_execution`: why an execution failed.
//! - `minimise_finding`: smaller test cases of findings, with `finding_judge`, `reached_places`; `minimise_case`: those of
//!   others; `minimise_corpus`: fewer.
//! - `afl`: the target of afl-fuzz.

mod afl;
mod check_history;
mod check_journal;
mod check_worker;
mod checked;
mod crash_images;
mod crash_test;
mod error;
mod execution_limit;
mod failed_execution;
mod finding_judge;
mod findings;
mod job;
mod machines;
mod minimise_case;
mod minimise_corpus;
mod minimise_finding;
mod observer;
mod options;
mod point_selection;
mod reached_places;
mod rebuild;
mod recording;
mod run;
mod seeds;
mod shared_state;
mod stats;
mod target_runner;
mod worker;

pub use afl::{AflError, AflOptions, serve_afl};
pub use error::CampaignError;
pub use findings::{CaseRecord, EdgeRecord};
pub use minimise_case::{MinimisedCase, minimise_case};
pub use minimise_corpus::{MinimisedCorpus, minimise_corpus};
pub use minimise_finding::minimise_finding;
pub use observer::CampaignObserver;
pub use options::{CampaignOptions, Checks, MachineLink, RecoveryOptions};
pub use powerfail_fuzz_store::{Stats, StoredFinding, Unchecked};
pub use powerfail_recorder::InputChannel;
pub use rebuild::{RepairedCampaign, rebuild_all, repair};
pub use run::{CampaignSummary, resumed_options, run};
