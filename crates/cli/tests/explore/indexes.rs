//! Indexes on raw persistent memory: correct ones are explored exhaustively without findings, and planted bugs are
//! found.

use crate::common::{Run, program};

/// Exhaustive exploration.
const ALL: [&str; 1] = ["--exhaustive"];
/// Only findings of crashes, without those of the lint about locks in a pool and the like.
const CRASHES: [&str; 2] = [
    "--only",
    "atomicity,durability,ordering,recovery-crash,recovery-hang",
];
const FILL: [&str; 2] = ["--fill", "0xcc"];

/// Explores the correct program with a number of inserts, in fresh memory that is zeroed and in memory that is not.
fn silent(name: &str, inserts: &str) {
    let run = Run::record(&program(name, 0), &["insert", inserts]);
    for flags in [&[][..], &FILL] {
        let explored = run.explore(&["recover"], &[&ALL[..], &CRASHES, flags].concat());
        assert!(
            explored.is_silent(),
            "{name} {inserts} {flags:?}: {explored:?}"
        );
        assert!(explored.exploration.choices > 0, "{name} {inserts}");
    }
}

/// Explores a program with a planted bug, within the default limits.
fn found(name: &str, bug: u32, inserts: &str, flags: &[&str]) {
    let run = Run::record(&program(name, bug), &["insert", inserts]);
    let explored = run.explore(&["recover"], &[&CRASHES[..], flags].concat());
    assert_eq!(explored.code, Some(1), "{name} {bug}: {explored:?}");
    assert!(!explored.report.findings.is_empty(), "{name} {bug}");
}

#[test]
fn the_hash_table_is_silent() {
    silent("hash_table", "8");
    silent("hash_table", "16");
}

#[test]
fn bugs_of_the_hash_table_are_found() {
    found("hash_table", 1, "2", &[]);
    found("hash_table", 2, "2", &FILL);
    found("hash_table", 3, "12", &FILL);
    found("hash_table", 4, "20", &[]);
}

#[test]
fn extendible_hashing_is_silent() {
    silent("extendible_hash", "8");
    silent("extendible_hash", "16");
}

#[test]
fn bugs_of_extendible_hashing_are_found() {
    found("extendible_hash", 1, "2", &FILL);
    found("extendible_hash", 2, "2", &[]);
    found("extendible_hash", 3, "16", &[]);
    found("extendible_hash", 4, "24", &[]);
    found("extendible_hash", 5, "16", &[]);
}

#[test]
fn the_tree_is_silent() {
    silent("tree", "8");
    silent("tree", "16");
}

#[test]
fn bugs_of_the_tree_are_found() {
    found("tree", 1, "9", &[]);
    found("tree", 2, "9", &[]);
    found("tree", 3, "9", &[]);
    found("tree", 4, "8", &[]);
}

#[test]
fn the_radix_tree_is_silent() {
    silent("radix_tree", "8");
    silent("radix_tree", "16");
}

#[test]
fn bugs_of_the_radix_tree_are_found() {
    found("radix_tree", 1, "2", &[]);
    found("radix_tree", 2, "8", &[]);
    found("radix_tree", 3, "10", &[]);
    found("radix_tree", 4, "26", &[]);
    found("radix_tree", 5, "5", &[]);
}
