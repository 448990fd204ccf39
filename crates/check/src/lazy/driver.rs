//! Runs a round of failure points on several workers, with the result that one worker would have.
//!
//! Workers take the points of a round in the order of the trace. Results are accepted in the same order, each as if
//! all points before it had been finished before it: a point that an earlier one makes superfluous is not counted,
//! even if a worker had begun with it. So the number of workers changes nothing but the time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use powerfail_explore::FailurePoint;
use powerfail_explore::lazy::PageLines;
use powerfail_model::EventIndex;

use super::reuse::{CoveredBy, ExecutedPoint, Reuse};
use crate::error::CheckError;

/// How often to check for an interruption while workers are busy.
const INTERRUPTION_INTERVAL: Duration = Duration::from_millis(50);

/// What all rounds have shown so far. `R` is the result of a failure point.
#[derive(Debug)]
pub(crate) struct Progress<R> {
    /// By round, then in the order of the trace.
    pub(crate) results: Vec<R>,
    /// Points that needed no run, and the executions that this saved.
    pub(crate) unchanged: u64,
    /// Which of them each result covers, by the moment of the result.
    pub(crate) covered: BTreeMap<EventIndex, Vec<EventIndex>>,
    /// The points that needed no run.
    pub(crate) covered_points: Vec<EventIndex>,
    pub(crate) saved: u64,
    pub(crate) executions: u64,
    /// The user has interrupted.
    pub(crate) is_interrupted: bool,
    /// No further round is to begin: interrupted, out of time, or out of executions.
    pub(crate) is_over: bool,
}

impl<R> Default for Progress<R> {
    fn default() -> Self {
        Self {
            results: Vec::new(),
            unchanged: 0,
            covered: BTreeMap::new(),
            covered_points: Vec::new(),
            saved: 0,
            executions: 0,
            is_interrupted: false,
            is_over: false,
        }
    }
}

impl<R> Progress<R> {
    /// How many points are finished.
    pub(crate) fn done(&self) -> u64 {
        self.results.len() as u64 + self.unchanged
    }
}

/// Explores a failure point with the executor of a worker. The lines are those of which it must be known whether
/// recovery reads them.
pub(crate) type ExplorePoint<'a, E, R> =
    &'a (dyn Fn(&mut E, &FailurePoint, Vec<PageLines>) -> Result<R, CheckError> + Sync);

/// A round: the failure points, and how each is explored.
pub(crate) struct Round<'a, E, R> {
    /// In the order of the trace.
    pub(crate) points: &'a [FailurePoint],
    pub(crate) explore: ExplorePoint<'a, E, R>,
    /// Called with each result when those of all earlier points are accepted, before it counts.
    pub(crate) accept: &'a (dyn Fn(&mut R) + Sync),
    pub(crate) bounds: Bounds,
}

/// What a round reports to, and how it is stopped.
pub(crate) struct RoundObserver<'a> {
    /// Called with the number of finished points; returns whether to continue.
    pub(crate) tick: &'a mut dyn FnMut(u64) -> bool,
    /// Kills the processes that the workers wait for.
    pub(crate) kill: &'a dyn Fn(),
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

enum Outcome<R> {
    Unchanged(CoveredBy),
    Explored(Box<R>),
}

/// Explores the points of a round, one worker for each executor.
pub(crate) fn round<E: Send, R: ExecutedPoint + Send>(
    executors: Vec<E>,
    about: &Round<'_, E, R>,
    reuse: &mut Reuse<'_>,
    progress: &mut Progress<R>,
    observer: &mut RoundObserver<'_>,
) -> Result<(), CheckError> {
    let Round {
        points,
        explore,
        accept,
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
    let (sender, results) = mpsc::channel::<(usize, Result<Outcome<R>, CheckError>)>();
    std::thread::scope(|scope| {
        for mut executor in executors {
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
                    let result = explore(&mut executor, point, watched);
                    let is_error = result.is_err();
                    let outcome = result.map(|result| Outcome::Explored(Box::new(result)));
                    if sender.send((number, outcome)).is_err() || is_error {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // The results of points whose predecessors all have one.
        let take_in_order = |waiting: &mut BTreeMap<usize, Outcome<R>>,
                             next: &mut usize,
                             progress: &mut Progress<R>| {
            while !progress.is_over
                && let Some(outcome) = waiting.remove(next)
            {
                take(outcome, &points[*next], accept, lock().reuse, progress);
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
        let mut waiting: BTreeMap<usize, Outcome<R>> = BTreeMap::new();
        let mut next = 0;
        let mut failure: Option<CheckError> = None;
        loop {
            match results.recv_timeout(INTERRUPTION_INTERVAL) {
                Ok((number, Ok(outcome))) => {
                    waiting.insert(number, outcome);
                }
                // Its process was killed by this function.
                Ok((_, Err(_))) if progress.is_interrupted => {}
                Ok((_, Err(error))) => {
                    lock().stop = true;
                    failure.get_or_insert(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            take_in_order(&mut waiting, &mut next, progress);
            if !progress.is_interrupted && !(observer.tick)(progress.done()) {
                // What was finished before the interruption counts, even if it is received after it.
                let finished = results.try_iter();
                waiting
                    .extend(finished.filter_map(|(number, outcome)| Some((number, outcome.ok()?))));
                take_in_order(&mut waiting, &mut next, progress);
                progress.is_interrupted = true;
                progress.is_over = true;
                lock().stop = true;
                (observer.kill)();
            }
        }
        if bounds.deadline.is_some_and(|it| Instant::now() >= it) && next < points.len() {
            progress.is_over = true;
        }
        failure.map_or(Ok(()), Err)
    })
}

/// Accepts the result of a point whose predecessors are all accepted.
fn take<R: ExecutedPoint>(
    outcome: Outcome<R>,
    point: &FailurePoint,
    accept: &(dyn Fn(&mut R) + Sync),
    reuse: &mut Reuse<'_>,
    progress: &mut Progress<R>,
) {
    let decided = reuse.decide(point);
    match (decided, outcome) {
        (Some(by), _) | (None, Outcome::Unchanged(by)) => {
            progress.unchanged += 1;
            progress.saved += by.executions;
            progress.covered.entry(by.at).or_default().push(point.at);
            progress.covered_points.push(point.at);
        }
        (None, Outcome::Explored(mut result)) => {
            accept(&mut result);
            reuse.learn(&*result);
            progress.executions += result.executions();
            progress.saved += result.saved();
            progress.results.push(*result);
        }
    }
}
