//! The pass over a trace. Each event costs what it touches; nothing is allocated for an event.

use std::collections::BTreeMap;

use powerfail_finding::Code;
use powerfail_model::{
    Domain, Event, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, StoreKind,
};
use powerfail_trace::{Body, EventBlock, MarkKind, Record, Result, StackId, Trace};
use rustc_hash::FxHashMap;

use crate::attribution::{Attribution, Symbols, User};
use crate::finish;
use crate::hit::Hit;
use crate::lines::{LINE_BYTES, LineSlot, Lines, OpenSlot, flag as line_flag};
use crate::options::LintOptions;
use crate::publish::{AddressMap, Publish};
use crate::stores::{END, NO_FLUSH, Store, Stores, flag};
use crate::tally::{Calls, Seen, Tallies};
use crate::threads::{FlushCall, Promise, Threads, bit};

/// Marks around transactions and the creation of pools, as the recorder writes them.
const TRANSACTION_BEGIN: u32 = 0x0100;
const TRANSACTION_END: u32 = 0x0101;
const CREATION_BEGIN: u32 = 0x0102;
const CREATION_END: u32 = 0x0103;

/// Finds all patterns of misuse in a trace, each distinct one once, in the order of codes and then
/// of first events. `progress` hears from time to time how many events are done.
pub fn lint(
    trace: &Trace,
    options: &LintOptions,
    symbols: &mut dyn Symbols,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Hit>> {
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
        progress(done);
    }
    finish::hits(pass, trace)
}

/// The state of the pass.
pub(crate) struct Pass<'t> {
    pub(crate) domain: Domain,
    warnings: bool,
    pub(crate) users: Attribution<'t>,
    pub(crate) lines: Lines,
    pub(crate) stores: Stores,
    threads: Threads,
    pub(crate) addresses: AddressMap,
    /// What syncs covered, by pool: first byte and byte after the last of ranges that do not touch.
    synced: FxHashMap<PoolIndex, BTreeMap<u64, u64>>,
    pub(crate) tallies: Tallies,
    pub(crate) flushes: Calls,
    pub(crate) fences: Calls,
    pub(crate) volatile_flushes: Calls,
    /// For each stack, whether a store of it was ever flushed.
    pub(crate) flushed_sites: Vec<bool>,
    /// Overwrites in lines that nobody has flushed yet.
    pub(crate) overwrites: FxHashMap<(LineSlot, StackId, StackId), ([Seen; 2], u64)>,
    /// Stores of pointers that are not durable, by their events.
    publishes: FxHashMap<u64, Publish>,
    /// Those of them that the present event made durable.
    matured: Vec<Publish>,
    promises: Vec<Promise>,
}

/// The parts of a record that all rules need.
#[derive(Clone, Copy)]
struct Moment {
    event: u64,
    thread: u32,
    stack: StackId,
}

impl<'t> Pass<'t> {
    fn new(trace: &'t Trace, options: &LintOptions, symbols: &'t mut dyn Symbols) -> Self {
        Self {
            domain: options.domain,
            warnings: options.warnings,
            users: Attribution::new(trace, &options.trust, symbols),
            lines: Lines::new(trace.pools()),
            stores: Stores::default(),
            threads: Threads::default(),
            addresses: AddressMap::new(trace.pools()),
            synced: FxHashMap::default(),
            tallies: Tallies::default(),
            flushes: Calls::default(),
            fences: Calls::default(),
            volatile_flushes: Calls::default(),
            flushed_sites: vec![false; trace.stack_count() as usize + 1],
            overwrites: FxHashMap::default(),
            publishes: FxHashMap::default(),
            matured: Vec::new(),
            promises: Vec::new(),
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
        let now = Moment {
            event: record.index.0,
            thread: record.thread.0,
            stack: record.stack,
        };
        let is_flush = matches!(record.body, Body::Pm(Event::Flush { .. }));
        if !is_flush && self.threads.get(now.thread).call.is_some() {
            self.end_call(now.thread);
        }
        match record.body {
            Body::Pm(Event::Store { kind, at, bytes }) => self.store(now, kind, at, bytes),
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
                if let MarkKind::Annotation { code } = mark.kind {
                    let thread = self.threads.get(now.thread);
                    match code {
                        TRANSACTION_BEGIN => thread.in_transaction = true,
                        TRANSACTION_END => thread.in_transaction = false,
                        CREATION_BEGIN => thread.in_creation = true,
                        CREATION_END => thread.in_creation = false,
                        _ => {}
                    }
                }
            }
            Body::ThreadStart | Body::ThreadEnd => {}
        }
    }

    fn store(&mut self, now: Moment, kind: StoreKind, at: Place, bytes: &[u8]) {
        if kind == StoreKind::Locked {
            self.fence(now);
        }
        let user = self.users.of_store(now.stack);
        let thread = self.threads.get(now.thread);
        let mut flags = 0;
        if !user.is_somebody() || thread.in_creation {
            flags |= flag::SILENT;
        }
        if thread.in_transaction {
            flags |= flag::TRANSACTION;
        }
        if kind == StoreKind::Plain {
            flags |= flag::PLAIN;
        }
        if kind == StoreKind::NonTemporal && !bytes.is_empty() {
            thread.worked = true;
        }
        if at.offset.0 % LINE_BYTES + bytes.len() as u64 > LINE_BYTES {
            flags |= flag::CROSSING;
        }
        let mut rest = bytes;
        let mut offset = at.offset.0;
        while !rest.is_empty() {
            let start = (offset % LINE_BYTES) as usize;
            let (piece, after) = rest.split_at(rest.len().min(LINE_BYTES as usize - start));
            let slot = self.lines.touch(at.pool, offset / LINE_BYTES);
            self.store_piece(now, kind, flags, slot, start, piece);
            if bytes.len() == 8
                && piece.len() == 8
                && start.is_multiple_of(8)
                && flags & (flag::SILENT | flag::TRANSACTION | flag::PLAIN) == flag::PLAIN
                && self.lines.line(slot).has(line_flag::REACHABLE)
            {
                self.note_publish(now, at.pool, slot, word(piece));
            }
            if self.domain == Domain::Eadr && kind != StoreKind::NonTemporal {
                self.make_durable(slot, now.event);
            }
            offset = offset.wrapping_add(piece.len() as u64);
            rest = after;
        }
        self.judge_matured();
    }

    fn store_piece(
        &mut self,
        now: Moment,
        kind: StoreKind,
        mut flags: u8,
        slot: LineSlot,
        start: usize,
        piece: &[u8],
    ) {
        let mask = mask(start, piece.len());
        let value = if piece.len() <= 8 { word(piece) } else { 0 };
        if piece.iter().any(|byte| *byte != 0) {
            flags |= flag::NONZERO;
        }
        let line = self.lines.line_mut(slot);
        if kind == StoreKind::Locked {
            line.locked_words |= words(mask);
        }
        if kind != StoreKind::NonTemporal {
            line.flags |= line_flag::WRITTEN_SINCE_FLUSH;
        }
        let new = Store {
            next: END,
            stack: now.stack,
            event: now.event,
            live: mask,
            written: mask,
            value,
            flush_event: NO_FLUSH,
            flush_stack: StackId::NONE,
            thread: now.thread,
            flags,
        };
        let judged = self.domain == Domain::Adr
            && piece.len() <= 8
            && flags & (flag::PLAIN | flag::SILENT | flag::TRANSACTION) == flag::PLAIN
            && line.locked_words & words(mask) == 0;
        let open = self.lines.open(slot);
        let mut head = self.lines.opened(open).stores;
        if head != END {
            self.overwrite(&mut head, slot, &new, judged);
        }
        let opened = self.lines.opened_mut(open);
        opened.stores = self.stores.add(Store { next: head, ..new });
        opened.flushers = 0;
        opened.dirty = true;
        if kind == StoreKind::NonTemporal && self.domain != Domain::PageCache {
            self.flush_line(now, slot, None);
            self.promise(now, slot, open);
        }
    }

    /// Takes from the older stores of a line the bytes that `new` replaces.
    fn overwrite(&mut self, head: &mut u32, slot: LineSlot, new: &Store, judged: bool) {
        let mut rewritten = false;
        let mut judged_store = None;
        let publishes = &mut self.publishes;
        self.stores.retain(head, |old| {
            if old.live & new.written == 0 {
                return true;
            }
            if !old.has(flag::FLUSHED) {
                rewritten |= old.has(flag::NONZERO);
                if judged
                    && old.thread == new.thread
                    && old.written == new.written
                    && old.live == old.written
                    && old.value != 0
                    && old.value != new.value
                    && old.flags & (flag::PLAIN | flag::SILENT | flag::TRANSACTION) == flag::PLAIN
                {
                    judged_store = Some(*old);
                }
            }
            if old.has(flag::PUBLISH) {
                publishes.remove(&old.event);
                old.flags &= !flag::PUBLISH;
            }
            old.live &= !new.written;
            old.live != 0
        });
        if rewritten {
            self.lines.line_mut(slot).flags |= line_flag::REWRITTEN;
        }
        if let Some(old) = judged_store {
            self.dirty_overwrite(slot, &old, new);
        }
    }

    /// A value was replaced before it was flushed. That counts if the line is flushed at some time.
    fn dirty_overwrite(&mut self, slot: LineSlot, old: &Store, new: &Store) {
        let places = [
            Seen::new(old.event, old.stack, self.users.of_store(old.stack)),
            Seen::new(new.event, new.stack, self.users.of_store(new.stack)),
        ];
        // A line of code that replaces its own value accumulates.
        if self.users.same_frame(places[0].user, places[1].user) {
            return;
        }
        if self.lines.line(slot).has(line_flag::EVER_FLUSHED) {
            self.tallies.add(Code::DirtyOverwrite, &places);
        } else {
            let key = (slot, places[0].user, places[1].user);
            self.overwrites.entry(key).or_insert((places, 0)).1 += 1;
        }
    }

    fn flush(&mut self, now: Moment, kind: FlushKind, at: Place) {
        self.threads.get(now.thread).worked = true;
        if self.domain != Domain::Adr {
            return;
        }
        if at.offset.0 >= self.addresses.len_bytes(at.pool) {
            self.end_call(now.thread);
            self.volatile_flush(now);
            return;
        }
        let number = at.offset.0 / LINE_BYTES;
        let slot = self.lines.touch(at.pool, number);
        let line = self.lines.line(slot);
        let useful = line.has(line_flag::WRITTEN_SINCE_FLUSH)
            || line.open().is_some_and(|open| {
                let open = self.lines.opened(open);
                open.dirty || open.flushers & bit(now.thread) == 0
            });
        self.count_flush(now, at.pool, number, useful);
        self.suspect_neighbours(now, at.pool, number);
        self.flush_line(now, slot, Some((now.event, now.stack)));
        let line = self.lines.line_mut(slot);
        line.flags &= !line_flag::WRITTEN_SINCE_FLUSH;
        let open = line.open();
        match kind {
            FlushKind::Clflush => {
                self.make_durable(slot, now.event);
                self.judge_matured();
            }
            FlushKind::Clflushopt | FlushKind::Clwb => {
                if let Some(open) = open {
                    self.promise(now, slot, open);
                }
            }
        }
    }

    /// Adds a flush to the call that it is a part of.
    fn count_flush(&mut self, now: Moment, pool: PoolIndex, number: u64, useful: bool) {
        let user = self.users.of_order(now.stack);
        let thread = self.threads.get(now.thread);
        let user = if thread.in_creation {
            User::NOBODY
        } else {
            user
        };
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

    fn end_call(&mut self, thread: u32) {
        if let Some(call) = self.threads.get(thread).call.take()
            && call.user.is_somebody()
        {
            let seen = Seen::new(call.first_event, call.first_stack, call.user);
            self.flushes.add(seen, !call.useful);
        }
    }

    /// Ends the calls of all threads: the trace is over.
    pub(crate) fn end_calls(&mut self) {
        for thread in 0..self.threads.count() {
            self.end_call(thread);
        }
    }

    /// Marks the neighbours of a line that is flushed, if this thread has just stored to them: they
    /// look like parts of one object.
    fn suspect_neighbours(&mut self, now: Moment, pool: PoolIndex, number: u64) {
        let last_fence = self.threads.get(now.thread).last_fence;
        for neighbour in [number.checked_sub(1), number.checked_add(1)] {
            let Some(slot) = neighbour.and_then(|number| self.lines.find(pool, number)) else {
                continue;
            };
            let line = self.lines.line(slot);
            if line.has(line_flag::EVER_FLUSHED) {
                continue;
            }
            let Some(open) = line.open() else {
                continue;
            };
            let head = self.lines.opened(open).stores;
            let recent = self.stores.list(head).any(|store| {
                store.thread == now.thread
                    && last_fence.is_none_or(|fence| store.event >= fence)
                    && !store.has(flag::FLUSHED)
            });
            if recent {
                self.lines.line_mut(slot).flags |= line_flag::NEIGHBOUR_FLUSHED;
            }
        }
    }

    /// Marks the stores of a line as flushed, by a flush or, without one, by a non-temporal store.
    fn flush_line(&mut self, now: Moment, slot: LineSlot, flush: Option<(u64, StackId)>) {
        let line = self.lines.line_mut(slot);
        line.flags |= line_flag::EVER_FLUSHED;
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
                if let Some(flushed) = self.flushed_sites.get_mut(store.stack.0 as usize) {
                    *flushed = true;
                }
                if self.warnings && flush.is_some() && !store.has(flag::SILENT) {
                    match newest {
                        None => newest = Some(*store),
                        Some(_) => other = Some(*store),
                    }
                }
            }
            slot = store.next;
        }
        if let (Some(newest), Some(other)) = (newest, other) {
            self.shared_flush(now, &other, &newest);
        }
    }

    /// One flush covers several stores.
    fn shared_flush(&mut self, now: Moment, first: &Store, last: &Store) {
        let user = self.users.of_order(now.stack);
        let of_first = self.users.of_store(first.stack);
        let of_last = self.users.of_store(last.stack);
        if user.is_somebody() && !self.users.same_frame(of_first.node(), of_last.node()) {
            let places = [
                Seen::new(now.event, now.stack, user),
                Seen::new(first.event, first.stack, of_first),
                Seen::new(last.event, last.stack, of_last),
            ];
            self.tallies.add(Code::SharedFlush, &places);
        }
    }

    /// The next fence of the thread makes durable what an open line holds now.
    fn promise(&mut self, now: Moment, line: LineSlot, open: OpenSlot) {
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

    fn fence_event(&mut self, now: Moment, kind: FenceKind) {
        let user = self.users.of_order(now.stack);
        let thread = self.threads.get(now.thread);
        let reported = user.is_somebody() && !thread.in_creation;
        let worked = thread.worked;
        if kind != FenceKind::Locked {
            thread.worked = false;
        }
        if reported && kind == FenceKind::Sfence && self.domain != Domain::PageCache {
            let seen = Seen::new(now.event, now.stack, user);
            self.fences.add(seen, !worked);
        }
        if reported && self.warnings && kind != FenceKind::Locked {
            self.unordered_flushes(now, user);
        }
        self.fence(now);
    }

    /// One fence completes the flushes of several lines.
    fn unordered_flushes(&mut self, now: Moment, user: User) {
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
            if of_flush.is_somebody() {
                places.push(Seen::new(promise.up_to, promise.stack, of_flush));
            }
        }
        self.tallies.add(Code::UnorderedFlushes, &places);
    }

    /// Completes what the thread has flushed.
    fn fence(&mut self, now: Moment) {
        let thread = self.threads.get(now.thread);
        thread.last_fence = Some(now.event);
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
        self.judge_matured();
    }

    /// The stores of a line up to an event are durable.
    fn make_durable(&mut self, slot: LineSlot, up_to: u64) {
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
        if reachable {
            self.lines.line_mut(slot).flags |= line_flag::REACHABLE;
        }
        if head == END {
            self.lines.close(open);
        } else {
            self.lines.opened_mut(open).stores = head;
        }
    }

    /// Remembers a pointer to what this thread has stored and not made durable.
    fn note_publish(&mut self, now: Moment, pool: PoolIndex, line: LineSlot, value: u64) {
        let target = match self.addresses.at_address(value) {
            Some(target) => target,
            None => match self.addresses.at_offset(pool, value) {
                Some(offset) => (pool, offset),
                None => return,
            },
        };
        let Some(target_line) = self.lines.find(target.0, target.1 / LINE_BYTES) else {
            return;
        };
        let Some(open) = self.lines.line(target_line).open() else {
            return;
        };
        if target_line == line {
            return;
        }
        let byte = 1 << (target.1 % LINE_BYTES);
        let data = self
            .stores
            .list(self.lines.opened(open).stores)
            .find(|store| {
                store.live & byte != 0 && store.thread == now.thread && !store.has(flag::SILENT)
            });
        let Some(data) = data else {
            return;
        };
        let publish = Publish {
            line,
            event: now.event,
            stack: now.stack,
            target: target_line,
            data_event: data.event,
            data_stack: data.stack,
        };
        if let Some(open) = self.lines.line(publish.line).open() {
            let newest = self.lines.opened(open).stores;
            self.stores.get_mut(newest).flags |= flag::PUBLISH;
            self.publishes.insert(now.event, publish);
        }
    }

    /// Pointers became durable: is what they point to?
    fn judge_matured(&mut self) {
        while let Some(publish) = self.matured.pop() {
            let Some(open) = self.lines.line(publish.target).open() else {
                continue;
            };
            let mut stores = self.stores.list(self.lines.opened(open).stores);
            if stores.any(|store| store.event == publish.data_event) {
                let data = self.users.of_store(publish.data_stack);
                let pointer = self.users.of_store(publish.stack);
                let places = [
                    Seen::new(publish.data_event, publish.data_stack, data),
                    Seen::new(publish.event, publish.stack, pointer),
                ];
                self.tallies.add(Code::PublishedBeforeDurable, &places);
            }
        }
    }

    fn sync(&mut self, now: Moment, pool: PoolIndex, offset: PoolOffset, len_bytes: u64) {
        let unit = self.domain.line_bytes() as u64;
        let mut useful = false;
        if len_bytes > 0 {
            let start = offset.0 / unit * unit;
            let last = offset.0.saturating_add(len_bytes - 1) / unit;
            let end = last.saturating_add(1).saturating_mul(unit);
            self.note_synced(pool, start, end);
            for slot in self.open_lines_in(pool, start / LINE_BYTES, (end - 1) / LINE_BYTES) {
                useful = true;
                self.flush_line(now, slot, Some((now.event, now.stack)));
                self.lines.line_mut(slot).flags &= !line_flag::WRITTEN_SINCE_FLUSH;
                self.make_durable(slot, now.event);
            }
        }
        let user = self.users.of_store(now.stack);
        let thread = self.threads.get(now.thread);
        thread.worked = false;
        if self.domain == Domain::PageCache && user.is_somebody() && !thread.in_creation {
            self.flushes
                .add(Seen::new(now.event, now.stack, user), !useful);
        }
        self.fence(now);
        self.judge_matured();
    }

    fn open_lines_in(&self, pool: PoolIndex, first: u64, last: u64) -> Vec<LineSlot> {
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

    fn note_synced(&mut self, pool: PoolIndex, mut start: u64, mut end: u64) {
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
    fn resize(&mut self, pool: PoolIndex, len_bytes: u64) {
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

    fn volatile_flush(&mut self, now: Moment) {
        let user = self.users.of_order(now.stack);
        let thread = self.threads.get(now.thread);
        thread.worked = true;
        if self.domain == Domain::Adr && user.is_somebody() && !thread.in_creation {
            let seen = Seen::new(now.event, now.stack, user);
            self.volatile_flushes.add(seen, true);
        }
    }
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
