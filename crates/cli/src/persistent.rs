//! Persistent memory that is no file of the workload's, its heap and ranges that it registered: recovery gets
//! both back.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use powerfail_oracle::RecoveryPlan;
use powerfail_recorder::{HEAP_LEN_MAX, HEAP_NOTE, HEAP_VARIABLE, RANGES_VARIABLE};
use powerfail_trace::{Pool, PoolKind, Trace};

use crate::args::parse_size;

/// Such memory of a trace.
pub(crate) struct Persistent<'t> {
    trace: &'t Trace,
    heap: Option<PathBuf>,
    ranges: Option<PathBuf>,
}

impl<'t> Persistent<'t> {
    /// What a trace has of it.
    pub(crate) fn of(trace: &'t Trace) -> Self {
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
    pub(crate) const fn is_any(&self) -> bool {
        self.heap.is_some() || self.ranges.is_some()
    }

    /// What the environment has to say about it.
    pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
        let named = |name: &str, path: &PathBuf| (name.into(), path.into());
        let heap = self.heap.iter().map(|path| named(HEAP_VARIABLE, path));
        let ranges = self.ranges.iter().map(|path| named(RANGES_VARIABLE, path));
        heap.chain(ranges).collect()
    }

    /// The first pool that the workload itself has made a file of.
    pub(crate) fn first_file(&self) -> Option<PathBuf> {
        let mut pools = self.trace.pools().iter();
        let pool = pools.find(|pool| !is_range(pool) && Some(&pool.path) != self.heap.as_ref())?;
        Some(self.trace.meta().working_directory.join(&pool.path))
    }

    /// Lets a plan give it back.
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

/// Reads how much memory a heap has: a number of bytes, or one with K, M or G.
pub(crate) fn parse_len(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(len) if (1..=HEAP_LEN_MAX).contains(&len) => Ok(len),
        _ => Err("write a number of bytes up to 64G, as in 65536, 512M or 2G".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_len;

    #[test]
    fn lengths() {
        assert_eq!(parse_len("65536"), Ok(65_536));
        assert_eq!(parse_len("3k"), Ok(3072));
        assert_eq!(parse_len("512M"), Ok(512 << 20));
        assert_eq!(parse_len("2G"), Ok(2 << 30));
        for wrong in [
            "",
            "M",
            "0",
            "1.5G",
            "65G",
            "99999999999999999999",
            "-1",
            "10 M",
        ] {
            assert!(parse_len(wrong).is_err(), "{wrong}");
        }
    }
}
