//! What the trace says: candidates, and all lines that the run has stored to.

use powerfail_model::{Event, EventIndex, PoolIndex, PoolOffset, Rules};
use powerfail_oracle::Watch;
use powerfail_races::{Candidate, Candidates, PoolRange};
use powerfail_trace::{AnnotatedRange, Annotation, Body, MarkKind, Trace};
use rustc_hash::FxHashSet;

use crate::error::CheckError;
use crate::lazy::executor::Pools;

const LINE_BYTES: u64 = 64;
/// How many lines are watched: those that were stored to last.
const WATCHES_MAX: usize = 1 << 16;

/// The candidates of a trace, and the lines that the run has stored to.
pub(in super::super) struct Survey {
    pub(super) candidates: Vec<Candidate>,
    /// Lines of 64 bytes, each with its first store, in the order of the trace.
    written: Vec<(EventIndex, PoolIndex, u64)>,
}

/// Passes over the trace. What the program names as a commit variable needs no guess.
pub(in super::super) fn survey(trace: &Trace, rules: Rules) -> Result<Survey, CheckError> {
    let mut candidates = Candidates::new(rules);
    let mut known: FxHashSet<(PoolIndex, u64)> = FxHashSet::default();
    let mut written = Vec::new();
    let mut named: Vec<PoolRange> = Vec::new();
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        candidates.apply(&record);
        match &record.body {
            Body::Pm(Event::Store { at, bytes, .. }) if !bytes.is_empty() => {
                let end = at.offset.0 + bytes.len() as u64;
                for line in at.offset.0 / LINE_BYTES..end.div_ceil(LINE_BYTES) {
                    if known.insert((at.pool, line)) {
                        written.push((record.index, at.pool, line));
                    }
                }
            }
            Body::Mark(mark) => {
                if let MarkKind::Annotation(Annotation::CommitVariable | Annotation::CommitRange) =
                    mark.kind
                    && let Some(range) = AnnotatedRange::all(mark.payload).next()
                    && let Some(pool) = range.pool
                {
                    named.push(PoolRange {
                        pool,
                        offset: PoolOffset(range.offset),
                        len: range.len,
                    });
                }
            }
            _ => {}
        }
    }
    let mut candidates = candidates.finish();
    candidates.retain(|candidate| !named.iter().any(|named| overlap(named, &candidate.at)));
    Ok(Survey {
        candidates,
        written,
    })
}

fn overlap(one: &PoolRange, other: &PoolRange) -> bool {
    one.pool == other.pool
        && one.offset.0 < other.offset.0 + other.len
        && other.offset.0 < one.offset.0 + one.len
}

impl Survey {
    /// All that was stored before a moment, for an oracle that is to note who reads it.
    pub(in super::super) fn watches(&self, at: EventIndex, pools: &Pools) -> Vec<Watch> {
        let behind = self.written.partition_point(|(event, ..)| *event < at);
        let first = behind.saturating_sub(WATCHES_MAX);
        let watch = |(_, pool, line): &(EventIndex, PoolIndex, u64)| {
            Some(Watch {
                pool: pools.number(*pool)?,
                reserved: 0,
                offset: line * LINE_BYTES,
                bytes: u64::MAX,
            })
        };
        self.written[first..behind]
            .iter()
            .filter_map(watch)
            .collect()
    }
}
