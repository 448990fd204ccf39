//! What powerfail says: text for people, JSON for machines. The only crate that words things.
//!
//! Everything is written to a given sink. Text carries styles; the sink decides whether they are
//! shown, so nothing here asks for terminals or for `NO_COLOR`.

pub mod explain;
pub mod findings;
pub mod fuzz;
pub mod litmus;
mod marks;
pub mod plot;
pub mod record;
mod text;
pub mod trace;

pub use text::{bytes, count, plural};
