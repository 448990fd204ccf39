//! System calls of a program that change files of trees.
//!
//! The kernel makes each call between two callbacks: what has to be known before is kept with the thread, and an operation is
//! appended if the call has succeeded. In between, the thread has the lock under which all processes make their operations.
//!
//! # Safety
//!
//! Descriptors of the target are those of this process. Paths are copies.
#![allow(
    unsafe_code,
    reason = "asks the kernel about paths and descriptors of the target"
)]

mod paths;
mod trees;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use powerfail_protocol::EventKind;
use powerfail_protocol::file::{FileCode, FileEvent, PIECE_MAX, WRITE_DATA_SYNC, WRITE_SYNC};

use crate::pools::FileIdentity;
use crate::program::Thread;
use crate::system_calls::{self, Call};
use crate::{host, memory, pools};
use paths::{
    entry_at, identity, is_regular, len_of, opened_at, path_of, position, status_at, status_of,
    status_of_path,
};
use trees::{has, has_changed, lock, may_grow, unlock};

/// A call that is being made, as far as it was known before.
#[derive(Debug)]
pub(crate) enum Pending {
    Open {
        flags: u64,
        /// The length of the file, if there was one.
        before: Option<u64>,
    },
    Unlink {
        place: Vec<u8>,
    },
    Rename {
        flags: u64,
        from: Vec<u8>,
        to: Vec<u8>,
        are_in_tree: [bool; 2],
        moves_directory: bool,
        replaces: bool,
    },
    Link {
        place: Vec<u8>,
        was_in_tree: bool,
    },
    Make {
        place: Vec<u8>,
        target: Vec<u8>,
    },
    /// A call that changes the length of a file, and what is appended.
    Length {
        file: FileIdentity,
        code: FileCode,
        numbers: [u64; 3],
    },
    Write(Write),
    Transfer {
        file: FileIdentity,
        to: RawFd,
        offset: u64,
        sync: u64,
    },
    Sync {
        /// `None`: all files.
        file: Option<FileIdentity>,
        data_only: bool,
    },
}

/// A write to a file of a tree.
#[derive(Debug)]
pub(crate) struct Write {
    descriptor: RawFd,
    file: FileIdentity,
    /// `None`: where the descriptor is.
    offset: Option<u64>,
    appends: bool,
    sync: u64,
    parts: Vec<(u64, u64)>,
}

/// Whether calls that change files are recorded.
fn are_recorded() -> bool {
    host::trees().is_on.load(Ordering::Acquire) != 0
}

/// Before a call. If it may change a file of a tree, the lock is taken, and the thread keeps the turn.
pub(crate) fn before(thread: &mut Thread, call: Call) -> bool {
    if !are_recorded() || !concerns_files(call.number) {
        return false;
    }
    wait_for_source(thread, call);
    lock(thread);
    thread.file_call = look(thread, call);
    if thread.file_call.is_none() {
        unlock();
    }
    thread.file_call.is_some()
}

/// After a call. Says whether all of it is recorded.
pub(crate) fn after(thread: &mut Thread, call: Call, result: i64) -> bool {
    const FICLONE: u64 = 0x4004_9409;
    const FICLONERANGE: u64 = 0x4020_940d;
    const FIDEDUPERANGE: u64 = 0xc018_9436;
    if call.number == libc::SYS_ioctl
        && result == 0
        && matches!(
            call.arguments[1] & 0xffff_ffff,
            FICLONE | FICLONERANGE | FIDEDUPERANGE
        )
        && are_recorded()
        && tree_file(thread, call.arguments[0]).is_some()
    {
        host::fatal(
            "the target lets files share their blocks, which cannot be recorded under QEMU",
        );
    }
    let Some(pending) = thread.file_call.take() else {
        return false;
    };
    let is_sync = matches!(pending, Pending::Sync { .. });
    append(thread, call, pending, result);
    unlock();
    // Pools have events of their own.
    !is_sync
}

const fn concerns_files(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_copy_file_range
            | libc::SYS_sendfile
            | libc::SYS_splice
            | libc::SYS_open
            | libc::SYS_openat
            | libc::SYS_openat2
            | libc::SYS_creat
            | libc::SYS_unlink
            | libc::SYS_unlinkat
            | libc::SYS_rmdir
            | libc::SYS_rename
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_link
            | libc::SYS_linkat
            | libc::SYS_symlink
            | libc::SYS_symlinkat
            | libc::SYS_mkdir
            | libc::SYS_mkdirat
            | libc::SYS_mknod
            | libc::SYS_mknodat
            | libc::SYS_truncate
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_sync
            | libc::SYS_syncfs
    )
}

/// What a call is about to do to a tree; `None` if nothing.
fn look(thread: &Thread, call: Call) -> Option<Pending> {
    let [first, second, third, fourth, fifth, sixth] = call.arguments;
    let here = libc::AT_FDCWD;
    match call.number {
        libc::SYS_write => write(thread, first, None, 0, vec![(second, third)]),
        libc::SYS_pwrite64 => write(thread, first, Some(fourth), 0, vec![(second, third)]),
        libc::SYS_writev => write(thread, first, None, 0, memory::ranges(second, third)),
        libc::SYS_pwritev => write(
            thread,
            first,
            Some(fourth),
            0,
            memory::ranges(second, third),
        ),
        libc::SYS_pwritev2 => write(
            thread,
            first,
            Some(fourth).filter(|it| *it != u64::MAX),
            sixth,
            memory::ranges(second, third),
        ),
        libc::SYS_copy_file_range | libc::SYS_splice => transfer(thread, third, fourth),
        libc::SYS_sendfile => transfer(thread, first, 0),
        libc::SYS_open => open(thread, here, first, second),
        libc::SYS_openat => open(thread, number(first), second, third),
        libc::SYS_openat2 => open(thread, number(first), second, memory::number(third, 8)?),
        libc::SYS_creat => {
            let flags = libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY;
            open(thread, here, first, u64::from(flags.cast_unsigned()))
        }
        libc::SYS_unlink | libc::SYS_rmdir => unlink(thread, here, first),
        libc::SYS_unlinkat => unlink(thread, number(first), second),
        libc::SYS_rename => rename(thread, [here; 2], [first, second], 0),
        libc::SYS_renameat => rename(thread, [number(first), number(third)], [second, fourth], 0),
        libc::SYS_renameat2 => rename(
            thread,
            [number(first), number(third)],
            [second, fourth],
            fifth,
        ),
        libc::SYS_link => link(thread, [here; 2], [first, second], 0),
        libc::SYS_linkat => link(
            thread,
            [number(first), number(third)],
            [second, fourth],
            fifth,
        ),
        libc::SYS_symlink => make(thread, here, second, memory::text(first)),
        libc::SYS_symlinkat => make(thread, number(second), third, memory::text(first)),
        libc::SYS_mkdir | libc::SYS_mknod => make(thread, here, first, Vec::new()),
        libc::SYS_mkdirat | libc::SYS_mknodat => make(thread, number(first), second, Vec::new()),
        libc::SYS_truncate => truncate(thread, first, second),
        libc::SYS_ftruncate => {
            let file = tree_file(thread, first)?.file;
            Some(length(file, FileCode::Truncate, [second, 0, 0]))
        }
        libc::SYS_fallocate => {
            let file = tree_file(thread, first)?.file;
            Some(length(file, FileCode::Allocate, [second, third, fourth]))
        }
        libc::SYS_fsync | libc::SYS_fdatasync => {
            let path = path_of(number(first))?;
            let status = status_of(number(first))?;
            has(&path).then(|| Pending::Sync {
                file: Some(identity(&status)),
                data_only: call.number == libc::SYS_fdatasync,
            })
        }
        libc::SYS_sync | libc::SYS_syncfs => Some(Pending::Sync {
            file: None,
            data_only: false,
        }),
        _ => None,
    }
}

/// A descriptor, as the kernel takes it.
fn number(argument: u64) -> RawFd {
    (argument as u32).cast_signed()
}

/// A path that the target passes.
fn path_at(address: u64) -> Option<CString> {
    CString::new(memory::text(address)).ok()
}

fn write(
    thread: &Thread,
    descriptor: u64,
    offset: Option<u64>,
    flags: u64,
    parts: Vec<(u64, u64)>,
) -> Option<Pending> {
    const DATA_SYNC: u64 = libc::RWF_DSYNC as u64;
    const SYNC: u64 = libc::RWF_SYNC as u64;
    const APPEND: u64 = libc::RWF_APPEND as u64;
    const NO_APPEND: u64 = 0x20;
    let opened = tree_file(thread, descriptor)?;
    let sync = if flags & SYNC != 0 {
        WRITE_SYNC
    } else if flags & DATA_SYNC != 0 && opened.sync == 0 {
        WRITE_DATA_SYNC
    } else {
        opened.sync
    };
    Some(Pending::Write(Write {
        descriptor: number(descriptor),
        file: opened.file,
        offset,
        appends: opened.appends && flags & NO_APPEND == 0 || flags & APPEND != 0,
        sync,
        parts,
    }))
}

/// A call that copies to a descriptor, at the offset that is stored at an address.
fn transfer(thread: &Thread, to: u64, place: u64) -> Option<Pending> {
    let opened = tree_file(thread, to)?;
    let to = number(to);
    let offset = if place == 0 {
        position(to)
    } else {
        memory::number(place, 8)?
    };
    Some(Pending::Transfer {
        file: opened.file,
        to,
        offset,
        sync: opened.sync,
    })
}

/// What is read from may have to be written to by another thread first, which must have the turn and the lock meanwhile.
fn wait_for_source(thread: &mut Thread, call: Call) {
    let from = match call.number {
        libc::SYS_splice | libc::SYS_copy_file_range => call.arguments[0],
        libc::SYS_sendfile => call.arguments[1],
        _ => return,
    };
    let from = number(from);
    if status_of(from).is_none_or(|status| is_regular(&status)) {
        return;
    }
    thread.turn.give();
    let mut request = libc::pollfd {
        fd: from,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the kernel writes to this stack. Interrupted or not, the call that follows tells what happens.
    unsafe { libc::poll(&raw mut request, 1, -1) };
    thread.turn.take();
}

fn open(thread: &Thread, directory: RawFd, path: u64, flags: u64) -> Option<Pending> {
    let has_flag = |flag: libc::c_int| {
        flags & u64::from(flag.cast_unsigned()) == u64::from(flag.cast_unsigned())
    };
    let is_temporary = has_flag(libc::O_TMPFILE);
    let changes = is_temporary || has_flag(libc::O_CREAT) || has_flag(libc::O_TRUNC);
    if has_flag(libc::O_PATH) || !changes {
        return None;
    }
    let path = path_at(path)?;
    let before = status_at(directory, &path, true);
    // A pipe may wait for another thread when it is opened.
    if !is_temporary && before.is_some_and(|status| !is_regular(&status)) {
        return None;
    }
    if may_grow()
        && let Some(place) = entry_at(directory, &path)
    {
        has_changed(thread, &place);
    }
    Some(Pending::Open {
        flags,
        before: before.map(|status| status.st_size.cast_unsigned()),
    })
}

fn unlink(thread: &Thread, directory: RawFd, path: u64) -> Option<Pending> {
    let place = changing_entry(thread, directory, &path_at(path)?)?;
    Some(Pending::Unlink { place })
}

fn rename(
    thread: &Thread,
    directories: [RawFd; 2],
    paths: [u64; 2],
    flags: u64,
) -> Option<Pending> {
    let (from, to) = (path_at(paths[0])?, path_at(paths[1])?);
    let moved = status_at(directories[0], &from, false);
    let replaced = status_at(directories[1], &to, false);
    let (from, to) = (
        entry_at(directories[0], &from)?,
        entry_at(directories[1], &to)?,
    );
    let are_in_tree = [&from, &to].map(|place| has_changed(thread, place));
    are_in_tree.contains(&true).then_some(Pending::Rename {
        flags,
        from,
        to,
        are_in_tree,
        moves_directory: moved.is_some_and(|it| it.st_mode & libc::S_IFMT == libc::S_IFDIR),
        replaces: replaced.is_some(),
    })
}

fn link(thread: &Thread, directories: [RawFd; 2], paths: [u64; 2], flags: u64) -> Option<Pending> {
    let has_flag = |flag: libc::c_int| flags & u64::from(flag.cast_unsigned()) != 0;
    let (from, to) = (path_at(paths[0])?, path_at(paths[1])?);
    let place = changing_entry(thread, directories[1], &to)?;
    let linked = if has_flag(libc::AT_EMPTY_PATH) && from.is_empty() {
        path_of(directories[0])
    } else {
        let follows = if has_flag(libc::AT_SYMLINK_FOLLOW) {
            0
        } else {
            libc::O_NOFOLLOW
        };
        opened_at(directories[0], &from, follows).and_then(|file| path_of(file.as_raw_fd()))
    };
    Some(Pending::Link {
        place,
        was_in_tree: linked.is_some_and(|path| has(&path)),
    })
}

fn make(thread: &Thread, directory: RawFd, path: u64, target: Vec<u8>) -> Option<Pending> {
    let place = changing_entry(thread, directory, &path_at(path)?)?;
    Some(Pending::Make { place, target })
}

fn truncate(thread: &Thread, path: u64, len: u64) -> Option<Pending> {
    let path = path_at(path)?;
    let file = opened_at(libc::AT_FDCWD, &path, 0)?;
    let status = status_of(file.as_raw_fd()).filter(is_regular)?;
    let is_in_tree = has_changed(thread, &path_of(file.as_raw_fd())?);
    let file = identity(&status);
    (is_in_tree && pools::file(file).is_none())
        .then(|| length(file, FileCode::Truncate, [len, 0, 0]))
}

const fn length(file: FileIdentity, code: FileCode, numbers: [u64; 3]) -> Pending {
    Pending::Length {
        file,
        code,
        numbers,
    }
}

/// Records what a call has done.
fn append(thread: &mut Thread, call: Call, pending: Pending, result: i64) {
    let crosses = result == -i64::from(libc::EXDEV);
    let done = result >= 0;
    match pending {
        Pending::Open { flags, before } if done => {
            opened(thread, number(result.cast_unsigned()), flags, before);
        }
        Pending::Unlink { place } if done => append_path(thread, FileCode::Unlink, None, &place),
        Pending::Rename {
            to, are_in_tree, ..
        } if crosses && are_in_tree[1] => {
            append_path(thread, FileCode::CrossedDevices, None, &to);
        }
        Pending::Rename {
            flags,
            from,
            to,
            are_in_tree,
            moves_directory,
            replaces,
        } if done => {
            if flags & u64::from(libc::RENAME_WHITEOUT) != 0 {
                host::fatal(
                    "the target renames a file with RENAME_WHITEOUT, which cannot be recorded",
                );
            }
            if are_in_tree == [true; 2] {
                let event = FileEvent {
                    numbers: [flags, from.len() as u64, 0],
                    bytes: &from,
                    ..nameless(FileCode::Rename)
                };
                return append_event(thread, event, &to);
            }
            if moves_directory || flags & u64::from(libc::RENAME_EXCHANGE) != 0 {
                host::fatal(
                    "the target moves a directory into or out of a recorded tree, which cannot be recorded; name a directory \
                     with --tree in which both places are",
                );
            }
            if are_in_tree[0] {
                append_path(thread, FileCode::Unlink, None, &from);
            } else {
                if replaces {
                    append_path(thread, FileCode::Unlink, None, &to);
                }
                adopt(thread, &to);
            }
        }
        Pending::Link { place, .. } if crosses => {
            append_path(thread, FileCode::CrossedDevices, None, &place);
        }
        Pending::Link { place, was_in_tree } if done => {
            if was_in_tree {
                let status = status_of_path(&place);
                append_path(thread, FileCode::Link, status.as_ref(), &place);
            } else {
                adopt(thread, &place);
            }
        }
        Pending::Make { place, target } if done => {
            let status = status_of_path(&place);
            if let Some(status) = status.filter(|it| it.st_mode & libc::S_IFMT != libc::S_IFSOCK) {
                append_create(thread, &status, &place, &target);
            }
        }
        Pending::Length {
            file,
            code,
            numbers,
        } if done => append_event(thread, about(code, file, numbers), &[]),
        Pending::Write(write) if result > 0 => written(thread, &write, result.cast_unsigned()),
        Pending::Transfer {
            file,
            to,
            offset,
            sync,
        } if result > 0 => {
            let len = result.cast_unsigned();
            let event = about(FileCode::Write, file, [offset, len, sync]);
            append_content(thread, event, to, offset, len);
        }
        Pending::Sync { file, data_only } if done => {
            let event = match file {
                Some(file) => about(FileCode::Sync, file, [data_only.into(), 0, 0]),
                None => nameless(FileCode::SyncAll),
            };
            append_event(thread, event, &[]);
        }
        Pending::Sync {
            file: Some(file), ..
        } if loses_data(result) => {
            append_event(thread, about(FileCode::FailedSync, file, [0; 3]), &[]);
        }
        _ => {}
    }
    debug_assert!(concerns_files(call.number));
}

/// Whether the result of a sync is an error after which data may be lost. Others say that nothing was tried.
fn loses_data(result: i64) -> bool {
    // QEMU's own, for a call that is made again.
    const AGAIN: i64 = 512;
    let harmless = [libc::EINTR, libc::EBADF, libc::EINVAL, libc::EROFS];
    result < 0 && result > -AGAIN && !harmless.iter().any(|error| result == -i64::from(*error))
}

/// A file was opened.
fn opened(thread: &mut Thread, descriptor: RawFd, flags: u64, before: Option<u64>) {
    let has_flag = |flag: libc::c_int| {
        flags & u64::from(flag.cast_unsigned()) == u64::from(flag.cast_unsigned())
    };
    let Some(status) = status_of(descriptor).filter(is_regular) else {
        return;
    };
    let Some(path) = path_of(descriptor).filter(|path| has(path)) else {
        return;
    };
    let file = identity(&status);
    if has_flag(libc::O_TMPFILE) {
        let numbers = [status.st_mode.into(), 0, 0];
        append_event(thread, about(FileCode::Create, file, numbers), &[]);
    } else if before.is_none() {
        append_create(thread, &status, &path, &[]);
    } else if before.is_some_and(|len| len > 0) && has_flag(libc::O_TRUNC) {
        if pools::file(file).is_some() {
            system_calls::resized(thread, file, 0);
        } else {
            append_event(thread, about(FileCode::Truncate, file, [0; 3]), &[]);
        }
    }
}

fn written(thread: &mut Thread, write: &Write, count: u64) {
    let offset = match write.offset {
        Some(offset) if !write.appends => offset,
        Some(_) => len_of(write.descriptor).wrapping_sub(count),
        None => position(write.descriptor).wrapping_sub(count),
    };
    let stack = thread.stack_of_call();
    let mut words = about(FileCode::Write, write.file, [offset, count, write.sync]).words();
    let mut bytes = Vec::with_capacity(PIECE_MAX);
    let mut left = count;
    let mut parts = write.parts.iter().copied();
    let mut part = (0, 0);
    while left > 0 {
        let wanted = left.min(PIECE_MAX as u64) as usize;
        bytes.clear();
        while bytes.len() < wanted {
            if part.1 == 0 {
                match parts.next() {
                    Some(next) => part = next,
                    None => unreadable(),
                }
                continue;
            }
            let len = part.1.min((wanted - bytes.len()) as u64);
            let start = bytes.len();
            bytes.resize(start + len as usize, 0);
            if memory::read(part.0, &mut bytes[start..]) as u64 != len {
                unreadable();
            }
            part = (part.0 + len, part.1 - len);
        }
        append_record(thread, stack, words, &[&bytes]);
        words[0] = FileCode::Continued as u64;
        left -= wanted as u64;
    }
}

fn unreadable() -> ! {
    host::fatal("what the target has written to a file cannot be read from its memory")
}

/// Appends a write whose bytes are in a file by now.
fn append_content(
    thread: &mut Thread,
    event: FileEvent<'_>,
    descriptor: RawFd,
    offset: u64,
    len: u64,
) {
    let stack = thread.stack_of_call();
    let file = File::open(format!("/proc/self/fd/{descriptor}"));
    let mut words = event.words();
    let mut bytes = vec![0; PIECE_MAX.min(len as usize)];
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let piece = &mut bytes[..PIECE_MAX.min((end - at) as usize)];
        let read = file.as_ref().map(|file| file.read_exact_at(piece, at));
        if !matches!(read, Ok(Ok(()))) {
            host::fatal("a file that the target has written cannot be read");
        }
        append_record(thread, stack, words, &[piece]);
        at += piece.len() as u64;
        words[0] = FileCode::Continued as u64;
    }
}

/// A file that was outside of all trees has a name in one now.
fn adopt(thread: &mut Thread, place: &[u8]) {
    let Some(status) = status_of_path(place) else {
        return;
    };
    if status.st_mode & libc::S_IFMT == libc::S_IFLNK {
        let path = std::ffi::OsString::from_vec(place.to_vec());
        if let Ok(target) = std::fs::read_link(path) {
            let target = target.into_os_string().into_vec();
            append_create(thread, &status, place, &target);
        }
        return;
    }
    append_create(thread, &status, place, &[]);
    let len = status.st_size.cast_unsigned();
    if is_regular(&status)
        && len > 0
        && let Ok(path) = CString::new(place)
        && let Some(file) = opened_at(libc::AT_FDCWD, &path, libc::O_NOFOLLOW)
    {
        let event = about(FileCode::Write, identity(&status), [0, len, 0]);
        append_content(thread, event, file.as_raw_fd(), 0, len);
    }
}

/// An operation on a file that is named by its device and inode.
const fn about(code: FileCode, file: FileIdentity, numbers: [u64; 3]) -> FileEvent<'static> {
    FileEvent {
        code,
        device: file.device,
        inode: file.inode,
        numbers,
        bytes: &[],
    }
}

const fn nameless(code: FileCode) -> FileEvent<'static> {
    FileEvent {
        code,
        device: 0,
        inode: 0,
        numbers: [0; 3],
        bytes: &[],
    }
}

fn append_create(thread: &mut Thread, status: &libc::stat, path: &[u8], target: &[u8]) {
    let numbers = [status.st_mode.into(), path.len() as u64, 0];
    let event = FileEvent {
        bytes: path,
        ..about(FileCode::Create, identity(status), numbers)
    };
    append_event(thread, event, target);
}

fn append_path(thread: &mut Thread, code: FileCode, status: Option<&libc::stat>, path: &[u8]) {
    let event = match status {
        Some(status) => about(code, identity(status), [0; 3]),
        None => nameless(code),
    };
    append_event(
        thread,
        FileEvent {
            bytes: path,
            ..event
        },
        &[],
    );
}

fn append_event(thread: &mut Thread, event: FileEvent<'_>, more: &[u8]) {
    let stack = thread.stack_of_call();
    append_record(thread, stack, event.words(), &[event.bytes, more]);
}

fn append_record(thread: &mut Thread, stack: u32, words: [u64; 6], parts: &[&[u8]]) {
    let words = words.map(u64::to_le_bytes);
    let value: Vec<&[u8]> = core::iter::once(words.as_flattened())
        .chain(parts.iter().copied())
        .collect();
    thread.appender.append(EventKind::File, stack, None, &value);
}

/// An open file of a tree that is not a pool.
struct OpenFile {
    file: FileIdentity,
    appends: bool,
    /// What each write makes durable.
    sync: u64,
}

fn tree_file(thread: &Thread, descriptor: u64) -> Option<OpenFile> {
    let descriptor = number(descriptor);
    let status = status_of(descriptor).filter(is_regular)?;
    let file = identity(&status);
    if pools::file(file).is_some() || !has_changed(thread, &path_of(descriptor)?) {
        return None;
    }
    // SAFETY: takes no pointer and changes nothing.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    let sync = if flags & libc::O_SYNC == libc::O_SYNC {
        WRITE_SYNC
    } else if flags & libc::O_DSYNC != 0 {
        WRITE_DATA_SYNC
    } else {
        0
    };
    Some(OpenFile {
        file,
        appends: flags & libc::O_APPEND != 0,
        sync,
    })
}

/// An entry that is about to change, if it is in a tree.
fn changing_entry(thread: &Thread, directory: RawFd, path: &CStr) -> Option<Vec<u8>> {
    entry_at(directory, path).filter(|place| has_changed(thread, place))
}
