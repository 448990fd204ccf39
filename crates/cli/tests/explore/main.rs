//! Exploration of all crash states of the programs in `tests/targets/explore`.
//!
//! Correct programs are explored exhaustively without findings; planted bugs are found; the figures of the Jaaru paper
//! take no more executions than the paper counts. Their README lists sizes and bugs.

mod array;
mod common;
mod figures;
mod indexes;
