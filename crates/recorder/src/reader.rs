//! Finds the records in a chunk that its thread may still be writing.
//!
//! Why this is sound without any lock: x86 makes the stores of a thread visible in their order. A
//! record's header is stored before anything else of it, its stamp last. So a stamp that is neither zero
//! nor tentative proves the whole record, and a header that is not zero proves its length. A word that is
//! not zero behind zeros is a header, if those zeros are still zero when looked at again: the header of
//! whatever record covers that word would have been visible before the word.
//!
//! A record with a tentative stamp is whole, but its thread may be about to make it anew. It is as good as
//! not committed while the thread can still go on; a thread that cannot has left in it what it announced
//! last.

use powerfail_protocol::{Header, STAMP_AT, STAMP_TENTATIVE};

use crate::clock::Stamp;
use crate::shared_file::{ChunkIndex, SharedFile};

/// A committed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommittedRecord {
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) stamp: Stamp,
}

/// A part of a chunk in which a thread may still commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// What a part of a chunk holds.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The committed records, in their order.
    pub(crate) found: Vec<CommittedRecord>,
    /// What is reserved and not committed, with records behind it.
    pub(crate) open: Vec<Open>,
    /// Zeros up to the end: given up, or reserved and not described.
    pub(crate) tail: Option<Open>,
    /// A word that should be a header and is not.
    pub(crate) garbage: Option<u64>,
    /// Where the scan stopped.
    pub(crate) end: u64,
}

/// How a scan goes about records that are not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    /// Stops at the first one.
    Stop,
    /// Notes them.
    Note,
    /// Notes them, but those with a tentative stamp are records: no thread will change them any more.
    Settle,
}

impl Scan {
    fn clear(&mut self, from: u64) {
        self.found.clear();
        self.open.clear();
        self.tail = None;
        self.garbage = None;
        self.end = from;
    }

    /// Reads `from..to` up to the first record that is not committed.
    pub(crate) fn committed(&mut self, shared: &SharedFile, chunk: ChunkIndex, from: u64, to: u64) {
        self.scan(shared, chunk, from, to, Opens::Stop);
    }

    /// Reads all of `from..to`, past records that are not committed.
    pub(crate) fn all(&mut self, shared: &SharedFile, chunk: ChunkIndex, from: u64, to: u64) {
        self.scan(shared, chunk, from, to, Opens::Note);
    }

    /// Reads all of `from..to` for the last time: no thread writes there any more.
    pub(crate) fn rest(&mut self, shared: &SharedFile, chunk: ChunkIndex, from: u64, to: u64) {
        self.scan(shared, chunk, from, to, Opens::Settle);
    }

    fn scan(&mut self, shared: &SharedFile, chunk: ChunkIndex, from: u64, to: u64, opens: Opens) {
        self.clear(from);
        while self.end < to {
            let at = self.end;
            let word = shared.load(chunk, at);
            if word == 0 {
                if opens == Opens::Stop || !self.skip_zeros(shared, chunk, to) {
                    return;
                }
                continue;
            }
            let len =
                Header::from_word(word).map_or(u64::MAX, |header| u64::from(header.record_len()));
            if len > to - at {
                self.garbage = Some(word);
                return;
            }
            let stamp = shared.load(chunk, at + u64::from(STAMP_AT));
            let is_open = stamp == 0 || stamp & STAMP_TENTATIVE != 0 && opens != Opens::Settle;
            if !is_open {
                self.found.push(CommittedRecord {
                    offset: at,
                    len: len as u32,
                    stamp: Stamp(stamp & !STAMP_TENTATIVE),
                });
            } else if opens != Opens::Stop {
                self.open.push(Open {
                    from: at,
                    to: at + len,
                });
            } else {
                return;
            }
            self.end = at + len;
        }
    }

    /// Goes to the next word that is not zero. `false` if there is none.
    fn skip_zeros(&mut self, shared: &SharedFile, chunk: ChunkIndex, to: u64) -> bool {
        let from = self.end;
        let is_zero = |at: &u64| shared.load(chunk, *at) == 0;
        match (from..to).step_by(8).find(|at| !is_zero(at)) {
            None => {
                self.tail = Some(Open { from, to });
                self.end = to;
                false
            }
            Some(next) => {
                // Otherwise a thread has begun to write there: look again from the same offset.
                if (from..next).step_by(8).all(|at| is_zero(&at)) {
                    self.open.push(Open { from, to: next });
                    self.end = next;
                }
                true
            }
        }
    }
}
