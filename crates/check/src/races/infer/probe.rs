//! One failure point: what recovery reads with the new value of a candidate, and with the old one.

use std::collections::BTreeMap;
use std::sync::Arc;

use powerfail_explore::lazy::{CrashTable, Observed};
use powerfail_model::{EventIndex, LineId, LineIndex, PoolIndex};
use powerfail_oracle::{LazyExecution, LineTable, Watch};
use powerfail_races::PoolRange;
use powerfail_trace::{Frame, Module};

use super::super::rerun::{CLASSES_MAX, RerunPoint};
use super::super::watch::{WatchOutcome, WatchSettings, execute_watched, frames_of};
use super::CandidateTest;
use super::survey::Survey;
use crate::error::CheckError;
use crate::lazy::executor::{LazyExecutor, Pools};

/// What is read with one value only: bytes of lines of 64 bytes, by pool and offset.
pub(super) type Bytes = BTreeMap<(PoolIndex, u64), u64>;

/// What came of a test.
pub(super) enum Outcome {
    /// Recovery does not read the candidate, or it cannot be lost there.
    NotRead,
    /// Recovery fails with one of the values.
    Fails,
    /// It was read with both.
    Read(Box<Reading>),
}

/// How a candidate was read.
pub(super) struct Reading {
    /// The how manyth of the first reads of what the run has stored this was, and how many there were.
    pub(super) order: usize,
    pub(super) reads: usize,
    pub(super) modules: Option<Arc<[Module]>>,
    pub(super) frames: Vec<Frame>,
    pub(super) only_new: Bytes,
    pub(super) only_old: Bytes,
}

/// Tries candidates at a failure point.
pub(super) fn probe(
    executor: &mut dyn LazyExecutor,
    at: EventIndex,
    tests: &[CandidateTest],
    survey: &Survey,
    settings: &WatchSettings<'_>,
) -> Result<RerunPoint<(CandidateTest, Outcome)>, CheckError> {
    executor.move_to(at)?;
    let mut probed = RerunPoint::new(at);
    let pools = executor.pools();
    let table = executor.crash_table();
    let scene = Scene {
        at,
        lines: pools.line_table(&table),
        watches: survey.watches(at, &pools),
        pools,
        table,
        settings,
    };
    probed.executions += 1;
    let WatchOutcome::Watched(newest) =
        execute_watched(executor, &scene.lines, &scene.watches, &[])?
    else {
        return Ok(probed);
    };
    let newest = newest.execution;
    let fails = settings.contents.judge(at, &newest.verdict).is_some();
    for test in tests {
        let candidate = survey.candidates[test.candidate].at;
        let outcome = if fails {
            Outcome::Fails
        } else {
            scene.try_other(executor, &newest, candidate, &mut probed.executions)?
        };
        probed.outcomes.push((*test, outcome));
    }
    Ok(probed)
}

/// What is the same for all tests at a failure point.
struct Scene<'s> {
    at: EventIndex,
    pools: Pools,
    table: CrashTable,
    lines: LineTable,
    watches: Vec<Watch>,
    settings: &'s WatchSettings<'s>,
}

impl Scene<'_> {
    /// Runs recovery with the old value of a candidate.
    fn try_other(
        &self,
        executor: &mut dyn LazyExecutor,
        newest: &LazyExecution,
        candidate: PoolRange,
        executions: &mut u64,
    ) -> Result<Outcome, CheckError> {
        let Some((number, from)) = self.choice_of(newest, candidate) else {
            return Ok(Outcome::NotRead);
        };
        let choice = &newest.choices[number];
        let stage = newest.stage_of(number);
        // The next execution may have other addresses.
        let (modules, frames) = frames_of(executor, stage, &choice.frames);
        let contents = &self.table.lines[choice.line as usize].contents;
        let value = |content: u32| {
            let bytes = contents.get(content as usize).map(|it| &it.bytes[..]);
            bytes.and_then(|bytes| bytes.get(from..from + candidate.len as usize))
        };
        for class in 1..choice.class_count.min(1 + CLASSES_MAX) {
            let mut prefix = vec![0; number];
            prefix.push(u32::from(class));
            *executions += 1;
            let WatchOutcome::Watched(other) =
                execute_watched(executor, &self.lines, &self.watches, &prefix)?
            else {
                return Ok(Outcome::NotRead);
            };
            let other = other.execution;
            let Some(taken) = other.choices.get(number) else {
                continue;
            };
            if value(taken.content) == value(choice.content) {
                // The line differs in something else.
                continue;
            }
            let judged = self.settings.contents.judge(self.at, &other.verdict);
            if judged.is_some() {
                return Ok(Outcome::Fails);
            }
            let [new, old] = [newest, &other].map(|it| self.reads_after(it, number, candidate));
            let (order, reads) = self.order_of(newest, candidate);
            return Ok(Outcome::Read(Box::new(Reading {
                order,
                reads,
                modules,
                frames,
                only_new: without(&new, &old),
                only_old: without(&old, &new),
            })));
        }
        Ok(Outcome::NotRead)
    }

    /// The load that decides what recovery sees of a candidate, and where the candidate is in its line.
    fn choice_of(&self, execution: &LazyExecution, candidate: PoolRange) -> Option<(usize, usize)> {
        let line_bytes = self.table.line_bytes as u64;
        let line = self.table.index_of(LineId {
            pool: candidate.pool,
            line: LineIndex(candidate.offset.0 / line_bytes),
        })?;
        let from = (candidate.offset.0 % line_bytes) as usize;
        let number = execution.choices.iter().position(|choice| {
            let observed = Observed::from(choice).bytes;
            choice.skipped == 0
                && choice.line as usize == line
                && observed
                    .iter()
                    .any(|byte| (from..from + candidate.len as usize).contains(&byte))
        })?;
        Some((number, from))
    }

    /// What is read after a choice, but for the candidate.
    fn reads_after(&self, execution: &LazyExecution, choice: usize, candidate: PoolRange) -> Bytes {
        let mut bytes = Bytes::new();
        for note in execution.notes.iter().filter(|note| note.code == 0) {
            if note.skipped != 0 || note.choices as usize <= choice {
                continue;
            }
            if let Some(pool) = self.pools.index(note.pool) {
                let read = note.bytes & !mask_of(candidate, pool, note.offset);
                *bytes.entry((pool, note.offset)).or_default() |= read;
            }
        }
        bytes
    }

    /// The how manyth of the first reads the first one of a candidate is, and how many there are.
    fn order_of(&self, execution: &LazyExecution, candidate: PoolRange) -> (usize, usize) {
        let reads = || execution.notes.iter().filter(|note| note.code == 0);
        let count = reads().count();
        let order = reads().position(|note| {
            let pool = self.pools.index(note.pool);
            pool.is_some_and(|pool| note.bytes & mask_of(candidate, pool, note.offset) != 0)
        });
        (order.unwrap_or(count) + 1, count)
    }
}

/// The bytes of a range, of at most 8 that do not cross a line, in a line of 64 bytes.
fn mask_of(range: PoolRange, pool: PoolIndex, line: u64) -> u64 {
    if range.pool != pool || range.offset.0 / 64 * 64 != line {
        return 0;
    }
    (u64::MAX >> (64 - range.len)) << (range.offset.0 - line)
}

/// What is in one and not in the other.
fn without(one: &Bytes, other: &Bytes) -> Bytes {
    let rest = one.iter().map(|(line, bytes)| {
        let both = other.get(line).copied().unwrap_or(0);
        (*line, bytes & !both)
    });
    rest.filter(|(_, bytes)| *bytes != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use powerfail_model::PoolOffset;

    #[test]
    fn what_is_read_with_one_value_only_is_what_differs() {
        let bytes = |all: &[(u64, u64)]| -> Bytes {
            let all = all.iter();
            all.map(|(line, bytes)| ((PoolIndex(0), *line), *bytes))
                .collect()
        };
        let new = bytes(&[(0, 0xff), (64, 0xf0)]);
        let old = bytes(&[(64, 0xff), (128, 1)]);
        assert_eq!(without(&new, &old), bytes(&[(0, 0xff)]));
        assert_eq!(without(&old, &new), bytes(&[(64, 0x0f), (128, 1)]));
    }

    #[test]
    fn a_candidate_lies_in_one_line() {
        let candidate = PoolRange {
            pool: PoolIndex(1),
            offset: PoolOffset(64 + 56),
            len: 8,
        };
        assert_eq!(mask_of(candidate, PoolIndex(1), 64), 0xff << 56);
        assert_eq!(mask_of(candidate, PoolIndex(1), 128), 0);
        assert_eq!(mask_of(candidate, PoolIndex(0), 64), 0);
    }
}
