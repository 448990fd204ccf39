//! A fuzzing campaign: workers execute test cases, what is new becomes images and goes through the checks.
//!
//! ```text
//!  engine ──runs──▶ repeater             one of each in every thread that fuzzes
//!    │ discovery
//!    ▼
//!  queue on disk ──▶ record ──▶ lint ──▶ findings
//!                      │
//!                      ├──▶ images in the tree ──▶ test cases on them, for the engines
//!                      └──▶ crashes, lost lines, reads at moments that are new ──▶ findings ──▶ minimised
//! ```
//!
//! Everything is on disk before anybody is told of it, so that a kill at any moment loses nothing that was
//! reported.
//!
//! The parts are other crates: `corpus` keeps, `fuzz` decides what comes next, the repeater of `recorder`
//! executes, `check` judges. Here they are put together.

mod blame;
mod checked;
mod checker;
mod cmin;
mod error;
mod findings;
mod harvest;
mod job;
mod judge;
mod known;
mod messages;
mod minimise;
mod observer;
mod options;
mod rebuild;
mod recording;
mod run;
mod shared;
mod start;
mod stats;
mod target;
mod worker;

pub use cmin::{MinimisedCase, MinimisedCorpus, minimise_case, minimise_corpus};
pub use error::CampaignError;
pub use findings::{CaseRecord, EdgeRecord, StoredFinding};
pub use observer::Observer;
pub use options::{CampaignOptions, Checks, InputWay, RecoveryOptions, Together};
pub use rebuild::rebuild_all;
pub use run::{Summary, resumed_options, run};
pub use stats::Stats;
