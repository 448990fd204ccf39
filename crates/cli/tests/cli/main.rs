//! The binary as users run it: real processes, real files, exit codes.

mod common;
mod interface;
mod model;
mod trace;
