//! Lists whose links the library keeps.
//!
//! # Safety
//!
//! The functions have the contracts and the signatures of the headers of libpmemobj 1.12, and pass on what they
//! got.
#![allow(unsafe_code, reason = "stands in for functions of libpmemobj")]

use core::ffi::{c_int, c_void};

use powerfail_protocol::mark::{self, allocation};

use super::call::{Call, Constructor, Pool, leave_range, observed, original, thread};
use super::object::{Before, Oid, address_of, len_of};

/// Length of what an element has of its list: two objects and what else the headers keep there.
const ENTRY_LEN: u64 = 32;

observed!(
    fn pmemobj_list_insert(
        pool: Pool,
        entry_offset: usize,
        head: *mut c_void,
        neighbour: Oid,
        before: c_int,
        object: Oid,
    ) -> c_int
);

observed!(
    fn pmemobj_list_insert_new(
        pool: Pool,
        entry_offset: usize,
        head: *mut c_void,
        neighbour: Oid,
        before: c_int,
        len: usize,
        kind: u64,
        constructor: Constructor,
        argument: *mut c_void,
    ) -> Oid,
    |done| {
        if let Some(address) = address_of(done) {
            let whole = len_of(done);
            let value = if constructor.is_some() { allocation::WRITTEN } else { 0 };
            // The library has written the links.
            let entry = (entry_offset as u64).min(whole);
            let behind = (entry + ENTRY_LEN).min(whole);
            leave_range(mark::ALLOCATE, value, address, entry);
            leave_range(mark::ALLOCATE, allocation::WRITTEN, address + entry, behind - entry);
            leave_range(mark::ALLOCATE, value, address + behind, whole - behind);
        }
    }
);

#[unsafe(no_mangle)]
extern "C" fn pmemobj_list_remove(
    pool: Pool,
    entry_offset: usize,
    head: *mut c_void,
    object: Oid,
    free: c_int,
) -> c_int {
    type Remove = extern "C" fn(Pool, usize, *mut c_void, Oid, c_int) -> c_int;
    let before = thread().map(|_| Before::of(object));
    let original = original!(pmemobj_list_remove as Remove);
    let call = Call::enter(const { mark::function("pmemobj_list_remove") });
    let failed = original(pool, entry_offset, head, object, free);
    if call.leave()
        && failed == 0
        && free != 0
        && let Some(before) = before
    {
        before.freed(mark::FREE);
    }
    failed
}

observed!(
    fn pmemobj_list_move(
        pool: Pool,
        old_entry_offset: usize,
        old_head: *mut c_void,
        new_entry_offset: usize,
        new_head: *mut c_void,
        neighbour: Oid,
        before: c_int,
        object: Oid,
    ) -> c_int
);
