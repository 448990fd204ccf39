//! The beginning of `main`: where a repeated target is prepared, and where executions are forked whose input is
//! their arguments.
//!
//! # Safety
//!
//! `stop` is called by the code at the start of `main` with the arguments that the kernel has passed. The area is
//! mapped for good, and the host writes the input only while no execution runs.
#![allow(unsafe_code, reason = "replaces the arguments of `main`")]

use core::arch::naked_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use powerfail_protocol::fuzz::{AREA_ADDRESS, ARGUMENTS_AT, ARGUMENTS_MAX, flag};

use crate::libc::interpose;

use super::{area, has_flag, level};

/// The argument in whose place the input stands.
const PLACE: &[u8] = b"{input}";

/// The target's own `main`.
static MAIN: AtomicU64 = AtomicU64::new(0);

/// What the C library calls as `main`, and how to get there.
#[repr(C)]
struct Beginning {
    /// The C library's own function.
    original: usize,
    main: u64,
}

extern "C" fn begin(main: u64) -> Beginning {
    let original = interpose::find_version("__libc_start_main\0", "GLIBC_2.34\0");
    super::start();
    let is_ours = has_flag(flag::ARGUMENTS);
    if is_ours {
        MAIN.store(main, Ordering::Relaxed);
    }
    Beginning {
        original,
        main: if is_ours {
            own_main as *const () as u64
        } else {
            main
        },
    }
}

/// Jumps to the original as if that had been called, with another `main` if need be.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn __libc_start_main() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {begin}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "mov rdi, rdx",
        "pop rdx",
        "pop rsi",
        "add rsp, 8",
        "jmp rax",
        begin = sym begin,
    )
}

/// The arguments of an execution.
#[repr(C)]
struct Arguments {
    count: u64,
    start: *const *const u8,
}

/// Stands in for the target's `main`: stops, and continues there with other arguments.
#[unsafe(naked)]
extern "C" fn own_main() {
    naked_asm!(
        "push rdx",
        "call {stop}",
        "mov rdi, rax",
        "mov rsi, rdx",
        "mov rax, [rip + {main}]",
        "pop rdx",
        "jmp rax",
        stop = sym stop,
        main = sym MAIN,
    )
}

extern "C" fn stop(count: u64, start: *const *const u8) -> Arguments {
    level::reached_input();
    // SAFETY: the kernel has put so many arguments there, each with an end.
    let given = unsafe { core::slice::from_raw_parts(start, count as usize) };
    let mut all = Vec::with_capacity(given.len() + 8);
    for argument in given {
        // SAFETY: the kernel has written each argument with a zero byte at its end, and the target has not run yet.
        let text = unsafe { core::ffi::CStr::from_ptr(argument.cast()) };
        if text.to_bytes() == PLACE {
            all.extend(words());
        } else {
            all.push(*argument);
        }
    }
    let count = all.len() as u64;
    all.push(core::ptr::null());
    Arguments {
        count,
        start: all.leak().as_ptr(),
    }
}

/// The words of the input, each with a zero behind it.
fn words() -> Vec<*const u8> {
    let len = (area().arguments_len.load(Ordering::Acquire) as usize).min(ARGUMENTS_MAX);
    let place = (AREA_ADDRESS + ARGUMENTS_AT) as *const u8;
    // SAFETY: inside of the area, which is mapped for good; the host does not write there now.
    let input = unsafe { core::slice::from_raw_parts(place, len) };
    input
        .split(|byte| byte.is_ascii_whitespace() || *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| {
            let mut text = word.to_vec();
            text.push(0);
            text.leak().as_ptr()
        })
        .collect()
}
