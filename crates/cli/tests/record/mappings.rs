//! Pools mapped in all the ways that mmap offers.

use serde_json::json;

use crate::common::{Mode, Recorder, Recording, record_both, target};

fn run(what: &str) -> Recording {
    let program = target("mappings.c", &["-O2"]);
    record_both(&program, &[what, "{pool}"])
}

/// Pool, offset and value of each store.
fn stored(recording: &Recording) -> Vec<(u64, u64, u64)> {
    recording
        .stores()
        .iter()
        .map(|store| (store.pool, store.offset, store.value()))
        .collect()
}

#[test]
fn two_pools() {
    let program = target("mappings.c", &["-O2"]);
    let recording = record_both(&program, &["two_pools", "{pool}", "{pool}.second"]);
    assert_eq!(recording.pool_count(), 2);
    assert_eq!(stored(&recording), [(0, 64, 1), (1, 128, 2), (0, 4096, 2)]);
    let flushed: Vec<_> = recording
        .events()
        .iter()
        .filter(|event| event.kind == "clflush")
        .map(|event| (event.pool, event.offset))
        .collect();
    assert_eq!(flushed, [(0, 64), (1, 128)]);
}

#[test]
fn only_the_pools_that_were_asked_for() {
    let program = target("mappings.c", &["-O2"]);
    for by_pattern in [false, true] {
        let recorder = Recorder::new(&program, &["two_pools"]);
        let one = recorder.folder().join("one.data");
        let other = recorder.folder().join("other.pool");
        let wanted = if by_pattern {
            recorder.folder().join("*.pool")
        } else {
            other.clone()
        };
        let recording = recorder
            .option("--pool", wanted)
            .argument(&one)
            .argument(&other)
            .run();
        recording.assert_exit(0);
        assert_eq!(recording.pool_count(), 1);
        assert_eq!(
            recording.summary["pools"][0]["path"],
            json!(other.to_str().expect("text"))
        );
        assert_eq!(stored(&recording), [(0, 128, 2)]);
        let ignored = recording.summary["ignored"].as_array().expect("files");
        assert_eq!(ignored.len(), 1);
        assert_eq!(ignored[0]["path"], json!(one.to_str().expect("text")));
    }
}

#[test]
fn a_fresh_pool_is_made_where_it_is_wanted_and_removed() {
    let program = target("mappings.c", &["-O2"]);
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recorder::new(&program, &["mapped_again", "{pool}"])
        .option("--pm-dir", folder.path())
        .run();
    recording.assert_exit(0);
    let path = recording.summary["pools"][0]["path"].as_str();
    assert!(
        path.expect("text")
            .starts_with(folder.path().to_str().expect("text"))
    );
    let left = std::fs::read_dir(folder.path()).expect("the folder is there");
    assert_eq!(left.count(), 0);
}

#[test]
fn one_pool_mapped_twice() {
    let recording = run("mapped_twice");
    assert_eq!(recording.pool_count(), 1);
    let expected = [(0, 64, 1), (0, 64, 2), (0, 64, 3), (0, 64, 4)];
    assert_eq!(stored(&recording), expected);
}

#[test]
fn parts_of_a_pool() {
    let recording = run("parts");
    assert_eq!(recording.pool_count(), 1);
    let expected = [
        (0, 4096, 1),
        (0, 4096 + 8184, 2),
        (0, 65536 + 16, 3),
        (0, 131_072 + 4990, 4),
        (0, 65536 + 100, u64::from(b'x')),
    ];
    assert_eq!(stored(&recording), expected);
}

#[test]
fn unmapped_and_mapped_again() {
    let recording = run("mapped_again");
    assert_eq!(recording.pool_count(), 1);
    let expected: Vec<_> = (1..=5).map(|round| (0, 64, round)).collect();
    assert_eq!(stored(&recording), expected);
    assert_eq!(recording.count("clflush"), 5);
}

#[test]
fn unmapped_in_part() {
    let recording = run("unmapped_in_part");
    let expected = [
        (0, 0, 1),
        (0, 65536, 2),
        (0, (1 << 20) - 8, 3),
        (0, 65536 - 8, 4),
        (0, 131_072, 5),
        (0, 131_072, 7),
    ];
    assert_eq!(stored(&recording), expected);
}

#[test]
fn what_is_no_pool_is_not_recorded() {
    for mode in Mode::BOTH {
        let program = target("mappings.c", &["-O2"]);
        let recording = Recorder::new(&program, &["not_pools", "{pool}"])
            .mode(mode)
            .run();
        recording.assert_exit(0);
        assert_eq!(recording.pool_count(), 0);
        assert_eq!(recording.stores(), []);
    }
}

#[test]
fn other_mappings_of_a_pool_are_not_recorded() {
    let recording = run("pool_and_others");
    assert_eq!(stored(&recording), [(0, 64, 1), (0, 64, 3)]);
}

#[test]
fn a_sparse_pool_larger_than_memory() {
    const LEN: u64 = 64 << 30;
    let recording = run("sparse");
    let mut expected: Vec<_> = (0..16)
        .map(|part| part * (LEN / 16))
        .map(|at| (0, at, at + 1))
        .collect();
    expected.push((0, LEN - 8, 1));
    assert_eq!(stored(&recording), expected);
    assert_eq!(recording.summary["pools"][0]["final_len_bytes"], LEN);
}

/// Only a pool has to lie among the addresses that are recorded.
#[test]
fn a_file_that_is_not_a_pool_at_a_required_address() {
    let program = target("mappings.c", &["-O2"]);
    for mode in Mode::BOTH {
        let recorder = Recorder::new(&program, &["elsewhere"]).mode(mode);
        let [pool, file] = ["pool", "file"].map(|name| recorder.folder().join(name));
        let recording = recorder
            .option("--not-pool", &file)
            .argument(pool)
            .argument(&file)
            .run();
        recording.assert_exit(0);
        assert_eq!(stored(&recording), [(0, 0, 1), (0, 8, 3)]);
    }
}

#[test]
fn protection_taken_away_and_given_back() {
    let recording = run("protected");
    let expected = [(0, 0, 1), (0, 8, 2), (0, 16, 3), (0, 4096, 4)];
    assert_eq!(stored(&recording), expected);
}

#[test]
fn a_pool_removed_while_it_is_mapped() {
    let recording = run("removed");
    assert_eq!(stored(&recording), [(0, 0, 1), (0, 8, 2)]);
}

#[test]
fn moved_and_resized_with_mremap() {
    const MIB: u64 = 1 << 20;
    let recording = run("remapped");
    let expected = [
        (0, 0, 1),
        (0, MIB - 8, 2),
        (0, MIB / 2 - 8, 3),
        (0, MIB - 16, 4),
        (0, 8, 5),
        (0, 16, 6),
        (0, 24, 7),
        (0, 65536, 8),
        (0, 65536 + 4096, 9),
        (0, 131_072, 10),
    ];
    assert_eq!(stored(&recording), expected);
    assert_eq!(recording.count("clflush"), 1);
}

/// Other mappings among the reserved addresses are not recorded, and work.
#[test]
fn a_pool_at_an_address_that_was_reserved() {
    let recording = run("reserved");
    let stores = recording.stores();
    let words: Vec<_> = stores
        .iter()
        .filter(|store| store.kind == "store" && store.offset % 4096 == 0)
        .map(|store| (store.offset, store.value()))
        .collect();
    assert_eq!(words, [(0, 1), (4096, 3), (8192, 5)]);
    assert_eq!(recording.count("system-store"), 1);
    assert_eq!(recording.count("locked-store"), 2);
}

/// The first pool decides where all pools are recorded, so threads must not decide at the same time.
#[test]
fn first_pools_of_two_threads_at_the_same_moment() {
    let program = target("first_pools.c", &["-O2", "-pthread"]);
    let recording = Recorder::new(program, &["{pool}", "4"]).run();
    recording.assert_exit(0);
    assert_eq!(recording.pool_count(), 8);
    assert_eq!(recording.stores().len(), 8 * 16);
}
