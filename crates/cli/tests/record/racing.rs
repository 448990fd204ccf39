//! Stores that race: of several threads or processes to the same bytes, of all sizes. Every recording checks itself, and that
//! check fails if two stores are recorded in an order in which they did not happen, even if a third one hides it.

use crate::common::{Event, Mode, Recorder, Recording, record, target};

fn run(mode: Mode, how: &str, count: u32, rounds: u32) -> Recording {
    let program = target("racing.c", &["-O2", "-pthread"]);
    let (count, rounds) = (count.to_string(), rounds.to_string());
    record(mode, &program, &[how, "{pool}", &count, &rounds])
}

#[test]
fn threads() {
    for (count, rounds) in [(2, 4000), (8, 1000), (64, 100)] {
        run(Mode::Patch, "threads", count, rounds);
    }
    for (count, rounds) in [(2, 500), (16, 50)] {
        run(Mode::Trap, "threads", count, rounds);
    }
}

/// Nothing but stores and flushes of one word.
#[test]
fn one_word() {
    run(Mode::Patch, "tight", 4, 4000);
    run(Mode::Trap, "tight", 4, 500);
}

/// A store that another thread makes because of volatile memory that was written after a store comes after it, although nothing
/// of that memory is recorded, and the two stores share no lock.
#[test]
fn one_after_the_other() {
    for (mode, rounds) in [(Mode::Patch, 1000), (Mode::Trap, 50)] {
        let recording = run(mode, "turns", 3, rounds);
        let stores = recording.stores();
        let values = stores.iter().map(Event::value);
        assert!(values.eq(0..u64::from(3 * 3 * rounds)), "{mode:?}");
    }
}

/// These tests can fail: without locks, recordings are soon in a wrong order, and the check of a recording notices it.
#[test]
fn a_wrong_order_is_noticed() {
    const ATTEMPTS: usize = 100;
    let program = target("racing.c", &["-O2", "-pthread"]);
    let is_noticed = (0..ATTEMPTS).any(|_| {
        let arguments = ["sabotaged", "{pool}", "2", "20000"];
        let attempt = Recorder::new(&program, &arguments).attempt();
        attempt.code == 3 && attempt.stderr.contains("wrong order")
    });
    assert!(is_noticed);
}

/// What the kernel writes to a pool, or to its file, has its place among the stores of other threads.
#[test]
fn system_calls() {
    for mode in Mode::BOTH {
        run(mode, "calls", 4, 500);
    }
}

/// What is stored during a call that makes a pool durable comes after the call: the record of it covers what the kernel has
/// written back.
#[test]
fn syncs() {
    for mode in Mode::BOTH {
        run(mode, "syncs", 2, 60);
        run(mode, "syncs", 6, 20);
    }
}

/// The test before can fail: where the stores do not wait for the call, the check of a recording notices it.
#[test]
fn a_store_during_a_sync_is_noticed() {
    const ATTEMPTS: usize = 100;
    let program = target("racing.c", &["-O2", "-pthread"]);
    let is_noticed = (0..ATTEMPTS).any(|_| {
        // One thread stores, so that no two stores can be in a wrong order.
        let arguments = ["sabotaged-syncs", "{pool}", "2", "200"];
        let attempt = Recorder::new(&program, &arguments).attempt();
        attempt.code == 3 && attempt.stderr.contains("wrong order")
    });
    assert!(is_noticed);
}

#[test]
fn processes() {
    run(Mode::Patch, "processes", 4, 1000);
    run(Mode::Trap, "processes", 4, 100);
}

/// More of them than there are buffers to share.
#[test]
fn processes_that_wait_for_each_other() {
    run(Mode::Patch, "waiting", 100, 4);
}

/// What a process held when it was killed is given back.
#[test]
fn processes_that_are_killed() {
    run(Mode::Patch, "killed", 10, 500);
}

/// Handlers store to the same bytes while their thread is in the middle of a store, and some never return.
#[test]
fn handlers() {
    for mode in Mode::BOTH {
        run(mode, "handlers", 4, 500);
    }
}
