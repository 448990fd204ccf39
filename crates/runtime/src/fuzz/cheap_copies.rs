//! Memory of a process that is copied thousands of times a second: few mappings, large pages, and little that an
//! execution writes to, because each page that it does is copied.
//!
//! # Safety
//!
//! Memory is replaced by a mapping of a file with the same content, while no other thread runs. Other calls take
//! pointers to this stack only, or none. `free` has the contract of the C function.
#![allow(unsafe_code, reason = "moves memory of the process to a file")]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::libc::interpose::original;
use crate::patching::modules::Function;
use crate::platform::maps::{self, Private};
use crate::platform::number::{BRK, GETRLIMIT, MEMFD_CREATE, MINCORE, SETRLIMIT};
use crate::platform::sys;
use crate::record::sites::{SITES, Sites};
use crate::record::window::window;

use super::is_active;

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
    // SAFETY: `brk(0)` takes no pointer and changes nothing.
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

/// Where the heap of the C library is.
fn find_heap(all: &[Private]) {
    if let Some(heap) = all.iter().find(|it| it.is_heap) {
        set(&HEAP, heap.from, heap.to);
    }
}

/// Makes this process cheap to copy. What it has written itself the kernel copies at each fork: not the pages,
/// but its tables of them. What comes from a file is only looked up when it is used. So everything goes to a
/// file in memory, of which this process and its copies have private mappings, as they have of programs.
pub(super) fn settle() {
    const RANGES_MAX: usize = 192;
    let nothing = Private {
        from: 0,
        to: 0,
        is_executable: false,
        is_heap: false,
    };
    // On the stack: what is allocated would be among what is copied.
    let (mut ranges, mut count) = ([nothing; RANGES_MAX], 0);
    let here = sys::stack_pointer();
    maps::for_each_private(|range| {
        let is_stack = (range.from..range.to).contains(&here);
        if !is_stack && count < RANGES_MAX {
            ranges[count] = range;
            count += 1;
        }
    });
    let ranges = &ranges[..count];
    find_heap(ranges);
    let limit = lift_limit();
    let name = c"powerfail-memory".as_ptr() as usize;
    // SAFETY: the name has an end.
    let file = unsafe { sys::call(MEMFD_CREATE, [name, CLOSE_ON_EXEC, 0, 0, 0, 0]) };
    if file >= 0 {
        let mut offset = 0;
        for range in ranges {
            move_to_file(*range, file as i32, offset);
            offset += range.to - range.from;
        }
        sys::close(file as i32);
    }
    set_limit(limit);
}

const CLOSE_ON_EXEC: usize = 1;
const FILE_LENGTH: usize = 1;

/// Lets files get as long as they may; how long they could get before.
fn lift_limit() -> [u64; 2] {
    let mut limit = [0u64; 2];
    let place = limit.as_mut_ptr() as usize;
    // SAFETY: the kernel writes two words to this stack.
    unsafe { sys::call(GETRLIMIT, [FILE_LENGTH, place, 0, 0, 0, 0]) };
    set_limit([limit[1], limit[1]]);
    limit
}

fn set_limit(limit: [u64; 2]) {
    let place = limit.as_ptr() as usize;
    // SAFETY: the kernel reads two words from this stack.
    unsafe { sys::call(SETRLIMIT, [FILE_LENGTH, place, 0, 0, 0, 0]) };
}

/// Puts the pages of a range that are there into a file, and maps it in their place.
fn move_to_file(range: Private, file: i32, offset: u64) {
    const PAGE: u64 = 4096;
    const PAGES: usize = 2048;
    let Private { from, to, .. } = range;
    // SAFETY: the file is ours.
    let is_long = unsafe {
        let len = (offset + to - from) as usize;
        sys::call(sys::number::FTRUNCATE, [file as usize, len, 0, 0, 0, 0])
    };
    if is_long < 0 {
        return;
    }
    let mut at = from;
    while at < to {
        let pages = ((to - at) / PAGE).min(PAGES as u64) as usize;
        let mut present = [0u8; PAGES];
        let len = pages * PAGE as usize;
        let place = present.as_mut_ptr() as usize;
        // SAFETY: the kernel writes a byte for each page.
        if unsafe { sys::call(MINCORE, [at as usize, len, place, 0, 0, 0]) } < 0 {
            return;
        }
        let mut page = 0;
        while page < pages {
            let is_present = |page: &usize| present[*page] & 1 != 0;
            let Some(first) = (page..pages).find(is_present) else {
                break;
            };
            let end = (first..pages)
                .find(|page| !is_present(page))
                .unwrap_or(pages);
            let start = at + first as u64 * PAGE;
            let len = (end - first) * PAGE as usize;
            let position = (offset + (start - from)) as usize;
            let arguments = [file as usize, start as usize, len, position, 0, 0];
            // SAFETY: the kernel reads memory that is there, and writes to a file of ours.
            if unsafe { sys::call(sys::number::PWRITE64, arguments) } != len as isize {
                return;
            }
            page = end;
        }
        at += len as u64;
    }
    let executable = if range.is_executable {
        sys::PROT_EXEC
    } else {
        0
    };
    let rights = sys::PROT_READ | sys::PROT_WRITE | executable;
    let flags = sys::MAP_PRIVATE | sys::MAP_FIXED | sys::MAP_NORESERVE;
    // SAFETY: the new mapping has the same content; nothing has changed it since it was written.
    unsafe { sys::mmap(from, to - from, rights, flags, file, offset) };
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
        // SAFETY: the C library has this function with this signature; it was found before this code was reachable.
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
        && !window().contains(mutex as u64);
    if is_spared {
        return 0;
    }
    original!("pthread_mutex_destroy" as extern "C" fn(*mut c_void) -> c_int)(mutex)
}
