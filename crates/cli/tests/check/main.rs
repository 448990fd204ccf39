//! `powerfail check` and what belongs to it, as a user meets them: findings shown again, the same result
//! twice, interruptions, refusals, options and the configuration file.
//!
//! That planted bugs are found where they are is for the tests in `planted`.

mod annotations;
mod commits;
mod common;
mod configuration;
mod demo;
mod determinism;
mod eager;
mod interrupted;
mod lazy;
mod options;
mod refused;
mod replay;
mod reporting;
mod run;
mod schedules;
mod server;
mod transactions;
