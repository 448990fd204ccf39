//! Persistent memory of the workload that has no file of its own: the persistent heap and registered ranges.
//! Recovery gets both back through variables that the runtime reads.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use powerfail_oracle::RecoveryPlan;
use powerfail_protocol::memory::{HEAP_VARIABLE, RANGES_VARIABLE};
use powerfail_trace::{HEAP_NOTE, Pool, PoolKind, Trace};

/// The heap and the registered ranges of a trace.
#[derive(Debug)]
pub(crate) struct Persistent<'t> {
    trace: &'t Trace,
    heap: Option<PathBuf>,
    ranges: Option<PathBuf>,
}

impl<'t> Persistent<'t> {
    /// Finds them among the pools of a trace.
    pub(crate) fn of(trace: &'t Trace) -> Self {
        let mut pools = trace.pools().iter();
        // A heap from which nothing was allocated has no pool.
        let heap = trace.meta().note(HEAP_NOTE);
        let heap = heap
            .map(PathBuf::from)
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

    /// Whether the trace has either. If so, the commands of recovery need the runtime.
    pub(crate) const fn is_any(&self) -> bool {
        self.heap.is_some() || self.ranges.is_some()
    }

    /// The environment variables that tell the runtime about them.
    pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
        let named = |name: &str, path: &PathBuf| (name.into(), path.into());
        let heap = self.heap.iter().map(|path| named(HEAP_VARIABLE, path));
        let ranges = self.ranges.iter().map(|path| named(RANGES_VARIABLE, path));
        heap.chain(ranges).collect()
    }

    /// The first pool that is a file of the workload.
    pub(crate) fn first_file(&self) -> Option<PathBuf> {
        let mut pools = self.trace.pools().iter();
        let pool = pools.find(|pool| !is_range(pool) && Some(&pool.path) != self.heap.as_ref())?;
        Some(self.trace.meta().working_directory.join(&pool.path))
    }

    /// Adds the runtime and its variables to a plan.
    pub(crate) fn equip(&self, plan: &mut RecoveryPlan) {
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
