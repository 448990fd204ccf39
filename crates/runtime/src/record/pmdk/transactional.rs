//! Objects that are allocated and freed in a transaction.
//!
//! # Safety
//!
//! The functions have the contracts and the signatures of the headers of libpmemobj 1.12, and pass on what they
//! got.
#![allow(unsafe_code, reason = "stands in for functions of libpmemobj")]

use core::ffi::{c_char, c_int};

use powerfail_protocol::mark::{self, TRANSACTION_ALLOCATE, TRANSACTION_FREE, allocation};

use super::call::{Call, observed, original, thread};
use super::object::{Before, FLAG_NO_FLUSH, IN_TRANSACTION, Oid, allocated, value_of};

observed!(
    fn pmemobj_tx_alloc(len: usize, kind: u64) -> Oid,
    |done| {
        allocated(TRANSACTION_ALLOCATE, done, 0);
    }
);

observed!(
    fn pmemobj_tx_zalloc(len: usize, kind: u64) -> Oid,
    |done| {
        allocated(TRANSACTION_ALLOCATE, done, allocation::ZEROED);
    }
);

observed!(
    fn pmemobj_tx_xalloc(len: usize, kind: u64, flags: u64) -> Oid,
    |done| {
        allocated(TRANSACTION_ALLOCATE, done, value_of(flags));
    }
);

observed!(
    fn pmemobj_tx_strdup(text: *const c_char, kind: u64) -> Oid,
    |done| {
        allocated(TRANSACTION_ALLOCATE, done, allocation::WRITTEN);
    }
);

observed!(
    fn pmemobj_tx_xstrdup(text: *const c_char, kind: u64, flags: u64) -> Oid,
    |done| {
        let value = allocation::WRITTEN | value_of(flags & FLAG_NO_FLUSH);
        allocated(TRANSACTION_ALLOCATE, done, value);
    }
);

observed!(
    fn pmemobj_tx_wcsdup(text: *const i32, kind: u64) -> Oid,
    |done| {
        allocated(TRANSACTION_ALLOCATE, done, allocation::WRITTEN);
    }
);

observed!(
    fn pmemobj_tx_xwcsdup(text: *const i32, kind: u64, flags: u64) -> Oid,
    |done| {
        let value = allocation::WRITTEN | value_of(flags & FLAG_NO_FLUSH);
        allocated(TRANSACTION_ALLOCATE, done, value);
    }
);

fn reallocate(
    original: extern "C" fn(Oid, usize, u64) -> Oid,
    function: u64,
    (object, len, kind): (Oid, usize, u64),
    rest: u64,
) -> Oid {
    let before = thread().map(|_| Before::of(object));
    let call = Call::enter(function);
    let done = original(object, len, kind);
    if call.leave()
        && let Some(before) = before
        && (done.offset != 0 || len == 0)
    {
        before.reallocated(IN_TRANSACTION, done, rest);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_tx_realloc(object: Oid, len: usize, kind: u64) -> Oid {
    let function = const { mark::function("pmemobj_tx_realloc") };
    let original = original!(pmemobj_tx_realloc as extern "C" fn(Oid, usize, u64) -> Oid);
    reallocate(original, function, (object, len, kind), 0)
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_tx_zrealloc(object: Oid, len: usize, kind: u64) -> Oid {
    let function = const { mark::function("pmemobj_tx_zrealloc") };
    let original = original!(pmemobj_tx_zrealloc as extern "C" fn(Oid, usize, u64) -> Oid);
    reallocate(original, function, (object, len, kind), allocation::ZEROED)
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_tx_free(object: Oid) -> c_int {
    let before = thread().map(|_| Before::of(object));
    let call = Call::enter(const { mark::function("pmemobj_tx_free") });
    let failed = original!(pmemobj_tx_free as extern "C" fn(Oid) -> c_int)(object);
    will_be_free(call, failed, before);
    failed
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_tx_xfree(object: Oid, flags: u64) -> c_int {
    let before = thread().map(|_| Before::of(object));
    let call = Call::enter(const { mark::function("pmemobj_tx_xfree") });
    let failed = original!(pmemobj_tx_xfree as extern "C" fn(Oid, u64) -> c_int)(object, flags);
    will_be_free(call, failed, before);
    failed
}

fn will_be_free(call: Call, failed: c_int, before: Option<Before>) {
    if call.leave()
        && failed == 0
        && let Some(before) = before
    {
        before.freed(TRANSACTION_FREE);
    }
}
