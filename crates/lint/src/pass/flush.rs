//! Flushes: whether they find anything new, and what they promise.

use powerfail_finding::Code;
use powerfail_model::{Domain, FlushKind, Place, PoolIndex};
use powerfail_trace::StackId;

use super::{Moment, Pass, words};
use crate::attribution::User;
use crate::lines::{LINE_BYTES, LineSlot, OpenSlot, flag as line_flag, writer};
use crate::stores::{END, Store, flag};
use crate::tally::Seen;
use crate::threads::{FlushCall, Promise, bit};

impl Pass<'_> {
    pub(super) fn flush(&mut self, now: Moment, kind: FlushKind, at: Place) {
        self.threads.get(now.thread).worked = true;
        if self.domain != Domain::Adr {
            return;
        }
        let number = at.offset.0 / LINE_BYTES;
        let is_requested = self.is_requested(now, at.pool, number);
        if at.offset.0 >= self.addresses.len_bytes(at.pool) {
            if is_requested {
                return;
            }
            self.end_call(now.thread);
            self.volatile_flush(now);
            return;
        }
        let slot = self.lines.touch(at.pool, number);
        let is_owed = self.is_owed(now, slot);
        let line = self.lines.line(slot);
        // What this thread stored another one may have flushed by chance, with what it stored itself.
        let useful = is_owed
            || line.has(line_flag::WRITTEN_SINCE_FLUSH)
            || line.writers & writer(now.thread) != 0
            || line.open().is_some_and(|open| {
                let open = self.lines.opened(open);
                open.dirty || open.flushers & bit(now.thread) == 0
            });
        if self.warnings {
            let extent = self.extent(now, at);
            self.note_neighbours(now, slot, extent);
        }
        if !is_requested {
            self.count_flush(now, at.pool, number, useful);
        }
        if self.misses_a_store(now, slot) {
            let user = self.users.of_order(now.stack);
            self.lucky_lines.insert(slot, (user.node(), now.thread));
        }
        self.flush_line(now, slot, Some((now.event, now.stack)));
        let is_users = self.users.of_order(now.stack).is_attributed();
        let line = self.lines.line_mut(slot);
        if is_users {
            line.flags |= line_flag::USER_FLUSHED;
        }
        if !is_requested {
            line.flags &= !line_flag::WRITTEN_SINCE_FLUSH;
            line.writers &= !writer(now.thread);
        }
        let open = line.open();
        match kind {
            FlushKind::Clflush => {
                self.make_durable(slot, now.event);
                self.count_matured();
            }
            FlushKind::Clflushopt | FlushKind::Clwb => {
                if let Some(open) = open {
                    self.promise(now, slot, open);
                }
            }
        }
    }

    /// Whether the last flush of a line was for the sake of other stores than this one can be. Then this one is what
    /// makes them durable as far as their code knows.
    fn is_owed(&mut self, now: Moment, slot: LineSlot) -> bool {
        let Some(&(flush, thread)) = self.lucky_lines.get(&slot) else {
            return false;
        };
        let is_another = thread == now.thread && flush != self.users.of_order(now.stack).node();
        if is_another {
            self.lucky_lines.remove(&slot);
        }
        is_another
    }

    /// Whether a flush covers stores of the thread that it is not made for.
    ///
    /// It is made for the innermost function on its call stack that has stored to the line, and for all that this
    /// function has called. What others stored beside that is covered only because it shares the line. If no such
    /// function has stored to it, the flush is made for all of it.
    fn misses_a_store(&mut self, now: Moment, slot: LineSlot) -> bool {
        let Some(open) = self.lines.line(slot).open() else {
            return false;
        };
        let opened = self.lines.opened(open);
        if !opened.dirty {
            return false;
        }
        // Where the functions that stored were called.
        let mut calls = std::mem::take(&mut self.calls);
        calls.clear();
        for store in self.stores.list(opened.stores) {
            if store.thread == now.thread && !store.has(flag::FLUSHED | flag::SILENT) {
                let user = self.users.of_store(store.stack).node();
                calls.extend(self.users.caller(user));
            }
        }
        calls.dedup();
        let misses = calls.len() > 1 && {
            let flush = self.users.of_order(now.stack).node();
            let mut around = self.users.callers(flush);
            let made_for = around.find(|call| calls.contains(call));
            made_for.is_some_and(|call| !calls.iter().all(|it| self.users.is_inside(*it, call)))
        };
        self.calls = calls;
        misses
    }

    /// Adds a flush to the call that it is a part of.
    pub(super) fn count_flush(&mut self, now: Moment, pool: PoolIndex, number: u64, useful: bool) {
        let user = self.users.of_order(now.stack);
        let thread = self.threads.get(now.thread);
        let user = if now.silent { User::NONE } else { user };
        if let Some(call) = &mut thread.call
            && call.user == user
            && call.pool == pool
            && call.next_line == number
        {
            call.next_line += 1;
            call.useful |= useful;
            return;
        }
        self.end_call(now.thread);
        self.threads.get(now.thread).call = Some(FlushCall {
            user,
            pool,
            next_line: number + 1,
            useful,
            first_event: now.event,
            first_stack: now.stack,
        });
    }

    pub(super) fn end_call(&mut self, thread: u32) {
        if let Some(call) = self.threads.get(thread).call.take()
            && call.user.is_attributed()
        {
            let seen = Seen::new(call.first_event, call.first_stack, call.user);
            self.flushes.add(seen, !call.useful);
        }
    }

    /// Ends the calls of all threads: the trace is over.
    pub(crate) fn end_calls(&mut self) {
        for thread in 0..self.threads.count() {
            self.end_call(thread);
            if let Some(fence) = self.threads.get(thread).idle_fence.take() {
                self.full_fences.add(fence.seen, fence.repeats);
            }
        }
    }

    /// Marks the stores of a line as flushed, by a flush or, without one, by a non-temporal store.
    pub(super) fn flush_line(
        &mut self,
        now: Moment,
        slot: LineSlot,
        flush: Option<(u64, StackId)>,
    ) {
        let line = self.lines.line_mut(slot);
        line.flags |= line_flag::EVER_FLUSHED;
        let locked_words = line.locked_words;
        let Some(open) = line.open() else {
            return;
        };
        let opened = self.lines.opened_mut(open);
        if !opened.dirty {
            return;
        }
        opened.dirty = false;
        let mut slot = opened.stores;
        let mut newest: Option<Store> = None;
        let mut other = None;
        while slot != END {
            let store = self.stores.get_mut(slot);
            if !store.has(flag::FLUSHED) {
                store.flags |= flag::FLUSHED;
                if let Some((event, stack)) = flush {
                    store.flush_event = event;
                    store.flush_stack = stack;
                }
                let fences = self.threads.get(store.thread).fences - store.fences;
                let site = store.stack.0 as usize;
                let timing = if fences == 0 {
                    &mut self.prompt_sites
                } else {
                    &mut self.late_sites
                };
                for sites in [&mut self.flushed_sites, timing] {
                    if let Some(seen) = sites.get_mut(site) {
                        *seen = true;
                    }
                }
                if self.warnings && flush.is_some() && !now.silent && !store.has(flag::SILENT) {
                    match newest {
                        None => newest = Some(*store),
                        Some(_) => other = Some(*store),
                    }
                    if fences >= self.dirty_fences && locked_words & words(store.live) == 0 {
                        self.late_stores.push(*store);
                    }
                }
            }
            slot = store.next;
        }
        if let (Some(newest), Some(other)) = (newest, other) {
            self.shared_flush(now, &other, &newest);
        }
        self.late_flush(now);
    }

    /// A flush covers stores after which their thread has fenced many times.
    fn late_flush(&mut self, now: Moment) {
        while let Some(store) = self.late_stores.pop() {
            if self.domain != Domain::Adr
                || store.flags & (flag::PLAIN | flag::TRANSACTION) != flag::PLAIN
            {
                continue;
            }
            let of_store = self.users.of_store(store.stack);
            let places = [
                Seen::new(store.event, store.stack, of_store),
                self.seen_flush(now),
            ];
            self.tallies.add(Code::LateFlush, &places);
        }
    }

    /// One flush covers several stores.
    pub(super) fn shared_flush(&mut self, now: Moment, first: &Store, last: &Store) {
        let user = self.users.of_order(now.stack);
        let of_first = self.users.of_store(first.stack);
        let of_last = self.users.of_store(last.stack);
        if user.is_attributed() && !self.users.same_frame(of_first.node(), of_last.node()) {
            let places = [
                Seen::new(now.event, now.stack, user),
                Seen::new(first.event, first.stack, of_first),
                Seen::new(last.event, last.stack, of_last),
            ];
            self.tallies.add(Code::SharedFlush, &places);
        }
    }

    /// The next fence of the thread makes durable what an open line holds now.
    pub(super) fn promise(&mut self, now: Moment, line: LineSlot, open: OpenSlot) {
        let opened = self.lines.opened_mut(open);
        if opened.flushers & bit(now.thread) != 0 {
            return;
        }
        opened.flushers |= bit(now.thread);
        let promises = &mut self.threads.get(now.thread).promises;
        match promises.last_mut() {
            Some(last) if last.line == line => last.up_to = now.event,
            _ => promises.push(Promise {
                line,
                up_to: now.event,
                stack: now.stack,
            }),
        }
    }

    pub(super) fn volatile_flush(&mut self, now: Moment) {
        let user = self.users.of_order(now.stack);
        let thread = self.threads.get(now.thread);
        thread.worked = true;
        if self.domain == Domain::Adr && user.is_attributed() && !now.silent {
            let seen = Seen::new(now.event, now.stack, user);
            self.volatile_flushes.add(seen, true);
        }
    }
}
