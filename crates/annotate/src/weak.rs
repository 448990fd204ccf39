//! The functions that powerfail defines in the processes that it runs; elsewhere they do not exist.
//!
//! Rust has no weak symbols yet. Their addresses are taken from the global offset table, which the dynamic linker
//! fills: with zero where there is no such function.
//!
//! # Safety
//! The functions have the types of `powerfail.h`, by contract: powerfail reserves these names.
#![cfg_attr(
    all(
        target_arch = "x86_64",
        target_os = "linux",
        target_pointer_width = "64"
    ),
    allow(unsafe_code, reason = "reads addresses of weak symbols")
)]

use core::ffi::{c_char, c_int, c_void};

use crate::Stage;

/// Bytes that an annotation is about.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    address: *const c_void,
    len: usize,
}

impl Bytes {
    pub(crate) const NONE: Self = Self {
        address: core::ptr::null(),
        len: 0,
    };

    pub(crate) const fn at<T>(address: *const T) -> Self {
        Self {
            address: address.cast(),
            len: size_of::<T>(),
        }
    }

    pub(crate) const fn of<T>(range: *const [T]) -> Self {
        Self {
            address: range.cast(),
            len: range.len() * size_of::<T>(),
        }
    }
}

pub(crate) type Annotation =
    unsafe extern "C" fn(u32, u64, *const c_void, usize, *const c_void, usize, c_int);
pub(crate) type RootSlot = unsafe extern "C" fn(u64) -> *mut c_void;
pub(crate) type RegisterRange = unsafe extern "C" fn(*mut c_void, usize, *const c_char) -> c_int;

#[cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    target_pointer_width = "64"
))]
macro_rules! weak {
    ($(#[$about:meta])* $name:ident, $symbol:literal, $kind:ty) => {
        $(#[$about])*
        #[inline]
        pub(crate) fn $name() -> Option<$kind> {
            let address: usize;
            // SAFETY: reads one word of the global offset table, which does not change any more. A function has
            // the address, or it is zero, which is none.
            unsafe {
                core::arch::asm!(
                    concat!(".weak ", $symbol),
                    concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                    out(reg) address,
                    options(pure, nomem, nostack, preserves_flags)
                );
                core::mem::transmute::<usize, Option<$kind>>(address)
            }
        }
    };
}

#[cfg(not(all(
    target_arch = "x86_64",
    target_os = "linux",
    target_pointer_width = "64"
)))]
macro_rules! weak {
    ($(#[$about:meta])* $name:ident, $symbol:literal, $kind:ty) => {
        $(#[$about])*
        pub(crate) const fn $name() -> Option<$kind> {
            None
        }
    };
}

weak!(annotation, "powerfail_annotation", Annotation);
weak!(root_slot, "powerfail_root_slot", RootSlot);
weak!(register_range, "powerfail_register_range", RegisterRange);

/// Makes an annotation, if the program runs under powerfail.
#[inline]
pub(crate) fn annotate(code: u32, value: u64, first: Bytes, second: Bytes, stage: Stage) {
    if let Some(function) = annotation() {
        call(function, code, value, first, second, stage);
    }
}

/// Out of line, so that it costs nothing where the program does not run under powerfail.
#[cold]
#[allow(unsafe_code, reason = "calls a function that powerfail defines")]
fn call(function: Annotation, code: u32, value: u64, first: Bytes, second: Bytes, stage: Stage) {
    // SAFETY: a function of this type, which reads the bytes of a payload, and those are borrowed.
    unsafe {
        function(
            code,
            value,
            first.address,
            first.len,
            second.address,
            second.len,
            stage as c_int,
        );
    }
}
