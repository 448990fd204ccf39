//! Functions that write, rename or remove files, for recordings of trees.
//!
//! The system calls of these functions have breakpoints as well, because the C library itself makes them, too. A call
//! that comes through here costs no breakpoint.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions, and pass on what they got.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_long, c_void};

use crate::platform::number;
use crate::record::files::{calls, descriptors, trees};

use super::interpose::{original, result};

/// A function that makes a system call with the same arguments.
macro_rules! stand_in {
    ($($name:ident, $original:literal, $number:expr, ($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $kind),*) -> $result {
                let mut arguments = [0; 6];
                for (place, argument) in arguments.iter_mut().zip([$($argument as usize),*]) {
                    *place = argument;
                }
                // SAFETY: the target calls the function that makes this system call.
                match unsafe { calls::perform($number, arguments) } {
                    Some(done) => result(done) as $result,
                    None => original!($original as extern "C" fn($($kind),*) -> $result)($($argument),*),
                }
            }
        )*
    };
}

stand_in! {
    write, "write", number::WRITE, (fd: c_int, bytes: *const c_void, len: usize) -> isize;
    pwrite, "pwrite", number::PWRITE64,
        (fd: c_int, bytes: *const c_void, len: usize, offset: c_long) -> isize;
    pwrite64, "pwrite64", number::PWRITE64,
        (fd: c_int, bytes: *const c_void, len: usize, offset: c_long) -> isize;
    writev, "writev", number::WRITEV, (fd: c_int, parts: *const c_void, count: c_int) -> isize;
    pwritev, "pwritev", number::PWRITEV,
        (fd: c_int, parts: *const c_void, count: c_int, offset: c_long) -> isize;
    pwritev64, "pwritev64", number::PWRITEV,
        (fd: c_int, parts: *const c_void, count: c_int, offset: c_long) -> isize;
    rename, "rename", number::RENAME, (from: *const c_char, to: *const c_char) -> c_int;
    unlink, "unlink", number::UNLINK, (path: *const c_char) -> c_int;
}

/// Functions that close the descriptor of a stream, which the C library does without a symbol.
macro_rules! closes_stream {
    ($($name:ident, $original:literal, ($($before:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($($before: $kind,)* stream: *mut c_void) -> $result {
                if trees::are_on() && !stream.is_null() {
                    let number = original!("fileno" as extern "C" fn(*mut c_void) -> c_int);
                    descriptors::forget(number(stream));
                }
                original!($original as extern "C" fn($($kind,)* *mut c_void) -> $result)($($before,)* stream)
            }
        )*
    };
}

closes_stream! {
    fclose, "fclose", () -> c_int;
    freopen, "freopen", (path: *const c_char, mode: *const c_char) -> *mut c_void;
    freopen64, "freopen64", (path: *const c_char, mode: *const c_char) -> *mut c_void;
}
