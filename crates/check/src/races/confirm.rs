//! Whether an unsafe read matters: recovery runs again, and finds something else.
//!
//! A race exists at failure points, and is tried at each of them, in two ways. First the read sees the other value: the
//! store is lost while others survive. If that shows nothing, the store survives while others are lost. Pairs are tried
//! in rounds, in an order that covers the whole run early, so that a budget cuts off as little as possible.
//!
//! Recovery was watched with the newest values only, and not at failure points where it reads the same as at another one.
//! With an older value it can read something else, which need not be the same there. So pairs that nothing confirms are
//! then tried at these failure points as well ([`Engine::confirm_elsewhere`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use powerfail_explore::lazy::{CrashTable, Seen};
use powerfail_finding::{Evidence, Tried};
use powerfail_image::Patch;
use powerfail_model::{CrashState, EventIndex, LineId, PoolIndex};
use powerfail_oracle::LineTable;
use powerfail_trace::StackId;

use super::pairs::{Instance, Pairs};
use super::rerun::{CLASSES_MAX, RerunPoint};
use super::watch::{
    OtherClass, OtherValue, WatchOutcome, WatchSettings, WatchedExecution, execute_watched,
};
use super::{RacesResult, Watching};
use crate::crash::{Engine, Failed, evidence, written};
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::lazy::executor::LazyExecutor;
use crate::lazy::{Load, loads};
use crate::places::Places;
use crate::runner::{Survival, Trial};
use crate::symptom::Symptom;

/// At how many failure points a pair is tried in the first round. Each further one has twice as many.
const FIRST_ROUND: usize = 6;

/// How many reads of a pair are tried at one failure point: a loop may read many lines that are not durable.
const READS_MAX: usize = 8;

/// How many executions a pair may take where no budget is given.
const EXECUTIONS_MAX: u64 = 2_000;

/// How many lost lines are taken back one by one to find those that matter.
const LOST_MAX: usize = 64;

/// What memory is filled with that was never written: no pointer, no small number, and not what fresh memory holds.
const PATTERNS: [u8; 2] = [0xa5, 0xff];

/// How a run shows that a read matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownBy {
    /// Recovery fails if it reads another value.
    OtherValue,
    /// It fails with every store in place, and succeeds if it reads another value.
    EveryStore,
    /// It fails if the store survives while others are lost, and succeeds if the store is lost, too.
    Survivor,
}

/// What a crash makes of the store of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// The read sees another value.
    OtherValue,
    /// The store survives while others are lost.
    Survivor,
}

/// A pair, by its number, at one failure point.
#[derive(Clone, Debug)]
pub(super) struct ConfirmTask {
    pub(super) pair: usize,
    pub(super) scenario: Scenario,
    /// The reads of the pair there.
    pub(super) instances: Vec<Instance>,
    /// Lines that are not lost: what their loss does is known.
    pub(super) kept: Vec<LineId>,
}

/// What is tried at a failure point.
type Tasks = BTreeMap<EventIndex, Vec<ConfirmTask>>;

/// A failure that shows that a read matters.
pub(super) struct Confirmed {
    pub(super) state: CrashState,
    pub(super) shown_by: ShownBy,
    /// What memory held that was never written.
    filled: Vec<Patch>,
    symptom: Symptom,
    loads: Vec<Load>,
}

/// What a trial shows.
pub(super) enum Answer {
    /// Recovery fails because of the read.
    Confirmed(Box<Confirmed>),
    /// It succeeds.
    Succeeds,
    /// It fails, but also without the cause that was tried, or not again.
    Undecided,
    /// It could not be tried.
    NotTried,
}

/// What was tried of a pair at one failure point.
pub(super) struct PairTried {
    pub(super) pair: usize,
    scenario: Scenario,
    executions: u64,
    pub(super) answer: Answer,
}

/// The numbers from 0 to `len`, so that any beginning is spread over all of them: the first, the last, the one in the
/// middle, and so on.
pub(super) fn spread(len: usize) -> Vec<usize> {
    let mut order = Vec::with_capacity(len);
    let Some(last) = len.checked_sub(1) else {
        return order;
    };
    order.push(0);
    if last > 0 {
        order.push(last);
    }
    let mut gaps = std::collections::VecDeque::from([(0, last)]);
    while let Some((from, to)) = gaps.pop_front() {
        let middle = usize::midpoint(from, to);
        if middle > from {
            order.push(middle);
            gaps.extend([(from, middle), (middle, to)]);
        }
    }
    order
}

/// The failure points at which reads of a pair can be tried in a scenario, with these reads, in the order in which they are
/// tried. The reads come in the order of the trace.
fn plan(instances: &[Instance], scenario: Scenario) -> Vec<Vec<Instance>> {
    let moments = instances.chunk_by(|one, other| one.at == other.at);
    let moments = moments.filter_map(|instances| {
        let fits = |instance: &&Instance| match scenario {
            Scenario::OtherValue => instance.can_be_tried(),
            Scenario::Survivor => matches!(instance.other, OtherValue::Class(_)),
        };
        let fit: Vec<&Instance> = instances.iter().filter(fits).collect();
        let order = spread(fit.len()).into_iter().take(READS_MAX);
        let chosen: Vec<Instance> = order.map(|number| fit[number].clone()).collect();
        (!chosen.is_empty()).then_some(chosen)
    });
    let moments: Vec<Vec<Instance>> = moments.collect();
    let order = spread(moments.len()).into_iter();
    order.map(|number| moments[number].clone()).collect()
}

impl Engine<'_, '_> {
    /// Tries pairs at all failure points at which they were seen, until each is confirmed or the budget is spent.
    pub(super) fn confirm_pairs(
        &mut self,
        pairs: &mut Pairs,
        watching: &Watching<'_>,
        places: &mut Places<'_>,
        found: &mut RacesResult,
    ) -> Result<(), CheckError> {
        for pair in &mut pairs.all {
            pair.tried = Some(Tried::default());
        }
        for scenario in [Scenario::OtherValue, Scenario::Survivor] {
            let kept = match scenario {
                Scenario::OtherValue => BTreeMap::new(),
                Scenario::Survivor => lines_of_confirmed(pairs),
            };
            if self.confirm_in(scenario, &kept, pairs, watching.deadline, found)? {
                return Ok(());
            }
        }
        self.confirm_elsewhere(pairs, watching, places, found)
    }

    /// Tries pairs that are not confirmed at the failure points for which others stood. Recovery is watched there first.
    fn confirm_elsewhere(
        &mut self,
        pairs: &mut Pairs,
        watching: &Watching<'_>,
        places: &mut Places<'_>,
        found: &mut RacesResult,
    ) -> Result<(), CheckError> {
        let plans = pairs.all.iter().map(|pair| {
            let order = spread(pair.elsewhere.len()).into_iter();
            order.map(|number| pair.elsewhere[number]).collect()
        });
        let plans: Vec<Vec<EventIndex>> = plans.collect();
        let mut spent = vec![0_u64; plans.len()];
        let mut watched = BTreeSet::<EventIndex>::new();
        let (mut from, mut len) = (0, FIRST_ROUND);
        loop {
            let mut moments = BTreeSet::<EventIndex>::new();
            let mut is_left = false;
            for ((pair, plan), spent) in pairs.all.iter().zip(&plans).zip(&spent) {
                let is_spent = watching.deadline.is_none() && *spent >= EXECUTIONS_MAX;
                if pair.evidence.is_some() || is_spent || !pair.can_be_tried() {
                    continue;
                }
                is_left |= from < plan.len();
                moments.extend(plan.iter().skip(from).take(len));
            }
            if !is_left {
                return Ok(());
            }
            from += len;
            len *= 2;
            moments.retain(|at| watched.insert(*at));
            let seen = self.watch_again(&moments, watching)?;
            found.races.confirmations += seen.executions;
            if seen.is_interrupted {
                return Err(CheckError::Interrupted);
            }
            pairs.join(Pairs::of(self.trace, &seen, places)?);
            spent.resize(pairs.all.len(), 0);
            for scenario in [Scenario::OtherValue, Scenario::Survivor] {
                let kept = match scenario {
                    Scenario::OtherValue => BTreeMap::new(),
                    Scenario::Survivor => lines_of_confirmed(pairs),
                };
                let mut tasks = Tasks::new();
                for (number, pair) in pairs.all.iter().enumerate() {
                    if pair.evidence.is_some() {
                        continue;
                    }
                    let here = pair.more.iter().filter(|it| moments.contains(&it.at));
                    let here: Vec<Instance> = here.cloned().collect();
                    add_tasks(
                        &mut tasks,
                        number,
                        scenario,
                        plan(&here, scenario).iter(),
                        &kept,
                    );
                }
                if self.try_tasks(&tasks, pairs, &mut spent, watching.deadline, found)? {
                    return Ok(());
                }
            }
            if seen.is_over {
                return Ok(());
            }
        }
    }

    /// Tries pairs in one scenario. Returns whether the time is up.
    fn confirm_in(
        &mut self,
        scenario: Scenario,
        kept: &BTreeMap<EventIndex, BTreeSet<LineId>>,
        pairs: &mut Pairs,
        deadline: Option<Instant>,
        found: &mut RacesResult,
    ) -> Result<bool, CheckError> {
        let plans = pairs.all.iter().map(|it| plan(&it.instances, scenario));
        let plans: Vec<Vec<Vec<Instance>>> = plans.collect();
        let mut spent = vec![0_u64; plans.len()];
        let (mut from, mut len) = (0, FIRST_ROUND);
        loop {
            let mut tasks = Tasks::new();
            for (number, (pair, plan)) in pairs.all.iter().zip(&plans).enumerate() {
                let is_spent = deadline.is_none() && spent[number] >= EXECUTIONS_MAX;
                if pair.evidence.is_some() || is_spent {
                    continue;
                }
                let next = plan.iter().skip(from).take(len);
                add_tasks(&mut tasks, number, scenario, next, kept);
            }
            if tasks.is_empty() {
                return Ok(false);
            }
            from += len;
            len *= 2;
            if self.try_tasks(&tasks, pairs, &mut spent, deadline, found)? {
                return Ok(true);
            }
        }
    }

    /// Runs tasks, and notes what they show. Returns whether the time is up.
    fn try_tasks(
        &mut self,
        tasks: &Tasks,
        pairs: &mut Pairs,
        spent: &mut [u64],
        deadline: Option<Instant>,
        found: &mut RacesResult,
    ) -> Result<bool, CheckError> {
        if tasks.is_empty() {
            return Ok(false);
        }
        let progress = self.rerun_all(CheckStep::Reasons, tasks, &rerun_at, deadline)?;
        found.races.confirmations += progress.executions;
        for point in progress.results {
            for tried in point.outcomes {
                spent[tried.pair] += tried.executions;
                self.take(point.at, tried, pairs);
            }
        }
        if progress.is_interrupted {
            return Err(CheckError::Interrupted);
        }
        Ok(progress.is_over)
    }

    /// Notes what was tried of a pair, and what shows that it matters.
    fn take(&self, at: EventIndex, tried: PairTried, pairs: &mut Pairs) {
        let pair = &mut pairs.all[tried.pair];
        if let Some(sum) = &mut pair.tried {
            tried.count(sum);
        }
        let Answer::Confirmed(confirmed) = tried.answer else {
            return;
        };
        if pair.evidence.is_some() {
            // What it does elsewhere, because of the same read.
            let is_same = pair.shown_by == Some(confirmed.shown_by);
            if let Some(failed) = pair.failed.as_mut().filter(|_| is_same) {
                failed.see_again(&confirmed.symptom, 1);
            }
            return;
        }
        let filled = confirmed.filled;
        let failed = Failed {
            trial: Trial {
                at,
                state: Survival::Again(confirmed.state.clone(), filled.clone()),
            },
            state: confirmed.state,
            stack: StackId::NONE,
            symptom: confirmed.symptom,
            count: 1,
        };
        let mut shown: Evidence = evidence(&failed, self.runner.line_bytes());
        shown.failure.filled = filled.iter().map(written).collect();
        pair.loads = confirmed.loads;
        pair.failed = Some(failed);
        pair.evidence = Some(shown);
        pair.shown_by = Some(confirmed.shown_by);
    }
}

/// Adds what is to be tried of a pair, by failure point.
fn add_tasks<'i>(
    tasks: &mut Tasks,
    pair: usize,
    scenario: Scenario,
    plan: impl Iterator<Item = &'i Vec<Instance>>,
    kept: &BTreeMap<EventIndex, BTreeSet<LineId>>,
) {
    for instances in plan {
        let Some(first) = instances.first() else {
            continue;
        };
        let kept = kept.get(&first.at).into_iter().flatten().copied();
        tasks.entry(first.at).or_default().push(ConfirmTask {
            pair,
            scenario,
            instances: instances.clone(),
            kept: kept.collect(),
        });
    }
}

/// The lines of stores whose loss makes recovery fail, by failure point. Where they survive, other losses show what is
/// not known yet.
fn lines_of_confirmed(pairs: &Pairs) -> BTreeMap<EventIndex, BTreeSet<LineId>> {
    let mut lines = BTreeMap::<EventIndex, BTreeSet<LineId>>::new();
    let confirmed = pairs.all.iter();
    let confirmed = confirmed.filter(|pair| pair.shown_by == Some(ShownBy::OtherValue));
    for instance in confirmed.flat_map(|pair| pair.instances.iter().chain(&pair.more)) {
        if let OtherValue::Class(class) = &instance.other {
            lines.entry(instance.at).or_default().insert(class.line);
        }
    }
    lines
}

impl PairTried {
    fn count(&self, sum: &mut Tried) {
        sum.executions += self.executions;
        if matches!(self.answer, Answer::NotTried) {
            return;
        }
        *match self.scenario {
            Scenario::OtherValue => &mut sum.other_value,
            Scenario::Survivor => &mut sum.survivor,
        } += 1;
        sum.undecided += u64::from(matches!(self.answer, Answer::Undecided));
    }
}

/// Tries pairs at a failure point.
pub(super) fn rerun_at(
    executor: &mut dyn LazyExecutor,
    at: EventIndex,
    tasks: &[ConfirmTask],
    settings: &WatchSettings<'_>,
) -> Result<RerunPoint<PairTried>, CheckError> {
    executor.move_to(at)?;
    let mut tried = RerunPoint::new(at);
    let table = executor.crash_table();
    let lines = executor.pools().line_table(&table);
    let mut confirmation = PointConfirmation {
        executor,
        table: &table,
        lines: &lines,
        settings,
        at,
        executions: 0,
        plain: BTreeMap::new(),
    };
    for task in tasks {
        let before = confirmation.executions;
        let answer = confirmation.try_all(task)?;
        tried.outcomes.push(PairTried {
            pair: task.pair,
            scenario: task.scenario,
            executions: confirmation.executions - before,
            answer,
        });
    }
    tried.executions = confirmation.executions;
    Ok(tried)
}

/// A failure point at which pairs are tried.
struct PointConfirmation<'a> {
    executor: &'a mut dyn LazyExecutor,
    table: &'a CrashTable,
    lines: &'a LineTable,
    settings: &'a WatchSettings<'a>,
    at: EventIndex,
    executions: u64,
    /// What recovery does on crash states that were run before.
    plain: BTreeMap<Vec<(LineId, usize)>, Option<Symptom>>,
}

impl PointConfirmation<'_> {
    /// Tries the reads of a pair until one is confirmed.
    fn try_all(&mut self, task: &ConfirmTask) -> Result<Answer, CheckError> {
        let mut all = Answer::NotTried;
        for instance in &task.instances {
            let answer = match (&instance.other, task.scenario) {
                (OtherValue::Class(class), Scenario::Survivor) => {
                    self.survivor(class, &task.kept)?
                }
                (OtherValue::Class(class), Scenario::OtherValue) if instance.is_failing => {
                    self.newest_class(class)?
                }
                (OtherValue::Class(class), Scenario::OtherValue) => self.other_class(class)?,
                (OtherValue::Fill(bytes), Scenario::OtherValue) => self.fill(bytes)?,
                (OtherValue::Fill(_), Scenario::Survivor) | (OtherValue::None, _) => {
                    Answer::NotTried
                }
            };
            match answer {
                Answer::Confirmed(_) => return Ok(answer),
                Answer::Undecided => all = answer,
                Answer::Succeeds if matches!(all, Answer::NotTried) => all = answer,
                Answer::Succeeds | Answer::NotTried => {}
            }
        }
        Ok(all)
    }

    /// Executes recovery so that a load sees one of the values that it did not see; `None` if that is not possible.
    fn with_class(
        &mut self,
        choice: usize,
        class: u16,
    ) -> Result<Option<Box<WatchedExecution>>, CheckError> {
        let mut prefix = vec![0; choice];
        prefix.push(u32::from(class));
        self.executions += 1;
        let outcome = execute_watched(self.executor, self.lines, &[], &prefix)?;
        Ok(match outcome {
            WatchOutcome::Watched(watched_execution) => Some(watched_execution),
            WatchOutcome::Refused(_) => None,
        })
    }

    /// Runs recovery on a crash state, and nothing else.
    fn run(&mut self, state: &CrashState) -> Result<Option<Symptom>, CheckError> {
        if let Some(known) = self.plain.get(&state.versions) {
            return Ok(known.clone());
        }
        self.executions += 1;
        let verdict = self.executor.run(state, &[])?;
        let symptom = self.settings.contents.judge(self.at, &verdict);
        self.plain.insert(state.versions.clone(), symptom.clone());
        Ok(symptom)
    }

    /// Lets a load see the values that it did not see. Recovery may do something else with each of them.
    fn other_class(&mut self, other: &OtherClass) -> Result<Answer, CheckError> {
        let mut answer = Answer::NotTried;
        let mut confirmed: Option<Box<Confirmed>> = None;
        for class in 1..other.count.min(1 + CLASSES_MAX) {
            let Some(watched_execution) = self.with_class(other.choice, class)? else {
                break;
            };
            let execution = &watched_execution.execution;
            let contents = self.settings.contents;
            let Some(symptom) = contents.judge(self.at, &execution.verdict) else {
                if matches!(answer, Answer::NotTried) {
                    answer = Answer::Succeeds;
                }
                continue;
            };
            answer = Answer::Undecided;
            let Ok(seen) = Seen::of_choices(self.table, &execution.choices) else {
                continue;
            };
            let state = seen.newest_state();
            let shown = match &confirmed {
                Some(_) => Vec::new(),
                None => loads(self.executor, self.table, execution, Some(other.choice)),
            };
            let again = self.run(&state)?;
            let Some(again) = again.filter(|again| again.code == symptom.code) else {
                continue;
            };
            match &mut confirmed {
                Some(confirmed) => confirmed.symptom.also(&again),
                None => {
                    confirmed = Some(Box::new(Confirmed {
                        state,
                        shown_by: ShownBy::OtherValue,
                        filled: Vec::new(),
                        symptom: again,
                        loads: shown,
                    }));
                }
            }
        }
        Ok(confirmed.map_or(answer, Answer::Confirmed))
    }

    /// Where recovery fails with the newest values: whether it does because a load sees the newest one. It
    /// has to succeed if that load sees another.
    fn newest_class(&mut self, other: &OtherClass) -> Result<Answer, CheckError> {
        let mut answer = Answer::NotTried;
        for class in 1..other.count.min(1 + CLASSES_MAX) {
            let Some(watched_execution) = self.with_class(other.choice, class)? else {
                break;
            };
            answer = Answer::Undecided;
            let verdict = &watched_execution.execution.verdict;
            if self.settings.contents.judge(self.at, verdict).is_some() {
                continue;
            }
            let state = CrashState::default();
            if let Some(symptom) = self.run(&state)? {
                return Ok(Answer::Confirmed(Box::new(Confirmed {
                    state,
                    shown_by: ShownBy::EveryStore,
                    filled: Vec::new(),
                    symptom,
                    loads: Vec::new(),
                })));
            }
            break;
        }
        Ok(answer)
    }

    /// Lets the store survive while others are lost, but for those in the lines that are kept. Recovery has to succeed
    /// if the store is lost, too.
    fn survivor(&mut self, other: &OtherClass, kept: &[LineId]) -> Result<Answer, CheckError> {
        let lines = self.table.lines.iter();
        let others: Vec<LineId> = lines
            .map(|line| line.id)
            .filter(|id| *id != other.line && !kept.contains(id))
            .collect();
        // Its loss alone was tried.
        if others.is_empty() {
            return Ok(Answer::NotTried);
        }
        let own = self.table.lines.iter().find(|line| line.id == other.line);
        let Some(newest) = own.and_then(|line| Some(line.contents.first()?.newest_version()))
        else {
            return Ok(Answer::NotTried);
        };
        let (with, without) = (other.without + 1, other.without);
        let state = |lost: &[LineId], version: usize| {
            let lost = lost.iter().map(|id| (*id, 0));
            let mut versions: Vec<(LineId, usize)> = lost.collect();
            // A state names what is not the newest.
            versions.extend((version != newest).then_some((other.line, version)));
            versions.sort_unstable();
            CrashState { versions }
        };
        if self.run(&state(&others, with))?.is_none() {
            return Ok(Answer::Succeeds);
        }
        if self.run(&state(&others, without))?.is_some() {
            return Ok(Answer::Undecided);
        }
        let mut lost = others;
        if lost.len() <= LOST_MAX {
            for id in lost.clone() {
                let fewer: Vec<LineId> = lost.iter().copied().filter(|it| *it != id).collect();
                if !fewer.is_empty()
                    && self.run(&state(&fewer, with))?.is_some()
                    && self.run(&state(&fewer, without))?.is_none()
                {
                    lost = fewer;
                }
            }
        }
        let state = state(&lost, with);
        Ok(match self.run(&state)? {
            Some(symptom) => Answer::Confirmed(Box::new(Confirmed {
                state,
                shown_by: ShownBy::Survivor,
                filled: Vec::new(),
                symptom,
                loads: Vec::new(),
            })),
            None => Answer::Undecided,
        })
    }

    /// Lets memory that was never written hold something else.
    fn fill(&mut self, bytes: &[(PoolIndex, u64, u64)]) -> Result<Answer, CheckError> {
        let newest = CrashState::default();
        for pattern in PATTERNS {
            let filled = patches(bytes, pattern);
            self.executions += 1;
            let verdict = self.executor.run(&newest, &filled)?;
            if let Some(symptom) = self.settings.contents.judge(self.at, &verdict) {
                return Ok(Answer::Confirmed(Box::new(Confirmed {
                    state: newest,
                    shown_by: ShownBy::OtherValue,
                    filled,
                    symptom,
                    loads: Vec::new(),
                })));
            }
        }
        Ok(Answer::Succeeds)
    }
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
