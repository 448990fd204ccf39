//! Persistent memory that is not a file: the heap of `--heap`, and ranges that a program registers.

mod common;
mod heap;
mod range;
#[path = "../check/run.rs"]
mod run;
