//! What the tests and benchmarks of several crates share. Only `[dev-dependencies]` name this crate.
//!
//! - [`runtime`]: the runtime library, built as it ships;
//! - [`expected`]: texts that are compared with files in the repository;
//! - [`pages`]: commands that the documentation shows;
//! - [`events`]: waiting for something to happen, without sleeping and without spinning.

pub mod events;
pub mod expected;
pub mod pages;
pub mod runtime;
