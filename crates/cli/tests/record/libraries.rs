//! Code that is loaded or generated after the pool is mapped.

use crate::common::{Event, Mode, Recorder, Recording, record, record_both, target};

fn run(mode: Mode, rounds: &str) -> Recording {
    let program = target("plugins.c", &["-O2"]);
    let library = target("plugin.c", &["-O2", "-shared", "-fPIC"]);
    let library = library.to_str().expect("text");
    record(mode, &program, &["{pool}", library, rounds])
}

fn check(recording: &Recording, rounds: u64) {
    let stores = recording.stores();
    let values = |offset: u64, kind: &str| -> Vec<u64> {
        stores
            .iter()
            .filter(|store| store.offset == offset && store.kind == kind)
            .map(Event::value)
            .collect()
    };
    let twice: Vec<u64> = (1..=rounds).flat_map(|round| [round, round]).collect();
    assert_eq!(values(0, "store"), twice);
    let sums: Vec<u64> = (1..=2 * rounds).collect();
    assert_eq!(values(64, "locked-store"), sums);
    assert_eq!(recording.count("clflush"), 2 * rounds);
    assert_eq!(recording.count("sfence"), 2 * rounds);
}

#[test]
fn a_library_opened_after_the_pool() {
    for mode in Mode::BOTH {
        check(&run(mode, "1"), 1);
    }
}

#[test]
fn a_library_closed_and_opened_again() {
    for mode in Mode::BOTH {
        check(&run(mode, "10"), 10);
    }
}

/// Each time its instructions are patched anew: they need places for their trampolines, of which there are few.
#[test]
fn a_library_opened_and_closed_very_often() {
    check(&run(Mode::Patch, "150"), 150);
}

#[test]
fn threads_open_and_close_a_library_at_the_same_time() {
    let program = target("plugins_in_threads.c", &["-O2", "-pthread"]);
    let library = target("plugin.c", &["-O2", "-shared", "-fPIC"]);
    let library = library.to_str().expect("text");
    for mode in Mode::BOTH {
        let recording = record(mode, &program, &["{pool}", library, "4", "30"]);
        let stores = recording.stores();
        for thread in 0..4 {
            let values = stores
                .iter()
                .filter(|store| store.offset == 64 * thread)
                .map(Event::value);
            assert!(values.eq(1..=30), "thread {thread}");
        }
        assert_eq!(recording.count("store"), 120);
        assert_eq!(recording.count("clflush"), 120);
        assert_eq!(recording.count("sfence"), 120);
    }
}

#[test]
fn code_that_is_generated_at_run_time() {
    let program = target("generated.c", &["-O2"]);
    let recording = record_both(&program, &["before", "{pool}"]);
    let stored: Vec<_> = recording
        .stores()
        .iter()
        .map(|store| (store.kind.clone(), store.offset, store.value()))
        .collect();
    let expected: Vec<_> = [(0, 10), (64, 10), (64, 20), (64, 30)]
        .into_iter()
        .flat_map(|(offset, value)| {
            [
                ("store".to_owned(), offset, value),
                ("locked-store".to_owned(), offset, value + 1),
            ]
        })
        .collect();
    assert_eq!(stored, expected);
    assert_eq!(recording.count("clflush"), 5);
    assert_eq!(recording.count("sfence"), 4);
    assert_eq!(recording.summary["warnings"], serde_json::json!([]));
}

#[test]
fn code_that_changes_while_it_is_executable_is_named() {
    let program = target("generated.c", &["-O2"]);
    for mode in Mode::BOTH {
        let recorder = Recorder::new(&program, &["while_executable", "{pool}"]).mode(mode);
        let attempt = recorder.attempt();
        assert_eq!(attempt.code, 0, "{attempt:?}");
        assert!(
            attempt
                .stdout
                .contains("code is generated at run time at 0x"),
            "{attempt:?}"
        );
    }
}
