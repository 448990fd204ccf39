//! The functions of the C library that allocate and free.
//!
//! Where this process has no heap, each of them is one jump to the original. Where it has one, memory that the
//! target asks for comes from the heap; what is freed or resized goes where it came from.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions; what the target frees or resizes is memory that one of them
//! gave it.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::allocation::{Content, DECIDED, ON, allocate, deallocate, holds, serves};
use super::space;
use crate::libc::interpose::{self, original};
use crate::platform::sys;

const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;
/// What is asked of every object.
const ALIGNMENT: u64 = 16;
const PAGE: u64 = 4096;

/// Functions that stand in for others: where to go is found out once. `$instead` is gone to if there is a
/// heap, with the stack as the caller left it; `$otherwise` if there is no original.
macro_rules! stands_in {
    ($($name:ident => $instead:path, $otherwise:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(non_snake_case, reason = "names of C++")]
            extern "C" fn $name() {
                core::arch::naked_asm!(
                    "mov rax, [rip + {direct}]",
                    "test rax, rax",
                    "jnz 2f",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "call {resolve}",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "2:",
                    "jmp rax",
                    direct = sym $name::DIRECT,
                    resolve = sym $name::resolve,
                )
            }

            #[allow(non_snake_case, reason = "names of C++")]
            mod $name {
                use super::*;

                /// Where to go at once; zero if that is not known yet.
                pub(super) static DIRECT: AtomicUsize = AtomicUsize::new(0);

                pub(super) extern "C" fn resolve() -> usize {
                    let instead = $instead as *const () as usize;
                    let name = concat!(stringify!($name), "\0");
                    crate::record::heap::functions::resolve(name, &DIRECT, instead, $otherwise)
                }
            }
        )*
    };
}
pub(super) use stands_in;

/// Where a call goes.
pub(super) fn resolve(
    name: &'static str,
    direct: &AtomicUsize,
    instead: usize,
    otherwise: Option<usize>,
) -> usize {
    let is_decided = DECIDED.load(Ordering::Acquire);
    // Who looks for a function frees the message of the last search that failed: not while `free` itself is
    // looked for, or that would never end.
    let seeker = (name == "free\0").then(sys::gettid);
    if let Some(thread) = seeker
        && SEEKER.swap(thread, Ordering::Relaxed) == thread
    {
        return leak as *const () as usize;
    }
    let place = if is_decided && ON.load(Ordering::Acquire) {
        instead
    } else {
        let found = match (interpose::maybe_find(name), otherwise) {
            (Some(address), _) => address as usize,
            (None, Some(address)) => address,
            (None, None) => interpose::find(name).address,
        };
        crate::fuzz::instead_of(name, found)
    };
    if seeker.is_some() {
        SEEKER.store(0, Ordering::Relaxed);
    }
    if is_decided {
        direct.store(place, Ordering::Release);
    }
    place
}

/// The thread that looks for `free`.
static SEEKER: AtomicU32 = AtomicU32::new(0);

/// Stands in for `free` for a moment.
extern "C" fn leak(_: *mut c_void) {}

/// Entries that give the caller's return address as a further argument, in this register.
macro_rules! entries {
    ($($entry:ident => $function:ident, $register:literal;)*) => {
        $(
            #[unsafe(naked)]
            extern "C" fn $entry() {
                core::arch::naked_asm!(
                    concat!("mov ", $register, ", [rsp]"),
                    "jmp {function}",
                    function = sym $function,
                )
            }
        )*
    };
}

entries! {
    malloc_entry => heap_malloc, "rsi";
    calloc_entry => heap_calloc, "rdx";
    realloc_entry => heap_realloc, "rdx";
    reallocarray_entry => heap_reallocarray, "rcx";
    posix_memalign_entry => heap_posix_memalign, "rcx";
    aligned_alloc_entry => heap_aligned_alloc, "rdx";
    memalign_entry => heap_memalign, "rdx";
    valloc_entry => heap_valloc, "rsi";
    pvalloc_entry => heap_pvalloc, "rsi";
    strdup_entry => heap_strdup, "rsi";
    strndup_entry => heap_strndup, "rdx";
}

stands_in! {
    malloc => super::malloc_entry, None;
    calloc => super::calloc_entry, None;
    realloc => super::realloc_entry, None;
    reallocarray => super::reallocarray_entry, None;
    free => super::heap_free, None;
    posix_memalign => super::posix_memalign_entry, None;
    aligned_alloc => super::aligned_alloc_entry, None;
    memalign => super::memalign_entry, None;
    valloc => super::valloc_entry, None;
    pvalloc => super::pvalloc_entry, None;
    malloc_usable_size => super::heap_usable_size, None;
    strdup => super::strdup_entry, None;
    strndup => super::strndup_entry, None;
    __strdup => super::strdup_entry, None;
    __strndup => super::strndup_entry, None;
}

/// A pointer, or null and the reason.
fn given(address: *mut c_void) -> *mut c_void {
    if address.is_null() {
        // SAFETY: the C library gives the place of this thread's error number.
        unsafe { *interpose::errno() = ENOMEM };
    }
    address
}

extern "C" fn heap_malloc(len: usize, caller: u64) -> *mut c_void {
    if serves(caller) {
        return given(allocate(len as u64, ALIGNMENT, Content::Any));
    }
    original!("malloc" as extern "C" fn(usize) -> *mut c_void)(len)
}

extern "C" fn heap_calloc(count: usize, len: usize, caller: u64) -> *mut c_void {
    if serves(caller) {
        let Some(len) = count.checked_mul(len) else {
            return given(core::ptr::null_mut());
        };
        return given(allocate(len as u64, ALIGNMENT, Content::Zeros));
    }
    original!("calloc" as extern "C" fn(usize, usize) -> *mut c_void)(count, len)
}

extern "C" fn heap_realloc(object: *mut c_void, len: usize, caller: u64) -> *mut c_void {
    if object.is_null() {
        return heap_malloc(len, caller);
    }
    if !holds(object as u64) {
        type Resize = extern "C" fn(*mut c_void, usize) -> *mut c_void;
        return original!("realloc" as Resize)(object, len);
    }
    if len == 0 {
        deallocate(object as u64);
        return core::ptr::null_mut();
    }
    let before = usable_len(object);
    if space::rounded(len as u64) == before {
        return object;
    }
    let new = allocate(len as u64, ALIGNMENT, Content::Any);
    if !new.is_null() {
        copy(new, object, before.min(len as u64) as usize);
        deallocate(object as u64);
    }
    given(new)
}

extern "C" fn heap_reallocarray(
    object: *mut c_void,
    count: usize,
    len: usize,
    caller: u64,
) -> *mut c_void {
    match count.checked_mul(len) {
        Some(len) => heap_realloc(object, len, caller),
        None => given(core::ptr::null_mut()),
    }
}

extern "C" fn heap_free(object: *mut c_void) {
    if holds(object as u64) {
        deallocate(object as u64);
    } else {
        original!("free" as extern "C" fn(*mut c_void))(object);
    }
}

extern "C" fn heap_posix_memalign(
    object: *mut *mut c_void,
    alignment: usize,
    len: usize,
    caller: u64,
) -> c_int {
    if !serves(caller) {
        type Align = extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
        return original!("posix_memalign" as Align)(object, alignment, len);
    }
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
        return EINVAL;
    }
    let new = allocate(len as u64, alignment as u64, Content::Any);
    if new.is_null() {
        return ENOMEM;
    }
    // SAFETY: the target gives a place for a pointer.
    unsafe { object.write(new) };
    0
}

extern "C" fn heap_aligned_alloc(alignment: usize, len: usize, caller: u64) -> *mut c_void {
    if !serves(caller) {
        type Align = extern "C" fn(usize, usize) -> *mut c_void;
        return original!("aligned_alloc" as Align)(alignment, len);
    }
    given(aligned(alignment as u64, len as u64))
}

extern "C" fn heap_memalign(alignment: usize, len: usize, caller: u64) -> *mut c_void {
    if !serves(caller) {
        type Align = extern "C" fn(usize, usize) -> *mut c_void;
        return original!("memalign" as Align)(alignment, len);
    }
    given(aligned(alignment as u64, len as u64))
}

extern "C" fn heap_valloc(len: usize, caller: u64) -> *mut c_void {
    if !serves(caller) {
        return original!("valloc" as extern "C" fn(usize) -> *mut c_void)(len);
    }
    given(aligned(PAGE, len as u64))
}

extern "C" fn heap_pvalloc(len: usize, caller: u64) -> *mut c_void {
    if !serves(caller) {
        return original!("pvalloc" as extern "C" fn(usize) -> *mut c_void)(len);
    }
    let whole = (len as u64).checked_next_multiple_of(PAGE);
    given(aligned(PAGE, whole.unwrap_or(u64::MAX)))
}

/// As the C library does: an alignment that is not a power of two is rounded up to one.
pub(super) fn aligned(alignment: u64, len: u64) -> *mut c_void {
    let alignment = alignment.checked_next_power_of_two().unwrap_or(u64::MAX);
    allocate(len, alignment.max(ALIGNMENT), Content::Any)
}

extern "C" fn heap_usable_size(object: *mut c_void) -> usize {
    if holds(object as u64) {
        return usable_len(object) as usize;
    }
    original!("malloc_usable_size" as extern "C" fn(*mut c_void) -> usize)(object)
}

fn usable_len(object: *mut c_void) -> u64 {
    space::len_of(object as u64).unwrap_or(0)
}

extern "C" fn heap_strdup(text: *const c_char, caller: u64) -> *mut c_void {
    if !serves(caller) {
        return original!("strdup" as extern "C" fn(*const c_char) -> *mut c_void)(text);
    }
    let len = original!("strlen" as extern "C" fn(*const c_char) -> usize)(text);
    duplicate(text, len)
}

extern "C" fn heap_strndup(text: *const c_char, len: usize, caller: u64) -> *mut c_void {
    type Length = extern "C" fn(*const c_char, usize) -> usize;
    if !serves(caller) {
        type Duplicate = extern "C" fn(*const c_char, usize) -> *mut c_void;
        return original!("strndup" as Duplicate)(text, len);
    }
    duplicate(text, original!("strnlen" as Length)(text, len))
}

fn duplicate(text: *const c_char, len: usize) -> *mut c_void {
    let new = allocate(len as u64 + 1, ALIGNMENT, Content::Any);
    if !new.is_null() {
        copy(new, text.cast(), len);
        clear(new as u64 + len as u64, 1);
    }
    given(new)
}

/// Copies as the target would: by stores that are recorded and have to be flushed.
fn copy(to: *mut c_void, from: *const c_void, len: usize) {
    type Copy = extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
    original!("memmove" as Copy)(to, from, len);
}

/// Stores zeros as the target would.
pub(super) fn clear(address: u64, len: u64) {
    type Set = extern "C" fn(*mut c_void, c_int, usize) -> *mut c_void;
    original!("memset" as Set)(address as *mut c_void, 0, len as usize);
}
