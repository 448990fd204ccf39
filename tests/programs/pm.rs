//! Shared by the Rust programs with planted bugs: a pool in a mapped file, flushes and fences.
//!
//! Flushes and fences are macros whose debug information collapses to the line that uses them: a finding must
//! point to the program. The instruction is clwb; `--cfg pm_clflushopt` selects clflushopt, for processors without
//! clwb.
#![allow(dead_code, unused_macros)]

use std::ffi::{CString, c_int, c_long, c_void};

unsafe extern "C" {
    fn open(path: *const std::ffi::c_char, flags: c_int, ...) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn lseek(fd: c_int, offset: c_long, whence: c_int) -> c_long;
    fn ftruncate(fd: c_int, len: c_long) -> c_int;
    fn write(fd: c_int, from: *const u8, len: usize) -> isize;
    fn _exit(status: c_int) -> !;
    fn mmap(
        at: *mut c_void,
        len: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: c_long,
    ) -> *mut c_void;
}

/// Writes the line of a location back.
#[cfg(not(pm_clflushopt))]
#[collapse_debuginfo(yes)]
macro_rules! flush {
    ($place:expr) => {
        core::arch::asm!("clwb byte ptr [{}]", in(reg) &raw const $place)
    };
}

/// Writes the line of a location back.
#[cfg(pm_clflushopt)]
#[collapse_debuginfo(yes)]
macro_rules! flush {
    ($place:expr) => {
        core::arch::asm!("clflushopt byte ptr [{}]", in(reg) &raw const $place)
    };
}

/// Waits for the flushes before it.
#[collapse_debuginfo(yes)]
macro_rules! fence {
    () => {
        core::arch::asm!("sfence")
    };
}

/// Makes the line of a location durable.
#[collapse_debuginfo(yes)]
macro_rules! persist {
    ($place:expr) => {
        flush!($place);
        fence!()
    };
}

/// A value that begins a new line.
#[repr(C, align(64))]
pub struct Line<T>(pub T);

/// Maps the pool that the command line names; it is created if it is missing and extended with zeros if it is too
/// short.
pub fn open_pool<T>() -> *mut T {
    let path = std::env::args().nth(1).expect("the path of a pool");
    let path = CString::new(path).expect("no zero in the path");
    let len = size_of::<T>().next_multiple_of(4096);
    let (create_read_write, end, read_write, shared) = (0o102, 2, 3, 1);
    unsafe {
        let fd = open(path.as_ptr(), create_read_write, 0o600);
        assert!(fd >= 0, "the pool cannot be opened");
        if lseek(fd, 0, end) < len as c_long {
            assert_eq!(ftruncate(fd, len as c_long), 0);
        }
        let pool = mmap(std::ptr::null_mut(), len, read_write, shared, fd, 0);
        assert!(pool as isize != -1, "the pool cannot be mapped");
        close(fd);
        pool.cast()
    }
}

/// Whether the program was called as `program POOL MODE`.
pub fn mode(name: &str) -> bool {
    std::env::args().nth(2).is_some_and(|mode| mode == name)
}

/// Tells the user that an operation is complete. `write` may take a lock, and a locked operation is a fence: a flush
/// before it may be complete when the user reads the answer, a store may not.
pub fn acknowledge(number: u64) {
    let text = format!("ok {number}\n");
    let written = unsafe { write(1, text.as_ptr(), text.len()) };
    assert_eq!(written, text.len() as isize);
}

/// Ends the program immediately, without the locks that the C library takes at exit.
pub fn leave() -> ! {
    unsafe { _exit(0) }
}
