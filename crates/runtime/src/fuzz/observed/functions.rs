//! The functions of the C library that compare, seek, split and read: each notes its arguments if that is wanted, and
//! then continues in the original.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions. All registers that may carry an argument are as they were when
//! the original is entered, and so is the stack: some of these functions take any number of arguments.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use powerfail_protocol::fuzz::flag;

use super::{early, notes};
use crate::fuzz;
use crate::libc::interpose;
use crate::patching::modules;

/// Whether this process makes notes.
static ON: AtomicBool = AtomicBool::new(false);

/// Functions to stand in for. `$note` is what is noted of the arguments. `$early` is a function with the same contract
/// for the time before the dynamic linker knows the original.
macro_rules! observed {
    ($($name:ident, $note:path $(, $early:path)?;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                core::arch::naked_asm!(
                    // RAX says how many vector registers carry arguments, so it is left alone.
                    "mov r11, [rip + {direct}]",
                    "test r11, r11",
                    "jz 2f",
                    "jmp r11",
                    "2:",
                    "push rax",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    // The return address.
                    "mov r8, [rsp + 56]",
                    "call {observe}",
                    "mov r11, rax",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "pop rax",
                    "jmp r11",
                    direct = sym $name::DIRECT,
                    observe = sym $name::observe,
                )
            }

            mod $name {
                use super::*;

                /// Where to continue at once; zero if that is not known, or if notes are made.
                pub(super) static DIRECT: AtomicUsize = AtomicUsize::new(0);
                static ADDRESS: AtomicUsize = AtomicUsize::new(0);

                pub(super) fn prepare() {
                    let found = interpose::maybe_find(concat!(stringify!($name), "\0"));
                    ADDRESS.store(found.unwrap_or(0) as usize, Ordering::Relaxed);
                }

                pub(super) fn switch(is_on: bool) {
                    let address = ADDRESS.load(Ordering::Relaxed);
                    DIRECT.store(if is_on { 0 } else { address }, Ordering::Relaxed);
                }

                /// Notes the arguments if notes are made; where to continue.
                pub(super) extern "C" fn observe(
                    first: usize,
                    second: usize,
                    third: usize,
                    fourth: usize,
                    caller: usize,
                ) -> usize {
                    let address = ADDRESS.load(Ordering::Relaxed);
                    if address == 0 {
                        let early: &[usize] = &[$($early as *const () as usize)?];
                        let find = || interpose::find_address(concat!(stringify!($name), "\0"));
                        return early.first().copied().unwrap_or_else(find);
                    }
                    if ON.load(Ordering::Relaxed) && !modules::is_own(caller as u64) {
                        // SAFETY: the arguments are those of the target's call, and the original, which follows, reads
                        // at least as much of them.
                        unsafe { $note(first, second, third, fourth) };
                    }
                    address
                }
            }
        )*

        /// The runtime begins: finds the originals.
        pub(crate) fn start() {
            $($name::prepare();)*
            switch(fuzz::has_flag(flag::OBSERVE));
        }

        fn switch(is_on: bool) {
            ON.store(is_on, Ordering::Relaxed);
            $($name::switch(is_on);)*
        }
    };
}

/// An execution begins: decides whether it makes notes.
pub(crate) fn begin_execution() {
    let is_on = fuzz::has_flag(flag::OBSERVE);
    if is_on != ON.load(Ordering::Relaxed) {
        switch(is_on);
    }
}

observed! {
    strcmp, notes::compared_strings, early::strcmp;
    strncmp, notes::compared_limited_strings, early::strncmp;
    strcasecmp, notes::compared_strings, early::strcasecmp;
    strncasecmp, notes::compared_limited_strings, early::strncasecmp;
    memcmp, notes::compared_memory, early::memcmp;
    bcmp, notes::compared_memory, early::memcmp;
    strstr, notes::sought_string, early::strstr;
    strcasestr, notes::sought_string;
    memmem, notes::sought_memory, early::memmem;
    strchr, notes::split_at_byte, early::strchr;
    memchr, notes::split_memory_at_byte, early::memchr;
    strtok, notes::split_string;
    strtok_r, notes::split_string;
    __strtok_r, notes::split_string;
    strsep, notes::split_pointed;
    strcspn, notes::split_string;
    strpbrk, notes::split_string;
    strtol, notes::number;
    strtoll, notes::number;
    strtoul, notes::number;
    strtoull, notes::number;
    strtod, notes::number;
    atoi, notes::number;
    atol, notes::number;
    atoll, notes::number;
    atof, notes::number;
    __isoc23_strtol, notes::number;
    __isoc23_strtoll, notes::number;
    __isoc23_strtoul, notes::number;
    __isoc23_strtoull, notes::number;
    sscanf, notes::scanned_string;
    vsscanf, notes::scanned_string;
    __isoc99_sscanf, notes::scanned_string;
    __isoc99_vsscanf, notes::scanned_string;
    __isoc23_sscanf, notes::scanned_string;
    __isoc23_vsscanf, notes::scanned_string;
    fscanf, notes::scanned_stream;
    vfscanf, notes::scanned_stream;
    __isoc99_fscanf, notes::scanned_stream;
    __isoc99_vfscanf, notes::scanned_stream;
    __isoc23_fscanf, notes::scanned_stream;
    __isoc23_vfscanf, notes::scanned_stream;
    scanf, notes::scanned_input;
    vscanf, notes::scanned_input;
    __isoc99_scanf, notes::scanned_input;
    __isoc99_vscanf, notes::scanned_input;
    __isoc23_scanf, notes::scanned_input;
    __isoc23_vscanf, notes::scanned_input;
    getopt, notes::options;
    getopt_long, notes::options;
    getopt_long_only, notes::options;
}
