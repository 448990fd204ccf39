//! System calls by which the target touches its pool or its input.
//!
//! # Safety
//!
//! Callers pass the arguments of a system call that the target makes now, so the kernel reads the same memory.
#![allow(unsafe_code, reason = "reads arguments of system calls")]

use core::sync::atomic::Ordering;

use powerfail_protocol::fuzz::flag;

use crate::host;
use crate::libc::interpose;
use crate::platform::number::{
    EPOLL_PWAIT, EPOLL_WAIT, FSTAT, IOCTL, LSEEK, POLL, PPOLL, PSELECT6, SELECT,
};
use crate::platform::number::{
    LSTAT, NEWFSTATAT, PREAD64, PREADV, PREADV2, READ, READV, RECVFROM, RECVMSG, STATX,
};
use crate::platform::sys;
use crate::record::pools;
use crate::recovery::breakpoints::PATH_FUNCTIONS;
use crate::recovery::paths;
use crate::recovery::pool_calls::Call;

use super::{area, directory, has_flag, input, is_active, level};

const FILE_TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

/// Functions of the C library that take a descriptor which may be the input, or a path, and that recordings
/// are not interested in.
const FURTHER_FUNCTIONS: [&str; 15] = [
    "__open64_nocancel\0",
    "__openat64_nocancel\0",
    "__read_nocancel\0",
    "__pread64_nocancel\0",
    "fstat64\0",
    "__fxstat64\0",
    "lseek64\0",
    "poll\0",
    "ppoll\0",
    "select\0",
    "pselect\0",
    "epoll_wait\0",
    "epoll_pwait\0",
    "ioctl\0",
    "tcgetattr\0",
];

/// Addresses of functions whose system calls must pass through us in a repeated target.
pub(crate) fn functions() -> Vec<u64> {
    if !is_active() {
        return Vec::new();
    }
    let names = PATH_FUNCTIONS.iter().chain(&FURTHER_FUNCTIONS);
    names
        .filter_map(|name| interpose::maybe_find(name))
        .collect()
}

/// Whether a path, from the root on and without links, leads to what is below a directory, or to itself.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    !directory.is_empty()
        && path
            .strip_prefix(directory)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether a path leads to what is below the directory of the pool.
pub(super) fn is_in_directory(path: &[u8]) -> bool {
    is_below(path, directory())
}

/// The target is about to make a system call.
pub(crate) fn before_call(number: usize, arguments: [usize; 6]) {
    if !is_active() {
        return;
    }
    let call = Call {
        number,
        arguments,
        code: sys::registers(),
        mask: None,
    };
    let named = call.paths();
    if named[0].is_some() {
        before_paths(&call, named);
    }
    if level::is_waited_for_input() && touches_input(number, arguments) {
        level::reached_input();
    }
}

fn before_paths(call: &Call, named: [Option<(i32, usize)>; 2]) {
    let mut in_directory = false;
    for (from, path) in named.into_iter().flatten() {
        let Some(whole) = paths::whole(from, path) else {
            continue;
        };
        let simple = paths::simplify(whole.as_slice());
        let simple = simple.as_slice();
        if is_in_directory(simple) {
            in_directory = true;
        } else if !input().is_empty() && simple == input() {
            level::reached_input();
        }
    }
    if in_directory {
        level::reached_pool();
        if call.changes_files(named) {
            area().disorder.store(1, Ordering::Relaxed);
        }
    }
}

/// Whether a call is about the descriptor of the input, or may be.
fn touches_input(number: usize, arguments: [usize; 6]) -> bool {
    match number {
        READ | PREAD64 | READV | PREADV | PREADV2 | RECVFROM | RECVMSG | FSTAT | LSEEK | IOCTL => {
            is_input(arguments[0] as i32)
        }
        NEWFSTATAT | STATX | LSTAT => number != LSTAT && is_input(arguments[0] as i32),
        POLL | PPOLL => polls_input(arguments[0], arguments[1]),
        // Which descriptors these wait for does not matter: few others are there to wait for.
        SELECT | PSELECT6 | EPOLL_WAIT | EPOLL_PWAIT => has_flag(flag::STDIN),
        _ => false,
    }
}

fn polls_input(start: usize, count: usize) -> bool {
    const MANY: usize = 1 << 16;
    if start == 0 || count > MANY {
        return false;
    }
    // SAFETY: the kernel would read these descriptors, too, eight bytes for each.
    (0..count).any(|at| is_input(unsafe { ((start + 8 * at) as *const i32).read() }))
}

/// Whether a descriptor is that of the input.
fn is_input(fd: i32) -> bool {
    let (device, inode) = (&area().input_device, &area().input_inode);
    fd >= 0
        && sys::fstat(fd).is_some_and(|status| {
            status.device == device.load(Ordering::Relaxed)
                && status.inode == inode.load(Ordering::Relaxed)
        })
}

/// The target is about to map a file.
pub(crate) fn before_use(flags: usize, fd: i32) {
    if is_active()
        && level::is_waited_for_input()
        && flags & sys::MAP_ANONYMOUS == 0
        && is_input(fd)
    {
        level::reached_input();
    }
}

/// The target is about to write to a file, or to change its length, of which there is no record if it is no
/// pool.
pub(crate) fn before_change(fd: i32) {
    if !is_active() || host::owns(fd) || area().disorder.load(Ordering::Relaxed) != 0 {
        return;
    }
    let is_file = sys::fstat(fd).is_some_and(|status| status.mode & FILE_TYPE == REGULAR);
    if is_file && !pools::is_pool(fd) && is_in_directory(&pools::path_of(fd)) {
        area().disorder.store(1, Ordering::Relaxed);
    }
}
