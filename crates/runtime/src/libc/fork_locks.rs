//! Locks of ours that are held while the process is copied.
//!
//! A thread that patches code, or changes a table, while another one forks does not exist in the copy: a breakpoint
//! would stay in the code of the copy forever, and half a change in the table. So the thread that forks takes all locks
//! first. The C library runs [`hold`] after the functions that the target has registered for forks, because it was
//! registered before them: none of these waits for a lock that is held here.
//!
//! Locks are taken without an order. If one is not free, all are given back, so that the thread that has it can take
//! others. After [`PATIENCE`] the process is copied as it is: the thread may wait for something that this one has.

//!
//! # Safety
//!
//! The C library is given functions that stay where they are.
#![allow(unsafe_code, reason = "calls the C library")]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::host;
use crate::patching::go_functions;
use crate::platform::lock::{self, Word};
use crate::record::files::trees;
use crate::record::heap;
use crate::record::sites::SITES;
use crate::record::{
    call_stacks, client_requests, first_pool, generated_code, pool_files, pools, schedule, threads,
    written_files,
};

use super::spawn_actions;

unsafe extern "C" {
    pub(crate) fn __register_atfork(
        before: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        library: *mut c_void,
    ) -> c_int;
}

/// All locks of a recording.
static LOCKS: [&Word; 14] = [
    SITES.word(),
    pools::POOLS.word(),
    pool_files::CHANGES.word(),
    call_stacks::KNOWN_WORD,
    written_files::KNOWN.word(),
    trees::READING.word(),
    trees::REFUSED.word(),
    threads::ENDED.word(),
    schedule::MEMBERS.word(),
    client_requests::REGISTERED_WORD,
    generated_code::RANGES.word(),
    heap::CHANGE.word(),
    spawn_actions::DUPLICATED.word(),
    go_functions::TABLES.word(),
];

/// How often a lock is waited for, and how long each time.
const PATIENCE: (u32, u64) = (50, 20_000_000);

/// Whether the thread that forks has taken the turn of the first pool.
static HAS_TURN: AtomicBool = AtomicBool::new(false);

/// Has the C library take all locks around each of its forks.
pub(crate) fn start() {
    // SAFETY: the functions stay where they are.
    unsafe {
        __register_atfork(
            Some(hold),
            Some(give_back),
            Some(in_child),
            core::ptr::null_mut(),
        )
    };
}

/// Takes all locks, before the calling thread copies the process.
pub(crate) extern "C" fn hold() {
    if !host::attached() || !lock::begin_fork() {
        return;
    }
    let (times, patience_ns) = PATIENCE;
    HAS_TURN.store(
        first_pool::hold_for_fork(u64::from(times) * patience_ns),
        Ordering::Relaxed,
    );
    let mut left = times;
    while let Some(place) = LOCKS.iter().position(|word| !word.hold_for_fork()) {
        for word in &LOCKS[..place] {
            word.give_back_after_fork();
        }
        if LOCKS[place].wait_for_fork(patience_ns) {
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

/// Gives the locks back, in the process that has forked.
pub(crate) extern "C" fn give_back() {
    if !lock::is_forker() {
        return;
    }
    for word in LOCKS {
        word.give_back_after_fork();
    }
    if HAS_TURN.swap(false, Ordering::Relaxed) {
        first_pool::give_back_after_fork();
    }
    lock::end_fork();
}

extern "C" fn in_child() {
    if host::attached() {
        reset_after_fork();
    }
}

/// In the copy: no other thread exists, so no lock is held.
pub(crate) fn reset_after_fork() {
    for word in LOCKS {
        word.reset_after_fork();
    }
    HAS_TURN.store(false, Ordering::Relaxed);
    first_pool::give_back_after_fork();
    lock::end_fork();
}
