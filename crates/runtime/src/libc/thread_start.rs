//! `pthread_create`: a new thread gets its block before it runs code of the target.
//!
//! # Safety
//!
//! What a new thread gets is allocated by its creator and freed by the new thread alone. Private memory belongs to
//! the calling thread. The variables of the C library that are read and written exist in every glibc that is
//! supported (`Solitude`).
#![allow(unsafe_code, reason = "stands in for `pthread_create`")]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::platform::{signals, sys};
use crate::record::{schedule, thread_private, threads};
use crate::recovery;

use super::interpose::{self, is_watched, original};

unsafe extern "C" {
    fn pthread_key_create(key: *mut u32, end: extern "C" fn(*mut c_void)) -> c_int;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
}

type Routine = extern "C" fn(*mut c_void) -> *mut c_void;

struct Start {
    routine: Routine,
    argument: *mut c_void,
    /// Signals that the thread that makes this one has blocked.
    mask: u64,
    /// Which of ours it believes to have blocked.
    blocked: u64,
    /// Its number, if that is decided.
    number: Option<u32>,
}

core::arch::global_asm!(
    ".local powerfail_probe",
    "powerfail_probe:",
    "mov rax, [rsp]",
    "mov [rdi], rax",
    "xor eax, eax",
    "ret",
);

unsafe extern "C" {
    fn powerfail_probe(out: *mut c_void) -> *mut c_void;
}

/// An address in the function of the C library that calls the routine of a new thread. A thread runs
/// it before it has a block of its own, so it must not be patched.
pub(crate) fn thread_starter() -> u64 {
    type Create = extern "C" fn(
        *mut usize,
        *const c_void,
        unsafe extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> c_int;
    let (mut handle, mut address) = (0, 0u64);
    let create = original!("pthread_create" as Create);
    let alone = Solitude::save();
    if create(
        &raw mut handle,
        core::ptr::null(),
        powerfail_probe,
        (&raw mut address).cast(),
    ) == 0
    {
        type Join = extern "C" fn(usize, *mut *mut c_void) -> c_int;
        original!("pthread_join" as Join)(handle, core::ptr::null_mut());
    }
    alone.restore();
    address
}

/// Whether the C library believes that there is one thread only: then it takes no locks, which would
/// be fences. Our probe must not change that.
struct Solitude {
    single: *mut u8,
    was_single: u8,
    multiple: u32,
}

impl Solitude {
    /// Where the header of a thread, at the FS base, says that there are others.
    const MULTIPLE_THREADS_AT: u64 = 0x18;

    fn save() -> Self {
        let single = interpose::variable::<u8>(c"__libc_single_threaded");
        // SAFETY: the C library keeps a byte under this name, and the header of this thread at the FS base.
        unsafe {
            Self {
                single,
                was_single: if single.is_null() { 0 } else { single.read() },
                multiple: ((sys::fs() + Self::MULTIPLE_THREADS_AT) as *const u32).read(),
            }
        }
    }

    fn restore(&self) {
        if self.was_single == 0 || threads::has_company() {
            return;
        }
        // SAFETY: `save` has read both places, which stay mapped; the only other thread that existed has been joined.
        unsafe {
            self.single.write(self.was_single);
            ((sys::fs() + Self::MULTIPLE_THREADS_AT) as *mut u32).write(self.multiple);
        }
    }
}

static END_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

extern "C" fn run_thread(start: *mut c_void) -> *mut c_void {
    // SAFETY: what `pthread_create` made, used once.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let Start {
        routine,
        argument,
        mask,
        blocked,
        number,
    } = *start;
    if recovery::is_active() {
        threads::attach_unrecorded();
    } else {
        threads::attach_as(number);
    }
    if let Some(own) = thread_private::own() {
        // SAFETY: the state is this thread's.
        unsafe { (*own).blocked = blocked };
    }
    sys::restore_signals(mask & !signals::OURS);
    let key = END_KEY.load(Ordering::Acquire);
    if key != u32::MAX {
        // SAFETY: the key exists.
        unsafe { pthread_setspecific(key, core::ptr::without_provenance(1)) };
    }
    schedule::begin();
    routine(argument)
}

/// Called at the end of a thread, together with the destructors of the target, which may store to
/// pools: so it asks to be called again, and acts the last time but one.
extern "C" fn end_thread(round: *mut c_void) {
    const LAST: usize = 3;
    let key = END_KEY.load(Ordering::Acquire);
    if (round as usize) < LAST {
        // SAFETY: the key exists.
        unsafe { pthread_setspecific(key, core::ptr::without_provenance(round as usize + 1)) };
    } else {
        threads::detach();
    }
}

#[unsafe(no_mangle)]
extern "C" fn pthread_create(
    handle: *mut c_void,
    attributes: *const c_void,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    type Create = extern "C" fn(*mut c_void, *const c_void, Routine, *mut c_void) -> c_int;
    let create = original!("pthread_create" as Create);
    if !is_watched() {
        return create(handle, attributes, routine, argument);
    }
    if END_KEY.load(Ordering::Acquire) == u32::MAX {
        let mut key = 0;
        // SAFETY: the key is written to this stack.
        if unsafe { pthread_key_create(&raw mut key, end_thread) } == 0 {
            END_KEY.store(key, Ordering::Release);
        }
    }
    threads::expect_company();
    if recovery::is_active() {
        recovery::expect_company();
    }
    let number = schedule::is_on().then(threads::reserve_number);
    if let Some(number) = number {
        schedule::step();
        schedule::expect(number);
    }
    // A new thread has the GS base of this one at first: until it has its own, no handler of the
    // target may run on it.
    let mask = sys::block_signals();
    sys::restore_signals(!signals::OURS);
    let start = Box::into_raw(Box::new(Start {
        routine,
        argument,
        mask,
        // SAFETY: the state is this thread's.
        blocked: thread_private::own().map_or(0, |own| unsafe { (*own).blocked }),
        number,
    }));
    let done = create(handle, attributes, run_thread, start.cast());
    sys::restore_signals(mask);
    if let Some(number) = number {
        if done == 0 {
            schedule::made(number);
        } else {
            schedule::expect_no_more(number);
        }
    }
    done
}
