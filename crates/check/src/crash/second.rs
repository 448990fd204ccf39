//! Power failures during a recovery that is watched: what it stores is known, so the power fails again before its flushes and
//! fences, with all that it had stored until then. Recovery must succeed once more.

use std::collections::BTreeSet;
use std::time::Instant;

use powerfail_finding::{Finding, Role, SecondFailure};
use powerfail_image::Patch;
use powerfail_model::{CrashState, EventIndex, PoolIndex};
use powerfail_oracle::{Backtrace, ThreadStack};
use powerfail_trace::{Frame, StackId};

use super::Crashed;
use super::engine::{Engine, Share};
use super::finding::{Failed, evidence};
use super::lazy_findings::written;
use super::words::message;
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::options::{CrashOptions, WatchedRecovery, WatchedStep};
use crate::places::Places;
use crate::runner::{Survival, Trial};

/// On how many crash images recovery is watched.
const WATCHED_MAX: usize = 24;
/// In a recovery with more moments than this the power fails once at each call stack.
const MOMENTS_MAX: usize = 24;

/// A moment of a recovery at which the power fails again.
struct Moment {
    /// The first failure.
    at: EventIndex,
    /// How many stores, flushes and fences recovery had made.
    events: usize,
    /// What it had stored.
    overlay: Vec<Patch>,
    /// The next store, which does not happen.
    missing: Option<WatchedStep>,
}

impl Engine<'_, '_> {
    /// Lets the power fail while recovery repairs what first failures leave, where it succeeds if it is left alone, and if it can
    /// be watched.
    pub(super) fn fail_during_watched(
        &mut self,
        options: &CrashOptions,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let Some(watched) = &options.watched else {
            return Ok(());
        };
        if options.is_partial() || self.is_interrupted {
            return Ok(());
        }
        self.allow(Share::LazyExplained);
        let outcome = self.fail_again(watched.as_ref(), crashed, places);
        self.unless_interrupted(outcome)?;
        Ok(())
    }

    fn fail_again(
        &mut self,
        watched: &dyn WatchedRecovery,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let firsts = self.moments_by_stack()?;
        let firsts: Vec<Trial> = spread(&firsts, WATCHED_MAX)
            .into_iter()
            .map(Trial::prefix)
            .collect();
        let (observer, until) = (&*self.observer, self.until());
        let is_late = || until.is_some_and(|until| Instant::now() >= until);
        let is_interrupted = || observer.is_interrupted();
        let seen = self
            .runner
            .look_at(&firsts, &is_late, &is_interrupted, &|pool| {
                watched.steps(pool)
            })?;
        let count = seen.len();
        let mut moments = Vec::new();
        let mut alike = BTreeSet::new();
        let mut failed = None;
        for (first, steps) in firsts.iter().zip(seen) {
            match steps {
                Ok(steps) if alike.insert(likeness(&steps)) => {
                    moments.extend(moments_of(first.at, &steps));
                }
                Ok(_) => {}
                Err(sentence) => failed = failed.or(Some(sentence)),
            }
        }
        crashed.notes.push(match failed {
            Some(reason) => format!("recovery could not always be watched: {reason}"),
            None => format!(
                "the power failed again at {} moments of recoveries on {} crash images",
                moments.len(),
                count
            ),
        });
        let trials: Vec<Trial> = moments.iter().map(Moment::trial).collect();
        let results = self.run(CheckStep::Crashes, &trials)?;
        let mut findings = Vec::new();
        for ((moment, trial), result) in moments.iter().zip(&trials).zip(&results) {
            if let Some(symptom) = self.judge(trial, result) {
                let failed = Failed {
                    trial: trial.clone(),
                    state: CrashState::default(),
                    stack: StackId::NONE,
                    symptom,
                    count: 1,
                };
                findings.push(self.second_finding(moment, &failed, places)?);
            }
        }
        crashed.findings.extend(findings);
        Ok(())
    }

    /// Moments at which recovery succeeds: one for each call stack.
    fn moments_by_stack(&self) -> Result<Vec<EventIndex>, CheckError> {
        let mut stacks = BTreeSet::new();
        let mut moments = Vec::new();
        for at in &self.good {
            if stacks.insert(self.stack_of(*at)?) {
                moments.push(*at);
            }
        }
        Ok(moments)
    }

    fn second_finding(
        &mut self,
        moment: &Moment,
        failed: &Failed,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let mut found = Vec::new();
        if let Some(step) = &moment.missing {
            let backtrace = Backtrace {
                modules: places.trace().modules().to_vec(),
                threads: vec![ThreadStack {
                    name: String::new(),
                    frames: step.frames.clone(),
                }],
            };
            let mut place = places.of_backtrace(Role::Store, &backtrace);
            if let Some((offset, bytes)) = &step.stored {
                place.pool_offset = Some(*offset);
                place.len_bytes = Some(bytes.len() as u64);
            }
            found.push(place);
        }
        found.push(places.of_event(Role::Failure, moment.at)?);
        let text = message(failed.symptom.code, &found);
        let mut evidence = evidence(failed, self.runner.line_bytes());
        evidence.failure.again = Some(SecondFailure {
            failures: 2,
            events: moment.events as u64,
            written: moment.overlay.iter().map(written).collect(),
        });
        let explanation =
            "what recovery had stored until the second failure survived; this store did not happen";
        self.finish(
            failed,
            found,
            format!("{text}, and again in recovery"),
            Some(explanation.to_owned()),
            evidence,
            places,
        )
    }
}

impl Moment {
    fn trial(&self) -> Trial {
        Trial {
            at: self.at,
            state: Survival::Again(CrashState::default(), self.overlay.clone()),
        }
    }
}

/// The moments of a recovery: before each flush and fence that follows a store.
fn moments_of(at: EventIndex, steps: &[WatchedStep]) -> Vec<Moment> {
    let mut ends = Vec::new();
    let mut has_stored = false;
    for (number, step) in steps.iter().enumerate() {
        if step.stored.is_some() {
            has_stored = true;
        } else if std::mem::take(&mut has_stored) {
            ends.push(number);
        }
    }
    if ends.len() > MOMENTS_MAX {
        let mut stacks = BTreeSet::new();
        ends.retain(|number| stacks.insert(code(&steps[*number])));
    }
    let moments = ends.into_iter().map(|end| Moment {
        at,
        events: end,
        overlay: joined(&steps[..end]),
        missing: steps[end..].iter().find(|it| it.stored.is_some()).cloned(),
    });
    moments.collect()
}

/// What steps have stored: the newest bytes, in as few pieces as possible.
fn joined(steps: &[WatchedStep]) -> Vec<Patch> {
    let mut bytes = std::collections::BTreeMap::new();
    for (offset, stored) in steps.iter().filter_map(|it| it.stored.as_ref()) {
        bytes.extend((*offset..).zip(stored.iter().copied()));
    }
    let mut patches: Vec<Patch> = Vec::new();
    for (at, byte) in bytes {
        match patches.last_mut() {
            Some(last) if last.offset + last.bytes.len() as u64 == at => last.bytes.push(byte),
            _ => patches.push(Patch {
                pool: PoolIndex(0),
                offset: at,
                bytes: vec![byte],
            }),
        }
    }
    patches
}

/// Recoveries that do the same in the same order are alike.
fn likeness(steps: &[WatchedStep]) -> Vec<(bool, Vec<(u32, u64)>)> {
    let mut likeness: Vec<_> = steps
        .iter()
        .map(|step| (step.stored.is_some(), code(step)))
        .collect();
    likeness.dedup();
    likeness
}

/// The code of a step, by which it can be compared.
fn code(step: &WatchedStep) -> Vec<(u32, u64)> {
    let frames = step.frames.iter();
    let code = frames.map(|frame| match *frame {
        Frame::Module { module, offset } => (module.0, offset),
        Frame::Absolute { address } => (u32::MAX, address),
    });
    code.collect()
}

/// Some of a list, from all parts of it.
fn spread(all: &[EventIndex], count: usize) -> Vec<EventIndex> {
    let step = all.len().div_ceil(count).max(1);
    all.iter().copied().step_by(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(offset: u64, bytes: &[u8]) -> WatchedStep {
        WatchedStep {
            frames: vec![Frame::Absolute { address: offset }],
            stored: Some((offset, bytes.to_vec())),
        }
    }

    fn flush(address: u64) -> WatchedStep {
        WatchedStep {
            frames: vec![Frame::Absolute { address }],
            stored: None,
        }
    }

    #[test]
    fn the_power_fails_before_each_flush_that_follows_a_store() {
        let steps = [
            store(8, &[1, 2]),
            flush(1),
            flush(2),
            store(9, &[3]),
            store(10, &[4]),
            flush(1),
            store(64, &[5]),
        ];
        let moments = moments_of(EventIndex(7), &steps);
        let patch = |offset, bytes: &[u8]| Patch {
            pool: PoolIndex(0),
            offset,
            bytes: bytes.to_vec(),
        };
        let seen: Vec<_> = moments
            .iter()
            .map(|it| (it.events, it.overlay.clone(), it.missing.clone()))
            .collect();
        assert_eq!(
            seen,
            [
                (1, vec![patch(8, &[1, 2])], Some(steps[3].clone())),
                (5, vec![patch(8, &[1, 3, 4])], Some(steps[6].clone())),
            ]
        );
    }

    #[test]
    fn in_long_recoveries_each_call_stack_counts_once() {
        let steps: Vec<WatchedStep> = (0..100)
            .flat_map(|number| [store(number, &[1]), flush(number % 3)])
            .collect();
        assert_eq!(moments_of(EventIndex(0), &steps).len(), 3);
    }
}
