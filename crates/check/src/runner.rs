//! Runs recovery on crash images, several at a time.
//!
//! One forward pass over the trace serves a whole batch of trials. The pass waits while an image is
//! prepared, which takes a fraction of a millisecond; recoveries run beside it, each in a slot of its
//! own.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use powerfail_explore::LostLines;
use powerfail_image::{
    CursorOptions, Fill, ImageCursor, Layout, Patch, PoolImages, RunDirectory, Slot as ImageSlot,
};
use powerfail_model::{CrashState, EventIndex, Place, Rules};
use powerfail_oracle::{Backtrace, KillHandle, Oracle, OracleError, PoolMapping, Slot, Verdict};
use powerfail_trace::Trace;

use crate::error::CheckError;

/// How often an interruption is looked for while recoveries run.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A crash image to try.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The power fails just before this event.
    pub at: EventIndex,
    /// What survives.
    pub state: TrialState,
}

impl Trial {
    /// All stores before an event survive, and nothing else.
    pub const fn prefix(at: EventIndex) -> Self {
        Self {
            at,
            state: TrialState::Newest,
        }
    }
}

/// What survives of the stores before a failure.
#[derive(Clone, Debug)]
pub enum TrialState {
    /// All of them.
    Newest,
    /// Those that are surely durable.
    Floors,
    /// All, except of these lines.
    Lost(LostLines),
    /// All, except that these lines have these versions.
    Exactly(CrashState),
    /// The same, and then a recovery had written these bytes when the power failed again.
    Again(CrashState, Vec<Patch>),
}

impl TrialState {
    /// What lies on top of what survives.
    fn overlay(&self) -> &[Patch] {
        match self {
            Self::Again(_, overlay) => overlay,
            _ => &[],
        }
    }
}

/// How images are made and recoveries run.
#[derive(Clone, Debug)]
pub struct RunnerOptions {
    /// How many recoveries at a time.
    pub jobs: usize,
    /// What survives.
    pub rules: Rules,
    /// What fresh memory holds.
    pub fill: Option<Fill>,
    /// Files that are no pools and that recovery needs beside them.
    pub companions: Vec<std::path::PathBuf>,
}

/// What became of a trial.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What the oracle says; nothing if the state is not possible there.
    pub verdict: Option<Verdict>,
    /// Lines that did not have their newest content.
    pub state: CrashState,
}

/// How a batch is run.
#[derive(Clone, Copy, Debug)]
struct Way {
    needs_frontier: bool,
    /// Recoveries are executed, not forked from snapshots.
    is_plain: bool,
}

impl Default for Tried {
    fn default() -> Self {
        Self {
            verdict: None,
            state: CrashState::default(),
        }
    }
}

/// A recovery that runs.
struct Running<T> {
    name: T,
    trial: Trial,
    state: CrashState,
}

/// See the module header.
pub struct Runner<'t> {
    trace: &'t Trace,
    options: RunnerOptions,
    images: Vec<ImageSlot>,
    recoveries: Vec<Slot>,
    /// Recovery says what it has recovered.
    dumps: bool,
    /// Recoveries run so far.
    pub runs: u64,
    // Gone last: the slots are in there.
    _directory: RunDirectory,
}

impl<'t> Runner<'t> {
    /// Makes the slots, in a new directory under `parent`.
    pub fn new(
        trace: &'t Trace,
        oracle: &Oracle,
        parent: &Path,
        options: RunnerOptions,
    ) -> Result<Self, CheckError> {
        if trace.pools().is_empty() {
            return Err(CheckError::NoPool);
        }
        let directory = RunDirectory::create_in(parent)?;
        let layout = Layout::of(trace, &options.companions)?;
        let images: Vec<ImageSlot> = (0..options.jobs.max(1))
            .map(|number| directory.slot(number, &layout))
            .collect();
        // A zygote looks at what it covers, so the files must be there.
        let cursor = ImageCursor::new(trace, CursorOptions::default())?;
        let mut runner = Self {
            trace,
            options,
            images,
            recoveries: Vec::new(),
            dumps: oracle.plan().dump.is_some(),
            runs: 0,
            _directory: directory,
        };
        let nothing_lost = CrashState::default();
        for image in &mut runner.images {
            image.prepare(&cursor, &nothing_lost)?;
            let mappings: Vec<PoolMapping> = image
                .files()
                .map(|(original, private)| PoolMapping {
                    original: original.to_owned(),
                    private,
                })
                .collect();
            runner.recoveries.push(oracle.slot(&mappings)?);
            // The oracle mounts into the directory what lies beside the pools.
            image.leave_extras();
        }
        Ok(runner)
    }

    /// Whether recovery says what it has recovered.
    pub(crate) const fn dumps(&self) -> bool {
        self.dumps
    }

    /// How many recoveries run at a time.
    pub fn job_count(&self) -> usize {
        self.recoveries.len()
    }

    /// What survives.
    pub const fn rules(&self) -> Rules {
        self.options.rules
    }

    /// The length of a line.
    pub(crate) const fn line_bytes(&self) -> u64 {
        self.options.rules.domain.line_bytes() as u64
    }

    /// What fresh memory holds.
    pub(crate) const fn fill(&self) -> Option<Fill> {
        self.options.fill
    }

    /// Handles that kill recoveries from another thread, one for each slot.
    pub(crate) fn kill_handles(&self) -> Vec<KillHandle> {
        self.recoveries.iter().map(Slot::kill_handle).collect()
    }

    /// The trace, and private files with whoever runs recovery on them.
    pub(crate) fn slots(
        &mut self,
    ) -> (&'t Trace, impl Iterator<Item = (&mut ImageSlot, &mut Slot)>) {
        (self.trace, self.images.iter_mut().zip(&mut self.recoveries))
    }

    /// How recovery is kept apart.
    pub fn isolation(&self) -> Option<&powerfail_oracle::Isolation> {
        self.recoveries.first().map(Slot::isolation)
    }

    fn cursor(&self, needs_frontier: bool) -> Result<ImageCursor<'t>, CheckError> {
        Ok(ImageCursor::new(
            self.trace,
            CursorOptions {
                rules: needs_frontier.then_some(self.options.rules),
                fill: self.options.fill,
                memory_limit_bytes: None,
            },
        )?)
    }

    /// The pools as they were before the first event.
    pub(crate) fn initial_pools(&self) -> Result<PoolImages, CheckError> {
        let fill = self.options.fill;
        Ok(PoolImages::initial(self.trace, fill, u64::MAX)?)
    }

    /// Whether fresh memory holds something else than zeros.
    pub(crate) const fn is_filled(&self) -> bool {
        self.options.fill.is_some()
    }

    /// Tries all of them; the results are in their order. `progress` is told how many are done.
    pub fn run(
        &mut self,
        trials: &[Trial],
        is_interrupted: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Tried>, CheckError> {
        let mut order: Vec<usize> = (0..trials.len()).collect();
        order.sort_by_key(|number| trials[*number].at);
        let mut tried: Vec<Tried> = trials.iter().map(|_| Tried::default()).collect();
        let needs_frontier = trials
            .iter()
            .any(|trial| !matches!(trial.state, TrialState::Newest));
        let mut next = order.iter();
        let mut finished = 0;
        self.drive(
            Way {
                needs_frontier,
                is_plain: true,
            },
            is_interrupted,
            &mut || Ok(next.next().map(|number| (*number, trials[*number].clone()))),
            &mut |number, done| {
                tried[number] = done;
                finished += 1;
                progress(finished);
            },
        )?;
        Ok(tried)
    }

    /// Tries crash images as they come, and hands over what became of each: for more of them than
    /// anybody wants to hold in memory. `next` gives each with something to know it by, in the order of
    /// the moments; it is asked only when a recovery can begin. Results come in any order. Recoveries are
    /// forked from snapshots where the oracle can do that; what they show is to be confirmed by [`run`](Self::run),
    /// which executes them.
    pub fn stream<T>(
        &mut self,
        is_interrupted: &dyn Fn() -> bool,
        next: &mut dyn FnMut() -> Result<Option<(T, Trial)>, CheckError>,
        done: &mut dyn FnMut(T, Tried),
    ) -> Result<(), CheckError> {
        let way = Way {
            needs_frontier: true,
            is_plain: false,
        };
        self.drive(way, is_interrupted, next, done)
    }

    fn drive<T>(
        &mut self,
        way: Way,
        is_interrupted: &dyn Fn() -> bool,
        next: &mut dyn FnMut() -> Result<Option<(T, Trial)>, CheckError>,
        done: &mut dyn FnMut(T, Tried),
    ) -> Result<(), CheckError> {
        let mut lost = Vec::new();
        self.pass(way, is_interrupted, next, done, &mut lost)?;
        // Without snapshots there is nothing to lose.
        lost.sort_by_key(|(_, trial)| trial.at);
        let mut lost = lost.into_iter();
        let plain = Way {
            is_plain: true,
            ..way
        };
        let mut none = Vec::new();
        self.pass(
            plain,
            is_interrupted,
            &mut || Ok(lost.next()),
            done,
            &mut none,
        )
    }

    /// One forward pass over the trace. What has no verdict because a snapshot died is put into `lost`.
    fn pass<T>(
        &mut self,
        way: Way,
        is_interrupted: &dyn Fn() -> bool,
        next: &mut dyn FnMut() -> Result<Option<(T, Trial)>, CheckError>,
        done: &mut dyn FnMut(T, Tried),
        lost: &mut Vec<(T, Trial)>,
    ) -> Result<(), CheckError> {
        let Some(first) = next()? else { return Ok(()) };
        let mut first = Some(first);
        let mut cursor = self.cursor(way.needs_frontier)?;
        let kill_handles = self.kill_handles();
        let images = &mut self.images;
        let runs = &mut self.runs;
        let (verdict_sender, verdicts) = mpsc::channel::<(usize, Result<Verdict, OracleError>)>();
        std::thread::scope(|scope| {
            let mut jobs = Vec::new();
            for (worker, slot) in self.recoveries.iter_mut().enumerate() {
                let (job, next) = mpsc::channel::<()>();
                let verdicts = verdict_sender.clone();
                scope.spawn(move || {
                    for () in next {
                        let verdict = if way.is_plain {
                            slot.run_plain()
                        } else {
                            slot.run()
                        };
                        if verdicts.send((worker, verdict)).is_err() {
                            return;
                        }
                    }
                });
                jobs.push(job);
            }
            let mut free: Vec<usize> = (0..jobs.len()).collect();
            let mut running: Vec<Option<Running<T>>> = jobs.iter().map(|_| None).collect();
            let mut take = |free: &mut Vec<usize>, running: &mut Vec<Option<Running<T>>>| {
                loop {
                    match verdicts.recv_timeout(LOOK_EVERY) {
                        Ok((worker, verdict)) => {
                            free.push(worker);
                            *runs += 1;
                            let run = running[worker].take();
                            match (verdict, run) {
                                (Err(OracleError::SnapshotLost { .. }), Some(run)) => {
                                    lost.push((run.name, run.trial));
                                }
                                (verdict, run) => {
                                    let verdict = Some(verdict?);
                                    if let Some(Running { name, state, .. }) = run {
                                        done(name, Tried { verdict, state });
                                    }
                                }
                            }
                            return Ok(());
                        }
                        Err(RecvTimeoutError::Timeout) if is_interrupted() => {
                            kill(&kill_handles);
                            return Err(CheckError::Interrupted);
                        }
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return Ok(()),
                    }
                }
            };
            loop {
                if is_interrupted() {
                    kill(&kill_handles);
                    return Err(CheckError::Interrupted);
                }
                while free.is_empty() {
                    take(&mut free, &mut running)?;
                }
                let Some((name, trial)) =
                    first.take().map_or_else(&mut *next, |it| Ok(Some(it)))?
                else {
                    break;
                };
                cursor.move_to(trial.at)?;
                // What is not possible there has no verdict.
                let Some(state) = state_at(&cursor, &trial.state) else {
                    continue;
                };
                let Some(worker) = free.pop() else { continue };
                images[worker].prepare_with(&cursor, &state, trial.state.overlay())?;
                running[worker] = Some(Running { name, trial, state });
                if jobs[worker].send(()).is_err() {
                    return Err(CheckError::Oracle(OracleError::ZygoteDied));
                }
            }
            while free.len() < jobs.len() {
                take(&mut free, &mut running)?;
            }
            Ok(())
        })
    }

    /// Runs recovery several times on one image, one after the other, without making it new.
    pub fn run_in_a_row(
        &mut self,
        trial: &Trial,
        times: usize,
    ) -> Result<Vec<Verdict>, CheckError> {
        self.prepare_first(trial)?;
        let mut verdicts = Vec::new();
        for _ in 0..times {
            verdicts.push(self.recoveries[0].run_plain()?);
            self.runs += 1;
        }
        Ok(verdicts)
    }

    /// Runs recovery on an image. Gives what it did, and some bytes of a pool as it left them, if they are
    /// there.
    pub fn run_and_read(
        &mut self,
        trial: &Trial,
        at: Place,
        len: usize,
    ) -> Result<(Verdict, Option<Vec<u8>>), CheckError> {
        self.prepare_first(trial)?;
        let verdict = self.recoveries[0].run_plain()?;
        self.runs += 1;
        let file = self.images[0].path_of(at.pool).map(File::open);
        let bytes = file.and_then(Result::ok).and_then(|file| {
            let mut bytes = vec![0; len];
            let read = file.read_exact_at(&mut bytes, at.offset.0);
            read.ok().map(|()| bytes)
        });
        Ok((verdict, bytes))
    }

    /// Bytes of a pool at two moments of the recorded run, the earlier one first.
    pub(crate) fn read_at(
        &self,
        moments: [EventIndex; 2],
        at: Place,
        len: usize,
    ) -> Result<[Vec<u8>; 2], CheckError> {
        let mut cursor = self.cursor(false)?;
        let mut read = [vec![0; len], vec![0; len]];
        for (moment, bytes) in moments.into_iter().zip(&mut read) {
            cursor.move_to(moment)?;
            cursor.read(at, bytes);
        }
        Ok(read)
    }

    /// How long a recovery takes that is run as those of a stream are. The fastest of a few counts, because
    /// the first ones are also compared. How many there are depends on the time they take, so they are not
    /// among the runs that are reported: what is reported of a trace is always the same.
    pub(crate) fn time_of_streamed(&mut self, trial: &Trial) -> Result<Duration, CheckError> {
        const TIMES: usize = 5;
        const ENOUGH: Duration = Duration::from_millis(200);
        self.prepare_first(trial)?;
        let begun = Instant::now();
        let mut fastest = Duration::MAX;
        for _ in 0..TIMES {
            let one = Instant::now();
            self.recoveries[0].run()?;
            fastest = fastest.min(one.elapsed());
            if begun.elapsed() > ENOUGH {
                break;
            }
        }
        Ok(fastest)
    }

    /// Why recoveries are not forked from snapshots although that was asked for.
    pub fn snapshot_note(&self) -> Option<&str> {
        self.recoveries.first()?.snapshot_note()
    }

    /// Where recovery crashes on an image.
    pub fn backtrace(&mut self, trial: &Trial) -> Result<Option<Backtrace>, CheckError> {
        self.prepare_first(trial)?;
        self.runs += 1;
        Ok(self.recoveries[0].backtrace_of_crash()?)
    }

    fn prepare_first(&mut self, trial: &Trial) -> Result<(), CheckError> {
        let mut cursor = self.cursor(!matches!(trial.state, TrialState::Newest))?;
        cursor.move_to(trial.at)?;
        let state = state_at(&cursor, &trial.state).unwrap_or(CrashState::default());
        self.images[0].prepare_with(&cursor, &state, trial.state.overlay())?;
        Ok(())
    }
}

/// The crash state that a trial asks for, if it is possible where the cursor stands.
pub(crate) fn state_at(cursor: &ImageCursor<'_>, wanted: &TrialState) -> Option<CrashState> {
    match wanted {
        TrialState::Newest => Some(CrashState::default()),
        TrialState::Floors => {
            let lines = cursor.frontier()?.open_lines_sorted();
            Some(CrashState {
                versions: lines.iter().map(|line| (line.id(), 0)).collect(),
            })
        }
        TrialState::Lost(lost) => lost.crash_state(cursor.frontier()?),
        TrialState::Exactly(state) | TrialState::Again(state, _) => Some(state.clone()),
    }
}

/// Kills all recoveries; the threads that wait for them get an error.
pub(crate) fn kill(kill_handles: &[KillHandle]) {
    for handle in kill_handles {
        handle.kill();
    }
}
