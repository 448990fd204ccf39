//! Memory of a process that is copied thousands of times a second: few mappings, large pages, and little that an
//! execution writes to, because each page that it does is copied.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::interpose::original;
use crate::modules::Function;
use crate::sites::{SITES, Sites, WINDOW};
use crate::{allocator, maps, sys};

use super::is_active;

const MADVISE: usize = 28;
const BRK: usize = 12;
const LARGE: u64 = 2 << 20;

/// Lengths of blocks for trampolines that are tried, longest first.
const BLOCKS: [u64; 4] = [64 << 20, 8 << 20, 1 << 20, 64 << 10];
/// Addresses above the heap that are left to it.
const HEAP_ROOM: u64 = 4 << 30;

/// Where libpmemobj is: from, to.
static LIBRARY: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
/// The heap of the C library as it was when this process was forked: from, to.
static HEAP: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
/// Whether this process is an execution, and not long for this world.
static EXECUTES: AtomicBool = AtomicBool::new(false);

fn set(range: &[AtomicU64; 2], from: u64, to: u64) {
    range[0].store(from, Ordering::Relaxed);
    range[1].store(to, Ordering::Relaxed);
}

fn contains(range: &[AtomicU64; 2], address: u64) -> bool {
    (range[0].load(Ordering::Relaxed)..range[1].load(Ordering::Relaxed)).contains(&address)
}

/// Maps a whole block around a page for trampolines, in a repeated target: where jumps lead is all over the
/// place, and each mapping costs at each fork.
pub(crate) fn map_block(page: u64, map: impl Fn(u64, u64) -> bool) -> Option<(u64, u64)> {
    if !is_active() {
        return None;
    }
    // SAFETY: asks only.
    let heap = unsafe { sys::call(BRK, [0; 6]) } as u64;
    BLOCKS.iter().find_map(|len| {
        let (from, to) = (page / len * len, page / len * len + len);
        let is_heap = from < heap + HEAP_ROOM && heap < to + LARGE;
        (!is_heap && map(from, to - from)).then_some((from, to))
    })
}

/// libpmemobj is there.
pub(crate) fn loaded_libpmemobj(from: u64, to: u64) {
    set(&LIBRARY, from, to);
}

/// The functions of libpmemobj.
pub(super) fn functions_of_library() -> Vec<Function> {
    let [from, to] = [&LIBRARY[0], &LIBRARY[1]].map(|end| end.load(Ordering::Relaxed));
    SITES.with(|sites| {
        let free = |sites: &Sites| sites.free_functions(from, to);
        sites.as_ref().map(free).unwrap_or_default()
    })
}

/// Makes large pages of what this process has: to copy one costs as much as to copy a small one.
pub(super) fn settle() {
    const LEN_MAX: u64 = 256 << 20;
    let own = allocator::used();
    collapse(own.0, own.1);
    maps::for_each_private(|from, to, is_heap| {
        if is_heap {
            set(&HEAP, from, to);
        }
        if to - from >= LARGE && to - from <= LEN_MAX {
            collapse(from, to);
        }
    });
}

fn collapse(from: u64, to: u64) {
    const COLLAPSE: usize = 25;
    let mut at = from.next_multiple_of(LARGE);
    while at + LARGE <= to.next_multiple_of(LARGE) {
        // SAFETY: what is there stays the same. Where there is nothing, or something else, nothing happens.
        unsafe { sys::call(MADVISE, [at as usize, LARGE as usize, COLLAPSE, 0, 0, 0]) };
        at += LARGE;
    }
}

/// This process is an execution from now on.
pub(super) fn begin_execution() {
    EXECUTES.store(true, Ordering::Relaxed);
}

/// What stands in for a function of the C library in a repeated target: itself, but for `free`.
pub(crate) fn instead_of(name: &str, original: usize) -> usize {
    if !is_active() || name != "free\0" {
        return original;
    }
    FREE.store(original, Ordering::Relaxed);
    free_entry as *const () as usize
}

/// The C library's own `free`.
static FREE: AtomicUsize = AtomicUsize::new(0);

/// Gives the caller's return address as a further argument.
#[unsafe(naked)]
extern "C" fn free_entry() {
    core::arch::naked_asm!("mov rsi, [rsp]", "jmp {free}", free = sym free)
}

/// What libpmemobj frees when it closes a pool are thousands of objects that it has made when it opened it, and
/// all of their pages would be copied for that, in a process that ends then.
extern "C" fn free(object: *mut c_void, caller: u64) {
    let is_spared = EXECUTES.load(Ordering::Relaxed)
        && contains(&LIBRARY, caller)
        && contains(&HEAP, object as u64);
    if !is_spared {
        // SAFETY: the C library has this function with this signature; it was found before anybody came here.
        let free: extern "C" fn(*mut c_void) =
            unsafe { core::mem::transmute(FREE.load(Ordering::Relaxed)) };
        free(object);
    }
}

/// The same for its locks.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn pthread_mutex_destroy() {
    core::arch::naked_asm!("mov rsi, [rsp]", "jmp {destroy}", destroy = sym destroy)
}

extern "C" fn destroy(mutex: *mut c_void, caller: u64) -> c_int {
    let is_spared = EXECUTES.load(Ordering::Relaxed)
        && contains(&LIBRARY, caller)
        && !WINDOW.contains(mutex as u64);
    if is_spared {
        return 0;
    }
    original!("pthread_mutex_destroy" as extern "C" fn(*mut c_void) -> c_int)(mutex)
}
