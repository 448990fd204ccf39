//! One thread of the target at a time.
//!
//! QEMU runs the threads of a program in parallel, and tells of a store after it was made. Two threads that store to the same
//! bytes could then be recorded in the wrong order, or with each other's values. So a thread executes code of the target only
//! while it has the turn. It gives the turn up before each system call, takes it again afterwards, and lets another thread have
//! it from time to time, so that one that waits in a loop does not wait forever.
//!
//! QEMU sometimes stops all threads: a thread then waits, with the turn, until the others have left the code of the target. Those
//! may wait for the turn. So a thread that waits for long looks whether the one with the turn sleeps; then it is not in code
//! of the target, and loses the turn.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The thread that has the turn, by its number in the system; 0: none.
static HOLDER: AtomicU32 = AtomicU32::new(0);
/// How many threads wait.
static WAITERS: AtomicU32 = AtomicU32::new(0);
/// Grows with each turn that is given up.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// How many blocks of code a thread executes while others wait.
const BLOCKS_MAX: u32 = 4000;
/// After how long a thread looks at the one with the turn.
const PATIENCE_NS: i64 = 5_000_000;

/// The calling thread.
#[derive(Debug)]
pub(crate) struct Turn {
    thread: u32,
    blocks: u32,
}

impl Turn {
    pub(crate) const fn new(thread: u32) -> Self {
        Self { thread, blocks: 0 }
    }

    /// Whether it has the turn.
    #[inline]
    pub(crate) fn is_mine(&self) -> bool {
        HOLDER.load(Ordering::Acquire) == self.thread
    }

    /// Whether it should let another thread have the turn. Called once for each block of code.
    #[inline]
    pub(crate) fn is_over(&mut self) -> bool {
        if WAITERS.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.blocks += 1;
        self.blocks > BLOCKS_MAX
    }

    /// Waits for the turn.
    pub(crate) fn take(&mut self) {
        self.blocks = 0;
        if self.exchange(0) || self.is_mine() {
            return;
        }
        WAITERS.fetch_add(1, Ordering::AcqRel);
        loop {
            let holder = HOLDER.load(Ordering::Acquire);
            if holder == 0 {
                if self.exchange(0) {
                    break;
                }
                continue;
            }
            let changes = CHANGES.load(Ordering::Acquire);
            if !wait(holder)
                && HOLDER.load(Ordering::Acquire) == holder
                && CHANGES.load(Ordering::Acquire) == changes
                && sleeps(holder)
                && self.exchange(holder)
            {
                break;
            }
        }
        WAITERS.fetch_sub(1, Ordering::AcqRel);
    }

    /// Gives the turn up.
    pub(crate) fn give(&self) {
        let thread = self.thread;
        if HOLDER
            .compare_exchange(thread, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            CHANGES.fetch_add(1, Ordering::AcqRel);
            if WAITERS.load(Ordering::Acquire) > 0 {
                wake();
            }
        }
    }

    /// Lets another thread have the turn, and waits for the next one.
    pub(crate) fn pass(&mut self) {
        const ATTEMPTS: u32 = 200;
        self.give();
        for _ in 0..ATTEMPTS {
            if HOLDER.load(Ordering::Acquire) != 0 || WAITERS.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        self.take();
    }

    fn exchange(&self, from: u32) -> bool {
        HOLDER
            .compare_exchange(from, self.thread, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// In the child after fork: it has one thread, which has the turn.
pub(crate) fn reset_after_fork(thread: u32) {
    HOLDER.store(thread, Ordering::Release);
    WAITERS.store(0, Ordering::Release);
}

/// Whether a thread sleeps in the kernel.
fn sleeps(thread: u32) -> bool {
    let Ok(status) = std::fs::read(format!("/proc/self/task/{thread}/stat")) else {
        // It has ended.
        return true;
    };
    // The name, which is in parentheses, can have any characters.
    let behind = status.iter().rposition(|byte| *byte == b')').unwrap_or(0);
    matches!(status.get(behind + 2), Some(b'S' | b'Z' | b'X'))
}

/// Waits while a thread has the turn. Says whether it was woken before its patience ended.
#[expect(unsafe_code, reason = "the kernel compares the futex")]
fn wait(holder: u32) -> bool {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: PATIENCE_NS,
    };
    // SAFETY: the futex is a static, and the kernel only reads the time.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            HOLDER.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            holder,
            &raw const time,
        )
    };
    // SAFETY: the error of this thread.
    result == 0 || unsafe { *libc::__errno_location() } != libc::ETIMEDOUT
}

#[expect(unsafe_code, reason = "the kernel wakes those who wait for the futex")]
fn wake() {
    // SAFETY: touches no memory.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            HOLDER.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}
