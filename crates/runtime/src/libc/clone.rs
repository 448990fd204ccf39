//! Threads and processes that the target makes with `clone` itself.
//!
//! A new thread or process that shares memory with its creator has the creator's GS base at first, and would write
//! to its block. A thread of this process gets a block of its own; a process of its own that shares our
//! memory cannot be recorded; a copy of this process is what it is after `fork`.
//!
//! # Safety
//!
//! The function has the contract of `clone`. What a new thread gets is allocated by its creator and freed by the
//! new thread alone. Private memory belongs to the calling thread.
#![allow(unsafe_code, reason = "stands in for `clone`")]

use core::ffi::{c_int, c_void};

use crate::libc::{fork_exit, fork_locks, interpose};
use crate::platform::{signals, sys};
use crate::record::{schedule, thread_private, threads};
use crate::{host, recovery};

pub(crate) const CLONE_VM: u64 = 0x100;
pub(crate) const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;

type Routine = extern "C" fn(*mut c_void) -> c_int;
type Clone = extern "C" fn(
    Routine,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

struct Start {
    routine: Routine,
    argument: *mut c_void,
    /// Signals that the maker has blocked.
    mask: u64,
    /// Which of ours it believes to have blocked.
    blocked: u64,
    /// The process that is copied; 0 if this is a thread.
    parent: u32,
}

/// Ends the target if what it makes shares memory in a way that cannot be recorded.
pub(crate) fn check_shared(flags: u64) {
    if flags & (CLONE_VM | CLONE_VFORK) == CLONE_VM && flags & CLONE_THREAD == 0 {
        host::fatal(
            "the target creates a process that shares its memory (clone with CLONE_VM), which cannot be recorded",
        );
    }
}

/// The target makes a thread by a system call of its own.
pub(crate) fn refuse_thread() -> ! {
    host::fatal(
        "the target creates a thread with a raw clone system call, which cannot be recorded",
    )
}

#[unsafe(no_mangle)]
extern "C" fn clone(
    routine: Routine,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_id: *mut c_void,
    storage: *mut c_void,
    child_id: *mut c_void,
) -> c_int {
    // SAFETY: the C library has this function with these parameters.
    let clone: Clone = unsafe { core::mem::transmute(interpose::original_clone()) };
    let bits = u64::from(flags.cast_unsigned());
    if recovery::is_active() && bits & CLONE_VM == 0 {
        recovery::before_fork();
    }
    if !host::attached() || threads::slot().is_none() || bits & CLONE_VFORK != 0 {
        // A maker that waits lends its block.
        return clone(
            routine, stack, flags, argument, parent_id, storage, child_id,
        );
    }
    check_shared(bits);
    let is_thread = bits & CLONE_VM != 0;
    let make = |mask| {
        let start = Box::into_raw(Box::new(Start {
            routine,
            argument,
            mask,
            // SAFETY: the state is this thread's.
            blocked: thread_private::own().map_or(0, |own| unsafe { (*own).blocked }),
            parent: if is_thread { 0 } else { sys::getpid() },
        }));
        clone(
            run,
            stack,
            flags,
            start.cast(),
            parent_id,
            storage,
            child_id,
        )
    };
    let mask = sys::block_signals();
    sys::restore_signals(!signals::OURS);
    let done = if is_thread {
        threads::expect_company();
        make(mask)
    } else {
        threads::around_fork(|| {
            fork_locks::hold();
            let child = make(mask);
            fork_locks::give_back();
            child
        })
    };
    sys::restore_signals(mask);
    done
}

extern "C" fn run(start: *mut c_void) -> c_int {
    // SAFETY: what `clone` made, used once.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    if start.parent == 0 {
        threads::attach();
        if let Some(own) = thread_private::own() {
            // SAFETY: the state is this thread's.
            unsafe { (*own).blocked = start.blocked };
        }
        schedule::begin();
    } else {
        fork_exit::reset_after_fork();
        threads::attach_after_fork(start.parent);
    }
    sys::restore_signals(start.mask & !signals::OURS);
    let result = (start.routine)(start.argument);
    threads::detach();
    result
}
