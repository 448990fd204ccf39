//! Persistent memory that is no file: the heap of `--heap`, and ranges that a program registers.

mod common;
mod heap;
mod range;
#[path = "../check/run.rs"]
mod run;
