//! Sampling, for a failure point that is too large to be explored, or whose recovery cannot be explored.
//!
//! The crash states of a sample are first the corners (nothing lost, everything lost, each single line lost or kept
//! alone), then random combinations, none twice.

use std::collections::HashSet;
use std::time::Instant;

use powerfail_explore::Random;
use powerfail_explore::lazy::CrashTable;
use powerfail_finding::Code;
use powerfail_model::{CrashState, EventIndex};
use powerfail_oracle::Verdict;

use super::confirm::stores;
use super::executor::LazyExecutor;
use super::failure::{FailureKey, LazyFailure};
use super::point::{PointResult, PointSettings};
use crate::error::CheckError;

/// At most `limit` states. If that is all of them, it says so.
pub(crate) fn sample(
    table: &CrashTable,
    at: EventIndex,
    limit: usize,
    seed: u64,
) -> (Vec<CrashState>, bool) {
    let lines = &table.lines;
    let last = |line: usize| lines[line].contents.len() - 1;
    let mut known: HashSet<Vec<usize>> = HashSet::new();
    let mut chosen: Vec<Vec<usize>> = Vec::new();
    let mut add = |contents: Vec<usize>| {
        if chosen.len() < limit && known.insert(contents.clone()) {
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
        let mut without = newest.clone();
        without[line] = last(line);
        add(without);
        let mut kept = oldest.clone();
        kept[line] = 0;
        add(kept);
    }
    let mut random = Random::stream(seed, at.0);
    // A combination that is drawn twice does not count: with few combinations that happens often, so draw more.
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

/// Runs recovery on a sample of the crash states, one by one. Returns whether these were all of them.
pub(crate) fn try_sample(
    executor: &mut dyn LazyExecutor,
    table: &CrashTable,
    settings: &PointSettings<'_>,
    result: &mut PointResult,
) -> Result<bool, CheckError> {
    let (states, is_all) = sample(table, result.at, settings.sample, settings.seed);
    let mut newest: Option<Code> = None;
    for state in states {
        if settings
            .deadline
            .is_some_and(|(deadline, _)| Instant::now() > deadline)
        {
            return Ok(false);
        }
        let verdict: Verdict = executor.run(&state, &[])?;
        result.executions += 1;
        let Some(symptom) = settings.contents.judge(result.at, &verdict) else {
            continue;
        };
        if state.versions.is_empty() {
            newest = Some(symptom.code);
        } else if newest == Some(symptom.code) {
            continue;
        }
        let key = FailureKey {
            code: symptom.code,
            number: symptom.number(),
            load: 0,
            store: None,
            failures: 1,
        };
        let known = result.failures.iter_mut().find(|known| {
            known.key.code == key.code
                && known.state.versions.is_empty() == state.versions.is_empty()
        });
        match known {
            Some(known) => {
                known.count += 1;
                // The fewer lines are lost, the better it explains.
                if known.loads.is_empty() && state.versions.len() < known.state.versions.len() {
                    known.stores = stores(table, &state);
                    known.state = state;
                    let before = std::mem::replace(&mut known.symptom, symptom);
                    known.symptom.also(&before);
                } else {
                    known.symptom.also(&symptom);
                }
            }
            None => result.failures.push(LazyFailure {
                at: result.at,
                stores: stores(table, &state),
                state,
                recovery_crash: None,
                symptom,
                loads: Vec::new(),
                key,
                count: 1,
            }),
        }
    }
    Ok(is_all)
}
