//! Stores that look as if they commit what was stored before them.
//!
//! A program that makes data valid by one store orders that store on both sides: what its thread stored before is
//! durable before it, and it is durable before its thread stores anything else. Such stores of a word
//! that the hardware keeps whole are *candidates*; libraries that copy store such a word in two parts. Many are plain data that is persisted field by field; which
//! of them decide anything, only recovery shows.

use std::collections::BTreeMap;

use powerfail_model::{
    Domain, Event, EventIndex, Frontier, LineId, LineIndex, Rules, Step, StoreKind, ThreadIndex,
};
use powerfail_trace::{Record, StackId};
use rustc_hash::FxHashMap;

use powerfail_lint::ranges::PoolRange;

/// Bytes of a pool that look like a commit variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where.
    pub at: PoolRange,
    /// The stores to them that are ordered on both sides, in the order of the trace.
    pub writes: Vec<OrderedStore>,
}

/// A store that is ordered on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedStore {
    /// The store; of several parts, the last one.
    pub store: EventIndex,
    /// Its call stack.
    pub stack: StackId,
    /// Its thread.
    pub thread: ThreadIndex,
    /// The event that made it durable: if the power fails just before it, the store may be lost.
    pub durable: EventIndex,
    /// All that its thread had stored was durable; else only the last of it was.
    pub follows_all: bool,
}

/// Finds candidates in one pass. An event costs what it touches.
#[derive(Debug)]
pub struct Candidates {
    frontier: Frontier<()>,
    domain: Domain,
    threads: BTreeMap<ThreadIndex, Thread>,
    /// Stores that are not durable, by line.
    open: FxHashMap<LineId, Vec<(EventIndex, ThreadIndex)>>,
    found: BTreeMap<PoolRange, Vec<OrderedStore>>,
    /// Lines whose floors an event has raised; empty between events.
    risen: Vec<(LineId, EventIndex)>,
}

/// What is known of a thread.
#[derive(Debug, Default)]
struct Thread {
    /// Its last store, and in how many lines that is not durable.
    last: Option<EventIndex>,
    last_open: usize,
    /// How many of its stores are not durable, counted in each line.
    open: usize,
    /// The last store, if it may be a candidate.
    probation: Option<Probation>,
}

#[derive(Clone, Copy, Debug)]
struct Probation {
    at: PoolRange,
    stack: StackId,
    follows_all: bool,
    durable: Option<EventIndex>,
}

/// The longest store that the hardware keeps whole.
const WORD: u64 = 8;

fn is_word(at: &PoolRange) -> bool {
    at.len.is_power_of_two() && at.offset.0.is_multiple_of(at.len)
}

impl Candidates {
    /// Before the first record of a trace.
    pub fn new(rules: Rules) -> Self {
        Self {
            frontier: Frontier::new(rules, ()),
            domain: rules.domain,
            threads: BTreeMap::new(),
            open: FxHashMap::default(),
            found: BTreeMap::new(),
            risen: Vec::new(),
        }
    }

    /// Moves over one record.
    pub fn apply(&mut self, record: &Record<'_>) {
        let Some(step) = record.step() else {
            return;
        };
        let mut risen = std::mem::take(&mut self.risen);
        self.frontier
            .apply_and(&step, |line, event| risen.push((line, event)));
        for (line, event) in risen.drain(..) {
            self.rise(line, event, step.index);
        }
        self.risen = risen;
        if let Event::Store { kind, at, bytes } = step.event
            && !bytes.is_empty()
        {
            let at = PoolRange {
                pool: at.pool,
                offset: at.offset,
                len: bytes.len() as u64,
            };
            self.store(&step, record.stack, kind, at);
        }
    }

    /// All candidates, by pool and offset.
    pub fn finish(mut self) -> Vec<Candidate> {
        let threads: Vec<ThreadIndex> = self.threads.keys().copied().collect();
        for thread in threads {
            self.conclude(thread);
        }
        let found = self.found.into_iter();
        found.map(|(at, writes)| Candidate { at, writes }).collect()
    }

    /// Stores to a line up to one are durable, since `now`.
    fn rise(&mut self, line: LineId, event: EventIndex, now: EventIndex) {
        let Some(stores) = self.open.get_mut(&line) else {
            return;
        };
        let threads = &mut self.threads;
        stores.retain(|(store, thread)| {
            if *store > event {
                return true;
            }
            let thread = threads.entry(*thread).or_default();
            thread.open -= 1;
            if thread.last == Some(*store) {
                thread.last_open -= 1;
                if let Some(probation) = &mut thread.probation {
                    probation.durable = Some(now);
                }
            }
            false
        });
        if stores.is_empty() {
            self.open.remove(&line);
        }
    }

    fn store(&mut self, step: &Step<'_>, stack: StackId, kind: StoreKind, at: PoolRange) {
        let is_part = self.extends(step.thread, at);
        if !is_part {
            self.conclude(step.thread);
        }
        // Durable in its order, whatever is around it: that says nothing.
        let is_sure = self.domain == Domain::Eadr && kind != StoreKind::NonTemporal;
        let thread = self.threads.entry(step.thread).or_default();
        let is_fenced = thread.last.is_some() && thread.last_open == 0;
        let may_be = at.len <= WORD && is_fenced && !is_sure && kind != StoreKind::System;
        if !is_part {
            thread.probation = may_be.then_some(Probation {
                at,
                stack,
                follows_all: thread.open == 0,
                durable: None,
            });
        }
        thread.last = Some(step.index);
        thread.last_open = 0;
        if is_sure {
            return;
        }
        let line_bytes = self.domain.line_bytes() as u64;
        for line in at.offset.0 / line_bytes..=(at.offset.0 + (at.len - 1)) / line_bytes {
            let line = LineId {
                pool: at.pool,
                line: LineIndex(line),
            };
            thread.last_open += 1;
            thread.open += 1;
            let stores = self.open.entry(line).or_default();
            stores.push((step.index, step.thread));
        }
    }

    /// Whether a store is the next part of the word that its thread stores; it is then.
    fn extends(&mut self, thread: ThreadIndex, part: PoolRange) -> bool {
        let known = self.threads.get_mut(&thread);
        let Some(probation) = known.and_then(|it| it.probation.as_mut()) else {
            return false;
        };
        let at = &mut probation.at;
        let is_behind = at.pool == part.pool && at.offset.0 + at.len == part.offset.0;
        let is_next = probation.durable.is_none() && is_behind && at.len + part.len <= WORD;
        if is_next {
            at.len += part.len;
        }
        is_next
    }

    /// A thread stores something else, or nothing any more.
    fn conclude(&mut self, thread: ThreadIndex) {
        let Some(known) = self.threads.get_mut(&thread) else {
            return;
        };
        if let Some(probation) = known.probation.take()
            && is_word(&probation.at)
            && let (Some(durable), Some(store)) = (probation.durable, known.last)
        {
            self.found
                .entry(probation.at)
                .or_default()
                .push(OrderedStore {
                    store,
                    stack: probation.stack,
                    thread,
                    durable,
                    follows_all: probation.follows_all,
                });
        }
    }
}
