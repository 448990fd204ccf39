//! Fixes: what would have made a lost store durable in time, applied to the trace before it is advised.
//!
//! The model moves over the recorded events with the inserted operations among them. What is durable stays durable, so
//! that is done as soon as a lost store is: verifying costs the events from the store to the insertion, whatever the
//! length of the trace.
//!
//! What would need another order of stores, a log or a checksum is not verified here, and not advised anywhere.

use powerfail_finding::{Action, Change, Finding, Fix, Operation, Role};
use powerfail_model::{
    Atomicity, Domain, Event, EventIndex, FenceKind, FlushKind, Frontier, LineId, LineIndex, Place,
    PoolOffset, Rules, SparseImage, Step, StoreKind, ThreadIndex,
};
use powerfail_trace::{Body, Result, Trace};

use crate::places::Places;

/// How many events a fix may take to be applied.
const EVENTS_MAX: usize = 1 << 18;

/// What a crash state lacks, and from when on that is bad.
#[derive(Clone, Debug)]
pub(crate) struct BadState {
    /// Lines, each with its oldest lost store.
    lost: Vec<(LineId, EventIndex)>,
    /// The newest event that the state has: without the lost stores it is bad from then on.
    with: EventIndex,
}

impl BadState {
    /// The state in which these stores are lost and that one survives.
    pub(crate) fn new(lost: Vec<(LineId, EventIndex)>, survivor: EventIndex) -> Self {
        let newest = lost.iter().map(|(_, event)| *event).max();
        let with = newest.map_or(survivor, |newest| newest.max(survivor));
        Self { lost, with }
    }

    /// The state in which a store is never durable.
    pub(crate) fn never_durable(
        place: Place,
        len_bytes: u64,
        store: EventIndex,
        by: Domain,
    ) -> Self {
        let lines = lines_of(place, len_bytes, by).map(|line| (line, store));
        Self::new(lines.collect(), EventIndex(u64::MAX))
    }

    /// The same, where it is bad only from the event of another place on.
    pub(crate) fn until(self, event: Option<u64>) -> Self {
        match event {
            Some(event) => Self::new(self.lost, EventIndex(event)),
            None => self,
        }
    }
}

/// What is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A flush of what this event stored, and a fence; where flushes mean nothing, what has their part.
    Flush(EventIndex),
    /// A fence after this event: a flush, or a store past the cache.
    Fence(EventIndex),
}

/// An operation that is inserted right after an event.
#[derive(Clone, Copy, Debug)]
struct Insertion {
    after: EventIndex,
    thread: ThreadIndex,
    event: Event<'static>,
}

/// The operations of a fix, and the range that they make durable.
#[derive(Clone, Debug, Default)]
struct Insertions {
    all: Vec<Insertion>,
    range: Option<(Place, u64)>,
}

impl Places<'_> {
    /// The fix that adds what is missing, if a crash state is impossible with it.
    pub(crate) fn fix(&mut self, missing: Missing, bad: &BadState) -> Result<Option<Fix>> {
        let domain = self.remedy().0;
        let Insertions { all, range } = match missing {
            Missing::Flush(store) => durable_at_once(self.trace(), domain, store, bad)?,
            Missing::Fence(after) => fence_after(self.trace(), after)?,
        };
        let rules = Rules {
            domain,
            atomicity: Atomicity::default(),
        };
        if all.is_empty() || !is_impossible(self.trace(), rules, &all, bad)? {
            return Ok(None);
        }
        let (Missing::Flush(event) | Missing::Fence(event)) = missing;
        let role = match missing {
            Missing::Flush(_) => Role::Store,
            Missing::Fence(_) => Role::Flush,
        };
        let at = self.of_event(role, event)?;
        let mut operations: Vec<Operation> = all.iter().map(operation).collect();
        operations.dedup();
        let change = |operation: Operation| {
            let range = range.filter(|_| operation != Operation::Fence);
            Change {
                action: Action::Insert,
                operation,
                event: event.0,
                file: at.file.clone(),
                line: at.line,
                pool: range.map(|(place, _)| place.pool.0),
                pool_offset: range.map(|(place, _)| place.offset.0),
                len_bytes: range.map(|(_, len_bytes)| len_bytes),
            }
        };
        let changes = operations.into_iter().map(change).collect();
        Ok(Some(Fix::verified(changes)))
    }

    /// Advises a fix if it is verified, and nothing otherwise.
    pub(crate) fn advise(
        &mut self,
        finding: &mut Finding,
        missing: Missing,
        bad: &BadState,
        words: String,
    ) -> Result<()> {
        if let Some(fix) = self.fix(missing, bad)? {
            finding.fix = Some(fix);
            finding.suggestion = Some(words);
        }
        Ok(())
    }
}

const fn operation(insertion: &Insertion) -> Operation {
    match insertion.event {
        Event::Sync { .. } => Operation::Sync,
        Event::Fence(_) => Operation::Fence,
        _ => Operation::Flush,
    }
}

/// The lines of a range.
fn lines_of(at: Place, len_bytes: u64, domain: Domain) -> impl Iterator<Item = LineId> {
    let line_bytes = domain.line_bytes() as u64;
    let last = at.offset.0.saturating_add(len_bytes.max(1) - 1) / line_bytes;
    (at.offset.0 / line_bytes..=last).map(move |line| LineId {
        pool: at.pool,
        line: LineIndex(line),
    })
}

/// What makes the lost lines of a store durable right after it, and the range that was stored. Nothing if it is not
/// a store.
fn durable_at_once(
    trace: &Trace,
    domain: Domain,
    store: EventIndex,
    bad: &BadState,
) -> Result<Insertions> {
    let mut records = trace.records_from(store);
    let Some(record) = records.next_record()? else {
        return Ok(Insertions::default());
    };
    let Body::Pm(Event::Store { at, bytes, kind }) = record.body else {
        return Ok(Insertions::default());
    };
    let len_bytes = bytes.len() as u64;
    let insert = |event| Insertion {
        after: store,
        thread: record.thread,
        event,
    };
    let fence = insert(Event::Fence(FenceKind::Sfence));
    let all = match domain {
        Domain::PageCache => vec![insert(Event::Sync {
            pool: at.pool,
            offset: at.offset,
            len_bytes,
        })],
        Domain::Eadr => vec![fence],
        Domain::Adr if kind == StoreKind::NonTemporal => vec![fence],
        Domain::Adr => {
            let line_bytes = domain.line_bytes() as u64;
            let stored = lines_of(at, len_bytes, domain);
            let lost = stored.filter(|line| bad.lost.iter().any(|(lost, _)| lost == line));
            let flush = |line: LineId| {
                insert(Event::Flush {
                    kind: FlushKind::Clwb,
                    at: Place::new(line.pool, PoolOffset(line.line.0 * line_bytes)),
                })
            };
            lost.map(flush).chain([fence]).collect()
        }
    };
    Ok(Insertions {
        all,
        range: Some((at, len_bytes)),
    })
}

fn fence_after(trace: &Trace, after: EventIndex) -> Result<Insertions> {
    let mut records = trace.records_from(after);
    let fence = records.next_record()?.map(|record| Insertion {
        after,
        thread: record.thread,
        event: Event::Fence(FenceKind::Sfence),
    });
    Ok(Insertions {
        all: fence.into_iter().collect(),
        range: None,
    })
}

/// Whether no moment of the trace with these insertions permits a state: one of its lost stores is durable before the
/// newest event that it has.
fn is_impossible(
    trace: &Trace,
    rules: Rules,
    insertions: &[Insertion],
    bad: &BadState,
) -> Result<bool> {
    let Some(first) = bad.lost.iter().map(|(_, event)| *event).min() else {
        return Ok(false);
    };
    let mut frontier = Frontier::new(rules, SparseImage::default());
    let mut left = insertions.iter().peekable();
    let mut records = trace.records_from(first);
    for _ in 0..EVENTS_MAX {
        let Some(record) = records.next_record()? else {
            break;
        };
        // What comes behind the newest event of the state is too late.
        if record.index >= bad.with || left.peek().is_none() {
            break;
        }
        let index = record.index;
        if let Some(step) = record.step() {
            frontier.apply(&step);
        }
        while let Some(inserted) = left.next_if(|it| it.after == index) {
            frontier.apply(&Step {
                index,
                thread: inserted.thread,
                event: inserted.event,
            });
        }
        if left.peek().is_none() {
            let is_durable = |(line, event): &(LineId, EventIndex)| {
                let line = frontier.open_line(*line);
                *event <= index
                    && line.is_none_or(|line| line.stores().all(|store| store.event != *event))
            };
            return Ok(bad.lost.iter().any(is_durable));
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use powerfail_model::{FlushKind, PoolIndex};
    use powerfail_trace::{Meta, Pool, PoolKind, StackId, Thread, TraceWriter, WriterOptions};
    use proptest::prelude::*;

    use super::*;

    const RULES: Rules = Rules {
        domain: Domain::Adr,
        atomicity: Atomicity::Store,
    };
    const THREADS: u32 = 2;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Op {
        Store(u64),
        Past(u64),
        Flush(u64),
        Fence,
    }

    fn place(line: u64) -> Place {
        Place::new(PoolIndex(0), PoolOffset(64 * line))
    }

    fn event(op: Op) -> Event<'static> {
        let store = |kind, line| Event::Store {
            kind,
            at: place(line),
            bytes: &[1],
        };
        match op {
            Op::Store(line) => store(StoreKind::Plain, line),
            Op::Past(line) => store(StoreKind::NonTemporal, line),
            Op::Flush(line) => Event::Flush {
                kind: FlushKind::Clwb,
                at: place(line),
            },
            Op::Fence => Event::Fence(FenceKind::Sfence),
        }
    }

    fn trace_of(ops: &[(u32, Op)]) -> Trace {
        let mut bytes = Vec::new();
        let mut writer =
            TraceWriter::new(&mut bytes, &Meta::default(), WriterOptions::default()).unwrap();
        let pool = Pool {
            path: "/nowhere/pool".into(),
            kind: PoolKind::File,
            len_bytes: 4096,
            address: 0,
        };
        writer.define_pool(&pool).unwrap();
        for os_id in 0..THREADS {
            let thread = Thread { os_id, name: None };
            writer.define_thread(&thread).unwrap();
        }
        for (thread, op) in ops {
            let body = Body::Pm(event(*op));
            writer
                .append(ThreadIndex(*thread), StackId::NONE, body)
                .unwrap();
        }
        writer.finish(&[]).unwrap();
        Trace::from_bytes(bytes).unwrap()
    }

    fn line(number: u64) -> LineId {
        LineId {
            pool: PoolIndex(0),
            line: LineIndex(number),
        }
    }

    /// Whether a moment of the changed run permits a state: every moment is looked at.
    fn is_possible(ops: &[(u32, Op)], insertions: &[Insertion], bad: &BadState) -> bool {
        let mut frontier = Frontier::new(RULES, SparseImage::default());
        let permits = |frontier: &Frontier, index: u64| {
            let is_open = |(id, event): &(LineId, EventIndex)| {
                let line = frontier.open_line(*id);
                line.is_some_and(|line| line.stores().any(|store| store.event == *event))
            };
            index >= bad.with.0 && bad.lost.iter().all(is_open)
        };
        for (index, (thread, op)) in (0..).zip(ops) {
            let step = |thread, event| Step {
                index: EventIndex(index),
                thread,
                event,
            };
            frontier.apply(&step(ThreadIndex(*thread), event(*op)));
            if permits(&frontier, index) {
                return true;
            }
            for inserted in insertions.iter().filter(|it| it.after.0 == index) {
                frontier.apply(&step(inserted.thread, inserted.event));
                if permits(&frontier, index) {
                    return true;
                }
            }
        }
        false
    }

    fn ops() -> impl Strategy<Value = Vec<(u32, Op)>> {
        let line = 0_u64..3;
        let op = prop_oneof![
            3 => line.clone().prop_map(Op::Store),
            1 => line.clone().prop_map(Op::Past),
            2 => line.prop_map(Op::Flush),
            1 => Just(Op::Fence),
        ];
        prop::collection::vec((0..THREADS, op), 2..16)
    }

    fn stored(op: Op) -> Option<u64> {
        match op {
            Op::Store(line) | Op::Past(line) => Some(line),
            Op::Flush(_) | Op::Fence => None,
        }
    }

    proptest! {
        /// What is verified is impossible at every moment, wherever the fix is applied.
        #[test]
        fn what_is_verified_is_impossible(
            ops in ops(),
            lost in any::<prop::sample::Index>(),
            survivor in any::<prop::sample::Index>(),
            after in any::<prop::sample::Index>(),
        ) {
            let trace = trace_of(&ops);
            let stores: Vec<(u64, u64)> = (0..)
                .zip(&ops)
                .filter_map(|(index, (_, op))| Some((index, stored(*op)?)))
                .collect();
            prop_assume!(!stores.is_empty());
            let (event, number) = stores[lost.index(stores.len())];
            let survivor = EventIndex(survivor.index(ops.len()) as u64);
            let bad = BadState::new(vec![(line(number), EventIndex(event))], survivor);
            let after = EventIndex(after.index(ops.len()) as u64);
            let flush = durable_at_once(&trace, RULES.domain, EventIndex(event), &bad).unwrap();
            for inserted in [flush, fence_after(&trace, after).unwrap()] {
                if is_impossible(&trace, RULES, &inserted.all, &bad).unwrap() {
                    prop_assert!(!is_possible(&ops, &inserted.all, &bad), "{inserted:?}");
                }
            }
        }

        /// A flush and a fence right after a lost store always help if something came between it and the failure.
        #[test]
        fn a_flush_in_time_is_verified(ops in ops(), lost in any::<prop::sample::Index>()) {
            let trace = trace_of(&ops);
            let stores: Vec<(u64, u64)> = (0..)
                .zip(&ops)
                .filter_map(|(index, (_, op))| Some((index, stored(*op)?)))
                .collect();
            prop_assume!(!stores.is_empty());
            let (event, number) = stores[lost.index(stores.len())];
            let lost = vec![(line(number), EventIndex(event))];
            let last = EventIndex(ops.len() as u64);
            let bad = BadState::new(lost, last);
            let flush = durable_at_once(&trace, RULES.domain, EventIndex(event), &bad).unwrap();
            prop_assert!(is_impossible(&trace, RULES, &flush.all, &bad).unwrap());
        }
    }

    #[test]
    fn a_fence_helps_only_after_the_flush_and_in_its_thread() {
        let ops = [
            (0, Op::Store(0)),
            (0, Op::Flush(0)),
            (1, Op::Store(1)),
            (0, Op::Store(2)),
        ];
        let trace = trace_of(&ops);
        let bad = BadState::new(vec![(line(0), EventIndex(0))], EventIndex(3));
        let helps = |after: u64| {
            let fence = fence_after(&trace, EventIndex(after)).unwrap();
            is_impossible(&trace, RULES, &fence.all, &bad).unwrap()
        };
        let answers: Vec<bool> = (0..4).map(helps).collect();
        // Before the flush; after it; in the other thread; behind the survivor.
        assert_eq!(answers, [false, true, false, false]);
    }
}
