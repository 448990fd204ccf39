//! System calls that read from or write to pools, and those by which the target speaks to the
//! outside.
//!
//! A pool is read-only where the target sees it, so the kernel refuses to write there. And what the
//! C library writes on behalf of `printf` goes past every symbol that could be replaced. So the
//! `syscall` instructions of a few functions of the C library get a breakpoint, and the call is made
//! here: on the alias where the kernel is to write, and with a record of what it did.
//!
//! Deliberately absent: `syscall` instructions anywhere else. A target that makes its own gets
//! `EFAULT` for a buffer in a pool.

use powerfail_abi::EventKind;

use crate::sites::WINDOW;
use crate::{append, pool, sys};

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

const READ: usize = 0;
const WRITE: usize = 1;
const PREAD64: usize = 17;
const PWRITE64: usize = 18;
const READV: usize = 19;
const WRITEV: usize = 20;
const SENDTO: usize = 44;
const RECVFROM: usize = 45;
const SENDMSG: usize = 46;
const RECVMSG: usize = 47;
const PREADV: usize = 295;
const PWRITEV: usize = 296;
const GETRANDOM: usize = 318;
const PREADV2: usize = 327;
const PWRITEV2: usize = 328;
const LSEEK: usize = 8;

/// How much of an output is kept.
const OUTPUT_KEPT: usize = 256;
/// The most parts that the kernel takes.
const PARTS_MAX: usize = 1024;

/// One part of a scattered buffer, as the kernel wants it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    len: usize,
}

/// `struct msghdr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Message {
    name: usize,
    name_len: usize,
    parts: *const Part,
    part_count: usize,
    control: usize,
    control_len: usize,
    flags: usize,
}

/// Makes the system call of the target and records what it did.
///
/// # Safety
/// As the system call that the target wanted to make.
pub(crate) unsafe fn perform(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's; the parts that are read here the kernel would read, too.
    unsafe {
        match number {
            READ | PREAD64 | RECVFROM => receive(number, arguments, 1),
            GETRANDOM => receive(number, arguments, 0),
            READV | PREADV | PREADV2 => receive_parts(number, arguments),
            RECVMSG => receive_message(arguments),
            WRITE | PWRITE64 | SENDTO => {
                let done = sys::call(number, arguments);
                let offset = (number == PWRITE64).then_some(arguments[3] as u64);
                let part = Part {
                    start: arguments[1],
                    len: arguments[2],
                };
                sent(arguments[0] as i32, offset, done, &[part]);
                done
            }
            WRITEV | PWRITEV | PWRITEV2 => {
                let done = sys::call(number, arguments);
                let offset = (number != WRITEV).then_some(arguments[3] as u64);
                sent(
                    arguments[0] as i32,
                    offset,
                    done,
                    parts(arguments[1], arguments[2]),
                );
                done
            }
            SENDMSG => {
                let done = sys::call(number, arguments);
                if done > 0 {
                    let message = &*(arguments[1] as *const Message);
                    let parts = parts(message.parts as usize, message.part_count);
                    sent(arguments[0] as i32, None, done, parts);
                }
                done
            }
            _ => sys::call(number, arguments),
        }
    }
}

/// # Safety
/// As `perform`.
unsafe fn parts(start: usize, count: usize) -> &'static [Part] {
    if start == 0 || count == 0 || count > PARTS_MAX {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { core::slice::from_raw_parts(start as *const Part, count) }
}

fn alias(address: usize) -> usize {
    if WINDOW.contains(address as u64) {
        WINDOW.alias(address as u64) as usize
    } else {
        address
    }
}

/// The kernel has written `len` bytes where the target sees them at `address`.
///
/// # Safety
/// It has.
unsafe fn received(address: usize, len: usize) {
    if WINDOW.contains(address as u64) && len > 0 {
        // SAFETY: the caller's.
        let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, len) };
        append::append_system_store(address as u64, bytes);
    }
}

/// # Safety
/// As `perform`.
unsafe fn receive(number: usize, mut arguments: [usize; 6], buffer: usize) -> isize {
    let address = arguments[buffer];
    arguments[buffer] = alias(address);
    // SAFETY: the caller's.
    unsafe {
        let done = sys::call(number, arguments);
        received(address, done.max(0) as usize);
        done
    }
}

/// # Safety
/// The kernel has written `done` bytes to the parts.
unsafe fn received_parts(parts: &[Part], done: isize) {
    let mut left = done.max(0) as usize;
    for part in parts {
        let len = part.len.min(left);
        // SAFETY: the caller's.
        unsafe { received(part.start, len) };
        left -= len;
    }
}

/// # Safety
/// As `perform`.
unsafe fn receive_parts(number: usize, mut arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let parts = parts(arguments[1], arguments[2]);
        if !parts.iter().any(|part| WINDOW.contains(part.start as u64)) {
            return sys::call(number, arguments);
        }
        let moved: Vec<Part> = parts
            .iter()
            .map(|part| Part {
                start: alias(part.start),
                ..*part
            })
            .collect();
        arguments[1] = moved.as_ptr() as usize;
        let done = sys::call(number, arguments);
        received_parts(parts, done);
        done
    }
}

/// # Safety
/// As `perform`.
unsafe fn receive_message(mut arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let original = arguments[1] as *mut Message;
        if original.is_null() {
            return sys::call(RECVMSG, arguments);
        }
        let parts = parts((*original).parts as usize, (*original).part_count);
        if !parts.iter().any(|part| WINDOW.contains(part.start as u64)) {
            return sys::call(RECVMSG, arguments);
        }
        let moved: Vec<Part> = parts
            .iter()
            .map(|part| Part {
                start: alias(part.start),
                ..*part
            })
            .collect();
        let mut message = Message {
            parts: moved.as_ptr(),
            ..*original
        };
        arguments[1] = &raw mut message as usize;
        let done = sys::call(RECVMSG, arguments);
        *original = Message {
            parts: (*original).parts,
            ..message
        };
        received_parts(parts, done);
        done
    }
}

/// The target has written `done` bytes of the parts to a descriptor: a pool's file, or the outside.
///
/// # Safety
/// The kernel has read them.
unsafe fn sent(fd: i32, offset: Option<u64>, done: isize, parts: &[Part]) {
    if done <= 0 {
        return;
    }
    let mut left = done as usize;
    let pieces = parts.iter().map(|part| {
        let len = part.len.min(left);
        left -= len;
        // SAFETY: the caller's.
        unsafe { core::slice::from_raw_parts(part.start as *const u8, len) }
    });
    if pool::is_pool(fd) {
        let mut offset = offset.unwrap_or_else(|| {
            const CURRENT: usize = 1;
            // SAFETY: asks only.
            let end = unsafe { sys::call(LSEEK, [fd as usize, 0, CURRENT, 0, 0, 0]) };
            (end - done) as u64
        });
        for piece in pieces {
            pool::file_written(fd, offset, piece);
            offset += piece.len() as u64;
        }
    } else {
        let mut kept = Vec::with_capacity(OUTPUT_KEPT);
        for piece in pieces {
            let room = OUTPUT_KEPT - kept.len();
            kept.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let (fd, len) = ((fd as u64).to_le_bytes(), (done as u64).to_le_bytes());
        append::append(EventKind::Output, None, &[&fd, &len, &kept]);
    }
}
