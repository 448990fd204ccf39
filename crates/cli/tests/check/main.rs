//! `powerfail check` and related commands from the user's side: replays of findings, reproducible results,
//! interruptions, refusals, options and the configuration file.
//!
//! The tests in `planted` check that planted bugs are found at their lines.

mod addresses;
mod advice;
mod annotations;
mod budget;
mod changed;
mod ci;
mod code_pages;
mod commits;
mod common;
mod configuration;
mod confined;
mod demo;
mod derandomised;
mod determinism;
mod eager;
mod examples;
mod files;
mod foreign;
mod guides;
mod hostile;
mod init;
mod interrupted;
mod lazy;
mod limits;
mod marks;
mod options;
mod oracle;
mod outcomes;
mod pages;
mod pools;
mod python_lines;
mod refused;
mod replay;
mod reporting;
mod resumed;
mod run;
mod schedules;
mod server;
mod shares;
mod single_point;
mod sources;
mod symbols;
mod together;
mod transactions;
