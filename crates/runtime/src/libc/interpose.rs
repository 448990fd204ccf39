//! What functions that stand in for those of the C library have in common: the originals, `errno`, and whether
//! anything watches the target.
//!
//! # Safety
//!
//! Names that are looked up end with a zero byte, and `original!` is used with the signature that the C library's
//! headers give. `errno` is a place of the calling thread.
#![allow(unsafe_code, reason = "looks up and calls functions of the C library")]

use core::ffi::{c_char, c_int, c_void};

use crate::libc::system_calls;
use crate::patching::modules;
use crate::record::files::trees;
use crate::{host, recovery};

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

/// The original of a function.
macro_rules! original {
    ($name:literal as $kind:ty) => {{
        use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
        static ADDRESS: AtomicUsize = AtomicUsize::new(0);
        let mut address = ADDRESS.load(Relaxed);
        if address == 0 {
            let found = $crate::libc::interpose::find(concat!($name, "\0"));
            address = found.address;
            if found.is_lasting {
                ADDRESS.store(address, Relaxed);
                $crate::fuzz::note_function(&ADDRESS, address);
            }
        }
        // SAFETY: the C library has this function with this signature.
        unsafe { core::mem::transmute::<usize, $kind>(address) }
    }};
}
pub(crate) use original;

/// Where a name leads that any module may have.
pub(crate) fn look_up(name: &core::ffi::CStr) -> Option<u64> {
    const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
    if !modules::is_defined(name) {
        return None;
    }
    // SAFETY: the name is a string with an end.
    let address = unsafe { dlsym(RTLD_DEFAULT, name.as_ptr()) } as u64;
    (address != 0).then_some(address)
}

/// A function that we stand in for.
pub(crate) struct Original {
    pub(crate) address: usize,
    /// Whether it stays where it is. A library that was opened for itself may be closed again.
    pub(crate) is_lasting: bool,
}

/// Where the original of a function is that we stand in for; its name ends with a zero byte.
pub(crate) fn find(name: &'static str) -> Original {
    if let Some(address) = find_without_linker(name) {
        return Original {
            address: address as usize,
            is_lasting: true,
        };
    }
    // SAFETY: the name is a string with an end.
    let address = unsafe { dlsym(RTLD_NEXT, name.as_ptr().cast()) } as usize;
    if address != 0 {
        return Original {
            address,
            is_lasting: true,
        };
    }
    // The names of a library that was opened with RTLD_LOCAL, and of those that it needs, are not for everyone.
    let text = core::ffi::CStr::from_bytes_until_nul(name.as_bytes()).unwrap_or_default();
    let Some(address) = modules::find_function(text) else {
        let name = name.trim_end_matches('\0');
        host::fatal(&format!(
            "the target calls {name}, which no other library defines"
        ));
    };
    Original {
        address: address as usize,
        is_lasting: false,
    }
}

/// As `find`, of the function with which the dynamic linker of glibc before 2.34 allocates its answers: to ask it for this
/// one would never end.
fn find_without_linker(name: &'static str) -> Option<u64> {
    (name == "calloc\0")
        .then(|| modules::find_after_this(c"calloc"))
        .flatten()
}

/// As `find`, of a function of the C library.
pub(crate) fn find_address(name: &'static str) -> usize {
    find(name).address
}

/// As `find`, in a version of the C library, if that has it; `version` ends with a zero byte, too.
pub(crate) fn find_version(name: &'static str, version: &'static str) -> usize {
    let (function, version) = (name.as_ptr().cast(), version.as_ptr().cast());
    // SAFETY: name and version are strings with an end.
    match unsafe { dlvsym(RTLD_NEXT, function, version) } as usize {
        0 => find(name).address,
        address => address,
    }
}

/// Where the calling thread's number of the last error is.
pub(crate) fn errno() -> *mut c_int {
    // SAFETY: the C library gives the place.
    unsafe { __errno_location() }
}

/// As `find`, of a function that need not be there.
pub(crate) fn maybe_find(name: &'static str) -> Option<u64> {
    if let Some(address) = find_without_linker(name) {
        return Some(address);
    }
    let text = core::ffi::CStr::from_bytes_until_nul(name.as_bytes()).ok()?;
    if !modules::is_defined(text) {
        return None;
    }
    // SAFETY: the name is a string with an end.
    let address = unsafe { dlsym(RTLD_NEXT, name.as_ptr().cast()) } as u64;
    (address != 0).then_some(address)
}

/// Whether the target is watched: it is recorded, or it is a recovery that is examined.
pub(super) fn is_watched() -> bool {
    host::attached() || recovery::is_active()
}

/// Lets the recovery mode make a system call; `None` if that does not concern it.
pub(super) fn explored(number: usize, arguments: [usize; 6]) -> Option<isize> {
    if recovery::is_active() {
        recovery::perform(number, arguments)
    } else {
        None
    }
}

/// The result of a raw system call, as C functions give it.
pub(crate) fn result(value: isize) -> isize {
    if value >= 0 {
        return value;
    }
    // SAFETY: the C library gives the place of this thread's errno.
    unsafe { *__errno_location() = -value as c_int };
    -1
}

/// Addresses of functions of the C library whose system calls pass through us.
pub(crate) fn system_call_functions() -> Vec<u64> {
    let of_files: &[&str] = if trees::are_on() {
        &system_calls::FILE_FUNCTIONS
    } else {
        &[]
    };
    let all = system_calls::FUNCTIONS.iter().chain(of_files);
    all.filter_map(|name| maybe_find(name)).collect()
}

/// Where a variable of the C library is; null if it has none of that name.
pub(super) fn variable<T>(name: &core::ffi::CStr) -> *mut T {
    // SAFETY: the name ends with a zero byte.
    unsafe { dlsym(RTLD_NEXT, name.as_ptr()) }.cast()
}

/// Where the stack of the main thread ends, as the dynamic linker has found it.
pub(crate) fn main_stack_end() -> u64 {
    let place = variable::<u64>(c"__libc_stack_end");
    // SAFETY: the dynamic linker keeps a word under this name, for good.
    unsafe { place.as_ref() }.copied().unwrap_or(0)
}

/// The C library's own `syscall`.
pub(crate) fn original_syscall() -> usize {
    original!("syscall" as fn()) as usize
}

/// The C library's own `clone`.
pub(crate) fn original_clone() -> usize {
    original!("clone" as fn()) as usize
}
