//! Pools are mapped where they were when the workload was recorded, because programs keep addresses in them.
//!
//! The oracle names pools and addresses in a variable. A recovery may map them in any order, among other files, and with
//! addresses of its own choice: what it does not require is not what it gets.
//!
//! # Safety
//!
//! Nothing is replaced: a range that is in use is left to the kernel to avoid.
#![allow(unsafe_code, reason = "maps pools")]

use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use powerfail_protocol::memory::ADDRESSES_VARIABLE;

use crate::host;
use crate::platform::sys;
use crate::record::pools::Request;

use super::state;

/// A pool of the recording.
struct RecordedPool {
    /// Its path, with a zero behind it.
    path: Vec<u8>,
    /// Where its first byte was.
    address: u64,
}

static POOLS: OnceLock<Vec<RecordedPool>> = OnceLock::new();

/// Reads the addresses.
pub(crate) fn start() {
    let Some(text) = std::env::var_os(ADDRESSES_VARIABLE) else {
        return;
    };
    let text = text.into_vec();
    let parsed = text.split(|byte| *byte == b';').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let address = core::str::from_utf8(&line[..colon]).ok()?;
        let mut path = line[colon + 1..].to_vec();
        path.push(0);
        Some(RecordedPool {
            path,
            address: u64::from_str_radix(address, 16).ok()?,
        })
    });
    let _ = POOLS.set(parsed.collect());
}

/// Where a file was, if it is a pool of the recording.
fn address_of(fd: i32) -> Option<u64> {
    let pools = POOLS.get()?;
    let status = sys::fstat(fd)?;
    let identity = Some((status.device, status.inode));
    let is_it = |pool: &&RecordedPool| state::status_of_path(&pool.path) == identity;
    // A program may remove its pool and make a new one in its place: the last one is there now.
    Some(pools.iter().rev().find(is_it)?.address)
}

/// Whether a file is a pool of the recording, and the process knows where it was.
pub(crate) fn is_pool(request: &Request) -> bool {
    request.flags & sys::MAP_ANONYMOUS == 0 && address_of(request.fd).is_some()
}

/// Maps a pool at the address that it had. `None` if it is not a pool, if the recovery requires an address, or if
/// something else is there.
pub(crate) fn map(request: Request) -> Option<isize> {
    const REQUIRED: usize = sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE;
    if request.flags & (REQUIRED | sys::MAP_ANONYMOUS) != 0 || host::attached() {
        return None;
    }
    let address = address_of(request.fd)?.checked_add(request.offset)?;
    let flags = request.flags | sys::MAP_FIXED_NOREPLACE;
    // SAFETY: the recovery makes this `mmap`, and it replaces nothing.
    let place = unsafe {
        sys::mmap(
            address,
            request.len,
            request.protection,
            flags,
            request.fd,
            request.offset,
        )
    };
    (place > 0).then_some(place)
}
