//! One failure point: recovery runs once on memory with every store before it, and its reads are watched.

use std::ops::Range;
use std::sync::Arc;

use powerfail_explore::FailurePoint;
use powerfail_explore::lazy::{CrashTable, Observed, PageLines, Seen};
use powerfail_finding::Code;
use powerfail_model::{EventIndex, LineId, Place, PoolIndex, PoolOffset};
use powerfail_oracle::{Branch, ExploreRequest, LazyExecution, LineTable, PageMask, Stage, Watch};
use powerfail_protocol::observe::ByteSet;
use powerfail_races::{Judgement, NotDurable, Shadow};
use powerfail_trace::{Annotation, Frame, Module};

use super::shadows::watches;
use crate::content::ExpectedContents;
use crate::error::CheckError;
use crate::lazy::executor::{LazyExecutor, Pools};
use crate::lazy::reuse::{ExecutedPoint, Reads};
use crate::lazy::walk::Attempt;

/// How many other values of a read are kept.
const VALUES_MAX: usize = 8;

/// What is the same for all failure points.
#[derive(Clone, Copy)]
pub(super) struct WatchSettings<'a> {
    pub(super) contents: &'a ExpectedContents,
    /// Bytes that are taken as those of commit variables.
    pub(super) benign: &'a [(PoolIndex, Range<u64>)],
}

/// What watching recovery at one failure point has shown.
#[derive(Debug)]
pub(super) struct WatchedPoint {
    pub(super) at: EventIndex,
    pub(super) executions: u64,
    pub(super) reads: Option<Reads>,
    /// Why recovery cannot be watched.
    pub(super) refused: Option<String>,
    /// How it fails although every store is durable.
    pub(super) failed: Option<Code>,
    pub(super) suspect_reads: Vec<SuspectRead>,
    pub(super) warnings: Vec<String>,
}

impl ExecutedPoint for WatchedPoint {
    fn at(&self) -> EventIndex {
        self.at
    }

    fn executions(&self) -> u64 {
        self.executions
    }

    fn saved(&self) -> u64 {
        0
    }

    fn reads(&self) -> Option<&Reads> {
        self.reads.as_ref()
    }
}

/// Why a read is suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReadKind {
    /// It can see several values.
    Race,
    /// It is of bytes that are not surely durable, and can see one value only.
    Strict,
    /// It is of what is not committed.
    Uncommitted,
    /// It is of what a later commit has made invalid.
    Stale,
    /// It is of memory that was allocated and never written.
    Uninitialised,
}

/// How a read can be made to see another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OtherValue {
    /// By taking another class of a choice.
    Class(OtherClass),
    /// By other bytes in memory that holds anything: lines of 64 bytes, by pool and offset, and bytes of them.
    Fill(Vec<(PoolIndex, u64, u64)>),
    /// Not at all.
    None,
}

/// A choice with several classes, at which the newest value was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherClass {
    /// Which choice of the execution that takes the newest value everywhere.
    pub(super) choice: usize,
    /// The number of classes.
    pub(super) count: u16,
    /// The line that is read.
    pub(super) line: LineId,
    /// The newest version of the line without the store that makes the difference; the next one has it.
    pub(super) without: usize,
}

/// A read that is not safe, at one failure point.
#[derive(Clone, Debug)]
pub(super) struct SuspectRead {
    pub(super) kind: ReadKind,
    pub(super) stage: Stage,
    /// Where files lay in the process that read.
    pub(super) modules: Option<Arc<[Module]>>,
    /// The instruction, then who called, innermost first.
    pub(super) frames: Vec<Frame>,
    /// The store that may be lost or is not valid, or the allocation.
    pub(super) writer: Option<EventIndex>,
    /// Why it may be lost.
    pub(super) why: Option<NotDurable>,
    /// The commit writes that decide.
    pub(super) commits: Vec<EventIndex>,
    pub(super) pool: PoolIndex,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Not committed, by what the program says: reading it is wrong whether or not it survives.
    pub(super) is_uncommitted: bool,
    /// What it reads, and what it could read instead.
    pub(super) bytes: Vec<u8>,
    pub(super) instead: Vec<Vec<u8>>,
    pub(super) other: OtherValue,
}

/// The outcome of a watched execution.
pub(super) enum WatchOutcome {
    Watched(Box<WatchedExecution>),
    Refused(String),
}

/// A watched execution, and what it read.
pub(super) struct WatchedExecution {
    pub(super) execution: LazyExecution,
    pub(super) read: Vec<PageMask>,
    pub(super) warnings: Vec<String>,
}

/// Watches recovery at a failure point. `shadow` is that of the moment, `watched` are lines of which the read set
/// must be known.
pub(super) fn watch(
    executor: &mut dyn LazyExecutor,
    shadow: &Shadow,
    point: &FailurePoint,
    watched: Vec<PageLines>,
    settings: &WatchSettings<'_>,
) -> Result<WatchedPoint, CheckError> {
    executor.move_to(point.at)?;
    let table = executor.crash_table();
    let mut result = WatchedPoint {
        at: point.at,
        executions: 0,
        reads: None,
        refused: None,
        failed: None,
        suspect_reads: Vec::new(),
        warnings: Vec::new(),
    };
    let pools = executor.pools();
    let noted = watches(shadow, &pools);
    if table.lines.is_empty() && noted.is_empty() {
        // Whatever recovery reads is sure and valid.
        return Ok(result);
    }
    let mut lines = pools.line_table(&table);
    lines.watched = watched.iter().filter_map(|page| pools.mask(page)).collect();
    let watched_execution = match execute_watched(executor, &lines, &noted, &[])? {
        WatchOutcome::Watched(watched_execution) => watched_execution,
        WatchOutcome::Refused(reason) => {
            result.refused = Some(reason);
            return Ok(result);
        }
    };
    result.executions = 1;
    result.warnings = watched_execution.warnings;
    let read = watched_execution
        .read
        .iter()
        .filter_map(|mask| pools.page(mask));
    result.reads = Some(Reads {
        watched,
        read: read.collect(),
    });
    let execution = &watched_execution.execution;
    let symptom = settings.contents.judge(point.at, &execution.verdict);
    result.failed = symptom.map(|symptom| symptom.code);
    let variables = Variables::of(execution, &pools, shadow, settings.benign);
    result.suspect_reads = races(executor, &table, &variables, execution);
    let judged = notes(executor, &pools, &variables, execution);
    result.suspect_reads.extend(judged);
    Ok(result)
}

/// Executes recovery once, with the given classes at the first choices and the newest value after them.
pub(super) fn execute_watched(
    executor: &mut dyn LazyExecutor,
    lines: &LineTable,
    watches: &[Watch],
    prefix: &[u32],
) -> Result<WatchOutcome, CheckError> {
    execute(executor, lines, watches, prefix, false)
}

/// As `execute_watched`, and what recovery stores is logged.
pub(super) fn execute_and_log(
    executor: &mut dyn LazyExecutor,
    lines: &LineTable,
    watches: &[Watch],
    prefix: &[u32],
) -> Result<WatchOutcome, CheckError> {
    execute(executor, lines, watches, prefix, true)
}

fn execute(
    executor: &mut dyn LazyExecutor,
    lines: &LineTable,
    watches: &[Watch],
    prefix: &[u32],
    log: bool,
) -> Result<WatchOutcome, CheckError> {
    let request = ExploreRequest {
        table: lines,
        prefix,
        branch: Branch::Never,
        watches,
        observations: false,
        log,
        max_executions: 1,
    };
    let explored = match executor.explore(&[], &request)? {
        Attempt::Explored(explored) => explored,
        Attempt::Refused { reason } => return Ok(WatchOutcome::Refused(reason)),
        Attempt::NotForkable => {
            let reason = "it can neither be forked nor executed again".to_owned();
            return Ok(WatchOutcome::Refused(reason));
        }
    };
    let mut executions = explored.executions.into_iter();
    Ok(match executions.next() {
        Some(execution) => WatchOutcome::Watched(Box::new(WatchedExecution {
            execution,
            read: explored.read,
            warnings: explored.warnings,
        })),
        None => WatchOutcome::Refused("it was not executed".to_owned()),
    })
}

/// The variables that commit: those of the workload, those that recovery names, and those that were inferred.
struct Variables<'s> {
    shadow: &'s Shadow,
    named: Vec<(PoolIndex, Range<u64>)>,
}

impl<'s> Variables<'s> {
    fn of(
        execution: &LazyExecution,
        pools: &Pools,
        shadow: &'s Shadow,
        benign: &[(PoolIndex, Range<u64>)],
    ) -> Self {
        let notes = execution.notes.iter();
        let notes = notes.filter(|note| {
            matches!(
                Annotation::from_code(note.code),
                Annotation::CommitVariable | Annotation::CommitRange
            )
        });
        let named = notes.filter_map(|note| {
            let pool = pools.index(note.pool)?;
            Some((pool, note.offset..note.offset.saturating_add(note.bytes)))
        });
        Self {
            shadow,
            named: named.chain(benign.iter().cloned()).collect(),
        }
    }

    fn contain(&self, pool: PoolIndex, offset: u64) -> bool {
        let mut named = self.named.iter();
        self.shadow.is_commit_variable(pool, PoolOffset(offset), 1)
            || named.any(|(known, range)| *known == pool && range.contains(&offset))
    }
}

/// The loads that could observe several values.
fn races(
    executor: &mut dyn LazyExecutor,
    table: &CrashTable,
    variables: &Variables<'_>,
    execution: &LazyExecution,
) -> Vec<SuspectRead> {
    let mut seen = Seen::nothing(table);
    let mut suspect_reads = Vec::new();
    for (number, choice) in execution.choices.iter().enumerate() {
        let observed = Observed::from(choice);
        if choice.skipped == 0
            && let Some(suspect) = race(executor, &seen, variables, execution, number)
        {
            suspect_reads.push(suspect);
        }
        if seen.observe(&observed).is_err() {
            break;
        }
    }
    suspect_reads
}

fn race(
    executor: &mut dyn LazyExecutor,
    seen: &Seen<'_>,
    variables: &Variables<'_>,
    execution: &LazyExecution,
    number: usize,
) -> Option<SuspectRead> {
    let choice = execution.choices.get(number)?;
    let table = seen.table();
    let line = table.lines.get(choice.line as usize)?;
    let begin = line.id.line.0 * table.line_bytes as u64;
    let taken = line.contents.get(choice.content as usize)?;
    let mut observed = Observed::from(choice).bytes;
    // Code that reads a commit variable is prepared for either value.
    for byte in Observed::from(choice).bytes.iter() {
        if variables.contain(line.id.pool, begin + byte as u64) {
            observed = observed.without(&ByteSet::range(byte, byte + 1));
        }
    }
    let span = usize::from(choice.from)..usize::from(choice.to);
    let bytes = taken.bytes.get(span.clone())?.to_vec();
    let mut newest_other = None;
    let mut instead: Vec<Vec<u8>> = Vec::new();
    let mut differing: Option<(usize, usize)> = None;
    for possible in seen.possible(choice.line as usize) {
        let content = &line.contents[possible];
        if observed.agree(&content.bytes, &taken.bytes) {
            continue;
        }
        newest_other = newest_other.max(Some(content.newest_version()));
        for at in observed
            .iter()
            .filter(|at| content.bytes[*at] != taken.bytes[*at])
        {
            let (first, last) = differing.unwrap_or((at, at));
            differing = Some((first.min(at), last.max(at)));
        }
        let other = content.bytes.get(span.clone()).unwrap_or_default();
        if instead.len() < VALUES_MAX && instead.iter().all(|known| known != other) {
            instead.push(other.to_vec());
        }
    }
    // The newest store without which the load reads something else.
    let without = newest_other?;
    let writer = line.stores.get(without).copied();
    let (first, last) = differing?;
    let at = PoolOffset(begin + first as u64);
    let len = (last - first) as u64 + 1;
    if variables.shadow.is_left_out(line.id.pool, at, len) {
        return None;
    }
    let why = variables.shadow.why_not_durable(line.id.pool, at, len);
    let is_uncommitted = variables.shadow.is_uncommitted(line.id.pool, at, len);
    let stage = execution.stage_of(number);
    let (modules, frames) = frames_of(executor, stage, &choice.frames);
    Some(SuspectRead {
        kind: ReadKind::Race,
        stage,
        modules,
        frames,
        writer,
        why: why.map(|(_, why)| why),
        commits: Vec::new(),
        pool: line.id.pool,
        offset: begin + u64::from(choice.from),
        len: span.len() as u64,
        is_uncommitted,
        bytes,
        instead,
        other: OtherValue::Class(OtherClass {
            choice: number,
            count: choice.class_count,
            line: line.id,
            without,
        }),
    })
}

/// The first reads of watched bytes.
fn notes(
    executor: &mut dyn LazyExecutor,
    pools: &Pools,
    variables: &Variables<'_>,
    execution: &LazyExecution,
) -> Vec<SuspectRead> {
    let mut suspect_reads = Vec::new();
    for (number, note) in execution.notes.iter().enumerate() {
        if note.code != 0 || note.skipped != 0 {
            continue;
        }
        let Some(pool) = pools.index(note.pool) else {
            continue;
        };
        let mut read = note.bytes;
        for byte in (0..64).filter(|byte| note.bytes >> byte & 1 != 0) {
            if variables.contain(pool, note.offset + byte) {
                read &= !(1 << byte);
            }
        }
        let stage = execution.stage_of_note(number);
        for judgement in variables.shadow.judge(pool, PoolOffset(note.offset), read) {
            let (kind, bytes, writer, why, commits) = parts(&judgement);
            let first = u64::from(bytes.trailing_zeros());
            let len = 64 - u64::from(bytes.leading_zeros()) - first;
            let mut value = vec![0; len as usize];
            let offset = note.offset + first;
            executor.read(Place::new(pool, PoolOffset(offset)), &mut value);
            let (modules, frames) = frames_of(executor, stage, &note.frames);
            suspect_reads.push(SuspectRead {
                kind,
                stage,
                modules,
                frames,
                writer: Some(writer),
                why,
                commits,
                pool,
                offset,
                len,
                is_uncommitted: kind == ReadKind::Uncommitted,
                bytes: value,
                instead: Vec::new(),
                other: match kind {
                    ReadKind::Uninitialised => OtherValue::Fill(vec![(pool, note.offset, bytes)]),
                    _ => OtherValue::None,
                },
            });
        }
    }
    suspect_reads
}

type Parts = (
    ReadKind,
    u64,
    EventIndex,
    Option<NotDurable>,
    Vec<EventIndex>,
);

/// What a judgement says: its kind, bytes, writer, why they may be lost, and the commit writes.
fn parts(judgement: &Judgement) -> Parts {
    match *judgement {
        Judgement::Race { bytes, writer, why } => {
            (ReadKind::Strict, bytes, writer, Some(why), Vec::new())
        }
        Judgement::Uncommitted {
            bytes,
            writer,
            commit,
        } => {
            let commits = commit.into_iter().collect();
            (ReadKind::Uncommitted, bytes, writer, None, commits)
        }
        Judgement::Stale {
            bytes,
            writer,
            commits,
        } => (ReadKind::Stale, bytes, writer, None, commits.to_vec()),
        Judgement::Uninitialised { bytes, allocation } => {
            (ReadKind::Uninitialised, bytes, allocation, None, Vec::new())
        }
    }
}

/// What addresses of the last execution mean.
pub(super) fn frames_of(
    executor: &mut dyn LazyExecutor,
    stage: Stage,
    addresses: &[u64],
) -> (Option<Arc<[Module]>>, Vec<Frame>) {
    let addresses: Vec<u64> = addresses
        .iter()
        .copied()
        .take_while(|it| *it != 0)
        .collect();
    match executor.frames(stage, &addresses) {
        Some((modules, frames)) => (Some(modules), frames),
        None => (None, Vec::new()),
    }
}
