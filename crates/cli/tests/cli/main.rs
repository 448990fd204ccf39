//! The binary as users run it: real processes, real files, exit codes.

mod common;
mod explain;
mod interface;
mod model;
mod trace;
