//! The operators `new` and `delete` of C++. Where there is a heap they always use it, from any caller: a
//! string is allocated by code of the library of C++, and is the target's.
//!
//! # Safety
//!
//! The functions have the contracts of the operators of C++; what the target deletes is memory that one of them
//! gave it.
#![allow(unsafe_code, reason = "stands in for operators of C++")]

use core::ffi::c_void;
use core::sync::atomic::AtomicUsize;

use super::allocation::{Content, allocate, deallocate, give_up, holds, is_mapped};
use super::functions::{aligned, stands_in};
use crate::libc::interpose::original;

/// The least that is asked of every object.
const ALIGNMENT: u64 = 16;

stands_in! {
    _Znwm => super::new, Some(super::plain_new as *const () as usize);
    _Znam => super::new, Some(super::plain_new as *const () as usize);
    _ZnwmRKSt9nothrow_t => super::new_or_null, Some(super::plain_new as *const () as usize);
    _ZnamRKSt9nothrow_t => super::new_or_null, Some(super::plain_new as *const () as usize);
    _ZnwmSt11align_val_t => super::new_aligned, Some(super::plain_new_aligned as *const () as usize);
    _ZnamSt11align_val_t => super::new_aligned, Some(super::plain_new_aligned as *const () as usize);
    _ZnwmSt11align_val_tRKSt9nothrow_t => super::new_aligned_or_null, Some(super::plain_new_aligned as *const () as usize);
    _ZnamSt11align_val_tRKSt9nothrow_t => super::new_aligned_or_null, Some(super::plain_new_aligned as *const () as usize);
    _ZdlPv => super::delete, Some(super::plain_delete as *const () as usize);
    _ZdaPv => super::delete, Some(super::plain_delete as *const () as usize);
    _ZdlPvm => super::delete, Some(super::plain_delete as *const () as usize);
    _ZdaPvm => super::delete, Some(super::plain_delete as *const () as usize);
    _ZdlPvRKSt9nothrow_t => super::delete, Some(super::plain_delete as *const () as usize);
    _ZdaPvRKSt9nothrow_t => super::delete, Some(super::plain_delete as *const () as usize);
    _ZdlPvSt11align_val_t => super::delete, Some(super::plain_delete as *const () as usize);
    _ZdaPvSt11align_val_t => super::delete, Some(super::plain_delete as *const () as usize);
    _ZdlPvmSt11align_val_t => super::delete, Some(super::plain_delete as *const () as usize);
    _ZdaPvmSt11align_val_t => super::delete, Some(super::plain_delete as *const () as usize);
    _ZdlPvSt11align_val_tRKSt9nothrow_t => super::delete, Some(super::plain_delete as *const () as usize);
    _ZdaPvSt11align_val_tRKSt9nothrow_t => super::delete, Some(super::plain_delete as *const () as usize);
}

const FULL: &str = "the persistent heap is full: operator new cannot give what is asked for";

extern "C" fn new(len: usize) -> *mut c_void {
    let object = new_or_null(len);
    if object.is_null() {
        give_up(FULL);
    }
    object
}

extern "C" fn new_or_null(len: usize) -> *mut c_void {
    if is_mapped() {
        allocate(len as u64, ALIGNMENT, Content::Any)
    } else {
        plain_new(len)
    }
}

extern "C" fn new_aligned(len: usize, alignment: usize) -> *mut c_void {
    let object = new_aligned_or_null(len, alignment);
    if object.is_null() {
        give_up(FULL);
    }
    object
}

extern "C" fn new_aligned_or_null(len: usize, alignment: usize) -> *mut c_void {
    if is_mapped() {
        aligned(alignment as u64, len as u64)
    } else {
        plain_new_aligned(len, alignment)
    }
}

extern "C" fn delete(object: *mut c_void) {
    if holds(object as u64) {
        deallocate(object as u64);
    } else {
        plain_delete(object);
    }
}

/// What the library of C++ does, for programs that load it with `RTLD_LOCAL`.
extern "C" fn plain_new(len: usize) -> *mut c_void {
    let object = original!("malloc" as extern "C" fn(usize) -> *mut c_void)(len.max(1));
    if object.is_null() {
        give_up("operator new: out of memory");
    }
    object
}

extern "C" fn plain_new_aligned(len: usize, alignment: usize) -> *mut c_void {
    type Align = extern "C" fn(usize, usize) -> *mut c_void;
    let object = original!("memalign" as Align)(alignment, len.max(1));
    if object.is_null() {
        give_up("operator new: out of memory");
    }
    object
}

extern "C" fn plain_delete(object: *mut c_void) {
    original!("free" as extern "C" fn(*mut c_void))(object);
}
