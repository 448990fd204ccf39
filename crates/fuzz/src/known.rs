//! What the campaign has tried already, so that checks spend their time on what is new.

use std::sync::{Arc, Mutex, PoisonError};

use powerfail_check::{Selection, Step};
use powerfail_explore::{FailurePoint, PointKey, PointKeys, StackNames};
use powerfail_lint::Hit;
use powerfail_model::EventIndex;
use powerfail_trace::{StackId, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::judge::Suspect;

/// How often a moment is tried in one trace: the data differs.
const TRIES_IN_TRACE: u32 = 2;

/// How often a moment is looked at because an execution failed after it.
const CLAIMS_MAX: u32 = 4;

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Known {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// How often each was tried, by the number of the step.
    points: FxHashMap<(u8, PointKey), u32>,
    candidates: FxHashSet<u64>,
    /// Moments of all traces that were looked at, failure points or not.
    moments: FxHashSet<PointKey>,
    suspects: FxHashSet<Suspect>,
}

impl Known {
    /// Notes all moments of a trace. Those that are new.
    pub(crate) fn absorb(&self, trace: &Trace, keys: &PointKeys) -> Vec<PointKey> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let all = (0..=trace.event_count()).map(|at| keys.at(EventIndex(at)));
        all.filter(|key| inner.moments.insert(*key)).collect()
    }

    /// Notes what only crashes can prove. Whether any of it is new.
    pub(crate) fn suspect(&self, suspects: Vec<Suspect>) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let before = inner.suspects.len();
        inner.suspects.extend(suspects);
        inner.suspects.len() > before
    }

    /// Notes what an earlier run of the campaign has tried.
    pub(crate) fn restore(&self, moments: impl Iterator<Item = PointKey>, tried: &Tried) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.moments.extend(moments);
        for (step, key) in &tried.points {
            *inner.points.entry((*step, PointKey(*key))).or_default() += 1;
        }
        inner.candidates.extend(&tried.candidates);
    }

    /// Whether a trace that was looked at has a moment with this name.
    #[cfg(test)]
    pub(crate) fn has_moment(&self, key: PointKey) -> bool {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.moments.contains(&key)
    }
}

impl Known {
    /// Notes that the power is to fail at a moment with this name. Whether that was not tried often enough.
    pub(crate) fn claim_crash(&self, key: PointKey) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = inner
            .points
            .entry((number(Step::Crashes), key))
            .or_default();
        *tried += 1;
        *tried <= CLAIMS_MAX
    }
}

const fn number(step: Step) -> u8 {
    match step {
        Step::Crashes => 0,
        Step::Lazy => 1,
        Step::Races => 2,
        _ => 3,
    }
}

/// What is tried of one trace.
#[derive(Debug)]
pub(crate) struct NewPoints {
    known: Arc<Known>,
    keys: PointKeys,
    /// The stable name of each call stack of the trace.
    stacks: FxHashMap<StackId, u32>,
    /// How often each moment is tried in the whole campaign.
    tries: u32,
    /// How many failure points each step may try.
    limits: [usize; 4],
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    accepted: [usize; 4],
    refused: usize,
    here: FxHashMap<(u8, PointKey), u32>,
    candidates: Vec<u64>,
}

/// What was tried of one trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tried {
    /// Steps and names of moments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) points: Vec<(u8, u64)>,
    /// Candidates of the lint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) candidates: Vec<u64>,
}

impl NewPoints {
    /// Of a trace: what was tried fewer than `tries` times.
    pub(crate) fn new(
        trace: &Trace,
        keys: PointKeys,
        known: &Arc<Known>,
        tries: u32,
        limits: [usize; 4],
    ) -> Self {
        let mut names = StackNames::new(trace);
        let stacks = (0..=trace.stack_count()).map(StackId);
        Self {
            known: Arc::clone(known),
            keys,
            stacks: stacks.map(|stack| (stack, names.of(stack).0)).collect(),
            tries,
            limits,
            state: Mutex::default(),
        }
    }

    /// What was tried.
    pub(crate) fn tried(&self) -> Tried {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = state.here.iter().filter(|(_, tries)| **tries > 0);
        let mut points: Vec<_> = tried.map(|((step, key), _)| (*step, key.0)).collect();
        points.sort_unstable();
        Tried {
            points,
            candidates: state.candidates.clone(),
        }
    }

    /// How many points were new, and left out because there were too many.
    pub(crate) fn refused(&self) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.refused as u64
    }
}

impl Selection for NewPoints {
    fn wants_point(&self, step: Step, point: &FailurePoint) -> bool {
        let step = number(step);
        let key = (step, self.keys.at(point.at));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let here = state.here.entry(key).or_default();
        if *here >= TRIES_IN_TRACE {
            return false;
        }
        let mut inner = self
            .known
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let tried = inner.points.entry(key).or_default();
        // What this trace has begun, it may go on with.
        if *here == 0 && *tried >= self.tries {
            return false;
        }
        if state.accepted[usize::from(step)] >= self.limits[usize::from(step)] {
            state.refused += 1;
            return false;
        }
        if *here == 0 {
            *tried += 1;
        }
        *here += 1;
        state.accepted[usize::from(step)] += 1;
        true
    }

    fn wants_candidate(&self, hit: &Hit) -> bool {
        let mut hash = u64::from(hit.code as u8) + 1;
        for site in &hit.sites {
            let stack = self.stacks.get(&site.stack).copied().unwrap_or(0);
            hash = (hash.rotate_left(23) ^ u64::from(stack)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let mut inner = self
            .known
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_new = inner.candidates.insert(hash);
        drop(inner);
        if is_new {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.candidates.push(hash);
        }
        is_new
    }
}

/// Moments that are given, and nothing else.
#[derive(Debug)]
pub(crate) struct OnlyThese {
    pub(crate) moments: FxHashSet<EventIndex>,
    pub(crate) candidates: bool,
}

impl Selection for OnlyThese {
    fn wants_point(&self, _step: Step, point: &FailurePoint) -> bool {
        self.moments.contains(&point.at)
    }

    fn wants_candidate(&self, _hit: &Hit) -> bool {
        self.candidates
    }
}

/// Moments with given names, and nothing else.
#[derive(Debug)]
pub(crate) struct OnlyNamed {
    pub(crate) keys: PointKeys,
    pub(crate) wanted: FxHashSet<PointKey>,
    pub(crate) candidates: bool,
}

impl Selection for OnlyNamed {
    fn wants_point(&self, _step: Step, point: &FailurePoint) -> bool {
        self.wanted.contains(&self.keys.at(point.at))
    }

    fn wants_candidate(&self, _hit: &Hit) -> bool {
        self.candidates
    }
}
