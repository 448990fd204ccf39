//! `fork`, `_exit`, and what is done in a copy of the process and at the end of one.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions; `reset_after_fork` is called only in a new process, in
//! which no other thread exists.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::c_int;

use crate::fuzz::{derandomise, desock};
use crate::patching::code;
use crate::platform::sys;
use crate::record::sites::SITES;
use crate::record::{
    call_stacks, client_requests, generated_code, pool_files, pools, schedule, threads,
};
use crate::{fuzz, host, recovery};

use super::interpose::original;

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
    call_stacks::reset_after_fork();
    SITES.reset_after_fork();
    pools::reset_after_fork();
    pool_files::reset_after_fork();
    generated_code::reset_after_fork();
    code::reset_after_fork();
    client_requests::reset_after_fork();
    desock::reset_after_fork();
}

/// The target ends by itself.
pub(crate) fn conclude() {
    if host::attached() {
        client_requests::conclude();
        threads::conclude();
    }
}

#[unsafe(no_mangle)]
extern "C" fn _exit(code: c_int) -> ! {
    conclude();
    sys::exit_group(code as usize)
}

#[unsafe(no_mangle)]
extern "C" fn _Exit(code: c_int) -> ! {
    conclude();
    sys::exit_group(code as usize)
}
