//! System calls of traced commands, when they have ended.
//!
//! The kernel stops a tracee at the beginning and at the end of each system call.
//!
//! # Safety
//!
//! `ptrace` is called on stopped tracees, with numbers and with a local of the length that is passed.

#![allow(unsafe_code)]

use std::collections::HashMap;

/// From `linux/ptrace.h`: the kinds of stops.
const ENTRY: u64 = 1;
const EXIT: u64 = 2;
/// `struct ptrace_syscall_info` in words: the kind is the lowest byte of the first one.
const INFO_WORDS: usize = 11;
const INFO_NUMBER: usize = 3;
const INFO_ARGUMENTS: usize = 4;

/// A system call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) number: libc::c_long,
    pub(crate) arguments: [u64; 6],
}

/// The calls that have begun.
#[derive(Debug, Default)]
pub(crate) struct RunningCalls(HashMap<i32, Call>);

impl RunningCalls {
    /// A thread has stopped at the beginning or end of a system call. If it has ended, which one, and its result.
    pub(crate) fn stopped(&mut self, thread: i32) -> Option<(Call, i64)> {
        let info = information(thread)?;
        match info[0] & 0xff {
            ENTRY => {
                let mut arguments = [0; 6];
                arguments.copy_from_slice(&info[INFO_ARGUMENTS..INFO_ARGUMENTS + 6]);
                let number = libc::c_long::try_from(info[INFO_NUMBER]).ok()?;
                self.0.insert(thread, Call { number, arguments });
                None
            }
            EXIT => {
                let result = info[INFO_NUMBER].cast_signed();
                Some((self.0.remove(&thread)?, result))
            }
            _ => None,
        }
    }
}

/// What the kernel says about the system call at which a thread has stopped.
fn information(thread: i32) -> Option<[u64; INFO_WORDS]> {
    let mut words = [0; INFO_WORDS];
    // SAFETY: the kernel fills at most as many bytes of the local as it is told, which is its length.
    let filled = unsafe {
        libc::ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            thread,
            size_of_val(&words),
            words.as_mut_ptr(),
        )
    };
    (filled > 0).then_some(words)
}
