//! Lazy exploration compared with brute force: simulated recoveries run on every crash state, and lazily.

mod brute;
mod figures;
mod generate;
mod lazily;
mod machine;
mod nested;
mod one_crash;
mod reuse;
mod robust;
mod tree;
mod workload;
