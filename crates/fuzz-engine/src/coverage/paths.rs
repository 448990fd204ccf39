//! Distinct PM paths, counted over all workers of a campaign.
//!
//! A PM path is identified by the buckets of all counters of a run. Only a hash of 64 bits is kept: ten million paths
//! collide with a probability of less than one in 300,000.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashSet;

const SHARDS: usize = 16;

/// A set of hashes of PM paths.
#[derive(Debug, Default)]
pub struct PathSet {
    shards: [Mutex<FxHashSet<u64>>; SHARDS],
}

impl PathSet {
    /// Adds a path; returns whether it is new.
    pub fn insert(&self, path: u64) -> bool {
        // The low bits are for the table of the shard.
        let shard = &self.shards[(path >> 60) as usize];
        shard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(path)
    }

    /// How many paths there are.
    pub fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len())
            .sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All paths, in no particular order, for the next run of the campaign.
    pub fn to_vec(&self) -> Vec<u64> {
        let mut paths = Vec::with_capacity(self.len());
        for shard in &self.shards {
            paths.extend(shard.lock().unwrap_or_else(PoisonError::into_inner).iter());
        }
        paths
    }
}
