//! Words that inputs of a program may contain: from a dictionary, from the program's file, and from what it
//! compares its input with.

mod comparisons;
mod dictionary;
mod program;

pub use comparisons::of_comparisons;
pub use dictionary::{DictionaryError, dictionary};
pub use program::{ProgramError, of_program};
