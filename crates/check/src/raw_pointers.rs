//! Whether pools hold addresses of pools. Then recovery has to find the pools where the workload had them.
//!
//! Any six bytes that are an address in a pool count, wherever they begin: programs keep tags in the upper two bytes of a
//! pointer, and pointers in packed structures. Other data that looks like that costs only the start of the runtime.

use std::collections::BTreeSet;
use std::ops::Range;

use powerfail_model::Event;
use powerfail_trace::{Body, Pool, Trace};

use crate::reading::WatchedRecords;

/// How many bytes of an address are looked at.
const LEN: usize = 6;

/// Whether a store, or what a pool held before, has an address in a pool. `progress` hears how many bytes of the trace
/// were read.
pub(crate) fn are_in(trace: &Trace, progress: &mut dyn FnMut(u64)) -> bool {
    let ranges: Vec<Range<u64>> = ranges(trace);
    if ranges.is_empty() {
        return false;
    }
    let is_address = |bytes: &[u8; LEN]| {
        let mut word = [0; 8];
        word[..LEN].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        ranges.iter().any(|range| range.contains(&word))
    };
    let upper = upper_bytes(&ranges);
    let has_address = |bytes: &[u8]| {
        let last = bytes.get(LEN - 1..).unwrap_or_default();
        upper.iter().any(|byte| last.contains(byte)) && bytes.array_windows().any(is_address)
    };
    let mut records = WatchedRecords::of(trace, progress);
    while let Ok(Some(record)) = records.next_record() {
        if let Body::Pm(Event::Store { bytes, .. }) = record.body
            && has_address(bytes)
        {
            return true;
        }
    }
    let mut images = trace.initial_images();
    while let Ok(Some(run)) = images.next_run() {
        if has_address(run.bytes) {
            return true;
        }
    }
    false
}

/// What the last byte of an address in one of these can be. Most stores have none of them, which is seen fast.
fn upper_bytes(ranges: &[Range<u64>]) -> BTreeSet<u8> {
    const SHIFT: usize = 8 * (LEN - 1);
    let upper = |range: &Range<u64>| range.start >> SHIFT..=range.end.saturating_sub(1) >> SHIFT;
    let all = ranges.iter().flat_map(upper);
    all.take(1 << 10).map(|byte| (byte & 0xff) as u8).collect()
}

/// Where the pools were.
fn ranges(trace: &Trace) -> Vec<Range<u64>> {
    let finals = trace.final_images();
    let range = |(number, pool): (u32, &Pool)| {
        let last = finals.iter().find(|image| image.pool.0 == number);
        let len = pool.len_bytes.max(last.map_or(0, |image| image.len_bytes));
        pool.address..pool.address.saturating_add(len)
    };
    let pools = (0..).zip(trace.pools());
    pools
        .filter(|(_, pool)| pool.address != 0)
        .map(range)
        .collect()
}
