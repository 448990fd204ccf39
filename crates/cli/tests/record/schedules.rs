//! Scheduled threads: nothing hangs, nothing is recorded incorrectly, and a seed determines the order.

use std::collections::BTreeSet;

use crate::common::{Mode, Recorder, Recording, assert_same_events, record, target};

fn scheduled(mode: Mode, scenario: &str, seed: u64) -> Recording {
    let program = target("schedules.c", &["-O1", "-pthread"]);
    let recording = Recorder::new(program, &[scenario, "{pool}"])
        .mode(mode)
        .option("--schedule-seed", seed.to_string())
        .option("--schedule-length", "60")
        .run();
    recording.assert_exit(0);
    recording
}

/// The order in which threads stored: each thread has its own offset.
fn order(recording: &Recording) -> Vec<u64> {
    let stores = recording.stores();
    stores.iter().map(|store| store.offset).collect()
}

/// How often the scheduler timed out.
fn lapses(recording: &Recording) -> u64 {
    recording.summary["schedule_lapses"].as_u64().unwrap()
}

#[test]
fn threads_that_wait_for_each_other_are_not_delayed() {
    let scenarios = [
        "plain",
        "mutex",
        "condition",
        "locks",
        "sleep",
        "spin",
        "pipe",
        "nest",
        "fork",
        "cancel",
    ];
    for scenario in scenarios {
        for (mode, seed) in [(Mode::Patch, 1), (Mode::Patch, 2), (Mode::Trap, 3)] {
            let recording = scheduled(mode, scenario, seed);
            let steps = recording.summary["schedule_steps"].as_u64();
            assert!(steps > Some(0), "{scenario}");
        }
    }
}

/// Without timeouts, the order is the same every time; and there are usually none if threads only wait for mutexes and
/// for each other's ends.
#[test]
fn a_seed_gives_the_same_order_again() {
    const TIMES: usize = 6;
    for scenario in ["plain", "mutex", "nest"] {
        for mode in Mode::BOTH {
            let orders: Vec<_> = (0..TIMES)
                .map(|_| scheduled(mode, scenario, 5))
                .filter(|recording| lapses(recording) == 0)
                .map(|recording| order(&recording))
                .collect();
            assert!(
                orders.len() > TIMES / 2,
                "{scenario}: time decided {} times of {TIMES}",
                TIMES - orders.len()
            );
            let distinct: BTreeSet<_> = orders.iter().collect();
            assert_eq!(distinct.len(), 1, "{scenario}");
        }
    }
}

/// Also of threads that are made, wake each other and end: their numbers, the steps that are counted, and where they end.
#[test]
fn a_seed_gives_the_same_trace_again() {
    const TIMES: usize = 4;
    let program = target("../fail/ordering/log_cut_too_early.c", &["-g", "-pthread"]);
    let mut compared = 0;
    for seed in 0..6 {
        let recordings = (0..TIMES).map(|_| {
            Recorder::new(&program, &["{pool}"])
                .option("--schedule-seed", u64::to_string(&seed))
                .option("--schedule-length", "30")
                .run()
        });
        let traces: Vec<_> = recordings
            .filter(|recording| lapses(recording) == 0)
            .map(|recording| {
                let steps = recording.summary["schedule_steps"].as_u64();
                (steps, recording.look(&["events"]))
            })
            .collect();
        compared += traces.len();
        let distinct: BTreeSet<_> = traces.iter().collect();
        assert!(distinct.len() <= 1, "seed {seed}: {distinct:#?}");
    }
    assert!(compared > 12, "{compared}");
}

#[test]
fn other_seeds_give_other_orders() {
    let orders: BTreeSet<_> = (0..8)
        .map(|seed| order(&scheduled(Mode::Patch, "plain", seed)))
        .collect();
    assert!(orders.len() > 3, "{orders:?}");
}

/// In some order, a thread runs between two stores of another thread.
#[test]
fn threads_change_in_the_middle_of_their_work() {
    const STORES: usize = 8;
    let is_interrupted = |order: &Vec<u64>| {
        let pieces = order.chunk_by(|one, other| one == other);
        pieces
            .map(<[u64]>::len)
            .any(|len| (2..STORES).contains(&len))
    };
    let orders = (0..8).map(|seed| order(&scheduled(Mode::Patch, "plain", seed)));
    assert!(orders.filter(is_interrupted).count() > 2);
}

#[test]
fn a_thread_that_is_alone_is_left_alone() {
    let program = target("schedules.c", &["-O1", "-pthread"]);
    for mode in Mode::BOTH {
        let usual = record(mode, &program, &["alone", "{pool}"]);
        let recording = scheduled(mode, "alone", 1);
        assert_eq!(recording.summary["schedule_steps"], 0);
        assert_same_events(&usual, &recording);
    }
}

/// Threads of Rust wait by calling the kernel directly.
#[test]
fn threads_of_rust_are_not_delayed() {
    let program = target("scheduled.rs", &["-O"]);
    for seed in 0..4 {
        let recording = Recorder::new(&program, &["{pool}"])
            .option("--schedule-seed", seed.to_string())
            .run();
        recording.assert_exit(0);
        assert!(recording.summary["schedule_steps"].as_u64() > Some(0));
    }
}
