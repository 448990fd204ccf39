//! Runs recovery on crash images, several at a time.
//!
//! One forward pass over the trace serves a whole batch of trials (`runner/pass.rs`). It prepares an image, which
//! takes a fraction of a millisecond, while recoveries run in parallel, each in a slot of its own.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use powerfail_explore::LostLines;
use powerfail_image::{
    CursorOptions, Fill, ImageCursor, ImageSlot, Layout, Patch, PoolImages, RunDirectory,
};
use powerfail_model::{CrashState, EventIndex, Place, PoolIndex, Rules};
use powerfail_oracle::{
    Backtrace, DeniedAccess, KillHandle, OpenWatch, Oracle, OracleError, PoolMapping, Slot,
    SuspectLine, Verdict,
};
use powerfail_trace::Trace;
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};

use crate::error::CheckError;
use crate::outcomes::{ANY_LIMIT, Key, Outcomes, RequestKind};

mod cursors;
mod pass;

use cursors::Cursors;
pub(crate) use cursors::move_unless;
pub(crate) use pass::answer_unless_interrupted;
use pass::{Pass, PassKind, Workers};

/// A crash image to try.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// The power fails just before this event.
    pub(crate) at: EventIndex,
    /// What survives.
    pub(crate) state: Survival,
}

impl Trial {
    /// All stores before an event survive, and nothing else.
    pub(crate) const fn prefix(at: EventIndex) -> Self {
        Self {
            at,
            state: Survival::Newest,
        }
    }
}

/// What survives of the stores before a failure.
#[derive(Clone, Debug)]
pub(crate) enum Survival {
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

impl Survival {
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
pub(crate) struct RunnerOptions {
    /// How many recoveries at a time.
    pub(crate) jobs: usize,
    /// What survives.
    pub(crate) rules: Rules,
    /// What fresh memory holds.
    pub(crate) fill: Option<Fill>,
    /// Files that are not pools and that recovery needs beside them.
    pub(crate) companions: Vec<std::path::PathBuf>,
    /// Outcomes that are known, and where new ones are kept.
    pub(crate) outcomes: Outcomes,
}

/// The result of a trial.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrialResult {
    /// The verdict of the oracle; `None` if the state is not possible there.
    pub(crate) verdict: Option<Verdict>,
    /// Lines that did not have their newest content.
    pub(crate) state: CrashState,
}

/// A recovery on pools that no crash left.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChangedRun {
    /// The verdict of the oracle.
    pub(crate) verdict: Verdict,
    /// What each command printed, except a dump.
    pub(crate) outputs: Vec<String>,
    /// What it did to the pools; `None` if they are too large to compare.
    pub(crate) pools: Option<PoolChanges>,
}

/// The outcome of a run, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptRun {
    pub(crate) verdict: Verdict,
    /// Lines that look like failures, if it succeeded.
    pub(crate) suspects: Vec<SuspectLine>,
}

/// What a recovery did to its pools.
#[derive(Serialize, Deserialize)]
pub(crate) struct PoolChanges {
    /// The words that it changed: pool, offset and new value.
    pub(crate) written: Vec<(usize, usize, u64)>,
    /// A digest of what it left.
    pub(crate) left: u64,
}

/// Larger pools are not compared.
const COMPARED_BYTES_MAX: u64 = 64 << 20;

/// The content of each pool that has a file.
fn contents_of(paths: &[Option<PathBuf>]) -> Option<Vec<Vec<u8>>> {
    let len_bytes = |path: &PathBuf| path.metadata().map_or(0, |it| it.len());
    let paths = || paths.iter().flatten();
    if paths().map(len_bytes).sum::<u64>() > COMPARED_BYTES_MAX {
        return None;
    }
    // What recovery has removed is empty.
    Some(
        paths()
            .map(|path| fs::read(path).unwrap_or_default())
            .collect(),
    )
}

/// The words in which two contents of a pool differ.
fn words_written(
    pool: usize,
    before: &[u8],
    after: &[u8],
) -> impl Iterator<Item = (usize, usize, u64)> {
    const PAGE_BYTES: usize = 4096;
    const WORD_BYTES: usize = 8;
    let len_bytes = before.len().max(after.len());
    let part = |bytes: &[u8], from: usize, len: usize| -> Vec<u8> {
        let end = bytes.len().min(from + len);
        bytes.get(from..end).unwrap_or_default().to_vec()
    };
    let pages = (0..len_bytes).step_by(PAGE_BYTES);
    let pages =
        pages.filter(move |at| part(before, *at, PAGE_BYTES) != part(after, *at, PAGE_BYTES));
    let words = pages.flat_map(|at| (at..at + PAGE_BYTES).step_by(WORD_BYTES));
    words.filter_map(move |at| {
        let new = part(after, at, WORD_BYTES);
        let value = new
            .iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte));
        (part(before, at, WORD_BYTES) != new).then_some((pool, at, value))
    })
}

/// Runs recovery on crash images.
pub(crate) struct Runner<'t> {
    trace: &'t Trace,
    options: RunnerOptions,
    images: Vec<ImageSlot>,
    recoveries: Vec<Slot>,
    /// Recovery has a command that prints what it recovered.
    dumps: bool,
    /// It is restricted what recovery may touch.
    is_confined: bool,
    /// Whether a pool was opened when recovery ran several times in a row, if that is known.
    pub(crate) has_opened: Option<bool>,
    /// How long that took, without the image.
    pub(crate) time_in_a_row: Duration,
    /// Lines that look like failures, of recoveries that succeeded: one for each word.
    suspects: BTreeMap<String, String>,
    /// Recoveries run so far, with those whose outcomes were known.
    pub(crate) runs: u64,
    /// How many recoveries have run on changed pools.
    changed_runs: u64,
    /// Cursors from earlier passes.
    cursors: Cursors<'t>,
    // Dropped last, because the slots are in it.
    _directory: RunDirectory,
}

impl<'t> Runner<'t> {
    /// Makes the slots, in a new directory under `parent`.
    pub(crate) fn new(
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
        // A zygote inspects the files that it covers, so they must exist.
        let cursor = ImageCursor::new(trace, CursorOptions::default())?;
        let mut runner = Self {
            trace,
            options,
            images,
            recoveries: Vec::new(),
            dumps: oracle.plan().dump.is_some(),
            is_confined: oracle.is_confined(),
            has_opened: None,
            time_in_a_row: Duration::ZERO,
            suspects: BTreeMap::new(),
            runs: 0,
            changed_runs: 0,
            cursors: Cursors::default(),
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

    /// Whether recovery has a command that prints what it recovered.
    pub(crate) const fn dumps(&self) -> bool {
        self.dumps
    }

    /// How many recoveries run at a time.
    pub(crate) fn job_count(&self) -> usize {
        self.recoveries.len()
    }

    /// What survives.
    pub(crate) const fn rules(&self) -> Rules {
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

    /// Outcomes that are known, and where new ones are kept.
    pub(crate) const fn outcomes(&self) -> &Outcomes {
        &self.options.outcomes
    }

    /// Handles that kill recoveries from another thread, one for each slot.
    pub(crate) fn kill_handles(&self) -> Vec<KillHandle> {
        self.recoveries.iter().map(Slot::kill_handle).collect()
    }

    /// The trace, and the slots: private files, and the process that runs recovery on them.
    pub(crate) fn slots(
        &mut self,
    ) -> (&'t Trace, impl Iterator<Item = (&mut ImageSlot, &mut Slot)>) {
        (self.trace, self.images.iter_mut().zip(&mut self.recoveries))
    }

    /// How well recovery is isolated.
    pub(crate) fn isolation(&self) -> Option<&powerfail_oracle::Isolation> {
        self.recoveries.first().map(Slot::isolation)
    }

    fn cursor_options(&self, needs_frontier: bool) -> CursorOptions {
        CursorOptions {
            rules: needs_frontier.then_some(self.options.rules),
            fill: self.options.fill,
            memory_limit_bytes: None,
        }
    }

    /// A cursor at the beginning of the trace.
    fn cursor(&self, needs_frontier: bool) -> Result<ImageCursor<'t>, CheckError> {
        let options = self.cursor_options(needs_frontier);
        Ok(ImageCursor::new(self.trace, options)?)
    }

    /// A cursor at a moment. `None` if it was stopped before it got there.
    fn cursor_at(
        &mut self,
        at: EventIndex,
        needs_frontier: bool,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<ImageCursor<'t>>, CheckError> {
        let (trace, options) = (self.trace, self.cursor_options(needs_frontier));
        let new = || Ok(ImageCursor::new(trace, options)?);
        self.cursors.at(trace, at, needs_frontier, is_stopped, &new)
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

    /// Runs all trials. The results are in the order of the trials; `progress` gets the number that is done.
    pub(crate) fn run(
        &mut self,
        trials: &[Trial],
        is_interrupted: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<TrialResult>, CheckError> {
        let mut results = vec![TrialResult::default(); trials.len()];
        let mut finished = 0;
        self.run_until(trials, &|| false, is_interrupted, &mut |number, done| {
            results[number] = done;
            finished += 1;
            progress(finished);
        })?;
        Ok(results)
    }

    /// Runs trials until it is late: then no further one begins. `done` gets the number of a trial and its result, in any
    /// order. Returns whether all were run.
    pub(crate) fn run_until(
        &mut self,
        trials: &[Trial],
        is_late: &dyn Fn() -> bool,
        is_interrupted: &dyn Fn() -> bool,
        done: &mut dyn FnMut(usize, TrialResult),
    ) -> Result<bool, CheckError> {
        let mut order: Vec<usize> = (0..trials.len()).collect();
        order.sort_by_key(|number| trials[*number].at);
        let needs_frontier = trials
            .iter()
            .any(|trial| !matches!(trial.state, Survival::Newest));
        let mut next = order.iter();
        // Long traces are passed over while no recovery runs.
        let is_cut = Cell::new(false);
        let is_late_between = || {
            let is_late = is_late();
            is_cut.set(is_cut.get() || is_late);
            is_late
        };
        self.drive(
            PassKind {
                needs_frontier,
                is_executed: true,
            },
            &is_late_between,
            is_interrupted,
            &mut || {
                if is_late() {
                    return Ok(None);
                }
                Ok(next.next().map(|number| (*number, trials[*number].clone())))
            },
            done,
        )?;
        Ok(next.as_slice().is_empty() && !is_cut.get())
    }

    /// Runs prefix crashes as they are found, in the order of their moments, until it is late. `next` is called only when a
    /// recovery can begin. `done` gets the results, in any order.
    pub(crate) fn run_as_found<T>(
        &mut self,
        is_late: &dyn Fn() -> bool,
        is_interrupted: &dyn Fn() -> bool,
        next: &mut dyn FnMut() -> Result<Option<(T, Trial)>, CheckError>,
        done: &mut dyn FnMut(T, TrialResult),
    ) -> Result<(), CheckError> {
        let kind = PassKind {
            needs_frontier: false,
            is_executed: true,
        };
        self.drive(kind, is_late, is_interrupted, next, done)
    }

    /// Runs trials one by one as they are made: for more of them than fit into memory. `next` returns each with a
    /// name, in the order of their moments, and is called only when a recovery can begin. `done` gets the results,
    /// in any order. Recoveries are forked from snapshots where the oracle can do that; [`run`](Self::run), which
    /// executes them, has to confirm what they show.
    pub(crate) fn stream<T>(
        &mut self,
        is_interrupted: &dyn Fn() -> bool,
        next: &mut dyn FnMut() -> Result<Option<(T, Trial)>, CheckError>,
        done: &mut dyn FnMut(T, TrialResult),
    ) -> Result<(), CheckError> {
        let kind = PassKind {
            needs_frontier: true,
            is_executed: false,
        };
        self.drive(kind, &|| false, is_interrupted, next, done)
    }

    /// Runs trials in one forward pass over the trace. Trials whose snapshot died run in a second pass, executed.
    fn drive<T>(
        &mut self,
        kind: PassKind,
        is_late: &dyn Fn() -> bool,
        is_interrupted: &dyn Fn() -> bool,
        next: &mut dyn FnMut() -> Result<Option<(T, Trial)>, CheckError>,
        done: &mut dyn FnMut(T, TrialResult),
    ) -> Result<(), CheckError> {
        let mut lost = self.pass(kind, is_late, is_interrupted, next, done)?;
        lost.sort_by_key(|(_, trial)| trial.at);
        let mut lost = lost.into_iter();
        let executed = PassKind {
            is_executed: true,
            ..kind
        };
        // Without snapshots there is nothing to lose.
        let next = &mut || Ok(lost.next());
        self.pass(executed, is_late, is_interrupted, next, done)?;
        Ok(())
    }

    /// One forward pass over the trace. Returns the trials without a verdict because their snapshot died.
    fn pass<T>(
        &mut self,
        kind: PassKind,
        is_late: &dyn Fn() -> bool,
        is_interrupted: &dyn Fn() -> bool,
        next: &mut dyn FnMut() -> Result<Option<(T, Trial)>, CheckError>,
        done: &mut dyn FnMut(T, TrialResult),
    ) -> Result<Vec<(T, Trial)>, CheckError> {
        let Some(first) = next()? else {
            return Ok(Vec::new());
        };
        let is_stopped = || is_late() || is_interrupted();
        let Some(cursor) = self.cursor_at(first.1.at, kind.needs_frontier, &is_stopped)? else {
            return if is_interrupted() {
                Err(CheckError::Interrupted)
            } else {
                Ok(Vec::new())
            };
        };
        let kill_handles = self.kill_handles();
        let lost = std::thread::scope(|scope| {
            let workers = Workers::start(scope, &mut self.recoveries, kind.is_executed);
            let mut pass = Pass {
                kind: if kind.is_executed {
                    RequestKind::Plain
                } else {
                    RequestKind::Streamed
                },
                outcomes: &self.options.outcomes,
                suspects: &mut self.suspects,
                cursor,
                images: &mut self.images,
                running: workers.jobs.iter().map(|_| None).collect(),
                free: (0..workers.jobs.len()).collect(),
                workers,
                runs: &mut self.runs,
                is_late,
                is_interrupted,
                done,
                lost: Vec::new(),
            };
            let result = pass.run(first, next);
            if matches!(result, Err(CheckError::Interrupted)) {
                // The workers wait for their recoveries.
                kill(&kill_handles);
            }
            result.map(|()| pass.lost)
        });
        self.note_suspects();
        lost
    }

    fn note_suspects(&mut self) {
        for slot in &mut self.recoveries {
            note_suspects(&mut self.suspects, slot.take_suspects());
        }
    }

    /// The name of a request about a trial. It has the crash state if that was asked for by name: what a name means at a
    /// moment depends on the trace only.
    fn key(&self, kind: RequestKind, trial: &Trial) -> Option<Key> {
        self.outcomes().key(kind, |key| {
            let none = CrashState::default();
            match &trial.state {
                Survival::Newest => key.number(0).image(trial.at, &none, &[]),
                Survival::Floors => key.number(1).image(trial.at, &none, &[]),
                Survival::Exactly(state) => key.number(2).image(trial.at, state, &[]),
                Survival::Again(state, overlay) => key.number(3).image(trial.at, state, overlay),
                Survival::Lost(lost) => key
                    .number(4)
                    .image(trial.at, &none, &[])
                    .bytes(format!("{lost:?}").as_bytes()),
            };
        })
    }

    /// Lines that look like failures, of recoveries that succeeded since the last call, by the word that does.
    pub(crate) fn take_suspects(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.suspects)
    }

    /// Runs recovery several times on one image, one after the other, without making it new. An interruption does
    /// not wait for the recovery to end.
    pub(crate) fn run_in_a_row(
        &mut self,
        trial: &Trial,
        times: usize,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<Verdict>, CheckError> {
        self.prepare_first(trial, is_interrupted)?;
        let paths: Vec<PathBuf> = self.images[0].files().map(|(_, private)| private).collect();
        let watch = OpenWatch::of(&paths);
        let begun = Instant::now();
        let verdicts = self.run_prepared(is_interrupted, |slot| {
            (0..times).map(|_| slot.run_plain()).collect()
        })?;
        self.time_in_a_row = begun.elapsed();
        self.has_opened = watch.map(|watch| watch.has_opened());
        self.runs += times as u64;
        Ok(verdicts)
    }

    /// Runs recovery on an image that `change` has changed; it gets the file of each pool that has one. The run is not
    /// counted, because it is not about a crash.
    pub(crate) fn run_changed(
        &mut self,
        trial: &Trial,
        change: &dyn Fn(&[Option<PathBuf>]) -> std::io::Result<()>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<ChangedRun>, CheckError> {
        self.changed_runs += 1;
        let number = self.changed_runs;
        let key = self.outcomes().key(RequestKind::Changed, |key| {
            key.number(trial.at.0).number(number);
        });
        if let Some(known) = self.outcomes().take(key, 0)? {
            return Ok(Some(known));
        }
        self.prepare_first(trial, is_interrupted)?;
        let pools = 0..self.trace.pools().len() as u32;
        let paths = pools.map(|pool| self.images[0].path_of(PoolIndex(pool)));
        let paths: Vec<Option<PathBuf>> = paths.collect();
        if change(&paths).is_err() {
            return Ok(None);
        }
        let before = contents_of(&paths);
        let mut ran = self.run_prepared(is_interrupted, |slot| {
            Ok(vec![slot.run_on_changed_pools()?])
        })?;
        let Some((verdict, outputs)) = ran.pop() else {
            return Ok(None);
        };
        let after = contents_of(&paths);
        let ran = ChangedRun {
            verdict,
            outputs,
            pools: before.zip(after).map(|(before, after)| {
                let pools = before.iter().zip(&after).zip(0..);
                let written =
                    pools.flat_map(|((before, after), pool)| words_written(pool, before, after));
                PoolChanges {
                    written: written.collect(),
                    left: FxBuildHasher.hash_one(&after),
                }
            }),
        };
        self.outcomes().keep(key, ANY_LIMIT, &ran)?;
        Ok(Some(ran))
    }

    /// Makes crash images, several at a time, and lets something look at the pool of each, which it may change. Trials come in the
    /// order of their moments. When it is late, the last ones are left out.
    pub(crate) fn look_at<T: Send>(
        &mut self,
        trials: &[Trial],
        is_late: &dyn Fn() -> bool,
        is_interrupted: &dyn Fn() -> bool,
        look: &(dyn Fn(&Path) -> T + Sync),
    ) -> Result<Vec<T>, CheckError> {
        let Some(first) = trials.first() else {
            return Ok(Vec::new());
        };
        let is_stopped = || is_late() || is_interrupted();
        let Some(mut cursor) = self.cursor_at(first.at, true, &is_stopped)? else {
            return if is_interrupted() {
                Err(CheckError::Interrupted)
            } else {
                Ok(Vec::new())
            };
        };
        let mut seen = Vec::with_capacity(trials.len());
        for batch in trials.chunks(self.images.len()) {
            if is_interrupted() {
                return Err(CheckError::Interrupted);
            }
            if is_late() {
                break;
            }
            let mut paths = Vec::new();
            for (trial, image) in batch.iter().zip(&mut self.images) {
                cursor.move_to(trial.at)?;
                let state = state_at(&cursor, &trial.state).unwrap_or_default();
                image.prepare_with(&cursor, &state, trial.state.overlay())?;
                paths.extend(image.path_of(PoolIndex(0)));
            }
            seen.extend(std::thread::scope(|scope| {
                let looking: Vec<_> = paths.iter().map(|it| scope.spawn(|| look(it))).collect();
                let looked = looking.into_iter().map(std::thread::ScopedJoinHandle::join);
                looked
                    .map(|it| it.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                    .collect::<Vec<T>>()
            }));
        }
        Ok(seen)
    }

    /// Runs something in the first slot.
    fn run_prepared<T: Send>(
        &mut self,
        is_interrupted: &dyn Fn() -> bool,
        run: impl FnOnce(&mut Slot) -> Result<Vec<T>, OracleError> + Send,
    ) -> Result<Vec<T>, CheckError> {
        let ran = run_in(&mut self.recoveries[0], is_interrupted, run)?;
        self.note_suspects();
        Ok(ran)
    }

    /// Runs recovery on an image. Returns the verdict, and bytes of a pool as recovery left them, if they exist.
    pub(crate) fn run_and_read(
        &mut self,
        trial: &Trial,
        at: Place,
        len: usize,
    ) -> Result<(Verdict, Option<Vec<u8>>), CheckError> {
        let key = self.key(RequestKind::Read, trial).and_then(|image| {
            self.outcomes().key(RequestKind::Read, |key| {
                key.key(image).place(at).number(len as u64);
            })
        });
        self.runs += 1;
        if let Some(known) = self.outcomes().take(key, 0)? {
            return Ok(known);
        }
        self.prepare_first(trial, &|| false)?;
        let verdict = self.recoveries[0].run_plain()?;
        let file = self.images[0].path_of(at.pool).map(File::open);
        let bytes = file.and_then(Result::ok).and_then(|file| {
            let mut bytes = vec![0; len];
            let read = file.read_exact_at(&mut bytes, at.offset.0);
            read.ok().map(|()| bytes)
        });
        let read = (verdict, bytes);
        self.outcomes().keep(key, ANY_LIMIT, &read)?;
        Ok(read)
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
        let key = self.key(RequestKind::Time, trial);
        if let Some(known) = self.outcomes().take(key, 0)? {
            return Ok(known);
        }
        self.prepare_first(trial, &|| false)?;
        let begun = Instant::now();
        let mut fastest = Duration::MAX;
        for _ in 0..TIMES {
            let one = Instant::now();
            match self.recoveries[0].run() {
                // Its command is executed from now on.
                Ok(_) | Err(OracleError::SnapshotLost { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            fastest = fastest.min(one.elapsed());
            if begun.elapsed() > ENOUGH {
                break;
            }
        }
        self.outcomes().keep(key, ANY_LIMIT, &fastest)?;
        Ok(fastest)
    }

    /// Why recoveries are not forked from snapshots although that was asked for.
    pub(crate) fn snapshot_note(&self) -> Result<Option<String>, CheckError> {
        let key = self.outcomes().key(RequestKind::SnapshotNote, |_| ());
        let note = self.recoveries.first().and_then(Slot::snapshot_note);
        match note {
            Some(note) => {
                self.outcomes().keep_once(key, &note)?;
                Ok(Some(note.to_owned()))
            }
            // Where all outcomes are known, nothing was forked.
            None => self.outcomes().find(key),
        }
    }

    /// Where recovery crashes on an image.
    pub(crate) fn backtrace(&mut self, trial: &Trial) -> Result<Option<Backtrace>, CheckError> {
        self.runs += 1;
        let key = self.key(RequestKind::Backtrace, trial);
        if let Some(known) = self.outcomes().take(key, 0)? {
            return Ok(known);
        }
        self.prepare_first(trial, &|| false)?;
        let backtrace = self.recoveries[0].backtrace_of_crash()?;
        self.outcomes().keep(key, ANY_LIMIT, &backtrace)?;
        Ok(backtrace)
    }

    /// What the confinement of recovery denies on an image, and how often. The run is not counted, because it shows
    /// nothing about a crash.
    pub(crate) fn denied(
        &mut self,
        trial: &Trial,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<(DeniedAccess, u64)>, CheckError> {
        if !self.is_confined {
            return Ok(Vec::new());
        }
        let key = self.key(RequestKind::Denied, trial);
        if let Some(known) = self.outcomes().take(key, 0)? {
            return Ok(known);
        }
        self.prepare_first(trial, is_interrupted)?;
        match self.run_prepared(is_interrupted, Slot::denied_accesses) {
            // Where processes may not be traced, or are not to run any more, that is not known.
            Err(CheckError::Oracle(OracleError::Start { .. } | OracleError::ZygoteDied)) => {
                Ok(Vec::new())
            }
            Ok(denied) => {
                self.outcomes().keep(key, ANY_LIMIT, &denied)?;
                Ok(denied)
            }
            failed => failed,
        }
    }

    fn prepare_first(
        &mut self,
        trial: &Trial,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(), CheckError> {
        let needs_frontier = !matches!(trial.state, Survival::Newest);
        let is_end = !needs_frontier && trial.at.0 == self.trace.event_count();
        if let Some(cursor) = self.cursors.end().filter(|_| is_end) {
            self.images[0].prepare_with(cursor, &CrashState::default(), &[])?;
            return Ok(());
        }
        let cursor = self.cursor_at(trial.at, needs_frontier, is_interrupted)?;
        let cursor = cursor.ok_or(CheckError::Interrupted)?;
        let state = state_at(&cursor, &trial.state).unwrap_or_default();
        self.images[0].prepare_with(&cursor, &state, trial.state.overlay())?;
        if is_end {
            self.cursors.keep_end(cursor);
        }
        Ok(())
    }
}

/// The crash state that a trial asks for, if it is possible where the cursor stands.
pub(crate) fn state_at(cursor: &ImageCursor<'_>, wanted: &Survival) -> Option<CrashState> {
    match wanted {
        Survival::Newest => Some(CrashState::default()),
        Survival::Floors => {
            let lines = cursor.frontier()?.open_lines_sorted();
            Some(CrashState {
                versions: lines.iter().map(|line| (line.id(), 0)).collect(),
            })
        }
        Survival::Lost(lost) => lost.crash_state(cursor.frontier()?),
        Survival::Exactly(state) | Survival::Again(state, _) => Some(state.clone()),
    }
}

/// Runs something in a slot. An interruption kills the recovery.
pub(crate) fn run_in<T: Send>(
    slot: &mut Slot,
    is_interrupted: &dyn Fn() -> bool,
    run: impl FnOnce(&mut Slot) -> Result<T, OracleError> + Send,
) -> Result<T, CheckError> {
    let kill_handle = slot.kill_handle();
    let (sender, answers) = mpsc::channel();
    let ran = std::thread::scope(|scope| {
        scope.spawn(move || {
            // The receiver is gone only after an interruption.
            let _ = sender.send(run(slot));
        });
        let answer = answer_unless_interrupted(&answers, is_interrupted);
        if matches!(answer, Err(CheckError::Interrupted)) {
            kill_handle.kill();
        }
        answer
    })??;
    Ok(ran)
}

/// Keeps the lines that look like failures: the least of each word, whatever the order of runs.
pub(crate) fn note_suspects(known: &mut BTreeMap<String, String>, suspects: Vec<SuspectLine>) {
    for suspect in suspects {
        let least = known
            .entry(suspect.word)
            .or_insert_with(|| suspect.line.clone());
        if suspect.line < *least {
            *least = suspect.line;
        }
    }
}

/// Kills all recoveries; the threads that wait for them get an error.
pub(crate) fn kill(kill_handles: &[KillHandle]) {
    for handle in kill_handles {
        handle.kill();
    }
}
