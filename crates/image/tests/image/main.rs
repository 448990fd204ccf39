//! Crash images compared with a naive replay, on real files.

mod behind_end;
mod common;
mod cursor;
mod layout;
mod run_directory;
mod slot;
mod tree;
