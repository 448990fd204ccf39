//! One failure point: recovery runs once on memory with every store before it, and its reads are watched.

use std::sync::Arc;

use powerfail_explore::FailurePoint;
use powerfail_explore::lazy::{CrashTable, Observed, PageLines, Seen};
use powerfail_finding::Code;
use powerfail_model::{EventIndex, PoolIndex};
use powerfail_oracle::{
    Branch, Choice, Execution, ExploreRequest, LineTable, PageMask, Stage, Watch,
};
use powerfail_trace::{Frame, Module};

use crate::content::Contents;
use crate::error::CheckError;
use crate::lazy::lab::Lab;
use crate::lazy::reuse::{Known, Reads};
use crate::lazy::walk::Attempt;

/// How many other values of a read are kept.
const VALUES_MAX: usize = 8;

/// What is the same for all failure points.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) contents: &'a Contents,
}

/// What was seen at a failure point.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) at: EventIndex,
    pub(super) executions: u64,
    pub(super) reads: Option<Reads>,
    /// Why recovery cannot be watched.
    pub(super) refused: Option<String>,
    /// How it fails although every store is durable.
    pub(super) failed: Option<Code>,
    pub(super) sightings: Vec<Sighting>,
    pub(super) warnings: Vec<String>,
}

impl Known for Watched {
    fn at(&self) -> EventIndex {
        self.at
    }

    fn executions(&self) -> u64 {
        self.executions
    }

    fn reads(&self) -> Option<&Reads> {
        self.reads.as_ref()
    }
}

/// What is wrong with a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// It can see several values.
    Race,
}

/// A read that is not safe.
#[derive(Clone, Debug)]
pub(super) struct Sighting {
    pub(super) kind: Kind,
    pub(super) stage: Stage,
    /// Where files lay in the process that read.
    pub(super) modules: Option<Arc<[Module]>>,
    /// The instruction, then who called, innermost first.
    pub(super) frames: Vec<Frame>,
    /// The store that may be lost.
    pub(super) writer: Option<EventIndex>,
    pub(super) pool: PoolIndex,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// What it reads, and what it could read instead.
    pub(super) bytes: Vec<u8>,
    pub(super) instead: Vec<Vec<u8>>,
    /// Which choice of the execution it is, and how many values it had.
    pub(super) choice: usize,
    pub(super) class_count: u16,
}

/// What came of an execution.
pub(super) enum Look {
    Seen(Box<Sight>),
    Refused(String),
}

/// An execution that was watched.
pub(super) struct Sight {
    pub(super) execution: Execution,
    pub(super) read: Vec<PageMask>,
    pub(super) warnings: Vec<String>,
}

/// Watches recovery at a failure point. `watched` are lines of which the read set must be known.
pub(super) fn watch(
    lab: &mut dyn Lab,
    point: &FailurePoint,
    watched: Vec<PageLines>,
    setting: &Setting<'_>,
) -> Result<Watched, CheckError> {
    lab.move_to(point.at)?;
    let table = lab.crash_table();
    let mut result = Watched {
        at: point.at,
        executions: 0,
        reads: None,
        refused: None,
        failed: None,
        sightings: Vec::new(),
        warnings: Vec::new(),
    };
    if table.lines.is_empty() {
        // Whatever recovery reads is the same in all that the crash can have left.
        return Ok(result);
    }
    let pools = lab.pools();
    let mut lines = pools.line_table(&table);
    lines.watched = watched.iter().filter_map(|page| pools.mask(page)).collect();
    let sight = match look(lab, &lines, &[], &[])? {
        Look::Seen(sight) => sight,
        Look::Refused(reason) => {
            result.refused = Some(reason);
            return Ok(result);
        }
    };
    result.executions = 1;
    result.warnings = sight.warnings;
    let read = sight.read.iter().filter_map(|mask| pools.page(mask));
    result.reads = Some(Reads {
        watched,
        read: read.collect(),
    });
    let execution = &sight.execution;
    let symptom = setting.contents.judge(point.at, &execution.verdict);
    result.failed = symptom.map(|symptom| symptom.code);
    result.sightings = races(lab, &table, execution);
    Ok(result)
}

/// Executes recovery once, with the given classes at the first choices and the newest value after them.
pub(super) fn look(
    lab: &mut dyn Lab,
    lines: &LineTable,
    watches: &[Watch],
    prefix: &[u32],
) -> Result<Look, CheckError> {
    let request = ExploreRequest {
        table: lines,
        prefix,
        branch: Branch::Never,
        watches,
        log: false,
        max_executions: 1,
    };
    let explored = match lab.explore(&[], &request)? {
        Attempt::Explored(explored) => explored,
        Attempt::Refused { reason } => return Ok(Look::Refused(reason)),
        Attempt::NotForkable => {
            let reason = "it can neither be forked nor executed again".to_owned();
            return Ok(Look::Refused(reason));
        }
    };
    let mut executions = explored.executions.into_iter();
    Ok(match executions.next() {
        Some(execution) => Look::Seen(Box::new(Sight {
            execution,
            read: explored.read,
            warnings: explored.warnings,
        })),
        None => Look::Refused("it was not executed".to_owned()),
    })
}

/// The loads that could observe several values.
fn races(lab: &mut dyn Lab, table: &CrashTable, execution: &Execution) -> Vec<Sighting> {
    let mut seen = Seen::nothing(table);
    let mut sightings = Vec::new();
    for (number, choice) in execution.choices.iter().enumerate() {
        let observed = Observed::from(choice);
        if choice.skipped == 0
            && let Some(sighting) = race(lab, table, &seen, execution, number, choice)
        {
            sightings.push(sighting);
        }
        if seen.observe(&observed).is_err() {
            break;
        }
    }
    sightings
}

fn race(
    lab: &mut dyn Lab,
    table: &CrashTable,
    seen: &Seen<'_>,
    execution: &Execution,
    number: usize,
    choice: &Choice,
) -> Option<Sighting> {
    let line = table.lines.get(choice.line as usize)?;
    let taken = line.contents.get(choice.content as usize)?;
    let observed = Observed::from(choice).bytes;
    let span = usize::from(choice.from)..usize::from(choice.to);
    let bytes = taken.bytes.get(span.clone())?.to_vec();
    let mut newest_other = None;
    let mut instead: Vec<Vec<u8>> = Vec::new();
    for possible in seen.possible(choice.line as usize) {
        let content = &line.contents[possible];
        if observed.agree(&content.bytes, &taken.bytes) {
            continue;
        }
        newest_other = newest_other.max(Some(content.newest_version()));
        let other = content.bytes.get(span.clone()).unwrap_or_default();
        if instead.len() < VALUES_MAX && instead.iter().all(|known| known != other) {
            instead.push(other.to_vec());
        }
    }
    // The newest store without which the load reads something else.
    let writer = line.stores.get(newest_other?).copied();
    let stage = execution.stage_of(number);
    let (modules, frames) = frames_of(lab, stage, &choice.frames);
    Some(Sighting {
        kind: Kind::Race,
        stage,
        modules,
        frames,
        writer,
        pool: line.id.pool,
        offset: line.id.line.0 * table.line_bytes as u64 + u64::from(choice.from),
        len: span.len() as u64,
        bytes,
        instead,
        choice: number,
        class_count: choice.class_count,
    })
}

/// What addresses of the last execution mean.
fn frames_of(
    lab: &mut dyn Lab,
    stage: Stage,
    addresses: &[u64],
) -> (Option<Arc<[Module]>>, Vec<Frame>) {
    let addresses: Vec<u64> = addresses
        .iter()
        .copied()
        .take_while(|it| *it != 0)
        .collect();
    match lab.frames(stage, &addresses) {
        Some((modules, frames)) => (Some(modules), frames),
        None => (None, Vec::new()),
    }
}
