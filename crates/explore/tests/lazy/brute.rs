//! Brute force: the recovery runs on every crash state, and for nested failures is stopped at every moment. Does not
//! use tables, classes or choices.

use std::collections::BTreeSet;

use powerfail_model::{CrashState, EventIndex, Frontier, Rules, Step};

use crate::machine::{Behaviour, Logged, Plain, Program, THREAD, run};
use crate::workload::{image_of, newest};

/// The pool after a crash: the newest content, except for the lines that a state names.
pub(crate) fn crash_image(frontier: &Frontier, state: &CrashState, len: usize) -> Vec<u8> {
    let mut pool = newest(frontier, len);
    let line_bytes = frontier.rules().domain.line_bytes();
    for (id, version) in &state.versions {
        let line = frontier.open_line(*id).expect("the line is open");
        let start = id.line.0 as usize * line_bytes;
        pool[start..start + line_bytes].copy_from_slice(&line.version(*version));
    }
    pool
}

/// Every pool that a crash can leave.
pub(crate) fn crash_images(frontier: &Frontier, len: usize) -> BTreeSet<Vec<u8>> {
    let states = frontier.crash_states();
    states
        .map(|state| crash_image(frontier, &state, len))
        .collect()
}

pub(crate) fn behaviour_on(program: &Program, pool: &[u8]) -> (Behaviour, Vec<Logged>) {
    run(program, &mut Plain(pool.to_vec()))
}

/// The frontier of a recovery that started with a pool, after its first effects.
pub(crate) fn recovery_frontier(rules: Rules, pool: &[u8], log: &[Logged]) -> Frontier {
    let mut frontier = Frontier::new(rules, image_of(pool));
    for (index, logged) in log.iter().enumerate() {
        frontier.apply(&Step {
            index: EventIndex(index as u64),
            thread: THREAD,
            event: logged.effect.event(),
        });
    }
    frontier
}

/// Every pool that remains when a power failure stops a recovery that started with one of these pools, at any moment.
/// It includes all of `pools`.
pub(crate) fn interrupted(
    rules: Rules,
    program: &Program,
    pools: &BTreeSet<Vec<u8>>,
) -> BTreeSet<Vec<u8>> {
    let mut left = BTreeSet::new();
    for pool in pools {
        let (_, log) = behaviour_on(program, pool);
        for moment in 0..=log.len() {
            let frontier = recovery_frontier(rules, pool, &log[..moment]);
            left.extend(crash_images(&frontier, pool.len()));
        }
    }
    left
}

/// The behaviours of a recovery on any of these pools.
pub(crate) fn behaviours(program: &Program, pools: &BTreeSet<Vec<u8>>) -> BTreeSet<Behaviour> {
    pools
        .iter()
        .map(|pool| behaviour_on(program, pool).0)
        .collect()
}
