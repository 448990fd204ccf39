//! The messages between the oracle and a zygote: one set-up, then requests and their replies.
//!
//! Both ends are the same program, so a message is a Rust value in serde's form, encoded by postcard, and has
//! no version. [`send`] and [`receive`] frame it and bound its length.

mod forms;
mod reply;
mod request;
mod setup;
mod wire;

pub(crate) use forms::{modules, path, regex, regexes, thread_frames};
pub use reply::StageModules;
pub(crate) use reply::{
    Bytes, ExploreReply, FailureKind, LazyReply, Refusal, RunReply, RunResult, SystemFailure,
};
pub(crate) use request::{ExploreOptions, Patience, Request, RunOptions, StartMode};
pub(crate) use setup::{IsolationLevel, Setup, SetupReply, Usage};
pub(crate) use wire::{receive, send};
