//! Objects: how the library names them, where they are and how long.
//!
//! # Safety
//!
//! The functions have the contracts and the signatures of the headers of libpmemobj 1.12, and pass on what they
//! got.
#![allow(unsafe_code, reason = "stands in for functions of libpmemobj")]

use powerfail_protocol::mark::{self, allocation};

use super::call::{leave_range, original};

/// Flag of many functions: the object is filled with zeros.
pub(super) const FLAG_ZERO: u64 = 1;
/// The commit does not flush.
pub(super) const FLAG_NO_FLUSH: u64 = 2;
/// The old content is not kept.
pub(super) const FLAG_NO_SNAPSHOT: u64 = 4;

/// `PMEMoid`: an object of a pool.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Oid {
    pub(super) pool: u64,
    pub(super) offset: u64,
}

/// Where an object is.
pub(super) fn address_of(object: Oid) -> Option<u64> {
    if object.offset == 0 {
        return None;
    }
    let address = original!(pmemobj_direct as extern "C" fn(Oid) -> u64)(object);
    (address != 0).then_some(address)
}

/// How many bytes of an object may be used.
pub(super) fn len_of(object: Oid) -> u64 {
    if object.offset == 0 {
        return 0;
    }
    original!(pmemobj_alloc_usable_size as extern "C" fn(Oid) -> u64)(object)
}

/// An object was allocated, if it was.
pub(super) fn allocated(code: u32, object: Oid, value: u64) {
    if let Some(address) = address_of(object) {
        leave_range(code, value, address, len_of(object));
    }
}

/// An object was freed.
pub(super) fn freed(code: u32, address: Option<u64>, len: u64) {
    if let Some(address) = address {
        leave_range(code, 0, address, len);
    }
}

/// What is known of an object before a call that may free it.
#[derive(Clone, Copy)]
pub(super) struct Before {
    pub(super) object: Oid,
    address: Option<u64>,
    len: u64,
}

impl Before {
    pub(super) fn of(object: Oid) -> Self {
        Self {
            object,
            address: address_of(object),
            len: len_of(object),
        }
    }

    /// The object is free, or will be.
    pub(super) fn freed(self, code: u32) {
        freed(code, self.address, self.len);
    }

    /// The object has become another one, or longer: the beginning was copied.
    pub(super) fn reallocated(self, [allocate, free]: [u32; 2], object: Oid, rest: u64) {
        let (Some(address), len) = (address_of(object), len_of(object)) else {
            self.freed(free);
            return;
        };
        let copied = self.len.min(len);
        if object != self.object {
            self.freed(free);
            leave_range(allocate, allocation::WRITTEN, address, copied);
        }
        leave_range(allocate, rest, address + copied, len - copied);
    }
}

/// The bits of an allocation by the flags of the library.
pub(super) fn value_of(flags: u64) -> u64 {
    let mut value = 0;
    if flags & FLAG_ZERO != 0 {
        value |= allocation::ZEROED;
    }
    if flags & FLAG_NO_FLUSH != 0 {
        value |= allocation::NO_FLUSH;
    }
    value
}

/// The marks of allocating and freeing in a transaction.
pub(super) const IN_TRANSACTION: [u32; 2] = [mark::TRANSACTION_ALLOCATE, mark::TRANSACTION_FREE];
/// And outside of one.
pub(super) const ATOMIC: [u32; 2] = [mark::ALLOCATE, mark::FREE];
