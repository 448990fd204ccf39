//! The pass over a trace. Each event costs what it touches; nothing is allocated for an event.

mod durable;
mod flush;
mod neighbour;
mod publish;
mod request;
mod store;
mod transactions;

use std::collections::BTreeMap;

use powerfail_model::{Domain, Event, PoolIndex};
use powerfail_trace::{
    AnnotatedRange, Annotation, Body, EventBlock, MarkKind, Record, Result, Scope, ScopeChange,
    StackId, Trace,
};
use rustc_hash::{FxHashMap, FxHashSet};

use self::neighbour::LuckyStore;
use crate::attribution::{Attribution, Symbols};
use crate::finish;
use crate::hit::Linted;
use crate::lines::{LINE_BYTES, LineSlot, Lines, flag as line_flag};
use crate::options::LintOptions;
use crate::publish::{AddressMap, Publish};
use crate::ranges::PoolRange;
use crate::stores::{Store, Stores};
use crate::tally::{Calls, Seen, Tallies};
use crate::threads::{Promise, Threads};
use crate::transactions::Transactions;

/// Finds all patterns of misuse in a trace, each distinct one once, in the order of codes and then
/// of first events. `progress` hears from time to time how many events are done.
pub fn lint(
    trace: &Trace,
    options: &LintOptions,
    symbols: &mut dyn Symbols,
    progress: &mut dyn FnMut(u64),
) -> Result<Linted> {
    let linted = lint_while(trace, options, symbols, &mut |done| {
        progress(done);
        true
    })?;
    Ok(linted.unwrap_or_default())
}

/// The same, while `progress` says that there is time. `None` if the trace was not read to its end: what was found until
/// then may be wrong, because a flush can follow.
pub fn lint_while(
    trace: &Trace,
    options: &LintOptions,
    symbols: &mut dyn Symbols,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<Linted>> {
    let mut pass = Pass::new(trace, options, symbols);
    pass.load_initial_images(trace)?;
    let mut block = EventBlock::default();
    let mut done = 0;
    for number in 0..trace.event_blocks().len() {
        trace.read_block_into(number, &mut block)?;
        for record in block.records() {
            pass.apply(&record?);
        }
        done += u64::from(block.event_count());
        if !progress(done) {
            return Ok(None);
        }
    }
    finish::hits(pass, trace).map(Some)
}

/// The state of the pass.
pub(crate) struct Pass<'t> {
    pub(crate) domain: Domain,
    warnings: bool,
    dirty_fences: u32,
    is_single_thread: bool,
    pub(crate) users: Attribution<'t>,
    pub(crate) lines: Lines,
    pub(crate) stores: Stores,
    pub(crate) threads: Threads,
    scope: Scope,
    /// Stores, flushes, fences and their like so far, and how many of them annotations leave out.
    events: u64,
    pub(crate) out_of_scope: u64,
    pub(crate) addresses: AddressMap,
    /// What syncs covered, by pool: first byte and byte after the last of ranges that do not touch.
    synced: FxHashMap<PoolIndex, BTreeMap<u64, u64>>,
    pub(crate) tallies: Tallies,
    pub(crate) flushes: Calls,
    pub(crate) fences: Calls,
    pub(crate) volatile_flushes: Calls,
    /// Fences that order threads as well.
    pub(crate) full_fences: Calls,
    /// Fences that completed flushes, by the node of the user's frame; and whether that is the fence itself.
    pub(crate) completing_fences: FxHashMap<StackId, bool>,
    /// Lines that were flushed along with what other code stored beside it: by which flush, of which thread. Who stored
    /// the rest still has to flush it.
    lucky_lines: FxHashMap<LineSlot, (StackId, u32)>,
    /// Stores that are durable, or will be, by a flush that is made for other bytes, by line.
    lucky_stores: BTreeMap<(PoolIndex, u64), Vec<LuckyStore>>,
    /// The flushes of those of them that are reported, by the node of the user's frame.
    pub(crate) neighbour_flushes: FxHashSet<StackId>,
    /// Stores that the present flush covers after many fences.
    late_stores: Vec<Store>,
    /// For each stack, whether a store of it was ever flushed.
    pub(crate) flushed_sites: Vec<bool>,
    /// By call stack: whether its stores were covered by a flush before their thread fenced, and whether only after that.
    pub(crate) prompt_sites: Vec<bool>,
    pub(crate) late_sites: Vec<bool>,
    /// Overwrites in lines that are not flushed yet.
    pub(crate) overwrites: FxHashMap<(LineSlot, StackId, StackId), ([Seen; 2], u64)>,
    /// Stores of pointers that are not durable, by their events.
    publishes: FxHashMap<u64, Publish>,
    /// Those of them that the present event made durable.
    matured: Vec<Publish>,
    promises: Vec<Promise>,
    calls: Vec<StackId>,
    pub(crate) transactions: Transactions,
}

/// The parts of a record that all rules need.
#[derive(Clone, Copy)]
struct Moment {
    event: u64,
    thread: u32,
    stack: StackId,
    /// Not reported: it is a part of the creation of a pool, or annotations leave it out.
    silent: bool,
}

impl<'t> Pass<'t> {
    fn new(trace: &'t Trace, options: &LintOptions, symbols: &'t mut dyn Symbols) -> Self {
        Self {
            domain: options.domain,
            warnings: options.warnings,
            dirty_fences: options.dirty_fences,
            is_single_thread: trace.threads().len() == 1,
            users: Attribution::new(trace, &options.trust, symbols),
            lines: Lines::new(trace.pools()),
            stores: Stores::default(),
            threads: Threads::default(),
            scope: Scope::new(),
            events: 0,
            out_of_scope: 0,
            addresses: AddressMap::new(trace.pools()),
            synced: FxHashMap::default(),
            tallies: Tallies::default(),
            flushes: Calls::default(),
            fences: Calls::default(),
            volatile_flushes: Calls::default(),
            full_fences: Calls::default(),
            completing_fences: FxHashMap::default(),
            lucky_lines: FxHashMap::default(),
            lucky_stores: BTreeMap::new(),
            neighbour_flushes: FxHashSet::default(),
            late_stores: Vec::new(),
            flushed_sites: vec![false; trace.stack_count() as usize + 1],
            prompt_sites: vec![false; trace.stack_count() as usize + 1],
            late_sites: vec![false; trace.stack_count() as usize + 1],
            overwrites: FxHashMap::default(),
            publishes: FxHashMap::default(),
            matured: Vec::new(),
            promises: Vec::new(),
            calls: Vec::new(),
            transactions: Transactions::default(),
        }
    }

    /// Lines with content in the beginning can be reached.
    fn load_initial_images(&mut self, trace: &Trace) -> Result<()> {
        let mut runs = trace.initial_images();
        while let Some(run) = runs.next_run()? {
            let mut rest = run.bytes;
            let mut offset = run.offset.0;
            while !rest.is_empty() {
                let room = (LINE_BYTES - offset % LINE_BYTES) as usize;
                let (piece, after) = rest.split_at(rest.len().min(room));
                if piece.iter().any(|byte| *byte != 0) {
                    let slot = self.lines.touch(run.pool, offset / LINE_BYTES);
                    self.lines.line_mut(slot).flags |= line_flag::REACHABLE;
                }
                offset += piece.len() as u64;
                rest = after;
            }
        }
        Ok(())
    }

    fn apply(&mut self, record: &Record<'_>) {
        let in_scope = self.scope.admits_findings(record.thread);
        let now = Moment {
            event: record.index.0,
            thread: record.thread.0,
            stack: record.stack,
            silent: !in_scope || self.threads.get(record.thread.0).in_creation,
        };
        // It is not an event of its own: flushes follow.
        if let Some(range) = flush_range(record) {
            self.threads.get(now.thread).flush_range = Some(range);
            return;
        }
        let is_flush = matches!(record.body, Body::Pm(Event::Flush { .. }));
        if !is_flush {
            let thread = self.threads.get(now.thread);
            thread.flush_range = None;
            if thread.call.is_some() {
                self.end_call(now.thread);
            }
        }
        self.end_idle_fence(now, &record.body);
        if !matches!(record.body, Body::Pm(Event::Fence(_))) {
            self.threads.get(now.thread).last_fence = None;
        }
        if matches!(record.body, Body::Pm(_) | Body::VolatileFlush { .. }) {
            self.events += 1;
            self.out_of_scope += u64::from(!in_scope);
        } else if self.scope.push(record) == Some(ScopeChange::FirstRegion) {
            self.forget();
        }
        match record.body {
            Body::Pm(Event::Store { kind, at, bytes }) => {
                self.threads.get(now.thread).stores += 1;
                self.store(now, kind, at, bytes);
            }
            Body::Pm(Event::Flush { kind, at }) => self.flush(now, kind, at),
            Body::Pm(Event::Fence(kind)) => self.fence_event(now, kind),
            Body::Pm(Event::Sync {
                pool,
                offset,
                len_bytes,
            }) => self.sync(now, pool, offset, len_bytes),
            Body::Pm(Event::Resize { pool, len_bytes }) => self.resize(pool, len_bytes),
            Body::VolatileFlush { .. } => self.volatile_flush(now),
            Body::Mark(mark) => {
                if let MarkKind::Annotation(annotation) = mark.kind {
                    self.request(now, annotation, &mark);
                    let thread = self.threads.get(now.thread);
                    match annotation {
                        Annotation::TransactionBegin => thread.in_transaction = true,
                        Annotation::TransactionEnd => thread.in_transaction = false,
                        Annotation::CreationBegin => thread.in_creation = true,
                        Annotation::CreationEnd => thread.in_creation = false,
                        _ => {}
                    }
                    self.transaction_mark(now, annotation, mark.value, mark.payload);
                }
            }
            Body::File(_) | Body::Mapped { .. } | Body::ThreadStart | Body::ThreadEnd => {}
        }
    }

    /// Nothing until now is of interest.
    fn forget(&mut self) {
        self.end_calls();
        self.tallies = Tallies::default();
        self.flushes = Calls::default();
        self.fences = Calls::default();
        self.volatile_flushes = Calls::default();
        self.full_fences = Calls::default();
        self.overwrites.clear();
        self.lucky_stores.clear();
        self.neighbour_flushes.clear();
        self.publishes.clear();
        self.transactions.forget();
        self.stores.silence();
        self.out_of_scope = self.events;
    }
}

/// The range that a library is about to flush for the user, if a record says so.
fn flush_range(record: &Record<'_>) -> Option<PoolRange> {
    let Body::Mark(mark) = record.body else {
        return None;
    };
    if mark.kind != MarkKind::Annotation(Annotation::FlushRange) {
        return None;
    }
    let range = AnnotatedRange::all(mark.payload).next()?;
    PoolRange::of_mark(range)
}

/// The bytes of a line from `start` on, as bits.
const fn mask(start: usize, len: usize) -> u64 {
    if len >= 64 {
        u64::MAX << start
    } else {
        ((1 << len) - 1) << start
    }
}

/// The aligned words in which some of these bytes lie, as bits.
pub(crate) fn words(mask: u64) -> u8 {
    mask.to_le_bytes()
        .iter()
        .enumerate()
        .fold(0, |words, (word, bytes)| {
            words | u8::from(*bytes != 0) << word
        })
}

/// At most eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
