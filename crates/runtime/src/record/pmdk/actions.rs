//! Actions: objects that are reserved first, and allocated with others at once.
//!
//! # Safety
//!
//! The functions have the contracts and the signatures of the headers of libpmemobj 1.12, and pass on what they
//! got.
#![allow(unsafe_code, reason = "stands in for functions of libpmemobj")]

use core::ffi::c_int;

use powerfail_protocol::mark::{self, allocation};

use super::call::{Pool, leave_range, observed, thread};
use super::object::{Oid, allocated, value_of};

/// `struct pobj_action`.
#[repr(C)]
pub(super) struct Action {
    kind: u32,
    data: [u32; 3],
    /// Of an action of the heap: where the object is in its pool.
    offset: u64,
    more: [u64; 13],
}

const HEAP: u32 = 0;

/// Leaves a mark for each object of some actions.
fn each(code: u32, value: u64, pool: u64, actions: *const Action, count: usize) {
    for number in 0..count {
        // SAFETY: the library has just used them.
        let (kind, offset) = unsafe {
            let action = actions.add(number);
            ((*action).kind, (*action).offset)
        };
        if kind == HEAP && pool != 0 {
            leave_range(code, value, pool + offset, 1);
        }
    }
}

fn pool_of_transaction() -> u64 {
    // SAFETY: `thread` gives private memory of the calling thread, which no handler of ours changes.
    thread().map_or(0, |thread| unsafe { (*thread).pool })
}

observed!(
    fn pmemobj_reserve(pool: Pool, action: *mut Action, len: usize, kind: u64) -> Oid,
    |done| {
        allocated(mark::ALLOCATE, done, allocation::RESERVED);
    }
);

observed!(
    fn pmemobj_xreserve(pool: Pool, action: *mut Action, len: usize, kind: u64, flags: u64) -> Oid,
    |done| {
        allocated(mark::ALLOCATE, done, allocation::RESERVED | value_of(flags));
    }
);

observed!(fn pmemobj_set_value(pool: Pool, action: *mut Action, place: *mut u64, value: u64));

observed!(fn pmemobj_defer_free(pool: Pool, object: Oid, action: *mut Action));

observed!(
    fn pmemobj_publish(pool: Pool, actions: *mut Action, count: usize) -> c_int,
    |failed| {
        if failed == 0 {
            each(mark::PUBLISH, 0, pool as u64, actions, count);
        }
    }
);

observed!(
    fn pmemobj_tx_publish(actions: *mut Action, count: usize) -> c_int,
    |failed| {
        if failed == 0 {
            each(mark::PUBLISH, 1, pool_of_transaction(), actions, count);
        }
    }
);

observed!(
    fn pmemobj_tx_xpublish(actions: *mut Action, count: usize, flags: u64) -> c_int,
    |failed| {
        if failed == 0 {
            each(mark::PUBLISH, 1, pool_of_transaction(), actions, count);
        }
    }
);

observed!(
    fn pmemobj_cancel(pool: Pool, actions: *mut Action, count: usize),
    |done| {
        each(mark::FREE, 0, pool as u64, actions, count);
    }
);
