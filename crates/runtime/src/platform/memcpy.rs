//! Moving bytes without the C library: see `build.rs`.
//!
//! String instructions, so that the compiler cannot make a call of the function itself of them.
//!
//! # Safety
//!
//! The three functions have the contracts of the C functions; the linker directs all calls of the compiler to them
//! (`build.rs`). The direction flag is clear when they are called and when they return.
#![allow(unsafe_code, reason = "byte copies in assembly")]

use core::arch::asm;
use core::ffi::c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn powerfail_memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: by the contract of `memcpy` both ranges are valid and apart; the ABI guarantees that the direction flag
    // is clear.
    unsafe {
        asm!(
            "rep movsb",
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") len => _,
            options(nostack, preserves_flags)
        );
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn powerfail_memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: by the contract both ranges are valid; copied upwards, each byte is read before it is overwritten.
        return unsafe { powerfail_memcpy(to, from, len) };
    }
    // SAFETY: by the contract both ranges are valid; copied downwards, each byte is read before it is overwritten.
    // The flag is cleared again.
    unsafe {
        asm!(
            "std",
            // Words first: downwards, processors move one element at a time, whatever its length.
            "rep movsq",
            "add rdi, 7",
            "add rsi, 7",
            "mov rcx, {rest}",
            "rep movsb",
            "cld",
            rest = in(reg) len % 8,
            inout("rdi") to.wrapping_add(len).wrapping_sub(8) => _,
            inout("rsi") from.wrapping_add(len).wrapping_sub(8) => _,
            inout("rcx") len / 8 => _,
            options(nostack)
        );
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn powerfail_memset(to: *mut u8, value: c_int, len: usize) -> *mut u8 {
    // SAFETY: by the contract of `memset` the range is valid; the ABI guarantees that the direction flag is clear.
    unsafe {
        asm!(
            "rep stosb",
            inout("rdi") to => _,
            in("al") value as u8,
            inout("rcx") len => _,
            options(nostack, preserves_flags)
        );
    }
    to
}
