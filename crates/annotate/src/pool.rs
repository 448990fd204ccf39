//! Persistent memory that is not a mapped file: words of `--heap`, and memory that stands for it.
//!
//! # Safety
//! What is called is called as `powerfail.h` says, and the words that powerfail gives live as long as the process.
#![allow(unsafe_code, reason = "calls functions that powerfail defines")]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;

use crate::weak;

/// How many roots there are.
pub const ROOTS: usize = 1024;

/// With `--heap`: a word of persistent memory that recovery finds again by its number, below [`ROOTS`]; null at
/// first. Without powerfail, an ordinary word.
///
/// # Panics
/// There is no such root.
#[inline]
pub fn root(id: usize) -> &'static AtomicPtr<c_void> {
    static WORDS: [AtomicPtr<c_void>; ROOTS] = [const { AtomicPtr::new(ptr::null_mut()) }; ROOTS];
    let word = &WORDS[id];
    match weak::root_slot() {
        None => word,
        // SAFETY: a function of this type; it gives the address of a word that stays.
        Some(function) => unsafe {
            let slot: *mut AtomicPtr<c_void> = function(id as u64).cast();
            slot.as_ref().unwrap_or(word)
        },
    }
}

/// What came of [`register_pool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Registered {
    /// The program does not run under powerfail.
    Unrecorded,
    /// The memory is a pool now.
    Pool,
    /// That was not possible.
    Failed,
}

/// Memory that stands for persistent memory and is not a mapped file: from here on it is a pool with this name. Its
/// address and length are multiples of 4096. In recovery the same call brings back what a crash has left, at the
/// same address.
///
/// # Safety
/// The memory is mapped and the caller's, and nothing in it is borrowed: its content may change.
#[inline]
pub unsafe fn register_pool(address: *mut c_void, len_bytes: usize, name: &CStr) -> Registered {
    let Some(function) = weak::register_range() else {
        return Registered::Unrecorded;
    };
    // SAFETY: a function of this type; the memory is the caller's business.
    let done: c_int = unsafe { function(address, len_bytes, name.as_ptr()) };
    match done {
        0 => Registered::Unrecorded,
        1 => Registered::Pool,
        _ => Registered::Failed,
    }
}
