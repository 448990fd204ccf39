//! All readers on mutations of their seeds. `POWERFAIL_MUTATIONS` sets how many there are for each reader.

mod mutation;

use mutation::mutated;
use powerfail_readers::ALL;
use xtask::random::Random;

/// Enough to reach most errors, in about a second for each reader.
const MUTATIONS: u64 = 400;

#[test]
fn seeds_are_read() {
    for reader in ALL {
        let seeds = (reader.seeds)();
        assert!(!seeds.is_empty(), "{}", reader.name);
        for seed in seeds {
            (reader.body)(&seed);
        }
    }
}

fn attack(name: &str) {
    let count = std::env::var("POWERFAIL_MUTATIONS").ok();
    let count = count.map_or(MUTATIONS, |count| count.parse().expect("a number"));
    let reader = ALL.iter().find(|reader| reader.name == name);
    let reader = reader.expect("a reader of this name");
    let seeds = (reader.seeds)();
    for number in 0..count {
        let seed = &seeds[number as usize % seeds.len()];
        let input = mutated(seed, &mut Random::new(number));
        let result = std::panic::catch_unwind(|| (reader.body)(&input));
        let shown = input.escape_ascii();
        assert!(result.is_ok(), "{name}: mutation {number}: {shown}");
    }
}

#[test]
fn traces() {
    attack("trace");
}

#[test]
fn bundles() {
    attack("bundle");
}

#[test]
fn reports() {
    attack("report");
}

#[test]
fn campaigns() {
    attack("campaign");
}

#[test]
fn configurations() {
    attack("configuration");
}

#[test]
fn litmus_files() {
    attack("litmus");
}

#[test]
fn outcomes() {
    attack("outcomes");
}

#[test]
fn guests() {
    attack("guest");
}

#[test]
fn logs_of_pmemcheck() {
    attack("pmemcheck");
}
