//! Where the pools of the target are mapped in its memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// A part of a pool that is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub(crate) address: u64,
    pub(crate) len_bytes: u64,
    pub(crate) offset: u64,
    pub(crate) file: FileIdentity,
}

impl Mapping {
    pub(crate) const fn end(&self) -> u64 {
        self.address + self.len_bytes
    }
}

/// All mappings lie between these: most stores are decided by them.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGHEST: AtomicU64 = AtomicU64::new(0);
static MAPPINGS: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

/// Whether an address may lie in a pool.
#[inline]
pub(crate) fn may_have(address: u64) -> bool {
    address >= LOWEST.load(Ordering::Relaxed) && address < HIGHEST.load(Ordering::Relaxed)
}

/// Whether the target has mapped a pool yet.
pub(crate) fn are_any() -> bool {
    HIGHEST.load(Ordering::Relaxed) != 0
}

/// How many bytes from an address on lie in one mapping of a pool, at most `len`.
pub(crate) fn covered(address: u64, len: u64) -> Option<u64> {
    if !may_have(address) {
        return None;
    }
    with(|mappings| {
        let mapping = mappings
            .iter()
            .find(|it| address.wrapping_sub(it.address) < it.len_bytes)?;
        Some(len.min(mapping.end() - address))
    })
}

/// The parts of a range that lie in pools.
pub(crate) fn parts(address: u64, len: u64) -> Vec<(u64, u64)> {
    if !are_any() {
        return Vec::new();
    }
    let end = address.saturating_add(len);
    with(|mappings| {
        let part = |it: &Mapping| (it.address.max(address), it.end().min(end));
        let parts = mappings.iter().map(part).filter(|(from, to)| from < to);
        parts.map(|(from, to)| (from, to - from)).collect()
    })
}

/// The file of a pool, as the host knows it: all of it is mapped, at addresses that no program has. What happens to the file
/// has its place there, whether the target has mapped that part or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolFile {
    pub(crate) file: FileIdentity,
    pub(crate) address: u64,
    /// Its length, as far as it is recorded.
    pub(crate) len_bytes: u64,
}

/// Where the first file is; addresses of programs are below.
const FILES_AT: u64 = 1 << 60;
/// How long a file can be.
pub(crate) const FILE_LEN: u64 = 1 << 44;

static FILES: Mutex<Vec<PoolFile>> = Mutex::new(Vec::new());

/// The files of pools.
pub(crate) fn files() -> std::sync::MutexGuard<'static, Vec<PoolFile>> {
    FILES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A file, if it is that of a pool.
pub(crate) fn file(file: FileIdentity) -> Option<PoolFile> {
    files().iter().find(|it| it.file == file).copied()
}

/// A file is that of a pool from now on.
pub(crate) fn add_file(file: FileIdentity, len_bytes: u64) -> PoolFile {
    let mut files = files();
    let added = PoolFile {
        file,
        address: FILES_AT + files.len() as u64 * FILE_LEN,
        len_bytes,
    };
    files.push(added);
    added
}

/// The host knows a new length.
pub(crate) fn set_len(file: FileIdentity, len_bytes: u64) {
    let mut files = files();
    let known = files.iter_mut().find(|it| it.file == file);
    if let Some(known) = known {
        known.len_bytes = len_bytes;
    }
}

/// All mappings.
pub(crate) fn all() -> Vec<Mapping> {
    with(|mappings| mappings.clone())
}

/// A part of a pool was mapped.
pub(crate) fn map(mapping: Mapping) {
    with(|mappings| mappings.push(mapping));
    LOWEST.fetch_min(mapping.address, Ordering::Relaxed);
    HIGHEST.fetch_max(mapping.end(), Ordering::Relaxed);
}

/// Nothing of a pool is mapped in a range any more.
pub(crate) fn unmap(address: u64, len: u64) {
    let end = address.saturating_add(len);
    with(|mappings| {
        let mut left = Vec::with_capacity(mappings.len());
        for whole in mappings.drain(..) {
            if whole.end() <= address || end <= whole.address {
                left.push(whole);
                continue;
            }
            if whole.address < address {
                left.push(Mapping {
                    len_bytes: address - whole.address,
                    ..whole
                });
            }
            if end < whole.end() {
                left.push(Mapping {
                    address: end,
                    len_bytes: whole.end() - end,
                    offset: whole.offset + (end - whole.address),
                    ..whole
                });
            }
        }
        *mappings = left;
    });
}

fn with<R>(work: impl FnOnce(&mut Vec<Mapping>) -> R) -> R {
    let mut mappings = MAPPINGS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    work(&mut mappings)
}
