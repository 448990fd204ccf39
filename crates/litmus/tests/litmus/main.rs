//! The litmus suite and its mistakes.

mod conformance;
mod mistakes;
