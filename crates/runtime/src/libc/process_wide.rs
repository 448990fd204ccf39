//! What the target does to its whole process, and so to the runtime in it: locking all memory, and filters of system calls.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions, and pass on what they got. A filter is read where the kernel is
//! about to read it.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::c_int;

use crate::platform::number::{self, MLOCKALL, PRCTL, SECCOMP};
use crate::{host, recovery};

use super::interpose::{original, result};
use super::seccomp_filter::{self, Instruction};

#[unsafe(no_mangle)]
extern "C" fn mlockall(flags: c_int) -> c_int {
    match perform(MLOCKALL, [flags as usize, 0, 0, 0, 0, 0]) {
        Some(done) => result(done) as c_int,
        None => original!("mlockall" as extern "C" fn(c_int) -> c_int)(flags),
    }
}

/// Takes up to four arguments more, which are in the same places whatever they are.
#[unsafe(no_mangle)]
extern "C" fn prctl(
    option: c_int,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
) -> c_int {
    type Control = extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
    perform(PRCTL, [option as usize, second, third, fourth, fifth, 0]);
    original!("prctl" as Control)(option, second, third, fourth, fifth)
}

/// What becomes of a system call that concerns the whole process; `None`: the kernel must be asked.
pub(crate) fn perform(number: usize, arguments: [usize; 6]) -> Option<isize> {
    if !host::attached() && !recovery::is_active() {
        return None;
    }
    if number == MLOCKALL {
        return Some(lock_all(arguments[0]));
    }
    if let Some(refused) = call_refused_by_filter(number, arguments) {
        let filter = format!(
            "restricts its system calls with seccomp, and does not allow {refused}, which the runtime needs"
        );
        if recovery::is_active() {
            recovery::refuse(&format!("the recovery {filter}"));
        }
        host::fatal(&format!("the target {filter}; run it without its sandbox"));
    }
    None
}

/// Locks nothing: it would fill the addresses that are reserved for pools and records with pages, gigabytes of them. What
/// is recorded does not depend on it.
const fn lock_all(flags: usize) -> isize {
    const CURRENT_OR_FUTURE: usize = 1 | 2;
    const ON_FAULT: usize = 4;
    const EINVAL: isize = 22;
    let is_valid = flags & CURRENT_OR_FUTURE != 0 && flags & !(CURRENT_OR_FUTURE | ON_FAULT) == 0;
    if is_valid { 0 } else { -EINVAL }
}

/// A system call that the runtime needs, if this call installs a filter that does not allow it.
fn call_refused_by_filter(number: usize, arguments: [usize; 6]) -> Option<&'static str> {
    const PR_SET_SECCOMP: usize = 22;
    const MODE_STRICT: usize = 1;
    const SET_MODE_STRICT: usize = 0;
    const SET_MODE_FILTER: usize = 1;
    let [first, second, third, ..] = arguments;
    let (is_strict, is_filter) = match number {
        PRCTL if first == PR_SET_SECCOMP => (second == MODE_STRICT, second != MODE_STRICT),
        SECCOMP => (first == SET_MODE_STRICT, first == SET_MODE_FILTER),
        _ => (false, false),
    };
    let mut needed = NEEDED.iter();
    if is_strict {
        return needed.next().map(|(name, _)| *name);
    }
    // Without a program, the target only asks whether the kernel has filters.
    let program = third as *const Program;
    if !is_filter || program.is_null() {
        return None;
    }
    // SAFETY: by the contract of the call the kernel reads the program there, too.
    let program = unsafe {
        let Program { len, instructions } = program.read();
        core::slice::from_raw_parts(instructions, usize::from(len))
    };
    let refused = needed.find(|(_, number)| !seccomp_filter::allows(program, *number));
    refused.map(|(name, _)| *name)
}

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    len: u16,
    instructions: *const Instruction,
}

/// System calls that the runtime makes while a program runs.
const NEEDED: [(&str, usize); 14] = [
    ("rt_sigprocmask", number::RT_SIGPROCMASK),
    ("rt_sigreturn", number::RT_SIGRETURN),
    ("rt_sigaction", number::RT_SIGACTION),
    ("futex", number::FUTEX),
    ("sendmsg", number::SENDMSG),
    ("mmap", number::MMAP),
    ("munmap", number::MUNMAP),
    ("mprotect", number::MPROTECT),
    ("gettid", number::GETTID),
    ("fstat", number::FSTAT),
    ("readlink", number::READLINK),
    ("close", number::CLOSE),
    ("membarrier", number::MEMBARRIER),
    ("exit_group", number::EXIT_GROUP),
];
