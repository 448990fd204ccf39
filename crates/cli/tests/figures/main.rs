//! Figures 1, 2 and 11 of the `XFDetector` paper: the programs in `tests/targets/races`.
//!
//! The races and semantic bugs are those that the paper names, with the reader, the writer and the failure
//! point; the recovery that counts again and the corrected programs are silent.

mod array_update;
mod common;
mod linked_list;
mod one_barrier;
