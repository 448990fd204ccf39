//! One forward pass over the trace: prepares images and hands them to workers.
//!
//! A worker is a thread that runs recovery in its slot whenever it is told to. The pass itself is single-threaded:
//! it moves the cursor, prepares the image of a free worker, and collects verdicts when no worker is free.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::Scope;
use std::time::Duration;

use powerfail_image::{ImageCursor, ImageSlot};
use powerfail_model::CrashState;
use powerfail_oracle::{OracleError, Slot};

use super::{KeptRun, Trial, TrialResult, move_unless, note_suspects, state_at};
use crate::error::CheckError;
use crate::outcomes::{ANY_LIMIT, Key, Outcomes, RequestKind};

/// How often the pass looks for an interruption while recoveries run.
const INTERRUPTION_INTERVAL: Duration = Duration::from_millis(50);

/// How a batch of trials is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct PassKind {
    /// Trials ask for crash states, not only for the newest content.
    pub(super) needs_frontier: bool,
    /// Recoveries are executed, not forked from snapshots.
    pub(super) is_executed: bool,
}

/// A trial whose recovery runs.
pub(super) struct Running<T> {
    name: T,
    trial: Trial,
    state: CrashState,
    key: Option<Key>,
}

/// A verdict, with the number of the worker it comes from.
type Answer = (usize, Result<KeptRun, OracleError>);

/// Threads that run recoveries, one for each slot.
pub(super) struct Workers {
    /// A message lets a worker run its recovery.
    pub(super) jobs: Vec<Sender<()>>,
    answers: Receiver<Answer>,
}

impl Workers {
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        slots: &'scope mut [Slot],
        is_executed: bool,
    ) -> Self {
        let (sender, answers) = mpsc::channel();
        let start = |(number, slot)| start_worker(scope, number, slot, &sender, is_executed);
        let jobs = slots.iter_mut().enumerate().map(start).collect();
        Self { jobs, answers }
    }
}

fn start_worker<'scope>(
    scope: &'scope Scope<'scope, '_>,
    number: usize,
    slot: &'scope mut Slot,
    answers: &Sender<Answer>,
    is_executed: bool,
) -> Sender<()> {
    let (job, jobs) = mpsc::channel::<()>();
    let answers = answers.clone();
    scope.spawn(move || {
        for () in jobs {
            let verdict = if is_executed {
                slot.run_plain()
            } else {
                slot.run()
            };
            let run = verdict.map(|verdict| KeptRun {
                verdict,
                suspects: slot.take_suspects(),
            });
            if answers.send((number, run)).is_err() {
                return;
            }
        }
    });
    job
}

/// The state of one pass.
pub(super) struct Pass<'p, 't, T> {
    /// How recoveries are run.
    pub(super) kind: RequestKind,
    /// Outcomes that are known, and where new ones are kept.
    pub(super) outcomes: &'p Outcomes,
    /// Lines that look like failures.
    pub(super) suspects: &'p mut BTreeMap<String, String>,
    pub(super) cursor: ImageCursor<'t>,
    pub(super) images: &'p mut [ImageSlot],
    pub(super) workers: Workers,
    /// The numbers of workers without a job.
    pub(super) free: Vec<usize>,
    /// What each worker runs.
    pub(super) running: Vec<Option<Running<T>>>,
    /// The counter of recoveries.
    pub(super) runs: &'p mut u64,
    /// No further trial begins.
    pub(super) is_late: &'p dyn Fn() -> bool,
    pub(super) is_interrupted: &'p dyn Fn() -> bool,
    pub(super) done: &'p mut dyn FnMut(T, TrialResult),
    /// Trials without a verdict because their snapshot died.
    pub(super) lost: Vec<(T, Trial)>,
}

impl<T> Pass<'_, '_, T> {
    /// Runs `first` and everything that `next` returns.
    pub(super) fn run(
        &mut self,
        first: (T, Trial),
        next: &mut dyn FnMut() -> Result<Option<(T, Trial)>, CheckError>,
    ) -> Result<(), CheckError> {
        let mut current = Some(first);
        while let Some((name, trial)) = current {
            if (self.is_interrupted)() {
                return Err(CheckError::Interrupted);
            }
            if !self.begin(name, trial)? {
                break;
            }
            while self.free.is_empty() {
                self.collect()?;
            }
            current = next()?;
        }
        while self.free.len() < self.workers.jobs.len() {
            self.collect()?;
        }
        Ok(())
    }

    /// Prepares the image of a trial and lets a free worker run recovery on it. A trial whose state is not possible
    /// at its moment is skipped: it has no verdict. Whether it is still time for further ones.
    fn begin(&mut self, name: T, trial: Trial) -> Result<bool, CheckError> {
        let (is_late, is_interrupted) = (self.is_late, self.is_interrupted);
        let is_stopped = || is_late() || is_interrupted();
        if !move_unless(&mut self.cursor, trial.at, &is_stopped)? {
            return if is_interrupted() {
                Err(CheckError::Interrupted)
            } else {
                Ok(false)
            };
        }
        let Some(state) = state_at(&self.cursor, &trial.state) else {
            return Ok(true);
        };
        let overlay = trial.state.overlay();
        let key = self.outcomes.key(self.kind, |key| {
            key.image(trial.at, &state, overlay);
        });
        if let Some(known) = self.outcomes.take(key, 0)? {
            *self.runs += 1;
            self.finish(name, state, known);
            return Ok(true);
        }
        let Some(worker) = self.free.pop() else {
            return Ok(true);
        };
        self.images[worker].prepare_with(&self.cursor, &state, overlay)?;
        self.running[worker] = Some(Running {
            name,
            trial,
            state,
            key,
        });
        let sent = self.workers.jobs[worker].send(());
        sent.map_err(|_| CheckError::Oracle(OracleError::ZygoteDied))?;
        Ok(true)
    }

    /// A trial has an outcome.
    fn finish(&mut self, name: T, state: CrashState, run: KeptRun) {
        note_suspects(self.suspects, run.suspects);
        let verdict = Some(run.verdict);
        (self.done)(name, TrialResult { verdict, state });
    }

    /// Waits for one verdict.
    fn collect(&mut self) -> Result<(), CheckError> {
        let (worker, verdict) =
            answer_unless_interrupted(&self.workers.answers, self.is_interrupted)?;
        self.free.push(worker);
        *self.runs += 1;
        let running = self.running[worker].take();
        match (verdict, running) {
            (Err(OracleError::SnapshotLost { .. }), Some(run)) => {
                self.lost.push((run.name, run.trial));
            }
            (
                verdict,
                Some(Running {
                    name, state, key, ..
                }),
            ) => {
                let run = verdict?;
                self.outcomes.keep(key, ANY_LIMIT, &run)?;
                self.finish(name, state, run);
            }
            (verdict, None) => {
                verdict?;
            }
        }
        Ok(())
    }
}

/// Waits for an answer of a worker, and looks for interruptions meanwhile.
pub(crate) fn answer_unless_interrupted<T>(
    answers: &Receiver<T>,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<T, CheckError> {
    loop {
        match answers.recv_timeout(INTERRUPTION_INTERVAL) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) if is_interrupted() => {
                return Err(CheckError::Interrupted);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(CheckError::Oracle(OracleError::ZygoteDied));
            }
        }
    }
}
