//! Compiles small programs and resolves addresses in them.
//!
//! Needs only gcc, g++, rustc and the binutils, whose output this crate must understand.

mod calls;
mod damage;
mod lines;
mod program;
mod separate;
mod stacks;
mod symbols;
