//! Stores that race: of several threads or processes to the same bytes, of all sizes. Every recording checks itself, and that
//! check fails if two stores are recorded in an order in which they did not happen, even if a third one hides it.

use crate::common::{Mode, Recording, record, target};

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

#[test]
fn processes() {
    run(Mode::Patch, "processes", 4, 1000);
    run(Mode::Trap, "processes", 4, 100);
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
