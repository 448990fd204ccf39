//! `powerfail record` on real programs: the recording must match what they did.
//!
//! Targets are in `tests/targets` and are built here. Every recording checks itself (its stores must give the pool as
//! the target left it), and `trace check` checks every trace once more.

mod annotations;
mod common;
mod detached;
mod emulated;
mod files;
mod instructions;
mod languages;
mod libraries;
mod mappings;
mod odd;
mod oracle;
mod pmdk;
mod processes;
mod racing;
mod refused;
mod requests;
mod retried;
mod schedules;
mod signals;
mod single_steps;
mod software;
mod storms;
mod system_calls;
mod threads;
mod unseen;
