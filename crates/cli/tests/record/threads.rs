//! Many threads on one pool: nothing is lost, and the order is the one in which memory changed.

use std::collections::BTreeSet;

use crate::common::{Event, Mode, Recording, record, target};

fn run(mode: Mode, what: &str, count: &str) -> Recording {
    let program = target("threads.c", &["-O2", "-pthread"]);
    record(mode, &program, &[what, "{pool}", count])
}

/// The values that an offset took, in order.
fn values_at(events: &[Event], offset: u64) -> Vec<u64> {
    events
        .iter()
        .filter(|event| event.is_store() && event.offset == offset)
        .map(Event::value)
        .collect()
}

fn check_counter(mode: Mode, threads: u64) {
    const ROUNDS: u64 = 2000;
    let recording = run(mode, "add", &threads.to_string());
    let events = recording.events();
    let expected: Vec<u64> = (1..=threads * ROUNDS).collect();
    assert_eq!(values_at(&events, 0), expected);
    // Each thread then stored the value that it got, and flushed and fenced it.
    for thread in 0..threads {
        let place = 4096 + 64 * thread;
        let number = events
            .iter()
            .find(|event| event.is_store() && event.offset == place)
            .expect("every thread stores")
            .thread;
        let own: Vec<_> = events
            .iter()
            .filter(|event| event.thread == number)
            .filter(|event| !event.kind.starts_with("thread"))
            .collect();
        assert_eq!(own.len() as u64, 4 * ROUNDS);
        for round in own.chunks(4) {
            let kinds: Vec<_> = round.iter().map(|event| event.kind.as_str()).collect();
            assert_eq!(kinds, ["locked-store", "store", "clflush", "sfence"]);
            assert_eq!(round[0].value(), round[1].value());
            assert_eq!((round[1].offset, round[2].offset), (place, place));
        }
    }
}

#[test]
fn four_threads_add_to_one_counter() {
    for mode in Mode::BOTH {
        check_counter(mode, 4);
    }
}

#[test]
fn eight_threads_add_to_one_counter() {
    for mode in Mode::BOTH {
        check_counter(mode, 8);
    }
}

#[test]
fn contended_compare_and_swap() {
    for mode in Mode::BOTH {
        let recording = run(mode, "swap", "4");
        let expected: Vec<u64> = (1..=8000).collect();
        assert_eq!(values_at(&recording.events(), 128), expected);
        assert_eq!(recording.count("locked-store"), 8000);
    }
}

/// The self-check would detect a store at the wrong position.
#[test]
fn racing_stores_are_in_the_order_of_memory() {
    for mode in Mode::BOTH {
        assert_eq!(run(mode, "race", "4").count("store"), 16_000);
    }
}

#[test]
fn a_lock_free_queue() {
    for threads in ["4", "8"] {
        let recording = run(Mode::Patch, "queue", threads);
        let passed: u64 = 500 * threads.parse::<u64>().expect("a number");
        let events = recording.events();
        for end in [8192, 8192 + 64] {
            let expected: Vec<u64> = (1..=passed).collect();
            assert_eq!(values_at(&events, end), expected);
        }
        assert_eq!(recording.count("locked-store"), 2 * passed);
    }
}

#[test]
fn a_lock_free_queue_with_traps() {
    let recording = run(Mode::Trap, "queue", "4");
    assert_eq!(recording.count("locked-store"), 4000);
}

#[test]
fn thousands_of_short_threads() {
    let recording = run(Mode::Patch, "churn", "2000");
    let events = recording.events();
    let stored: BTreeSet<(u64, u64)> = events
        .iter()
        .filter(|event| event.is_store())
        .map(|event| (event.offset, event.value()))
        .collect();
    let expected: BTreeSet<_> = (0..2000).map(|at| (8 * at, at + 1)).collect();
    assert_eq!(stored, expected);
    let threads: BTreeSet<u64> = events
        .iter()
        .filter(|event| event.is_store())
        .map(|event| event.thread)
        .collect();
    assert_eq!(threads.len(), 2000);
    assert_eq!(recording.summary["threads"], 2001);
    assert_eq!(recording.count("thread-start"), 2001);
    assert_eq!(recording.count("thread-end"), 2001);
}

#[test]
fn destructors_of_threads_are_recorded() {
    for mode in Mode::BOTH {
        let events = run(mode, "destructors", "8").events();
        for thread in 0..8 {
            assert_eq!(values_at(&events, 64 * thread), [1, 0xdead]);
        }
    }
}

/// The main thread ends first; the last of the others ends the process.
#[test]
fn detached_threads() {
    for mode in Mode::BOTH {
        let events = run(mode, "detached", "8").events();
        for thread in 0..8 {
            assert_eq!(values_at(&events, 64 * thread), [7]);
        }
        assert_eq!(values_at(&events, 4096), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}

#[test]
fn a_cancelled_thread_cleans_up() {
    for mode in Mode::BOTH {
        let events = run(mode, "cancelled", "4").events();
        for thread in 0..4 {
            assert_eq!(values_at(&events, 64 * thread), [1, 0xc1ea]);
        }
    }
}
