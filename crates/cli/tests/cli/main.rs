//! The binary as users run it: real processes, real files, exit codes.

mod build_systems;
mod common;
mod doctor;
mod explain;
mod interface;
mod messages;
mod model;
mod package;
mod trace;
