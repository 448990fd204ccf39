//! Functions of the C library by which threads wait for each other. Where threads are scheduled, the
//! scheduler has to know which thread waits and for what; the work is done by the C library.
//!
//! Where threads are not scheduled, each of these functions is one jump to the original.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions, and pass on what they got; originals are called with the
//! signature that the headers give. Callers of `futex` guarantee that the target makes this system call.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::fuzz::derandomise;
use crate::libc::interpose::{errno, find_address, find_version, original};
use crate::record::schedule::{self, Members};

const EBUSY: c_int = 16;

/// Whether it is known that threads are not scheduled.
static NEVER: AtomicBool = AtomicBool::new(false);

/// The runtime knows whether threads are scheduled.
pub(crate) fn decide() {
    NEVER.store(!schedule::is_on(), Ordering::Relaxed);
}

/// A function that stands in for one of the C library: `$instead` takes the original besides.
macro_rules! stands_in {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $instead:path, $find:expr $(, $also:path)?;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name($($argument: $kind),*) -> $result {
                core::arch::naked_asm!(
                    "mov rax, [rip + {direct}]",
                    "test rax, rax",
                    "jz {slow}",
                    "jmp rax",
                    direct = sym $name::DIRECT,
                    slow = sym $name::slow,
                )
            }

            mod $name {
                use super::*;

                type Original = extern "C" fn($($kind),*) -> $result;

                /// Where to go at once; zero if that is not known, or not wanted.
                pub(super) static DIRECT: AtomicUsize = AtomicUsize::new(0);
                static ADDRESS: AtomicUsize = AtomicUsize::new(0);

                pub(super) extern "C" fn slow($($argument: $kind),*) -> $result {
                    let mut address = ADDRESS.load(Ordering::Relaxed);
                    if address == 0 {
                        address = $find;
                        ADDRESS.store(address, Ordering::Relaxed);
                    }
                    // SAFETY: the C library has this function with this signature.
                    let original = unsafe { core::mem::transmute::<usize, Original>(address) };
                    if schedule::concerns_caller() $(|| $also())? {
                        return $instead(original, $($argument),*);
                    }
                    if NEVER.load(Ordering::Relaxed) {
                        DIRECT.store(address, Ordering::Relaxed);
                    }
                    original($($argument),*)
                }
            }
        )*
    };
}

/// What the C library had before is only there for programs of another age.
const CONDITIONS: &str = "GLIBC_2.3.2\0";

type Object = *mut c_void;
type Of1 = extern "C" fn(Object) -> c_int;
type Of2 = extern "C" fn(Object, Object) -> c_int;
type Of3 = extern "C" fn(Object, Object, Object) -> c_int;
type OfClock = extern "C" fn(Object, Object, c_int, Object) -> c_int;

stands_in! {
    fn pthread_mutex_lock(mutex: Object) -> c_int = lock_mutex, find_address("pthread_mutex_lock\0");
    fn pthread_mutex_unlock(mutex: Object) -> c_int = release, find_address("pthread_mutex_unlock\0");
    fn pthread_rwlock_rdlock(lock: Object) -> c_int = lock_to_read, find_address("pthread_rwlock_rdlock\0");
    fn pthread_rwlock_wrlock(lock: Object) -> c_int = lock_to_write, find_address("pthread_rwlock_wrlock\0");
    fn pthread_rwlock_unlock(lock: Object) -> c_int = release, find_address("pthread_rwlock_unlock\0");
    fn pthread_spin_lock(lock: Object) -> c_int = lock_spin, find_address("pthread_spin_lock\0");
    fn pthread_spin_unlock(lock: Object) -> c_int = release, find_address("pthread_spin_unlock\0");
    fn pthread_cond_wait(condition: Object, mutex: Object) -> c_int = wait,
        find_version("pthread_cond_wait\0", CONDITIONS);
    fn pthread_cond_timedwait(condition: Object, mutex: Object, time: Object) -> c_int = wait_until,
        find_version("pthread_cond_timedwait\0", CONDITIONS), derandomise::is_on;
    fn pthread_cond_clockwait(condition: Object, mutex: Object, clock: c_int, time: Object) -> c_int
        = wait_until_clock, find_address("pthread_cond_clockwait\0"), derandomise::is_on;
    fn pthread_cond_signal(condition: Object) -> c_int = release,
        find_version("pthread_cond_signal\0", CONDITIONS);
    fn pthread_cond_broadcast(condition: Object) -> c_int = broadcast,
        find_version("pthread_cond_broadcast\0", CONDITIONS);
    fn pthread_barrier_wait(barrier: Object) -> c_int = meet, find_address("pthread_barrier_wait\0");
    fn sem_wait(semaphore: Object) -> c_int = take_semaphore, find_address("sem_wait\0");
    fn sem_post(semaphore: Object) -> c_int = release, find_address("sem_post\0");
    fn pthread_join(thread: Object, result: Object) -> c_int = join, find_address("pthread_join\0");
    fn sched_yield() -> c_int = give_way, find_address("sched_yield\0");
    fn sleep(seconds: c_uint) -> c_uint = rest_seconds, find_address("sleep\0"),
        derandomise::is_on;
    fn usleep(microseconds: c_uint) -> c_int = rest_microseconds, find_address("usleep\0"),
        derandomise::is_on;
    fn nanosleep(time: Object, left: Object) -> c_int = rest, find_address("nanosleep\0"),
        derandomise::is_on;
    fn clock_nanosleep(clock: c_int, flags: c_int, time: Object, left: Object) -> c_int
        = rest_by_clock, find_address("clock_nanosleep\0"), derandomise::is_on;
}

/// Takes a lock, of which `attempt` says at once whether it is free.
fn lock(of: Object, attempt: Of1, original: Of1) -> c_int {
    let attempt = |_: &Members| Some(attempt(of)).filter(|result| *result != EBUSY);
    schedule::acquire(of as u64, attempt)
        .unwrap_or_else(|| schedule::blocking(of as u64, 0, || original(of)))
}

fn lock_mutex(original: Of1, mutex: Object) -> c_int {
    lock(mutex, original!("pthread_mutex_trylock" as Of1), original)
}

fn lock_to_read(original: Of1, of: Object) -> c_int {
    lock(of, original!("pthread_rwlock_tryrdlock" as Of1), original)
}

fn lock_to_write(original: Of1, of: Object) -> c_int {
    lock(of, original!("pthread_rwlock_trywrlock" as Of1), original)
}

fn lock_spin(original: Of1, of: Object) -> c_int {
    lock(of, original!("pthread_spin_trylock" as Of1), original)
}

/// Gives something back, which one of those can take who wait for it. Then it may be their turn.
fn release(original: Of1, of: Object) -> c_int {
    schedule::step();
    let result = original(of);
    schedule::wake(of as u64, 1);
    schedule::turn();
    result
}

fn broadcast(original: Of1, condition: Object) -> c_int {
    schedule::step();
    let result = original(condition);
    schedule::wake(condition as u64, usize::MAX);
    schedule::turn();
    result
}

fn take_semaphore(original: Of1, semaphore: Object) -> c_int {
    let attempt = original!("sem_trywait" as Of1);
    let attempt = |_: &Members| {
        let before = errno();
        // SAFETY: the place is this thread's.
        unsafe {
            let error = *before;
            let done = attempt(semaphore);
            *before = error;
            (done == 0).then_some(0)
        }
    };
    let on = semaphore as u64;
    schedule::acquire(on, attempt)
        .unwrap_or_else(|| schedule::blocking(on, 0, || original(semaphore)))
}

/// Waits for a condition, which gives the mutex back.
fn wait_for(condition: Object, mutex: Object, wait: impl FnOnce() -> c_int) -> c_int {
    schedule::turn();
    // Those who wait for the mutex see soon enough that it is free.
    schedule::wake(mutex as u64, 1);
    schedule::blocking(condition as u64, mutex as u64, wait)
}

fn wait(original: Of2, condition: Object, mutex: Object) -> c_int {
    wait_for(condition, mutex, || original(condition, mutex))
}

fn wait_until(original: Of3, condition: Object, mutex: Object, time: Object) -> c_int {
    until(None, time, |time| {
        if schedule::concerns_caller() {
            wait_for(condition, mutex, || original(condition, mutex, time))
        } else {
            original(condition, mutex, time)
        }
    })
}

fn wait_until_clock(
    original: OfClock,
    condition: Object,
    mutex: Object,
    clock: c_int,
    time: Object,
) -> c_int {
    until(Some(clock), time, |time| {
        if schedule::concerns_caller() {
            wait_for(condition, mutex, || original(condition, mutex, clock, time))
        } else {
            original(condition, mutex, clock, time)
        }
    })
}

/// Waits until a time, which is one of the target's clock if that is not the system's.
fn until(clock: Option<c_int>, time: Object, wait: impl FnOnce(Object) -> c_int) -> c_int {
    const ETIMEDOUT: c_int = 110;
    if !derandomise::is_on() || time.is_null() {
        return wait(time);
    }
    // SAFETY: the C function that the target called requires `time` to be null or a valid `timespec`.
    let Some((mut real, deadline)) = (unsafe { derandomise::real_deadline(clock, time) }) else {
        return wait(time);
    };
    let result = wait((&raw mut real).cast());
    if result == ETIMEDOUT {
        deadline.passed();
    }
    result
}

fn meet(original: Of1, barrier: Object) -> c_int {
    let result = schedule::blocking(barrier as u64, 0, || {
        let result = original(barrier);
        schedule::wake_all_if_first(barrier as u64);
        result
    });
    schedule::turn();
    result
}

fn join(original: Of2, thread: Object, result: Object) -> c_int {
    let attempt = original!("pthread_tryjoin_np" as Of2);
    let attempt = |members: &Members| {
        if members.has_ended(thread as u64) {
            return Some(None);
        }
        Some(Some(attempt(thread, result))).filter(|result| *result != Some(EBUSY))
    };
    match schedule::acquire(thread as u64, attempt) {
        Some(Some(result)) => result,
        // It takes a moment only: the thread has nothing more to do than to end.
        Some(None) => schedule::certain(|| original(thread, result)),
        None => schedule::blocking(thread as u64, 0, || original(thread, result)),
    }
}

fn give_way(original: extern "C" fn() -> c_int) -> c_int {
    schedule::yield_turn();
    original()
}

/// Sleeps, or lets the time of the target pass without that.
fn sleeping<R: Default>(ns: Option<u64>, sleep: impl FnOnce() -> R) -> R {
    if derandomise::is_on()
        && let Some(ns) = ns
        && derandomise::pause(ns)
    {
        return R::default();
    }
    if schedule::concerns_caller() {
        schedule::blocking(0, 0, sleep)
    } else {
        sleep()
    }
}

fn rest_seconds(original: extern "C" fn(c_uint) -> c_uint, seconds: c_uint) -> c_uint {
    let ns = u64::from(seconds) * 1_000_000_000;
    sleeping(Some(ns), || original(seconds))
}

fn rest_microseconds(original: extern "C" fn(c_uint) -> c_int, microseconds: c_uint) -> c_int {
    let ns = u64::from(microseconds) * 1000;
    sleeping(Some(ns), || original(microseconds))
}

fn rest(original: Of2, time: Object, left: Object) -> c_int {
    // SAFETY: the C function that the target called requires `time` to be a valid `timespec`.
    let ns = unsafe { derandomise::duration_ns(time) };
    sleeping(ns, || original(time, left))
}

fn rest_by_clock(
    original: extern "C" fn(c_int, c_int, Object, Object) -> c_int,
    clock: c_int,
    flags: c_int,
    time: Object,
    left: Object,
) -> c_int {
    const UNTIL: c_int = 1;
    // SAFETY: the C function that the target called requires `time` to be a valid `timespec`.
    let ns = unsafe {
        if flags & UNTIL == 0 {
            derandomise::duration_ns(time)
        } else if derandomise::is_on() {
            derandomise::until_ns(clock, time)
        } else {
            None
        }
    };
    let Some(ns) = ns.filter(|_| derandomise::is_on()) else {
        return sleeping(None, || original(clock, flags, time, left));
    };
    // By the clock of the system that moment may be any.
    let mut time = derandomise::Time::of_ns(ns);
    sleeping(Some(ns), || {
        original(clock, 0, (&raw mut time).cast(), core::ptr::null_mut())
    })
}

/// `futex` that the target calls itself. `None` if that concerns no scheduled thread.
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn futex(
    arguments: [usize; 6],
    perform: impl FnOnce() -> isize,
) -> Option<isize> {
    const OPERATION: usize = 0x7f;
    const WAIT: usize = 0;
    const WAKE: usize = 1;
    const WAIT_BITSET: usize = 9;
    const WAKE_BITSET: usize = 10;
    if !schedule::concerns_caller() {
        return None;
    }
    let [address, operation, value, ..] = arguments;
    let word = address as *const u32;
    match operation & OPERATION {
        WAIT | WAIT_BITSET if !word.is_null() && word.is_aligned() => {
            schedule::turn();
            // SAFETY: by the contract the target waits at this word, so it is mapped and aligned; others may change
            // it, hence volatile.
            if unsafe { word.read_volatile() } != value as u32 {
                return Some(perform());
            }
            Some(schedule::blocking(address as u64, 0, perform))
        }
        WAKE | WAKE_BITSET => {
            schedule::step();
            let done = perform();
            schedule::wake(address as u64, value);
            schedule::turn();
            Some(done)
        }
        _ => None,
    }
}
