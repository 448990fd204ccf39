//! Processes: copies of this one, and what stands against making one.
//!
//! # Safety
//!
//! A copy shares no memory with this process and continues on a copy of this stack. Other calls take pointers to
//! this stack only, or none.
#![allow(unsafe_code, reason = "copies the process")]

use core::sync::atomic::{AtomicU32, Ordering};

use crate::patching::{code, go_functions};
use crate::platform::number::{CLONE, DUP3, GETDENTS64, OPEN, SETSID, STAT, WAIT4, WAITID};
use crate::platform::sys;
use crate::record::heap;

use super::{
    among_threads, breakpoints, hot_sites, load_stacks, lock_owners, log, ordering, shared_file,
    state, step, string_functions, turn,
};

pub(crate) const CLONE_CHILD_SETTID: usize = 0x0100_0000;
/// Where the C library keeps the number of a thread, from the FS base.
pub(crate) const THREAD_NUMBER_AT: u64 = 0x2d0;
const WALL: usize = 0x4000_0000;
const ECHILD: isize = 10;

const F_GETFD: usize = 1;
const F_GETFL: usize = 3;
const O_ACCMODE: usize = 3;
const O_CLOEXEC: usize = 0o2_000_000;
const O_PATH: usize = 0o10_000_000;
const SEEK_SET: usize = 0;
const SEEK_CUR: usize = 1;

const FILE_TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

/// The process that is the execution: that which a snapshot or a branch has made. Children that the
/// recovery makes itself are part of it, and cannot branch.
static EXECUTION: AtomicU32 = AtomicU32::new(0);

/// Whether this process is an execution and can branch.
pub(super) fn is_execution() -> bool {
    EXECUTION.load(Ordering::Relaxed) == sys::getpid()
}

/// Makes a copy of this process, whose end only [`wait`] reports: the number of the copy, zero in
/// the copy itself, or a negative error number. `has_files`: whether there may be files in which the copy
/// needs positions of its own.
pub(super) fn fork(has_files: bool) -> i32 {
    let parent = sys::getpid();
    let logged_thread = log::thread();
    let number_at = sys::fs() + THREAD_NUMBER_AT;
    // Only where it is certain that this is the number.
    let is_known = sys::read_own_word(number_at).is_some_and(|word| word as u32 == sys::gettid());
    let flags = if is_known { CLONE_CHILD_SETTID } else { 0 };
    // SAFETY: no memory is shared; the copy continues here, on its own copy of this stack. The word is
    // what the C library itself lets fork write.
    let child = unsafe { sys::call(CLONE, [flags, 0, 0, number_at as usize, 0, 0]) } as i32;
    if child == 0 {
        code::reset_after_fork();
        step::inherit_after_fork();
        log::continue_thread(logged_thread);
        let me = sys::getpid();
        EXECUTION.store(me, Ordering::Relaxed);
        leave_the_others(parent);
        shared_file::control().active.store(me, Ordering::Relaxed);
        if has_files {
            reopen_files();
        }
    }
    child
}

/// In a copy: a signal to its group must not reach those that wait for it, as a recovery that is executed is
/// alone in its group; and it ends with its parent.
pub(crate) fn leave_the_others(parent: u32) {
    // SAFETY: takes no pointer.
    unsafe { sys::call(SETSID, [0; 6]) };
    sys::end_with_parent(parent);
}

/// Waits for the end of a copy of this process; its status.
pub(crate) fn wait(process: i32) -> i32 {
    let mut status = 0i32;
    let arguments = [process as usize, &raw mut status as usize, WALL, 0, 0, 0];
    loop {
        // SAFETY: the kernel writes a status to this stack.
        let done = unsafe { sys::call(WAIT4, arguments) };
        if done != -sys::EINTR {
            return status;
        }
    }
}

/// How many threads this process has.
pub(crate) fn thread_count() -> u64 {
    let mut status = [0u64; 18];
    let path = c"/proc/self/task".as_ptr() as usize;
    let arguments = [path, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: struct stat has 144 bytes.
    let done = unsafe { sys::call(STAT, arguments) };
    // A directory has two links, and one more for each directory in it.
    if done == 0 {
        status[2].saturating_sub(2)
    } else {
        2
    }
}

fn has_children() -> bool {
    const EXITED: usize = 4;
    const NO_HANG: usize = 1;
    const NO_WAIT: usize = 0x0100_0000;
    let mut info = [0u64; 16];
    let options = EXITED | NO_HANG | NO_WAIT | WALL;
    let arguments = [0, 0, info.as_mut_ptr() as usize, options, 0, 0];
    // SAFETY: siginfo_t has 128 bytes.
    unsafe { sys::call(WAITID, arguments) != -ECHILD }
}

/// Why a copy of this process would not be alone with what it does, if so.
pub(super) fn company() -> Option<&'static str> {
    if thread_count() > 1 {
        return Some("several threads run");
    }
    if has_children() {
        return Some("there are child processes");
    }
    let mut found = false;
    for_each_file(|fd, status, flags| {
        found |= flags & O_ACCMODE != 0 && !state::is_pool_status(status) && !shared_file::owns(fd);
    });
    found.then_some("a file is open for writing")
}

fn control_file(fd: i32, command: usize) -> usize {
    // SAFETY: commands that read flags take no pointer and change nothing.
    let flags = unsafe { sys::call(sys::number::FCNTL, [fd as usize, command, 0, 0, 0, 0]) };
    usize::try_from(flags).unwrap_or(0)
}

/// Shows all descriptors of regular files, with their flags.
pub(crate) fn for_each_file(mut show: impl FnMut(i32, &sys::FileStatus, usize)) {
    // SAFETY: the kernel reads the path, a constant with a zero byte at its end, and writes nothing.
    let path = c"/proc/self/fd".as_ptr() as usize;
    let directory = unsafe { sys::call(OPEN, [path, O_CLOEXEC, 0, 0, 0, 0]) };
    if directory < 0 {
        return;
    }
    let mut entries = [0u64; 256];
    loop {
        let place = entries.as_mut_ptr() as usize;
        let arguments = [directory as usize, place, size_of_val(&entries), 0, 0, 0];
        // SAFETY: the kernel writes no more than there is.
        let len = unsafe { sys::call(GETDENTS64, arguments) };
        let Some(len) = usize::try_from(len).ok().filter(|len| *len > 0) else {
            break;
        };
        // SAFETY: the kernel has just written `len` bytes to this buffer.
        let bytes = unsafe { core::slice::from_raw_parts(place as *const u8, len) };
        let mut at = 0;
        while at + 19 < len {
            // Inode, offset, length of the entry, type, name.
            let next = at + usize::from(u16::from_le_bytes([bytes[at + 16], bytes[at + 17]]));
            if let Some(fd) = number_of(&bytes[at + 19..next.min(len)])
                && fd as isize != directory
                && let Some(status) = sys::fstat(fd)
                && status.mode & FILE_TYPE == REGULAR
            {
                let flags = control_file(fd, F_GETFL);
                if flags & O_PATH == 0 {
                    show(fd, &status, flags);
                }
            }
            at = next.max(at + 1);
        }
    }
    sys::close(directory as i32);
}

fn number_of(name: &[u8]) -> Option<i32> {
    let digits = name.split(|byte| *byte == 0).next()?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// Whether a copy of this process would share positions in files with it.
pub(super) fn has_files() -> bool {
    let mut found = false;
    for_each_file(|fd, _, _| found |= has_position(fd));
    found
}

/// Whether a file may be read or written from its current position. This is not so for files of ours, nor for
/// the runtime's library, which is sealed.
fn has_position(fd: i32) -> bool {
    const F_GET_SEALS: usize = 1034;
    const F_SEAL_WRITE: usize = 8;
    let is_sealed = control_file(fd, F_GET_SEALS) & F_SEAL_WRITE != 0;
    !shared_file::owns(fd) && !state::owns(fd) && !is_sealed
}

/// In a copy: gives every descriptor of a file a position of its own.
fn reopen_files() {
    for_each_file(|fd, _, flags| {
        if !has_position(fd) {
            return;
        }
        let mut path = [0u8; 32];
        path_of_descriptor(fd, &mut path);
        let is_closed_on_exec = control_file(fd, F_GETFD) & 1 != 0;
        let cloexec = if is_closed_on_exec { O_CLOEXEC } else { 0 };
        // SAFETY: a descriptor of the target is replaced by one of the same file.
        unsafe {
            let position = sys::call(sys::number::LSEEK, [fd as usize, 0, SEEK_CUR, 0, 0, 0]);
            let new = sys::call(OPEN, [path.as_ptr() as usize, flags, 0, 0, 0, 0]);
            if new >= 0 {
                let new = new as usize;
                if position > 0 {
                    let arguments = [new, position as usize, SEEK_SET, 0, 0, 0];
                    sys::call(sys::number::LSEEK, arguments);
                }
                sys::call(DUP3, [new, fd as usize, cloexec, 0, 0, 0]);
                sys::call(sys::number::CLOSE, [new, 0, 0, 0, 0, 0]);
            }
        }
    });
}

/// Writes the path by which a descriptor can be opened again, with a zero behind it.
pub(crate) fn path_of_descriptor(fd: i32, out: &mut [u8; 32]) {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    out[..PREFIX.len()].copy_from_slice(PREFIX);
    let mut digits = [0u8; 10];
    let (mut rest, mut count) = (fd.cast_unsigned(), 0);
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    for place in 0..count {
        out[PREFIX.len() + place] = digits[count - 1 - place];
    }
}

/// The recovery itself is about to make a copy of itself.
pub(crate) fn before_fork() {
    if super::is_lazy() && turn::take(|state| !state.mappings.is_empty()) {
        super::refuse_private("the recovery forks while a pool is mapped");
    }
}

/// The recovery has made a copy of itself, and this is the copy: other threads, which may have held locks, do not exist.
pub(crate) fn after_fork() {
    turn::reset_after_fork();
    step::reset_after_fork();
    hot_sites::reset_after_fork();
    among_threads::reset_after_fork();
    ordering::reset_after_fork();
    breakpoints::reset_after_fork();
    string_functions::reset_after_fork();
    lock_owners::reset_after_fork();
    load_stacks::reset_after_fork();
    go_functions::reset_after_fork();
    heap::reset_after_fork();
    code::reset_after_fork();
}
