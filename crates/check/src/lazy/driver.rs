//! Failure points on several workers, with the result of one worker.
//!
//! Workers take the points of a round in the order of the trace. Results are taken in the same order, each
//! as if all points before it had been studied before it: a point that an earlier one makes superfluous is
//! not counted, even if a worker had begun with it. So the number of workers changes nothing but the
//! time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use powerfail_explore::FailurePoint;
use powerfail_explore::lazy::PageLines;
use powerfail_model::EventIndex;

use super::reuse::{Known, Reuse, Same};
use crate::error::CheckError;

/// How often an interruption is looked for while workers are busy.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What all rounds have shown so far. `S` is what is learned at a point.
#[derive(Debug)]
pub(crate) struct Progress<S> {
    /// In the order in which they were studied: by round, then as in the trace.
    pub(crate) studied: Vec<S>,
    /// Points that needed no run, and the executions that this saved.
    pub(crate) unchanged: u64,
    /// How many of them show what a studied one has shown.
    pub(crate) same: BTreeMap<EventIndex, u64>,
    pub(crate) saved: u64,
    pub(crate) executions: u64,
    /// The user wants to stop, or time is up.
    pub(crate) is_interrupted: bool,
    pub(crate) is_over: bool,
}

impl<S> Default for Progress<S> {
    fn default() -> Self {
        Self {
            studied: Vec::new(),
            unchanged: 0,
            same: BTreeMap::new(),
            saved: 0,
            executions: 0,
            is_interrupted: false,
            is_over: false,
        }
    }
}

impl<S> Progress<S> {
    /// Points that are done.
    pub(crate) fn done(&self) -> u64 {
        self.studied.len() as u64 + self.unchanged
    }
}

/// Learns what there is to learn at a failure point, with the lab of a worker. The lines are those of which it
/// must be known whether they are read.
pub(crate) type StudyPoint<'a, L, S> =
    &'a (dyn Fn(&mut L, &FailurePoint, Vec<PageLines>) -> Result<S, CheckError> + Sync);

/// What a round is about.
pub(crate) struct Round<'a, L, S> {
    /// In the order of the trace.
    pub(crate) points: &'a [FailurePoint],
    pub(crate) study: StudyPoint<'a, L, S>,
    pub(crate) bounds: Bounds,
}

/// Who looks on.
pub(crate) struct Watch<'a> {
    /// Is told how many points are done, and says whether to go on.
    pub(crate) tick: &'a mut dyn FnMut(u64) -> bool,
    /// Ends whatever the workers wait for.
    pub(crate) end: &'a dyn Fn(),
}

/// What bounds a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) max_executions: Option<u64>,
    pub(crate) deadline: Option<Instant>,
}

struct Shared<'r, 'c> {
    next: usize,
    stop: bool,
    reuse: &'r mut Reuse<'c>,
}

enum Outcome<S> {
    Unchanged(Same),
    Studied(Box<S>),
}

/// Studies the points of a round, one worker for each lab.
pub(crate) fn round<L: Send, S: Known + Send>(
    labs: Vec<L>,
    about: &Round<'_, L, S>,
    reuse: &mut Reuse<'_>,
    progress: &mut Progress<S>,
    watch: &mut Watch<'_>,
) -> Result<(), CheckError> {
    let Round {
        points,
        study,
        bounds,
    } = *about;
    let shared = Mutex::new(Shared {
        next: 0,
        stop: false,
        reuse,
    });
    let lock = || {
        shared
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    let (sender, results) = mpsc::channel::<(usize, Result<Outcome<S>, CheckError>)>();
    std::thread::scope(|scope| {
        for mut lab in labs {
            let sender = sender.clone();
            let lock = &lock;
            scope.spawn(move || {
                loop {
                    let (number, watched) = {
                        let mut shared = lock();
                        let is_late = bounds.deadline.is_some_and(|it| Instant::now() >= it);
                        if shared.stop || is_late || shared.next >= points.len() {
                            return;
                        }
                        let number = shared.next;
                        shared.next += 1;
                        if let Some(known) = shared.reuse.foresee(&points[number]) {
                            let _ = sender.send((number, Ok(Outcome::Unchanged(known))));
                            continue;
                        }
                        (number, shared.reuse.watch(&points[number]))
                    };
                    let point = &points[number];
                    let studied = study(&mut lab, point, watched);
                    let is_error = studied.is_err();
                    let outcome = studied.map(|studied| Outcome::Studied(Box::new(studied)));
                    if sender.send((number, outcome)).is_err() || is_error {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // The results of points whose predecessors all have one.
        let take_in_order = |waiting: &mut BTreeMap<usize, Outcome<S>>,
                             next: &mut usize,
                             progress: &mut Progress<S>| {
            while !progress.is_over
                && let Some(outcome) = waiting.remove(next)
            {
                take(outcome, &points[*next], lock().reuse, progress);
                *next += 1;
                let spent = bounds
                    .max_executions
                    .is_some_and(|max| progress.executions >= max);
                if spent {
                    progress.is_over = true;
                    lock().stop = true;
                }
            }
        };
        let mut waiting: BTreeMap<usize, Outcome<S>> = BTreeMap::new();
        let mut next = 0;
        let mut failure: Option<CheckError> = None;
        loop {
            match results.recv_timeout(LOOK_EVERY) {
                Ok((number, Ok(outcome))) => {
                    waiting.insert(number, outcome);
                }
                // What was ended by us has no result.
                Ok((_, Err(_))) if progress.is_interrupted => {}
                Ok((_, Err(error))) => {
                    lock().stop = true;
                    failure.get_or_insert(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            take_in_order(&mut waiting, &mut next, progress);
            if !progress.is_interrupted && !(watch.tick)(progress.done()) {
                // What was finished before is known, however late it is looked at.
                let finished = results.try_iter();
                waiting
                    .extend(finished.filter_map(|(number, outcome)| Some((number, outcome.ok()?))));
                take_in_order(&mut waiting, &mut next, progress);
                progress.is_interrupted = true;
                progress.is_over = true;
                lock().stop = true;
                (watch.end)();
            }
        }
        if bounds.deadline.is_some_and(|it| Instant::now() >= it) && next < points.len() {
            progress.is_over = true;
        }
        failure.map_or(Ok(()), Err)
    })
}

/// The result of a point whose predecessors are all taken.
fn take<S: Known>(
    outcome: Outcome<S>,
    point: &FailurePoint,
    reuse: &mut Reuse<'_>,
    progress: &mut Progress<S>,
) {
    let decided = reuse.decide(point);
    match (decided, outcome) {
        (Some(same), _) | (None, Outcome::Unchanged(same)) => {
            progress.unchanged += 1;
            progress.saved += same.executions;
            *progress.same.entry(same.at).or_default() += 1;
        }
        (None, Outcome::Studied(studied)) => {
            reuse.learn(&*studied);
            progress.executions += studied.executions();
            progress.studied.push(*studied);
        }
    }
}
