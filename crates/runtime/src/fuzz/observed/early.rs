//! Comparisons before the dynamic linker knows those of the C library: byte by byte.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

/// # Safety
/// The byte is there.
unsafe fn byte(start: usize, at: usize) -> u8 {
    // SAFETY: by the contract the byte is readable.
    unsafe { ((start + at) as *const u8).read_volatile() }
}

/// # Safety
/// There are so many bytes, up to a zero if that ends them.
unsafe fn compare(
    first: usize,
    second: usize,
    len: usize,
    is_string: bool,
    change: fn(&u8) -> u8,
) -> usize {
    for at in 0..len {
        // SAFETY: by the contract both are readable up to `len`, of strings up to the zero, where the loop
        // returns.
        let (left, right) = unsafe { (byte(first, at), byte(second, at)) };
        let (left, right) = (change(&left), change(&right));
        if left != right {
            return (i64::from(left) - i64::from(right)) as usize;
        }
        if is_string && left == 0 {
            break;
        }
    }
    0
}

/// # Safety
/// As the function of the C library.
pub(super) unsafe extern "C" fn strcmp(first: usize, second: usize, _: usize, _: usize) -> usize {
    // SAFETY: both are strings, as `compare` requires without a length.
    unsafe { compare(first, second, usize::MAX, true, |byte| *byte) }
}

/// # Safety
/// As the function of the C library.
pub(super) unsafe extern "C" fn strncmp(
    first: usize,
    second: usize,
    len: usize,
    _: usize,
) -> usize {
    // SAFETY: both are strings or have `len` bytes, as `compare` requires.
    unsafe { compare(first, second, len, true, |byte| *byte) }
}

/// # Safety
/// As the function of the C library.
pub(super) unsafe extern "C" fn strcasecmp(
    first: usize,
    second: usize,
    _: usize,
    _: usize,
) -> usize {
    // SAFETY: both are strings, as `compare` requires without a length.
    unsafe { compare(first, second, usize::MAX, true, u8::to_ascii_lowercase) }
}

/// # Safety
/// As the function of the C library.
pub(super) unsafe extern "C" fn strncasecmp(
    first: usize,
    second: usize,
    len: usize,
    _: usize,
) -> usize {
    // SAFETY: both are strings or have `len` bytes, as `compare` requires.
    unsafe { compare(first, second, len, true, u8::to_ascii_lowercase) }
}

/// # Safety
/// As the function of the C library.
pub(super) unsafe extern "C" fn memcmp(first: usize, second: usize, len: usize, _: usize) -> usize {
    // SAFETY: both have `len` bytes, as `compare` requires.
    unsafe { compare(first, second, len, false, |byte| *byte) }
}

/// # Safety
/// A string.
unsafe fn length(start: usize) -> usize {
    let mut len = 0;
    // SAFETY: by the contract it is a string, and the loop stops at its zero.
    while unsafe { byte(start, len) } != 0 {
        len += 1;
    }
    len
}

/// # Safety
/// As the function of the C library.
pub(super) unsafe extern "C" fn strstr(text: usize, sought: usize, _: usize, _: usize) -> usize {
    // SAFETY: by the contract both are strings, so their lengths are how much is readable.
    unsafe { memmem(text, length(text), sought, length(sought)) }
}

/// # Safety
/// As the function of the C library.
pub(super) unsafe extern "C" fn memmem(
    text: usize,
    len: usize,
    sought: usize,
    sought_len: usize,
) -> usize {
    if sought_len > len {
        return 0;
    }
    // SAFETY: `at + sought_len` is at most `len`, so all that is compared is readable.
    let is_there = |at: &usize| unsafe { memcmp(text + at, sought, sought_len, 0) } == 0;
    (0..=len - sought_len)
        .find(is_there)
        .map_or(0, |at| text + at)
}

/// # Safety
/// As the function of the C library.
pub(super) unsafe extern "C" fn strchr(text: usize, sought: usize, _: usize, _: usize) -> usize {
    let mut at = 0;
    loop {
        // SAFETY: by the contract it is a string, and the loop ends at its zero.
        let read = unsafe { byte(text, at) };
        if read == sought as u8 {
            return text + at;
        }
        if read == 0 {
            return 0;
        }
        at += 1;
    }
}

/// # Safety
/// As the function of the C library.
pub(super) unsafe extern "C" fn memchr(text: usize, sought: usize, len: usize, _: usize) -> usize {
    // SAFETY: by the contract the bytes up to the one that is sought, or up to `len`, are readable.
    let is_there = |at: &usize| unsafe { byte(text, *at) } == sought as u8;
    (0..len).find(is_there).map_or(0, |at| text + at)
}
