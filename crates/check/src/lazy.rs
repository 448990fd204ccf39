//! All that a crash can leave, as far as recovery can tell: lost and reordered lines.
//!
//! At the failure points that cover all crash states of the run, recovery is executed once for each
//! sequence of values that it can observe. Executions that fail become crash states, and only those that fail
//! again without any exploration are reported.
//!
//! ```text
//! points ──rounds──▶ driver ──worker──▶ study ──walk──▶ executions ──judge, confirm──▶ failures
//!                                                                                        │
//!                            finding ◀──merge── places, choices ◀──minimal lost lines────┘
//! ```

mod choices;
mod driver;
mod lab;
mod nested;
mod reuse;
mod robustness;
mod sample;
pub(crate) mod states;
mod study;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use powerfail_explore::{FailurePoint, FailurePointTree, Plan, PlanOptions, TreeOptions};
use powerfail_finding::Exploration;
use powerfail_image::{CursorOptions, ImageCursor};
use powerfail_model::EventIndex;
use powerfail_trace::{StackId, Trace};

use crate::content::Contents;
use crate::error::CheckError;
use crate::options::{LazyOptions, Observer, Step};
use crate::runner::Runner;
use driver::{Bounds, Progress, Round, Watch, round};
use lab::SlotLab;
use reuse::{Changes, Reuse};
use robustness::Moments;
use study::{Reason, Setting, Thoroughness};

pub(crate) use choices::choices;
pub(crate) use robustness::Contradiction;
pub(crate) use study::Failure;

/// The first round has at least this many failure points.
const FIRST_ROUND: usize = 64;
/// Crash states that are tried at a failure point which cannot be explored.
const SAMPLE: usize = 64;

/// What exploring has shown.
#[derive(Debug, Default)]
pub(crate) struct Explored {
    /// One for each kind of failure at each failure point, by failure point and choices.
    pub(crate) failures: Vec<Failure>,
    /// Where: the call stack of each failure's point.
    pub(crate) stacks: Vec<StackId>,
    /// Stores that contradict each other in what recovery read, and in how many executions.
    pub(crate) contradictions: BTreeMap<Contradiction, u64>,
    pub(crate) exploration: Exploration,
    pub(crate) notes: Vec<String>,
    pub(crate) is_interrupted: bool,
}

/// The failure points to explore, the most valuable first.
pub(crate) struct Points {
    ranked: Vec<FailurePoint>,
    stacks: usize,
}

impl Points {
    pub(crate) fn of(
        trace: &Trace,
        runner: &Runner<'_>,
        tree: TreeOptions,
    ) -> Result<Self, CheckError> {
        let options = TreeOptions {
            per_stack: 0,
            ..tree
        };
        let tree = FailurePointTree::covering(trace, runner.rules(), options)?;
        let plan = Plan::of(
            &tree,
            PlanOptions {
                limit: None,
                keep_equal_images: true,
            },
        );
        let mut planned = plan.points;
        planned.sort_unstable_by_key(|planned| planned.rank);
        Ok(Self {
            ranked: planned.into_iter().map(|planned| planned.point).collect(),
            stacks: tree.stacks().len(),
        })
    }

    /// When the power fails.
    pub(crate) fn moments(&self) -> impl Iterator<Item = EventIndex> {
        self.ranked.iter().map(|point| point.at)
    }

    /// Rounds, each in the order of the trace: everything at once if there is time for all, else call stacks
    /// first once, then more and more.
    fn rounds(&self, is_bounded: bool) -> Vec<Vec<FailurePoint>> {
        let mut rest = &self.ranked[..];
        let mut size = if is_bounded {
            self.stacks.max(FIRST_ROUND)
        } else {
            rest.len()
        };
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
}

/// How far to go.
pub(crate) struct Limits<'o> {
    pub(crate) options: &'o LazyOptions,
    /// How long it may take.
    pub(crate) time: Option<Duration>,
    /// How long a recovery takes, about.
    pub(crate) each: Duration,
    /// Of what is chosen at random.
    pub(crate) seed: u64,
}

/// Explores the failure points.
pub(crate) fn explore<'t>(
    trace: &'t Trace,
    runner: &mut Runner<'t>,
    points: &Points,
    contents: &Contents,
    limits: &Limits<'_>,
    observer: &mut dyn Observer,
) -> Result<Explored, CheckError> {
    let options = limits.options;
    let deadline = limits.time.map(|time| Instant::now() + time);
    let setting = Setting {
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
    let mut progress = Progress::default();
    let fill = runner.fill().map(|fill| fill.byte);
    for points in points.rounds(is_bounded) {
        if progress.is_over {
            break;
        }
        let mut moments: Vec<EventIndex> = points.iter().map(|point| point.at).collect();
        moments.extend(progress.studied.iter().map(|studied| studied.at));
        moments.sort_unstable();
        let changes = Changes::of(trace, runner.rules(), fill, &moments)?;
        let mut reuse = Reuse::new(&changes, contents, progress.studied.iter());
        let zygotes = runner.zygotes();
        let labs = runner.labs(options.robustness)?;
        let mut tick = |done| {
            observer.progress(Step::Lost, done, total);
            !observer.is_interrupted()
        };
        let about = Round {
            points: &points,
            setting: &setting,
            bounds,
        };
        let mut watch = Watch {
            tick: &mut tick,
            end: &|| crate::runner::end(&zygotes),
        };
        round(labs, about, &mut reuse, &mut progress, &mut watch)?;
    }
    runner.runs += progress.executions;
    Ok(sum_up(progress, total))
}

fn sum_up(progress: Progress, total: u64) -> Explored {
    let mut explored = Explored {
        is_interrupted: progress.is_interrupted,
        ..Explored::default()
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
    let logs = progress.studied.iter().map(|studied| studied.log10_states);
    totals.states = states::decimal(states::log10_of_sum(logs));
    let mut studied = progress.studied;
    studied.sort_by_key(|studied| studied.at);
    for studied in studied {
        match studied.thoroughness {
            Thoroughness::Exhaustive => totals.exhaustive += 1,
            Thoroughness::Sampled { reason } => {
                totals.sampled += 1;
                *reasons.entry(reason).or_default() += 1;
            }
        }
        totals.choices += studied.choices;
        totals.second_failures += studied.second_failures;
        unconfirmed += studied.unconfirmed;
        for (pair, count) in studied.contradictions {
            *explored.contradictions.entry(pair).or_default() += count;
        }
        for warning in studied.warnings {
            *warnings.entry(warning).or_default() += 1;
        }
        let stacks = studied.failures.iter().map(|_| studied.stack);
        explored.stacks.extend(stacks);
        explored.failures.extend(studied.failures);
    }
    let notes = &mut explored.notes;
    for (reason, count) in reasons {
        notes.push(match reason {
            Reason::TooMany => format!(
                "{count} failure points have more executions than are allowed and are sampled; \
                 --exhaustive tries all"
            ),
            Reason::Time => format!("{count} failure points are sampled because time was up"),
            Reason::Refused(reason) => {
                format!("{count} failure points are sampled, recovery cannot be explored: {reason}")
            }
            Reason::Unconfirmed => format!(
                "{count} failure points count as sampled because executions fail there only while they \
                 are explored"
            ),
        });
    }
    if unconfirmed > 0 {
        notes.push(format!(
            "{unconfirmed} executions fail and are not reproduced without exploration; they are not \
             reported"
        ));
    }
    notes.extend(warnings.into_keys());
    if progress.is_interrupted {
        notes.push("interrupted: what was found until then is reported".to_owned());
    }
    explored
}

impl<'t> Runner<'t> {
    /// Places to explore in, one for each worker, at the beginning of the trace.
    fn labs(&mut self, robustness: bool) -> Result<Vec<SlotLab<'_, 't>>, CheckError> {
        let rules = self.rules();
        let options = CursorOptions {
            rules: Some(rules),
            fill: self.fill(),
            memory_limit_bytes: None,
        };
        let fill = self.fill().map(|fill| fill.byte);
        let (trace, slots) = self.slots();
        slots
            .map(|(image, slot)| {
                Ok(SlotLab {
                    trace,
                    cursor: ImageCursor::new(trace, options)?,
                    image,
                    slot,
                    stacks: HashMap::new(),
                    modules: Vec::new(),
                    rules,
                    moments: robustness
                        .then(|| Moments::new(trace, rules, fill))
                        .transpose()?,
                })
            })
            .collect()
    }
}
