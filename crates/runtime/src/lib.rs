//! The runtime: preloaded into the target, it records every store, flush and fence on a pool.
//!
//! A pool is mapped twice: read-only where the target sees it, writable at an alias. So the first
//! store of any instruction to a pool faults; the handler makes a trampoline that records and does
//! the store through the alias, and patches the instruction to jump there. Flushes, fences and
//! locked operations do not fault: they are found by a sweep over all code when the first pool is
//! mapped, and again when code is loaded.
//!
//! # Where to find what
//!
//! A process is in one of three modes, and each has a room:
//!
//! | room | subject |
//! | --- | --- |
//! | `record/` | the target is recorded: pools, instructions, call stacks, marks, threads |
//! | `recovery/` | a recovery is examined: snapshots, lazy choices, reads noted for races, its log |
//! | `fuzz/` | the target is repeated thousands of times a second, and its input and environment are simulated |
//!
//! What they share:
//!
//! | room | subject |
//! | --- | --- |
//! | `host.rs` | the connection to the host: shared file, socket, messages |
//! | `libc/` | functions of the C library and system calls that the runtime stands in for |
//! | `patching/` | the target's code: finding functions, planning and making patches |
//! | `platform/` | raw system calls, allocator, locks, signals |
//!
//! # Rules for code that lives in a foreign process
//!
//! 1. No memory of the target's allocator: the crate has one of its own (`platform/allocator.rs`).
//! 2. No lock of the target, and none of the C library's: everything in handlers is raw system calls.
//! 3. A thread that holds a lock of ours has all signals blocked (`platform/lock.rs`).
//! 4. `errno` is only changed where the C function that the target called would change it.
//! 5. No code that may be patched while it works for emitted code: not even `memcpy` (`platform/memcpy.rs`).
//! 6. What cannot be recorded ends the target with a message to the host, never silently.
//!
//! # Safety
//!
//! `unsafe` is denied here and allowed file by file: `grep 'allow(unsafe_code'` is the audit list. Each of these files
//! has a `# Safety` section that says what its callers guarantee and what it guarantees. What they rely on together:
//!
//! - The shared file is mapped at the fixed addresses of [`powerfail_protocol::shared`] before `host::attached` says
//!   so, and stays mapped.
//! - The GS base of a thread is zero, or the address of its slot in that file, or (in a recovery) of its private memory.
//! - The target is a correct C program as far as the functions that it calls are concerned: where the runtime stands
//!   in for a function of the C library, pointers are as that function requires. A target that breaks this may crash
//!   in the runtime, as it would have in the C library.
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_ptr_alignment,
    reason = "words of system calls, registers and records are numbers of either sign, or addresses"
)]

use core::ffi::{c_char, c_int};

mod fuzz;
mod host;
mod libc;
mod patching;
mod platform;
mod record;
mod recovery;

use fuzz::{derandomise, desock, observed};
use libc::{early, fork_exit, fork_locks, interpose, raw_calls, synchronise};
use platform::sys;
use record::{
    call_stacks, client_requests, files, heap, pmdk, pools, registered_ranges, store_locks, threads,
};

#[used]
#[allow(unsafe_code, reason = "called by the dynamic linker")]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

#[used]
#[allow(unsafe_code, reason = "called by the dynamic linker")]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Runs when the target returns from main or calls exit.
extern "C" fn end() {
    fork_exit::conclude();
}

/// Runs when the dynamic linker has loaded everything, before any other library is initialised
/// (`build.rs`).
extern "C" fn start(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    early::lend_environment(environment);
    // Words between here and the end of the stack are searched for secrets of the C library. The frame of this function
    // must stay small: stale words in a large one would be found, too.
    derandomise::start(sys::stack_pointer());
    start_modes();
}

/// Everything else that is done at the start. Never inlined: see [`start`].
#[inline(never)]
fn start_modes() {
    desock::start();
    pmdk::prepare();
    recovery::pool_addresses::start();
    if !recovery::start() && host::attach() {
        pools::reserve_window();
        store_locks::begin_process();
        call_stacks::set_main_stack_end(interpose::main_stack_end());
        threads::attach();
        files::trees::begin();
        client_requests::prepare();
        raw_calls::prepare();
        fork_locks::start();
    }
    synchronise::decide();
    observed::start();
    registered_ranges::start();
    heap::start();
}
