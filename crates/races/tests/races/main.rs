//! Candidates and judgements of races, on traces that are written by hand or at random.

mod candidates;
#[path = "../../../lint/tests/lint/common.rs"]
mod common;
mod naive;
mod rules;
