//! What the target does to the file of a pool, past its mappings: writes that may make it longer, `fallocate`, and calls
//! that make it durable.
//!
//! # Safety
//!
//! Calls are those that the target makes. They take no pointers, or pointers to this stack; bytes that are recorded
//! were read by the kernel before.
#![allow(unsafe_code, reason = "makes system calls of the target")]

use powerfail_protocol::store_lock;

use crate::host;
use crate::platform::lock::Lock;
use crate::platform::sys;
use crate::record::{pools, store_locks};

/// Held while a pool's file changes and that is recorded, so that lengths and bytes are recorded in
/// the order in which they came to be.
pub(crate) static CHANGES: Lock<()> = Lock::new(());

const O_APPEND: usize = 0o2000;
const F_GETFL: usize = 3;
const CURRENT: usize = 1;

fn len_of(fd: i32) -> u64 {
    sys::fstat(fd).map_or(0, |status| status.len_bytes)
}

fn appends(fd: i32) -> bool {
    // SAFETY: `F_GETFL` takes no pointer and changes nothing.
    let flags = unsafe { sys::call(sys::number::FCNTL, [fd as usize, F_GETFL, 0, 0, 0, 0]) };
    flags > 0 && flags as usize & O_APPEND != 0
}

/// The position of a descriptor.
fn position(fd: i32) -> u64 {
    // SAFETY: `lseek` by nothing from the current position takes no pointer and changes nothing.
    (unsafe { sys::call(sys::number::LSEEK, [fd as usize, 0, CURRENT, 0, 0, 0]) }) as u64
}

/// Makes a write of `len` bytes at most to a pool's file, and records it. `offset` is `None` if the position of the
/// descriptor says where.
pub(crate) fn write<'a>(
    fd: i32,
    offset: Option<u64>,
    len: u64,
    perform: impl FnOnce() -> isize,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> isize {
    CHANGES.with(|()| {
        let before = len_of(fd);
        let locked = store_locks::are_used().then(|| {
            let at = match offset {
                _ if appends(fd) => before,
                Some(offset) => offset,
                None => position(fd),
            };
            store_locks::Range::acquire(pools::address_in(fd, at), len)
        });
        let done = perform();
        let Ok(written) = u64::try_from(done) else {
            return done;
        };
        let mut offset = match offset {
            // The kernel appends then, whatever the offset.
            Some(_) if appends(fd) => before,
            Some(offset) => offset,
            None => position(fd).wrapping_sub(written),
        };
        record_growth(fd, before);
        let mut left = written;
        for piece in pieces {
            let len = left.min(piece.len() as u64);
            pools::file_written(fd, offset, &piece[..len as usize]);
            offset += len;
            left -= len;
        }
        drop(locked);
        done
    })
}

/// Records the length if it has changed.
fn record_growth(fd: i32, before: u64) {
    let now = len_of(fd);
    if now != before {
        pools::resized(fd, now);
    }
}

/// Does what `fallocate` does to a pool's file, and records it.
pub(crate) fn allocate(fd: i32, mode: i32, offset: u64, len: u64) -> isize {
    const KEEP_SIZE: i32 = 1;
    const PUNCH_HOLE: i32 = 2;
    const ZERO_RANGE: i32 = 0x10;
    const UNSHARE: i32 = 0x40;
    if mode & !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE | UNSHARE) != 0 {
        host::fatal("the target moves parts of a pool with fallocate, which cannot be recorded");
    }
    CHANGES.with(|()| {
        let before = len_of(fd);
        let _locked = store_locks::are_used()
            .then(|| store_locks::Range::acquire(pools::address_in(fd, offset), len));
        let end = offset.saturating_add(len).min(before);
        let zeroed = if mode & (PUNCH_HOLE | ZERO_RANGE) == 0 {
            Vec::new()
        } else {
            used_parts(fd, offset, end)
        };
        let arguments = [
            fd as usize,
            mode as usize,
            offset as usize,
            len as usize,
            0,
            0,
        ];
        // SAFETY: `fallocate` takes no pointer; that it changes the file is recorded below.
        let done = unsafe { sys::call(sys::number::FALLOCATE, arguments) };
        if done == 0 {
            record_growth(fd, before);
            for (mut at, to) in zeroed {
                while at < to {
                    let len = (to - at).min(PIECE_LEN);
                    pools::file_written(fd, at, &[0; PIECE_LEN as usize][..len as usize]);
                    at += len;
                }
            }
        }
        done
    })
}

/// Whether a descriptor is that of a pool that others may store to.
pub(crate) fn is_shared(fd: i32) -> bool {
    store_locks::are_used() && pools::is_pool(fd)
}

/// Makes a call that makes a range of a pool durable, and records it if it succeeds.
///
/// What others store during the call may or may not be written back. So they store to the range before the call or after
/// it, and the record of the call covers what the kernel has written back.
pub(crate) fn sync_range(address: u64, len: u64, perform: impl FnOnce() -> isize) -> isize {
    if store_locks::are_used() {
        sync(address, len, &[(address, len)], perform, || {})
    } else {
        let done = perform();
        if done == 0 {
            pools::synced(address, len);
        }
        done
    }
}

/// The same for a whole file, of which `record` records something else first.
pub(crate) fn sync_file(fd: i32, perform: impl FnOnce() -> isize, record: impl FnOnce()) -> isize {
    let ranges = if is_shared(fd) {
        pools::ranges_of(fd)
    } else {
        Vec::new()
    };
    let (address, len) = match ranges[..] {
        [] => {
            let done = perform();
            if done == 0 {
                record();
                pools::file_synced(fd);
            }
            return done;
        }
        [range] => range,
        // The locks of several ranges are taken in the order of the table as well: all of them.
        [(address, _), ..] => (address, store_lock::PERIOD_LEN),
    };
    sync(address, len, &ranges, perform, record)
}

/// Makes a call under the locks of a range, and records that the ranges in it are durable.
fn sync(
    address: u64,
    len: u64,
    ranges: &[(u64, u64)],
    perform: impl FnOnce() -> isize,
    record: impl FnOnce(),
) -> isize {
    CHANGES.with(|()| {
        let _locked = store_locks::Range::acquire(address, len);
        let found = |&(address, _): &(u64, u64)| sys::read_own_word(address);
        let found: Vec<Option<u64>> = ranges.iter().map(found).collect();
        let done = perform();
        if done == 0 {
            record();
            for (&(address, len), found) in ranges.iter().zip(found) {
                pools::synced_as_found(address, len, found);
            }
        }
        done
    })
}

const PIECE_LEN: u64 = 4096;

/// The parts of a file, in pieces, that have anything but zeros: from, to.
fn used_parts(fd: i32, from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let mut at = from;
    while at < to {
        let end = to.min((at / PIECE_LEN + 1) * PIECE_LEN);
        let mut bytes = [0u8; PIECE_LEN as usize];
        let len = (end - at) as usize;
        let place = bytes.as_mut_ptr() as usize;
        let arguments = [fd as usize, place, len, at as usize, 0, 0];
        // SAFETY: the kernel writes to this stack, not more than there is.
        let read = unsafe { sys::call(sys::number::PREAD64, arguments) };
        let is_zero = read == len as isize && bytes[..len].iter().all(|byte| *byte == 0);
        if !is_zero {
            match parts.last_mut() {
                Some(last) if last.1 == at => last.1 = end,
                _ => parts.push((at, end)),
            }
        }
        at = end;
    }
    parts
}
