//! Locked operations that are retried long after they were announced: only their final result is recorded.

use std::collections::BTreeMap;

use crate::common::{Mode, Recorder, target};

const SIGNALS: &str = "60";
/// Beyond this offset the target stores for other reasons.
const PAGES_END: u64 = 4096 << 14;

fn check(operation: &str) {
    let program = target("retried.c", &["-O2"]);
    for mode in Mode::BOTH {
        // If pages are written back to a disk, most signals arrive at the critical moment.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let pool = folder.path().join("pool");
        let pool = pool.to_str().expect("text");
        let recording = Recorder::new(&program, &[operation, pool, SIGNALS])
            .mode(mode)
            .run();
        recording.assert_exit(0);
        assert_eq!(
            recording.summary["warnings"].as_array().map(Vec::len),
            Some(0)
        );

        let mut values: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for mut store in recording.stores() {
            if store.offset < PAGES_END {
                store.bytes.truncate(8);
                values.entry(store.offset).or_default().push(store.value());
            }
        }
        for (offset, values) in &values {
            let expected: Vec<u64> = (1..=values.len() as u64).collect();
            assert_eq!(*values, expected, "at {offset:#x} in {mode:?} mode");
        }
        let made: usize = recording.output.trim().parse().expect("a number");
        assert_eq!(values.values().map(Vec::len).sum::<usize>(), made);
        assert_eq!(recording.count("locked-store"), made as u64);
    }
}

#[test]
fn exchanges_that_add() {
    check("add");
}

#[test]
fn increments() {
    check("increment");
}

#[test]
fn swaps() {
    check("swap");
}

#[test]
fn swaps_of_pairs() {
    check("swap_pair");
}
