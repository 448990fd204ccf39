//! The records of one thread that wait to be ordered.
//!
//! Records are nearly sorted: only a record that a signal interrupted before it was committed can
//! have a stamp above those that follow it. So a record goes to the back, and from there forward as
//! far as it must.

use std::collections::VecDeque;

use powerfail_model::PoolIndex;

use crate::clock::Stamp;

/// Where a record lies in what its thread has appended: chunk after chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(pub(crate) u64);

/// Something that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) stamp: Stamp,
    pub(crate) position: Position,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// A record: where its bytes begin, counted from the beginning of time, and how many there are.
    Record {
        at: u64,
        len: u32,
    },
    PoolLength {
        pool: PoolIndex,
        len_bytes: u64,
    },
    Mapped {
        pool: PoolIndex,
    },
}

impl Entry {
    /// How many bytes its record has.
    pub(crate) const fn len_bytes(self) -> usize {
        self.content.len_bytes()
    }
}

impl Content {
    const fn len_bytes(self) -> usize {
        match self {
            Self::Record { len, .. } => len as usize,
            Self::PoolLength { .. } | Self::Mapped { .. } => 0,
        }
    }
}

/// What comes out of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A record of the runtime.
    Record(&'a [u8]),
    /// The host found that a pool had this length.
    PoolLength { pool: PoolIndex, len_bytes: u64 },
    /// A file was mapped as a pool for the first time.
    Mapped { pool: PoolIndex },
}

/// The waiting records of one thread.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    bytes: Vec<u8>,
    /// How many bytes were dropped from the beginning of `bytes`.
    dropped: u64,
    /// How many bytes the records of `entries` have.
    waiting_bytes: usize,
    /// How many bytes of records left `entries` since bytes were last dropped.
    unused_bytes: usize,
    /// How many entries `compact` has looked at.
    #[cfg(test)]
    pub(crate) examined: usize,
}

/// Bytes of written records are dropped when there are this many bytes.
const COMPACTION_BYTES: usize = 1 << 20;

impl Queue {
    /// Adds bytes whose records follow with [`Queue::push_filled`], and gives where they begin.
    pub(crate) fn fill(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let at = self.dropped + self.bytes.len() as u64;
        fill(&mut self.bytes);
        at
    }

    /// Adds a record whose bytes are there already.
    pub(crate) fn push_filled(&mut self, stamp: Stamp, position: Position, at: u64, len: u32) {
        self.push_content(stamp, position, Content::Record { at, len });
    }

    /// Adds an observation of the host, behind records with the same stamp.
    pub(crate) fn push_pool_length(&mut self, stamp: Stamp, pool: PoolIndex, len_bytes: u64) {
        self.push_content(
            stamp,
            Position(u64::MAX),
            Content::PoolLength { pool, len_bytes },
        );
    }

    /// Adds that a file is a pool from now on, behind records with the same stamp.
    pub(crate) fn push_mapped(&mut self, stamp: Stamp, pool: PoolIndex) {
        self.push_content(stamp, Position(u64::MAX), Content::Mapped { pool });
    }

    fn push_content(&mut self, stamp: Stamp, position: Position, content: Content) {
        let entry = Entry {
            stamp,
            position,
            content,
        };
        self.waiting_bytes += content.len_bytes();
        let sorted = |earlier: &Entry| (earlier.stamp, earlier.position) <= (stamp, position);
        if self.entries.back().is_none_or(sorted) {
            self.entries.push_back(entry);
        } else {
            let later = self
                .entries
                .iter()
                .rev()
                .take_while(|earlier| !sorted(earlier))
                .count();
            self.entries.insert(self.entries.len() - later, entry);
        }
    }

    /// The oldest.
    pub(crate) fn head(&self) -> Option<Stamp> {
        self.entries.front().map(|entry| entry.stamp)
    }

    /// Everything, oldest first, with stamp and position.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (Entry, Item<'_>)> {
        self.entries.iter().map(|entry| (*entry, self.item(*entry)))
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many bytes wait.
    pub(crate) const fn len_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Takes the oldest out.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.waiting_bytes -= entry.len_bytes();
        self.unused_bytes += entry.len_bytes();
        Some(entry)
    }

    /// What an entry, just popped or still inside, stands for.
    pub(crate) fn item(&self, entry: Entry) -> Item<'_> {
        match entry.content {
            Content::Record { at, len } => {
                let at = (at - self.dropped) as usize;
                Item::Record(&self.bytes[at..at + len as usize])
            }
            Content::PoolLength { pool, len_bytes } => Item::PoolLength { pool, len_bytes },
            Content::Mapped { pool } => Item::Mapped { pool },
        }
    }

    /// Overwrites the first word of the record at a position, if it still waits.
    pub(crate) fn amend(&mut self, position: Position, first_word: u64) {
        let entry = self
            .entries
            .iter()
            .rev()
            .take(8)
            .find(|entry| entry.position == position);
        if let Some(Entry {
            content: Content::Record { at, .. },
            ..
        }) = entry
        {
            let at = (at - self.dropped) as usize;
            self.bytes[at..at + 8].copy_from_slice(&first_word.to_le_bytes());
        }
    }

    /// Removes the records that `keep` does not want.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Position) -> bool) {
        self.entries.retain(|entry| {
            let kept = keep(entry.position);
            if !kept {
                self.waiting_bytes -= entry.len_bytes();
                self.unused_bytes += entry.len_bytes();
            }
            kept
        });
    }

    /// Drops bytes that no entry refers to any more. Looks for them only when at least half of all bytes left since the
    /// last time, so that a record costs the same whatever waits.
    pub(crate) fn compact(&mut self) {
        if self.entries.is_empty() {
            self.dropped += self.bytes.len() as u64;
            self.bytes.clear();
            self.unused_bytes = 0;
            return;
        }
        if 2 * self.unused_bytes < self.bytes.len().max(COMPACTION_BYTES) {
            return;
        }
        self.unused_bytes = 0;
        #[cfg(test)]
        {
            self.examined += self.entries.len();
        }
        let first = self.entries.iter().filter_map(|entry| match entry.content {
            Content::Record { at, .. } => Some(at),
            Content::PoolLength { .. } | Content::Mapped { .. } => None,
        });
        let unused = first
            .min()
            .map_or(self.bytes.len(), |at| (at - self.dropped) as usize);
        self.bytes.drain(..unused);
        self.dropped += unused as u64;
    }
}

#[cfg(test)]
impl Queue {
    /// Adds a record with its bytes.
    pub(crate) fn push(&mut self, stamp: u64, position: u64, record: &[u8]) {
        let at = self.fill(|bytes| bytes.extend_from_slice(record));
        self.push_filled(Stamp(stamp), Position(position), at, record.len() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::{COMPACTION_BYTES, Item, Queue};

    #[test]
    fn late_commits_find_their_place_and_ties_keep_positions() {
        let mut queue = Queue::default();
        for (stamp, position) in [(10, 0), (30, 16), (20, 8), (30, 12), (30, 20)] {
            queue.push(stamp, position, &[position as u8]);
        }
        let mut order = Vec::new();
        while let Some(entry) = queue.pop() {
            assert_eq!(queue.item(entry), Item::Record(&[entry.position.0 as u8]));
            order.push(entry.position.0);
        }
        assert_eq!(order, [0, 8, 12, 16, 20]);
    }

    #[test]
    fn memory_does_not_grow() {
        let mut queue = Queue::default();
        for number in 0..10_000u64 {
            queue.push(number, number, &[number as u8; 1000]);
            if number >= 10 {
                let entry = queue.pop().unwrap();
                assert_eq!(
                    queue.item(entry),
                    Item::Record(&[(number - 10) as u8; 1000])
                );
            }
            queue.compact();
            assert!(queue.bytes.len() <= COMPACTION_BYTES + 1000);
            assert!(queue.len_bytes() <= 10_000);
        }
    }
}
