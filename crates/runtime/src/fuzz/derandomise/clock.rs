//! Time.
//!
//! There is one clock; all clocks of the system are that one from different beginnings.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions: pointers are null or valid. Callers of `perform` guarantee
//! that the target makes this system call.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::libc::interpose::{original, result};
use crate::platform::number::{GETTIMEOFDAY, TIME};
use crate::platform::sys;
use crate::record::threads;

pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// How far a question takes the clock.
const STEP_NS: u64 = 1000;

/// What the clocks of the system say at the beginning.
pub(super) const REAL_START_NS: u64 = 1_700_000_000 * SECOND_NS;
const MONOTONIC_START_NS: u64 = 1000 * SECOND_NS;

const REALTIME: c_int = 0;
const PROCESS_TIME: c_int = 2;
const THREAD_TIME: c_int = 3;
const REALTIME_COARSE: c_int = 5;
const REALTIME_ALARM: c_int = 8;
const TAI: c_int = 11;
/// The last of the clocks with a number of its own.
const LAST: c_int = TAI;

/// How much time has passed.
static PASSED_NS: AtomicU64 = AtomicU64::new(0);

/// `struct timespec`, and `struct timeval` with other units.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Time {
    seconds: i64,
    rest: i64,
}

impl Time {
    pub(crate) fn of_ns(ns: u64) -> Self {
        Self {
            seconds: (ns / SECOND_NS) as i64,
            rest: (ns % SECOND_NS) as i64,
        }
    }

    /// `None` if it is not a proper time.
    fn ns(self) -> Option<u64> {
        let whole = u64::try_from(self.seconds).ok()?.checked_mul(SECOND_NS)?;
        let rest = u64::try_from(self.rest)
            .ok()
            .filter(|rest| *rest < SECOND_NS)?;
        whole.checked_add(rest)
    }
}

fn start_of(clock: c_int) -> u64 {
    match clock {
        REALTIME | REALTIME_COARSE | REALTIME_ALARM | TAI => REAL_START_NS,
        PROCESS_TIME | THREAD_TIME => 0,
        // The times of other processes and threads.
        _ if clock < 0 => 0,
        _ => MONOTONIC_START_NS,
    }
}

/// Time passes with each question.
fn now_ns(clock: c_int) -> u64 {
    start_of(clock) + PASSED_NS.fetch_add(STEP_NS, Ordering::Relaxed) + STEP_NS
}

fn advance(ns: u64) {
    PASSED_NS.fetch_add(ns, Ordering::Relaxed);
}

/// The end of a wait.
pub(crate) struct Deadline {
    /// What the target's clock says then.
    at_ns: u64,
    clock: c_int,
}

impl Deadline {
    /// That moment has come.
    pub(crate) fn passed(&self) {
        let passed = self.at_ns.saturating_sub(start_of(self.clock));
        PASSED_NS.fetch_max(passed, Ordering::Relaxed);
    }
}

/// The same moment by the clock of the system, which is what the C library waits by. Without a clock it is
/// guessed by the time which one is meant. `None`: it is not a proper time.
///
/// # Safety
/// There is a time.
pub(crate) unsafe fn real_deadline(
    clock: Option<c_int>,
    time: *const c_void,
) -> Option<(Time, Deadline)> {
    // SAFETY: by the contract `time` points to a `timespec`.
    let at_ns = unsafe { time.cast::<Time>().read() }.ns()?;
    let monotonic = 1;
    let clock = clock.unwrap_or(if at_ns >= REAL_START_NS / 2 {
        REALTIME
    } else {
        monotonic
    });
    let ahead_ns = at_ns.saturating_sub(now_ns(clock));
    let real = sys::clock_ns(clock)?.saturating_add(ahead_ns);
    Some((Time::of_ns(real), Deadline { at_ns, clock }))
}

/// How long a time is, if it is a proper one.
///
/// # Safety
/// There is a time, or none.
pub(crate) unsafe fn duration_ns(time: *const c_void) -> Option<u64> {
    // SAFETY: by the contract `time` is null or points to a `timespec`.
    unsafe { time.cast::<Time>().as_ref() }?.ns()
}

/// How long it is until a moment, by the clock of the target.
///
/// # Safety
/// There is a time, or none.
pub(crate) unsafe fn until_ns(clock: c_int, time: *const c_void) -> Option<u64> {
    // SAFETY: by the contract `time` is null or points to a `timespec`.
    let at_ns = unsafe { duration_ns(time) }?;
    Some(at_ns.saturating_sub(now_ns(clock)))
}

/// The target has waited for so long.
pub(crate) fn has_passed(ns: u64) {
    if super::is_on() {
        advance(ns);
    }
}

/// The target wants to sleep. Where no other thread runs in its process, time passes at once; returns whether it did.
pub(crate) fn pause(ns: u64) -> bool {
    advance(ns);
    !threads::has_company()
}

/// # Safety
/// There is room for a time, or none is wanted.
unsafe fn tell(clock: c_int, unit_ns: u64, out: *mut Time) {
    let now = now_ns(clock);
    if !out.is_null() {
        let mut time = Time::of_ns(now);
        time.rest /= unit_ns as i64;
        // SAFETY: by the contract `out` is a place for a `timespec`, and it is not null.
        unsafe { out.write(time) };
    }
}

/// # Safety
/// As the system call.
pub(super) unsafe fn perform(number: usize, arguments: [usize; 6]) -> Option<isize> {
    let [first, second, ..] = arguments;
    // SAFETY: by the contract these are the arguments of the target's call: null, or places that the kernel would
    // write to.
    unsafe {
        match number {
            GETTIMEOFDAY => tell(REALTIME, 1000, first as *mut Time),
            TIME => return Some(time(first as *mut c_long) as isize),
            sys::number::CLOCK_GETTIME if first as c_int <= LAST => {
                tell(first as c_int, 1, second as *mut Time);
            }
            _ => return None,
        }
    }
    Some(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn time(out: *mut c_long) -> c_long {
    if !super::is_on() {
        return original!("time" as extern "C" fn(*mut c_long) -> c_long)(out);
    }
    let seconds = (now_ns(REALTIME) / SECOND_NS) as c_long;
    if !out.is_null() {
        // SAFETY: by the contract of `time` a pointer that is not null is a place for the result.
        unsafe { out.write(seconds) };
    }
    seconds
}

#[unsafe(no_mangle)]
unsafe extern "C" fn gettimeofday(out: *mut Time, zone: *mut c_void) -> c_int {
    if !super::is_on() {
        type Ask = extern "C" fn(*mut Time, *mut c_void) -> c_int;
        return original!("gettimeofday" as Ask)(out, zone);
    }
    // SAFETY: by the contract of `gettimeofday` both pointers are null or valid; a zone has two numbers.
    unsafe {
        tell(REALTIME, 1000, out);
        if !zone.is_null() {
            zone.cast::<[c_int; 2]>().write([0; 2]);
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: c_int, out: *mut Time) -> c_int {
    if !super::is_on() {
        return original!("clock_gettime" as extern "C" fn(c_int, *mut Time) -> c_int)(clock, out);
    }
    if clock > LAST {
        const EINVAL: isize = 22;
        return result(-EINVAL) as c_int;
    }
    // SAFETY: by the contract of `clock_gettime` this is a place for a `timespec`.
    unsafe { tell(clock, 1, out) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timespec_get(out: *mut Time, base: c_int) -> c_int {
    const UTC: c_int = 1;
    if !super::is_on() || base != UTC {
        return original!("timespec_get" as extern "C" fn(*mut Time, c_int) -> c_int)(out, base);
    }
    // SAFETY: by the contract of `timespec_get` this is a place for a `timespec`.
    unsafe { tell(REALTIME, 1, out) };
    base
}

#[unsafe(no_mangle)]
extern "C" fn clock() -> c_long {
    if !super::is_on() {
        return original!("clock" as extern "C" fn() -> c_long)();
    }
    (now_ns(PROCESS_TIME) / 1000) as c_long
}
