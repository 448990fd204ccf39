//! Random bytes: one stream, the same in every run.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions: buffers have the given length and paths end with a zero
//! byte. Callers of `perform` guarantee that the target makes this system call.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::libc::interpose::{original, result};
use crate::platform::number::{GETRANDOM, MEMFD_CREATE, OPEN};
use crate::platform::sys;
use crate::record::{append, pools};

/// How many words of the stream are used.
static USED: AtomicU64 = AtomicU64::new(0);

/// The next word of the stream: a counter whose bits are mixed.
fn next_word() -> u64 {
    const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;
    let count = USED.fetch_add(1, Ordering::Relaxed) + 1;
    let mut word = count.wrapping_mul(INCREMENT);
    word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ word >> 32
}

/// Fills memory of the target, which may be in a pool.
///
/// # Safety
/// The target may write there.
pub(crate) unsafe fn fill(start: usize, len: usize) {
    const PIECE_LEN: usize = 1024;
    let mut at = 0;
    while at < len {
        let count = (len - at).min(PIECE_LEN);
        let mut piece = [0; PIECE_LEN];
        for word in piece[..count].chunks_mut(8) {
            word.copy_from_slice(&next_word().to_le_bytes()[..word.len()]);
        }
        // SAFETY: by the contract `len` bytes are writable at `start`.
        unsafe { copy_to(start + at, &piece[..count]) };
        at += count;
    }
}

/// # Safety
/// As the system call.
pub(super) unsafe fn perform(number: usize, arguments: [usize; 6]) -> Option<isize> {
    let [first, second, ..] = arguments;
    // SAFETY: by the contract these are the arguments of the target's call, a buffer or a path that the kernel would
    // use.
    unsafe {
        match number {
            GETRANDOM => {
                fill(first, second);
                Some(second as isize)
            }
            OPEN => stand_in(first as *const c_char).map(|fd| fd as isize),
            sys::number::OPENAT => stand_in(second as *const c_char).map(|fd| fd as isize),
            _ => None,
        }
    }
}

/// A descriptor that stands in for a file with random bytes, if a path is that of one.
///
/// # Safety
/// The path is a string.
unsafe fn stand_in(path: *const c_char) -> Option<c_int> {
    const DEVICES: [&[u8]; 3] = [b"/dev/urandom", b"/dev/random", b"/dev/hwrng"];
    const IDENTIFIERS: [&[u8]; 2] = [
        b"/proc/sys/kernel/random/uuid",
        b"/proc/sys/kernel/random/boot_id",
    ];
    if !super::is_on() || path.is_null() {
        return None;
    }
    // SAFETY: by the contract the path ends with a zero byte.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if DEVICES.contains(&path) {
        // Enough for every use that is known; what is read beyond it is zero.
        const RANDOM_LEN: usize = 16 * 1024;
        const LEN: usize = 1 << 30;
        let mut bytes = vec![0u8; RANDOM_LEN];
        // SAFETY: the buffer was allocated here with this length.
        unsafe { fill(bytes.as_mut_ptr() as usize, bytes.len()) };
        return Some(file_of(&bytes, LEN));
    }
    if IDENTIFIERS.contains(&path) {
        let mut text = [0; 37];
        identifier_text(&mut text);
        return Some(file_of(&text, text.len()));
    }
    None
}

/// A file in memory that begins with these bytes and has this length; a negative number is an error.
fn file_of(bytes: &[u8], len: usize) -> c_int {
    const CLOEXEC: usize = 1;
    let name = c"random".as_ptr() as usize;
    // SAFETY: name and bytes are there until the calls return.
    unsafe {
        let fd = sys::call(MEMFD_CREATE, [name, CLOEXEC, 0, 0, 0, 0]);
        if fd >= 0 {
            let fd = fd as usize;
            let start = bytes.as_ptr() as usize;
            sys::call(sys::number::FTRUNCATE, [fd, len, 0, 0, 0, 0]);
            sys::call(sys::number::PWRITE64, [fd, start, bytes.len(), 0, 0, 0]);
        }
        fd as c_int
    }
}

/// An identifier of sixteen random bytes, of the kind that says so.
fn identifier() -> [u8; 16] {
    let (first, second) = (next_word().to_le_bytes(), next_word().to_le_bytes());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first);
    bytes[8..].copy_from_slice(&second);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// The same as the kernel writes it.
fn identifier_text(text: &mut [u8; 37]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut at = 0;
    for (index, byte) in identifier().into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text[at] = b'-';
            at += 1;
        }
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 15)];
        at += 2;
    }
    text[at] = b'\n';
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(start: *mut c_void, len: usize, flags: c_uint) -> isize {
    if !super::is_on() {
        type Ask = extern "C" fn(*mut c_void, usize, c_uint) -> isize;
        return original!("getrandom" as Ask)(start, len, flags);
    }
    // SAFETY: by the contract of `getrandom` the target has `len` writable bytes at `start`.
    unsafe { fill(start as usize, len) };
    len as isize
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getentropy(start: *mut c_void, len: usize) -> c_int {
    const EIO: isize = 5;
    const LEN_MAX: usize = 256;
    if !super::is_on() {
        return original!("getentropy" as extern "C" fn(*mut c_void, usize) -> c_int)(start, len);
    }
    if len > LEN_MAX {
        return result(-EIO) as c_int;
    }
    // SAFETY: by the contract of `getentropy` the target has `len` writable bytes at `start`.
    unsafe { fill(start as usize, len) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn arc4random() -> u32 {
    if super::is_on() {
        next_word() as u32
    } else {
        original!("arc4random" as extern "C" fn() -> u32)()
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arc4random_buf(start: *mut c_void, len: usize) {
    if super::is_on() {
        // SAFETY: by the contract of `arc4random_buf` the target has `len` writable bytes at `start`.
        unsafe { fill(start as usize, len) };
    } else {
        original!("arc4random_buf" as extern "C" fn(*mut c_void, usize))(start, len);
    }
}

#[unsafe(no_mangle)]
extern "C" fn arc4random_uniform(bound: u32) -> u32 {
    if super::is_on() {
        (next_word() % u64::from(bound.max(1))) as u32
    } else {
        original!("arc4random_uniform" as extern "C" fn(u32) -> u32)(bound)
    }
}

/// Functions of libuuid that make an identifier.
macro_rules! identifiers {
    ($($name:ident, $original:literal;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(out: *mut u8) -> c_int {
                if !super::is_on() {
                    return original!($original as extern "C" fn(*mut u8) -> c_int)(out);
                }
                let bytes = identifier();
                // SAFETY: the target has room for it, and not in a pool, where it could not write: libuuid
                // would write there, too.
                unsafe { copy_to(out as usize, &bytes) };
                0
            }
        )*
    };
}

identifiers! {
    uuid_generate, "uuid_generate";
    uuid_generate_random, "uuid_generate_random";
    uuid_generate_time, "uuid_generate_time";
    uuid_generate_time_safe, "uuid_generate_time_safe";
}

/// # Safety
/// The target may write there.
unsafe fn copy_to(start: usize, bytes: &[u8]) {
    if pools::is_in_pool(start as u64) {
        append::store_received(start as u64, bytes);
    } else {
        // SAFETY: by the contract as many bytes are writable at `start`.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len()) };
    }
}

/// Functions that open a file. The last argument is only there for some flags, and always in its place.
macro_rules! opens {
    ($($name:ident, $original:literal, ($($before:ident: $kind:ty)?);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                $($before: $kind,)? path: *const c_char, flags: c_int, mode: c_uint
            ) -> c_int {
                type Open = extern "C" fn($($kind,)? *const c_char, c_int, c_uint) -> c_int;
                // SAFETY: by the contract of the C function the path ends with a zero byte.
                if let Some(fd) = unsafe { stand_in(path) } {
                    return result(fd as isize) as c_int;
                }
                original!($original as Open)($($before,)? path, flags, mode)
            }
        )*
    };
}

opens! {
    open, "open", ();
    open64, "open64", ();
    __open_2, "__open_2", ();
    __open64_2, "__open64_2", ();
    openat, "openat", (directory: c_int);
    openat64, "openat64", (directory: c_int);
    __openat_2, "__openat_2", (directory: c_int);
    __openat64_2, "__openat64_2", (directory: c_int);
}

/// `fopen`, which opens files past `open`.
macro_rules! opens_streams {
    ($($name:ident, $original:literal;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut c_void {
                type Make = extern "C" fn(c_int, *const c_char) -> *mut c_void;
                type Open = extern "C" fn(*const c_char, *const c_char) -> *mut c_void;
                // SAFETY: by the contract of the C function the path ends with a zero byte.
                if let Some(fd) = unsafe { stand_in(path) } {
                    return original!("fdopen" as Make)(fd, mode);
                }
                original!($original as Open)(path, mode)
            }
        )*
    };
}

opens_streams! {
    fopen, "fopen";
    fopen64, "fopen64";
}
