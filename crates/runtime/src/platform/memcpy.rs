//! Moving bytes without the C library: see `build.rs`.
//!
//! String instructions, so that the compiler cannot make a call of the function itself of them.

use core::arch::asm;
use core::ffi::c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn powerfail_memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller's; the direction flag is clear in C code.
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
        // SAFETY: the caller's; nothing is overwritten before it is read.
        return unsafe { powerfail_memcpy(to, from, len) };
    }
    // SAFETY: the caller's; from the end, as the destination begins inside of the source.
    unsafe {
        asm!(
            "std",
            "rep movsb",
            "cld",
            inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _,
            inout("rcx") len => _,
            options(nostack)
        );
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn powerfail_memset(to: *mut u8, value: c_int, len: usize) -> *mut u8 {
    // SAFETY: the caller's; the direction flag is clear in C code.
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
