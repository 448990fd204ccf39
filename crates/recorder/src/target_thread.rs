//! A thread of the target, and how far its chunks have been read.

use powerfail_model::ThreadIndex;
use powerfail_protocol::chunk;
use powerfail_protocol::shared::{CHUNKS_ADDRESS, chunk_address, chunk_of};

use crate::clock::Stamp;
use crate::process::ProcessIndex;
use crate::queue::{Position, Queue};
use crate::reader::{Open, Scan};
use crate::shared_file::{ChunkIndex, ChunkOwner, SharedFile, SlotIndex};

/// Whether a thread may still append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    /// It may.
    Living,
    /// It has announced that it does not, after the chunks were examined.
    Ending,
    /// It does not, and everything that it appended is visible.
    Ended,
    /// All that it appended has been read.
    Read,
    /// And written.
    Written,
}

/// What the trace has of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InTrace {
    Nothing,
    Started,
    Ended,
}

/// A retired chunk in which code that a signal interrupted may still commit.
#[derive(Debug)]
struct Held {
    chunk: ChunkIndex,
    sequence: u64,
    open: Vec<Open>,
    /// Records that are committed there later are not older than this.
    bound: Stamp,
    /// Where the cursor was when the thread was first seen in no handler.
    cursor_outside: Option<u64>,
}

/// The newest record of a chunk in use.
#[derive(Clone, Copy, Debug)]
struct LastLive {
    chunk: ChunkIndex,
    offset: u64,
    stamp: Stamp,
    /// Its thread holds a store lock for it: it must not be written yet.
    is_locked: bool,
}

/// A thread of the target.
#[derive(Debug)]
pub(crate) struct TargetThread {
    /// In the trace.
    pub(crate) index: ThreadIndex,
    pub(crate) process: ProcessIndex,
    pub(crate) life: Life,
    /// It ended without announcing it: its newest record may be of a store that it did not make.
    pub(crate) abrupt: bool,
    pub(crate) in_trace: InTrace,
    slot: Option<SlotIndex>,
    /// The cursor at the last look, if it has a slot.
    cursor: Option<u64>,
    /// It existed at the last look.
    looked_at: bool,
    /// It did not look at the clock for each record then.
    is_alone: bool,
    next_sequence: u64,
    /// How much of the chunk with that sequence has been read.
    offset: u64,
    /// The newest stamp that was read.
    newest: Stamp,
    /// The record that was read last, while its thread can still void it.
    last_live: Option<LastLive>,
    held: Vec<Held>,
    /// How many handlers were active when it died.
    pub(crate) final_depth: u32,
}

/// The result of reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadResult {
    /// How many chunks were given back.
    pub(crate) freed: u32,
    /// How many records were never committed.
    pub(crate) uncommitted: u64,
    /// A word that should be a header and is not.
    pub(crate) garbage: Option<u64>,
    /// Whether nothing was left for later.
    complete: bool,
}

impl TargetThread {
    pub(crate) const fn new(index: ThreadIndex, process: ProcessIndex) -> Self {
        Self {
            index,
            process,
            life: Life::Living,
            abrupt: false,
            in_trace: InTrace::Nothing,
            slot: None,
            cursor: None,
            looked_at: false,
            is_alone: false,
            next_sequence: 0,
            offset: 0,
            newest: Stamp(0),
            last_live: None,
            held: Vec::new(),
            final_depth: 0,
        }
    }

    /// Remembers where the thread is. Before the states of the chunks are looked at.
    pub(crate) fn look(&mut self, number: u32, shared: &SharedFile) {
        if self
            .slot
            .is_none_or(|slot| shared.slot_thread(slot) != Some(number))
        {
            self.slot = shared.find_slot(number);
        }
        // Before the cursor: behind which there is nothing that it recorded while it was alone, if it is not any more.
        self.is_alone = self.slot.is_some_and(|slot| shared.is_alone(slot));
        self.cursor = self.slot.map(|slot| shared.cursor(slot));
        self.looked_at = true;
    }

    /// Reads the chunks that it has, sorted by sequence. Gives back what is read completely.
    pub(crate) fn read(
        &mut self,
        shared: &SharedFile,
        chunks: &[(ChunkIndex, ChunkOwner)],
        queue: &mut Queue,
        scan: &mut Scan,
        room: bool,
    ) -> ReadResult {
        let mut result = ReadResult {
            complete: true,
            ..ReadResult::default()
        };
        self.void_last(shared, queue);
        if self.life == Life::Ended {
            self.read_ended(shared, chunks, queue, scan, &mut result);
            return result;
        }
        self.recheck_held(shared, queue, scan, &mut result);
        for (chunk, owner) in chunks {
            if owner.retired && owner.sequence < self.next_sequence {
                continue;
            }
            let live = !owner.retired && self.live_end(*chunk).is_some();
            // Without a slot it is unknown how much of a chunk in use is reserved.
            result.complete &= owner.retired || self.cursor.is_some();
            if owner.sequence != self.next_sequence || !(owner.retired || live) {
                // A chunk that was just taken is not in use as long as the cursor is not there.
                result.complete &= !owner.retired && !live;
                continue;
            }
            if !room {
                result.complete = false;
                break;
            }
            if owner.retired {
                self.read_retired(shared, *chunk, queue, scan, &mut result);
            } else {
                self.read_live(shared, *chunk, queue, scan, &mut result);
            }
        }
        result
    }

    /// The thread will deliver no records older than this. `before` is a stamp that the host has taken before the
    /// last look.
    pub(crate) fn bound(&self, before: Stamp, result: ReadResult) -> Stamp {
        match self.life {
            Life::Read | Life::Written => Stamp::MAX,
            _ if !self.looked_at => Stamp(0),
            _ => {
                // One that is alone may use the newest stamp for long.
                let own = if result.complete && !self.is_alone {
                    before
                } else {
                    self.newest
                };
                let last = self.last_live.filter(|last| last.is_locked);
                self.held
                    .iter()
                    .map(|held| held.bound)
                    .chain(last.map(|last| last.stamp))
                    .fold(own, Stamp::min)
            }
        }
    }

    /// Whether records of it can wait, however late it is: the thread may have more with the same stamp.
    pub(crate) fn may_repeat_stamp(&self) -> bool {
        self.is_alone && self.life < Life::Read
    }

    /// Where its slot is, until it is freed.
    pub(crate) const fn take_slot(&mut self) -> Option<SlotIndex> {
        self.slot.take()
    }

    /// How far a chunk may be read, if it is the one that the cursor is in.
    fn live_end(&self, chunk: ChunkIndex) -> Option<u64> {
        let cursor = self.cursor.filter(|cursor| *cursor >= CHUNKS_ADDRESS)?;
        let (index, offset) = chunk_of(cursor);
        (index == chunk.0).then_some(offset.min(chunk::LEN))
    }

    fn depth(&self, shared: &SharedFile) -> u32 {
        self.slot.map_or(0, |slot| shared.signal_depth(slot))
    }

    /// A store that faulted, or out of which a handler jumps, is voided after it was committed, by its own thread: if it was
    /// the last one that was read from a chunk in use, its header may have changed. The thread can take its time: the store
    /// may wait for a page of the file. So this is asked again until there is a newer record, or until the thread has given
    /// back the lock that it held for the store.
    fn void_last(&mut self, shared: &SharedFile, queue: &mut Queue) {
        let Some(last) = &mut self.last_live else {
            return;
        };
        let record = chunk_address(last.chunk.0) + last.offset;
        // Before the header: the lock is given back after it was voided.
        last.is_locked = self
            .slot
            .is_some_and(|slot| shared.holds_store_lock(slot, record));
        queue.amend(
            position(self.next_sequence, last.offset),
            shared.load(last.chunk, last.offset),
        );
        if !last.is_locked && !self.is_alone {
            self.last_live = None;
        }
    }

    fn read_live(
        &mut self,
        shared: &SharedFile,
        chunk: ChunkIndex,
        queue: &mut Queue,
        scan: &mut Scan,
        result: &mut ReadResult,
    ) {
        let Some(to) = self.live_end(chunk) else {
            return;
        };
        if to < self.offset {
            result.complete = false;
            return;
        }
        scan.committed(shared, chunk, self.offset, to);
        self.take_found(shared, chunk, self.next_sequence, queue, scan);
        self.offset = scan.end;
        result.complete &= scan.end == to;
        result.garbage = result.garbage.or(scan.garbage);
        if let Some(last) = scan.found.last() {
            self.last_live = Some(LastLive {
                chunk,
                offset: last.offset,
                stamp: last.stamp,
                is_locked: false,
            });
            self.void_last(shared, queue);
        }
    }

    fn read_retired(
        &mut self,
        shared: &SharedFile,
        chunk: ChunkIndex,
        queue: &mut Queue,
        scan: &mut Scan,
        result: &mut ReadResult,
    ) {
        let before = self.newest;
        scan.all(shared, chunk, self.offset, chunk::LEN);
        result.garbage = result.garbage.or(scan.garbage);
        let bound = match scan.open.first() {
            Some(open) => {
                let earlier = scan
                    .found
                    .iter()
                    .take_while(|found| found.offset < open.from);
                earlier.map(|found| found.stamp).fold(before, Stamp::max)
            }
            None => scan
                .found
                .iter()
                .map(|found| found.stamp)
                .fold(before, Stamp::max),
        };
        self.take_found(shared, chunk, self.next_sequence, queue, scan);
        // Zeros at the end are nearly always a reservation that did not fit. In a handler they may
        // be one of the code that it interrupted, of which there is one per active handler.
        let mut open = std::mem::take(&mut scan.open);
        if (self.held.len() as u64) < u64::from(self.depth(shared)) {
            open.extend(scan.tail);
        }
        if open.is_empty() {
            shared.free(chunk);
            result.freed += 1;
        } else {
            let sequence = self.next_sequence;
            self.held.push(Held {
                chunk,
                sequence,
                open,
                bound,
                cursor_outside: None,
            });
        }
        self.next_sequence += 1;
        self.offset = 0;
        self.last_live = None;
    }

    /// Looks again at the open records of retired chunks.
    fn recheck_held(
        &mut self,
        shared: &SharedFile,
        queue: &mut Queue,
        scan: &mut Scan,
        result: &mut ReadResult,
    ) {
        let depth = self.depth(shared);
        for mut held in std::mem::take(&mut self.held) {
            let outside = depth == 0
                && held
                    .cursor_outside
                    .is_some_and(|cursor| Some(cursor) != self.cursor);
            let described = self.rescan(shared, &mut held, queue, scan, outside);
            // Code in no handler has appended again, so it has left what it was interrupted in.
            if held.open.is_empty() || outside {
                result.uncommitted += described;
                shared.free(held.chunk);
                result.freed += 1;
                continue;
            }
            if depth == 0 {
                held.cursor_outside = held.cursor_outside.or(self.cursor);
            }
            self.held.push(held);
        }
    }

    /// Takes the records that were committed in a held chunk since. Returns how many are still open. `settled`:
    /// no thread will write there any more.
    fn rescan(
        &mut self,
        shared: &SharedFile,
        held: &mut Held,
        queue: &mut Queue,
        scan: &mut Scan,
        settled: bool,
    ) -> u64 {
        let mut uncommitted = 0;
        for open in std::mem::take(&mut held.open) {
            if settled {
                scan.rest(shared, held.chunk, open.from, open.to);
            } else {
                scan.all(shared, held.chunk, open.from, open.to);
            }
            self.take_found(shared, held.chunk, held.sequence, queue, scan);
            uncommitted += scan.open.len() as u64;
            held.open.append(&mut scan.open);
            held.open.extend(scan.tail);
        }
        uncommitted
    }

    fn read_ended(
        &mut self,
        shared: &SharedFile,
        chunks: &[(ChunkIndex, ChunkOwner)],
        queue: &mut Queue,
        scan: &mut Scan,
        result: &mut ReadResult,
    ) {
        self.last_live = None;
        self.final_depth = self.depth(shared);
        if let Some(slot) = self.slot.filter(|_| self.abrupt) {
            shared.release_store_locks(slot);
        }
        for mut held in std::mem::take(&mut self.held) {
            result.uncommitted += self.rescan(shared, &mut held, queue, scan, true);
            shared.free(held.chunk);
            result.freed += 1;
        }
        // What was read, or held and just freed, has a lower sequence; a chunk that was taken and
        // never used has none, and no records.
        let first = self.next_sequence;
        for (chunk, owner) in chunks.iter().filter(|(_, owner)| owner.sequence >= first) {
            let from = if owner.sequence == first {
                self.offset
            } else {
                0
            };
            scan.rest(shared, *chunk, from, chunk::LEN);
            result.garbage = result.garbage.or(scan.garbage);
            result.uncommitted += scan.open.len() as u64;
            self.take_found(shared, *chunk, owner.sequence, queue, scan);
            shared.free(*chunk);
            result.freed += 1;
        }
        self.life = Life::Read;
    }

    fn take_found(
        &mut self,
        shared: &SharedFile,
        chunk: ChunkIndex,
        sequence: u64,
        queue: &mut Queue,
        scan: &Scan,
    ) {
        let (Some(first), Some(last)) = (scan.found.first(), scan.found.last()) else {
            return;
        };
        let len_bytes = last.offset + u64::from(last.len) - first.offset;
        let begin = queue.fill(|bytes| shared.copy(chunk, first.offset, len_bytes, bytes));
        for found in &scan.found {
            let at = begin + (found.offset - first.offset);
            queue.push_filled(found.stamp, position(sequence, found.offset), at, found.len);
            self.newest = self.newest.max(found.stamp);
        }
    }
}

const fn position(sequence: u64, offset: u64) -> Position {
    Position(sequence.wrapping_mul(chunk::LEN).wrapping_add(offset))
}
