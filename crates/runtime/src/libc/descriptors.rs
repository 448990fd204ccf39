//! Functions that would close a descriptor of ours, or give its number to a file of the target.
//!
//! To the target it is as if the number were not in use. A target that closes descriptors with system calls of its own is
//! not stopped: the runtime then connects to the host again (`host.rs`).
//!
//! # Safety
//!
//! The functions have the contracts of the C functions, take no pointers, and pass on what they got.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_uint};

use crate::host;
use crate::platform::number;
use crate::record::files;

use super::interpose::{explored, original, result};

const EBADF: isize = 9;

#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    if let Some(done) = explored(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) {
        return result(done) as c_int;
    }
    if host::attached() && host::owns(fd) {
        return result(-EBADF) as c_int;
    }
    files::descriptors::forget(fd);
    original!("close" as extern "C" fn(c_int) -> c_int)(fd)
}

#[unsafe(no_mangle)]
extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    type Close = extern "C" fn(c_uint, c_uint, c_int) -> c_int;
    let arguments = [first as usize, last as usize, flags as usize, 0, 0, 0];
    if let Some(done) = explored(number::CLOSE_RANGE, arguments) {
        return result(done) as c_int;
    }
    let close = original!("close_range" as Close);
    files::descriptors::forget_all();
    let ours = host::attached().then(host::socket_number).flatten();
    match ours.map(|ours| ours as c_uint) {
        Some(ours) if (first..=last).contains(&ours) => {
            let below = if first < ours {
                close(first, ours - 1, flags)
            } else {
                0
            };
            if below == 0 && ours < last {
                close(ours + 1, last, flags)
            } else {
                below
            }
        }
        _ => close(first, last, flags),
    }
}

#[unsafe(no_mangle)]
extern "C" fn closefrom(first: c_int) {
    close_range(first.max(0) as c_uint, c_uint::MAX, 0);
}

#[unsafe(no_mangle)]
extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if host::attached() && from != to {
        host::move_away(to);
        files::descriptors::forget(to);
    }
    original!("dup2" as extern "C" fn(c_int, c_int) -> c_int)(from, to)
}

#[unsafe(no_mangle)]
extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if host::attached() && from != to {
        host::move_away(to);
        files::descriptors::forget(to);
    }
    original!("dup3" as extern "C" fn(c_int, c_int, c_int) -> c_int)(from, to, flags)
}
