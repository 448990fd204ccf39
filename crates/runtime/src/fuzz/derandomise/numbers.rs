//! Numbers of processes and threads.
//!
//! The target sees other numbers than the kernel uses, so where it passes one to a system call, the kernel gets its
//! own number instead.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions. The header of a thread lies at its FS base in every glibc
//! that is supported. Callers of `perform` guarantee that the target makes this system call.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::libc::interpose::{original, result};
use crate::platform::number::{GETPPID, KILL, TKILL};
use crate::platform::sys;
use crate::record::threads;

/// The number of the first process, as the target sees it.
const FIRST: u32 = 20_000;
const PARENT: u32 = 19_999;
/// Numbers of processes are so far from each other: threads have those in between.
const DISTANCE: u32 = 100;

/// What the target believes to be the number of this process.
static PROCESS: AtomicU32 = AtomicU32::new(FIRST);
static PARENT_PROCESS: AtomicU32 = AtomicU32::new(PARENT);
/// How many processes this one and those before it have made.
static FORKS: AtomicU32 = AtomicU32::new(0);

const GETPID: usize = sys::number::GETPID;

/// Where the header of a thread has its number, from the FS base on.
const HEADER_NUMBER_AT: u64 = 0x2d0;

pub(super) fn start() {
    name_main_thread();
}

/// The C library writes the number of a thread into mutexes that it holds, and those may be in a pool. So the
/// main thread, which is the calling one, has in its header the number that the target sees. Other threads
/// keep theirs: they are signalled by it.
fn name_main_thread() {
    let place = (sys::fs() + HEADER_NUMBER_AT) as *mut u32;
    // SAFETY: the header is longer than that.
    unsafe {
        if place.read() == sys::gettid() {
            place.write(process());
        }
    }
}

/// In a process that the target has made.
pub(crate) fn after_fork() {
    let count = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
    let before = PROCESS.swap(FIRST + count * DISTANCE, Ordering::Relaxed);
    PARENT_PROCESS.store(before, Ordering::Relaxed);
    if super::is_on() {
        name_main_thread();
    }
}

fn process() -> u32 {
    PROCESS.load(Ordering::Relaxed)
}

/// The number of the calling thread, as the target sees it.
fn own_thread() -> u32 {
    if sys::gettid() == sys::getpid() {
        return process();
    }
    // As the recording counts threads.
    match threads::number() {
        Some(number) => process() + 1 + number % (DISTANCE - 1),
        None => sys::gettid(),
    }
}

/// What the kernel calls a process or thread that the target means.
fn known(number: usize) -> usize {
    if number as u32 == process() {
        sys::getpid() as usize
    } else if number as u32 == own_thread() {
        sys::gettid() as usize
    } else {
        number
    }
}

/// # Safety
/// As the system call.
pub(super) unsafe fn perform(number: usize, mut arguments: [usize; 6]) -> Option<isize> {
    match number {
        GETPID => Some(process() as isize),
        GETPPID => Some(PARENT_PROCESS.load(Ordering::Relaxed) as isize),
        sys::number::GETTID => Some(own_thread() as isize),
        KILL | TKILL | sys::number::TGKILL => {
            let count = if number == sys::number::TGKILL { 2 } else { 1 };
            for argument in &mut arguments[..count] {
                *argument = known(*argument);
            }
            // SAFETY: by the contract the target makes this call; only the number of the process in it was
            // translated.
            Some(unsafe { sys::call(number, arguments) })
        }
        _ => None,
    }
}

#[unsafe(no_mangle)]
extern "C" fn getpid() -> c_int {
    if super::is_on() {
        process() as c_int
    } else {
        sys::getpid() as c_int
    }
}

#[unsafe(no_mangle)]
extern "C" fn getppid() -> c_int {
    if super::is_on() {
        return PARENT_PROCESS.load(Ordering::Relaxed) as c_int;
    }
    sys::getppid() as c_int
}

#[unsafe(no_mangle)]
extern "C" fn gettid() -> c_int {
    if super::is_on() {
        own_thread() as c_int
    } else {
        sys::gettid() as c_int
    }
}

#[unsafe(no_mangle)]
extern "C" fn kill(process: c_int, signal: c_int) -> c_int {
    if !super::is_on() {
        return original!("kill" as extern "C" fn(c_int, c_int) -> c_int)(process, signal);
    }
    let arguments = [known(process as usize), signal as usize, 0, 0, 0, 0];
    // SAFETY: `kill` takes no pointer, and the target makes this call.
    result(unsafe { sys::call(KILL, arguments) }) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn pthread_kill(thread: usize, signal: c_int) -> c_int {
    // SAFETY: a thread is known by the address of its header.
    let is_main =
        || unsafe { ((thread as u64 + HEADER_NUMBER_AT) as *const u32).read() == process() };
    if super::is_on() && thread != 0 && is_main() {
        let main = sys::getpid() as usize;
        let arguments = [main, main, signal as usize, 0, 0, 0];
        // SAFETY: `tgkill` takes no pointer, and the target makes this call.
        return -unsafe { sys::call(sys::number::TGKILL, arguments) } as c_int;
    }
    original!("pthread_kill" as extern "C" fn(usize, c_int) -> c_int)(thread, signal)
}

/// Functions that are told a process first.
macro_rules! means_a_process {
    ($($name:ident, $original:literal, ($($argument:ident: $kind:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(process: c_int, $($argument: $kind),*) -> c_int {
                let process = if super::is_on() { known(process as usize) as c_int } else { process };
                original!($original as extern "C" fn(c_int, $($kind),*) -> c_int)(process, $($argument),*)
            }
        )*
    };
}

means_a_process! {
    sigqueue, "sigqueue", (signal: c_int, value: *mut c_void);
    getpgid, "getpgid", ();
    getsid, "getsid", ();
    setpgid, "setpgid", (group: c_int);
    sched_setaffinity, "sched_setaffinity", (len: usize, set: *const c_void);
    sched_getaffinity, "sched_getaffinity", (len: usize, set: *mut c_void);
    sched_setscheduler, "sched_setscheduler", (policy: c_int, parameter: *const c_void);
}
