//! `mmap`, `munmap`, `mremap`, `mprotect` and `msync`.
//!
//! Each asks the recovery mode first, and then the pools of a recording; what concerns neither goes to the kernel.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions. A range is passed to the kernel unchanged only if it
//! concerns no pool.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use powerfail_protocol::mark;

use crate::platform::sys;
use crate::record::pools::Request;
use crate::record::window::window;
use crate::record::{
    annotations, generated_code, pool_files, pools, registered_ranges, remap, schedule,
};
use crate::{fuzz, host};

use super::interpose::{explored, result};

#[unsafe(no_mangle)]
extern "C" fn mmap(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    let request = registered_ranges::placed(Request {
        address: address as u64,
        len: len as u64,
        protection: protection as usize,
        flags: flags as usize,
        fd,
        offset: offset as u64,
    });
    let arguments = [
        request.address as usize,
        len,
        protection as usize,
        request.flags,
        fd as usize,
        offset as usize,
    ];
    if let Some(done) = explored(sys::number::MMAP, arguments) {
        return result(done) as *mut c_void;
    }
    fuzz::before_use(request.flags, fd);
    result(pools::map(request)) as *mut c_void
}

#[unsafe(no_mangle)]
extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    mmap(address, len, protection, flags, fd, offset)
}

#[unsafe(no_mangle)]
extern "C" fn munmap(address: *mut c_void, len: usize) -> c_int {
    result(raw_munmap([address as usize, len, 0, 0, 0, 0])) as c_int
}

/// `munmap`, with the arguments and the result of the system call.
pub(crate) fn raw_munmap(arguments: [usize; 6]) -> isize {
    if let Some(done) = explored(sys::number::MUNMAP, arguments) {
        return done;
    }
    pools::unmap(arguments[0] as u64, arguments[1] as u64).unwrap_or_else(|| {
        generated_code::changes(arguments[0] as u64, arguments[1] as u64);
        // SAFETY: the range belongs to no pool, and the target gives it up by its own call.
        unsafe { sys::call(sys::number::MUNMAP, arguments) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn mremap(
    address: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    let arguments = [
        address as usize,
        old_len,
        new_len,
        flags as usize,
        new_address as usize,
        0,
    ];
    if let Some(done) = explored(sys::number::MREMAP, arguments) {
        return result(done) as *mut c_void;
    }
    let request = remap::Request {
        address: address as u64,
        old_len: old_len as u64,
        new_len: new_len as u64,
        flags: flags as usize,
        new_address: new_address as u64,
    };
    result(remap::remap(request)) as *mut c_void
}

#[unsafe(no_mangle)]
extern "C" fn mprotect(address: *mut c_void, len: usize, protection: c_int) -> c_int {
    let arguments = [address as usize, len, protection as usize, 0, 0, 0];
    result(raw_mprotect(arguments)) as c_int
}

/// `mprotect`, with the arguments and the result of the system call.
pub(crate) fn raw_mprotect(arguments: [usize; 6]) -> isize {
    if let Some(done) = explored(sys::number::MPROTECT, arguments) {
        return done;
    }
    let (address, len) = (arguments[0] as u64, arguments[1] as u64);
    if host::attached() && window().contains(address) {
        return remap::protect(address, len, arguments[2]);
    }
    generated_code::changes(address, len);
    // SAFETY: the range belongs to no pool, and its rights are the target's to change.
    let done = unsafe { sys::call(sys::number::MPROTECT, arguments) };
    if done == 0 {
        generated_code::changed(address, len, arguments[2]);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn msync(address: *mut c_void, len: usize, flags: c_int) -> c_int {
    let arguments = [address as usize, len, flags as usize, 0, 0, 0];
    result(raw_msync(arguments)) as c_int
}

/// `msync`, with the arguments and the result of the system call.
pub(crate) fn raw_msync(arguments: [usize; 6]) -> isize {
    const MS_SYNC: usize = 4;
    const PAGE_LEN: u64 = 4096;
    if let Some(done) = explored(sys::number::MSYNC, arguments) {
        return done;
    }
    schedule::step();
    // SAFETY: `msync` changes no memory.
    let call = || unsafe { sys::call(sys::number::MSYNC, arguments) };
    let (address, len) = (arguments[0] as u64, arguments[1] as u64);
    if !host::attached() || !window().contains(address) {
        return call();
    }
    // Without that flag the kernel writes nothing back, whatever the others are. And with it, whole pages.
    if arguments[2] & MS_SYNC != 0 {
        let len = len.checked_next_multiple_of(PAGE_LEN).unwrap_or(len);
        return pool_files::sync_range(address, len, call);
    }
    let done = call();
    if done == 0 && pools::is_in_pool(address) {
        static SAID: AtomicBool = AtomicBool::new(false);
        annotations::about(mark::ASYNCHRONOUS_SYNC, arguments[0], arguments[1]);
        if !SAID.swap(true, Ordering::Relaxed) {
            host::warn(
                "the target calls msync without MS_SYNC (MS_ASYNC), which makes nothing durable",
            );
        }
    }
    done
}
