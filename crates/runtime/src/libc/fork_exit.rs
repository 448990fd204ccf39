//! `fork`, `_exit`, and what is done in a copy of the process and at the end of one.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions; `reset_after_fork` is called only in a new process, in
//! which no other thread exists.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_void};

use crate::fuzz::{derandomise, desock};
use crate::patching::code;
use crate::platform::{number, sys};
use crate::record::{client_requests, heap, schedule, threads};
use crate::{fuzz, host, recovery};

use super::fork_locks;
use super::interpose::{original, result};

#[unsafe(no_mangle)]
extern "C" fn fork() -> c_int {
    let fork = original!("fork" as extern "C" fn() -> c_int);
    if recovery::is_active() {
        recovery::before_fork();
        let child = fork();
        if child == 0 {
            recovery::after_fork();
            derandomise::after_fork();
        }
        return child;
    }
    if !host::attached() {
        let child = fork();
        if child == 0 {
            derandomise::after_fork();
        }
        return child;
    }
    around_fork(|| fork())
}

/// A `fork` that runs no handlers. Here they run: the runtime must be prepared for the copy.
#[unsafe(no_mangle)]
extern "C" fn _Fork() -> c_int {
    fork()
}

/// That of the C library forks without a symbol.
#[unsafe(no_mangle)]
extern "C" fn daemon(keeps_folder: c_int, keeps_files: c_int) -> c_int {
    match fork() {
        -1 => return -1,
        0 => {}
        _ => end_with(0),
    }
    // SAFETY: paths are strings, and the descriptors are those that a daemon gives up.
    let done = unsafe {
        let done = sys::call(number::SETSID, [0; 6]);
        if done < 0 {
            return result(done) as c_int;
        }
        if keeps_folder == 0 {
            sys::call(number::CHDIR, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]);
        }
        if keeps_files == 0 {
            let null = sys::open(c"/dev/null", sys::O_RDWR, 0);
            for standard in 0..3 {
                sys::call(number::DUP2, [null as usize, standard, 0, 0, 0, 0]);
            }
            if null > 2 {
                sys::close(null);
            }
            null.min(0) as isize
        } else {
            0
        }
    };
    result(done) as c_int
}

/// As [`daemon`].
#[unsafe(no_mangle)]
extern "C" fn forkpty(
    leader: *mut c_int,
    name: *mut c_char,
    terminal: *const c_void,
    size: *const c_void,
) -> c_int {
    type Open =
        extern "C" fn(*mut c_int, *mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int;
    let (mut ours, mut theirs) = (-1, -1);
    let open = original!("openpty" as Open);
    if open(&raw mut ours, &raw mut theirs, name, terminal, size) < 0 {
        return -1;
    }
    let child = fork();
    if child == 0 {
        sys::close(ours);
        if original!("login_tty" as extern "C" fn(c_int) -> c_int)(theirs) < 0 {
            end_with(1);
        }
        return 0;
    }
    sys::close(theirs);
    if child < 0 {
        sys::close(ours);
    } else {
        // SAFETY: the target calls this function as the C library asks for.
        unsafe { leader.write(ours) };
    }
    child
}

/// Makes a process that is a copy of this one.
pub(crate) fn around_fork(fork: impl FnOnce() -> c_int) -> c_int {
    schedule::turn();
    let parent = sys::getpid();
    let child = threads::around_fork(fork);
    if child == 0 {
        reset_after_fork();
        derandomise::after_fork();
        fuzz::has_forked(parent);
    }
    child
}

/// In a process that is a copy: other threads, which may have held locks, do not exist.
pub(crate) fn reset_after_fork() {
    host::reset_after_fork();
    fork_locks::reset_after_fork();
    heap::reset_after_fork();
    code::reset_after_fork();
    desock::reset_after_fork();
}

/// The target ends by itself.
pub(crate) fn conclude() {
    if host::attached() {
        client_requests::conclude();
        threads::conclude();
    }
}

fn end_with(code: c_int) -> ! {
    conclude();
    sys::exit_group(code as usize)
}

#[unsafe(no_mangle)]
extern "C" fn _exit(code: c_int) -> ! {
    end_with(code)
}

#[unsafe(no_mangle)]
extern "C" fn _Exit(code: c_int) -> ! {
    end_with(code)
}
