//! System calls that change files of trees: each is made, and recorded if it has succeeded.
//!
//! # Safety
//!
//! Callers of `perform` guarantee that the target makes this system call now with these arguments; paths are C strings, as
//! the kernel requires.
#![allow(unsafe_code, reason = "makes system calls of the target")]

use core::ffi::{CStr, c_char};

use powerfail_protocol::file::{FileCode, FileEvent};

use crate::host;
use crate::platform::number::{
    CLOSE, CLOSE_RANGE, COPY_FILE_RANGE, CREAT, DUP, DUP2, DUP3, FALLOCATE, FCNTL, FDATASYNC,
    FSYNC, FTRUNCATE, IO_SUBMIT, IOCTL, LINK, LINKAT, MKDIR, MKDIRAT, MKNOD, MKNODAT, OPEN,
    OPEN_BY_HANDLE_AT, OPENAT, OPENAT2, PIDFD_GETFD, PWRITE64, PWRITEV, PWRITEV2, READLINKAT,
    RENAME, RENAMEAT, RENAMEAT2, RMDIR, SENDFILE, SPLICE, SYMLINK, SYMLINKAT, SYNC, SYNCFS,
    TRUNCATE, UNLINK, UNLINKAT, WRITE, WRITEV,
};
use crate::platform::sys::{self, FileStatus};
use crate::record::files::descriptors::{self, Traits};
use crate::record::files::places::{self, AT_FDCWD, PATH_MAX};
use crate::record::files::{emit, order, trees, writes};
use crate::record::{pool_files, pools, schedule, threads, written_files};

const FILE_TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK_TYPE: u32 = 0o120_000;
const SOCKET_TYPE: u32 = 0o140_000;
const EXDEV: isize = 18;

/// Makes a system call that may change a file of a tree. `None` if it does not: then nothing was done.
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn perform(number: usize, arguments: [usize; 6]) -> Option<isize> {
    if !trees::are_on() || threads::slot().is_none() {
        return None;
    }
    let [first, second, third, fourth, ..] = arguments;
    let (at, other) = (first as i32, third as i32);
    // SAFETY: by the contract the target makes this call with these arguments.
    unsafe {
        match number {
            WRITE | PWRITE64 | WRITEV | PWRITEV | PWRITEV2 => writes::write(number, arguments),
            COPY_FILE_RANGE | SENDFILE | SPLICE => writes::transfer(number, arguments),
            OPEN => open(number, arguments, AT_FDCWD, first, second),
            OPENAT => open(number, arguments, at, second, third),
            CREAT => open(
                number,
                arguments,
                AT_FDCWD,
                first,
                O_CREAT | O_TRUNC | O_WRONLY,
            ),
            OPENAT2 if third != 0 => {
                let flags = (third as *const u64).read() as usize;
                open(number, arguments, at, second, flags)
            }
            DUP | DUP2 | DUP3 | OPEN_BY_HANDLE_AT | PIDFD_GETFD => copy(number, arguments),
            FCNTL => control(arguments),
            CLOSE => {
                descriptors::forget(at);
                None
            }
            CLOSE_RANGE => {
                descriptors::forget_all();
                None
            }
            UNLINK | RMDIR => unlink(number, arguments, AT_FDCWD, first),
            UNLINKAT => unlink(number, arguments, at, second),
            RENAME => rename(number, arguments, [AT_FDCWD; 2], [first, second], 0),
            RENAMEAT => rename(number, arguments, [at, other], [second, fourth], 0),
            RENAMEAT2 => {
                let flags = arguments[4];
                rename(number, arguments, [at, other], [second, fourth], flags)
            }
            LINK => link(number, arguments, [AT_FDCWD; 2], [first, second], 0),
            LINKAT => {
                let flags = arguments[4];
                link(number, arguments, [at, other], [second, fourth], flags)
            }
            SYMLINK => make(number, arguments, AT_FDCWD, second, first),
            SYMLINKAT => make(number, arguments, second as i32, third, first),
            MKDIR | MKNOD => make(number, arguments, AT_FDCWD, first, 0),
            MKDIRAT | MKNODAT => make(number, arguments, at, second, 0),
            TRUNCATE => truncate_path(arguments),
            FTRUNCATE | FALLOCATE => change_length(number, arguments),
            FSYNC | FDATASYNC | SYNC | SYNCFS => sync(number, arguments),
            IOCTL => refuse_clone(at, second),
            IO_SUBMIT => {
                refuse_submission(second, third);
                None
            }
            _ => None,
        }
    }
}

/// The path that the target passes; `None` if the kernel would refuse it at once.
///
/// # Safety
/// The target passes it to the kernel.
unsafe fn path_at<'a>(address: usize) -> Option<&'a CStr> {
    let path = address as *const c_char;
    // SAFETY: the caller passes a C string or a null pointer, which is excluded.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}

/// An operation on a file that is named by its device and inode.
const fn about(code: FileCode, status: &FileStatus, numbers: [u64; 3]) -> FileEvent<'static> {
    FileEvent {
        code,
        device: status.device,
        inode: status.inode,
        numbers,
        bytes: &[],
    }
}

const O_ACCESS: usize = 3;
const O_WRONLY: usize = 1;
const O_CREAT: usize = 0o100;
const O_TRUNC: usize = 0o1000;
const O_PATH: usize = 0o10_000_000;
const O_TMPFILE: usize = 0o20_200_000;

/// Opens a file.
///
/// # Safety
/// As `perform`.
unsafe fn open(
    number: usize,
    arguments: [usize; 6],
    directory: i32,
    path: usize,
    flags: usize,
) -> Option<isize> {
    let is_temporary = flags & O_TMPFILE == O_TMPFILE;
    let writes = flags & O_ACCESS != 0;
    if flags & O_PATH != 0 || !writes && !is_temporary && flags & (O_CREAT | O_TRUNC) == 0 {
        return None;
    }
    // SAFETY: the target passes this path to the kernel.
    let path = unsafe { path_at(path)? };
    // SAFETY: by the contract the target makes this call.
    let make = || unsafe { sys::call(number, arguments) };
    schedule::turn();
    let before = places::status(directory, path, true);
    let is_changed = is_temporary || flags & (O_CREAT | O_TRUNC) != 0;
    // A pipe may wait for another thread when it is opened.
    let is_file = before.is_none_or(|status| descriptors::is_regular(&status));
    if !is_changed || !is_file && !is_temporary {
        let fd = make();
        if fd >= 0 {
            descriptors::forget(fd as i32);
        }
        return Some(fd);
    }
    Some(order::in_order(|| {
        if trees::may_grow()
            && let Some(place) = places::of_entry(directory, path)
        {
            trees::has_changed(place.bytes());
        }
        let before = places::status(directory, path, true);
        let fd = make();
        if fd < 0 {
            return fd;
        }
        let fd = fd as i32;
        descriptors::forget(fd);
        let status = sys::fstat(fd).filter(descriptors::is_regular);
        if let (Some(status), Some(place)) = (status, places::of_descriptor(fd)) {
            let is_in_tree = trees::has(place.bytes());
            descriptors::remember(fd, &status, Traits::new(is_in_tree, flags));
            if is_in_tree && is_temporary {
                emit::append(about(FileCode::Create, &status, [status.mode.into(), 0, 0]));
            } else if is_in_tree && before.is_none() {
                append_create(&status, place.bytes(), &[]);
            } else if is_in_tree
                && before.is_some_and(|before| before.len_bytes > 0)
                && flags & O_TRUNC != 0
            {
                if pools::is_pool(fd) {
                    pools::resized(fd, 0);
                } else {
                    emit::append(about(FileCode::Truncate, &status, [0; 3]));
                }
            }
        }
        fd as isize
    }))
}

/// Appends that a file was made.
fn append_create(status: &FileStatus, path: &[u8], target: &[u8]) {
    let numbers = [status.mode.into(), path.len() as u64, 0];
    let event = FileEvent {
        bytes: path,
        ..about(FileCode::Create, status, numbers)
    };
    emit::append_parts(event, &[target]);
}

/// Appends an operation that a path names.
fn append_path(code: FileCode, status: Option<&FileStatus>, path: &[u8]) {
    let (device, inode) = status.map_or((0, 0), |status| (status.device, status.inode));
    emit::append(FileEvent {
        code,
        device,
        inode,
        numbers: [0; 3],
        bytes: path,
    });
}

/// A call that gives a descriptor another number, or opens it in a way of its own.
///
/// # Safety
/// As `perform`.
unsafe fn copy(number: usize, arguments: [usize; 6]) -> Option<isize> {
    // Descriptors of ours are moved away before, by functions for these calls.
    if matches!(number, DUP2 | DUP3) {
        descriptors::forget(arguments[1] as i32);
        return None;
    }
    // SAFETY: by the contract the target makes this call.
    let fd = unsafe { sys::call(number, arguments) };
    if fd >= 0 {
        descriptors::forget(fd as i32);
    }
    Some(fd)
}

/// `fcntl`.
///
/// # Safety
/// As `perform`.
unsafe fn control(arguments: [usize; 6]) -> Option<isize> {
    const F_DUPFD: usize = 0;
    const F_DUPFD_CLOEXEC: usize = 1030;
    const F_SETFL: usize = 4;
    match arguments[1] & 0xffff_ffff {
        F_SETFL => {
            descriptors::forget(arguments[0] as i32);
            None
        }
        // SAFETY: by the contract the target makes this call.
        F_DUPFD | F_DUPFD_CLOEXEC => unsafe { copy(FCNTL, arguments) },
        _ => None,
    }
}

/// Removes a name.
///
/// # Safety
/// As `perform`.
unsafe fn unlink(
    number: usize,
    arguments: [usize; 6],
    directory: i32,
    path: usize,
) -> Option<isize> {
    // SAFETY: the target passes this path to the kernel.
    let path = unsafe { path_at(path)? };
    schedule::turn();
    Some(order::in_order(|| {
        let place = places::of_entry(directory, path);
        let place = place.filter(|place| trees::has_changed(place.bytes()));
        // SAFETY: by the contract the target makes this call.
        let done = unsafe { sys::call(number, arguments) };
        if done == 0
            && let Some(place) = place
        {
            append_path(FileCode::Unlink, None, place.bytes());
        }
        done
    }))
}

/// Changes a name.
///
/// # Safety
/// As `perform`.
unsafe fn rename(
    number: usize,
    arguments: [usize; 6],
    directories: [i32; 2],
    paths: [usize; 2],
    flags: usize,
) -> Option<isize> {
    const EXCHANGE: usize = 2;
    const WHITEOUT: usize = 4;
    // SAFETY: the target passes these paths to the kernel.
    let (from, to) = unsafe { (path_at(paths[0])?, path_at(paths[1])?) };
    schedule::turn();
    Some(order::in_order(|| {
        let places = [
            places::of_entry(directories[0], from),
            places::of_entry(directories[1], to),
        ];
        let are_in_tree = [0, 1].map(|side: usize| {
            let place = places[side].as_ref();
            place.is_some_and(|place| trees::has_changed(place.bytes()))
        });
        let moved = places::status(directories[0], from, false);
        let replaced = places::status(directories[1], to, false);
        // SAFETY: by the contract the target makes this call.
        let done = unsafe { sys::call(number, arguments) };
        let [Some(old), Some(new)] = &places else {
            return done;
        };
        if done == -EXDEV && are_in_tree[1] {
            append_path(FileCode::CrossedDevices, None, new.bytes());
        }
        if done != 0 {
            return done;
        }
        if are_in_tree == [false; 2] {
            if let Some(moved) = moved {
                written_files::renamed(&moved, new.bytes(), false);
            }
            return done;
        }
        if flags & WHITEOUT != 0 {
            host::fatal("the target renames a file with RENAME_WHITEOUT, which cannot be recorded");
        }
        let (old, new) = (old.bytes(), new.bytes());
        if are_in_tree == [true; 2] {
            let event = FileEvent {
                code: FileCode::Rename,
                device: 0,
                inode: 0,
                numbers: [flags as u64, old.len() as u64, 0],
                bytes: old,
            };
            emit::append_parts(event, &[new]);
            return done;
        }
        let is_directory = moved.is_some_and(|moved| moved.mode & FILE_TYPE == DIRECTORY);
        if is_directory || flags & EXCHANGE != 0 {
            host::fatal(
                "the target moves a directory into or out of a recorded tree, which cannot be recorded; name a directory \
                 with --tree in which both places are",
            );
        }
        if are_in_tree[0] {
            append_path(FileCode::Unlink, None, old);
            if let Some(moved) = moved {
                written_files::renamed(&moved, new, true);
            }
        } else {
            if replaced.is_some() {
                append_path(FileCode::Unlink, None, new);
            }
            adopt(directories[1], to, new);
        }
        done
    }))
}

/// A file that was outside of all trees has a name in one now.
fn adopt(directory: i32, path: &CStr, place: &[u8]) {
    let Some(status) = places::status(directory, path, false) else {
        return;
    };
    if status.mode & FILE_TYPE == SYMLINK_TYPE {
        with_target(directory, path, |target| {
            append_create(&status, place, target);
        });
        return;
    }
    append_create(&status, place, &[]);
    if descriptors::is_regular(&status) && status.len_bytes > 0 {
        places::with_opened_entry(directory, path, |fd| {
            let event = about(FileCode::Write, &status, [0, status.len_bytes, 0]);
            emit::append_content(event, fd, 0, status.len_bytes);
        });
    }
}

/// Reads a symbolic link.
fn with_target(directory: i32, path: &CStr, use_target: impl FnOnce(&[u8])) {
    let mut target = [0u8; PATH_MAX];
    let arguments = [
        directory as usize,
        path.as_ptr() as usize,
        target.as_mut_ptr() as usize,
        target.len(),
        0,
        0,
    ];
    // SAFETY: the kernel writes at most so many bytes to this stack.
    let len = unsafe { sys::call(READLINKAT, arguments) };
    if let Ok(len) = usize::try_from(len) {
        use_target(&target[..len]);
    }
}

/// Gives a file one more name.
///
/// # Safety
/// As `perform`.
unsafe fn link(
    number: usize,
    arguments: [usize; 6],
    directories: [i32; 2],
    paths: [usize; 2],
    flags: usize,
) -> Option<isize> {
    const FOLLOW: usize = 0x400;
    const EMPTY_PATH: usize = 0x1000;
    // SAFETY: the target passes these paths to the kernel.
    let (from, to) = unsafe { (path_at(paths[0])?, path_at(paths[1])?) };
    schedule::turn();
    Some(order::in_order(|| {
        let place = places::of_entry(directories[1], to);
        let place = place.filter(|place| trees::has_changed(place.bytes()));
        // SAFETY: by the contract the target makes this call.
        let done = unsafe { sys::call(number, arguments) };
        let Some(place) = place else {
            return done;
        };
        if done == -EXDEV {
            append_path(FileCode::CrossedDevices, None, place.bytes());
        }
        if done != 0 {
            return done;
        }
        let has = |fd| places::of_descriptor(fd).is_some_and(|path| trees::has(path.bytes()));
        let was_in_tree = if flags & EMPTY_PATH != 0 && from.is_empty() {
            has(directories[0])
        } else if flags & FOLLOW != 0 {
            places::with_opened(directories[0], from, 0, has).unwrap_or(false)
        } else {
            places::with_opened_entry(directories[0], from, has).unwrap_or(false)
        };
        if was_in_tree {
            let status = places::status(directories[1], to, false);
            append_path(FileCode::Link, status.as_ref(), place.bytes());
        } else {
            adopt(directories[1], to, place.bytes());
        }
        done
    }))
}

/// Makes a directory, a symbolic link (with a target) or another file.
///
/// # Safety
/// As `perform`.
unsafe fn make(
    number: usize,
    arguments: [usize; 6],
    directory: i32,
    path: usize,
    target: usize,
) -> Option<isize> {
    // SAFETY: the target passes this path to the kernel.
    let path = unsafe { path_at(path)? };
    schedule::turn();
    Some(order::in_order(|| {
        let place = places::of_entry(directory, path);
        let place = place.filter(|place| trees::has_changed(place.bytes()));
        // SAFETY: by the contract the target makes this call.
        let done = unsafe { sys::call(number, arguments) };
        if done == 0
            && let Some(place) = place
            && let Some(status) = places::status(directory, path, false)
            && status.mode & FILE_TYPE != SOCKET_TYPE
        {
            // SAFETY: by the contract, and the kernel has just read it.
            let target = unsafe { path_at(target) };
            append_create(&status, place.bytes(), target.map_or(&[], CStr::to_bytes));
        }
        done
    }))
}

/// `truncate`.
///
/// # Safety
/// As `perform`.
unsafe fn truncate_path(arguments: [usize; 6]) -> Option<isize> {
    // SAFETY: the target passes this path to the kernel.
    let path = unsafe { path_at(arguments[0])? };
    let status = places::status(AT_FDCWD, path, true).filter(descriptors::is_regular)?;
    let is_in_tree = places::with_opened(AT_FDCWD, path, 0, |fd| {
        !pools::is_pool(fd)
            && places::of_descriptor(fd).is_some_and(|path| trees::has_changed(path.bytes()))
    });
    if is_in_tree != Some(true) {
        return None;
    }
    schedule::turn();
    Some(order::in_order(|| {
        // SAFETY: by the contract the target makes this call.
        let done = unsafe { sys::call(TRUNCATE, arguments) };
        if done == 0 {
            let numbers = [arguments[1] as u64, 0, 0];
            emit::append(about(FileCode::Truncate, &status, numbers));
        }
        done
    }))
}

/// `ftruncate` and `fallocate`.
///
/// # Safety
/// As `perform`.
unsafe fn change_length(number: usize, arguments: [usize; 6]) -> Option<isize> {
    let fd = arguments[0] as i32;
    let status = sys::fstat(fd).filter(descriptors::is_regular)?;
    if !descriptors::look_up(fd, &status).is_in_tree() || pools::is_pool(fd) {
        return None;
    }
    schedule::turn();
    Some(order::in_order(|| {
        // SAFETY: by the contract the target makes this call.
        let done = unsafe { sys::call(number, arguments) };
        if done == 0 {
            let [_, second, third, fourth, ..] = arguments.map(|argument| argument as u64);
            let event = if number == FTRUNCATE {
                about(FileCode::Truncate, &status, [second, 0, 0])
            } else {
                about(FileCode::Allocate, &status, [second, third, fourth])
            };
            emit::append(event);
        }
        done
    }))
}

/// Calls that make files durable.
///
/// # Safety
/// As `perform`.
unsafe fn sync(number: usize, arguments: [usize; 6]) -> Option<isize> {
    let fd = arguments[0] as i32;
    let status = if matches!(number, FSYNC | FDATASYNC) {
        // Asked anew each time: what is remembered is of descriptors for writing.
        let is_in_tree = places::of_descriptor(fd).is_some_and(|path| trees::has(path.bytes()));
        if !is_in_tree {
            return None;
        }
        Some(sys::fstat(fd)?)
    } else {
        None
    };
    schedule::turn();
    Some(order::in_order(|| {
        // SAFETY: by the contract the target makes this call.
        let call = || unsafe { sys::call(number, arguments) };
        let record = || match status {
            Some(status) => {
                let data_only = u64::from(number == FDATASYNC);
                emit::append(about(FileCode::Sync, &status, [data_only, 0, 0]));
            }
            None => append_path(FileCode::SyncAll, None, &[]),
        };
        let done = if status.is_some_and(|status| descriptors::is_regular(&status)) {
            pool_files::sync_file(fd, call, record)
        } else {
            let done = call();
            if done == 0 {
                record();
            }
            done
        };
        if let Some(status) = status.filter(|_| loses_data(done)) {
            emit::append(about(FileCode::FailedSync, &status, [0; 3]));
        }
        done
    }))
}

/// Whether the result of a sync is an error after which data may be lost. Others say that nothing was tried.
const fn loses_data(result: isize) -> bool {
    const EINTR: isize = 4;
    const EBADF: isize = 9;
    const EINVAL: isize = 22;
    const EROFS: isize = 30;
    result < 0 && !matches!(-result, EINTR | EBADF | EINVAL | EROFS)
}

/// `ioctl`: those that let files share their blocks are refused, as file systems without them do. Programs then copy.
fn refuse_clone(fd: i32, request: usize) -> Option<isize> {
    const FICLONE: usize = 0x4004_9409;
    const FICLONERANGE: usize = 0x4020_940d;
    const FIDEDUPERANGE: usize = 0xc018_9436;
    const EOPNOTSUPP: isize = 95;
    if !matches!(
        request & 0xffff_ffff,
        FICLONE | FICLONERANGE | FIDEDUPERANGE
    ) {
        return None;
    }
    let status = sys::fstat(fd).filter(descriptors::is_regular)?;
    let is_in_tree = descriptors::look_up(fd, &status).is_in_tree();
    is_in_tree.then_some(-EOPNOTSUPP)
}

/// Ends the target if it writes to a file of a tree with `io_submit`.
///
/// # Safety
/// The requests are as the kernel takes them.
unsafe fn refuse_submission(count: usize, requests: usize) {
    const PWRITE: u16 = 1;
    const PWRITEV: u16 = 8;
    /// Words of a request: operation in the third, descriptor above it.
    const OPERATION_WORD: usize = 2;
    for place in 0..count {
        // SAFETY: the kernel reads the same requests in this call.
        let word = unsafe {
            (*(requests as *const *const u64).add(place))
                .add(OPERATION_WORD)
                .read()
        };
        let (operation, fd) = (word as u16, (word >> 32) as i32);
        let Some(status) = sys::fstat(fd).filter(descriptors::is_regular) else {
            continue;
        };
        if matches!(operation, PWRITE | PWRITEV) && descriptors::look_up(fd, &status).is_in_tree() {
            host::fatal("the target writes to a file with io_submit, which cannot be recorded");
        }
    }
}
