//! Times of files. libpmemobj writes that of a new pool into the pool.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions; a structure is changed after the C library has filled it.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_uint};

use super::clock::{REAL_START_NS, SECOND_NS};
use crate::libc::interpose::original;

/// `struct stat`.
#[repr(C)]
struct Status {
    words: [u64; 18],
}

/// `struct statx`.
#[repr(C)]
struct LongStatus {
    words: [u64; 32],
}

impl Status {
    /// Seconds and nanoseconds of three times begin at this word.
    const TIMES_AT: usize = 9;

    fn fix(&mut self) {
        for time in self.words[Self::TIMES_AT..][..6].chunks_mut(2) {
            time.copy_from_slice(&[REAL_START_NS / SECOND_NS, 0]);
        }
    }
}

impl LongStatus {
    /// Seconds and nanoseconds of four times begin at this word.
    const TIMES_AT: usize = 8;

    fn fix(&mut self) {
        for time in self.words[Self::TIMES_AT..][..8].chunks_mut(2) {
            time.copy_from_slice(&[REAL_START_NS / SECOND_NS, 0]);
        }
    }
}

/// Functions that tell what a file is: their arguments before the place for that, and behind.
macro_rules! tells {
    ($($name:ident, $original:literal, ($($before:ident: $kind:ty),*), $status:ty, ($($behind:ident: $last:ty)?);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($before: $kind,)* out: *mut $status $(, $behind: $last)?) -> c_int {
                type Ask = extern "C" fn($($kind,)* *mut $status $(, $last)?) -> c_int;
                let done = original!($original as Ask)($($before,)* out $(, $behind)?);
                if done == 0 && super::is_on() {
                    // SAFETY: the C library has just written there.
                    unsafe { (*out).fix() };
                }
                done
            }
        )*
    };
}

tells! {
    stat, "stat", (path: *const c_char), Status, ();
    stat64, "stat64", (path: *const c_char), Status, ();
    lstat, "lstat", (path: *const c_char), Status, ();
    lstat64, "lstat64", (path: *const c_char), Status, ();
    fstat, "fstat", (fd: c_int), Status, ();
    fstat64, "fstat64", (fd: c_int), Status, ();
    fstatat, "fstatat", (directory: c_int, path: *const c_char), Status, (flags: c_int);
    fstatat64, "fstatat64", (directory: c_int, path: *const c_char), Status, (flags: c_int);
    __xstat, "__xstat", (version: c_int, path: *const c_char), Status, ();
    __xstat64, "__xstat64", (version: c_int, path: *const c_char), Status, ();
    __lxstat, "__lxstat", (version: c_int, path: *const c_char), Status, ();
    __lxstat64, "__lxstat64", (version: c_int, path: *const c_char), Status, ();
    __fxstat, "__fxstat", (version: c_int, fd: c_int), Status, ();
    __fxstat64, "__fxstat64", (version: c_int, fd: c_int), Status, ();
    statx, "statx", (directory: c_int, path: *const c_char, flags: c_int, mask: c_uint), LongStatus, ();
}
