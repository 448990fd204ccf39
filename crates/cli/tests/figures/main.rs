//! Figures 1, 2 and 11 of the `XFDetector` paper: the programs in `tests/targets/races`.
//!
//! The races and semantic bugs are those that the paper names, with the reader, the writer and the failure point. The
//! recovery that recounts and the corrected programs have no findings.

mod array_update;
mod common;
mod linked_list;
mod one_barrier;
