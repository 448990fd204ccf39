//! `powerfail record` on real programs: what it says about them must be what they did.
//!
//! Targets are in `tests/targets` and are built here. Every recording checks itself (its stores must
//! give the pool as the target left it), and every trace is checked once more by `trace check`.

mod annotations;
mod common;
mod instructions;
mod languages;
mod libraries;
mod mappings;
mod oracle;
mod pmdk;
mod processes;
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
