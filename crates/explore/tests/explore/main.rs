//! Failure points and plans of small traces, compared with naive implementations of their definitions.

mod change_log;
mod common;
mod creation;
mod eager;
mod history;
mod interleaving;
mod naive;
mod ordering;
mod plan;
mod scope;
mod search;
