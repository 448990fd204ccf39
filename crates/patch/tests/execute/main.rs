//! Runs the code that the crate emits.

mod access;
mod bench;
mod cases;
mod coverage;
mod differential;
mod expect;
mod frame;
mod instances;
mod loads;
mod locks;
mod machine;
mod moved;
mod patched;
mod race;
mod random;
mod requests;
mod retried;
mod signals;
mod states;
