//! All that a crash can leave, explored: the programs in `tests/targets/explore`.
//!
//! Right programs are explored to the end and silent; planted bugs are found; the figures of the Jaaru paper
//! take no more executions than the paper counts. Sizes and bugs are those that their README names.

mod array;
mod common;
mod figures;
mod indexes;
