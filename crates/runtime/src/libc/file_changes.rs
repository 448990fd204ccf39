//! Functions that change, truncate, allocate or sync a file.
//!
//! Functions that transfer bytes are not here: their system calls have breakpoints (`system_calls.rs`).
//!
//! # Safety
//!
//! The functions have the contracts of the C functions, and pass on what they got. A path ends with a zero byte.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{CStr, c_char, c_int, c_long};

use crate::platform::{number, sys};
use crate::record::files::calls;
use crate::record::{pool_files, pools, schedule};
use crate::{fuzz, host};

use super::interpose::{explored, original, result};
use super::raw_calls;

/// `fsync` or `fdatasync` of a pool that others may store to. The functions of the C library can end the thread, if it is
/// canceled, and it holds locks here.
fn sync_shared(number: usize, arguments: [usize; 6]) -> c_int {
    // SAFETY: these calls take no pointers and change no memory.
    let call = || unsafe { sys::call(number, arguments) };
    result(pool_files::sync_file(arguments[0] as i32, call, || {})) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    let arguments = [fd as usize, 0, 0, 0, 0, 0];
    if let Some(done) = explored(number::FSYNC, arguments) {
        return result(done) as c_int;
    }
    if let Some(done) = changed(number::FSYNC, arguments) {
        return result(done) as c_int;
    }
    schedule::step();
    if pool_files::is_shared(fd) {
        return sync_shared(number::FSYNC, arguments);
    }
    let done = original!("fsync" as extern "C" fn(c_int) -> c_int)(fd);
    if done == 0 {
        pools::file_synced(fd);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    let arguments = [fd as usize, 0, 0, 0, 0, 0];
    if let Some(done) = explored(number::FDATASYNC, arguments) {
        return result(done) as c_int;
    }
    if let Some(done) = changed(number::FDATASYNC, arguments) {
        return result(done) as c_int;
    }
    schedule::step();
    if pool_files::is_shared(fd) {
        return sync_shared(number::FDATASYNC, arguments);
    }
    let done = original!("fdatasync" as extern "C" fn(c_int) -> c_int)(fd);
    if done == 0 {
        pools::file_synced(fd);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(fd: c_int, len: c_long) -> c_int {
    let arguments = [fd as usize, len as usize, 0, 0, 0, 0];
    if let Some(done) = explored(number::FTRUNCATE, arguments) {
        return result(done) as c_int;
    }
    if let Some(done) = changed(number::FTRUNCATE, arguments) {
        return result(done) as c_int;
    }
    schedule::step();
    fuzz::before_change(fd);
    let done = original!("ftruncate" as extern "C" fn(c_int, c_long) -> c_int)(fd, len);
    if done == 0 {
        pools::resized(fd, len as u64);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate64(fd: c_int, len: c_long) -> c_int {
    ftruncate(fd, len)
}

#[unsafe(no_mangle)]
extern "C" fn truncate(path: *const c_char, len: c_long) -> c_int {
    result(raw_truncate([path as usize, len as usize, 0, 0, 0, 0])) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn truncate64(path: *const c_char, len: c_long) -> c_int {
    truncate(path, len)
}

/// `truncate`, with the arguments and the result of the system call.
pub(crate) fn raw_truncate(arguments: [usize; 6]) -> isize {
    const O_PATH: usize = 0o10_000_000;
    if let Some(done) = explored(number::TRUNCATE, arguments) {
        return done;
    }
    if let Some(done) = changed(number::TRUNCATE, arguments) {
        return done;
    }
    let path = arguments[0] as *const c_char;
    // SAFETY: by the contract of `truncate`, and the kernel reads the path itself.
    let call = || unsafe { sys::call(number::TRUNCATE, arguments) };
    if path.is_null() || !host::attached() {
        return call();
    }
    schedule::step();
    // SAFETY: the path of the target ends with a zero byte.
    let path = unsafe { CStr::from_ptr(path) };
    // A descriptor of this kind can be closed without giving up the locks that the target has on the file. The host
    // opens the file again by it.
    let fd = sys::open(path, O_PATH, 0);
    if fd < 0 {
        return call();
    }
    fuzz::before_change(fd);
    let done = call();
    if done == 0 {
        pools::resized(fd, arguments[1] as u64);
    }
    sys::close(fd);
    done
}

/// Makes a system call that changes a file of a tree; `None` if it does not.
fn changed(number: usize, arguments: [usize; 6]) -> Option<isize> {
    // SAFETY: the target calls the function of the C library that makes this system call.
    unsafe { calls::perform(number, arguments) }
}

/// After something that may have made a pool's file longer.
fn maybe_longer(fd: c_int) {
    if pools::is_pool(fd)
        && let Some(status) = sys::fstat(fd)
    {
        pools::resized(fd, status.len_bytes);
    }
}

#[unsafe(no_mangle)]
extern "C" fn posix_fallocate(fd: c_int, offset: c_long, len: c_long) -> c_int {
    let arguments = [fd as usize, 0, offset as usize, len as usize, 0, 0];
    if let Some(done) = explored(number::FALLOCATE, arguments) {
        return -done as c_int;
    }
    if let Some(done) = changed(number::FALLOCATE, arguments) {
        return -done as c_int;
    }
    schedule::step();
    fuzz::before_change(fd);
    let done = original!("posix_fallocate" as extern "C" fn(c_int, c_long, c_long) -> c_int)(
        fd, offset, len,
    );
    if done == 0 {
        maybe_longer(fd);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn posix_fallocate64(fd: c_int, offset: c_long, len: c_long) -> c_int {
    posix_fallocate(fd, offset, len)
}

#[unsafe(no_mangle)]
extern "C" fn fallocate(fd: c_int, mode: c_int, offset: c_long, len: c_long) -> c_int {
    let arguments = [
        fd as usize,
        mode as usize,
        offset as usize,
        len as usize,
        0,
        0,
    ];
    if let Some(done) = explored(number::FALLOCATE, arguments) {
        return result(done) as c_int;
    }
    if let Some(done) = changed(number::FALLOCATE, arguments) {
        return result(done) as c_int;
    }
    if pools::is_pool(fd) {
        schedule::step();
        return result(pool_files::allocate(fd, mode, offset as u64, len as u64)) as c_int;
    }
    fuzz::before_change(fd);
    original!("fallocate" as extern "C" fn(c_int, c_int, c_long, c_long) -> c_int)(
        fd, mode, offset, len,
    )
}

#[unsafe(no_mangle)]
extern "C" fn fallocate64(fd: c_int, mode: c_int, offset: c_long, len: c_long) -> c_int {
    fallocate(fd, mode, offset, len)
}

/// A function that only explore mode is interested in: passes on, or does what that wants.
macro_rules! pass_on {
    ($name:ident, $original:literal, $number:expr, ($($argument:ident: $kind:ty),*) -> $result:ty) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> $result {
            let mut arguments = [0; 6];
            for (place, argument) in arguments.iter_mut().zip([$($argument as usize),*]) {
                *place = argument;
            }
            match explored($number, arguments).or_else(|| changed($number, arguments)) {
                Some(done) => result(done) as $result,
                None => original!($original as extern "C" fn($($kind),*) -> $result)($($argument),*),
            }
        }
    };
}

pass_on!(flock, "flock", number::FLOCK, (fd: c_int, how: c_int) -> c_int);
// Takes one argument more at most, which is in the same place whatever it is.
pass_on!(fcntl, "fcntl", number::FCNTL, (fd: c_int, command: c_int, argument: usize) -> c_int);
pass_on!(fcntl64, "fcntl64", number::FCNTL, (fd: c_int, command: c_int, argument: usize) -> c_int);
pass_on!(madvise, "madvise", number::MADVISE, (address: usize, len: usize, advice: c_int) -> c_int);
pass_on!(mlock, "mlock", number::MLOCK, (address: usize, len: usize) -> c_int);

/// A function with which the kernel writes to a file or to memory. If that is a pool, the target ends.
macro_rules! refuse_on_pools {
    ($name:ident, $original:literal, $number:expr, ($($argument:ident: $kind:ty),*)) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> isize {
            let mut arguments = [0; 6];
            for (place, argument) in arguments.iter_mut().zip([$($argument as usize),*]) {
                *place = argument;
            }
            if let Some(done) = explored($number, arguments) {
                return result(done);
            }
            if let Some(done) = changed($number, arguments) {
                return result(done);
            }
            raw_calls::refuse_unseen($number, arguments);
            original!($original as extern "C" fn($($kind),*) -> isize)($($argument),*)
        }
    };
}

refuse_on_pools!(sendfile, "sendfile", number::SENDFILE, (to: c_int, from: c_int, at: usize, len: usize));
refuse_on_pools!(sendfile64, "sendfile64", number::SENDFILE, (to: c_int, from: c_int, at: usize, len: usize));
refuse_on_pools!(copy_file_range, "copy_file_range", number::COPY_FILE_RANGE,
    (from: c_int, at: usize, to: c_int, to_at: usize, len: usize, flags: u32));
refuse_on_pools!(splice, "splice", number::SPLICE,
    (from: c_int, at: usize, to: c_int, to_at: usize, len: usize, flags: u32));
refuse_on_pools!(process_vm_writev, "process_vm_writev", number::PROCESS_VM_WRITEV,
    (process: c_int, from: usize, from_count: usize, to: usize, to_count: usize, flags: usize));
refuse_on_pools!(process_vm_readv, "process_vm_readv", number::PROCESS_VM_READV,
    (process: c_int, to: usize, to_count: usize, from: usize, from_count: usize, flags: usize));
