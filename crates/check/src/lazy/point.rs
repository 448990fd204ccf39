//! One failure point: all executions of recovery there, judged, and the failing ones confirmed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use powerfail_explore::lazy::nested::CrashPoint;
use powerfail_explore::lazy::{CrashTable, PageLines, Seen};
use powerfail_image::Patch;
use powerfail_model::{EventIndex, LineId, Place, PoolOffset};
use powerfail_oracle::{Choice, ExploreRequest, LineTable, StageModules, Verdict};
use powerfail_trace::StackId;

use super::confirm::{are_known, confirm};
use super::executor::{LazyExecutor, Pools};
use super::failure::{FailureKey, LazyFailure};
use super::interruptions::{ChosenInterruptions, InterruptedExecution};
use super::kept::{KeptExecutions, TreeName};
use super::leaves::{Leaves, LeavesTask, LoggedExecution, walk_leaves};
use super::nested::{NestedExploration, interruptions};
use super::observations::{KnownLeaf, ObservedCrash, PointTree, Trees};
use super::reuse::{ExecutedPoint, Reads};
use super::robustness::{Contradiction, contradiction};
use super::sample::try_sample;
use super::turns::{KnownFailures, KnownKind};
use super::walk::{Attempt, Explorer, Extent, KeptWithModules, WalkSummary, WalkTask};
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
    /// What recovery has observed at any point, if points learn from each other.
    pub(crate) trees: Option<&'a Trees>,
}

impl<'a> PointSettings<'a> {
    /// The tree for a failure point, if there is one.
    pub(crate) fn tree(&self, at: EventIndex, is_logged: bool) -> Option<PointTree<'a>> {
        self.trees?.at(at, is_logged)
    }
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
    /// Executions of trees: those that no earlier result had count when the result is accepted.
    pub(crate) known: BTreeSet<KnownLeaf>,
    /// Executions that other points have shown.
    pub(crate) saved: u64,
    pub(crate) choices: u64,
    pub(crate) log10_states: f64,
    pub(crate) failures: Vec<LazyFailure>,
    /// Executions that fail as others do at another failure point.
    pub(crate) repeats: BTreeMap<KnownKind, u64>,
    /// Executions that fail although recovery does not fail on their crash states.
    pub(crate) unconfirmed: u64,
    pub(crate) second_failures: u64,
    /// Second failures that were left out because others are alike.
    pub(crate) alike: u64,
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

    /// Adds the executions of a walk.
    pub(crate) fn count(&mut self, walk: &WalkSummary) {
        self.executions += walk.executions_alone();
        self.known.extend(walk.known.iter().copied());
    }

    /// The result is accepted after those of all earlier points: of the executions of trees, the new ones count.
    pub(crate) fn accept(&mut self, trees: Option<&Trees>) {
        let Some(trees) = trees else { return };
        let new = trees.accept(&self.known);
        self.executions += new;
        self.saved += self.known.len() as u64 - new;
        self.known.clear();
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

    fn saved(&self) -> u64 {
        self.saved
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

    fn read(&self, id: LineId, line_bytes: usize) -> Vec<u8> {
        let offset = id.line.0 * line_bytes as u64;
        // By pool and offset.
        let place = self
            .overlay
            .binary_search_by_key(&(id.pool, offset), |patch| (patch.pool, patch.offset));
        if let Ok(place) = place {
            return self.overlay[place].bytes.clone();
        }
        let mut bytes = vec![0; line_bytes];
        self.executor
            .read(Place::new(id.pool, PoolOffset(offset)), &mut bytes);
        bytes
    }

    fn modules(&mut self) -> Option<Arc<[StageModules]>> {
        self.executor.modules()
    }

    fn kept(&mut self, tree: &TreeName) -> Result<Vec<KeptWithModules>, CheckError> {
        self.executor.kept(tree)
    }

    fn keep(
        &mut self,
        tree: &TreeName,
        executions: KeptExecutions,
        modules: Option<Arc<[StageModules]>>,
    ) -> Result<(), CheckError> {
        self.executor.keep(tree, executions, modules)
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
    let mut walked = match walk(executor, at, stack, watched, settings)? {
        Walked::Done(result) => return Ok(*result),
        Walked::Executions(walked) => *walked,
    };
    let successes = std::mem::take(&mut walked.successes);
    let is_cut = explore_nested(
        executor,
        &mut walked,
        settings,
        |nested, executor, first| nested.explore(executor, first, successes, 2),
    )?;
    walked.conclude(executor, is_cut, settings)
}

/// Executes recovery at a failure point, and finds out where the power can fail again.
pub(crate) fn survey_point(
    executor: &mut dyn LazyExecutor,
    at: EventIndex,
    stack: StackId,
    settings: &PointSettings<'_>,
) -> Result<SurveyedPoint, CheckError> {
    let mut walked = match walk(executor, at, stack, Vec::new(), settings)? {
        Walked::Done(result) => return Ok(SurveyedPoint::Done(result)),
        Walked::Executions(walked) => walked,
    };
    // What recoveries after second failures read is not known.
    walked.result.reads = None;
    let successes = std::mem::take(&mut walked.successes);
    let interrupted = interruptions(executor, &walked.first, &walked.pools, successes);
    Ok(SurveyedPoint::Interrupted {
        walked,
        interrupted,
    })
}

/// Explores the second failures that were chosen.
pub(crate) fn explore_surveyed(
    executor: &mut dyn LazyExecutor,
    surveyed: SurveyedPoint,
    settings: &PointSettings<'_>,
) -> Result<PointResult, CheckError> {
    let (mut walked, interrupted) = match surveyed {
        SurveyedPoint::Done(result) => return Ok(*result),
        SurveyedPoint::Interrupted {
            walked,
            interrupted,
        } => (*walked, interrupted),
    };
    executor.move_to(walked.result.at)?;
    let is_cut = explore_nested(
        executor,
        &mut walked,
        settings,
        |nested, executor, first| nested.explore_chosen(executor, first, &interrupted),
    )?;
    walked.conclude(executor, is_cut, settings)
}

/// What is known of a failure point when recovery was executed after one power failure.
enum Walked {
    Done(Box<PointResult>),
    Executions(Box<WalkedPoint>),
}

/// A failure point at which the power may fail again.
pub(crate) struct WalkedPoint {
    result: PointResult,
    first: CrashPoint,
    pools: Pools,
    successes: Vec<LoggedExecution>,
    /// Why not everything was executed.
    reason: Option<Reason>,
}

/// A failure point, and where the power can fail again in recovery.
pub(crate) enum SurveyedPoint {
    /// Nowhere.
    Done(Box<PointResult>),
    Interrupted {
        walked: Box<WalkedPoint>,
        interrupted: Vec<InterruptedExecution>,
    },
}

impl SurveyedPoint {
    fn result(&self) -> &PointResult {
        match self {
            Self::Done(result) => result,
            Self::Interrupted { walked, .. } => &walked.result,
        }
    }

    /// The survey is accepted after those of all earlier points. Of second failures that are alike, few are left.
    pub(crate) fn accept(&mut self, trees: Option<&Trees>, chosen: &mut ChosenInterruptions) {
        match self {
            Self::Done(result) => result.accept(trees),
            Self::Interrupted {
                walked,
                interrupted,
            } => {
                walked.result.accept(trees);
                walked.result.alike = chosen.choose(walked.result.at, interrupted);
            }
        }
    }
}

impl ExecutedPoint for SurveyedPoint {
    fn at(&self) -> EventIndex {
        self.result().at
    }

    fn executions(&self) -> u64 {
        self.result().executions
    }

    fn saved(&self) -> u64 {
        self.result().saved
    }

    fn reads(&self) -> Option<&Reads> {
        self.result().reads.as_ref()
    }
}

impl WalkedPoint {
    /// What exploring the point has shown. `is_cut`: not all second failures were tried.
    fn conclude(
        self,
        executor: &mut dyn LazyExecutor,
        is_cut: bool,
        settings: &PointSettings<'_>,
    ) -> Result<PointResult, CheckError> {
        let Self {
            mut result,
            first,
            reason,
            ..
        } = self;
        if let Some(reason) = reason {
            // Where recovery fails, a sample would only fail again.
            let is_all = settings.judged.is_none()
                && !result.fails()
                && try_sample(executor, &first.table, settings, &mut result)?;
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
}

/// Executes recovery after one power failure.
fn walk(
    executor: &mut dyn LazyExecutor,
    at: EventIndex,
    stack: StackId,
    watched: Vec<PageLines>,
    settings: &PointSettings<'_>,
) -> Result<Walked, CheckError> {
    executor.move_to(at)?;
    let table = executor.crash_table();
    let pools = executor.pools();
    let first = CrashPoint::first(table.clone());
    let mut lines = pools.line_table(&table);
    // The tree needs no other watches.
    let has_tree = settings.tree(at, settings.depth > 1).is_some();
    let watched = if has_tree { Vec::new() } else { watched };
    lines.watched = watched.iter().filter_map(|page| pools.mask(page)).collect();
    let (limit, is_short) = limit(settings);
    let mut result = PointResult {
        at,
        stack,
        thoroughness: Thoroughness::Exhaustive,
        limit: settings.limit.unwrap_or(u64::MAX),
        executions: 0,
        known: BTreeSet::new(),
        saved: 0,
        choices: 0,
        log10_states: table.log10_states,
        failures: Vec::new(),
        repeats: BTreeMap::new(),
        unconfirmed: 0,
        second_failures: 0,
        alike: 0,
        contradictions: BTreeMap::new(),
        reads: None,
        warnings: Vec::new(),
    };
    if settings.is_random {
        if !try_sample(executor, &table, settings, &mut result)? {
            let reason = Reason::Random;
            result.thoroughness = Thoroughness::Sampled { reason };
        }
        return Ok(Walked::Done(Box::new(result)));
    }
    let known = settings.known.filter(|known| !known.is_empty());
    let mut walked = None;
    if let Some(known) = known
        && limit > FIRST_LOOK
    {
        let look = walk_point(executor, (&first, &pools, &lines), at, FIRST_LOOK, settings)?;
        if look.summary.extent == Extent::Cut {
            result.count(&look.summary);
            result.warnings.clone_from(&look.summary.warnings);
            if let Some(repeats) = are_known(executor, &table, &look.all, known)? {
                result.repeats = repeats;
                let reason = Reason::TooMany;
                result.thoroughness = Thoroughness::Sampled { reason };
                return Ok(Walked::Done(Box::new(result)));
            }
        } else {
            walked = Some(look);
        }
    }
    let leaves = match walked {
        Some(walked) => walked,
        None => walk_point(executor, (&first, &pools, &lines), at, limit, settings)?,
    };
    let walk = leaves.summary;
    result.count(&walk);
    result.choices = walk.choices;
    result.warnings.extend(walk.warnings);
    result.contradictions = contradictions(executor, &table, at, &leaves.observed);
    let read = walk.read.iter();
    result.reads = walk.known.is_empty().then(|| Reads {
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
    Ok(Walked::Executions(Box::new(WalkedPoint {
        result,
        first,
        pools,
        successes: leaves.successes,
        reason,
    })))
}

/// The executions at a failure point.
fn walk_point(
    executor: &mut dyn LazyExecutor,
    (first, pools, lines): (&CrashPoint, &Pools, &LineTable),
    at: EventIndex,
    limit: u64,
    settings: &PointSettings<'_>,
) -> Result<Leaves, CheckError> {
    let walk = WalkTask {
        table: lines,
        fork: settings.fork,
        log: settings.depth > 1,
        limit,
        deadline: settings.deadline.map(|(deadline, _)| deadline),
    };
    let tree = settings.tree(at, walk.log);
    let judge = |verdict: &Verdict| settings.contents.judge(at, verdict);
    let task = LeavesTask {
        walk,
        tree: tree.map(|tree| ObservedCrash::of(tree, first, pools, &|_| Vec::new())),
        judge: &judge,
        keeps_choices: settings.robustness,
    };
    let mut explorer = OverlaidExecutor {
        executor,
        overlay: &[],
    };
    walk_leaves(&mut explorer, &task)
}

/// Lets the power fail again in executions that succeeded. Returns whether something was left out.
fn explore_nested(
    executor: &mut dyn LazyExecutor,
    walked: &mut WalkedPoint,
    settings: &PointSettings<'_>,
    explore: impl FnOnce(
        &mut NestedExploration<'_, '_>,
        &mut dyn LazyExecutor,
        &CrashPoint,
    ) -> Result<(), CheckError>,
) -> Result<bool, CheckError> {
    let mut nested = NestedExploration {
        settings,
        result: &mut walked.result,
        pools: walked.pools.clone(),
        explored: HashSet::new(),
        executions: 0,
        is_cut: false,
    };
    explore(&mut nested, executor, &walked.first)?;
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
