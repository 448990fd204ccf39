//! Compiles small programs and resolves addresses in them.
//!
//! Needs gcc, g++, rustc and the binutils, as the tools that this crate must understand; nothing else.

mod calls;
mod damage;
mod lines;
mod program;
mod separate;
mod stacks;
mod symbols;
