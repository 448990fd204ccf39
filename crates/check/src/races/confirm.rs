//! Whether an unsafe read matters: recovery runs again, and the read sees the other value.

use std::collections::BTreeMap;
use std::time::Instant;

use powerfail_explore::lazy::{CrashTable, Seen};
use powerfail_finding::Evidence;
use powerfail_image::Patch;
use powerfail_model::{CrashState, EventIndex, PoolIndex};
use powerfail_oracle::LineTable;
use powerfail_trace::StackId;

use super::RacesResult;
use super::pairs::{Instance, Pairs};
use super::rerun::{CLASSES_MAX, RerunPoint};
use super::watch::{OtherValue, WatchOutcome, WatchSettings, WatchedExecution, execute_watched};
use crate::crash::{Engine, Failed, evidence, written};
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::lazy::executor::LazyExecutor;
use crate::lazy::{Load, loads};
use crate::runner::{Survival, Trial};
use crate::symptom::Symptom;

/// At how many failure points a pair is tried.
pub(super) const INSTANCES_MAX: usize = 6;

/// What memory is filled with that was never written: no pointer, no small number, and not what fresh memory holds.
const PATTERNS: [u8; 2] = [0xa5, 0xff];

/// What is tried at a failure point: pairs by their numbers.
type Tasks = BTreeMap<EventIndex, Vec<(usize, Instance)>>;

/// A failure that the other value makes.
pub(super) struct Confirmed {
    pub(super) state: CrashState,
    /// What memory held that was never written.
    filled: Vec<Patch>,
    symptom: Symptom,
    loads: Vec<Load>,
}

/// Of all places where a pair was seen, those that are tried: the first, the last, and some between them. Those
/// where recovery fails with the newest values say less, and are tried where there are no others.
pub(super) fn chosen(instances: &[Instance]) -> Vec<Instance> {
    let with = |is_failing| {
        let instances = instances.iter();
        let fit = instances.filter(move |it| it.is_failing == is_failing && it.can_be_tried());
        fit.cloned().collect::<Vec<Instance>>()
    };
    let mut useful = with(false);
    if useful.is_empty() {
        useful = with(true);
    }
    if useful.len() <= INSTANCES_MAX {
        return useful;
    }
    let last = useful.len() - 1;
    let mut order: Vec<usize> = vec![0, last];
    order.extend((1..INSTANCES_MAX - 1).map(|number| number * last / (INSTANCES_MAX - 1)));
    order
        .into_iter()
        .map(|number| useful[number].clone())
        .collect()
}

impl Engine<'_, '_> {
    /// Tries pairs until each is confirmed or has been tried often enough.
    pub(super) fn confirm_pairs(
        &mut self,
        pairs: &mut Pairs,
        deadline: Option<Instant>,
        found: &mut RacesResult,
    ) -> Result<(), CheckError> {
        let plans: Vec<Vec<Instance>> = pairs.all.iter().map(|it| chosen(&it.instances)).collect();
        let line_bytes = self.runner.line_bytes();
        for turn in 0..INSTANCES_MAX {
            let mut tasks = Tasks::new();
            for (number, (pair, plan)) in pairs.all.iter().zip(&plans).enumerate() {
                if let Some(instance) = plan.get(turn)
                    && pair.evidence.is_none()
                {
                    tasks
                        .entry(instance.at)
                        .or_default()
                        .push((number, instance.clone()));
                }
            }
            if tasks.is_empty() {
                break;
            }
            let progress = self.rerun_all(CheckStep::Reasons, &tasks, &rerun_at, deadline)?;
            found.races.confirmations += progress.executions;
            for tried in progress.results {
                for (number, confirmed) in tried.outcomes {
                    let (state, filled) = (confirmed.state.clone(), confirmed.filled);
                    let failed = Failed {
                        trial: Trial {
                            at: tried.at,
                            state: Survival::Again(state, filled.clone()),
                        },
                        state: confirmed.state,
                        stack: StackId::NONE,
                        symptom: confirmed.symptom,
                        count: 1,
                    };
                    let mut shown: Evidence = evidence(&failed, line_bytes);
                    shown.failure.filled = filled.iter().map(written).collect();
                    pairs.all[number].loads = confirmed.loads;
                    pairs.all[number].failed = Some(failed);
                    pairs.all[number].evidence.get_or_insert(shown);
                }
            }
            if progress.is_interrupted {
                return Err(CheckError::Interrupted);
            }
            if progress.is_over {
                break;
            }
        }
        Ok(())
    }
}

/// Tries pairs at a failure point.
pub(super) fn rerun_at(
    executor: &mut dyn LazyExecutor,
    at: EventIndex,
    tasks: &[(usize, Instance)],
    settings: &WatchSettings<'_>,
) -> Result<RerunPoint<(usize, Confirmed)>, CheckError> {
    executor.move_to(at)?;
    let mut tried = RerunPoint::new(at);
    let table = executor.crash_table();
    let lines = executor.pools().line_table(&table);
    for (number, instance) in tasks {
        let confirmed = match &instance.other {
            OtherValue::Class { choice, count } => {
                let mut confirmation = PointConfirmation {
                    executor: &mut *executor,
                    table: &table,
                    lines: &lines,
                    settings,
                    at,
                    executions: &mut tried.executions,
                };
                if instance.is_failing {
                    confirmation.newest_class(*choice, *count)?
                } else {
                    confirmation.other_class(*choice, *count)?
                }
            }
            OtherValue::Fill(bytes) => fill(executor, at, bytes, settings, &mut tried.executions)?,
            OtherValue::None => None,
        };
        tried.outcomes.extend(confirmed.map(|it| (*number, it)));
    }
    Ok(tried)
}

/// A failure point at which choices are tried.
struct PointConfirmation<'a> {
    executor: &'a mut dyn LazyExecutor,
    table: &'a CrashTable,
    lines: &'a LineTable,
    settings: &'a WatchSettings<'a>,
    at: EventIndex,
    executions: &'a mut u64,
}

impl PointConfirmation<'_> {
    /// Lets a load see one class of values, and the loads before it the newest ones. `None` if recovery refuses.
    fn execute_with(
        &mut self,
        choice: usize,
        class: u16,
    ) -> Result<Option<Box<WatchedExecution>>, CheckError> {
        let mut prefix = vec![0; choice];
        prefix.push(u32::from(class));
        *self.executions += 1;
        let outcome = execute_watched(self.executor, self.lines, &[], &prefix)?;
        Ok(match outcome {
            WatchOutcome::Watched(execution) => Some(execution),
            WatchOutcome::Refused(_) => None,
        })
    }

    /// Lets a load see the values that it did not see.
    fn other_class(&mut self, choice: usize, count: u16) -> Result<Option<Confirmed>, CheckError> {
        for class in 1..count.min(1 + CLASSES_MAX) {
            let Some(watched_execution) = self.execute_with(choice, class)? else {
                break;
            };
            let execution = &watched_execution.execution;
            let contents = self.settings.contents;
            let Some(symptom) = contents.judge(self.at, &execution.verdict) else {
                continue;
            };
            let Ok(seen) = Seen::of_choices(self.table, &execution.choices) else {
                continue;
            };
            let state = seen.newest_state();
            let shown = loads(self.executor, self.table, execution, Some(choice));
            let verdict = self.executor.run(&state, &[])?;
            *self.executions += 1;
            let again = contents.judge(self.at, &verdict);
            if let Some(again) = again.filter(|again| again.code == symptom.code) {
                return Ok(Some(Confirmed {
                    state,
                    filled: Vec::new(),
                    symptom: again,
                    loads: shown,
                }));
            }
        }
        Ok(None)
    }

    /// Where recovery fails with the newest values: whether it does because a load sees the newest one. It
    /// has to succeed if that load sees another.
    fn newest_class(&mut self, choice: usize, count: u16) -> Result<Option<Confirmed>, CheckError> {
        let contents = self.settings.contents;
        for class in 1..count.min(1 + CLASSES_MAX) {
            let Some(watched_execution) = self.execute_with(choice, class)? else {
                break;
            };
            if contents
                .judge(self.at, &watched_execution.execution.verdict)
                .is_some()
            {
                continue;
            }
            let state = CrashState::default();
            let verdict = self.executor.run(&state, &[])?;
            *self.executions += 1;
            let symptom = contents.judge(self.at, &verdict);
            return Ok(symptom.map(|symptom| Confirmed {
                state,
                filled: Vec::new(),
                symptom,
                loads: Vec::new(),
            }));
        }
        Ok(None)
    }
}

/// Lets memory that was never written hold something else.
fn fill(
    executor: &mut dyn LazyExecutor,
    at: EventIndex,
    bytes: &[(PoolIndex, u64, u64)],
    settings: &WatchSettings<'_>,
    executions: &mut u64,
) -> Result<Option<Confirmed>, CheckError> {
    let newest = CrashState::default();
    for pattern in PATTERNS {
        let filled = patches(bytes, pattern);
        let verdict = executor.run(&newest, &filled)?;
        *executions += 1;
        if let Some(symptom) = settings.contents.judge(at, &verdict) {
            return Ok(Some(Confirmed {
                state: newest,
                filled,
                symptom,
                loads: Vec::new(),
            }));
        }
    }
    Ok(None)
}

/// Runs of bytes of lines, filled.
pub(super) fn patches(bytes: &[(PoolIndex, u64, u64)], pattern: u8) -> Vec<Patch> {
    let mut patches: Vec<Patch> = Vec::new();
    for &(pool, line, mask) in bytes {
        for byte in (0..64).filter(|byte| mask >> byte & 1 != 0) {
            let offset = line + byte;
            match patches.last_mut() {
                Some(last)
                    if last.pool == pool && last.offset + last.bytes.len() as u64 == offset =>
                {
                    last.bytes.push(pattern);
                }
                _ => patches.push(Patch {
                    pool,
                    offset,
                    bytes: vec![pattern],
                }),
            }
        }
    }
    patches
}
