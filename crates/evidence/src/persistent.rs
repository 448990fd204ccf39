//! Persistent memory that is no file of the workload's, its heap and ranges that it registered: recovery gets
//! both back.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use powerfail_oracle::RecoveryPlan;
use powerfail_recorder::{HEAP_NOTE, HEAP_VARIABLE, RANGES_VARIABLE};
use powerfail_trace::{Pool, PoolKind, Trace};

/// Such memory of a trace.
#[derive(Debug)]
pub struct Persistent<'t> {
    trace: &'t Trace,
    heap: Option<PathBuf>,
    ranges: Option<PathBuf>,
}

impl<'t> Persistent<'t> {
    /// What a trace has of it.
    pub fn of(trace: &'t Trace) -> Self {
        let notes = &trace.meta().notes;
        let heap_note = notes.iter().find(|(name, _)| name == HEAP_NOTE);
        let mut pools = trace.pools().iter();
        // A heap from which nothing was allocated is none.
        let heap = heap_note
            .map(|(_, path)| PathBuf::from(path))
            .filter(|heap| pools.any(|pool| pool.path == *heap));
        let mut pools = trace.pools().iter();
        let ranges = pools
            .find(|pool| is_range(pool))
            .and_then(|pool| pool.path.parent())
            .map(Path::to_path_buf);
        Self {
            trace,
            heap,
            ranges,
        }
    }

    /// Whether there is any. Commands of the recovery need the runtime then.
    pub const fn is_any(&self) -> bool {
        self.heap.is_some() || self.ranges.is_some()
    }

    /// What the environment has to say about it.
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        let named = |name: &str, path: &PathBuf| (name.into(), path.into());
        let heap = self.heap.iter().map(|path| named(HEAP_VARIABLE, path));
        let ranges = self.ranges.iter().map(|path| named(RANGES_VARIABLE, path));
        heap.chain(ranges).collect()
    }

    /// The first pool that the workload itself has made a file of.
    pub fn first_file(&self) -> Option<PathBuf> {
        let mut pools = self.trace.pools().iter();
        let pool = pools.find(|pool| !is_range(pool) && Some(&pool.path) != self.heap.as_ref())?;
        Some(self.trace.meta().working_directory.join(&pool.path))
    }

    /// Lets a plan give it back.
    pub fn equip(&self, plan: &mut RecoveryPlan) {
        if !self.is_any() {
            return;
        }
        plan.preload = true;
        plan.environment.extend(self.variables());
        plan.pool = self.first_file();
    }
}

fn is_range(pool: &Pool) -> bool {
    pool.kind == PoolKind::AnonymousRange && pool.address != 0
}
