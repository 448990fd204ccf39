//! Finds stores that a killed thread recorded and did not make.
//!
//! Records are written ahead, so the newest record of a killed thread may be of a store that was not made. It is
//! taken for that if the pool has other bytes, and no later record explains them. A record of a later store may
//! not have been read yet when the pool is examined, so this takes two steps: a record is suspected, and judged
//! when all records up to that moment are known. Until then no later record is written.
//!
//! Only records that still wait are examined. The self-check finds a store that its thread recorded longer before
//! its death than the slack of clocks, and did not make.

use powerfail_protocol::EventKind::{StoreLocked, StoreNonTemporal, StorePlain, StoreSystem};
use powerfail_protocol::{Record, Records};

use crate::clock::Stamp;
use crate::mapping::Mappings;
use crate::merge::Merge;
use crate::pool::Pools;
use crate::queue::{Item, Position};

/// A store of a dead thread whose bytes were not in the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspect {
    pub(crate) thread: u32,
    pub(crate) stamp: Stamp,
    pub(crate) position: Position,
    address: u64,
    len_bytes: u64,
    /// A moment after the pool was looked at.
    pub(crate) looked_at: Stamp,
}

impl Suspect {
    /// Whether the store did not happen: nothing that waits explains the bytes in the pool. To be asked
    /// when everything is known that was announced before the pool was looked at.
    pub(crate) fn is_unperformed(&self, merge: &Merge) -> bool {
        !is_overwritten(merge, self)
    }
}

/// The records of a thread that died `depth` handlers deep, and whose stores are not in the pool.
pub(crate) fn suspects(
    merge: &mut Merge,
    thread: u32,
    depth: u32,
    mappings: &Mappings,
    pools: &Pools,
) -> Vec<Suspect> {
    // In a handler the newest record of the code that it interrupted can be any.
    let candidates_max = if depth == 0 { 1 } else { usize::MAX };
    merge
        .queue(thread)
        .iter()
        .rev()
        .take(candidates_max)
        .filter_map(|(entry, item)| {
            let record = store_of(item)?;
            let address = record.address?;
            is_missing(&record, address, entry.stamp, mappings, pools).then(|| Suspect {
                thread,
                stamp: entry.stamp,
                position: entry.position,
                address,
                len_bytes: u64::from(record.header.value_len),
                looked_at: Stamp::now(),
            })
        })
        .collect()
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

/// Whether a later store, of any thread, is to some of the same bytes.
fn is_overwritten(merge: &Merge, missing: &Suspect) -> bool {
    let key = (missing.stamp, missing.thread, missing.position);
    let end = missing.address.saturating_add(missing.len_bytes);
    merge.queues().any(|(other, queue)| {
        let later = queue
            .iter()
            .rev()
            .take_while(|(entry, _)| entry.stamp >= missing.stamp);
        later
            .filter(|(entry, _)| (entry.stamp, other, entry.position) > key)
            .any(|(_, item)| {
                store_of(item).is_some_and(|record| {
                    let len_bytes = u64::from(record.header.value_len);
                    let overlaps =
                        |at: u64| at < end && missing.address < at.saturating_add(len_bytes);
                    record.address.is_some_and(overlaps)
                })
            })
    })
}
