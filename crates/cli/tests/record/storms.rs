//! Stress: everything at once, in real processes. The targets check their pools themselves, and the replay of every
//! recording must give the final pool.

use std::collections::BTreeMap;

use crate::common::{Event, Mode, Recording, record, target};

fn storm(mode: Mode, what: &str, count: u64) -> Recording {
    let program = target("storm.c", &["-O2", "-pthread"]);
    record(mode, &program, &[what, "{pool}", &count.to_string()])
}

/// The values that an offset took, in order.
fn values_at(stores: &[Event], offset: u64) -> impl Iterator<Item = u64> {
    stores
        .iter()
        .filter(move |store| store.offset == offset)
        .map(Event::value)
}

/// Thousands of instructions that are executed for the first time, by all threads at once, and by children that are forked
/// meanwhile.
fn race_through_new_sites(mode: Mode, threads: u64, children: u64) {
    const PLACES: u64 = 1024;
    const AREA_LEN: u64 = 64 << 10;
    let program = target("many_sites.c", &["-O2", "-pthread"]);
    let [own, forked] = [threads, children].map(|count| count.to_string());
    let recording = record(mode, &program, &["{pool}", &own, &forked]);
    let threads = threads + children;
    let groups = threads * PLACES / 64;
    assert_eq!(recording.count("store"), 3 * threads * PLACES);
    assert_eq!(recording.count("locked-store"), groups);
    assert_eq!(recording.count("sfence"), groups);
    let stores = recording.stores();
    assert!(values_at(&stores, 0).eq(1..=groups));
    let mut by_thread: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
    for store in stores.iter().filter(|store| store.offset > 0) {
        by_thread.entry(store.thread).or_default().push(store);
    }
    assert_eq!(by_thread.len() as u64, threads);
    for own in by_thread.values() {
        let area = own[0].offset;
        assert_eq!(area % AREA_LEN, 0);
        for (number, stores) in (0..PLACES).zip(own.chunks(3)) {
            let seen: Vec<_> = stores
                .iter()
                .map(|store| (store.offset - area, store.len_bytes, store.value()))
                .collect();
            let (value, at) = (number + 1, 8 * number);
            let expected = [
                (at, 1, value & 0xff),
                (at + 2, 2, 3 * number),
                (at + 4, 4, number | 1),
            ];
            assert_eq!(seen, expected);
        }
    }
}

#[test]
fn eight_threads_race_through_thousands_of_new_sites() {
    for _ in 0..5 {
        race_through_new_sites(Mode::Patch, 8, 0);
    }
}

#[test]
fn threads_race_through_thousands_of_sites_that_trap() {
    race_through_new_sites(Mode::Trap, 4, 0);
}

/// A child of a process in which another thread patches an instruction finds whole instructions.
#[test]
fn children_that_are_forked_while_instructions_are_patched() {
    for _ in 0..2 {
        race_through_new_sites(Mode::Patch, 4, 8);
    }
    race_through_new_sites(Mode::Trap, 2, 2);
}

/// The values that each child left in its own line, up to the point where it waits to be killed.
fn check_lines(recording: &Recording, children: u64) {
    const AREA: u64 = 4096;
    const STRIDE: u64 = 64;
    let stores = recording.stores();
    let counter: Vec<u64> = values_at(&stores, 0).collect();
    let expected: Vec<u64> = (1..=children).collect();
    assert_eq!(counter, expected);
    let mut lines: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for store in &stores {
        if store.offset >= AREA && store.offset % STRIDE < 16 {
            lines.entry(store.offset).or_default().push(store.value());
        }
    }
    assert_eq!(lines.len() as u64, 2 * children);
    for (offset, values) in lines {
        if offset % STRIDE == 0 {
            assert_eq!(values, [1, 2, 3, 4, 5]);
        } else {
            assert_eq!(values, [1, 3, 6, 10, 15]);
        }
    }
}

/// They end by `_exit`, by `exit`, by their own signal, and by a signal of their parent.
fn check_children(mode: Mode, children: u64) {
    let recording = storm(mode, "children", children);
    assert_eq!(recording.summary["processes"], children + 1);
    check_lines(&recording, children);
}

#[test]
fn children_that_end_and_are_killed_eight_at_a_time() {
    check_children(Mode::Patch, 80);
}

#[test]
fn trapped_children_that_end_and_are_killed_eight_at_a_time() {
    check_children(Mode::Trap, 16);
}

/// Three generations of children.
fn check_generations(mode: Mode, depth: u64) {
    let recording = storm(mode, "generations", depth);
    let all: u64 = recording.output.trim().parse().expect("a number");
    let expected: u64 = (0..=depth as u32).map(|level| 3_u64.pow(level)).sum();
    assert_eq!(all, expected);
    assert_eq!(recording.summary["processes"], all);
    check_lines(&recording, all);
}

#[test]
fn generations_of_children_at_once() {
    check_generations(Mode::Patch, 4);
}

#[test]
fn generations_of_trapped_children_at_once() {
    check_generations(Mode::Trap, 2);
}

/// Two threads, each interrupted every 100 microseconds by its own timer.
fn check_timers(mode: Mode, count: u64) {
    let recording = storm(mode, "timers", count);
    let ticks: u64 = recording.output.trim().parse().expect("a number");
    assert!(ticks >= count);
    let stores = recording.stores();
    assert!(values_at(&stores, 0).eq(1..=ticks));
    for thread in 0..2 {
        let line = 4096 + 64 * thread;
        let own = values_at(&stores, line).count() as u64;
        assert!(values_at(&stores, line).eq(1..=own));
        assert!(values_at(&stores, line + 8).eq(1..=own));
        let area = 65536 + 8192 * thread;
        let rounds = values_at(&stores, area).count() as u64;
        assert!(values_at(&stores, area).eq(1..=rounds));
        assert!(values_at(&stores, area + 64).eq((1..=rounds).map(|round| 3 * round)));
        assert!(values_at(&stores, area + 128).eq(1..=rounds));
    }
}

#[test]
fn timers_interrupt_threads_everywhere() {
    check_timers(Mode::Patch, 200);
}

#[test]
fn timers_interrupt_trapped_threads_everywhere() {
    check_timers(Mode::Trap, 100);
}
