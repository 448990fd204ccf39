//! Prefix crashes: every store before the failure point is durable, and nothing after it.
//!
//! Recovery runs at the planned failure points. A failure is traced back to stores by looking for the nearest
//! moments before and after it at which recovery succeeds.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use powerfail_config::Partition;
use powerfail_explore::{
    FailurePoint, FailurePointsByStack, Granularity, ImageDigest, Plan, PlanOptions, PlannedPoint,
    PointSearch,
};
use powerfail_finding::{Code, Finding, PointsNotRun, Role};
use powerfail_model::{CrashState, Event, EventIndex, LineId, LineIndex};
use powerfail_trace::{Body, StackId, Trace};

use super::Crashed;
use super::engine::{Engine, Share, tell_first_failing};
use super::finding::{Failed, evidence};
use super::interrupts::InterruptHandlers;
use super::words::{between, message, notes, points_are, untried_places};
use crate::content::ExpectedContents;
use crate::diagnose::{Cause, Diagnosis, Failing, diagnose};
use crate::error::CheckError;
use crate::event::{CheckEvent, CheckStep};
use crate::options::CrashOptions;
use crate::places::{CodeLine, Places, lines_of};
use crate::reason::{Direction, SPLITS, Search};
use crate::runner::{Survival, Trial, TrialResult};
use crate::share::own_moments;

/// Of acknowledgements with the same call stack, how many are tried.
const ACKNOWLEDGEMENTS_MAX: usize = 64;
/// How many failures are explained at a time: one pass over the trace serves all of them.
const EXPLAINED_AT_A_TIME: usize = 16;
/// How many trials the first batch has if time is limited; each further one has twice as many.
const FIRST_BATCH: usize = 64;

/// In traces with so many events, failure points are tried while they are found.
const EARLY_FROM: u64 = 1 << 18;

/// Results of prefix crashes that were tried while failure points were found.
type Early = BTreeMap<EventIndex, TrialResult>;

/// What is tried in turn.
#[derive(Clone, Copy)]
struct Chosen<'c> {
    trials: &'c [Trial],
    /// The numbers of those that are run.
    own: &'c [usize],
    points: &'c [PlannedPoint],
    /// Call stacks that come before all others.
    new: &'c BTreeSet<StackId>,
}

/// Says that failure points of the end of a trace are not known.
fn unsearched_note(tree: &FailurePointsByStack, trace: &Trace) -> Option<String> {
    let left = tree.unsearched_count();
    (left > 0).then(|| {
        let of = trace.event_count();
        format!("the budget is spent: the last {left} of {of} events were not searched for failure points; see --budget")
    })
}

/// A stretch of the run in which recovery fails in one way, wherever it was tried.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    code: Code,
    /// The searches that have found its borders: before, after.
    borders: [Search; 2],
}

impl Stretch {
    const fn border(&self, direction: Direction) -> &Search {
        match direction {
            Direction::Before => &self.borders[0],
            Direction::After => &self.borders[1],
        }
    }

    /// Whether a moment is between its borders.
    fn contains(&self, at: EventIndex) -> bool {
        let [before, after] = &self.borders;
        before.good_moment().is_some_and(|good| good < at)
            && after.good_moment().is_none_or(|good| at < good)
    }
}

fn trials_of(plan: &Plan, contents: &ExpectedContents, dumps: bool) -> Vec<Trial> {
    let mut trials: Vec<Trial> = plan
        .points
        .iter()
        .map(|planned| Trial::prefix(planned.point.at))
        .collect();
    if dumps {
        // What was acknowledged must be among what is surely durable.
        let operations: Vec<_> = contents.operations().collect();
        let every = operations.len().div_ceil(ACKNOWLEDGEMENTS_MAX).max(1);
        let chosen = operations.iter().step_by(every).chain(operations.last());
        trials.extend(chosen.map(|operation| Trial {
            at: operation.end,
            state: Survival::Floors,
        }));
    }
    trials
}

/// The numbers of the trials of a share.
fn own_trials(trials: &[Trial], partition: Option<Partition>) -> Vec<usize> {
    let Some(partition) = partition else {
        return (0..trials.len()).collect();
    };
    let own = own_moments(partition, trials.iter().map(|trial| (trial.at, 1)));
    let is_own = |number: &usize| own.contains(&trials[*number].at);
    (0..trials.len()).filter(is_own).collect()
}

impl Engine<'_, '_> {
    /// Lets the power fail at the failure points of the tree, with every store before them durable. Returns
    /// the kinds of failures, by call stack.
    pub(super) fn prefix_crashes(
        &mut self,
        options: &CrashOptions,
        each: Duration,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<Vec<(StackId, Code)>, CheckError> {
        self.begin_points();
        let is_stopped = || self.is_late() || self.observer.is_interrupted();
        let mut early = Early::new();
        let mut handlers = self
            .has_slow_recoveries
            .then(InterruptHandlers::default)
            .filter(|_| options.at.is_none());
        let mut tree = match options.at {
            Some(at) => FailurePointsByStack::at(self.trace, at)?,
            None if self.can_try_early(options) => {
                let mut is_wanted = |point: &FailurePoint| match &mut handlers {
                    Some(handlers) => !handlers.have(point, places),
                    None => true,
                };
                self.try_early(options, &mut is_wanted, &mut early)?
            }
            None => FailurePointsByStack::of_unless(self.trace, options.tree, &is_stopped)?,
        };
        crashed.notes.extend(unsearched_note(&tree, self.trace));
        let note = handlers.and_then(|mut it| it.leave_out(&mut tree, places));
        crashed.notes.extend(note);
        tree.retain(|point| options.wants_point(CheckStep::Crashes, point));
        let plan = Plan::of(&tree, PlanOptions::default());
        let mut trials = trials_of(&plan, self.contents, self.runner.dumps());
        trials.retain(|trial| options.at.is_none_or(|at| trial.at == at));
        let own = own_trials(&trials, options.partition);
        let jobs = self.runner.job_count();
        let estimate = each * u32::try_from(own.len() / jobs).unwrap_or(u32::MAX);
        let points = tree.point_count();
        crashed.totals.failure_points = points;
        crashed.totals.failure_point_stacks = tree.stacks().len() as u64;
        self.observer.event(CheckEvent::Plan {
            runs: own.len() as u64,
            points,
            estimate,
            budget: options.budget,
        });
        crashed.notes.extend(notes(&plan));
        let is_of_kind = matches!(options.tree.granularity, Granularity::Only(_));
        let explores_too = options.lazy.is_some();
        if points == 0 && is_of_kind && explores_too && plan.left_out.in_creation == 0 {
            crashed.notes.push(
                "no operation of the kind that --failure-points names follows a store: no crash with every store durable was tried"
                    .to_owned(),
            );
        }
        for stack in tree.stacks() {
            crashed.tried.prefix(stack.stack).points += stack.occurrences;
        }
        crashed.totals.failure_points_not_run = PointsNotRun {
            same_stack: plan.left_out.same_stack,
            equal_image: plan.left_out.equal_image,
            ..PointsNotRun::default()
        };
        let stacks = tree.stacks().iter().map(|stack| stack.stack);
        let (new, note) = options.new_stacks(stacks, places);
        crashed.notes.extend(note);
        let chosen = Chosen {
            trials: &trials,
            own: &own,
            points: &plan.points,
            new: &new,
        };
        let tried = self.try_in_turn(&chosen, &mut early, crashed, places)?;
        for (trial, tried) in trials.iter().zip(&tried).take(plan.points.len()) {
            if tried.verdict.is_some() && self.judge(trial, tried).is_none() {
                self.good.insert(trial.at);
            }
        }
        let failed = self.failures(&trials, &tried, &plan.points)?;
        for failed in &failed {
            let (code, at) = (failed.symptom.code, failed.trial.at);
            if self.first_failing != Some((code, at)) {
                self.observer.event(CheckEvent::Failing { code, at });
            }
        }
        let known = failed.iter().map(|it| (it.stack, it.symptom.code));
        let known = known.collect();
        self.allow(Share::CrashesExplained);
        let is_floor = |failed: &Failed| matches!(failed.trial.state, Survival::Floors);
        let (floors, mut prefixes): (Vec<Failed>, Vec<Failed>) =
            failed.into_iter().partition(is_floor);
        let needing_no_loss = self.explain_floors(&floors, places)?;
        prefixes.extend(needing_no_loss);
        crashed.findings.extend(self.explain(&prefixes, places)?);
        Ok(known)
    }

    /// Whether failure points are tried while they are found: in traces that take long to read. What is right there must be
    /// known beforehand.
    fn can_try_early(&self, options: &CrashOptions) -> bool {
        let is_everything =
            options.partition.is_none() && options.selection.is_none() && options.changed.is_none();
        let first = [EventIndex(0)];
        self.trace.event_count() >= EARLY_FROM
            && is_everything
            && self.contents.missing(&first, self.trace).is_empty()
    }

    /// Finds the failure points of a trace, and tries the first one of each call stack when it is found. If the time is up, those
    /// of the rest of the trace are not known.
    fn try_early(
        &mut self,
        options: &CrashOptions,
        is_wanted: &mut dyn FnMut(&FailurePoint) -> bool,
        early: &mut Early,
    ) -> Result<FailurePointsByStack, CheckError> {
        let trace = self.trace;
        let mut search = PointSearch::new(trace, options.tree)?;
        let mut images: HashSet<ImageDigest> = HashSet::new();
        let until = self.until();
        let is_late = || until.is_some_and(|until| Instant::now() >= until);
        let contents = &*self.contents;
        let first_failing = &mut self.first_failing;
        let observer = RefCell::new(&mut *self.observer);
        let is_interrupted = || observer.borrow().is_interrupted();
        let is_stopped = || is_late() || is_interrupted();
        let outcome = self.runner.run_as_found(
            &is_late,
            &is_interrupted,
            &mut || {
                loop {
                    let Some(point) = search.next_first(&is_stopped)? else {
                        return Ok(None);
                    };
                    if is_wanted(&point) && point.digest.is_none_or(|it| images.insert(it)) {
                        return Ok(Some((point.at, Trial::prefix(point.at))));
                    }
                }
            },
            &mut |at, result| {
                tell_first_failing(contents, first_failing, at, &result, &observer);
                early.insert(at, result);
                let events = trace.event_count();
                let step = CheckStep::Points;
                observer.borrow_mut().progress(step, at.0, events);
            },
        );
        self.unless_interrupted(outcome)?;
        // If recoveries were stopped, so is the search.
        while search
            .next_first(&|| self.is_stopped() || self.observer.is_interrupted())?
            .is_some()
        {}
        Ok(search.finish())
    }

    /// Runs trials, the most valuable first if time is limited, except those with results in `early`. What was not run has
    /// no verdict. A call stack that has failed is not tried again.
    fn try_in_turn(
        &mut self,
        chosen: &Chosen<'_>,
        early: &mut Early,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<Vec<TrialResult>, CheckError> {
        let Chosen {
            trials,
            own,
            points,
            new,
        } = *chosen;
        let mut results = vec![TrialResult::default(); trials.len()];
        let mut order = own.to_vec();
        let mut failed_stacks: BTreeSet<StackId> = BTreeSet::new();
        order.retain(|number| {
            let Some(planned) = points.get(*number) else {
                return true;
            };
            let Some(result) = early.remove(&planned.point.at) else {
                return true;
            };
            if self.judge(&trials[*number], &result).is_some() {
                failed_stacks.insert(planned.point.stack);
            }
            results[*number] = result;
            false
        });
        let mut finished = (own.len() - order.len()) as u64;
        let mut size = order.len().max(1);
        if self.is_bounded() {
            // Acknowledgements are few and come first.
            order.sort_by_key(|number| {
                let point = points.get(*number);
                point.map(|point| (!new.contains(&point.point.stack), point.rank))
            });
            size = FIRST_BATCH.max(trials.len() - points.len());
        }
        let mut skipped: BTreeSet<usize> = BTreeSet::new();
        let mut rest = &order[..];
        while !rest.is_empty() && !self.is_stopped() {
            let (now, later) = rest.split_at(size.min(rest.len()));
            let (known, now): (Vec<usize>, Vec<usize>) = now.iter().partition(|number| {
                let point = points.get(**number);
                point.is_some_and(|point| failed_stacks.contains(&point.point.stack))
            });
            skipped.extend(&known);
            let batch: Vec<Trial> = now.iter().map(|number| trials[*number].clone()).collect();
            let all = (finished, own.len() as u64);
            for (number, result) in now.iter().zip(self.run_partly(&batch, all)?) {
                if let Some(planned) = points.get(*number)
                    && self.judge(&trials[*number], &result).is_some()
                {
                    failed_stacks.insert(planned.point.stack);
                }
                results[*number] = result;
            }
            finished += (now.len() + known.len()) as u64;
            rest = later;
            size *= 2;
        }
        for (number, planned) in points.iter().enumerate() {
            let result = &results[number];
            if result.verdict.is_some() {
                let fails = self.judge(&trials[number], result).is_some();
                // Those with the same image would do the same.
                let count = 1 + planned.equal_images;
                let tries = crashed.tried.prefix(planned.point.stack);
                tries.tried += count;
                tries.failed += if fails { count } else { 0 };
            }
        }
        let is_run = |number: usize| results[number].verdict.is_some();
        let run = (0..points.len()).filter(|number| is_run(*number)).count() as u64;
        crashed.totals.failure_points_run = run;
        let is_left = |number: &usize| !is_run(*number) && !skipped.contains(number);
        let own_points = own.iter().copied().filter(|number| *number < points.len());
        let left: Vec<usize> = own_points.filter(is_left).collect();
        let not_run = &mut crashed.totals.failure_points_not_run;
        not_run.failing_stack = skipped.len() as u64;
        not_run.no_time = left.len() as u64;
        if !skipped.is_empty() {
            let places =
                untried_places(skipped.iter().map(|number| &points[*number].point), places)?;
            crashed.notes.push(format!(
                "{} not tried: recovery fails at another one with the same call stack ({places})",
                points_are(skipped.len() as u64)
            ));
        }
        if !left.is_empty() && self.is_late() {
            let places = untried_places(left.iter().map(|number| &points[*number].point), places)?;
            crashed.notes.push(format!(
                "the budget is spent: {} not tried ({places})",
                points_are(left.len() as u64)
            ));
        }
        Ok(results)
    }

    /// The trials that failed, one for each kind of failure at each call stack.
    fn failures(
        &mut self,
        trials: &[Trial],
        tried: &[TrialResult],
        points: &[PlannedPoint],
    ) -> Result<Vec<Failed>, CheckError> {
        let mut failed: Vec<Failed> = Vec::new();
        for (number, (trial, tried)) in trials.iter().zip(tried).enumerate() {
            let Some(symptom) = self.judge(trial, tried) else {
                continue;
            };
            // Where nothing can be lost, all that is sure is all that there is.
            let trial = if tried.state.versions.is_empty() {
                &Trial::prefix(trial.at)
            } else {
                trial
            };
            let planned = points.get(number);
            let stack = match planned {
                Some(planned) => planned.point.stack,
                None => self.stack_before(trial.at)?,
            };
            let count = 1 + planned.map_or(0, |planned| planned.equal_images);
            let is_floor = |trial: &Trial| matches!(trial.state, Survival::Floors);
            let same = failed.iter_mut().find(|known| {
                known.stack == stack
                    && known.symptom.code == symptom.code
                    && is_floor(&known.trial) == is_floor(trial)
            });
            match same {
                Some(known) => known.see_again(&symptom, count),
                None => failed.push(Failed {
                    trial: trial.clone(),
                    state: tried.state.clone(),
                    stack,
                    symptom,
                    count,
                }),
            }
        }
        Ok(failed)
    }

    /// Traces failures that need nothing to be lost back to stores. If it is interrupted, they are shown as they were
    /// found. Failures of one kind in a stretch of the run have the same borders: the search for the others begins with
    /// those of the first one.
    pub(super) fn explain(
        &mut self,
        failed: &[Failed],
        places: &mut Places<'_>,
    ) -> Result<Vec<Finding>, CheckError> {
        let mut findings: BTreeMap<usize, Finding> = BTreeMap::new();
        let mut left: Vec<usize> = (0..failed.len()).collect();
        left.sort_by_key(|number| failed[*number].trial.at);
        while !left.is_empty() {
            let mut chosen: Vec<usize> = Vec::new();
            for &number in &left {
                let of = &failed[number];
                let is_apart = |other: &usize| {
                    let other = &failed[*other];
                    other.symptom.code != of.symptom.code
                        || self
                            .good
                            .range(other.trial.at..of.trial.at)
                            .next()
                            .is_some()
                };
                let is_chosen = self.stretch_of(of).is_some() || chosen.iter().all(is_apart);
                if is_chosen && chosen.len() < EXPLAINED_AT_A_TIME {
                    chosen.push(number);
                }
            }
            left.retain(|number| !chosen.contains(number));
            let mut searches = Vec::new();
            for &number in &chosen {
                let of = &failed[number];
                let stretch = self.stretch_of(of).cloned();
                for direction in [Direction::Before, Direction::After] {
                    let mut search = Search::new(self.trace, direction, of.trial.at)?;
                    if let Some(stretch) = &stretch {
                        search.suggest(stretch.border(direction));
                    }
                    searches.push(search);
                }
            }
            let ended = if self.is_stopped() {
                None
            } else {
                let ended = self.search(&mut searches);
                self.unless_interrupted(ended)?
            };
            for (&number, pair) in chosen.iter().zip(searches.chunks_exact(2)) {
                let of = &failed[number];
                let finding = match ended {
                    Some(()) => self.prefix_finding(of, &pair[0], &pair[1], places)?,
                    None => {
                        self.untraced += 1;
                        self.undiagnosed(of, places)?
                    }
                };
                findings.insert(number, finding);
                if ended.is_some() && self.stretch_of(of).is_none() {
                    self.stretches.push(Stretch {
                        code: of.symptom.code,
                        borders: [pair[0].clone(), pair[1].clone()],
                    });
                }
            }
        }
        Ok(findings.into_values().collect())
    }

    /// The stretch of the run with failures of this kind in which a failure lies, if it is known.
    fn stretch_of(&self, failed: &Failed) -> Option<&Stretch> {
        let (at, code) = (failed.trial.at, failed.symptom.code);
        self.stretches
            .iter()
            .find(|it| it.code == code && it.contains(at))
    }

    /// Finds the lost stores that matter where only what is surely durable was left. What the lint says about them comes
    /// first, so the findings are kept for later. Returns the failures that need nothing to be lost.
    fn explain_floors(
        &mut self,
        floors: &[Failed],
        places: &mut Places<'_>,
    ) -> Result<Vec<Failed>, CheckError> {
        let rules = self.runner.rules();
        let mut needing_no_loss = Vec::new();
        for batch in floors.chunks(EXPLAINED_AT_A_TIME) {
            let failing: Vec<Failing> = batch.iter().map(failing_of).collect();
            let diagnoses = if self.is_stopped() {
                None
            } else {
                let diagnoses = diagnose(self.trace, rules, &failing, self);
                self.unless_interrupted(diagnoses)?
            };
            let Some(diagnoses) = diagnoses else {
                for failed in batch {
                    self.untraced += 1;
                    let finding = self.undiagnosed(failed, places)?;
                    self.acknowledged.push((finding, Vec::new()));
                }
                continue;
            };
            for (failed, diagnosis) in batch.iter().zip(diagnoses) {
                if diagnosis.cause == Cause::ProgramOrder {
                    needing_no_loss.push(Failed {
                        trial: Trial::prefix(diagnosis.at),
                        state: CrashState::default(),
                        stack: failed.stack,
                        symptom: diagnosis.symptom,
                        count: failed.count,
                    });
                } else {
                    let finding = self.diagnosed(&diagnosis, failed.count, places)?;
                    let beside = self.stores_beside(&diagnosis, places)?;
                    self.acknowledged.push((finding, beside));
                }
            }
        }
        Ok(needing_no_loss)
    }

    /// The lines of code whose stores are in doubt together with the lost ones: one flush is for all of them.
    fn stores_beside(
        &self,
        diagnosis: &Diagnosis,
        places: &mut Places<'_>,
    ) -> Result<Vec<CodeLine>, CheckError> {
        /// So many events before the first lost store, a store may be meant for the same flush.
        const EVENTS_BEFORE: u64 = 256;
        const EVENTS_MAX: usize = 1 << 14;
        let Some(first) = diagnosis.lost.first() else {
            return Ok(Vec::new());
        };
        let line_bytes = self.runner.line_bytes();
        let mut stores: BTreeMap<StackId, EventIndex> = BTreeMap::new();
        let start = EventIndex(first.event.0.saturating_sub(EVENTS_BEFORE));
        let mut records = self.trace.records_from(start);
        for _ in 0..EVENTS_MAX {
            let Some(record) = records.next_record()?.filter(|it| it.index < diagnosis.at) else {
                break;
            };
            if let Body::Pm(Event::Store { at, .. }) = record.body {
                let line = LineId {
                    pool: at.pool,
                    line: LineIndex(at.offset.0 / line_bytes),
                };
                if diagnosis.lost.iter().any(|lost| lost.line == line) {
                    stores.entry(record.stack).or_insert(record.index);
                }
            }
        }
        let mut lines = Vec::new();
        for store in stores.into_values() {
            lines.extend(lines_of(&places.of_event(Role::Store, store)?));
        }
        Ok(lines)
    }

    /// Continues all searches until they are over.
    fn search(&mut self, searches: &mut [Search]) -> Result<(), CheckError> {
        // The fewer moments a round tries, the fewer are tried in all; but each round is a pass over the trace.
        let splits = if self.has_slow_recoveries {
            self.runner.job_count() / searches.len().max(1)
        } else {
            SPLITS
        };
        loop {
            let mut trials = Vec::new();
            let mut owners = Vec::new();
            for (owner, search) in searches.iter().enumerate() {
                for (distance, at) in search.probes(splits) {
                    trials.push(Trial::prefix(at));
                    owners.push((owner, distance));
                }
            }
            if trials.is_empty() {
                return Ok(());
            }
            let tried = self.run(CheckStep::Reasons, &trials)?;
            let mut answers = vec![Vec::new(); searches.len()];
            for ((owner, distance), (trial, tried)) in owners.iter().zip(trials.iter().zip(&tried))
            {
                answers[*owner].push((*distance, self.judge(trial, tried).is_none()));
            }
            for (search, answers) in searches.iter_mut().zip(&answers) {
                if !answers.is_empty() {
                    search.answer(answers);
                }
            }
        }
    }

    fn prefix_finding(
        &mut self,
        failed: &Failed,
        before: &Search,
        after: &Search,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let mut found = Vec::new();
        // Nothing is lost that the program has stored: to blame is the store that comes too early.
        if let Some(survivor) = before.store() {
            found.push(places.of_event(Role::Survivor, survivor)?);
        }
        let lost = after.store().or_else(|| after.nearest_store());
        if let Some(lost) = lost {
            found.push(places.of_event(Role::Store, lost)?);
        }
        found.push(places.of_event(Role::Failure, failed.trial.at)?);
        let message = message(failed.symptom.code, &found);
        let explanation = between(&found, after.store().is_some());
        let mut evidence = evidence(failed, self.runner.line_bytes());
        evidence.last_good_event = before.good_moment().map(|at| at.0);
        evidence.next_good_event = after.good_moment().map(|at| at.0);
        self.finish(failed, found, message, explanation, evidence, places)
    }

    /// The oldest store that the crash state of a failure lost.
    pub(super) fn first_lost_store(
        &self,
        failed: &Failed,
    ) -> Result<Option<EventIndex>, CheckError> {
        const EVENTS_MAX: u64 = 1 << 18;
        let lost: BTreeSet<LineId> = failed
            .state
            .versions
            .iter()
            .map(|(line, _)| *line)
            .collect();
        let start = failed.trial.at.0.saturating_sub(EVENTS_MAX);
        let mut records = self.trace.records_from(EventIndex(start));
        let mut newest = BTreeMap::new();
        while let Some(record) = records.next_record()? {
            if record.index >= failed.trial.at {
                break;
            }
            let Some(step) = record.step() else { continue };
            if let Event::Store { at, bytes, .. } = step.event {
                let line_bytes = self.runner.line_bytes();
                let first = at.offset.0 / line_bytes;
                let end = (at.offset.0 + (bytes.len() as u64).max(1) - 1) / line_bytes;
                for line in first..=end {
                    let id = LineId {
                        pool: at.pool,
                        line: LineIndex(line),
                    };
                    if lost.contains(&id) {
                        newest.insert(id, record.index);
                    }
                }
            }
        }
        Ok(newest.values().min().copied())
    }
}

fn failing_of(failed: &Failed) -> Failing {
    Failing {
        at: failed.trial.at,
        state: failed.state.clone(),
        symptom: failed.symptom.clone(),
    }
}

/// One failure for each call stack and kind.
pub(super) fn once_for_each_stack(all: Vec<Failed>) -> Vec<Failed> {
    let mut once: Vec<Failed> = Vec::new();
    for failed in all {
        let same = once
            .iter_mut()
            .find(|known| known.stack == failed.stack && known.symptom.code == failed.symptom.code);
        match same {
            Some(known) => known.see_again(&failed.symptom, failed.count),
            None => once.push(failed),
        }
    }
    once
}
