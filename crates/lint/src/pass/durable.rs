//! What becomes durable, or vanishes: fences, syncs, and files that are cut.

use powerfail_finding::Code;
use powerfail_model::{Domain, Event, FenceKind, PoolIndex, PoolOffset, StoreKind};
use powerfail_trace::Body;

use super::{Moment, Pass, mask};
use crate::attribution::User;
use crate::lines::{LINE_BYTES, LineSlot, OpenSlot, flag as line_flag};
use crate::ranges::PoolRange;
use crate::stores::{END, flag};
use crate::tally::Seen;
use crate::threads::{IdleFence, bit};

impl Pass<'_> {
    pub(super) fn fence_event(&mut self, now: Moment, kind: FenceKind) {
        let user = self.users.of_order(now.stack);
        let reported = user.is_attributed() && !now.silent;
        let thread = self.threads.get(now.thread);
        let worked = thread.worked;
        let before = thread.last_fence.take();
        if user.is_attributed() && !thread.promises.is_empty() {
            let is_site = user.node() == now.stack;
            self.completing_fences.insert(user.node(), is_site);
        }
        if kind != FenceKind::Locked {
            thread.worked = false;
            thread.fences += u32::from(reported && worked);
            thread.last_fence = Some(user).filter(|_| reported);
        }
        if reported && kind == FenceKind::Sfence && self.domain != Domain::PageCache {
            let seen = Seen::new(now.event, now.stack, user);
            self.fences.add(seen, !worked);
        }
        if reported && kind == FenceKind::Mfence && self.domain == Domain::Adr {
            let seen = Seen::new(now.event, now.stack, user);
            if worked {
                self.full_fences.add(seen, false);
            } else {
                let repeats = self.is_single_thread
                    && before.is_some_and(|before| self.is_same_function(before, user));
                self.threads.get(now.thread).idle_fence = Some(IdleFence { seen, repeats });
            }
        }
        if reported && self.warnings && kind != FenceKind::Locked {
            self.unordered_flushes(now, user);
        }
        self.fence(now);
    }

    /// A fence that orders threads as well was the last event of its thread, and had nothing to wait for. If the same
    /// function flushes next, the fence is meant for that, and useless: a line's own stores come before its flush anyway.
    /// Where there is no other thread, it is useless as well if the same function has just fenced, or if it stores next: a
    /// fence makes nothing durable that was not flushed. Otherwise it may be there for other threads.
    #[inline]
    pub(super) fn end_idle_fence(&mut self, now: Moment, next: &Body<'_>) {
        let Some(IdleFence { seen, repeats }) = self.threads.get(now.thread).idle_fence.take()
        else {
            return;
        };
        let follower = match next {
            Body::Pm(Event::Flush { .. }) => self.users.of_order(now.stack),
            Body::Pm(Event::Store {
                kind: StoreKind::Plain,
                ..
            }) if self.is_single_thread && !now.silent => self.users.of_store(now.stack),
            _ => User::NONE,
        };
        let fence = self.users.of_order(seen.stack);
        let is_leading = follower.is_attributed() && self.is_same_function(fence, follower);
        self.full_fences.add(seen, is_leading || repeats);
    }

    /// Whether two flushes or fences are those of one function, or of functions that it calls.
    fn is_same_function(&self, one: User, other: User) -> bool {
        /// How many calls may lie between the function and its fence or flush.
        const CALLS_MAX: usize = 2;
        let mut around = self.users.callers(one.node()).take(CALLS_MAX);
        around.any(|call| {
            let mut others = self.users.callers(other.node()).take(CALLS_MAX);
            others.any(|other| other == call)
        })
    }

    /// One fence completes the flushes of several lines.
    pub(super) fn unordered_flushes(&mut self, now: Moment, user: User) {
        let promises = &self.threads.get(now.thread).promises;
        let (Some(first), Some(last)) = (promises.first().copied(), promises.last().copied())
        else {
            return;
        };
        if first.line == last.line {
            return;
        }
        let mut places = vec![Seen::new(now.event, now.stack, user)];
        for promise in [first, last] {
            let of_flush = self.users.of_store(promise.stack);
            if of_flush.is_attributed() {
                places.push(Seen::new(promise.up_to, promise.stack, of_flush));
            }
        }
        self.tallies.add(Code::UnorderedFlushes, &places);
    }

    /// Completes what the thread has flushed.
    pub(super) fn fence(&mut self, now: Moment) {
        let thread = self.threads.get(now.thread);
        if thread.promises.is_empty() {
            return;
        }
        let mut promises = std::mem::take(&mut self.promises);
        std::mem::swap(&mut promises, &mut thread.promises);
        for promise in promises.drain(..) {
            if let Some(open) = self.lines.line(promise.line).open() {
                self.lines.opened_mut(open).flushers &= !bit(now.thread);
            }
            self.make_durable(promise.line, promise.up_to);
        }
        self.promises = promises;
        self.count_matured();
    }

    /// The stores of a line up to an event are durable.
    pub(super) fn make_durable(&mut self, slot: LineSlot, up_to: u64) {
        let Some(open) = self.lines.line(slot).open() else {
            return;
        };
        let mut head = self.lines.opened(open).stores;
        let mut reachable = false;
        let (publishes, matured) = (&mut self.publishes, &mut self.matured);
        self.stores.retain(&mut head, |store| {
            if store.event > up_to {
                return true;
            }
            reachable |= store.has(flag::NONZERO);
            if store.has(flag::PUBLISH) {
                matured.extend(publishes.remove(&store.event));
            }
            false
        });
        self.keep_stores(slot, open, head, reachable);
    }

    /// Of the stores of an open line these are left. If one with content is gone, something may refer to the line.
    pub(super) fn keep_stores(
        &mut self,
        slot: LineSlot,
        open: OpenSlot,
        head: u32,
        reachable: bool,
    ) {
        if reachable {
            self.lines.line_mut(slot).flags |= line_flag::REACHABLE;
        }
        if head == END {
            self.lines.close(open);
        } else {
            self.lines.opened_mut(open).stores = head;
        }
    }

    pub(super) fn sync(
        &mut self,
        now: Moment,
        pool: PoolIndex,
        offset: PoolOffset,
        len_bytes: u64,
    ) {
        let unit = self.domain.line_bytes() as u64;
        let mut useful = false;
        if len_bytes > 0 {
            let start = offset.0 / unit * unit;
            let last = offset.0.saturating_add(len_bytes - 1) / unit;
            let end = last.saturating_add(1).saturating_mul(unit);
            self.note_synced(pool, start, end);
            self.forget_lucky(PoolRange {
                pool,
                offset: PoolOffset(start),
                len: end - start,
            });
            for slot in self.open_lines_in(pool, start / LINE_BYTES, (end - 1) / LINE_BYTES) {
                useful = true;
                self.flush_line(now, slot, Some((now.event, now.stack)));
                let line = self.lines.line_mut(slot);
                line.flags &= !line_flag::WRITTEN_SINCE_FLUSH;
                line.writers = 0;
                self.make_durable(slot, now.event);
            }
        }
        let user = self.users.of_store(now.stack);
        let thread = self.threads.get(now.thread);
        thread.worked = false;
        if self.domain == Domain::PageCache && user.is_attributed() && !now.silent {
            self.flushes
                .add(Seen::new(now.event, now.stack, user), !useful);
        }
        self.fence(now);
        self.count_matured();
    }

    pub(super) fn open_lines_in(&self, pool: PoolIndex, first: u64, last: u64) -> Vec<LineSlot> {
        if last - first < self.lines.open_count() as u64 {
            (first..=last)
                .filter_map(|number| self.lines.find(pool, number))
                .filter(|&slot| self.lines.line(slot).open().is_some())
                .collect()
        } else {
            let open = self.lines.open_slots();
            open.map(|open| self.lines.opened(open).line)
                .filter(|&slot| {
                    let (in_pool, number) = self.lines.id(slot);
                    in_pool == pool && (first..=last).contains(&number)
                })
                .collect()
        }
    }

    pub(super) fn note_synced(&mut self, pool: PoolIndex, mut start: u64, mut end: u64) {
        let ranges = self.synced.entry(pool).or_default();
        while let Some((&from, &to)) = ranges.range(..=end).next_back()
            && to >= start
        {
            ranges.remove(&from);
            start = start.min(from);
            end = end.max(to);
        }
        ranges.insert(start, end);
    }

    /// Whether a line was flushed at any time, by an instruction or by the kernel.
    pub(crate) fn ever_flushed(&self, slot: LineSlot) -> bool {
        if self.lines.line(slot).has(line_flag::EVER_FLUSHED) {
            return true;
        }
        let (pool, number) = self.lines.id(slot);
        let start = number * LINE_BYTES;
        self.synced
            .get(&pool)
            .and_then(|ranges| ranges.range(..=start).next_back())
            .is_some_and(|(_, end)| *end > start)
    }

    /// What lay beyond a new end is gone, durable or not.
    pub(super) fn resize(&mut self, pool: PoolIndex, len_bytes: u64) {
        let before = self.addresses.resize(pool, len_bytes);
        if len_bytes >= before {
            return;
        }
        for slot in self.open_lines_in(pool, len_bytes / LINE_BYTES, u64::MAX / LINE_BYTES) {
            let Some(open) = self.lines.line(slot).open() else {
                continue;
            };
            let start = self.lines.id(slot).1 * LINE_BYTES;
            let kept = mask(0, len_bytes.saturating_sub(start) as usize);
            let mut head = self.lines.opened(open).stores;
            let publishes = &mut self.publishes;
            self.stores.retain(&mut head, |store| {
                store.live &= kept;
                if store.live == 0 && store.has(flag::PUBLISH) {
                    publishes.remove(&store.event);
                }
                store.live != 0
            });
            if head == END {
                self.lines.close(open);
            } else {
                self.lines.opened_mut(open).stores = head;
            }
        }
    }
}
