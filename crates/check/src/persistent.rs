//! What recovery needs of the workload's persistent memory: the path of the pool, the addresses of pools that hold
//! addresses, and memory that has no file of its own, which is the persistent heap and registered ranges.
//! Recovery gets all but the path through variables that the runtime reads.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use powerfail_oracle::RecoveryPlan;
use powerfail_protocol::memory::{ADDRESSES_VARIABLE, HEAP_VARIABLE, RANGES_VARIABLE};
use powerfail_trace::{HEAP_NOTE, POOL_NOTE, Pool, PoolKind, Trace};

use crate::raw_pointers;

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

    /// The environment variables that tell the runtime about them. If there are any, the commands of recovery need the
    /// runtime. `progress` hears how many bytes of the trace were read.
    pub(crate) fn variables(&self, progress: &mut dyn FnMut(u64)) -> Vec<(OsString, OsString)> {
        let named = |name: &str, path: &PathBuf| (name.into(), path.into());
        let heap = self.heap.iter().map(|path| named(HEAP_VARIABLE, path));
        let ranges = self.ranges.iter().map(|path| named(RANGES_VARIABLE, path));
        let addresses = self.addresses(progress);
        let addresses = addresses.map(|text| (ADDRESSES_VARIABLE.into(), text));
        heap.chain(ranges).chain(addresses).collect()
    }

    /// The pools that are files of the workload.
    fn files(&self) -> impl Iterator<Item = &'t Pool> {
        let pools = self.trace.pools().iter();
        pools.filter(|pool| !is_range(pool) && Some(&pool.path) != self.heap.as_ref())
    }

    /// The path that `{pool}` stands for: the same as in the command of the workload. If the workload was given a path
    /// of its own, that one, and if it names none of its pools, the first one that it mapped.
    pub(crate) fn pool(&self) -> Option<PathBuf> {
        let meta = self.trace.meta();
        if let Some(path) = meta.note(POOL_NOTE) {
            return Some(path.into());
        }
        let directory = &meta.working_directory;
        let arguments = meta.command.iter().skip(1);
        let named: Vec<PathBuf> = arguments
            .flat_map(|word| {
                // The word, or what it assigns to an option.
                let value = word.as_bytes().splitn(2, |byte| *byte == b'=').nth(1);
                let value = value.map(OsStr::from_bytes);
                [Some(word.as_os_str()), value].into_iter().flatten()
            })
            .map(|word| clean(&directory.join(word)))
            .collect();
        let path = |pool: &Pool| clean(&directory.join(&pool.path));
        let mut files = self.files().map(path);
        let first = self.files().map(path).next();
        files.find(|path| named.contains(path)).or(first)
    }

    /// The addresses of the pools, if recovery has to find them there or needs the runtime to map them, as the value of a
    /// variable of the runtime.
    fn addresses(&self, progress: &mut dyn FnMut(u64)) -> Option<OsString> {
        let mut text = Vec::new();
        for pool in self.files() {
            let path = self.trace.meta().working_directory.join(&pool.path);
            let path = path.as_os_str().as_bytes();
            if pool.address == 0 || path.contains(&b';') {
                continue;
            }
            if !text.is_empty() {
                text.push(b';');
            }
            text.extend_from_slice(format!("{:x}:", pool.address).as_bytes());
            text.extend_from_slice(path);
        }
        let are_needed = !text.is_empty()
            && (imitates_dax(self.trace) || raw_pointers::are_in(self.trace, progress));
        are_needed.then(|| OsString::from_vec(text))
    }

    /// Adds the runtime and its variables to a plan.
    pub(crate) fn equip(&self, plan: &mut RecoveryPlan, progress: &mut dyn FnMut(u64)) {
        plan.pool = self.pool();
        let variables = self.variables(progress);
        plan.preload |= !variables.is_empty();
        plan.environment.extend(variables);
    }
}

/// Whether recovery has to find pools at the addresses that they had.
pub(crate) fn has_addresses(plan: &RecoveryPlan) -> bool {
    let mut variables = plan.environment.iter();
    variables.any(|(name, _)| name == ADDRESSES_VARIABLE)
}

/// A path without `.`, which may not exist any more.
fn clean(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Whether the workload insists on DAX, and its recovery probably does so, too.
pub(crate) fn imitates_dax(trace: &Trace) -> bool {
    trace
        .pools()
        .iter()
        .any(|pool| pool.kind == PoolKind::FileAsDax)
}

fn is_range(pool: &Pool) -> bool {
    pool.kind == PoolKind::AnonymousRange && pool.address != 0
}
