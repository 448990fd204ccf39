//! Lazy exploration: the content of a line is chosen only when recovery reads it.
//!
//! At the failure points that cover all crash states of the run, recovery is executed once for each sequence of values
//! that it can observe. Executions that fail become crash states, and only those on which recovery fails again in a
//! plain run are reported. `docs/design/lazy.md` explains the idea and the other crates that take part.
//!
//! ```text
//! points ──rounds──▶ driver ──worker──▶ point ──walk──▶ executions ──confirm──▶ failures ──▶ crash::lazy_findings
//!                      ▲                  │
//!                    reuse ◀──read lines──┘
//! ```
//!
//! - [`driver`]: a round of failure points on several workers, with the result of one worker.
//! - [`executor`]: what a worker executes recovery with; tests replace it by a function.
//! - [`point`]: one failure point; [`walk`]: the tree of its executions; [`leaves`]: what is kept of them;
//!   [`sample`]: where there are too many.
//! - [`confirm`]: failing executions become [`failure`]s; [`choices`](mod@choices): what a finding says about the loads.
//! - [`nested`]: power failures during recovery; [`interruptions`]: which of them are tried. [`robustness`]: executions that no moment of the run explains.
//! - [`observations`]: what points learn from each other; [`kept`]: what is kept of that in a file. [`reuse`]: failure
//!   points that need no run.
//! - [`turns`]: how failure points share the time.
//! - [`budget`]: `--max-executions`. [`states`]: sizes of state spaces.

mod budget;
mod choices;
mod confirm;
pub(crate) mod driver;
pub(crate) mod executor;
mod failure;
mod interruptions;
pub(crate) mod kept;
mod leaves;
mod nested;
mod observations;
mod point;
pub(crate) mod reuse;
mod robustness;
mod sample;
pub(crate) mod states;
#[cfg(test)]
pub(crate) mod tests;
mod turns;
pub(crate) mod walk;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use powerfail_config::Partition;
use powerfail_explore::lazy::{SegmentLimits, Segments};
use powerfail_explore::{
    FailurePoint, FailurePointOptions, FailurePointsByStack, LeftOut, Plan, PlanOptions,
};
use powerfail_finding::{Code, Exploration, Tries};
use powerfail_image::{CursorOptions, ImageCursor};
use powerfail_model::{EventIndex, Rules};
use powerfail_trace::{StackId, Trace};

use crate::content::ExpectedContents;
use crate::error::CheckError;
use crate::event::{CheckEvent, CheckStep, Observer};
use crate::options::{CrashOptions, LazyOptions};
use crate::runner::Runner;
use crate::share::own_moments;
use budget::{BudgetedExecutor, ExecutionBudget};
use driver::{Bounds, Progress, Round, RoundObserver, round};
use executor::OracleExecutor;
use interruptions::ChosenInterruptions;
use observations::Trees;
use point::{PointResult, PointSettings, Reason, SurveyedPoint, Thoroughness};
use reuse::{Changes, ExecutedPoint, Reuse};
use turns::{KnownFailures, Turn, TurnKind};

pub(crate) use choices::choices;
pub(crate) use confirm::loads;
use failure::FailureKey;
pub(crate) use failure::{LazyFailure, Load};
pub(crate) use robustness::Contradiction;

/// The first round has at least this many failure points.
const FIRST_ROUND: usize = 64;
/// Second failures get this part of the time.
const SECOND_SHARE: u32 = 3;
/// Crash states that are tried at a failure point which cannot be explored.
const SAMPLE: usize = 64;

/// What lazy exploration has shown.
#[derive(Debug, Default)]
pub(crate) struct LazyResult {
    /// One for each kind of failure at each failure point, by failure point and choices.
    pub(crate) failures: Vec<LazyFailure>,
    /// The call stack of the failure point of each failure.
    pub(crate) stacks: Vec<StackId>,
    /// Pairs of stores that contradict each other in what recovery read, with the number of executions.
    pub(crate) contradictions: BTreeMap<Contradiction, u64>,
    pub(crate) exploration: Exploration,
    /// Distinct call stacks of all failure points.
    pub(crate) stack_count: u64,
    pub(crate) notes: Vec<String>,
    /// Failure points that were not tried, by call stack: the first moment, and how many there are.
    pub(crate) untried: BTreeMap<StackId, (EventIndex, u64)>,
    /// What was tried, by call stack.
    pub(crate) tries: BTreeMap<StackId, Tries>,
    /// Failure points that annotations of the program leave out.
    pub(crate) out_of_scope: u64,
    pub(crate) is_interrupted: bool,
}

/// The failure points to explore, the most valuable first.
pub(crate) struct LazyPoints {
    ranked: Vec<FailurePoint>,
    /// The moments of the share, if only a share is tried.
    own: Option<BTreeSet<EventIndex>>,
    stacks: usize,
    out_of_scope: u64,
}

impl LazyPoints {
    pub(crate) fn of(
        trace: &Trace,
        runner: &Runner<'_>,
        options: &CrashOptions,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self, CheckError> {
        let tree = FailurePointOptions {
            per_stack: 0,
            ..options.tree
        };
        let by_stack = match options.at {
            Some(at) => FailurePointsByStack::at(trace, at)?,
            None => FailurePointsByStack::covering_unless(trace, runner.rules(), tree, is_stopped)?,
        };
        if by_stack.unsearched_count() > 0 {
            return Err(CheckError::Interrupted);
        }
        let (ranked, left_out) = ranked(&by_stack);
        Ok(Self {
            ranked,
            own: None,
            stacks: by_stack.stacks().len(),
            out_of_scope: left_out.out_of_scope,
        })
    }

    /// Leaves out the points that are not wanted.
    pub(crate) fn retain(&mut self, is_wanted: impl FnMut(&FailurePoint) -> bool) {
        self.ranked.retain(is_wanted);
    }

    /// Puts the points of some call stacks before all others.
    pub(crate) fn prefer(&mut self, stacks: &BTreeSet<StackId>) {
        self.ranked
            .sort_by_key(|point| !stacks.contains(&point.stack));
    }

    /// The call stacks of the points.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.ranked.iter().map(|point| point.stack)
    }

    /// Leaves all points but those of a share to others. A point costs about as much as it has open lines.
    pub(crate) fn share(
        &mut self,
        trace: &Trace,
        rules: Rules,
        partition: Partition,
    ) -> Result<(), CheckError> {
        let options = CursorOptions {
            rules: Some(rules),
            ..CursorOptions::default()
        };
        let mut cursor = ImageCursor::new(trace, options)?;
        let mut moments: Vec<EventIndex> = self.moments().collect();
        moments.sort_unstable();
        moments.dedup();
        let mut costs = Vec::new();
        for at in moments {
            cursor.move_to(at)?;
            let open = cursor
                .frontier()
                .map_or(0, |it| it.open_lines_sorted().len());
            costs.push((at, 1 + open as u64));
        }
        let own = own_moments(partition, costs.into_iter());
        self.own = Some(own);
        Ok(())
    }

    /// Whether a point is to be tried.
    fn is_own(&self, point: &FailurePoint) -> bool {
        let own = self.own.as_ref();
        own.is_none_or(|own| own.contains(&point.at))
    }

    /// Those that are not tried, by call stack: the first moment, and how many there are.
    fn untried(&self, progress: &Progress<PointResult>) -> BTreeMap<StackId, (EventIndex, u64)> {
        let explored = progress.results.iter().map(|result| result.at);
        let tried: BTreeSet<EventIndex> = explored
            .chain(progress.covered_points.iter().copied())
            .collect();
        let mut untried = BTreeMap::new();
        for point in self
            .ranked
            .iter()
            .filter(|point| !tried.contains(&point.at) && self.is_own(point))
        {
            let (first, count) = untried.entry(point.stack).or_insert((point.at, 0));
            *first = point.at.min(*first);
            *count += 1;
        }
        untried
    }

    /// What was tried, by call stack.
    fn tries(&self, progress: &Progress<PointResult>) -> BTreeMap<StackId, Tries> {
        let mut results = BTreeMap::new();
        // A later turn replaces an earlier one.
        for result in &progress.results {
            let is_sampled = result.thoroughness != Thoroughness::Exhaustive;
            results.insert(result.at, (is_sampled, result.fails()));
        }
        for at in &progress.covered_points {
            results.entry(*at).or_insert((false, false));
        }
        let mut tries: BTreeMap<StackId, Tries> = BTreeMap::new();
        for point in &self.ranked {
            let result = results.get(&point.at);
            let of = tries.entry(point.stack).or_default();
            of.points += 1;
            of.tried += u64::from(result.is_some());
            of.sampled += u64::from(result.is_some_and(|(is_sampled, _)| *is_sampled));
            of.failed += u64::from(result.is_some_and(|(_, fails)| *fails));
        }
        tries
    }

    /// The moments at which the power fails.
    pub(crate) fn moments(&self) -> impl Iterator<Item = EventIndex> {
        let own = self.ranked.iter().filter(|point| self.is_own(point));
        own.map(|point| point.at)
    }
}

/// All failure points, the most valuable first, and what is left out.
pub(crate) fn ranked(by_stack: &FailurePointsByStack) -> (Vec<FailurePoint>, LeftOut) {
    let options = PlanOptions {
        limit: None,
        keep_equal_images: true,
    };
    let plan = Plan::of(by_stack, options);
    let mut planned = plan.points;
    planned.sort_unstable_by_key(|planned| planned.rank);
    let ranked = planned.into_iter().map(|planned| planned.point).collect();
    (ranked, plan.left_out)
}

/// Divides failure points into rounds, each in the order of the trace. If there is time for all points, there is one
/// round; otherwise the first round has each call stack once, and each further round is twice as large. `ranked` has
/// the most valuable first; `stacks` is the number of call stacks, given if there may not be time for all.
pub(crate) fn rounds(ranked: &[FailurePoint], stacks: Option<usize>) -> Vec<Vec<FailurePoint>> {
    let mut rest = ranked;
    let mut size = stacks.map_or(rest.len(), |stacks| stacks.max(FIRST_ROUND));
    let mut rounds = Vec::new();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(size.min(rest.len()));
        let mut points = now.to_vec();
        points.sort_unstable_by_key(|point| point.at);
        rounds.push(points);
        rest = later;
        size *= 2;
    }
    rounds
}

/// What limits lazy exploration.
pub(crate) struct LazyLimits<'o> {
    pub(crate) options: &'o LazyOptions,
    /// How long it may take.
    pub(crate) time: Option<Duration>,
    /// How long one recovery takes, roughly.
    pub(crate) each: Duration,
    /// The seed of random choices.
    pub(crate) seed: u64,
}

/// Explores the failure points.
pub(crate) fn explore<'t>(
    trace: &'t Trace,
    runner: &mut Runner<'t>,
    points: &LazyPoints,
    contents: &ExpectedContents,
    limits: &LazyLimits<'_>,
    observer: &mut dyn Observer,
) -> Result<LazyResult, CheckError> {
    let options = limits.options;
    let deadline = limits.time.map(|time| Instant::now() + time);
    // With a limit of executions, which of them are known must not decide how far it reaches.
    let learns = options.random.is_none() && options.max_executions.is_none();
    let learned = learns.then(|| trees_of(trace, runner, points, options.depth));
    let learned = learned.transpose()?;
    let mut exploration = TurnByTurn {
        trace,
        trees: learned.as_ref(),
        runner,
        contents,
        limits,
        deadline,
        stacks: points.stacks,
        budget: options.max_executions.map(ExecutionBudget::new),
        observer,
        second_time: limits.time.map(|time| time / SECOND_SHARE),
        announced: BTreeSet::new(),
        chosen: Mutex::default(),
    };
    let total = points.ranked.len() as u64;
    let mut progress = Progress::<PointResult>::default();
    let mut second: Option<SecondTurns> = None;
    for turn in turns::turns(options, total) {
        let earlier = match (turn.kind, &second) {
            (TurnKind::SecondAgain, Some(second)) => &second.progress.results,
            _ => &progress.results,
        };
        let mut chosen = turns::points_of(turn, &points.ranked, earlier);
        chosen.retain(|point| points.is_own(point));
        let is_over = exploration.is_late() || exploration.is_spent();
        if chosen.is_empty() || is_over || progress.is_interrupted || progress.is_over {
            continue;
        }
        let mut now = Progress::<PointResult>::default();
        match turn.kind {
            TurnKind::First => exploration.turn(turn, &chosen, &[], &mut progress)?,
            TurnKind::Again => {
                exploration.turn(turn, &chosen, &progress.results, &mut now)?;
                progress.add(now);
            }
            TurnKind::Second | TurnKind::SecondAgain => {
                let judged = keys_of(&progress.results);
                exploration.second_turn(turn, &chosen, &judged, &mut now)?;
                progress.is_interrupted |= now.is_interrupted;
                match &mut second {
                    Some(second) => second.progress.add(now),
                    None => {
                        second = Some(SecondTurns {
                            points: chosen.len() as u64,
                            progress: now,
                        });
                    }
                }
            }
        }
    }
    let budget = exploration.budget;
    // With a limit of executions, time is not what was missing.
    let most = options.limit.filter(|_| options.max_executions.is_none());
    turns::settle_reasons(&mut progress.results, most);
    runner.runs += progress.executions;
    let untried = points.untried(&progress);
    let tries = points.tries(&progress);
    let mut explored = summarise(progress, total);
    explored.untried = untried;
    explored.tries = tries;
    if let Some(second) = second {
        runner.runs += second.progress.executions;
        explored.add(second);
    }
    explored.stack_count = points.stacks as u64;
    explored.out_of_scope = points.out_of_scope;
    let note = budget.and_then(|budget| budget.note(&explored.exploration));
    explored.notes.extend(note);
    explored
        .notes
        .extend(learned.and_then(|trees| trees.note()));
    Ok(explored)
}

/// One tree of observations for each segment of the run.
fn trees_of(
    trace: &Trace,
    runner: &Runner<'_>,
    points: &LazyPoints,
    depth: u32,
) -> Result<Trees, CheckError> {
    // Those of all shares: the segments are the same in each of them, so that merged executions fit.
    let mut moments: Vec<EventIndex> = points.ranked.iter().map(|point| point.at).collect();
    moments.sort_unstable();
    moments.dedup();
    let fill = runner.fill().map(|fill| fill.byte);
    let limits = SegmentLimits::default();
    let segments = Segments::of(trace, runner.rules(), fill, &moments, limits)?;
    Ok(Trees::new(segments, depth))
}

/// What the turns of an exploration share.
struct TurnByTurn<'a, 't> {
    trace: &'t Trace,
    /// What points learn from each other.
    trees: Option<&'a Trees>,
    runner: &'a mut Runner<'t>,
    contents: &'a ExpectedContents,
    limits: &'a LazyLimits<'a>,
    deadline: Option<Instant>,
    stacks: usize,
    budget: Option<ExecutionBudget>,
    observer: &'a mut dyn Observer,
    /// How long second failures may take.
    second_time: Option<Duration>,
    /// The kinds of failures that the observer has heard of.
    announced: BTreeSet<(Code, Option<StackId>, u32)>,
    /// The second failures that are tried.
    chosen: Mutex<ChosenInterruptions>,
}

/// The failures that recovery has, after one power failure, at each failure point.
type JudgedKeys = BTreeMap<EventIndex, Vec<FailureKey>>;

fn keys_of(results: &[PointResult]) -> JudgedKeys {
    let keys = |result: &PointResult| {
        let keys = result.failures.iter().map(|failure| failure.key.clone());
        (result.at, keys.collect())
    };
    results.iter().map(keys).collect()
}

impl TurnByTurn<'_, '_> {
    /// Tells the observer about kinds of failures that it has not heard of.
    fn announce(&mut self, results: &[PointResult]) {
        for failure in results.iter().flat_map(|it| &it.failures) {
            let key = &failure.key;
            if self.announced.insert((key.code, key.store, key.failures)) {
                let (code, at) = (key.code, failure.at);
                self.observer.event(CheckEvent::Failing { code, at });
            }
        }
    }

    /// Whether there is no time left.
    fn is_late(&self) -> bool {
        let deadline = self.deadline;
        deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether no execution is left.
    fn is_spent(&self) -> bool {
        let budget = self.budget.as_ref();
        budget.is_some_and(|budget| budget.left() == 0)
    }

    /// Explores points at which the power fails once. `before` are the results of earlier turns.
    fn turn(
        &mut self,
        turn: Turn,
        points: &[FailurePoint],
        before: &[PointResult],
        progress: &mut Progress<PointResult>,
    ) -> Result<(), CheckError> {
        let step = match turn.kind {
            TurnKind::First => CheckStep::Lazy,
            _ => CheckStep::LazyAgain,
        };
        self.explore(step, turn, points, before, None, progress)
    }

    /// Lets the power fail again during recovery. `judged` is what fails without that. All such turns together get a
    /// part of the time.
    fn second_turn(
        &mut self,
        turn: Turn,
        points: &[FailurePoint],
        judged: &JudgedKeys,
        progress: &mut Progress<PointResult>,
    ) -> Result<(), CheckError> {
        let begun = Instant::now();
        let deadline = self.deadline;
        let until = self.second_time.map(|time| begun + time);
        self.deadline = match (deadline, until) {
            (Some(deadline), Some(until)) => Some(deadline.min(until)),
            (deadline, until) => deadline.or(until),
        };
        let explored = self.explore(CheckStep::Second, turn, points, &[], Some(judged), progress);
        self.deadline = deadline;
        let took = begun.elapsed();
        self.second_time = self.second_time.map(|time| time.saturating_sub(took));
        explored
    }

    fn explore(
        &mut self,
        step: CheckStep,
        turn: Turn,
        points: &[FailurePoint],
        before: &[PointResult],
        judged: Option<&JudgedKeys>,
        progress: &mut Progress<PointResult>,
    ) -> Result<(), CheckError> {
        let options = self.limits.options;
        let total = points.len() as u64;
        let bounds = Bounds {
            max_executions: self.budget.as_mut().map(ExecutionBudget::begin_turn),
            deadline: self.deadline,
        };
        let is_bounded = self.deadline.is_some() || options.max_executions.is_some();
        let fill = self.runner.fill().map(|fill| fill.byte);
        let rules = self.runner.rules();
        let mut rounds = VecDeque::from(rounds(points, is_bounded.then_some(self.stacks)));
        while let Some(mut points) = rounds.pop_front() {
            if progress.is_over {
                break;
            }
            let known = KnownFailures::of(if before.is_empty() {
                &progress.results
            } else {
                before
            });
            let mut settings = PointSettings {
                trees: self.trees,
                judged,
                // Who wants everything gets it.
                known: options.limit.is_some().then_some(&known),
                deadline: self.deadline.map(|deadline| (deadline, self.limits.each)),
                ..settings_of(turn, self.limits, self.contents, judged.is_some())
            };
            let mut is_scarce = false;
            if let Some(budget) = &mut self.budget
                && let Some(share) = budget.share(points.len(), turn)
            {
                is_scarce = true;
                settings.sample = share.sample;
                let later = points.split_off(share.points);
                if !later.is_empty() {
                    rounds.push_front(later);
                }
            }
            let others = progress.results.iter().chain(before).map(|it| it.at);
            let mut moments: Vec<EventIndex> =
                points.iter().map(|it| it.at).chain(others).collect();
            moments.sort_unstable();
            moments.dedup();
            let changes = Changes::of(self.trace, rules, fill, &moments)?;
            let others = progress.results.iter().chain(before);
            let mut reuse = Reuse::new(&changes, self.contents, others);
            // Who limits executions knows which ones.
            if judged.is_some() && self.budget.is_none() {
                self.second_round(
                    &points,
                    &settings,
                    &mut reuse,
                    bounds,
                    (step, total),
                    progress,
                )?;
                self.announce(&progress.results);
                continue;
            }
            let kill_handles = self.runner.kill_handles();
            let mut executors = self.runner.executors(settings.robustness)?;
            if is_scarce {
                // With several workers, which point gets the rest would depend on which comes first.
                executors.truncate(1);
            }
            let left = self.budget.as_ref().map(ExecutionBudget::left);
            let executors = executors
                .into_iter()
                .map(|executor| BudgetedExecutor { executor, left });
            let executors = executors.collect();
            let observer = &mut *self.observer;
            let mut tick = |done| observer.tick(step, done, total);
            let this_round = Round {
                points: &points,
                explore: &|executor: &mut BudgetedExecutor<OracleExecutor<'_, '_>>,
                           point: &FailurePoint,
                           watched| {
                    point::explore_point(executor, point.at, point.stack, watched, &settings)
                },
                accept: &|result: &mut PointResult| result.accept(settings.trees),
                bounds,
            };
            let mut round_observer = RoundObserver {
                tick: &mut tick,
                kill: &|| crate::runner::kill(&kill_handles),
            };
            round(
                executors,
                &this_round,
                &mut reuse,
                progress,
                &mut round_observer,
            )?;
            self.announce(&progress.results);
            if let Some(budget) = &mut self.budget {
                let again = budget.settle(progress, &points);
                if !again.is_empty() {
                    rounds.push_front(again);
                }
            }
        }
        Ok(())
    }
}

/// What is the same for all rounds of a turn.
fn settings_of<'a>(
    turn: Turn,
    limits: &LazyLimits<'_>,
    contents: &'a ExpectedContents,
    is_judged: bool,
) -> PointSettings<'a> {
    let options = limits.options;
    PointSettings {
        contents,
        fork: options.fork,
        depth: turn.depth,
        limit: turn.limit,
        // The sample of an earlier turn would be drawn again.
        sample: match (turn.kind, options.random) {
            (TurnKind::First, Some(random)) => usize::try_from(random).unwrap_or(usize::MAX),
            (TurnKind::First, None) => SAMPLE,
            _ => 0,
        },
        is_random: options.random.is_some(),
        robustness: options.robustness && !is_judged,
        seed: limits.seed,
        deadline: None,
        known: None,
        judged: None,
        trees: None,
    }
}

impl TurnByTurn<'_, '_> {
    /// A round of points at which the power fails again. First all of them say where it can, and then each explores what
    /// is not like that of another one.
    fn second_round(
        &mut self,
        points: &[FailurePoint],
        settings: &PointSettings<'_>,
        reuse: &mut Reuse<'_>,
        bounds: Bounds,
        (step, total): (CheckStep, u64),
        progress: &mut Progress<PointResult>,
    ) -> Result<(), CheckError> {
        let done_before = progress.done();
        let kill_handles = self.runner.kill_handles();
        let mut surveyed = Progress::<SurveyedPoint>::default();
        let executors = self.runner.executors(settings.robustness)?;
        let (observer, chosen) = (&mut *self.observer, &self.chosen);
        let survey = Round {
            points,
            explore: &|executor: &mut OracleExecutor<'_, '_>, point: &FailurePoint, _| {
                point::survey_point(executor, point.at, point.stack, settings)
            },
            accept: &|survey: &mut SurveyedPoint| {
                let mut chosen = chosen.lock().unwrap_or_else(PoisonError::into_inner);
                survey.accept(settings.trees, &mut chosen);
            },
            bounds,
        };
        let mut round_observer = RoundObserver {
            tick: &mut |_| observer.tick(step, done_before, total),
            kill: &|| crate::runner::kill(&kill_handles),
        };
        round(
            executors,
            &survey,
            reuse,
            &mut surveyed,
            &mut round_observer,
        )?;
        progress.unchanged += surveyed.unchanged;
        progress.covered_points.extend(surveyed.covered_points);
        progress.is_interrupted |= surveyed.is_interrupted;
        let surveys = surveyed.results.into_iter();
        let surveys: BTreeMap<EventIndex, Mutex<Option<SurveyedPoint>>> = surveys
            .map(|survey| (survey.at(), Mutex::new(Some(survey))))
            .collect();
        let mut points = points.to_vec();
        points.retain(|point| surveys.contains_key(&point.at));
        let executors = self.runner.executors(settings.robustness)?;
        let explored = Round {
            points: &points,
            explore: &|executor: &mut OracleExecutor<'_, '_>, point: &FailurePoint, _| {
                let survey = surveys[&point.at].lock();
                let survey = survey.unwrap_or_else(PoisonError::into_inner).take();
                match survey {
                    Some(survey) => point::explore_surveyed(executor, survey, settings),
                    None => {
                        point::explore_point(executor, point.at, point.stack, Vec::new(), settings)
                    }
                }
            },
            accept: &|result: &mut PointResult| result.accept(settings.trees),
            bounds,
        };
        let observer = &mut *self.observer;
        let mut round_observer = RoundObserver {
            tick: &mut |done| observer.tick(step, done, total),
            kill: &|| crate::runner::kill(&kill_handles),
        };
        let nothing = Changes::none();
        let mut reuse = Reuse::new(&nothing, self.contents, std::iter::empty::<&PointResult>());
        round(
            executors,
            &explored,
            &mut reuse,
            progress,
            &mut round_observer,
        )?;
        progress.is_over |= surveyed.is_over;
        Ok(())
    }
}

/// What power failures during recovery have shown.
struct SecondTurns {
    points: u64,
    progress: Progress<PointResult>,
}

impl Progress<PointResult> {
    /// Adds what another turn of some of the points has shown.
    fn add(&mut self, turn: Self) {
        let covered = &turn.covered_points;
        self.unchanged += turns::merge(&mut self.results, turn.results, covered);
        self.saved += turn.saved;
        self.executions += turn.executions;
        self.is_interrupted |= turn.is_interrupted;
    }
}

impl LazyResult {
    /// Adds what power failures during recovery have shown.
    fn add(&mut self, second: SecondTurns) {
        let SecondTurns { points, progress } = second;
        let totals = &mut self.exploration;
        totals.executions += progress.executions;
        totals.executions_saved += progress.saved;
        let left = points - progress.done();
        let mut cut = 0_u64;
        let mut unconfirmed = 0;
        let mut alike = 0_u64;
        let mut results = progress.results;
        results.sort_by_key(|point| point.at);
        for point in results {
            totals.second_failures += point.second_failures;
            alike += point.alike;
            unconfirmed += point.unconfirmed;
            cut += u64::from(point.is_large() && point.failures.is_empty());
            let stacks = point.failures.iter().map(|_| point.stack);
            self.stacks.extend(stacks);
            self.failures.extend(point.failures);
        }
        if left > 0 {
            self.notes.push(format!(
                "second power failures get a third of the time for exploration: at {} none is tried; see --budget",
                points_of(left)
            ));
        }
        if cut > 0 {
            self.notes.push(format!(
                "at {} not all second power failures are tried; --exhaustive tries all",
                points_of(cut)
            ));
        }
        if alike > 0 {
            let what = match alike {
                1 => "1 failure during recovery is".to_owned(),
                _ => format!("{alike} failures during recovery are"),
            };
            self.notes.push(format!(
                "{what} not tried: recovery had made the same stores when the power failed at other failure points; \
                 --exhaustive tries all"
            ));
        }
        self.notes.extend(unconfirmed_note(unconfirmed));
    }
}

/// `1 failure point`, `2 failure points`.
fn points_of(count: u64) -> String {
    match count {
        1 => "1 failure point".to_owned(),
        _ => format!("{count} failure points"),
    }
}

/// The note about executions that fail only while they are explored, if there are such.
fn unconfirmed_note(count: u64) -> Option<String> {
    let what = match count {
        0 => return None,
        1 => "1 failing execution is".to_owned(),
        _ => format!("{count} failing executions are"),
    };
    Some(format!(
        "{what} not reproduced without exploration, and not reported"
    ))
}

/// `1 failure point is`, `2 failure points are`.
fn points_are(count: u64) -> String {
    match count {
        1 => "1 failure point is".to_owned(),
        _ => format!("{count} failure points are"),
    }
}

fn summarise(progress: Progress<PointResult>, total: u64) -> LazyResult {
    let mut explored = LazyResult {
        is_interrupted: progress.is_interrupted,
        ..LazyResult::default()
    };
    let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
    let mut warnings: BTreeMap<String, u64> = BTreeMap::new();
    let mut repeats: BTreeMap<turns::KnownKind, u64> = BTreeMap::new();
    let mut unconfirmed = 0;
    let totals = &mut explored.exploration;
    totals.failure_points = total;
    totals.unchanged = progress.unchanged;
    totals.exhaustive = progress.unchanged;
    totals.executions_saved = progress.saved;
    totals.not_tried = total - progress.done();
    totals.executions = progress.executions;
    let logs = progress.results.iter().map(|point| point.log10_states);
    totals.states = states::decimal(states::log10_of_sum(logs));
    let mut points = progress.results;
    points.sort_by_key(|point| point.at);
    for point in points {
        totals.unchanged += u64::from(point.executions == 0 && point.saved > 0);
        match point.thoroughness {
            Thoroughness::Exhaustive => totals.exhaustive += 1,
            Thoroughness::Sampled { reason } => {
                totals.sampled += 1;
                *reasons.entry(reason).or_default() += 1;
            }
        }
        totals.choices += point.choices;
        totals.second_failures += point.second_failures;
        unconfirmed += point.unconfirmed;
        for (pair, count) in point.contradictions {
            *explored.contradictions.entry(pair).or_default() += count;
        }
        for warning in point.warnings {
            *warnings.entry(warning).or_default() += 1;
        }
        for (kind, count) in point.repeats {
            *repeats.entry(kind).or_default() += count;
        }
        let stacks = point.failures.iter().map(|_| point.stack);
        explored.stacks.extend(stacks);
        explored.failures.extend(point.failures);
    }
    for failure in &mut explored.failures {
        let kind = turns::kind_of(failure);
        failure.count += kind.and_then(|kind| repeats.remove(&kind)).unwrap_or(0);
    }
    let notes = &mut explored.notes;
    for (reason, count) in reasons {
        notes.push(match reason {
            Reason::TooMany => format!(
                "{} sampled: more executions than the limit; --exhaustive tries all",
                points_are(count)
            ),
            Reason::Random => format!("{} sampled at random", points_are(count)),
            Reason::Time => format!("{} sampled because time was up", points_are(count)),
            Reason::Fails => format!(
                "{} not tried to the end because recovery fails there; --exhaustive tries all",
                points_are(count)
            ),
            Reason::Refused(reason) => format!(
                "{} sampled: recovery cannot be explored: {reason}",
                points_are(count)
            ),
            Reason::Unconfirmed => format!(
                "{} counted as sampled: executions fail there only while they are explored",
                points_are(count)
            ),
        });
    }
    notes.extend(unconfirmed_note(unconfirmed));
    notes.extend(warnings.into_keys());
    if progress.is_interrupted {
        notes.push(
            "stopped before the end: only the failure points finished so far are reported"
                .to_owned(),
        );
    }
    explored
}
