//! Signals that arrive at any time, and handlers of the target that work as usual.

use crate::common::{Event, Mode, Recorder, Recording, native, record, target};

fn run(mode: Mode, what: &str) -> Recording {
    let program = target("signals.c", &["-O2", "-pthread"]);
    record(mode, &program, &[what, "{pool}"])
}

fn values_at(recording: &Recording, offset: u64) -> Vec<u64> {
    recording
        .stores()
        .iter()
        .filter(|store| store.offset == offset)
        .map(Event::value)
        .collect()
}

#[test]
fn a_timer_that_interrupts_stores() {
    const TICKS: u64 = 100;
    for mode in Mode::BOTH {
        let recording = run(mode, "timer");
        let rounds: u64 = recording.output.trim().parse().expect("a number");
        let events = recording.stores();
        let values = |offset: u64| {
            events
                .iter()
                .filter(move |event| event.offset == offset)
                .map(Event::value)
        };
        assert!(values(8).eq(1..=TICKS), "what the handler stored");
        assert!(values(64).eq(1..=TICKS), "what the handler added");
        assert!(values(0).eq(1..=rounds), "what the program stored");
        assert!(values(256).eq((1..=rounds).map(|round| 3 * round)));
        assert!(values(320).eq(1..=rounds));
    }
}

#[test]
fn stores_with_all_signals_blocked() {
    for mode in Mode::BOTH {
        let recording = run(mode, "blocked");
        let stored: Vec<_> = recording
            .stores()
            .iter()
            .map(|store| (store.offset, store.value()))
            .collect();
        assert_eq!(stored, [(0, 1), (64, 2), (72, 3), (128, 4)]);
    }
}

#[test]
fn a_handler_that_blocks_all_signals() {
    for mode in Mode::BOTH {
        let recording = run(mode, "full_mask");
        assert_eq!(values_at(&recording, 0), [1]);
        assert_eq!(values_at(&recording, 16), [12]);
        assert_eq!(values_at(&recording, 8), [2]);
    }
}

/// Compares with a run without powerfail: signal, code, address and instruction pointer.
#[test]
fn own_faults_are_handled_as_ever() {
    let program = target("signals.c", &["-O2", "-pthread"]);
    let folder = tempfile::tempdir().expect("a folder");
    let pool = folder.path().join("pool");
    let alone = native(&program, &["own_faults", pool.to_str().expect("text")]);
    let alone = String::from_utf8_lossy(&alone.stdout);
    assert!(alone.contains("known: signal 11 code 1 address 7890, instruction +0"));
    for mode in Mode::BOTH {
        let recording = run(mode, "own_faults");
        assert_eq!(recording.output, alone);
        assert_eq!(
            values_at(&recording, 8),
            [0x1230, 0x4560, 0x7890, 0x7890, 0x7890]
        );
        assert_eq!(values_at(&recording, 128), [5, 5, 5]);
    }
}

#[test]
fn a_fault_without_a_handler() {
    let program = target("signals.c", &["-O2", "-pthread"]);
    for mode in Mode::BOTH {
        let recording = Recorder::new(&program, &["fatal_fault", "{pool}"])
            .mode(mode)
            .run();
        recording.assert_signal(11);
        assert_eq!(values_at(&recording, 0), [1]);
    }
}

#[test]
fn own_breakpoints_are_handled_as_ever() {
    for mode in Mode::BOTH {
        let recording = run(mode, "own_traps");
        assert_eq!(recording.output, "5\n");
        assert_eq!(values_at(&recording, 8), [1, 2, 3, 4, 5]);
        assert_eq!(recording.count("clflush"), 5);
    }
}

#[test]
fn handlers_on_an_alternate_stack() {
    for mode in Mode::BOTH {
        let recording = run(mode, "alternate_stack");
        assert_eq!(values_at(&recording, 8), [10, 10, 10]);
        assert_eq!(values_at(&recording, 0), [1, 1, 1]);
    }
}

#[test]
fn a_handler_that_jumps_out_of_a_store() {
    for mode in Mode::BOTH {
        let recording = run(mode, "jump_out");
        let expected: Vec<u64> = (1..=100).collect();
        assert_eq!(values_at(&recording, 8), expected);
    }
}

#[test]
fn a_stack_that_overflows() {
    for mode in Mode::BOTH {
        for what in ["overflow", "overflow_in_thread"] {
            let recording = run(mode, what);
            assert_eq!(values_at(&recording, 0), [1, 2, 3]);
            assert_eq!(values_at(&recording, 8), [11, 11, 11]);
            assert_eq!(recording.count("clflush"), 3);
        }
    }
}

#[test]
fn masks_are_read_back_as_they_were_set() {
    for mode in Mode::BOTH {
        let recording = run(mode, "masks_read_back");
        assert_eq!(values_at(&recording, 0), [1]);
        assert_eq!(values_at(&recording, 8), [2, 3, 2, 3]);
        assert_eq!(values_at(&recording, 16), [3]);
    }
}

/// A store that was announced and then faulted is not in the trace.
#[test]
fn stores_behind_the_end_of_the_file() {
    for mode in Mode::BOTH {
        let recording = run(mode, "bus_errors");
        assert_eq!(values_at(&recording, 128), [5, 5, 5]);
        assert!(values_at(&recording, (1 << 20) + 64).is_empty());
    }
}

#[test]
fn stores_to_a_part_that_is_read_only() {
    for mode in Mode::BOTH {
        let recording = run(mode, "read_only");
        assert_eq!(values_at(&recording, 128), [5, 5, 5]);
        assert!(values_at(&recording, 4096).is_empty());
    }
}
