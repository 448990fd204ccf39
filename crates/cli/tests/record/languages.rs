//! Programs of several languages, built in several ways.

use crate::common::{Mode, Recorder, native, record, record_both, target};

/// Records in both modes; the target must print the same as without powerfail.
fn check_build(source: &str, flags: &[&str]) {
    let program = target(source, flags);
    let recording = record_both(&program, &["{pool}"]);
    let folder = tempfile::tempdir().expect("a folder");
    let pool = folder.path().join("pool");
    let alone = native(&program, &[pool.to_str().expect("text")]);
    assert_eq!(recording.output, String::from_utf8_lossy(&alone.stdout));
}

#[test]
fn c_without_optimisation() {
    check_build("ledger.c", &["-O0"]);
}

#[test]
fn c_optimised() {
    check_build("ledger.c", &["-O2"]);
}

#[test]
fn c_optimised_for_this_processor() {
    check_build("ledger.c", &["-O3", "-march=native"]);
}

#[test]
fn c_at_a_fixed_address() {
    check_build("ledger.c", &["-O2", "-no-pie", "-fno-pie"]);
}

#[test]
fn c_position_independent() {
    check_build("ledger.c", &["-O2", "-pie", "-fPIE"]);
}

#[test]
fn c_for_size() {
    check_build("ledger.c", &["-Os"]);
}

#[test]
fn exceptions_pass_through_stores() {
    check_build("exceptions.cpp", &["-O2"]);
}

#[test]
fn exceptions_without_optimisation() {
    check_build("exceptions.cpp", &["-O0"]);
}

#[test]
fn a_rust_program() {
    for flags in [&[][..], &["-O"]] {
        let program = target("mapped.rs", flags);
        for mode in Mode::BOTH {
            let recording = record(mode, &program, &["{pool}"]);
            assert_eq!(recording.output, "1200\n");
            // The head of the log, and the length of each entry, which is stored last.
            let stores = recording.stores();
            let heads: Vec<u64> = stores
                .iter()
                .filter(|store| store.offset == 0)
                .map(crate::common::Event::value)
                .collect();
            let expected: Vec<u64> = (1..=200).chain([1200]).collect();
            assert_eq!(heads, expected);
            assert_eq!(recording.count("sfence"), 200);
        }
    }
}

/// The content of the pool before the target started is part of the trace.
#[test]
fn a_pool_that_has_content_already() {
    let program = target("ledger.c", &["-O2"]);
    let recorder = Recorder::new(&program, &[]);
    let pool = recorder.folder().join("pool");
    std::fs::write(&pool, vec![0xa5; 1 << 20]).expect("the folder is writable");
    recorder.argument(&pool).run().assert_exit(0);
}
