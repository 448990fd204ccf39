//! Stores: which bytes they replace, and what they make reachable.

use powerfail_finding::Code;
use powerfail_model::{Domain, Place, StoreKind};
use powerfail_trace::StackId;

use super::{Moment, Pass, mask, word, words};
use crate::lines::{LINE_BYTES, LineSlot, flag as line_flag, writer};
use crate::stores::{END, NO_FLUSH, Store, flag};
use crate::tally::Seen;

impl Pass<'_> {
    pub(super) fn store(&mut self, now: Moment, kind: StoreKind, at: Place, bytes: &[u8]) {
        if kind == StoreKind::Locked {
            self.fence(now);
        }
        let user = self.users.of_store(now.stack);
        let thread = self.threads.get(now.thread);
        let mut flags = 0;
        if !user.is_attributed() || now.silent {
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
        self.transaction_store(now, at, bytes.len(), user);
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
        self.count_matured();
    }

    pub(super) fn store_piece(
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
        self.end_lucky(slot, mask);
        let line = self.lines.line_mut(slot);
        if kind == StoreKind::Locked {
            line.locked_words |= words(mask);
        }
        if kind != StoreKind::NonTemporal {
            line.flags |= line_flag::WRITTEN_SINCE_FLUSH;
            line.writers |= writer(now.thread);
        }
        let fences = self.threads.get(now.thread).fences;
        let mut new = Store {
            next: END,
            stack: now.stack,
            event: now.event,
            live: mask,
            written: mask,
            value,
            flush_event: NO_FLUSH,
            flush_stack: StackId::NONE,
            thread: now.thread,
            fences,
            flags,
        };
        let judged = self.domain == Domain::Adr
            && piece.len() <= 8
            && flags & (flag::PLAIN | flag::SILENT | flag::TRANSACTION) == flag::PLAIN
            && line.locked_words & words(mask) == 0;
        let open = self.lines.open(slot);
        let mut head = self.lines.opened(open).stores;
        if head != END {
            new.fences = self.overwrite(&mut head, slot, &new, judged);
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

    /// Takes from the older stores of a line the bytes that `new` replaces. Gives the number of fences since when they
    /// are dirty.
    pub(super) fn overwrite(
        &mut self,
        head: &mut u32,
        slot: LineSlot,
        new: &Store,
        judged: bool,
    ) -> u32 {
        let mut judged_store = None;
        let mut fences = new.fences;
        let publishes = &mut self.publishes;
        self.stores.retain(head, |old| {
            if old.live & new.written == 0 {
                return true;
            }
            if judged
                && !old.has(flag::FLUSHED)
                && old.thread == new.thread
                && old.written == new.written
                && old.live == old.written
                && old.value != 0
                && old.value != new.value
                && old.flags & (flag::PLAIN | flag::SILENT | flag::TRANSACTION) == flag::PLAIN
            {
                judged_store = Some(*old);
            }
            if old.thread == new.thread && !old.has(flag::FLUSHED) {
                fences = fences.min(old.fences);
            }
            if old.has(flag::PUBLISH) {
                publishes.remove(&old.event);
                old.flags &= !flag::PUBLISH;
            }
            old.live &= !new.written;
            old.live != 0
        });
        if let Some(old) = judged_store {
            self.dirty_overwrite(slot, &old, new);
        }
        fences
    }

    /// A value was replaced before it was flushed. That counts if the line is flushed at some time.
    pub(super) fn dirty_overwrite(&mut self, slot: LineSlot, old: &Store, new: &Store) {
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
}
