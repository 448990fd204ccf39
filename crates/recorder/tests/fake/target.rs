//! A fake target that speaks the protocol of the runtime itself, as the arguments say. Used only by the tests of this
//! crate.
//!
//! # Safety
//!
//! The mapping of the shared file lives as long as the process, and is only used for atomics, or as memory of a chunk
//! that this process has taken. Pools stay mapped as long as the process lives.

#![allow(unsafe_code)]

mod runtime;
mod scenario;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, pools) = arguments.split_first().expect("the name of a scenario");
    scenario::run(name, pools);
}
