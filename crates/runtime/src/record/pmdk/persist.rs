//! Functions that flush, drain and copy for the target: those of libpmem, and those of libpmemobj that do the same.
//!
//! A flush instruction names a line. What it is made for is known only here, where the target names a range.
//!
//! # Safety
//!
//! The functions of libpmemobj have the contracts and the signatures of the headers of version 1.12, and pass on what
//! they got. Those of libpmem pass on all registers with arguments, because a library of the target's may have functions
//! of the same name. What is known of a thread lies in its private memory.
#![allow(
    unsafe_code,
    reason = "stands in for functions of libpmem and libpmemobj"
)]

use core::ffi::{c_int, c_uint, c_void};

use powerfail_protocol::mark;

use super::call::{Pool, observed, original, pass_on, thread};
use crate::record::append;

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn pmem_persist() {
    pass_on!(persists)
}

extern "C" fn persists(address: u64, len: u64) -> extern "C" fn() {
    note_range(address, len);
    original!(pmem_persist as extern "C" fn())
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn pmem_flush() {
    pass_on!(flushes)
}

extern "C" fn flushes(address: u64, len: u64) -> extern "C" fn() {
    note_range(address, len);
    original!(pmem_flush as extern "C" fn())
}

/// Leaves a mark with the range that is about to be flushed, if that is the target's: what libpmemobj flushes for itself
/// is its own business.
fn note_range(address: u64, len: u64) {
    let Some(thread) = thread() else { return };
    // SAFETY: `thread` gives private memory of the calling thread, which no handler of ours changes.
    let (calls, function) = unsafe { ((*thread).calls, (*thread).function) };
    if len > 0 && (calls == 0 || mark::stores_for_caller(function)) {
        append::append_mark([mark::FLUSH_RANGE.into(), 0, address, len]);
    }
}

observed!(fn pmemobj_persist(pool: Pool, address: *const c_void, len: usize));
observed!(fn pmemobj_flush(pool: Pool, address: *const c_void, len: usize));
observed!(fn pmemobj_drain(pool: Pool));
observed!(
    fn pmemobj_xpersist(pool: Pool, address: *const c_void, len: usize, flags: c_uint) -> c_int
);
observed!(
    fn pmemobj_xflush(pool: Pool, address: *const c_void, len: usize, flags: c_uint) -> c_int
);
observed!(
    fn pmemobj_memcpy_persist(
        pool: Pool,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
    ) -> *mut c_void
);
observed!(
    fn pmemobj_memset_persist(pool: Pool, to: *mut c_void, value: c_int, len: usize) -> *mut c_void
);
observed!(
    fn pmemobj_memcpy(
        pool: Pool,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
        flags: c_uint,
    ) -> *mut c_void
);
observed!(
    fn pmemobj_memmove(
        pool: Pool,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
        flags: c_uint,
    ) -> *mut c_void
);
observed!(
    fn pmemobj_memset(
        pool: Pool,
        to: *mut c_void,
        value: c_int,
        len: usize,
        flags: c_uint,
    ) -> *mut c_void
);
