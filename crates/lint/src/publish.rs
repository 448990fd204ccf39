//! Stores that make data reachable before it is durable.
//!
//! A pointer is recognised by its value: an address in a mapped pool, or an offset in the pool that it
//! is stored to. That is a guess, so a hit is a candidate.
//!
//! It does not matter in which order the two are flushed later: the cache may write the line of the
//! pointer back at any time after the store, and then the pointer is durable before its target.

use powerfail_model::PoolIndex;
use powerfail_trace::{Pool, StackId};

use crate::lines::LINE_BYTES;

/// A pointer that was stored, and what it points to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publish {
    pub(crate) event: u64,
    pub(crate) stack: StackId,
    pub(crate) data_event: u64,
    pub(crate) data_stack: StackId,
}

/// Where the pools are in the target's memory.
#[derive(Debug)]
pub(crate) struct AddressMap {
    /// First address, address after the last, pool; ascending.
    ranges: Vec<(u64, u64, PoolIndex)>,
    /// The length of each pool now.
    lens: Vec<u64>,
}

impl AddressMap {
    pub(crate) fn new(pools: &[Pool]) -> Self {
        let mut ranges: Vec<_> = pools
            .iter()
            .zip(0..)
            .filter(|(pool, _)| pool.address != 0)
            .map(|(pool, index)| {
                let end = pool.address.saturating_add(pool.len_bytes);
                (pool.address, end, PoolIndex(index))
            })
            .collect();
        ranges.sort_unstable();
        Self {
            ranges,
            lens: pools.iter().map(|pool| pool.len_bytes).collect(),
        }
    }

    pub(crate) fn len_bytes(&self, pool: PoolIndex) -> u64 {
        self.lens.get(pool.0 as usize).map_or(0, |len| *len)
    }

    /// Notes a new length and gives the old one.
    pub(crate) fn resize(&mut self, pool: PoolIndex, len_bytes: u64) -> u64 {
        self.lens
            .get_mut(pool.0 as usize)
            .map_or(len_bytes, |len| std::mem::replace(len, len_bytes))
    }

    /// The pool and offset at an address.
    pub(crate) fn at_address(&self, address: u64) -> Option<(PoolIndex, u64)> {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        let &(start, end, pool) = self.ranges.get(after.checked_sub(1)?)?;
        (address < end).then_some((pool, address - start))
    }

    /// The offset in `pool` that a value may mean: an aligned one behind the first line.
    pub(crate) fn at_offset(&self, pool: PoolIndex, value: u64) -> Option<u64> {
        let plausible = value >= LINE_BYTES && value.is_multiple_of(8);
        (plausible && value < self.len_bytes(pool)).then_some(value)
    }
}
