//! Whether recovery can fail at all: it is tried on pools that no crash could leave.
//!
//! The pools are the final ones, emptied, or with lines changed that recovery reads: a few of them one by one, as a whole and
//! in single words, because a field may be valid only beside another one, and then all of them, because one copy may stand
//! for another. A recovery that accepts all of them may still be a good one: it may repair whatever it finds, and fail only by a crash of its own. So there are two
//! answers. If it does the same on all of them, by what it prints, reads and leaves in the pools, then no crash image
//! could have made a difference, and nothing was checked. If it does not, a note says that it accepts everything.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use powerfail_explore::lazy::PageLines;
use powerfail_image::Patch;
use powerfail_model::{Event, EventIndex, LineId, LineIndex, Place, PoolIndex, PoolOffset};
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
/// How many lines are changed at once.
const LINES_AT_ONCE: usize = 256;
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
    /// As if its first word that is not zero had never been written.
    ZeroFirst,
    /// The same for its last one.
    ZeroLast,
}

const CHANGES: [Change; 4] = [
    Change::Zero,
    Change::Scramble,
    Change::ZeroFirst,
    Change::ZeroLast,
];

impl Change {
    fn apply(self, bytes: &mut [u8]) {
        const WORD_BYTES: usize = 8;
        let is_written = |word: &&mut [u8]| word.iter().any(|byte| *byte != 0);
        let mut words = bytes.chunks_mut(WORD_BYTES);
        match self {
            Self::Zero => bytes.fill(0),
            Self::Scramble => {
                for (byte, number) in bytes.iter_mut().zip(1_u8..) {
                    *byte ^= number.wrapping_mul(0x9d) | 1;
                }
            }
            Self::ZeroFirst => {
                if let Some(word) = words.find(is_written) {
                    word.fill(0);
                }
            }
            Self::ZeroLast => {
                if let Some(word) = words.rfind(is_written) {
                    word.fill(0);
                }
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
    // An empty pool, the changes of each line, all lines at once, and an unchanged pool.
    const RUNS: u64 = 3 + (CHANGES.len() * LINES_CHANGED) as u64;
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
        watched: pages_of(trace, &stored),
    };
    let mut read = None;
    if can_watch {
        read = watcher.reads(runner, None)?;
    }
    let lines = match &read {
        Some(read) if !read.is_empty() => lines_of(read),
        _ => stored,
    };
    let at_once: Vec<LineId> = lines.iter().copied().take(LINES_AT_ONCE).collect();
    let lines = spread(&lines);
    let changes = || {
        let lines = lines.iter();
        lines.flat_map(|line| CHANGES.map(|change| (*line, change)))
    };
    for (line, change) in changes() {
        if !accepts(runner, &|paths| change_line(paths, line, change))? {
            return Ok(OracleTest::CanFail);
        }
    }
    let scramble = |paths: &[Option<PathBuf>]| {
        let mut lines = at_once.iter();
        lines.try_for_each(|line| change_line(paths, *line, Change::Scramble))
    };
    if !accepts(runner, &scramble)? {
        return Ok(OracleTest::CanFail);
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
    // Behind the end of a file the rest of a page can be read, and holds nothing.
    if offset + LINE_BYTES as u64 > file.metadata()?.len() {
        return Ok(());
    }
    file.read_exact_at(&mut bytes, offset)?;
    change.apply(&mut bytes);
    file.write_all_at(&bytes, offset)
}

/// The pages of these lines, and the first page of each pool, with all of their lines: recovery may read what the workload
/// does not write, such as a flag that says that something is damaged.
fn pages_of(trace: &Trace, lines: &[LineId]) -> Vec<PageLines> {
    let first = (0..trace.pools().len() as u32).map(|pool| LineId {
        pool: PoolIndex(pool),
        line: LineIndex(0),
    });
    let lines: BTreeSet<LineId> = lines.iter().copied().chain(first).collect();
    let mut pages = PageLines::of(lines, LINE_BYTES);
    for page in &mut pages {
        page.lines = u64::MAX;
    }
    pages
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_of_the_line_or_of_one_word() {
        let mut line = [0; LINE_BYTES];
        line[9] = 7;
        line[20] = 8;
        line[32] = 9;
        let changed = |change: Change| {
            let mut bytes = line;
            change.apply(&mut bytes);
            [bytes[9], bytes[20], bytes[32]]
        };
        assert_eq!(changed(Change::Zero), [0, 0, 0]);
        assert_eq!(changed(Change::ZeroFirst), [0, 8, 9]);
        assert_eq!(changed(Change::ZeroLast), [7, 8, 0]);
        let scrambled = changed(Change::Scramble);
        assert!(scrambled[0] != 7 && scrambled[1] != 8 && scrambled[2] != 9);
    }
}
