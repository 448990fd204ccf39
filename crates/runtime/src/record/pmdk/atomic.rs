//! Objects that are allocated and freed outside of transactions.
//!
//! # Safety
//!
//! The functions have the contracts and the signatures of the headers of libpmemobj 1.12, and pass on what they
//! got. Objects that are read and written are those that the target passes to the library.
#![allow(unsafe_code, reason = "stands in for functions of libpmemobj")]

use core::ffi::{c_char, c_int, c_void};

use powerfail_protocol::mark::{self, ALLOCATE, FREE, allocation};

use super::call::{Call, Constructor, Pool, observed, original, thread};
use super::object::{ATOMIC, Before, Oid, allocated, value_of};

/// What a pointer to an object says. The library may be given none, and then the object is lost.
pub(super) fn read(object: *const Oid) -> Option<Oid> {
    // SAFETY: the library has just used it, or is about to.
    (!object.is_null()).then(|| unsafe { object.read() })
}

fn allocated_at(failed: c_int, object: *const Oid, value: u64) {
    if let (0, Some(object)) = (failed, read(object)) {
        allocated(ALLOCATE, object, value);
    }
}

const fn by(constructor: Constructor) -> u64 {
    if constructor.is_some() {
        allocation::WRITTEN
    } else {
        0
    }
}

observed!(
    fn pmemobj_alloc(
        pool: Pool,
        object: *mut Oid,
        len: usize,
        kind: u64,
        constructor: Constructor,
        argument: *mut c_void,
    ) -> c_int,
    |failed| {
        allocated_at(failed, object, by(constructor));
    }
);

observed!(
    fn pmemobj_xalloc(
        pool: Pool,
        object: *mut Oid,
        len: usize,
        kind: u64,
        flags: u64,
        constructor: Constructor,
        argument: *mut c_void,
    ) -> c_int,
    |failed| {
        allocated_at(failed, object, by(constructor) | value_of(flags));
    }
);

observed!(
    fn pmemobj_zalloc(pool: Pool, object: *mut Oid, len: usize, kind: u64) -> c_int,
    |failed| {
        allocated_at(failed, object, allocation::ZEROED);
    }
);

observed!(
    fn pmemobj_strdup(pool: Pool, object: *mut Oid, text: *const c_char, kind: u64) -> c_int,
    |failed| {
        allocated_at(failed, object, allocation::WRITTEN);
    }
);

observed!(
    fn pmemobj_wcsdup(pool: Pool, object: *mut Oid, text: *const i32, kind: u64) -> c_int,
    |failed| {
        allocated_at(failed, object, allocation::WRITTEN);
    }
);

/// What a pointer to an object says before a call.
fn before(object: *const Oid) -> Option<Before> {
    thread()?;
    read(object).map(Before::of)
}

type Reallocate = extern "C" fn(Pool, *mut Oid, usize, u64) -> c_int;

fn reallocate(
    original: Reallocate,
    function: u64,
    (pool, object, len, kind): (Pool, *mut Oid, usize, u64),
    rest: u64,
) -> c_int {
    let before = before(object);
    let call = Call::enter(function);
    let failed = original(pool, object, len, kind);
    if call.leave()
        && failed == 0
        && let (Some(before), Some(object)) = (before, read(object))
    {
        before.reallocated(ATOMIC, object, rest);
    }
    failed
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_realloc(pool: Pool, object: *mut Oid, len: usize, kind: u64) -> c_int {
    let function = const { mark::function("pmemobj_realloc") };
    let original = original!(pmemobj_realloc as Reallocate);
    reallocate(original, function, (pool, object, len, kind), 0)
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_zrealloc(pool: Pool, object: *mut Oid, len: usize, kind: u64) -> c_int {
    let function = const { mark::function("pmemobj_zrealloc") };
    let original = original!(pmemobj_zrealloc as Reallocate);
    let arguments = (pool, object, len, kind);
    reallocate(original, function, arguments, allocation::ZEROED)
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_free(object: *mut Oid) {
    let before = before(object);
    let call = Call::enter(const { mark::function("pmemobj_free") });
    original!(pmemobj_free as extern "C" fn(*mut Oid))(object);
    if call.leave()
        && let Some(before) = before
    {
        before.freed(FREE);
    }
}

#[unsafe(no_mangle)]
extern "C" fn pmemobj_defrag(
    pool: Pool,
    objects: *mut *mut Oid,
    count: usize,
    result: *mut c_void,
) -> c_int {
    type Defrag = extern "C" fn(Pool, *mut *mut Oid, usize, *mut c_void) -> c_int;
    let original = original!(pmemobj_defrag as Defrag);
    let call = Call::enter(const { mark::function("pmemobj_defrag") });
    let failed = original(pool, objects, count, result);
    if call.leave() {
        for number in 0..count {
            // SAFETY: the library has just used them.
            let object = unsafe { objects.add(number).read().cast_const() };
            // An object that has moved was copied. Where it was is reused only after another mark.
            allocated_at(0, object, allocation::WRITTEN);
        }
    }
    failed
}
