//! Functions that do for the target what libpmem does: flush, drain and copy.
//!
//! # Safety
//!
//! The functions have the contracts and the signatures of the headers of libpmemobj 1.12, and pass on what they
//! got.
#![allow(unsafe_code, reason = "stands in for functions of libpmemobj")]

use core::ffi::{c_int, c_uint, c_void};

use super::call::{Pool, observed};

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
