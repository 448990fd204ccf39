//! Which moments of traces the campaign has checked already, so that checks spend their time on new ones.
//!
//! A moment is named by its [`PointKey`], which is the same in all traces: the call stacks that lead to it. The
//! selections in [`crate::point_selection`] consult this history, and [`crate::check_journal`] keeps it on disk.

use std::sync::{Mutex, MutexGuard, PoisonError};

use powerfail_check::CheckStep;
use powerfail_explore::{PointKey, PointKeys};
use powerfail_model::EventIndex;
use powerfail_trace::Trace;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Deserializer, Serialize};

use crate::crash_test::Suspect;

/// How often a moment is checked because an execution failed on the image that a crash there left.
const FAILURES_CHECKED_MAX: u32 = 4;

/// The checks that choose failure points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PointCheck {
    /// Recovery runs on the image of a crash.
    Crash,
    /// Lost and reordered lines are explored.
    Lazy,
    /// The reads of recovery are watched.
    Races,
}

impl PointCheck {
    /// The check that a step belongs to; `None` for steps that choose no failure points.
    pub(crate) const fn of_step(step: CheckStep) -> Option<Self> {
        match step {
            CheckStep::Crashes => Some(Self::Crash),
            CheckStep::Lazy => Some(Self::Lazy),
            CheckStep::Races => Some(Self::Races),
            _ => None,
        }
    }
}

/// `checks.jsonl` names checks. Campaigns of format 1 numbered them.
impl<'de> Deserialize<'de> for PointCheck {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Name {
            Crash,
            Lazy,
            Races,
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Stored {
            Name(Name),
            Number(u8),
        }
        match Stored::deserialize(reader)? {
            Stored::Name(Name::Crash) | Stored::Number(0) => Ok(Self::Crash),
            Stored::Name(Name::Lazy) | Stored::Number(1) => Ok(Self::Lazy),
            Stored::Name(Name::Races) | Stored::Number(2) => Ok(Self::Races),
            Stored::Number(number) => Err(serde::de::Error::custom(format!(
                "there is no check with the number {number}"
            ))),
        }
    }
}

/// A value for each check that chooses failure points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PerCheck<T> {
    pub(crate) crash: T,
    pub(crate) lazy: T,
    pub(crate) races: T,
}

impl<T> PerCheck<T> {
    pub(crate) const fn of(&self, check: PointCheck) -> &T {
        match check {
            PointCheck::Crash => &self.crash,
            PointCheck::Lazy => &self.lazy,
            PointCheck::Races => &self.races,
        }
    }

    pub(crate) const fn of_mut(&mut self, check: PointCheck) -> &mut T {
        match check {
            PointCheck::Crash => &mut self.crash,
            PointCheck::Lazy => &mut self.lazy,
            PointCheck::Races => &mut self.races,
        }
    }
}

/// What the checks of one trace have tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TriedPoints {
    /// Checks, and the [`PointKey`]s of moments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) points: Vec<(PointCheck, u64)>,
    /// Hashes of warnings of the lint for which a crash was tried as proof.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) candidates: Vec<u64>,
}

/// What the whole campaign has checked. Can be shared between threads.
#[derive(Debug, Default)]
pub(crate) struct CheckHistory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// In how many traces each moment was checked.
    pub(crate) points: FxHashMap<(PointCheck, PointKey), u32>,
    pub(crate) candidates: FxHashSet<u64>,
    /// Moments of all recorded traces, whether they are failure points or not.
    moments: FxHashSet<PointKey>,
    suspects: FxHashSet<Suspect>,
}

impl CheckHistory {
    /// Records the moments of a trace; returns those not seen before.
    pub(crate) fn absorb(&self, trace: &Trace, keys: &PointKeys) -> Vec<PointKey> {
        let mut inner = self.lock();
        let all = (0..=trace.event_count()).map(|at| keys.at(EventIndex(at)));
        all.filter(|key| inner.moments.insert(*key)).collect()
    }

    /// Records warnings that only a crash can prove; returns whether any of them is new.
    pub(crate) fn add_suspects(&self, suspects: Vec<Suspect>) -> bool {
        let mut inner = self.lock();
        let before = inner.suspects.len();
        inner.suspects.extend(suspects);
        inner.suspects.len() > before
    }

    /// Records what an earlier run of the campaign has checked.
    pub(crate) fn restore(&self, moments: impl Iterator<Item = PointKey>, tried: &TriedPoints) {
        let mut inner = self.lock();
        inner.moments.extend(moments);
        for (check, key) in &tried.points {
            *inner.points.entry((*check, PointKey(*key))).or_default() += 1;
        }
        inner.candidates.extend(&tried.candidates);
    }

    /// Counts a crash at a moment that is about to be checked because an execution failed; returns whether it has
    /// been checked less often than the limit.
    pub(crate) fn claim_crash(&self, key: PointKey) -> bool {
        let mut inner = self.lock();
        let tried = inner.points.entry((PointCheck::Crash, key)).or_default();
        *tried += 1;
        *tried <= FAILURES_CHECKED_MAX
    }

    /// Whether a recorded trace has this moment.
    #[cfg(test)]
    pub(crate) fn has_moment(&self, key: PointKey) -> bool {
        self.lock().moments.contains(&key)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{PointCheck, TriedPoints};

    #[test]
    fn checks_are_stored_by_name_and_those_of_format_1_are_still_read() {
        let tried = TriedPoints {
            points: vec![(PointCheck::Crash, 5), (PointCheck::Races, 7)],
            candidates: Vec::new(),
        };
        let text = serde_json::to_string(&tried).unwrap();
        assert_eq!(text, r#"{"points":[["crash",5],["races",7]]}"#);
        assert_eq!(serde_json::from_str::<TriedPoints>(&text).unwrap(), tried);
        let old = r#"{"points":[[0,5],[2,7]]}"#;
        assert_eq!(serde_json::from_str::<TriedPoints>(old).unwrap(), tried);
        assert!(serde_json::from_str::<TriedPoints>(r#"{"points":[[3,5]]}"#).is_err());
    }
}
