//! Mappings with `MAP_SYNC`, which only a file system on DAX grants.
//!
//! A program that insists on it would end on any other file. What the flag promises holds for crash images anyway: the
//! length and the blocks of a file are those of the recording. So pools are mapped without it, in the workload and in its
//! recoveries. PMDK's libraries try again without the flag themselves, and variables tell them to flush.

use crate::patching::modules;
use crate::platform::sys;

const MAP_SYNC: usize = 0x8_0000;
/// How the names of PMDK's libraries begin: libpmem, libpmem2, libpmemobj, libpmempool.
const PMDK: &[u8] = b"libpmem";

/// Whether the target asks for `MAP_SYNC`, and gets the mapping without it if the file is a pool.
pub(crate) fn is_imitated(flags: usize) -> bool {
    flags & MAP_SYNC != 0 && flags & sys::MAP_TYPE == sys::MAP_SHARED_VALIDATE && !is_pmdk_loaded()
}

/// The flags with which a pool is mapped.
pub(crate) fn granted(flags: usize) -> usize {
    if is_imitated(flags) {
        flags & !(MAP_SYNC | sys::MAP_TYPE) | sys::MAP_SHARED
    } else {
        flags
    }
}

fn is_pmdk_loaded() -> bool {
    let mut is_loaded = false;
    modules::for_each(|module| is_loaded |= module.is_named(PMDK));
    is_loaded
}
