//! The heap of this process: whether there is one, where it is mapped, and allocating and freeing in it.
//!
//! # Safety
//!
//! The heap lies at a fixed address in the window and is mapped once, for good. Memory that is cleared was given
//! out by `space` and is not known to the target yet.
#![allow(unsafe_code, reason = "maps and clears the heap")]

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;

use powerfail_protocol::mark;
use powerfail_protocol::memory::{
    HEAP_ADDRESS, HEAP_SPACE, HEAP_VARIABLE, ROOT_COUNT, ROOT_LEN, ROOTS_AT, RUN_LEN,
    run_count_of_file,
};
use powerfail_protocol::shared::SHARED_FD_VARIABLE;

use crate::libc::fork_locks::__register_atfork;
use crate::platform::number::WRITE;
use crate::platform::sys;
use crate::record::{append, first_pool, pools};
use crate::{host, recovery};

use super::space::{self, Object};
use super::{callers, functions};

/// Whether this process has the heap.
pub(super) static ON: AtomicBool = AtomicBool::new(false);
/// Whether that is decided.
pub(super) static DECIDED: AtomicBool = AtomicBool::new(false);
/// Futex: one of the states below.
pub(super) static MAPPED: AtomicU32 = AtomicU32::new(NOT_YET);
/// The thread that maps it.
pub(super) static MAPPER: AtomicU32 = AtomicU32::new(0);
/// How many runs the workload has.
pub(super) static RUN_COUNT: AtomicU64 = AtomicU64::new(0);
/// The path of its file, with a zero behind it.
pub(super) static PATH: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

pub(super) const NOT_YET: u32 = 0;
pub(super) const NOW: u32 = 1;
pub(super) const DONE: u32 = 2;

/// Decides whether this process has the heap.
pub(crate) fn start() {
    let path = std::env::var_os(HEAP_VARIABLE).and_then(|path| CString::new(path.into_vec()).ok());
    // Who was recorded and lost the host must not write to the heap that others record.
    let is_lost = || !host::attached() && std::env::var_os(SHARED_FD_VARIABLE).is_some();
    if let Some(path) = path
        && !is_lost()
        && !is_of_the_system()
    {
        PATH.store(path.into_raw().cast(), Ordering::Release);
        callers::look();
        // SAFETY: the function stays where it is.
        unsafe { __register_atfork(None, None, Some(in_child), core::ptr::null_mut()) };
        ON.store(true, Ordering::Release);
    }
    DECIDED.store(true, Ordering::Release);
}

/// Code was loaded or unloaded.
pub(crate) fn look_at_modules() {
    if ON.load(Ordering::Relaxed) {
        callers::look();
    }
}

/// Whether this program belongs to the system, as the shell does that runs a command of the user.
pub(super) fn is_of_the_system() -> bool {
    const DIRECTORIES: [&[u8]; 5] = [
        b"/bin/",
        b"/sbin/",
        b"/usr/bin/",
        b"/usr/sbin/",
        b"/usr/lib",
    ];
    let mut path = [0; 4096];
    let len = host::read_link(c"/proc/self/exe", &mut path);
    let path = &path[..len];
    DIRECTORIES
        .iter()
        .any(|directory| path.starts_with(directory))
}

/// In the child after fork: what the parent has taken is its own.
extern "C" fn in_child() {
    space::forget();
}

/// In the child after fork: a thread that was mapping the heap does not exist.
pub(super) fn reset_after_fork() {
    let _ = MAPPED.compare_exchange(NOW, NOT_YET, Ordering::AcqRel, Ordering::Acquire);
}

/// Whether memory is to come from the heap, if the caller's return address is this one.
pub(super) fn serves(caller: u64) -> bool {
    ON.load(Ordering::Relaxed) && !callers::is_of_the_system(caller) && is_mapped()
}

/// Whether an address lies in the heap.
pub(super) fn holds(address: u64) -> bool {
    address.wrapping_sub(HEAP_ADDRESS) < HEAP_SPACE
}

/// Sees to it that the heap is mapped. Not while this very thread maps it: what is allocated for that is
/// not the target's.
pub(super) fn is_mapped() -> bool {
    match MAPPED.compare_exchange(NOT_YET, NOW, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            MAPPER.store(sys::gettid(), Ordering::Relaxed);
            first_pool::in_turn(map);
            MAPPED.store(DONE, Ordering::Release);
            sys::futex_wake(&MAPPED);
            true
        }
        Err(DONE) => true,
        Err(_) if MAPPER.load(Ordering::Relaxed) == sys::gettid() => false,
        Err(_) => {
            while MAPPED.load(Ordering::Acquire) == NOW {
                sys::futex_wait(&MAPPED, NOW);
            }
            true
        }
    }
}

pub(super) fn map() {
    // SAFETY: written before the heap was switched on, and never freed.
    let path = unsafe { CStr::from_ptr(PATH.load(Ordering::Acquire).cast()) };
    let fd = open(path);
    let len = sys::fstat(fd).map_or(0, |status| status.len_bytes);
    let is_done = if host::attached() {
        fd >= 0 && pools::map_own(HEAP_ADDRESS, len, fd)
    } else {
        fd >= 0 && recovery::map_file(HEAP_ADDRESS, len, sys::MAP_FIXED_NOREPLACE, fd) > 0
    };
    if !is_done {
        give_up("the persistent heap cannot be mapped");
    }
    close(fd);
    RUN_COUNT.store(run_count_of_file(len), Ordering::Release);
    if host::attached() {
        begin();
    }
}

/// Opens a file of ours; a negative number if that is not possible.
pub(crate) fn open(path: &CStr) -> i32 {
    if host::attached() {
        sys::open(path, sys::O_RDWR, 0)
    } else {
        recovery::open_file(path)
    }
}

pub(crate) fn close(fd: i32) {
    sys::close(fd);
}

/// The first process of the recording: roots are zero, whatever fresh memory holds.
pub(super) fn begin() {
    let next = &host::control().next_run;
    // The first run stays unused: that its number is taken says that the heap was in use before.
    if next
        .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return;
    }
    writes();
    let (address, len) = (HEAP_ADDRESS + ROOTS_AT, ROOT_COUNT * ROOT_LEN);
    store_zeros(address, len);
    pools::synced(address, len);
    append::append_mark([mark::HEAP_END.into(), 0]);
}

/// The heap begins to write what is its own. With the call stack: what was stored before may be lost here.
pub(super) fn writes() {
    append::append_mark_with_stack([mark::HEAP_BEGIN.into(), 0]);
}

/// Stores zeros in a recording. They are as durable as what the target stores.
pub(super) fn store_zeros(address: u64, len: u64) {
    let zeros = [0; 1024];
    let mut at = 0;
    while at < len {
        let piece = &zeros[..(len - at).min(zeros.len() as u64) as usize];
        append::store_system(address + at, piece);
        at += piece.len() as u64;
    }
}

/// Leaves a mark about an object, with the call stack.
pub(super) fn leave(code: u32, value: u64, address: u64, len: u64) {
    if host::attached() {
        append::append_mark_with_stack([code.into(), value, address, len]);
    }
}

/// What the memory of an object is to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Any,
    Zeros,
}

/// Gives out memory; null if there is none.
pub(super) fn allocate(len: u64, alignment: u64, content: Content) -> *mut c_void {
    let Some(Object { address, is_fresh }) = space::allocate(len, alignment) else {
        if host::attached() && len <= RUN_COUNT.load(Ordering::Relaxed) * RUN_LEN {
            give_up("the persistent heap is full: give it more memory, as in --heap=1G");
        }
        return core::ptr::null_mut();
    };
    let value = match content {
        Content::Any => 0,
        Content::Zeros => mark::allocation::ZEROED,
    };
    leave(mark::ALLOCATE, value, address, len.max(1));
    if content == Content::Zeros && host::attached() {
        // Memory that was used before is not zero, and that it is has to be flushed: so it is stored in
        // fresh memory, too.
        store_zeros(address, len);
    } else if content == Content::Zeros && !is_fresh {
        functions::clear(address, len);
    }
    address as *mut c_void
}

/// Takes memory back.
pub(super) fn deallocate(address: u64) {
    let Some(len) = space::len_of(address) else {
        give_up("free of an address that is not an object of the persistent heap");
    };
    leave(mark::FREE, 0, address, len);
    space::deallocate(address, len);
}

/// Says why the process cannot go on, and ends it.
pub(crate) fn give_up(sentence: &str) -> ! {
    if host::attached() || recovery::is_active() {
        host::fatal(sentence);
    }
    say(sentence);
    sys::exit_group(125)
}

/// Writes a line to the standard error of the target.
pub(crate) fn say(sentence: &str) {
    let line = format!("powerfail: {sentence}\n");
    let arguments = [2, line.as_ptr() as usize, line.len(), 0, 0, 0];
    // SAFETY: the kernel reads the line.
    unsafe { sys::call(WRITE, arguments) };
}

/// Words for programs that have no heap.
pub(super) static WORDS: [AtomicU64; ROOT_COUNT as usize] =
    [const { AtomicU64::new(0) }; ROOT_COUNT as usize];

/// The root with a number: a word of persistent memory, zero at first.
#[unsafe(no_mangle)]
extern "C" fn powerfail_root_slot(id: u64) -> *mut c_void {
    let id = id % ROOT_COUNT;
    if ON.load(Ordering::Acquire) && is_mapped() {
        return (HEAP_ADDRESS + ROOTS_AT + id * ROOT_LEN) as *mut c_void;
    }
    WORDS[id as usize].as_ptr().cast()
}
