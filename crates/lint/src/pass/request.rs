//! What a program says by client requests of pmemcheck.
//!
//! Flushes that follow such a request count as flushes, and are not judged: they may be next to
//! instructions of the same library that do the work, before them or after.

use powerfail_model::{PoolIndex, PoolOffset};
use powerfail_protocol::request::pmemcheck;
use powerfail_trace::{AnnotatedRange, Annotation, Mark};

use super::{Moment, Pass, mask};
use crate::lines::{LINE_BYTES, LineSlot};
use crate::ranges::PoolRange;
use crate::stores::flag;
use crate::threads::Requested;

impl Pass<'_> {
    pub(super) fn request(&mut self, now: Moment, annotation: Annotation, mark: &Mark<'_>) {
        match annotation {
            Annotation::ClientRequest if mark.value == pmemcheck::FLUSH => {
                let lines = AnnotatedRange::all(mark.payload).next().and_then(|range| {
                    let last = range.offset.checked_add(range.len.checked_sub(1)?)?;
                    Some(Requested {
                        pool: range.pool?,
                        next_line: range.offset / LINE_BYTES,
                        last_line: last / LINE_BYTES,
                    })
                });
                self.threads.get(now.thread).requested = lines;
            }
            Annotation::ClientRequest if mark.value == pmemcheck::IGNORE => {
                for range in AnnotatedRange::all(mark.payload).filter_map(PoolRange::of_mark) {
                    self.transactions.ignored.insert(range, ());
                }
            }
            Annotation::ClientRequest
                if [pmemcheck::REMOVE, pmemcheck::REMOVE_N].contains(&mark.value) =>
            {
                if let Some(transaction) = &mut self.transactions.thread(now.thread).transaction {
                    let ranges = AnnotatedRange::all(mark.payload).filter_map(PoolRange::of_mark);
                    ranges.for_each(|range| transaction.uncover(range));
                }
            }
            Annotation::Clean => {
                for range in AnnotatedRange::all(mark.payload) {
                    self.clean(range, true);
                }
            }
            _ => {}
        }
    }

    /// Whether a flush of a line is one that a request has announced.
    pub(super) fn is_requested(&mut self, now: Moment, pool: PoolIndex, number: u64) -> bool {
        let requested = &mut self.threads.get(now.thread).requested;
        let Some(lines) = requested else {
            return false;
        };
        if lines.pool != pool || lines.next_line != number {
            *requested = None;
            return false;
        }
        if number == lines.last_line {
            *requested = None;
        } else {
            lines.next_line += 1;
        }
        true
    }

    /// The stores to a range belong to an object that is gone: they need not become durable.
    pub(super) fn forget_stores(&mut self, range: PoolRange) {
        let range = AnnotatedRange {
            pool: Some(range.pool),
            offset: range.offset.0,
            len: range.len,
        };
        self.clean(range, false);
    }

    /// The stores to a range need no flush: from here on they are as good as durable, and something may refer to
    /// them, unless they are `lasting` no longer.
    fn clean(&mut self, range: AnnotatedRange, lasting: bool) {
        let (Some(pool), Some(end)) = (range.pool, range.offset.checked_add(range.len)) else {
            return;
        };
        if range.len == 0 {
            return;
        }
        self.forget_lucky(PoolRange {
            pool,
            offset: PoolOffset(range.offset),
            len: range.len,
        });
        let first = range.offset / LINE_BYTES;
        for slot in self.open_lines_in(pool, first, (end - 1) / LINE_BYTES) {
            let start = self.lines.id(slot).1 * LINE_BYTES;
            let from = range.offset.max(start);
            let to = end.min(start + LINE_BYTES);
            self.clean_bytes(
                slot,
                mask((from - start) as usize, (to - from) as usize),
                lasting,
            );
        }
    }

    fn clean_bytes(&mut self, slot: LineSlot, bytes: u64, lasting: bool) {
        let Some(open) = self.lines.line(slot).open() else {
            return;
        };
        let mut head = self.lines.opened(open).stores;
        let mut reachable = false;
        let publishes = &mut self.publishes;
        self.stores.retain(&mut head, |store| {
            if store.live & bytes == 0 {
                return true;
            }
            reachable |= lasting && store.has(flag::NONZERO);
            store.live &= !bytes;
            if store.live == 0 && store.has(flag::PUBLISH) {
                publishes.remove(&store.event);
            }
            store.live != 0
        });
        self.keep_stores(slot, open, head, reachable);
    }
}
