//! System calls that write bytes to files of trees.
//!
//! # Safety
//!
//! Callers guarantee that the target makes this system call now with these arguments. Bytes that are recorded were read
//! by the kernel before, or are read back from the file.
#![allow(unsafe_code, reason = "makes system calls of the target")]

use powerfail_protocol::file::{FileCode, FileEvent, WRITE_DATA_SYNC, WRITE_SYNC};

use crate::platform::iovec::{self, Part};
use crate::platform::number::{
    COPY_FILE_RANGE, LSEEK, POLL, PWRITE64, PWRITEV, PWRITEV2, SENDFILE, SPLICE, WRITE, WRITEV,
};
use crate::platform::sys;
use crate::record::files::descriptors::OpenFile;
use crate::record::files::{descriptors, emit, order};
use crate::record::{pools, schedule};

/// Flags of `pwritev2`.
const RWF_DSYNC: usize = 2;
const RWF_SYNC: usize = 4;
const RWF_APPEND: usize = 0x10;
const RWF_NOAPPEND: usize = 0x20;

/// A write that the target makes.
struct Write<'a> {
    parts: &'a [Part],
    /// `None`: where the descriptor is.
    offset: Option<u64>,
    flags: usize,
}

/// Makes a call that writes to a descriptor; `None` if it is not one of a file in a tree.
///
/// # Safety
/// As the system call.
pub(super) unsafe fn write(number: usize, arguments: [usize; 6]) -> Option<isize> {
    let fd = arguments[0] as i32;
    let file = descriptors::open_file(fd)?;
    let traits = file.traits;
    if !traits.is_in_tree() || pools::is_pool(fd) {
        return None;
    }
    let whole = [Part {
        address: arguments[1] as u64,
        len: arguments[2] as u64,
    }];
    // SAFETY: the kernel reads the same list in this call.
    let parts = || unsafe { iovec::parts(arguments[1], arguments[2]) };
    let offset = Some(arguments[3] as u64).filter(|offset| *offset != u64::MAX);
    let write = match number {
        WRITE | PWRITE64 => Write {
            parts: &whole,
            offset: offset.filter(|_| number == PWRITE64),
            flags: 0,
        },
        WRITEV | PWRITEV => Write {
            parts: parts(),
            offset: offset.filter(|_| number == PWRITEV),
            flags: 0,
        },
        PWRITEV2 => Write {
            parts: parts(),
            offset,
            flags: arguments[5],
        },
        _ => return None,
    };
    schedule::turn();
    Some(order::in_order(|| {
        // SAFETY: by the contract the target makes this call.
        let done = unsafe { sys::call(number, arguments) };
        if done > 0 {
            let appends = traits.appends() && write.flags & RWF_NOAPPEND == 0
                || write.flags & RWF_APPEND != 0;
            let offset = match write.offset {
                Some(offset) if !appends => offset,
                Some(_) => len_of(fd).wrapping_sub(done as u64),
                None => position(fd).wrapping_sub(done as u64),
            };
            let sync = if write.flags & RWF_SYNC != 0 {
                WRITE_SYNC
            } else if write.flags & RWF_DSYNC != 0 && traits.sync() == 0 {
                WRITE_DATA_SYNC
            } else {
                traits.sync()
            };
            let event = written(&file, offset, done as u64, sync);
            // SAFETY: the kernel has just read so many bytes of the parts.
            unsafe { emit::append_write(event, write.parts, done as u64) };
        }
        done
    }))
}

const fn written(file: &OpenFile, offset: u64, len: u64, sync: u64) -> FileEvent<'static> {
    FileEvent {
        code: FileCode::Write,
        device: file.device,
        inode: file.inode,
        numbers: [offset, len, sync],
        bytes: &[],
    }
}

fn len_of(fd: i32) -> u64 {
    sys::fstat(fd).map_or(0, |status| status.len_bytes)
}

/// Where a descriptor is in its file.
fn position(fd: i32) -> u64 {
    const CURRENT: usize = 1;
    // SAFETY: `lseek` by nothing takes no pointer and changes nothing.
    unsafe { sys::call(LSEEK, [fd as usize, 0, CURRENT, 0, 0, 0]) as u64 }
}

/// Makes a call that moves bytes from one descriptor to another; `None` if that is not one of a file in a tree.
///
/// # Safety
/// As the system call.
pub(super) unsafe fn transfer(number: usize, mut arguments: [usize; 6]) -> Option<isize> {
    const SPLICE_F_NONBLOCK: usize = 2;
    const EAGAIN: isize = 11;
    let (from, to, place) = match number {
        COPY_FILE_RANGE | SPLICE => (arguments[0], arguments[2], arguments[3]),
        SENDFILE => (arguments[1], arguments[0], 0),
        _ => return None,
    };
    let (from, to) = (from as i32, to as i32);
    let file = descriptors::open_file(to)?;
    if !file.traits.is_in_tree() || pools::is_pool(to) {
        return None;
    }
    // What is read from may have to be written to by another thread first, which the lock must not keep from its
    // operations.
    let may_wait = sys::fstat(from).is_some_and(|status| !descriptors::is_regular(&status));
    let waits = number == SPLICE && may_wait && arguments[5] & SPLICE_F_NONBLOCK == 0;
    if waits {
        arguments[5] |= SPLICE_F_NONBLOCK;
    }
    schedule::turn();
    loop {
        if may_wait && (waits || number != SPLICE) {
            wait_for_input(from);
        }
        let done = order::in_order(|| {
            let offset = if place == 0 {
                position(to)
            } else {
                // SAFETY: by the contract the target passes the address of an offset.
                unsafe { (place as *const u64).read() }
            };
            // SAFETY: by the contract the target makes this call.
            let done = unsafe { sys::call(number, arguments) };
            if done > 0 {
                let event = written(&file, offset, done as u64, file.traits.sync());
                emit::append_content(event, to, offset, done as u64);
            }
            done
        });
        if !(waits && done == -EAGAIN) {
            return Some(done);
        }
    }
}

/// Waits until something can be read from a descriptor, or nothing ever will.
fn wait_for_input(fd: i32) {
    const INPUT: u64 = 1 << 32;
    let mut request = u64::from(fd as u32) | INPUT;
    let arguments = [&raw mut request as usize, 1, usize::MAX, 0, 0, 0];
    // SAFETY: the kernel writes to this stack. Interrupted or not, the call that follows tells what happens.
    unsafe { sys::call(POLL, arguments) };
}
