//! Which failure points of a trace a check tries: those that the campaign has not tried yet, or given ones.

use std::sync::{Arc, Mutex, PoisonError};

use powerfail_check::{CheckStep, Selection};
use powerfail_explore::{FailurePoint, PointKey, PointKeys, StackNames};
use powerfail_lint::Hit;
use powerfail_model::EventIndex;
use powerfail_trace::{StackId, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::check_history::{CheckHistory, PerCheck, PointCheck, TriedPoints};

/// How often a moment is tried in one trace. The moment may come more than once, with different data.
const TRIES_PER_TRACE: u32 = 2;

/// The points of one trace that the campaign has not tried often enough, up to a limit.
#[derive(Debug)]
pub(crate) struct UntriedPoints {
    history: Arc<CheckHistory>,
    keys: PointKeys,
    /// A name for each call stack of the trace that is the same in all traces.
    stacks: FxHashMap<StackId, u32>,
    /// In how many traces of the campaign a moment is tried.
    traces_max: u32,
    /// How many failure points each check may try in this trace.
    limits: PerCheck<usize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    accepted: PerCheck<usize>,
    over_limit: u64,
    tries: FxHashMap<(PointCheck, PointKey), u32>,
    candidates: Vec<u64>,
}

impl UntriedPoints {
    /// The points of a trace that were tried in fewer than `traces_max` traces.
    pub(crate) fn new(
        trace: &Trace,
        keys: PointKeys,
        history: &Arc<CheckHistory>,
        traces_max: u32,
        limits: PerCheck<usize>,
    ) -> Self {
        let mut names = StackNames::new(trace);
        let stacks = (0..=trace.stack_count()).map(StackId);
        Self {
            history: Arc::clone(history),
            keys,
            stacks: stacks.map(|stack| (stack, names.of(stack).0)).collect(),
            traces_max,
            limits,
            state: Mutex::default(),
        }
    }

    /// The points that were tried.
    pub(crate) fn tried(&self) -> TriedPoints {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = state.tries.iter().filter(|(_, tries)| **tries > 0);
        let mut points: Vec<_> = tried.map(|((check, key), _)| (*check, key.0)).collect();
        points.sort_unstable();
        TriedPoints {
            points,
            candidates: state.candidates.clone(),
        }
    }

    /// How many untried points were left out because of the limits.
    pub(crate) fn over_limit(&self) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.over_limit
    }
}

impl Selection for UntriedPoints {
    fn wants_point(&self, step: CheckStep, point: &FailurePoint) -> bool {
        let Some(check) = PointCheck::of_step(step) else {
            return false;
        };
        let key = (check, self.keys.at(point.at));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let tries = state.tries.entry(key).or_default();
        if *tries >= TRIES_PER_TRACE {
            return false;
        }
        let mut history = self.history.lock();
        let traces = history.points.entry(key).or_default();
        // A moment that this trace has begun with may be tried again in it.
        if *tries == 0 && *traces >= self.traces_max {
            return false;
        }
        let accepted = state.accepted.of_mut(check);
        if *accepted >= *self.limits.of(check) {
            state.over_limit += 1;
            return false;
        }
        if *tries == 0 {
            *traces += 1;
        }
        *tries += 1;
        *accepted += 1;
        true
    }

    fn wants_candidate(&self, hit: &Hit) -> bool {
        let mut hash = u64::from(hit.code as u8) + 1;
        for site in &hit.sites {
            let stack = self.stacks.get(&site.stack).copied().unwrap_or(0);
            hash = (hash.rotate_left(23) ^ u64::from(stack)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let is_new = self.history.lock().candidates.insert(hash);
        if is_new {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.candidates.push(hash);
        }
        is_new
    }
}

/// The failure points at given events, and no others.
#[derive(Debug)]
pub(crate) struct PointsAt {
    pub(crate) events: FxHashSet<EventIndex>,
    pub(crate) candidates: bool,
}

impl Selection for PointsAt {
    fn wants_point(&self, _step: CheckStep, point: &FailurePoint) -> bool {
        self.events.contains(&point.at)
    }

    fn wants_candidate(&self, _hit: &Hit) -> bool {
        self.candidates
    }
}

/// The failure points with given call stacks, and no others.
#[derive(Debug)]
pub(crate) struct PointsOfStacks {
    pub(crate) keys: PointKeys,
    pub(crate) wanted: FxHashSet<u32>,
    pub(crate) candidates: bool,
}

impl Selection for PointsOfStacks {
    fn wants_point(&self, _step: CheckStep, point: &FailurePoint) -> bool {
        self.wanted.contains(&self.keys.at(point.at).stack().0)
    }

    fn wants_candidate(&self, _hit: &Hit) -> bool {
        self.candidates
    }
}
