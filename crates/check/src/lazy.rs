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
pub(crate) mod driver;
pub(crate) mod lab;
mod nested;
pub(crate) mod reuse;
mod robustness;
mod sample;
pub(crate) mod states;
pub(crate) mod study;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod walk;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use powerfail_explore::{
    FailurePoint, FailurePointOptions, FailurePointsByStack, LeftOut, Plan, PlanOptions,
};
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
use ration::{Ration, Rationed};
use reuse::{Changes, Reuse};
use robustness::Moments;
use study::{Reason, Setting, Studied, Thoroughness};

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
    /// Distinct call stacks of all failure points.
    pub(crate) stack_count: u64,
    pub(crate) notes: Vec<String>,
    /// Failure points that annotations of the program leave out.
    pub(crate) out_of_scope: u64,
    pub(crate) is_interrupted: bool,
}

/// The failure points to explore, the most valuable first.
pub(crate) struct Points {
    ranked: Vec<FailurePoint>,
    stacks: usize,
    out_of_scope: u64,
}

impl Points {
    pub(crate) fn of(
        trace: &Trace,
        runner: &Runner<'_>,
        tree: FailurePointOptions,
    ) -> Result<Self, CheckError> {
        let options = FailurePointOptions {
            per_stack: 0,
            ..tree
        };
        let tree = FailurePointsByStack::covering(trace, runner.rules(), options)?;
        let (ranked, left_out) = ranked(&tree);
        Ok(Self {
            ranked,
            stacks: tree.stacks().len(),
            out_of_scope: left_out.out_of_scope,
        })
    }

    /// Leaves out the points that are not wanted.
    pub(crate) fn retain(&mut self, is_wanted: impl FnMut(&FailurePoint) -> bool) {
        self.ranked.retain(is_wanted);
    }

    /// When the power fails.
    pub(crate) fn moments(&self) -> impl Iterator<Item = EventIndex> {
        self.ranked.iter().map(|point| point.at)
    }

    fn rounds(&self, is_bounded: bool) -> Vec<Vec<FailurePoint>> {
        rounds(&self.ranked, is_bounded.then_some(self.stacks))
    }
}

/// All failure points of a tree, the most valuable first, and what is left out.
pub(crate) fn ranked(tree: &FailurePointsByStack) -> (Vec<FailurePoint>, LeftOut) {
    let options = PlanOptions {
        limit: None,
        keep_equal_images: true,
    };
    let plan = Plan::of(tree, options);
    let mut planned = plan.points;
    planned.sort_unstable_by_key(|planned| planned.rank);
    let ranked = planned.into_iter().map(|planned| planned.point).collect();
    (ranked, plan.left_out)
}

/// Rounds of failure points, each in the order of the trace: everything at once if there is time for all, else call
/// stacks first once, then more and more. `ranked` are the most valuable first; `stacks` is how many call stacks
/// they have, if there may not be time for all.
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
    let mut progress = Progress::<Studied>::default();
    let fill = runner.fill().map(|fill| fill.byte);
    let stack_count = points.stacks as u64;
    let mut ration = options.max_executions.map(|max| Ration::new(max, options));
    let mut rounds = VecDeque::from(points.rounds(is_bounded));
    while let Some(mut points) = rounds.pop_front() {
        if progress.is_over {
            break;
        }
        let mut setting = setting;
        let mut is_scarce = false;
        if let Some(ration) = &mut ration
            && let Some(share) = ration.share(points.len())
        {
            is_scarce = true;
            setting.sample = share.sample;
            let later = points.split_off(share.points);
            if !later.is_empty() {
                rounds.push_front(later);
            }
        }
        let mut moments: Vec<EventIndex> = points.iter().map(|point| point.at).collect();
        moments.extend(progress.studied.iter().map(|studied| studied.at));
        moments.sort_unstable();
        let changes = Changes::of(trace, runner.rules(), fill, &moments)?;
        let mut reuse = Reuse::new(&changes, contents, progress.studied.iter());
        let kill_handles = runner.kill_handles();
        let mut labs = runner.labs(options.robustness)?;
        if is_scarce {
            // Who is given the rest must not depend on who comes first.
            labs.truncate(1);
        }
        let left = ration.as_ref().map(Ration::left);
        let labs = labs.into_iter().map(|lab| Rationed { lab, left });
        let labs = labs.collect();
        let mut tick = |done| {
            observer.progress(Step::Lost, done, total);
            !observer.is_interrupted()
        };
        let about = Round {
            points: &points,
            study: &|lab: &mut Rationed<SlotLab<'_, '_>>, point: &FailurePoint, watched| {
                study::study(lab, point.at, point.stack, watched, &setting)
            },
            bounds,
        };
        let mut watch = Watch {
            tick: &mut tick,
            end: &|| crate::runner::kill(&kill_handles),
        };
        round(labs, &about, &mut reuse, &mut progress, &mut watch)?;
        if let Some(ration) = &mut ration {
            let again = ration.settle(&mut progress, &points);
            if !again.is_empty() {
                rounds.push_front(again);
            }
        }
    }
    runner.runs += progress.executions;
    let mut explored = sum_up(progress, total);
    explored.stack_count = stack_count;
    explored.out_of_scope = points.out_of_scope;
    let note = ration.and_then(|ration| ration.note(&explored.exploration));
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

fn sum_up(progress: Progress<Studied>, total: u64) -> Explored {
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
                "{} sampled, with more executions than are allowed; --exhaustive tries all",
                points_are(count)
            ),
            Reason::Time => format!("{} sampled because time was up", points_are(count)),
            Reason::Refused(reason) => format!(
                "{} sampled, recovery cannot be explored: {reason}",
                points_are(count)
            ),
            Reason::Unconfirmed => format!(
                "{} counted as sampled because executions fail there only while they are explored",
                points_are(count)
            ),
        });
    }
    if unconfirmed > 0 {
        let what = match unconfirmed {
            1 => "1 execution that fails is".to_owned(),
            _ => format!("{unconfirmed} executions that fail are"),
        };
        notes.push(format!(
            "{what} not reproduced without exploration, and not reported"
        ));
    }
    notes.extend(warnings.into_keys());
    if progress.is_interrupted {
        notes.push(
            "interrupted: what the failure points show that were finished until then is reported"
                .to_owned(),
        );
    }
    explored
}

impl<'t> Runner<'t> {
    /// Places to explore in, one for each worker, at the beginning of the trace.
    pub(crate) fn labs(&mut self, robustness: bool) -> Result<Vec<SlotLab<'_, 't>>, CheckError> {
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

mod ration {
    //! A number of executions that all failure points together must not exceed.
    //!
    //! As long as there is more than a round can take, nothing is different. After that one worker goes on, and
    //! its explorations end when nothing is left. The crash states that are tried where recovery cannot be explored
    //! are set aside before a round.

    use powerfail_explore::FailurePoint;
    use powerfail_explore::lazy::{CrashTable, ReadLine, Seen};
    use powerfail_finding::Exploration;
    use powerfail_image::Patch;
    use powerfail_model::{CrashState, EventIndex, Place, Rules};
    use powerfail_oracle::{ExploreRequest, Explored, Stage, Verdict};
    use powerfail_trace::StackId;

    use super::driver::Progress;
    use super::lab::{Lab, Located, Pools};
    use super::study::{Reason, Studied, Thoroughness};
    use super::walk::Attempt;
    use super::{SAMPLE, points_are};
    use crate::error::CheckError;
    use crate::options::LazyOptions;

    /// What is left.
    #[derive(Debug)]
    pub(super) struct Ration {
        max: u64,
        left: u64,
        /// Of what is left, for crash states that are tried one by one in this round.
        aside: u64,
        /// What one failure point can take.
        each: Option<u64>,
        is_begun: bool,
        is_refused: bool,
    }

    /// What a round may do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Share {
        pub(super) points: usize,
        /// Crash states to try at each, where it cannot be explored.
        pub(super) sample: usize,
    }

    impl Ration {
        pub(super) fn new(max: u64, options: &LazyOptions) -> Self {
            let walks = if options.depth > 1 { 2 } else { 1 };
            let each = options.limit.and_then(|limit| limit.checked_mul(walks));
            Self {
                max,
                left: max,
                aside: 0,
                each: each.and_then(|each| each.checked_add(SAMPLE as u64)),
                is_begun: false,
                is_refused: false,
            }
        }

        /// What may be done next of a round of so many failure points; nothing if that is everything.
        pub(super) fn share(&mut self, points: usize) -> Option<Share> {
            self.aside = 0;
            let most = self.each.and_then(|each| each.checked_mul(points as u64));
            if most.is_some_and(|most| most <= self.left) {
                return None;
            }
            let mut share = Share { points, sample: 0 };
            if self.is_refused {
                let half = self.left.div_ceil(2);
                let sample = half.min(SAMPLE as u64);
                let fit = (half / sample.max(1)).clamp(1, points as u64);
                self.aside = fit * sample;
                share = Share {
                    points: usize::try_from(fit).unwrap_or(points),
                    sample: usize::try_from(sample).unwrap_or(SAMPLE),
                };
            } else if !self.is_begun {
                // It shows whether recovery can be explored.
                share.points = 1;
            }
            self.is_begun = true;
            Some(share)
        }

        /// What may be explored in this round.
        pub(super) fn left(&self) -> u64 {
            self.left - self.aside
        }

        /// After a round. Gives the failure points that are to be tried again, one crash state after another.
        pub(super) fn settle(
            &mut self,
            progress: &mut Progress<Studied>,
            points: &[FailurePoint],
        ) -> Vec<FailurePoint> {
            self.left = self.max.saturating_sub(progress.executions);
            let mut again = Vec::new();
            let was_refused = self.is_refused;
            // Nothing was left for those without executions.
            progress.studied.retain(|studied| {
                let reason = match &studied.thoroughness {
                    Thoroughness::Sampled { reason } => reason,
                    Thoroughness::Exhaustive => return true,
                };
                if studied.executions > 0 {
                    return true;
                }
                if matches!(reason, Reason::Refused(_)) && !was_refused {
                    self.is_refused = true;
                    again.extend(points.iter().filter(|point| point.at == studied.at));
                }
                false
            });
            progress.is_over |= self.left == 0;
            again
        }

        /// What it has kept from being tried.
        pub(super) fn note(&self, totals: &Exploration) -> Option<String> {
            let kept = match (totals.sampled, totals.not_tried) {
                (0, 0) => return None,
                (sampled, 0) => format!("{} sampled", points_are(sampled)),
                (0, not_tried) => format!("{} not tried", points_are(not_tried)),
                (sampled, not_tried) => {
                    format!("{} sampled, {not_tried} not tried", points_are(sampled))
                }
            };
            let is_spent = self.left == 0;
            is_spent.then(|| format!("--max-executions {} is reached: {kept}", self.max))
        }
    }

    /// A lab that explores no more than it is given.
    pub(super) struct Rationed<L> {
        pub(super) lab: L,
        pub(super) left: Option<u64>,
    }

    impl<L: Lab> Lab for Rationed<L> {
        fn explore(
            &mut self,
            overlay: &[Patch],
            request: &ExploreRequest<'_>,
        ) -> Result<Attempt, CheckError> {
            let Some(left) = &mut self.left else {
                return self.lab.explore(overlay, request);
            };
            if *left == 0 {
                return Ok(Attempt::Explored(Explored {
                    stopped: true,
                    ..Explored::default()
                }));
            }
            let request = ExploreRequest {
                max_executions: request.max_executions.min(*left),
                ..*request
            };
            let attempt = self.lab.explore(overlay, &request)?;
            if let Attempt::Explored(explored) = &attempt {
                *left = left.saturating_sub(explored.executions.len() as u64);
            }
            Ok(attempt)
        }

        fn move_to(&mut self, at: EventIndex) -> Result<(), CheckError> {
            self.lab.move_to(at)
        }

        fn crash_table(&self) -> CrashTable {
            self.lab.crash_table()
        }

        fn pools(&self) -> Pools {
            self.lab.pools()
        }

        fn run(&mut self, state: &CrashState, overlay: &[Patch]) -> Result<Verdict, CheckError> {
            self.lab.run(state, overlay)
        }

        fn frames(&mut self, stage: Stage, addresses: &[u64]) -> Option<Located> {
            self.lab.frames(stage, addresses)
        }

        fn rules(&self) -> Rules {
            self.lab.rules()
        }

        fn read(&self, at: Place, out: &mut [u8]) {
            self.lab.read(at, out);
        }

        fn read_lines(&self, seen: &Seen<'_>, crash: EventIndex) -> Option<Vec<ReadLine>> {
            self.lab.read_lines(seen, crash)
        }

        fn stack_of(&mut self, event: EventIndex) -> Result<StackId, CheckError> {
            self.lab.stack_of(event)
        }
    }
}
