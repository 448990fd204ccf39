//! Whether recovery can fail at all: it is tried on pools that no crash could leave.
//!
//! The pools are the final ones, emptied, or with one line changed that recovery reads. A recovery that accepts all of
//! them may still be a good one: it may repair whatever it finds, and fail only by a crash of its own. So there are two
//! answers. If it does the same on all of them, by what it prints, reads and leaves in the pools, then no crash image
//! could have made a difference, and nothing was checked. If it does not, a note says that it accepts everything.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use powerfail_explore::lazy::PageLines;
use powerfail_image::Patch;
use powerfail_model::{Event, EventIndex, LineId, LineIndex, Place, PoolOffset};
use powerfail_oracle::{Branch, ExploreRequest, LineTable, Verdict};
use powerfail_trace::Trace;

use super::undisturbed::UndisturbedRecovery;
use crate::error::CheckError;
use crate::event::{CheckStep, Observer};
use crate::lazy::executor::{LazyExecutor, OracleExecutor};
use crate::lazy::walk::Attempt;
use crate::runner::{ChangedRun, Runner, Trial};

/// How many of the last events are looked through for stores.
const EVENTS_MAX: u64 = 65_536;
/// How many lines with stores are looked at.
const LINES_MAX: usize = 2048;
/// How many lines are changed, one at a time.
const LINES_CHANGED: usize = 4;
/// The unit of a change, whatever the domain.
const LINE_BYTES: usize = 64;

/// What the test of recovery has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OracleTest {
    /// It rejects a changed pool, or that is not known.
    CanFail,
    /// It accepts every changed pool, and what it does depends on the pool.
    AcceptsAll,
    /// It does the same on every pool.
    IgnoresAll,
    /// There was no time to find out.
    Unfinished,
}

/// How a line is changed.
#[derive(Clone, Copy)]
enum Change {
    /// As if it had never been written.
    Zero,
    /// To something that no program writes. Each byte changes in its own way, so that fields that were equal differ.
    Scramble,
}

impl Change {
    fn apply(self, bytes: &mut [u8]) {
        for (byte, number) in bytes.iter_mut().zip(1_u8..) {
            match self {
                Self::Zero => *byte = 0,
                Self::Scramble => *byte ^= number.wrapping_mul(0x9d) | 1,
            }
        }
    }
}

/// Tries recovery on changed pools, as long as the observer does not interrupt it. `can_watch` says whether its reads can
/// be watched.
pub(super) fn oracle_test(
    trace: &Trace,
    runner: &mut Runner<'_>,
    undisturbed: &UndisturbedRecovery,
    can_watch: bool,
    observer: &mut dyn Observer,
) -> Result<OracleTest, CheckError> {
    match try_changed(trace, runner, undisturbed, can_watch, observer) {
        Err(CheckError::Interrupted) => Ok(OracleTest::Unfinished),
        tested => tested,
    }
}

fn try_changed(
    trace: &Trace,
    runner: &mut Runner<'_>,
    undisturbed: &UndisturbedRecovery,
    can_watch: bool,
    observer: &mut dyn Observer,
) -> Result<OracleTest, CheckError> {
    // An empty pool, two changes of each line, and an unchanged pool.
    const RUNS: u64 = 2 + 2 * LINES_CHANGED as u64;
    let end = EventIndex(trace.event_count());
    let mut runs = Vec::new();
    let mut accepts = |runner: &mut Runner<'_>,
                       change: &dyn Fn(&[Option<PathBuf>]) -> io::Result<()>|
     -> Result<bool, CheckError> {
        observer.progress(CheckStep::OracleTest, runs.len() as u64, RUNS);
        let is_interrupted = || observer.is_interrupted();
        let Some(run) = runner.run_changed(&Trial::prefix(end), change, &is_interrupted)? else {
            return Ok(false);
        };
        let is_accepted = match &run.verdict {
            Verdict::Success { dump } => *dump == undisturbed.dump,
            Verdict::Failure(_) => false,
        };
        runs.push(run);
        Ok(is_accepted)
    };
    if !accepts(runner, &empty)? {
        return Ok(OracleTest::CanFail);
    }
    let stored = stored_lines(trace)?;
    let mut watcher = ReadWatcher {
        end,
        watched: PageLines::of(stored.iter().copied(), LINE_BYTES),
    };
    let mut read = None;
    if can_watch {
        read = watcher.reads(runner, None)?;
    }
    let lines = match &read {
        Some(read) if !read.is_empty() => lines_of(read),
        _ => stored,
    };
    let lines = spread(&lines);
    let changes = || {
        let lines = lines.iter();
        lines.flat_map(|line| [Change::Zero, Change::Scramble].map(|change| (*line, change)))
    };
    for (line, change) in changes() {
        if !accepts(runner, &|paths| change_line(paths, line, change))? {
            return Ok(OracleTest::CanFail);
        }
    }
    if lines.is_empty() || !accepts(runner, &|_| Ok(()))? {
        return Ok(OracleTest::CanFail);
    }
    if !all_equal(&runs) {
        return Ok(OracleTest::AcceptsAll);
    }
    if read.is_some() {
        for changed in changes() {
            if observer.is_interrupted() {
                return Ok(OracleTest::Unfinished);
            }
            if watcher.reads(runner, Some(changed))? != read {
                return Ok(OracleTest::AcceptsAll);
            }
        }
    }
    Ok(OracleTest::IgnoresAll)
}

/// Whether recovery printed the same each time, and wrote or left the same: one that begins by truncating its pool leaves
/// the same, whatever it found.
fn all_equal(runs: &[ChangedRun]) -> bool {
    let agree = |same: &dyn Fn(&ChangedRun, &ChangedRun) -> bool| {
        runs.windows(2).all(|pair| same(&pair[0], &pair[1]))
    };
    let is_known = runs.iter().all(|run| run.pools.is_some());
    let written = |run: &ChangedRun| run.pools.as_ref().map(|it| it.written.clone());
    let left = |run: &ChangedRun| run.pools.as_ref().map(|it| it.left);
    is_known
        && agree(&|one, other| one.outputs == other.outputs)
        && (agree(&|one, other| written(one) == written(other))
            || agree(&|one, other| left(one) == left(other)))
}

/// Learns which lines recovery reads.
struct ReadWatcher {
    end: EventIndex,
    /// The lines that matter.
    watched: Vec<PageLines>,
}

impl ReadWatcher {
    /// The lines that recovery reads of the final pools, in which one line may be changed. `None` if its reads cannot
    /// be watched.
    fn reads(
        &mut self,
        runner: &mut Runner<'_>,
        changed: Option<(LineId, Change)>,
    ) -> Result<Option<Vec<PageLines>>, CheckError> {
        let mut executors = runner.executors(false)?;
        let Some(executor) = executors.first_mut() else {
            return Ok(None);
        };
        executor.move_to(self.end)?;
        let pools = executor.pools();
        let masks = self.watched.iter().filter_map(|page| pools.mask(page));
        let table = LineTable {
            line_bytes: LINE_BYTES as u32,
            pools: pools.paths.clone(),
            lines: Vec::new(),
            watched: masks.collect(),
        };
        let overlay: Vec<Patch> = changed
            .map(|(line, change)| patch(executor, line, change))
            .into_iter()
            .collect();
        let request = ExploreRequest {
            table: &table,
            prefix: &[],
            branch: Branch::Never,
            watches: &[],
            observations: false,
            log: false,
            max_executions: 1,
        };
        Ok(match executor.explore(&overlay, &request)? {
            Attempt::Explored(explored) => {
                let pages = explored.read.iter().filter_map(|mask| pools.page(mask));
                Some(pages.collect())
            }
            Attempt::NotForkable | Attempt::Refused { .. } => None,
        })
    }
}

/// A changed line, as something that lies on top of the pools.
fn patch(executor: &OracleExecutor<'_, '_>, line: LineId, change: Change) -> Patch {
    let offset = line.line.0 * LINE_BYTES as u64;
    let mut bytes = vec![0; LINE_BYTES];
    executor.read(Place::new(line.pool, PoolOffset(offset)), &mut bytes);
    change.apply(&mut bytes);
    Patch {
        pool: line.pool,
        offset,
        bytes,
    }
}

/// Makes all bytes of all pools zero.
fn empty(paths: &[Option<PathBuf>]) -> io::Result<()> {
    for path in paths.iter().flatten() {
        let file = File::options().write(true).open(path)?;
        let len_bytes = file.metadata()?.len();
        file.set_len(0)?;
        file.set_len(len_bytes)?;
    }
    Ok(())
}

fn change_line(paths: &[Option<PathBuf>], line: LineId, change: Change) -> io::Result<()> {
    let Some(Some(path)) = paths.get(line.pool.0 as usize) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let file = File::options().read(true).write(true).open(path)?;
    let mut bytes = [0; LINE_BYTES];
    let offset = line.line.0 * LINE_BYTES as u64;
    file.read_exact_at(&mut bytes, offset)?;
    change.apply(&mut bytes);
    file.write_all_at(&bytes, offset)
}

/// The lines that the last stores of the workload wrote, in the order of pools and offsets.
fn stored_lines(trace: &Trace) -> Result<Vec<LineId>, CheckError> {
    let first = trace.event_count().saturating_sub(EVENTS_MAX);
    let mut records = trace.records_from(EventIndex(first));
    let mut lines = BTreeSet::new();
    while let Some(record) = records.next_record()? {
        let Some(step) = record.step() else { continue };
        if let Event::Store { at, .. } = step.event {
            lines.insert(LineId {
                pool: at.pool,
                line: LineIndex(at.offset.0 / LINE_BYTES as u64),
            });
        }
        if lines.len() == LINES_MAX {
            break;
        }
    }
    Ok(lines.into_iter().collect())
}

/// The lines of some pages.
fn lines_of(pages: &[PageLines]) -> Vec<LineId> {
    let lines = pages.iter().flat_map(|page| {
        let numbers = (0..64).filter(|number| page.lines >> number & 1 != 0);
        numbers.map(|number| LineId {
            pool: page.pool,
            line: LineIndex(page.offset.0 / LINE_BYTES as u64 + number),
        })
    });
    lines.collect()
}

/// A few lines: the first, the last, and some in between.
fn spread(lines: &[LineId]) -> Vec<LineId> {
    let last = lines.len().saturating_sub(1);
    let chosen = (0..LINES_CHANGED).map(|number| number * last / (LINES_CHANGED - 1));
    let mut chosen: Vec<LineId> = chosen.filter_map(|it| lines.get(it)).copied().collect();
    chosen.dedup();
    chosen
}
