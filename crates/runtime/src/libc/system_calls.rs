//! System calls that read from or write to pools, and those that write output.
//!
//! A pool is read-only where the target sees it, so the kernel refuses to write there. And what the
//! C library writes on behalf of `printf` goes past every symbol that could be replaced. So the
//! `syscall` instructions of a few functions of the C library get a breakpoint, and the call is made
//! here: on the alias where the kernel is to write, and with a record of what it did.
//!
//! Those that the target makes itself come through `raw_calls.rs`.
//!
//! # Safety
//!
//! Callers of `perform` guarantee that the target makes this system call now with these arguments. Only memory is
//! touched that the kernel would read or write for it; where that is a pool, its alias is written, which is as
//! long.
#![allow(unsafe_code, reason = "makes system calls of the target")]

use powerfail_protocol::EventKind;

use crate::fuzz::{self, derandomise, desock};
use crate::platform::iovec::{self, Message, Part};
use crate::platform::number::{
    GETRANDOM, MUNMAP, PREAD64, PREADV, PREADV2, PWRITE64, PWRITEV, PWRITEV2, READ, READV,
    RECVFROM, RECVMSG, SENDMSG, SENDTO, WRITE, WRITEV,
};
use crate::platform::sys;
use crate::record::files::descriptors;
use crate::record::{append, pool_files, pools, store_locks, written_files};

/// The functions of the C library whose system calls pass through here.
pub(crate) const FUNCTIONS: [&str; 18] = [
    "read\0",
    "pread64\0",
    "readv\0",
    "preadv64\0",
    "preadv64v2\0",
    "recv\0",
    "recvfrom\0",
    "recvmsg\0",
    "getrandom\0",
    "write\0",
    "pwrite64\0",
    "writev\0",
    "pwritev64\0",
    "pwritev64v2\0",
    "send\0",
    "sendto\0",
    "sendmsg\0",
    "__write_nocancel\0",
];

/// Further ones, if operations on files are recorded. Not among them is what `posix_spawn` calls with all signals blocked:
/// `__open_nocancel` and its like.
pub(crate) const FILE_FUNCTIONS: [&str; 36] = [
    "open64\0",
    "openat64\0",
    "creat64\0",
    "open_by_handle_at\0",
    "rename\0",
    "renameat\0",
    "renameat2\0",
    "link\0",
    "linkat\0",
    "symlink\0",
    "symlinkat\0",
    "unlink\0",
    "unlinkat\0",
    "remove\0",
    "rmdir\0",
    "mkdir\0",
    "mkdirat\0",
    "mknod\0",
    "mknodat\0",
    "__xmknod\0",
    "__xmknodat\0",
    "mkfifo\0",
    "mkfifoat\0",
    "truncate64\0",
    "ftruncate64\0",
    "fallocate64\0",
    "posix_fallocate64\0",
    "fsync\0",
    "fdatasync\0",
    "sync\0",
    "syncfs\0",
    "copy_file_range\0",
    "sendfile64\0",
    "splice\0",
    "ioctl\0",
    "dup\0",
];

/// How much of an output is kept.
const OUTPUT_KEPT: usize = powerfail_protocol::MAX_VALUE_LEN as usize - 16;

/// Whether a system call passes through here.
pub(crate) fn knows(number: usize) -> bool {
    const KNOWN: [usize; 15] = [
        READ, WRITE, PREAD64, PWRITE64, READV, WRITEV, SENDTO, RECVFROM, SENDMSG, RECVMSG, PREADV,
        PWRITEV, GETRANDOM, PREADV2, PWRITEV2,
    ];
    KNOWN.contains(&number)
}

/// Makes the system call of the target and records what it did.
///
/// # Safety
/// As the system call that the target wanted to make.
pub(crate) unsafe fn perform(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: by the contract the target makes this call, so the kernel may read and write what the arguments point
    // to.
    unsafe {
        match number {
            READ | PREAD64 | RECVFROM => receive(number, arguments, 1),
            GETRANDOM if derandomise::is_on() => {
                derandomise::fill(arguments[0], arguments[1]);
                arguments[1] as isize
            }
            GETRANDOM => receive(number, arguments, 0),
            READV | PREADV | PREADV2 => {
                receive_parts(iovec::parts(arguments[1], arguments[2]), |moved| {
                    let mut arguments = arguments;
                    if let Some(moved) = moved {
                        arguments[1] = moved.as_ptr() as usize;
                        arguments[2] = moved.len();
                    }
                    sys::call(number, arguments)
                })
            }
            RECVMSG => {
                descriptors::forget_all();
                let message = arguments[1] as *mut Message;
                let make = |message: usize| {
                    let mut arguments = arguments;
                    arguments[1] = message;
                    sys::call(RECVMSG, arguments)
                };
                receive_parts(iovec::parts_of_message(message), |moved| match moved {
                    Some(moved) => iovec::with_other_parts(message, moved, make),
                    None => make(message as usize),
                })
            }
            WRITE | PWRITE64 | SENDTO => {
                let offset = (number == PWRITE64).then_some(arguments[3] as u64);
                let part = Part {
                    address: arguments[1] as u64,
                    len: arguments[2] as u64,
                };
                send(number, arguments, offset, &[part])
            }
            WRITEV | PWRITEV | PWRITEV2 => {
                let offset = (number != WRITEV).then_some(arguments[3] as u64);
                // This offset means the position of the descriptor.
                let offset = offset.filter(|offset| *offset != u64::MAX);
                let parts = iovec::parts(arguments[1], arguments[2]);
                send(number, arguments, offset, parts)
            }
            SENDMSG => {
                let message = arguments[1] as *const Message;
                let done = if desock::is_connection(arguments[0] as i32) && !message.is_null() {
                    iovec::len_of(iovec::parts_of_message(message)) as isize
                } else {
                    sys::call(number, arguments)
                };
                // Only now is it certain that the message can be read.
                if done > 0 {
                    let parts = iovec::parts_of_message(message);
                    told(arguments[0] as i32, done, parts);
                }
                done
            }
            _ => sys::call(number, arguments),
        }
    }
}

/// # Safety
/// As `perform`. Argument `buffer` is the address of a buffer, and the next one its length.
unsafe fn receive(number: usize, arguments: [usize; 6], buffer: usize) -> isize {
    let part = Part {
        address: arguments[buffer] as u64,
        len: arguments[buffer + 1] as u64,
    };
    // SAFETY: by the contract the target makes this call, to this part.
    unsafe {
        receive_parts(&[part], |moved| {
            let mut arguments = arguments;
            if let Some([moved]) = moved {
                arguments[buffer] = moved.address as usize;
                arguments[buffer + 1] = moved.len as usize;
            }
            sys::call(number, arguments)
        })
    }
}

/// Receives to several parts. `make` makes the call, to other parts if some are given.
///
/// # Safety
/// `make` makes the call that the target wanted to make, and the kernel writes to the parts from the first on.
unsafe fn receive_parts(parts: &[Part], make: impl FnOnce(Option<&[Part]>) -> isize) -> isize {
    desock::feed();
    if !parts.iter().any(|part| pools::is_in_pool(part.address)) {
        return make(None);
    }
    if store_locks::are_used()
        && let Some(detour) = Detour::of(parts)
    {
        let done = make(Some(&detour.parts));
        detour.store(parts, done.max(0) as u64);
        return done;
    }
    let moved: Vec<Part> = parts
        .iter()
        .map(|part| Part {
            address: pools::writable(part.address as usize) as u64,
            ..*part
        })
        .collect();
    let done = make(Some(&moved));
    let mut left = done.max(0) as u64;
    for part in parts {
        let len = left.min(part.len);
        left -= len;
        if len > 0 && pools::is_in_pool(part.address) {
            // SAFETY: the kernel has filled the parts in order, and `done` bytes in all, so they are mapped.
            let bytes =
                unsafe { core::slice::from_raw_parts(part.address as *const u8, len as usize) };
            append::append_system_store(part.address, bytes);
        }
    }
    done
}

/// Memory that the kernel writes to instead of a pool that threads share. What it has written is then stored to the pool like
/// any store of the target: the kernel takes no store locks, and a call may wait, so none can be held during it.
struct Detour {
    /// Where the kernel writes, for the first parts of the target. A part is shorter than that of the target where that leaves
    /// its pool, and then the last one.
    parts: Vec<Part>,
    start: u64,
    len: u64,
}

impl Detour {
    /// None if there is no memory for it.
    fn of(parts: &[Part]) -> Option<Self> {
        let lens = parts.iter().map(|part| {
            let is_in_pool = pools::is_in_pool(part.address);
            let len = if is_in_pool {
                pools::len_within(part.address, part.len)
            } else {
                part.len
            };
            (is_in_pool, len)
        });
        let len = lens
            .clone()
            .filter(|(is_in_pool, _)| *is_in_pool)
            .map(|(_, len)| len)
            .sum::<u64>()
            .max(1);
        let start = sys::map_anywhere(len)?;
        let mut moved = Vec::with_capacity(parts.len());
        let mut next = start;
        for (part, (is_in_pool, len)) in parts.iter().zip(lens) {
            if is_in_pool {
                moved.push(Part { address: next, len });
                next += len;
            } else {
                moved.push(*part);
            }
            if len < part.len {
                break;
            }
        }
        Some(Self {
            parts: moved,
            start,
            len,
        })
    }

    /// Stores what the kernel has written, `done` bytes in all, to the parts of the target.
    fn store(&self, parts: &[Part], done: u64) {
        let mut left = done;
        for (part, moved) in parts.iter().zip(&self.parts) {
            let len = left.min(moved.len);
            left -= len;
            if len > 0 && moved.address != part.address {
                // SAFETY: the kernel has filled the parts in order.
                let bytes = unsafe {
                    core::slice::from_raw_parts(moved.address as *const u8, len as usize)
                };
                append::store_received(part.address, bytes);
            }
        }
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and nothing refers to it any more.
        unsafe { sys::call(MUNMAP, [self.start as usize, self.len as usize, 0, 0, 0, 0]) };
    }
}

/// Makes a call that writes the parts to a descriptor: a pool's file, or the outside.
///
/// # Safety
/// As `perform`.
unsafe fn send(number: usize, arguments: [usize; 6], offset: Option<u64>, parts: &[Part]) -> isize {
    let fd = arguments[0] as i32;
    // SAFETY: by the contract the target makes this call. Slices are made lazily, and `pool_files::write` reads only
    // what the kernel has read.
    unsafe {
        if pools::is_pool(fd) {
            // What the kernel has not read is not looked at.
            let pieces = parts.iter().map(|part| {
                core::slice::from_raw_parts(part.address as *const u8, part.len as usize)
            });
            let len = iovec::len_of(parts);
            return pool_files::write(fd, offset, len, || sys::call(number, arguments), pieces);
        }
        fuzz::before_change(fd);
        let done = if desock::is_connection(fd) {
            // The simulated client does not read it.
            iovec::len_of(parts) as isize
        } else {
            sys::call(number, arguments)
        };
        if done > 0 {
            written_files::note(fd);
        }
        told(fd, done, parts);
        done
    }
}

/// The target has written `done` bytes of the parts to the outside.
///
/// # Safety
/// The kernel has read them.
unsafe fn told(fd: i32, done: isize, parts: &[Part]) {
    if done <= 0 {
        return;
    }
    let mut kept = [0; OUTPUT_KEPT];
    let (mut len, mut left) = (0, done as usize);
    for part in parts {
        let count = left.min(part.len as usize);
        left -= count;
        let count = count.min(OUTPUT_KEPT - len);
        // SAFETY: by the contract the kernel has read the first `done` bytes of the parts, and `count` are left of
        // them.
        let bytes = unsafe { core::slice::from_raw_parts(part.address as *const u8, count) };
        kept[len..len + count].copy_from_slice(bytes);
        len += count;
    }
    let (fd, done) = ((fd as u64).to_le_bytes(), (done as u64).to_le_bytes());
    append::append(EventKind::Output, None, &[&fd, &done, &kept[..len]]);
}
