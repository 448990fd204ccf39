//! Minimisation: shorter inputs and fewer test cases with the same coverage.

mod cmin;
mod trim;

pub use cmin::cmin;
pub use trim::{Trimmed, trim};

pub(crate) use trim::trim_lines;
