//! Failure points and plans of small traces, against naive readings of their definitions.

mod common;
mod creation;
mod interleaving;
mod naive;
mod plan;
