//! Finds stores that a killed thread recorded and did not make.
//!
//! Records are written ahead, so the newest record of a killed thread may be of a store that was not made. It is
//! taken for that if the pool has other bytes, and no later record explains them, or if the next store to the same bytes
//! found others. A record of a later store may
//! not have been read yet when the pool is examined, so this takes two steps: a record is suspected, and judged
//! when all records up to that moment are known. Until then no later record is written.
//!
//! Only records that still wait are examined. The self-check finds a store that its thread recorded longer before
//! its death than records wait, and did not make.

use std::collections::BTreeMap;

use powerfail_protocol::EventKind::{StoreLocked, StoreNonTemporal, StorePlain, StoreSystem};
use powerfail_protocol::{FLAG_MASKED, Record, Records};

use crate::clock::Stamp;
use crate::mapping::Mappings;
use crate::merge::Merge;
use crate::pool::Pools;
use crate::queue::{Item, Position};
use crate::shared_file::SharedFile;

/// A store of a dead thread whose bytes were not in the pool.
#[derive(Clone, Debug)]
pub(crate) struct Suspect {
    pub(crate) thread: u32,
    pub(crate) stamp: Stamp,
    pub(crate) position: Position,
    address: u64,
    len_bytes: u64,
    /// What it would have left there, if it is the one store that the thread may not have made. Nothing if the thread died in a
    /// handler, where any can be that one, or if it stores only some of these bytes.
    value: Vec<u8>,
    /// A moment after the pool was looked at.
    pub(crate) looked_at: Stamp,
}

impl Suspect {
    /// Whether the store did not happen: nothing that waits explains the bytes in the pool. To be asked
    /// when everything is known that was announced before the pool was looked at.
    pub(crate) fn is_unperformed(&self, merge: &Merge) -> bool {
        let mut later = later_stores(merge, self);
        if self.value.is_empty() {
            return later.next().is_none();
        }
        let next = later.min_by_key(|(key, _)| *key);
        next.is_none_or(|(_, next)| self.is_contradicted_by(&next))
    }

    /// Whether a store to some of the same bytes found others there.
    fn is_contradicted_by(&self, next: &Record<'_>) -> bool {
        let (Some(found), Some(address)) = (next.found(), next.address) else {
            return false;
        };
        let own = (self.address..).zip(&self.value);
        own.filter(|(at, _)| *at >= address).any(|(at, byte)| {
            let there = found.get((at - address) as usize);
            there.is_some_and(|there| there != byte)
        })
    }
}

/// The records of a thread that died `depth` handlers deep, and whose stores are not in the pool.
pub(crate) fn suspects(
    merge: &mut Merge,
    thread: u32,
    depth: u32,
    mappings: &Mappings,
    pools: &Pools,
    shared: &SharedFile,
) -> Vec<Suspect> {
    // In a handler the newest record of the code that it interrupted can be any.
    let candidates_max = if depth == 0 { 1 } else { usize::MAX };
    let mut suspects = Vec::new();
    let mut stored_later = Ranges::default();
    for (entry, item) in merge.queue(thread).iter().rev().take(candidates_max) {
        let Some(record) = store_of(item) else {
            continue;
        };
        let Some(address) = record.address else {
            continue;
        };
        let len_bytes = u64::from(record.header.value_len);
        // A later store of the thread explains other bytes.
        if stored_later.overlaps(address, len_bytes) {
            continue;
        }
        if !is_missing(&record, address, entry.stamp, mappings, pools) {
            stored_later.insert(address, len_bytes);
            continue;
        }
        suspects.push(Suspect {
            thread,
            stamp: entry.stamp,
            position: entry.position,
            address,
            len_bytes,
            value: if depth == 0 && record.header.flags & FLAG_MASKED == 0 {
                record.value().to_vec()
            } else {
                Vec::new()
            },
            looked_at: shared.tick(),
        });
    }
    suspects
}

/// Ranges of addresses that do not overlap: the end of each by its start.
#[derive(Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn overlaps(&self, start: u64, len_bytes: u64) -> bool {
        let before = self.0.range(..start.saturating_add(len_bytes)).next_back();
        before.is_some_and(|(_, end)| *end > start)
    }

    /// Adds a range that overlaps none of the others.
    fn insert(&mut self, start: u64, len_bytes: u64) {
        self.0.insert(start, start.saturating_add(len_bytes));
    }
}

/// The record, if it is of a store.
fn store_of(item: Item<'_>) -> Option<Record<'_>> {
    let Item::Record(bytes) = item else {
        return None;
    };
    let record = Records::new(bytes).next()?.ok()?;
    let kind = record.header.kind;
    matches!(
        kind,
        StorePlain | StoreNonTemporal | StoreLocked | StoreSystem
    )
    .then_some(record)
}

/// Whether the pool has other bytes than the record.
fn is_missing(
    record: &Record<'_>,
    address: u64,
    stamp: Stamp,
    mappings: &Mappings,
    pools: &Pools,
) -> bool {
    record.runs().any(|(start, bytes)| {
        let first = address.wrapping_add(start as u64);
        mappings
            .pieces(stamp, first, bytes.len() as u64)
            .any(|piece| {
                let from = piece.start as usize;
                let expected = &bytes[from..from + piece.len_bytes as usize];
                let mut actual = vec![0; expected.len()];
                let read = pools
                    .get(piece.pool)
                    .map(|pool| pool.file.read_at(&mut actual, piece.offset.0));
                matches!(read, Some(Ok(len)) if actual[..len] != expected[..len])
            })
    })
}

/// Where a record is in the order of all.
type Key = (Stamp, u32, Position);

/// The later stores, of any thread, to some of the same bytes, in any order.
fn later_stores<'m>(
    merge: &'m Merge,
    missing: &Suspect,
) -> impl Iterator<Item = (Key, Record<'m>)> {
    let key = (missing.stamp, missing.thread, missing.position);
    let (start, stamp) = (missing.address, missing.stamp);
    let end = start.saturating_add(missing.len_bytes);
    let overlaps = move |record: &Record<'_>| {
        let len_bytes = u64::from(record.header.value_len);
        record
            .address
            .is_some_and(|at| at < end && start < at.saturating_add(len_bytes))
    };
    let later = merge.queues().flat_map(move |(other, queue)| {
        let later = queue.iter().rev();
        later
            .take_while(move |(entry, _)| entry.stamp >= stamp)
            .map(move |(entry, item)| ((entry.stamp, other, entry.position), item))
    });
    later
        .filter(move |(other, _)| *other > key)
        .filter_map(move |(other, item)| Some((other, store_of(item).filter(overlaps)?)))
}
