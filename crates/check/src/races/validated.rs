//! Reads that recovery validates together: data and its checksum, two copies of a word.
//!
//! Recovery that validates what it reads does one of two things: what is all there is used, and if anything of it
//! is missing, none is. So at a failure point each load that can see several values is made to see another one, one
//! load at a time. If recovery then always does the same, whichever load it was, and something else with the newest
//! values, the reads are safe, and no findings. What it does is what it reads of all that the run has stored, but
//! for these lines, what it stores, and the content that it recovers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use powerfail_model::EventIndex;
use powerfail_oracle::{LazyExecution, LineTable, LogKind, Verdict, Watch};

use super::RacesResult;
use super::confirm::spread;
use super::infer::survey::{Survey, survey};
use super::pairs::{Instance, Pair, Pairs};
use super::rerun::{CLASSES_MAX, RerunPoint};
use super::watch::{ReadKind, WatchOutcome, WatchSettings, execute_and_log};
use crate::crash::Engine;
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::lazy::executor::LazyExecutor;

/// At how many failure points a pair is tried.
const INSTANCES_MAX: usize = 6;

/// No more loads are tried at a failure point: then nothing is said to be validated.
const LOADS_MAX: usize = 64;

/// How recovery reacts if one of several values is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    /// Differently, depending on which value is missing.
    Varies,
    /// Always in the same way. `is_noticed`: that differs from what it does with the newest values.
    Uniform { is_noticed: bool },
}

/// Pairs, by the moment at which the power fails.
type Tasks = BTreeMap<EventIndex, Vec<usize>>;

impl Engine<'_, '_> {
    /// Finds the races that nothing has confirmed and that recovery validates.
    pub(super) fn find_validated(
        &mut self,
        pairs: &mut Pairs,
        deadline: Option<Instant>,
        found: &mut RacesResult,
    ) -> Result<(), CheckError> {
        let is_open = |pair: &Pair| pair.kind == ReadKind::Race && pair.evidence.is_none();
        let plans = pairs.all.iter().map(|pair| {
            if is_open(pair) {
                chosen(&pair.instances)
            } else {
                Vec::new()
            }
        });
        let plans: Vec<Vec<Instance>> = plans.collect();
        if plans.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let survey = survey(self.trace, self.runner.rules())?;
        let mut answers: BTreeMap<usize, Vec<Reaction>> = BTreeMap::new();
        let mut asked: BTreeMap<EventIndex, Reaction> = BTreeMap::new();
        for turn in 0..INSTANCES_MAX {
            let mut tasks = Tasks::new();
            for (number, plan) in plans.iter().enumerate() {
                let known = answers.get(&number);
                // One answer that says no is enough.
                if known.is_some_and(|answers| answers.contains(&Reaction::Varies)) {
                    continue;
                }
                let Some(instance) = plan.get(turn) else {
                    continue;
                };
                match asked.get(&instance.at) {
                    Some(answer) => answers.entry(number).or_default().push(*answer),
                    None => tasks.entry(instance.at).or_default().push(number),
                }
            }
            if tasks.is_empty() {
                continue;
            }
            let progress = self.rerun_all(
                CheckStep::Reasons,
                &tasks,
                &|executor, at, pairs, settings| ask(executor, at, pairs, &survey, settings),
                deadline,
            )?;
            found.races.confirmations += progress.executions;
            if progress.is_interrupted {
                return Err(CheckError::Interrupted);
            }
            for tried in progress.results {
                for (number, answer) in tried.outcomes {
                    asked.insert(tried.at, answer);
                    answers.entry(number).or_default().push(answer);
                }
            }
            if progress.is_over {
                break;
            }
        }
        for (number, answers) in answers {
            pairs.all[number].is_validated = is_validated(&answers);
        }
        let validated = pairs.all.iter().filter(|it| it.is_validated).count();
        found.races.validated = validated as u64;
        Ok(())
    }
}

/// Of all places where a pair was seen, those that are tried: the first, the last, and some between them. Where
/// recovery fails with the newest values it validates nothing.
fn chosen(instances: &[Instance]) -> Vec<Instance> {
    let useful = instances.iter().filter(|it| !it.is_failing);
    let useful: Vec<&Instance> = useful.filter(|it| it.can_be_tried()).collect();
    let order = spread(useful.len()).into_iter().take(INSTANCES_MAX);
    order.map(|number| useful[number].clone()).collect()
}

/// Whether answers at several failure points say so: never apart, and once noticed.
fn is_validated(answers: &[Reaction]) -> bool {
    !answers.contains(&Reaction::Varies)
        && answers.contains(&Reaction::Uniform { is_noticed: true })
}

/// What the pairs that are seen at a failure point are there.
fn ask(
    executor: &mut dyn LazyExecutor,
    at: EventIndex,
    pairs: &[usize],
    survey: &Survey,
    settings: &WatchSettings<'_>,
) -> Result<RerunPoint<(usize, Reaction)>, CheckError> {
    executor.move_to(at)?;
    let mut tried = RerunPoint::new(at);
    let pools = executor.pools();
    let table = executor.crash_table();
    let mut validation = PointValidation {
        lines: &pools.line_table(&table),
        // Also what is stored later: if recovery reads it, recovery has not stopped.
        watches: &survey.watches(EventIndex(u64::MAX), &pools),
        settings,
        at,
        executions: &mut tried.executions,
    };
    let answer = validation.answer(executor)?;
    let answers = pairs.iter().map(|number| (*number, answer));
    tried.outcomes.extend(answers);
    Ok(tried)
}

struct PointValidation<'s> {
    lines: &'s LineTable,
    watches: &'s [Watch],
    settings: &'s WatchSettings<'s>,
    at: EventIndex,
    executions: &'s mut u64,
}

impl PointValidation<'_> {
    fn answer(&mut self, executor: &mut dyn LazyExecutor) -> Result<Reaction, CheckError> {
        let Some(newest) = self.run(executor, &[])? else {
            return Ok(Reaction::Varies);
        };
        let choices = &newest.choices;
        let lines: BTreeSet<u32> = choices.iter().map(|choice| choice.line).collect();
        if lines.len() < 2 || choices.len() > LOADS_MAX {
            return Ok(Reaction::Varies);
        }
        let mut common: Option<Behaviour> = None;
        for (number, choice) in choices.iter().enumerate() {
            for class in 1..choice.class_count.min(1 + CLASSES_MAX) {
                let mut prefix = vec![0; number];
                prefix.push(u32::from(class));
                let Some(other) = self.run(executor, &prefix)? else {
                    return Ok(Reaction::Varies);
                };
                let behaviour = self.behaviour(&other, &lines);
                if *common.get_or_insert_with(|| behaviour.clone()) != behaviour {
                    return Ok(Reaction::Varies);
                }
            }
        }
        let is_noticed = common.is_some_and(|it| it != self.behaviour(&newest, &lines));
        Ok(Reaction::Uniform { is_noticed })
    }

    /// An execution that succeeds, or nothing.
    fn run(
        &mut self,
        executor: &mut dyn LazyExecutor,
        prefix: &[u32],
    ) -> Result<Option<LazyExecution>, CheckError> {
        *self.executions += 1;
        let WatchOutcome::Watched(watched_execution) =
            execute_and_log(executor, self.lines, self.watches, prefix)?
        else {
            return Ok(None);
        };
        let judged = self
            .settings
            .contents
            .judge(self.at, &watched_execution.execution.verdict);
        Ok(judged.is_none().then_some(watched_execution.execution))
    }

    /// What an execution does, but for reading lines of the table that are named.
    fn behaviour(&self, execution: &LazyExecution, lines: &BTreeSet<u32>) -> Behaviour {
        let line_bytes = u64::from(self.lines.line_bytes);
        let is_named = |pool: u32, offset: u64| {
            let named = lines
                .iter()
                .filter_map(|line| self.lines.lines.get(*line as usize));
            let mut named = named.map(|line| (line.pool, line.offset));
            named.any(|(of, start)| of == pool && (start..start + line_bytes).contains(&offset))
        };
        let mut reads: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for note in execution.notes.iter().filter(|note| note.code == 0) {
            if !is_named(note.pool, note.offset) {
                *reads.entry((note.pool, note.offset)).or_default() |= note.bytes;
            }
        }
        let is_store = |kind: LogKind| matches!(kind, LogKind::Store | LogKind::StoreNonTemporal);
        let stores = execution.log.iter().filter(|logged| is_store(logged.kind));
        let stores = stores.map(|logged| (logged.pool, logged.offset, logged.bytes.clone()));
        Behaviour {
            reads,
            stores: stores.collect(),
            dump: match &execution.verdict {
                Verdict::Success { dump } => dump.clone(),
                Verdict::Failure(_) => None,
            },
        }
    }
}

/// What an execution does, for comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Behaviour {
    /// Bytes of lines of 64 bytes, by pool and offset.
    reads: BTreeMap<(u32, u64), u64>,
    /// Pool, offset and bytes.
    stores: Vec<(u32, u64, Vec<u8>)>,
    dump: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use super::{Reaction, is_validated};

    #[test]
    fn validated_is_what_is_never_apart_and_once_noticed() {
        let [silent, noticed] = [false, true].map(|is_noticed| Reaction::Uniform { is_noticed });
        assert!(is_validated(&[silent, noticed, silent]));
        assert!(!is_validated(&[silent, silent]));
        assert!(!is_validated(&[noticed, Reaction::Varies]));
        assert!(!is_validated(&[]));
    }
}
