//! Less that does the same: shorter inputs, fewer test cases.

mod cmin;
mod trim;

pub use cmin::cmin;
pub use trim::{Trimmed, trim};

pub(crate) use trim::trim_lines;
