//! The same in every run: time, random numbers, numbers of processes and threads.
//!
//! Switched on by an environment variable, whether the process is recorded, repeated or explored, so that a
//! test case does the same wherever it runs. What the target asks the C library for is answered here:
//!
//! - `clock.rs`: time passes by a microsecond with each question, and as long as the target wants to sleep;
//! - `random.rs`: `getrandom` and its like, and the files of the kernel that random bytes and identifiers are
//!   read from;
//! - `files.rs`: files are as old as the beginning of time;
//! - `numbers.rs`: processes and threads have numbers that do not depend on what else runs.
//!
//! The random values that the kernel passes to each process are replaced before anything has used them.
//!
//! Not covered: instructions (`rdtsc`, `rdrand`, `rdseed`, and so `std::random_device` of C++), what `fork` returns, and the order of threads, which is that of the machine unless they are
//! scheduled.
//!
//! # Safety
//!
//! Callers of `perform` guarantee that the target makes this system call now with these arguments. `start` is
//! called once, on the main thread, before the C library or the target has used any random value.

use core::ffi::c_ulong;
use core::sync::atomic::{AtomicBool, Ordering};

use powerfail_protocol::shared::DERANDOMISE_VARIABLE;

use crate::platform::sys;

mod clock;
mod files;
mod numbers;
mod random;

pub(crate) use clock::{Time, duration_ns, has_passed, pause, real_deadline, until_ns};
pub(crate) use numbers::after_fork;
pub(crate) use random::fill;

static ON: AtomicBool = AtomicBool::new(false);

/// Whether the target is to do the same in every run.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The process begins. Functions that were running before have their frames from `stack` on.
#[inline(never)]
pub(crate) fn start(stack: u64) {
    if std::env::var_os(DERANDOMISE_VARIABLE).is_some_and(|value| value == "1") {
        ON.store(true, Ordering::Relaxed);
        numbers::start();
        replace_secrets(stack);
    }
}

/// What becomes of a system call that the target makes past the C library, if that is decided here.
///
/// # Safety
/// As the system call.
#[allow(unsafe_code, reason = "answers system calls of the target")]
pub(crate) unsafe fn perform(number: usize, arguments: [usize; 6]) -> Option<isize> {
    if !is_on() {
        return None;
    }
    // SAFETY: by the contract the target makes this call; the three have the same contract.
    unsafe {
        clock::perform(number, arguments)
            .or_else(|| numbers::perform(number, arguments))
            .or_else(|| random::perform(number, arguments))
    }
}

#[allow(unsafe_code, reason = "a function of the C library")]
unsafe extern "C" {
    fn getauxval(kind: c_ulong) -> c_ulong;
}

/// Gives the process fixed values for what protects its stack and its saved registers, if no function that
/// is running has seen the old ones. They end up in what is left on stacks, and that ends up in pools.
///
/// Never inlined: the old value may be spilled to the frame of this function, which must lie below `from`, or the search
/// would find it there.
#[inline(never)]
#[allow(unsafe_code, reason = "writes words of the C library")]
fn replace_secrets(from: u64) {
    const AT_RANDOM: c_ulong = 25;
    const GUARD_AT: u64 = 0x28;
    const POINTER_GUARD_AT: u64 = 0x30;
    // A zero first, as the C library has it: strings that run over it end there.
    const GUARD: u64 = 0x5bd1_e995_9e37_7900;
    const POINTER_GUARD: u64 = 0x2545_f491_4f6c_dd1d;
    let end = crate::libc::interpose::main_stack_end();
    if end <= from || end - from > 1 << 20 {
        return;
    }
    let guard = (sys::fs() + GUARD_AT) as *mut u64;
    // SAFETY: the C library has both words in the header of each thread; the stack of this one is mapped from
    // the stack pointer to its end; and the kernel gives sixteen random bytes.
    unsafe {
        let old = guard.read();
        let is_used = (from..end & !7)
            .step_by(8)
            .any(|at| (at as *const u64).read_volatile() == old);
        if is_used {
            return;
        }
        guard.write(GUARD);
        ((sys::fs() + POINTER_GUARD_AT) as *mut u64).write(POINTER_GUARD);
        let random = getauxval(AT_RANDOM) as *mut [u64; 2];
        if !random.is_null() {
            random.write_unaligned([GUARD, POINTER_GUARD]);
        }
    }
}
