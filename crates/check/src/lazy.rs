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
//! - [`point`]: one failure point; [`walk`]: the tree of its executions; [`sample`]: where there are too many.
//! - [`confirm`]: failing executions become [`failure`]s; [`choices`]: what a finding says about the loads.
//! - [`nested`]: power failures during recovery. [`robustness`]: executions that no moment of the run explains.
//! - [`reuse`]: failure points that need no run. [`budget`]: `--max-executions`. [`states`]: sizes of state spaces.

mod budget;
mod choices;
mod confirm;
pub(crate) mod driver;
pub(crate) mod executor;
mod failure;
mod nested;
mod point;
pub(crate) mod reuse;
mod robustness;
mod sample;
pub(crate) mod states;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod walk;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use powerfail_explore::{
    FailurePoint, FailurePointOptions, FailurePointsByStack, LeftOut, Plan, PlanOptions,
};
use powerfail_finding::Exploration;
use powerfail_model::EventIndex;
use powerfail_trace::{StackId, Trace};

use crate::content::Contents;
use crate::error::CheckError;
use crate::event::{Observer, Step};
use crate::options::LazyOptions;
use crate::runner::Runner;
use budget::{BudgetedExecutor, ExecutionBudget};
use driver::{Bounds, Progress, Round, RoundObserver, round};
use executor::OracleExecutor;
use point::{PointResult, PointSettings, Reason, Thoroughness};
use reuse::{Changes, Reuse};

pub(crate) use choices::choices;
pub(crate) use confirm::loads;
pub(crate) use failure::{Failure, Load};
pub(crate) use robustness::Contradiction;

/// The first round has at least this many failure points.
const FIRST_ROUND: usize = 64;
/// Crash states that are tried at a failure point which cannot be explored.
const SAMPLE: usize = 64;

/// What lazy exploration has shown.
#[derive(Debug, Default)]
pub(crate) struct LazyResult {
    /// One for each kind of failure at each failure point, by failure point and choices.
    pub(crate) failures: Vec<Failure>,
    /// The call stack of the failure point of each failure.
    pub(crate) stacks: Vec<StackId>,
    /// Pairs of stores that contradict each other in what recovery read, with the number of executions.
    pub(crate) contradictions: BTreeMap<Contradiction, u64>,
    pub(crate) exploration: Exploration,
    /// Distinct call stacks of all failure points.
    pub(crate) stack_count: u64,
    pub(crate) notes: Vec<String>,
    /// Failure points that annotations of the program leave out.
    pub(crate) out_of_scope: u64,
    pub(crate) is_interrupted: bool,
}

/// The failure points to explore, the most valuable first.
pub(crate) struct LazyPoints {
    ranked: Vec<FailurePoint>,
    stacks: usize,
    out_of_scope: u64,
}

impl LazyPoints {
    pub(crate) fn of(
        trace: &Trace,
        runner: &Runner<'_>,
        options: FailurePointOptions,
    ) -> Result<Self, CheckError> {
        let options = FailurePointOptions {
            per_stack: 0,
            ..options
        };
        let by_stack = FailurePointsByStack::covering(trace, runner.rules(), options)?;
        let (ranked, left_out) = ranked(&by_stack);
        Ok(Self {
            ranked,
            stacks: by_stack.stacks().len(),
            out_of_scope: left_out.out_of_scope,
        })
    }

    /// Leaves out the points that are not wanted.
    pub(crate) fn retain(&mut self, is_wanted: impl FnMut(&FailurePoint) -> bool) {
        self.ranked.retain(is_wanted);
    }

    /// The moments at which the power fails.
    pub(crate) fn moments(&self) -> impl Iterator<Item = EventIndex> {
        self.ranked.iter().map(|point| point.at)
    }

    fn rounds(&self, is_bounded: bool) -> Vec<Vec<FailurePoint>> {
        rounds(&self.ranked, is_bounded.then_some(self.stacks))
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
    contents: &Contents,
    limits: &LazyLimits<'_>,
    observer: &mut dyn Observer,
) -> Result<LazyResult, CheckError> {
    let options = limits.options;
    let deadline = limits.time.map(|time| Instant::now() + time);
    let settings = PointSettings {
        contents,
        fork: options.fork,
        depth: options.depth,
        limit: options.limit,
        sample: SAMPLE,
        robustness: options.robustness,
        seed: limits.seed,
        deadline: deadline.map(|deadline| (deadline, limits.each)),
    };
    let bounds = Bounds {
        max_executions: options.max_executions,
        deadline,
    };
    let total = points.ranked.len() as u64;
    let is_bounded = deadline.is_some() || options.max_executions.is_some();
    let mut progress = Progress::<PointResult>::default();
    let fill = runner.fill().map(|fill| fill.byte);
    let stack_count = points.stacks as u64;
    let mut budget = options
        .max_executions
        .map(|max| ExecutionBudget::new(max, options));
    let mut rounds = VecDeque::from(points.rounds(is_bounded));
    while let Some(mut points) = rounds.pop_front() {
        if progress.is_over {
            break;
        }
        let mut settings = settings;
        let mut is_scarce = false;
        if let Some(budget) = &mut budget
            && let Some(share) = budget.share(points.len())
        {
            is_scarce = true;
            settings.sample = share.sample;
            let later = points.split_off(share.points);
            if !later.is_empty() {
                rounds.push_front(later);
            }
        }
        let mut moments: Vec<EventIndex> = points.iter().map(|point| point.at).collect();
        moments.extend(progress.results.iter().map(|point| point.at));
        moments.sort_unstable();
        let changes = Changes::of(trace, runner.rules(), fill, &moments)?;
        let mut reuse = Reuse::new(&changes, contents, progress.results.iter());
        let kill_handles = runner.kill_handles();
        let mut executors = runner.executors(options.robustness)?;
        if is_scarce {
            // With several workers, which point gets the rest would depend on which comes first.
            executors.truncate(1);
        }
        let left = budget.as_ref().map(ExecutionBudget::left);
        let executors = executors
            .into_iter()
            .map(|executor| BudgetedExecutor { executor, left });
        let executors = executors.collect();
        let mut tick = |done| {
            observer.progress(Step::Lazy, done, total);
            !observer.is_interrupted()
        };
        let this_round = Round {
            points: &points,
            explore: &|executor: &mut BudgetedExecutor<OracleExecutor<'_, '_>>,
                       point: &FailurePoint,
                       watched| {
                point::explore_point(executor, point.at, point.stack, watched, &settings)
            },
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
            &mut progress,
            &mut round_observer,
        )?;
        if let Some(budget) = &mut budget {
            let again = budget.settle(&mut progress, &points);
            if !again.is_empty() {
                rounds.push_front(again);
            }
        }
    }
    runner.runs += progress.executions;
    let mut explored = summarise(progress, total);
    explored.stack_count = stack_count;
    explored.out_of_scope = points.out_of_scope;
    let note = budget.and_then(|budget| budget.note(&explored.exploration));
    explored.notes.extend(note);
    Ok(explored)
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
        let stacks = point.failures.iter().map(|_| point.stack);
        explored.stacks.extend(stacks);
        explored.failures.extend(point.failures);
    }
    let notes = &mut explored.notes;
    for (reason, count) in reasons {
        notes.push(match reason {
            Reason::TooMany => format!(
                "{} sampled: more executions than the limit; --exhaustive tries all",
                points_are(count)
            ),
            Reason::Time => format!("{} sampled because time was up", points_are(count)),
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
    if unconfirmed > 0 {
        let what = match unconfirmed {
            1 => "1 failing execution is".to_owned(),
            _ => format!("{unconfirmed} failing executions are"),
        };
        notes.push(format!(
            "{what} not reproduced without exploration, and not reported"
        ));
    }
    notes.extend(warnings.into_keys());
    if progress.is_interrupted {
        notes.push("interrupted: only the failure points finished so far are reported".to_owned());
    }
    explored
}
