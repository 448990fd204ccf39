//! Branches of targets that were built to say where they are: `-fsanitize-coverage=trace-pc-guard` of clang,
//! `-fsanitize-coverage=trace-pc` of gcc and clang.
//!
//! Compilers put calls of these functions everywhere and leave it to a library to have them. In a repeated
//! target they count transitions between places in the map that is shared with the host, as AFL does; in all
//! other processes they do nothing.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use powerfail_abi::fuzz::{AREA_ADDRESS, BRANCHES_AT, BRANCHES_LEN};

use crate::{code, fuzz, interpose};

/// Guards that were numbered.
static GUARDS: AtomicU32 = AtomicU32::new(0);
/// Whether the host was told that there are branches.
static IS_TOLD: AtomicU32 = AtomicU32::new(0);
/// Where counting goes: the map, or nowhere.
static MAP: AtomicU64 = AtomicU64::new(0);

/// Where the process was last. Threads mix what they do, as with AFL.
struct Previous(UnsafeCell<u32>);

// SAFETY: one word, read and written as a whole; whatever is there is a number.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(UnsafeCell::new(0));

/// The runtime begins.
pub(crate) fn start() {
    if fuzz::is_active() {
        MAP.store(AREA_ADDRESS + BRANCHES_AT, Ordering::Relaxed);
        replace_all();
    }
}

/// A program that was linked by clang with the same flag brings functions of its own, which do nothing until
/// somebody defines others when it is linked: they lead here. What brings AFL++'s has a map of its own.
fn replace_all() {
    if interpose::look_up(c"__afl_area_ptr").is_some() {
        return;
    }
    let functions = [
        (
            c"__sanitizer_cov_trace_pc_guard_init",
            __sanitizer_cov_trace_pc_guard_init as *const () as u64,
        ),
        (
            c"__sanitizer_cov_trace_pc_guard",
            __sanitizer_cov_trace_pc_guard as *const () as u64,
        ),
        (
            c"__sanitizer_cov_trace_pc",
            __sanitizer_cov_trace_pc as *const () as u64,
        ),
    ];
    for (name, ours) in functions {
        if let Some(theirs) = interpose::look_up(name).filter(|theirs| *theirs != ours) {
            // jmp [rip]
            let mut jump = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            jump[6..].copy_from_slice(&ours.to_le_bytes());
            // No function of the target has run yet.
            code::replace(core::iter::once((theirs, &jump[..])));
        }
    }
}

/// The target is at a place.
fn count(place: u32) {
    let map = MAP.load(Ordering::Relaxed);
    if map == 0 {
        return;
    }
    if IS_TOLD.load(Ordering::Relaxed) == 0 {
        IS_TOLD.store(1, Ordering::Relaxed);
        let count = GUARDS.load(Ordering::Relaxed).max(1);
        fuzz::area().guards.fetch_max(count, Ordering::Relaxed);
    }
    let previous = PREVIOUS.0.get();
    // SAFETY: the word is ours; the map is mapped while its address is known, and the index is inside of it.
    unsafe {
        let index = (place ^ previous.read_volatile()) as usize & (BRANCHES_LEN - 1);
        previous.write_volatile(place >> 1);
        let counter = &*(map as *const AtomicU8).add(index);
        let before = counter.load(Ordering::Relaxed);
        counter.store(before.saturating_add(1), Ordering::Relaxed);
    }
}

/// Spreads numbers that lie side by side over the map.
const fn spread(number: u32) -> u32 {
    let number = number.wrapping_mul(0x9e37_79b1);
    number ^ number >> 15
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __sanitizer_cov_trace_pc_guard_init(start: *mut u32, stop: *mut u32) {
    let mut place = start;
    while place < stop {
        // SAFETY: the compiler has an array of guards there.
        unsafe {
            // Called once for each module that was linked, with the same guards.
            if place.read() == 0 {
                place.write(GUARDS.fetch_add(1, Ordering::Relaxed) + 1);
            }
            place = place.add(1);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __sanitizer_cov_trace_pc_guard(guard: *mut u32) {
    // SAFETY: the compiler has a guard there.
    count(spread(unsafe { guard.read() }));
}

/// The caller is at an address, which is the same in every run: modules are loaded where they always are.
extern "C" fn at(address: u64) {
    count(spread((address ^ address >> 32) as u32));
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn __sanitizer_cov_trace_pc() {
    core::arch::naked_asm!("mov rdi, [rsp]", "jmp {at}", at = sym at)
}
