//! Words that inputs of a program may contain: from a dictionary and from the program's file. What it compares its
//! input with is learnt elsewhere, in `crate::learn`.

mod compared;
mod dictionary;
mod differences;
mod program;

pub use dictionary::{DictionaryError, dictionary};
pub use program::{ProgramError, of_program};
