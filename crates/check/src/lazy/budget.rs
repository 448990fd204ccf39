//! The budget of executions that all failure points share (`--max-executions`).
//!
//! While more is left than a round can use, the budget changes nothing. After that a single worker continues, and its
//! explorations end when nothing is left. What sampling needs, where recovery cannot be explored, is reserved before
//! a round.

use std::sync::Arc;

use powerfail_explore::FailurePoint;
use powerfail_explore::lazy::{CrashTable, ReadLine, Seen};
use powerfail_finding::Exploration;
use powerfail_image::Patch;
use powerfail_model::{CrashState, EventIndex, Place, Rules};
use powerfail_oracle::{ExploreRequest, LazyExecutions, Stage, StageModules, Verdict};
use powerfail_trace::StackId;

use super::driver::Progress;
use super::executor::{LazyExecutor, LocatedFrames, Pools};
use super::kept::{KeptExecutions, TreeName};
use super::point::{PointResult, Reason, Thoroughness};
use super::turns::{SECOND_FACTOR, Turn};
use super::walk::{Attempt, KeptWithModules};
use super::{SAMPLE, points_are};
use crate::error::CheckError;

/// What is left of the budget.
#[derive(Debug)]
pub(crate) struct ExecutionBudget {
    max: u64,
    /// What was left when this turn began.
    of_turn: u64,
    left: u64,
    /// The part of `left` that is reserved for sampling in this round.
    reserved: u64,
    is_begun: bool,
    is_refused: bool,
}

/// What a round may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundShare {
    pub(crate) points: usize,
    /// Crash states to try at each, where it cannot be explored.
    pub(crate) sample: usize,
}

impl ExecutionBudget {
    pub(crate) const fn new(max: u64) -> Self {
        Self {
            max,
            of_turn: max,
            left: max,
            reserved: 0,
            is_begun: false,
            is_refused: false,
        }
    }

    /// Called before a turn. Returns what is left for it.
    pub(crate) const fn begin_turn(&mut self) -> u64 {
        self.reserved = 0;
        self.of_turn = self.left;
        self.left
    }

    /// What may be done next of a round of this many failure points; `None` if the budget covers all of it.
    pub(crate) fn share(&mut self, points: usize, turn: Turn) -> Option<RoundShare> {
        self.reserved = 0;
        let walks = if turn.depth > 1 { 1 + SECOND_FACTOR } else { 1 };
        let each = turn.limit.and_then(|limit| limit.checked_mul(walks));
        // A point that cannot be explored is sampled.
        let each = each.and_then(|each| each.checked_add(SAMPLE as u64));
        let most = each.and_then(|each| each.checked_mul(points as u64));
        if most.is_some_and(|most| most <= self.left) {
            return None;
        }
        let mut share = RoundShare { points, sample: 0 };
        if self.is_refused {
            let half = self.left.div_ceil(2);
            let sample = half.min(SAMPLE as u64);
            let fit = (half / sample.max(1)).clamp(1, points as u64);
            self.reserved = fit * sample;
            share = RoundShare {
                points: usize::try_from(fit).unwrap_or(points),
                sample: usize::try_from(sample).unwrap_or(SAMPLE),
            };
        } else if !self.is_begun {
            // The first point shows whether recovery can be explored.
            share.points = 1;
        }
        self.is_begun = true;
        Some(share)
    }

    /// How many executions this round may explore.
    pub(crate) fn left(&self) -> u64 {
        self.left - self.reserved
    }

    /// Called after a round. Returns the failure points that must be tried again, by sampling.
    pub(crate) fn settle(
        &mut self,
        progress: &mut Progress<PointResult>,
        points: &[FailurePoint],
    ) -> Vec<FailurePoint> {
        self.left = self.of_turn.saturating_sub(progress.executions);
        let mut again = Vec::new();
        let was_refused = self.is_refused;
        // A result without executions is one for which nothing was left.
        progress.results.retain(|result| {
            let reason = match &result.thoroughness {
                Thoroughness::Sampled { reason } => reason,
                Thoroughness::Exhaustive => return true,
            };
            if result.executions + result.saved > 0 {
                return true;
            }
            if matches!(reason, Reason::Refused(_)) && !was_refused {
                self.is_refused = true;
                again.extend(points.iter().filter(|point| point.at == result.at));
            }
            false
        });
        progress.is_over |= self.left == 0;
        again
    }

    /// The note for the report, if the budget has kept something from being tried.
    pub(crate) fn note(&self, totals: &Exploration) -> Option<String> {
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

/// A executor that explores no more than it is given.
pub(crate) struct BudgetedExecutor<L> {
    pub(crate) executor: L,
    pub(crate) left: Option<u64>,
}

impl<L: LazyExecutor> LazyExecutor for BudgetedExecutor<L> {
    fn explore(
        &mut self,
        overlay: &[Patch],
        request: &ExploreRequest<'_>,
    ) -> Result<Attempt, CheckError> {
        let Some(left) = &mut self.left else {
            return self.executor.explore(overlay, request);
        };
        if *left == 0 {
            return Ok(Attempt::Explored(LazyExecutions {
                stopped: true,
                ..LazyExecutions::default()
            }));
        }
        let request = ExploreRequest {
            max_executions: request.max_executions.min(*left),
            ..*request
        };
        let attempt = self.executor.explore(overlay, &request)?;
        if let Attempt::Explored(explored) = &attempt {
            *left = left.saturating_sub(explored.executions.len() as u64);
        }
        Ok(attempt)
    }

    fn move_to(&mut self, at: EventIndex) -> Result<(), CheckError> {
        self.executor.move_to(at)
    }

    fn crash_table(&self) -> CrashTable {
        self.executor.crash_table()
    }

    fn pools(&self) -> Pools {
        self.executor.pools()
    }

    fn run(&mut self, state: &CrashState, overlay: &[Patch]) -> Result<Verdict, CheckError> {
        self.executor.run(state, overlay)
    }

    fn frames(&mut self, stage: Stage, addresses: &[u64]) -> Option<LocatedFrames> {
        self.executor.frames(stage, addresses)
    }

    fn modules(&mut self) -> Option<Arc<[StageModules]>> {
        self.executor.modules()
    }

    fn use_modules(&mut self, modules: &Arc<[StageModules]>) {
        self.executor.use_modules(modules);
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

    fn rules(&self) -> Rules {
        self.executor.rules()
    }

    fn read(&self, at: Place, out: &mut [u8]) {
        self.executor.read(at, out);
    }

    fn read_lines(&self, seen: &Seen<'_>, crash: EventIndex) -> Option<Vec<ReadLine>> {
        self.executor.read_lines(seen, crash)
    }

    fn stack_of(&mut self, event: EventIndex) -> Result<StackId, CheckError> {
        self.executor.stack_of(event)
    }
}
