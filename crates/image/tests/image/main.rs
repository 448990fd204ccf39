//! Crash images against a naive replay, on real files.

mod common;
mod cursor;
mod layout;
mod run_directory;
mod slot;
