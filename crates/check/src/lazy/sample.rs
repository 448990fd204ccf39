//! Crash states of a failure point that is too large to be explored, or whose recovery cannot be.
//!
//! First the corners: nothing lost, all lost, and each single line lost or kept alone; then combinations
//! at random, none twice.

use std::collections::HashSet;

use powerfail_explore::Random;
use powerfail_explore::lazy::CrashTable;
use powerfail_model::{CrashState, EventIndex};

/// At most `limit` states. If that is all of them, it says so.
pub(crate) fn sample(
    table: &CrashTable,
    at: EventIndex,
    limit: usize,
    seed: u64,
) -> (Vec<CrashState>, bool) {
    let lines = &table.lines;
    let last = |line: usize| lines[line].contents.len() - 1;
    let mut seen: HashSet<Vec<usize>> = HashSet::new();
    let mut chosen: Vec<Vec<usize>> = Vec::new();
    let mut add = |contents: Vec<usize>| {
        if chosen.len() < limit && seen.insert(contents.clone()) {
            chosen.push(contents);
        }
    };
    let newest = vec![0; lines.len()];
    let oldest: Vec<usize> = (0..lines.len()).map(last).collect();
    add(newest.clone());
    add(oldest.clone());
    // Evenly over the lines, if there are too many for the corners alone.
    let step = (4 * lines.len()).div_ceil(limit.max(1)).max(1);
    for line in (0..lines.len()).step_by(step) {
        let mut lost = newest.clone();
        lost[line] = last(line);
        add(lost);
        let mut kept = oldest.clone();
        kept[line] = 0;
        add(kept);
    }
    let mut random = Random::stream(seed, at.0);
    // What is drawn twice is lost: with few combinations that happens often, so it goes on for a while.
    for _ in 0..8 * limit {
        let drawn = lines
            .iter()
            .map(|line| random.below(line.contents.len() as u64) as usize);
        add(drawn.collect());
    }
    let combinations = lines
        .iter()
        .try_fold(1_usize, |all, line| all.checked_mul(line.contents.len()));
    let is_all = table.truncated.is_empty() && combinations == Some(chosen.len());
    let states = chosen.into_iter().map(|contents| CrashState {
        versions: lines
            .iter()
            .zip(contents)
            .filter(|(_, content)| *content != 0)
            .map(|(line, content)| (line.id, line.contents[content].newest_version()))
            .collect(),
    });
    (states.collect(), is_all)
}
