//! Branches of targets that were built to say where they are: `-fsanitize-coverage=trace-pc-guard` of clang,
//! `-fsanitize-coverage=trace-pc` of gcc and clang.
//!
//! Compilers put calls of these functions everywhere and leave it to a library to have them. In a repeated
//! target they count transitions between places in the map that is shared with the host, as AFL does; in all
//! other processes they do nothing.
//!
//! # Safety
//!
//! The functions have the contracts of the sanitizer's runtime. The map is as long as a power of two that indices
//! are reduced to, and mapped for good before its address is set.
#![allow(unsafe_code, reason = "counts branches in the shared area")]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use powerfail_protocol::fuzz::{AREA_ADDRESS, BRANCHES_AT, BRANCHES_LEN};

use crate::libc::interpose;
use crate::patching::{code, modules};
use crate::{fuzz, host};

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

/// A repeated target is about to begin.
pub(crate) fn start() {
    MAP.store(AREA_ADDRESS + BRANCHES_AT, Ordering::Relaxed);
    replace_all();
}

/// A program that AFL++ has instrumented counts in a map whose address it keeps in a variable: that is the map
/// of the host from now on, unless something else has given it one, or it needs a longer one. To be called when
/// its constructors have run, and before it does what is repeated.
pub(crate) fn adopt_map() {
    let given = std::env::var_os("__AFL_SHM_ID").is_some();
    let Some(variable) = interpose::look_up(c"__afl_area_ptr").filter(|_| !given) else {
        return;
    };
    let count = interpose::look_up(c"__afl_final_loc").map_or(0, |last| {
        // SAFETY: AFL++ keeps the number of the last place there.
        unsafe { (last as *const u32).read() }
    });
    if (count as usize) < BRANCHES_LEN {
        // SAFETY: AFL++ keeps the address of its map there; ours is long enough.
        unsafe { (variable as *mut u64).write(AREA_ADDRESS + BRANCHES_AT) };
        fuzz::area()
            .guards
            .fetch_max(count.max(1), Ordering::Relaxed);
    } else {
        host::warn(
            "the target has more branches than the coverage map holds; its branches are not counted",
        );
    }
}

/// A program that was linked by clang with the same flag brings functions of its own, which do nothing unless
/// others are defined when it is linked: they lead here. What brings AFL++'s has a map of its own.
fn replace_all() {
    if interpose::look_up(c"__afl_area_ptr").is_some() {
        return;
    }
    let functions = [
        (
            c"__sanitizer_cov_trace_pc_guard_init",
            number_guards as *const () as u64,
        ),
        (
            c"__sanitizer_cov_trace_pc_guard",
            at_guard as *const () as u64,
        ),
        (c"__sanitizer_cov_trace_pc", at_caller as *const () as u64),
    ];
    for (name, ours) in functions {
        if let Some(theirs) =
            interpose::look_up(name).filter(|theirs| !modules::is_this_code(*theirs))
        {
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

/// # Safety
/// The compiler has an array of guards from one to the other.
unsafe extern "C" fn number_guards(start: *mut u32, stop: *mut u32) {
    let mut place = start;
    while place < stop {
        // SAFETY: by the contract of the sanitizer the guards from `start` to `stop` are the module's own words.
        unsafe {
            // Called once for each module that was linked, with the same guards.
            if place.read() == 0 {
                place.write(GUARDS.fetch_add(1, Ordering::Relaxed) + 1);
            }
            place = place.add(1);
        }
    }
}

/// # Safety
/// The compiler has a guard there.
unsafe extern "C" fn at_guard(guard: *mut u32) {
    // SAFETY: by the contract of the sanitizer this is one of the guards that were numbered.
    count(spread(unsafe { guard.read() }));
}

/// The caller is at an address, which is the same in every run: modules are loaded where they always are.
extern "C" fn at(address: u64) {
    count(spread((address ^ address >> 32) as u32));
}

#[unsafe(naked)]
extern "C" fn at_caller() {
    core::arch::naked_asm!("mov rdi, [rsp]", "jmp {at}", at = sym at)
}

/// The names by which compilers know these functions. Another library that has a function of such a name may stand in
/// for it even here, so nothing else uses the names.
macro_rules! known_as {
    ($($name:ident = $function:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                core::arch::naked_asm!("jmp {function}", function = sym $function)
            }
        )*
    };
}

known_as! {
    __sanitizer_cov_trace_pc_guard_init = number_guards;
    __sanitizer_cov_trace_pc_guard = at_guard;
    __sanitizer_cov_trace_pc = at_caller;
}
