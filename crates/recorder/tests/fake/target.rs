//! Stands in for a target with the runtime in it: speaks the protocol by itself, as the arguments
//! say. Used by the tests of this crate only.
//!
//! # Safety
//!
//! The mapping of the shared file lives as long as the process, and is only used as atomics, or as
//! memory of a chunk that this process has taken. Pools are mapped as long as the process lives.

#![allow(unsafe_code)]

mod runtime;
mod scenario;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, pools) = arguments.split_first().expect("the name of a scenario");
    scenario::run(name, pools);
}
