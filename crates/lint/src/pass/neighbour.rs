//! Stores that become durable by a flush which is made for other bytes of their line.
//!
//! A flush writes a whole line back, so what it is made for has to be inferred. That is known in three cases: a library
//! says which range it was asked to flush, the address of the flush lies inside of the line, or libpmemobj flushes its own
//! data. In all others a flush is made for all of its line.

use powerfail_finding::Code;
use powerfail_model::Place;
use powerfail_trace::StackId;

use super::{Moment, Pass, words};
use crate::lines::{LINE_BYTES, LineSlot};
use crate::ranges::{Cell, PoolRange};
use crate::stores::{Store, flag};
use crate::tally::Seen;

/// What a flush of a line is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of the line, as far as is known.
    Line,
    /// These bytes, which a library was asked to flush.
    Range(u64),
    /// What begins inside of the line, at the address of the flush. How far it reaches is not known.
    Rest(u64),
    /// What libpmemobj has stored for itself.
    Library,
}

impl Extent {
    const fn bytes(self) -> u64 {
        match self {
            Self::Line => u64::MAX,
            Self::Range(bytes) | Self::Rest(bytes) => bytes,
            Self::Library => 0,
        }
    }
}

/// A store that no flush is made for, so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LuckyStore {
    bytes: u64,
    store: Seen,
    flush: Seen,
}

impl Pass<'_> {
    /// What a flush is made for. Asked before the flush is counted as a part of a call.
    pub(super) fn extent(&mut self, now: Moment, at: Place) -> Extent {
        let user = self.users.of_order(now.stack);
        let cell = Cell::of(at.pool, at.offset);
        let thread = self.threads.get(now.thread);
        if !user.is_attributed() {
            let in_library = self.transactions.thread(now.thread).call.is_some();
            return if in_library && !thread.in_transaction {
                Extent::Library
            } else {
                Extent::Line
            };
        }
        let range = thread.flush_range.filter(|range| range.pool == at.pool);
        let bytes = range.map_or(0, |range| cell.mask(range.offset.0, range.end()));
        if let Some(range) = range.filter(|_| bytes != 0) {
            // A library flushes line after line, and each of them once.
            thread.flush_range = range.after((cell.line + 1) * LINE_BYTES);
            return Extent::Range(bytes);
        }
        let continues = thread.call.is_some_and(|call| {
            call.user == user && call.pool == at.pool && call.next_line == cell.line
        });
        match at.offset.0 % LINE_BYTES {
            0 => Extent::Line,
            _ if continues => Extent::Line,
            start => Extent::Rest(u64::MAX << start),
        }
    }

    /// A line is flushed: what the flush is not made for is durable only because it shares the line.
    pub(super) fn note_neighbours(&mut self, now: Moment, slot: LineSlot, extent: Extent) {
        self.forget_lucky_bytes(slot, extent.bytes());
        let Some(open) = self.lines.line(slot).open() else {
            return;
        };
        let opened = self.lines.opened(open);
        if extent == Extent::Line || !opened.dirty || now.silent {
            return;
        }
        let is_new =
            |store: &&Store| store.thread == now.thread && !store.has(flag::FLUSHED | flag::SILENT);
        let stores = self.stores.list(opened.stores).filter(is_new);
        let (meant, others): (Vec<Store>, Vec<Store>) =
            stores.partition(|store| store.live & extent.bytes() != 0);
        if meant.is_empty() && extent != Extent::Library {
            return;
        }
        let locked_words = self.lines.line(slot).locked_words;
        let calls: Vec<StackId> = meant.iter().filter_map(|it| self.call_of(it)).collect();
        for store in others {
            let is_judged = store.has(flag::PLAIN)
                && !store.has(flag::TRANSACTION)
                && locked_words & words(store.live) == 0;
            if is_judged && (!matches!(extent, Extent::Rest(_)) || self.misses(now, &calls, &store))
            {
                self.note_lucky(now, slot, &store);
            }
        }
    }

    /// Whether a flush that is made for stores of some calls is not made for another store: one of a function that is not
    /// the one which has stored and flushes, and is not called by it.
    fn misses(&mut self, now: Moment, calls: &[StackId], store: &Store) -> bool {
        let flush = self.users.of_order(now.stack).node();
        let own = self.call_of(store);
        let made_for = self.users.callers(flush).find(|call| calls.contains(call));
        made_for.is_some_and(|call| own.is_some_and(|own| !self.users.is_inside(own, call)))
    }

    /// Where the function that stored was called.
    fn call_of(&mut self, store: &Store) -> Option<StackId> {
        let user = self.users.of_store(store.stack).node();
        self.users.caller(user)
    }

    fn note_lucky(&mut self, now: Moment, slot: LineSlot, store: &Store) {
        let of_store = self.users.of_store(store.stack);
        let lucky = LuckyStore {
            bytes: store.live,
            store: Seen::new(store.event, store.stack, of_store),
            flush: self.seen_flush(now),
        };
        self.lucky_stores
            .entry(self.lines.id(slot))
            .or_default()
            .push(lucky);
    }

    /// A flush, at the user's line that it happens in, also if it is a library's own.
    pub(super) fn seen_flush(&self, now: Moment) -> Seen {
        Seen {
            event: now.event,
            stack: now.stack,
            user: self.users.nearest_user(now.stack),
        }
    }

    /// Bytes of a line are flushed for their own sake, or need no flush.
    fn forget_lucky_bytes(&mut self, slot: LineSlot, bytes: u64) {
        if self.lucky_stores.is_empty() {
            return;
        }
        if let Some(lucky) = self.lucky_stores.get_mut(&self.lines.id(slot)) {
            lucky.retain(|it| it.bytes & bytes == 0);
        }
    }

    /// All lines of a range are flushed for their own sake, or need no flush.
    pub(super) fn forget_lucky(&mut self, range: PoolRange) {
        if self.lucky_stores.is_empty() || range.len == 0 {
            return;
        }
        let first = Cell::of(range.pool, range.offset).line;
        let lines = (range.pool, first)..=(range.pool, (range.end() - 1) / LINE_BYTES);
        for (&(pool, line), lucky) in self.lucky_stores.range_mut(lines) {
            let bytes = Cell { pool, line }.mask(range.offset.0, range.end());
            lucky.retain(|it| it.bytes & bytes == 0);
        }
    }

    /// Bytes of a line are stored to: what they held had no flush of its own up to now.
    pub(super) fn end_lucky(&mut self, slot: LineSlot, bytes: u64) {
        if self.lucky_stores.is_empty() {
            return;
        }
        let tallies = &mut self.tallies;
        let flushes = &mut self.neighbour_flushes;
        if let Some(lucky) = self.lucky_stores.get_mut(&self.lines.id(slot)) {
            lucky.retain(|it| {
                let is_over = it.bytes & bytes != 0;
                if is_over {
                    tallies.add(Code::NeighbourFlush, &[it.store, it.flush]);
                    flushes.insert(it.flush.user);
                }
                !is_over
            });
        }
    }

    /// Counts what had no flush of its own up to the end.
    pub(crate) fn end_all_lucky(&mut self) {
        for lucky in std::mem::take(&mut self.lucky_stores)
            .into_values()
            .flatten()
        {
            self.tallies
                .add(Code::NeighbourFlush, &[lucky.store, lucky.flush]);
            self.neighbour_flushes.insert(lucky.flush.user);
        }
    }
}
