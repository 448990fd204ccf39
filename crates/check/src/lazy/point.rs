//! One failure point: all executions of recovery there, judged, and the failing ones confirmed.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use powerfail_explore::lazy::nested::CrashPoint;
use powerfail_explore::lazy::{CrashTable, PageLines, Seen};
use powerfail_image::Patch;
use powerfail_model::EventIndex;
use powerfail_oracle::{Choice, ExploreRequest, LineTable, Verdict};
use powerfail_trace::StackId;

use super::confirm::{are_known, confirm};
use super::executor::{LazyExecutor, Pools};
use super::failure::{FailureKey, LazyFailure};
use super::leaves::{Leaves, LoggedExecution, walk_leaves};
use super::nested::NestedExploration;
use super::reuse::{ExecutedPoint, Reads};
use super::robustness::{Contradiction, contradiction};
use super::sample::try_sample;
use super::turns::{KnownFailures, KnownKind};
use super::walk::{Attempt, Explorer, Extent, WalkTask};
use crate::content::ExpectedContents;
use crate::error::CheckError;

/// With how many executions it is seen first whether a failure point fails as others do.
const FIRST_LOOK: u64 = 8;

/// What is the same for all failure points of an exploration.
#[derive(Clone, Copy)]
pub(crate) struct PointSettings<'a> {
    pub(crate) contents: &'a ExpectedContents,
    pub(crate) fork: bool,
    /// How often the power fails, at most.
    pub(crate) depth: u32,
    /// Executions at one failure point.
    pub(crate) limit: Option<u64>,
    /// Crash states that are tried where not all can be explored.
    pub(crate) sample: usize,
    /// Only the sample is tried.
    pub(crate) is_random: bool,
    /// Look for executions that no moment of the run explains.
    pub(crate) robustness: bool,
    pub(crate) seed: u64,
    /// When to stop, and how long one execution takes, about.
    pub(crate) deadline: Option<(Instant, Duration)>,
    /// What other failure points have shown; it is counted, and not confirmed again.
    pub(crate) known: Option<&'a KnownFailures>,
    /// Executions that fail after one power failure were judged before, and these are their keys: only failures during
    /// recovery count.
    pub(crate) judged: Option<&'a BTreeMap<EventIndex, Vec<FailureKey>>>,
}

/// How thoroughly a failure point was explored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Thoroughness {
    Exhaustive,
    Sampled { reason: Reason },
}

/// Why a failure point was only sampled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The user wants random crash states.
    Random,
    /// Recovery can observe more than the limit of executions allows.
    TooMany,
    /// Time was up.
    Time,
    /// Recovery fails there, so there is no need to try the rest.
    Fails,
    /// Recovery does what cannot be explored.
    Refused(String),
    /// Some executions fail only while they are explored: what they would have shown is unknown.
    Unconfirmed,
}

/// What exploring one failure point has shown.
#[derive(Clone, Debug)]
pub(crate) struct PointResult {
    pub(crate) at: EventIndex,
    pub(crate) stack: StackId,
    pub(crate) thoroughness: Thoroughness,
    /// How many executions there could have been.
    pub(crate) limit: u64,
    pub(crate) executions: u64,
    pub(crate) choices: u64,
    pub(crate) log10_states: f64,
    pub(crate) failures: Vec<LazyFailure>,
    /// Executions that fail as others do at another failure point.
    pub(crate) repeats: BTreeMap<KnownKind, u64>,
    /// Executions that fail although recovery does not fail on their crash states.
    pub(crate) unconfirmed: u64,
    pub(crate) second_failures: u64,
    /// Stores that contradict each other, and in how many executions.
    pub(crate) contradictions: BTreeMap<Contradiction, u64>,
    /// What recovery read; `None` if that is not known of all executions.
    pub(crate) reads: Option<Reads>,
    pub(crate) warnings: Vec<String>,
}

impl PointResult {
    /// Whether recovery can observe more than was tried.
    pub(crate) fn is_large(&self) -> bool {
        let reason = Reason::TooMany;
        self.thoroughness == Thoroughness::Sampled { reason }
    }

    /// Whether recovery fails there.
    pub(crate) fn fails(&self) -> bool {
        !self.failures.is_empty() || !self.repeats.is_empty()
    }
}

impl ExecutedPoint for PointResult {
    fn at(&self) -> EventIndex {
        self.at
    }

    fn executions(&self) -> u64 {
        self.executions
    }

    fn reads(&self) -> Option<&Reads> {
        self.reads.as_ref()
    }
}

/// Explores on the image of the failure point with an overlay on top.
pub(crate) struct OverlaidExecutor<'l, 'o> {
    pub(crate) executor: &'l mut dyn LazyExecutor,
    pub(crate) overlay: &'o [Patch],
}

impl Explorer for OverlaidExecutor<'_, '_> {
    fn explore(&mut self, request: &ExploreRequest<'_>) -> Result<Attempt, CheckError> {
        self.executor.explore(self.overlay, request)
    }
}

/// Explores a failure point. `watched` are the lines of which it must be known whether recovery reads them.
pub(crate) fn explore_point(
    executor: &mut dyn LazyExecutor,
    at: EventIndex,
    stack: StackId,
    watched: Vec<PageLines>,
    settings: &PointSettings<'_>,
) -> Result<PointResult, CheckError> {
    executor.move_to(at)?;
    let table = executor.crash_table();
    let pools = executor.pools();
    let mut lines = pools.line_table(&table);
    lines.watched = watched.iter().filter_map(|page| pools.mask(page)).collect();
    let (limit, is_short) = limit(settings);
    let mut result = PointResult {
        at,
        stack,
        thoroughness: Thoroughness::Exhaustive,
        limit: settings.limit.unwrap_or(u64::MAX),
        executions: 0,
        choices: 0,
        log10_states: table.log10_states,
        failures: Vec::new(),
        repeats: BTreeMap::new(),
        unconfirmed: 0,
        second_failures: 0,
        contradictions: BTreeMap::new(),
        reads: None,
        warnings: Vec::new(),
    };
    if settings.is_random {
        if !try_sample(executor, &table, settings, &mut result)? {
            let reason = Reason::Random;
            result.thoroughness = Thoroughness::Sampled { reason };
        }
        return Ok(result);
    }
    let known = settings.known.filter(|known| !known.is_empty());
    let mut walked = None;
    if let Some(known) = known
        && limit > FIRST_LOOK
    {
        let look = walk_point(executor, &lines, at, FIRST_LOOK, settings)?;
        let summary = &look.leaves.summary;
        if summary.extent == Extent::Cut {
            result.executions += summary.executions;
            if let Some(repeats) = are_known(executor, &table, &look.leaves.all, known)? {
                result.repeats = repeats;
                let reason = Reason::TooMany;
                result.thoroughness = Thoroughness::Sampled { reason };
                return Ok(result);
            }
        } else {
            walked = Some(look);
        }
    }
    let WalkedPoint { leaves, observed } = match walked {
        Some(walked) => walked,
        None => walk_point(executor, &lines, at, limit, settings)?,
    };
    let walk = leaves.summary;
    result.executions += walk.executions;
    result.choices = walk.choices;
    result.warnings = walk.warnings;
    result.contradictions = contradictions(executor, &table, at, &observed);
    let read = walk.read.iter();
    result.reads = Some(Reads {
        watched,
        read: read.filter_map(|mask| pools.page(mask)).collect(),
    });
    if settings.judged.is_none() {
        confirm(executor, &table, leaves.all, settings, &mut result)?;
    }
    let reason = match walk.extent {
        Extent::Exhaustive if table.truncated.is_empty() => None,
        Extent::Cut if is_short => Some(Reason::Time),
        Extent::Exhaustive | Extent::Cut => Some(Reason::TooMany),
        Extent::Refused { reason } => Some(Reason::Refused(reason)),
    };
    let successes = leaves.successes;
    let is_cut = nested(executor, &table, pools, successes, settings, &mut result)?;
    if let Some(reason) = reason {
        // Where recovery fails, a sample would only fail again.
        let is_all = settings.judged.is_none()
            && !result.fails()
            && try_sample(executor, &table, settings, &mut result)?;
        result.reads = None;
        if !is_all {
            result.thoroughness = Thoroughness::Sampled { reason };
        }
    } else if is_cut {
        result.reads = None;
        result.thoroughness = Thoroughness::Sampled {
            reason: Reason::TooMany,
        };
    }
    if result.unconfirmed > 0 {
        result.reads = None;
        if result.thoroughness == Thoroughness::Exhaustive {
            let reason = Reason::Unconfirmed;
            result.thoroughness = Thoroughness::Sampled { reason };
        }
    }
    Ok(result)
}

/// The executions at a failure point.
struct WalkedPoint {
    leaves: Leaves,
    /// The choices of each, if robustness is checked.
    observed: Vec<Vec<Choice>>,
}

fn walk_point(
    executor: &mut dyn LazyExecutor,
    lines: &LineTable,
    at: EventIndex,
    limit: u64,
    settings: &PointSettings<'_>,
) -> Result<WalkedPoint, CheckError> {
    let task = WalkTask {
        table: lines,
        fork: settings.fork,
        log: settings.depth > 1,
        limit,
        deadline: settings.deadline.map(|(deadline, _)| deadline),
    };
    let mut observed: Vec<Vec<Choice>> = Vec::new();
    let mut explorer = OverlaidExecutor {
        executor,
        overlay: &[],
    };
    let judge = |verdict: &Verdict| settings.contents.judge(at, verdict);
    let leaves = walk_leaves(&mut explorer, task, &judge, &mut |execution| {
        if settings.robustness && execution.choices.len() > 1 {
            observed.push(execution.choices.clone());
        }
    })?;
    Ok(WalkedPoint { leaves, observed })
}

/// Lets the power fail again in executions that succeeded. Returns whether something was left out.
fn nested(
    executor: &mut dyn LazyExecutor,
    table: &CrashTable,
    pools: Pools,
    successes: Vec<LoggedExecution>,
    settings: &PointSettings<'_>,
    result: &mut PointResult,
) -> Result<bool, CheckError> {
    if successes.is_empty() {
        return Ok(false);
    }
    let mut nested = NestedExploration {
        settings,
        result,
        pools,
        explored: HashSet::new(),
        executions: 0,
        is_cut: false,
    };
    let first = CrashPoint::first(table.clone());
    nested.explore(executor, &first, successes, 2)?;
    Ok(nested.is_cut)
}

/// The stores that contradict each other in executions that no moment of the run explains.
fn contradictions(
    executor: &dyn LazyExecutor,
    table: &CrashTable,
    at: EventIndex,
    executions: &[Vec<Choice>],
) -> BTreeMap<Contradiction, u64> {
    let mut found = BTreeMap::new();
    for choices in executions {
        let Ok(seen) = Seen::of_choices(table, choices) else {
            continue;
        };
        let Some(lines) = executor.read_lines(&seen, at) else {
            break;
        };
        if let Some(contradiction) = contradiction(&lines) {
            *found.entry(contradiction).or_default() += 1;
        }
    }
    found
}

/// How many executions there may be, and whether time is why there are not more.
pub(crate) fn limit(settings: &PointSettings<'_>) -> (u64, bool) {
    let limit = settings.limit.unwrap_or(u64::MAX);
    let Some((deadline, each)) = settings.deadline else {
        return (limit, false);
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let within = left.as_nanos() / each.as_nanos().max(1);
    let within = u64::try_from(within).unwrap_or(u64::MAX).max(1);
    (limit.min(within), within < limit)
}
