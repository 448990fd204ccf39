//! Executions as processes: forking one, waiting for it, and ending what it leaves behind.
//!
//! # Safety
//!
//! A copy shares no memory with this process and continues on a copy of this stack. Other calls take pointers to
//! this stack only, or none.
#![allow(unsafe_code, reason = "copies the process")]

use core::sync::atomic::AtomicU32;

use crate::host;
use crate::patching::code;
use crate::platform::number::{CLONE, KILL, PRCTL, READ, WAIT4};
use crate::platform::sys;
use crate::recovery::fork::{
    CLONE_CHILD_SETTID, THREAD_NUMBER_AT, for_each_file, leave_the_others,
};

pub(super) use crate::recovery::fork::thread_count;

const WALL: usize = 0x4000_0000;
const NO_HANG: usize = 1;
const ECHILD: isize = 10;
const SIGKILL: usize = 9;
const SEEK_SET: usize = 0;
const SEEK_CUR: usize = 1;

/// Makes a copy of this process and tells its number, before it runs: zero in the copy itself, or a negative
/// error number.
pub(super) fn fork(number: &AtomicU32) -> i32 {
    const CLONE_PARENT_SETTID: usize = 0x0010_0000;
    let parent = sys::getpid();
    let number_at = sys::fs() + THREAD_NUMBER_AT;
    // SAFETY: the header of a thread lies at the FS base.
    let is_known = unsafe { (number_at as *const u32).read() } == sys::gettid();
    let known = if is_known { CLONE_CHILD_SETTID } else { 0 };
    let flags = CLONE_PARENT_SETTID | known;
    let arguments = [flags, 0, number.as_ptr() as usize, number_at as usize, 0, 0];
    // SAFETY: no memory is shared; the copy continues here, on its own copy of this stack. The word is what
    // the C library itself lets fork write.
    let child = unsafe { sys::call(CLONE, arguments) } as i32;
    if child == 0 {
        code::reset_after_fork();
        leave_the_others(parent);
    }
    child
}

/// Makes this process the parent of descendants that lose theirs.
pub(super) fn adopt() {
    const PR_SET_CHILD_SUBREAPER: usize = 36;
    // SAFETY: this `prctl` takes no pointer.
    unsafe { sys::call(PRCTL, [PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0, 0]) };
}

fn wait_for(process: i32, options: usize) -> (isize, u32) {
    let mut status = 0u32;
    let place = &raw mut status as usize;
    let arguments = [process as usize, place, options, 0, 0, 0];
    loop {
        // SAFETY: the kernel writes a status to this stack.
        let done = unsafe { sys::call(WAIT4, arguments) };
        if done != -sys::EINTR {
            return (done, status);
        }
    }
}

/// Waits for the end of a copy of this process; its status.
pub(super) fn wait(process: i32) -> u32 {
    wait_for(process, WALL).1
}

/// Ends whatever an execution has left.
pub(super) fn end_all() {
    loop {
        match wait_for(-1, WALL | NO_HANG).0 {
            done if done == -ECHILD => return,
            0 => {
                kill_children();
                wait_for(-1, WALL);
            }
            _ => {}
        }
    }
}

/// Kills all children of this process.
fn kill_children() {
    let file = sys::open(c"/proc/thread-self/children", 0, 0);
    if file < 0 {
        return;
    }
    let mut text = [0u8; 4096];
    let arguments = [
        file as usize,
        text.as_mut_ptr() as usize,
        text.len(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes no more than there is; the descriptor is ours.
    let len = unsafe {
        let len = sys::call(READ, arguments);
        sys::call(sys::number::CLOSE, [file as usize, 0, 0, 0, 0, 0]);
        len.max(0) as usize
    };
    let mut number = 0usize;
    for byte in &text[..len] {
        match byte {
            b'0'..=b'9' => number = number * 10 + usize::from(byte - b'0'),
            _ if number > 0 => {
                // SAFETY: a child of ours that was not waited for yet.
                unsafe { sys::call(KILL, [number, SIGKILL, 0, 0, 0, 0]) };
                number = 0;
            }
            _ => {}
        }
    }
}

const FILES_MAX: usize = 32;

/// Where descriptors of files stand: copies of a process share that.
pub(super) struct Positions {
    files: [(i32, usize); FILES_MAX],
    count: usize,
}

impl Positions {
    /// Those of all files that are open now.
    pub(super) fn new() -> Self {
        let mut positions = Self {
            files: [(0, 0); FILES_MAX],
            count: 0,
        };
        for_each_file(|fd, _, _| {
            if !host::owns(fd) && positions.count < FILES_MAX {
                // SAFETY: `lseek` by nothing from the current position takes no pointer and changes nothing.
                let at =
                    unsafe { sys::call(sys::number::LSEEK, [fd as usize, 0, SEEK_CUR, 0, 0, 0]) };
                if at >= 0 {
                    positions.files[positions.count] = (fd, at as usize);
                    positions.count += 1;
                }
            }
        });
        positions
    }

    /// Puts them where they were.
    pub(super) fn restore(&self) {
        for (fd, at) in &self.files[..self.count] {
            let arguments = [*fd as usize, *at, SEEK_SET, 0, 0, 0];
            // SAFETY: a descriptor of the target, which was there.
            unsafe { sys::call(sys::number::LSEEK, arguments) };
        }
    }
}
