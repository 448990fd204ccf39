//! `dlopen` and `dlclose`: code that is new is patched before the target calls it.
//!
//! # Safety
//!
//! The functions have the contracts of `dlopen` and `dlclose`, and pass on what they got.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_void};

use crate::record::heap;
use crate::record::sites::Sites;
use crate::{fuzz, host, recovery};

use super::interpose::original;
use super::raw_calls;

#[unsafe(no_mangle)]
extern "C" fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void {
    type Open = extern "C" fn(*const c_char, c_int) -> *mut c_void;
    let handle = original!("dlopen" as Open)(path, mode);
    heap::look_at_modules();
    if recovery::is_active() {
        recovery::loaded_code();
    } else if host::attached() {
        raw_calls::prepare();
        Sites::update();
    }
    handle
}

#[unsafe(no_mangle)]
extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    fuzz::before_unloading();
    let done = original!("dlclose" as extern "C" fn(*mut c_void) -> c_int)(handle);
    heap::look_at_modules();
    if recovery::is_active() {
        recovery::loaded_code();
    } else if host::attached() {
        Sites::update();
    }
    done
}
