//! Files that the runtime itself maps into a recovery: what it does with them counts as what the recovery
//! does. In other processes the calls go to the kernel.
//!
//! # Safety
//!
//! Callers pass arguments that are valid for the kernel: a path that ends with a zero byte, or a range that nothing
//! else uses.
#![allow(unsafe_code, reason = "makes system calls of the runtime")]

use core::ffi::CStr;

use crate::platform::sys;

use super::pool_calls;

/// Opens a file for reading and writing; a negative number is an error. If it is a pool, the snapshot is
/// before that.
pub(crate) fn open_file(path: &CStr) -> i32 {
    const AT_FDCWD: usize = -100isize as usize;
    const O_CLOEXEC: usize = 0o2_000_000;
    let flags = sys::O_RDWR | O_CLOEXEC;
    let arguments = [AT_FDCWD, path.as_ptr() as usize, flags, 0, 0, 0];
    call(sys::number::OPENAT, arguments) as i32
}

/// Maps the beginning of a file at an address; the address, or a negative error number.
pub(crate) fn map_file(address: u64, len: u64, fixed: usize, fd: i32) -> isize {
    let arguments = [
        address as usize,
        len as usize,
        sys::PROT_READ | sys::PROT_WRITE,
        sys::MAP_SHARED | fixed,
        fd as usize,
        0,
    ];
    call(sys::number::MMAP, arguments)
}

/// What the runtime has stored is durable.
pub(crate) fn synced(address: u64, len: u64) {
    if super::is_active() && super::is_lazy() {
        pool_calls::note_sync(address, len);
    }
}

fn call(number: usize, arguments: [usize; 6]) -> isize {
    let done = if super::is_active() {
        pool_calls::perform(number, arguments)
    } else {
        None
    };
    // SAFETY: a file is opened, or mapped over memory that is no longer needed.
    done.unwrap_or_else(|| unsafe { sys::call(number, arguments) })
}
