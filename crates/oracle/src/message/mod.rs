//! What the oracle and a zygote say to each other: one set-up, then requests and their results.

mod explore;
mod request;
mod run;
mod setup;

pub(crate) use explore::{ExecutionReply, ExploreReply, ModulesReply, Refusal};
pub(crate) use request::Request;
pub(crate) use run::{End, Ran, RunReply};
pub(crate) use setup::{Level, Prepared, PreparedReady, PreparedServer, Setup, SetupReply};
