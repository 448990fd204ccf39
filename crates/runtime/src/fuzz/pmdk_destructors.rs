//! Functions of libpmemobj that do nothing but free an object with what belongs to it.
//!
//! When it closes a pool it does so for each of a thousand lanes, and for each of its caches of free memory, and
//! writes zeros to each object before. In a process that ends soon all that comes of it is a copy of each page. So
//! such functions return at once in executions, if it is certain that they do nothing else ([`frees_only`]).
//!
//! # Safety
//!
//! Functions are those of a loaded module, and are changed while no other thread runs.
#![allow(unsafe_code, reason = "reads and changes code of libpmemobj")]

use crate::patching::code;
use crate::platform::lock::Lock;
use crate::platform::sys;

use super::cheap_copies;
use super::frees::frees_only;

/// Where such functions begin.
static FOUND: Lock<Vec<u64>> = Lock::new(Vec::new());

/// Looks for such functions.
pub(super) fn find(free: u64) {
    let functions = cheap_copies::functions_of_library();
    for function in functions {
        // SAFETY: functions of loaded modules are readable.
        let bytes = unsafe { code::view(function.start, function.end - function.start) };
        if frees_only(bytes, function.start, free, sys::read_own_word) {
            FOUND.with(|found| found.push(function.start));
        }
    }
}

/// Lets them return at once, in this process and in all that it forks.
pub(super) fn silence() {
    const RETURN: [u8; 1] = [0xc3];
    FOUND.with(|found| {
        code::replace(found.iter().map(|address| (*address, &RETURN[..])));
        found.clear();
    });
}
