//! The runtime: preloaded into the target, it sees to it that every store, flush and fence on a
//! pool is recorded.
//!
//! A pool is mapped twice: read-only where the target sees it, writable at an alias. So the first
//! store of any instruction to a pool faults; the handler makes a trampoline that records and does
//! the store through the alias, and patches the instruction to jump there. Flushes, fences and
//! locked operations do not fault: they are found by a sweep over all code when the first pool is
//! mapped, and again when code is loaded.
//!
//! # Rules for code that lives in a foreign process
//!
//! 1. No memory of the target's allocator: the crate has one of its own (`allocator.rs`).
//! 2. No lock of the target, and none of the C library's: everything in handlers is raw system calls.
//! 3. Whoever holds a lock of ours has all signals blocked (`lock.rs`).
//! 4. `errno` is only changed where the C function that the target called would change it.
//! 5. No code that may be patched while it works for emitted code: not even `memcpy` (`memory.rs`).
//! 6. What cannot be recorded ends the target with a sentence to the host, never in silence.
//!
//! # Safety
//!
//! All of this crate is about memory that the compiler knows nothing of: mappings at fixed addresses,
//! machine code, signal frames. The arguments are where the blocks are; what they rely on together:
//! the shared file is mapped at [`powerfail_protocol::shared`]'s fixed addresses before `host::attached`
//! says so and stays mapped; a thread's GS base is zero or the address of its slot in there.
#![allow(unsafe_code)]
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_ptr_alignment,
    reason = "words of system calls, registers and records are numbers of either sign, or addresses"
)]

use core::ffi::{c_char, c_int};

mod allocator;
mod anatomy;
mod annotate;
mod append;
mod arena;
mod clone;
mod code;
mod comparisons;
mod coverage;
mod derandomise;
mod desock;
mod early;
mod emulate;
mod explore;
mod file;
mod frame;
mod fuzz;
mod generated;
mod heap;
mod host;
mod interpose;
mod lock;
mod maps;
mod memory;
mod modules;
mod own;
mod pmdk;
mod pool;
mod range;
mod raw;
mod remap;
mod requests;
mod schedule;
mod signals;
mod sites;
mod stack;
mod stacks;
mod synchronise;
mod sys;
mod system_calls;
mod thread;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Runs when the target returns from main or calls exit.
extern "C" fn end() {
    interpose::conclude();
}

/// Runs when the dynamic linker has loaded everything, before any other library is initialised
/// (`build.rs`).
extern "C" fn start(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    early::lend_environment(environment);
    derandomise::start(sys::stack_pointer());
    desock::start();
    pmdk::prepare();
    if !explore::start() && host::attach() {
        pool::reserve_window();
        stacks::set_main_stack_end(interpose::main_stack_end());
        thread::attach();
        requests::prepare();
    }
    synchronise::decide();
    comparisons::start();
    range::start();
    heap::start();
}
