//! Pools: created, opened, closed, and their roots.
//!
//! # Safety
//!
//! The functions have the contracts and the signatures of the headers of libpmemobj 1.12, and pass on what they
//! got.
#![allow(unsafe_code, reason = "stands in for functions of libpmemobj")]

use core::ffi::{c_char, c_int, c_void};

use powerfail_protocol::mark::{self, allocation};

use super::call::{Call, Constructor, Pool, leave, leave_range, observed, original, thread};
use super::object::{Oid, address_of, len_of};

#[unsafe(no_mangle)]
extern "C" fn pmemobj_create(
    path: *const c_char,
    layout: *const c_char,
    len: usize,
    mode: c_int,
) -> Pool {
    type Create = extern "C" fn(*const c_char, *const c_char, usize, c_int) -> Pool;
    leave(mark::CREATION_BEGIN);
    let call = Call::enter(const { mark::function("pmemobj_create") });
    let pool = original!(pmemobj_create as Create)(path, layout, len, mode);
    let by_target = call.leave();
    leave(mark::CREATION_END);
    if by_target {
        opened(pool);
    }
    pool
}

observed!(
    fn pmemobj_open(path: *const c_char, layout: *const c_char) -> Pool,
    |pool| {
        opened(pool);
    }
);

observed!(fn pmemobj_close(pool: Pool));

fn opened(pool: Pool) {
    if !pool.is_null() {
        leave_range(mark::OPEN, 0, pool as u64, 1);
    }
}

/// Makes a root, or makes it longer. Of a root that is long enough nothing is said.
fn root(pool: Pool, function: u64, value: u64, make: impl FnOnce() -> Oid) -> Oid {
    let before =
        thread().map(|_| original!(pmemobj_root_size as extern "C" fn(Pool) -> usize)(pool) as u64);
    let call = Call::enter(function);
    let root = make();
    if call.leave()
        && let Some(before) = before
        && let Some(address) = address_of(root)
    {
        let now = original!(pmemobj_root_size as extern "C" fn(Pool) -> usize)(pool) as u64;
        if now > before {
            leave_range(mark::ALLOCATE, allocation::WRITTEN, address, before);
            leave_range(
                mark::ALLOCATE,
                value,
                address + before,
                len_of(root).max(now) - before,
            );
        }
    }
    root
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_root(pool: Pool, len: usize) -> Oid {
    let original = original!(pmemobj_root as extern "C" fn(Pool, usize) -> Oid);
    let function = const { mark::function("pmemobj_root") };
    root(pool, function, allocation::ZEROED, || original(pool, len))
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_root_construct(
    pool: Pool,
    len: usize,
    constructor: Constructor,
    argument: *mut c_void,
) -> Oid {
    type Construct = extern "C" fn(Pool, usize, Constructor, *mut c_void) -> Oid;
    let original = original!(pmemobj_root_construct as Construct);
    let function = const { mark::function("pmemobj_root_construct") };
    let value = allocation::ZEROED | allocation::WRITTEN;
    root(pool, function, value, || {
        original(pool, len, constructor, argument)
    })
}

#[unsafe(no_mangle)]
extern "C" fn pmemlog_create(path: *const c_char, len: usize, mode: c_int) -> Pool {
    type Create = extern "C" fn(*const c_char, usize, c_int) -> Pool;
    leave(mark::CREATION_BEGIN);
    let pool = original!(pmemlog_create as Create)(path, len, mode);
    leave(mark::CREATION_END);
    pool
}

#[unsafe(no_mangle)]
extern "C" fn pmemblk_create(
    path: *const c_char,
    block_len: usize,
    len: usize,
    mode: c_int,
) -> Pool {
    type Create = extern "C" fn(*const c_char, usize, usize, c_int) -> Pool;
    leave(mark::CREATION_BEGIN);
    let pool = original!(pmemblk_create as Create)(path, block_len, len, mode);
    leave(mark::CREATION_END);
    pool
}
