//! The output of powerfail: text for people, JSON for machines. The only crate that words results.
//!
//! Everything is written to a given sink. Text carries styles; the sink decides whether they are
//! shown, so nothing here checks for a terminal or for `NO_COLOR`.

pub mod doctor;
pub mod explain;
mod files;
pub mod findings;
pub mod foreign;
pub mod formats;
pub mod fuzz;
pub mod init;
pub mod issue;
pub mod litmus;
mod marks;
mod own_place;
pub mod page;
pub mod perfetto;
pub mod plot;
pub mod record;
mod text;
pub mod trace;
pub mod view;

pub use text::{bytes, count, plural, shell_words};
