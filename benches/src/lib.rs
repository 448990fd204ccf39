//! Realistic traces for the benchmarks, from a seed: the same seed gives the same trace; and the programs that they run.
//!
//! A trace imitates a persistent index under a stream of operations: 76 stores, 10 clwb and 14 sfence in 100 events; stores
//! mostly of 8 bytes, with pointers, small integers and random words; 150 sites in repeating but not constant
//! patterns; addresses in tree nodes of which some are hot, in a log that grows, and in a header; mostly one thread.
//! It does not imitate any particular program and does not compute anything: the trace need not make sense as a data
//! structure.

mod programs;
mod workload;

pub use powerfail_protocol::random::Random;
pub use programs::{compile, here, powerfail, run};
pub use workload::{POOL_BYTES, SITE_COUNT, THREAD_COUNT, Workload};
