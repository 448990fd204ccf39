//! System calls that could concern a pool.
//!
//! # Safety
//!
//! Callers pass the arguments of a system call that the recovery makes now.
#![allow(unsafe_code, reason = "makes system calls of the recovery")]

use powerfail_protocol::explore::OpenPage;

use crate::libc::process_wide;
use crate::platform::sys;
use crate::record::call_stacks::Registers;

use super::mappings::Request;
use super::state::{self, PAGE};
use super::{paths, shared_file, snapshot, turn};

use crate::platform::number::{
    ACCESS, CHMOD, CHOWN, CLONE, CLOSE, CLOSE_RANGE, COPY_FILE_RANGE, CREAT, FACCESSAT, FACCESSAT2,
    FALLOCATE, FCNTL, FDATASYNC, FLOCK, FORK, FSYNC, FTRUNCATE, LINK, LINKAT, LSTAT, MADVISE,
    MKDIR, MKDIRAT, MLOCK, MLOCKALL, MMAP, MPROTECT, MREMAP, MSYNC, MUNMAP, NEWFSTATAT, OPEN,
    OPENAT, OPENAT2, PRCTL, PROCESS_VM_READV, PROCESS_VM_WRITEV, READLINK, RENAME, RENAMEAT,
    RENAMEAT2, RMDIR, SECCOMP, SENDFILE, SPLICE, STAT, STATX, SYMLINK, SYMLINKAT, TRUNCATE, UNLINK,
    UNLINKAT,
};

const EBADF: isize = 9;
const CLONE_VM: usize = 0x100;
const AT_FDCWD: i32 = -100;
const O_CREAT: usize = 0o100;
const O_TRUNC: usize = 0o1000;

/// A system call that the recovery wants to make.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) number: usize,
    pub(crate) arguments: [usize; 6],
    /// Where.
    pub(crate) code: Registers,
    /// The signals to block meanwhile; none if they are as the recovery has them.
    pub(crate) mask: Option<u64>,
}

impl Call {
    /// Asks the kernel, with the signals that the recovery wants.
    pub(super) fn make(&self) -> isize {
        let before = self.mask.map(|mask| {
            let before = sys::block_signals();
            sys::restore_signals(mask);
            before
        });
        // SAFETY: the recovery makes this call; where arguments were replaced, by buffers of the runtime that are as
        // long.
        let done = unsafe { sys::call(self.number, self.arguments) };
        if let Some(before) = before {
            sys::restore_signals(before);
        }
        done
    }

    /// The descriptor in the first argument.
    pub(super) fn fd(&self) -> i32 {
        self.arguments[0] as i32
    }

    /// The flags with which it opens a file.
    fn open_flags(&self) -> usize {
        match self.number {
            OPEN => self.arguments[1],
            CREAT => O_CREAT | O_TRUNC,
            OPENAT => self.arguments[2],
            // SAFETY: the kernel would read the flags there, too.
            OPENAT2 => unsafe { (self.arguments[2] as *const u64).read() as usize },
            _ => 0,
        }
    }

    /// Whether it changes what files there are, or the length of one. It names these paths.
    pub(crate) fn changes_files(&self, paths: [Option<(i32, usize)>; 2]) -> bool {
        let flags = self.open_flags();
        let is_new =
            || paths[0].is_some_and(|(directory, path)| !paths::leads_to_file(directory, path));
        match self.number {
            UNLINK | UNLINKAT | RENAME | RENAMEAT | RENAMEAT2 | LINK | LINKAT | SYMLINK
            | SYMLINKAT | MKDIR | MKDIRAT | RMDIR | TRUNCATE => true,
            _ => flags & O_TRUNC != 0 || flags & O_CREAT != 0 && is_new(),
        }
    }

    /// Directories and paths that it names.
    pub(crate) fn paths(&self) -> [Option<(i32, usize)>; 2] {
        let [first, second, third, fourth, ..] = self.arguments;
        match self.number {
            OPEN | CREAT | STAT | LSTAT | ACCESS | TRUNCATE | UNLINK | READLINK | CHMOD | CHOWN
            | MKDIR | RMDIR => [Some((AT_FDCWD, first)), None],
            OPENAT | OPENAT2 | NEWFSTATAT | STATX | UNLINKAT | FACCESSAT | FACCESSAT2 | MKDIRAT => {
                [Some((first as i32, second)), None]
            }
            // What a symbolic link says need not be a path.
            SYMLINK => [Some((AT_FDCWD, second)), None],
            SYMLINKAT => [Some((second as i32, third)), None],
            RENAME | LINK => [Some((AT_FDCWD, first)), Some((AT_FDCWD, second))],
            RENAMEAT | RENAMEAT2 | LINKAT => {
                [Some((first as i32, second)), Some((third as i32, fourth))]
            }
            _ => [None, None],
        }
    }
}

/// Does what the recovery asks the kernel for, where that concerns us; `None`: nothing is to be done but
/// ask the kernel.
pub(crate) fn perform(number: usize, arguments: [usize; 6]) -> Option<isize> {
    let call = Call {
        number,
        arguments,
        code: sys::registers(),
        mask: None,
    };
    perform_call(&call)
}

pub(super) fn perform_call(call: &Call) -> Option<isize> {
    let paths = call.paths();
    if paths[0].is_some() {
        return with_paths(call, paths);
    }
    match call.number {
        CLOSE => return is_ours(call.fd()).then_some(-EBADF),
        CLOSE_RANGE => return close_range(call),
        MLOCKALL | PRCTL | SECCOMP => return process_wide::perform(call.number, call.arguments),
        FORK => {
            super::before_fork();
            return None;
        }
        CLONE if call.arguments[0] & CLONE_VM == 0 => {
            super::before_fork();
            return None;
        }
        _ => {}
    }
    if !super::is_lazy() || !snapshot::has_passed() {
        return None;
    }
    match call.number {
        MMAP => {
            let request = Request::of(call.arguments);
            // Most mappings are no pool's, and replace none.
            if request.pool().is_none() && request.flags & sys::MAP_FIXED == 0 {
                return None;
            }
            Some(turn::take(|state| state.map(request)))
        }
        MUNMAP => concerns_pool(call).then(|| turn::take(|state| state.unmap(call.arguments))),
        MPROTECT => {
            concerns_pool(call).then(|| turn::take(|state| state.change_rights(call.arguments)))
        }
        MREMAP => turn::take(|state| state.remap(call.arguments)),
        MSYNC => {
            let done = call.make();
            if done == 0 {
                synced_memory(call);
            }
            Some(done)
        }
        MADVISE => concerns_pool(call).then(|| advise(call)),
        MLOCK => concerns_pool(call).then_some(0),
        FSYNC | FDATASYNC => state::pool_of(call.fd()).map(|pool| {
            let done = call.make();
            if done == 0 {
                turn::take(|state| state.log_sync(pool, 0, u64::MAX, call.code.pc));
            }
            done
        }),
        FTRUNCATE => state::pool_of(call.fd()).map(|pool| truncate(call, pool)),
        FALLOCATE => state::pool_of(call.fd()).map(|pool| allocate(call, pool)),
        FLOCK => state::pool_of(call.fd()).map(|_| 0),
        FCNTL if is_lock(call.arguments[1]) => state::pool_of(call.fd()).map(|_| 0),
        SENDFILE | COPY_FILE_RANGE | SPLICE => refuse_moves(call),
        PROCESS_VM_READV | PROCESS_VM_WRITEV => {
            super::refuse("the recovery copies memory by process_vm_readv or process_vm_writev")
        }
        _ => super::transfer::perform(call),
    }
}

/// Whether a descriptor is ours: to the recovery it is not there.
fn is_ours(fd: i32) -> bool {
    shared_file::owns(fd) || turn::take(|state| state.pools.iter().any(|pool| pool.fd == fd))
}

/// Closes descriptors, but for ours.
fn close_range(call: &Call) -> Option<isize> {
    const DESCRIPTORS_MAX: usize = 1 << 16;
    let [first, last, flags, ..] = call.arguments;
    let last = last.min(u32::MAX as usize);
    let mut from = first;
    let ours = (first..=last.min(DESCRIPTORS_MAX)).filter(|fd| is_ours(*fd as i32));
    let mut done = None;
    for fd in ours {
        let part = Call {
            arguments: [from, fd.wrapping_sub(1), flags, 0, 0, 0],
            ..*call
        };
        done = Some(if from < fd { part.make() } else { 0 });
        from = fd + 1;
    }
    done?;
    let part = Call {
        arguments: [from, last, flags, 0, 0, 0],
        ..*call
    };
    Some(if from <= last { part.make() } else { 0 })
}

/// A call that takes paths: the snapshot is before the first one that leads to a pool.
fn with_paths(call: &Call, paths: [Option<(i32, usize)>; 2]) -> Option<isize> {
    if snapshot::has_passed() && !super::is_lazy() {
        return None;
    }
    let find = |path: Option<(i32, usize)>| paths::pool_at(path?.0, path?.1);
    let [first, second] = [find(paths[0]), find(paths[1])];
    let Some(pool) = first.or(second) else {
        let is_beside = |(directory, path): &(i32, usize)| paths::is_beside_pool(*directory, *path);
        if paths.iter().flatten().any(is_beside) {
            snapshot::reached_beside();
        }
        // Files are not copied where processes are.
        if snapshot::has_passed() && super::is_lazy() && call.changes_files(paths) {
            needs_file("makes or removes other files");
        }
        return None;
    };
    snapshot::reached();
    if !super::is_lazy() {
        return None;
    }
    let flags = call.open_flags();
    match call.number {
        UNLINK | UNLINKAT => needs_file("removes a pool"),
        RENAME | RENAMEAT | RENAMEAT2 | LINK | LINKAT if first.is_some() => {
            super::refuse_private("the recovery renames or links a pool");
        }
        RENAME | RENAMEAT | RENAMEAT2 => needs_file("replaces a pool"),
        TRUNCATE => {
            needs_file("truncates a pool by its path");
            let len = call.arguments[1] as u64;
            let is_cut = |page: &OpenPage| {
                page.pool == pool && page.offset + PAGE > len && page.open_lines > 0
            };
            if shared_file::open_pages().iter().any(is_cut) {
                super::refuse("the recovery truncates a part of a pool whose content is undecided");
            }
        }
        _ if flags & O_TRUNC != 0 && is_used(pool) => {
            super::refuse_private("the recovery truncates a pool when it opens it");
        }
        _ => {}
    }
    let done = call.make();
    if done >= 0 && matches!(call.number, OPEN | CREAT | OPENAT | OPENAT2) {
        state::identify(pool);
    }
    Some(done)
}

/// Whether the table has anything of a pool.
fn is_used(pool: u32) -> bool {
    shared_file::open_pages()
        .iter()
        .any(|page| page.pool == pool)
        || super::has_flag(powerfail_protocol::explore::flag::PRIVATE)
}

/// What can only be done to the file itself.
fn needs_file(what: &str) {
    if super::has_flag(powerfail_protocol::explore::flag::PRIVATE) {
        super::refuse_private(&format!("the recovery {what}"));
    }
}

/// Whether a range of memory, in the first two arguments, has to do with a pool.
fn concerns_pool(call: &Call) -> bool {
    let from = call.arguments[0] as u64;
    let to = from.saturating_add(call.arguments[1] as u64);
    turn::take(|state| {
        let mut mappings = state.mappings.iter();
        mappings.any(|it| it.address < to && from < it.end())
    })
}

fn synced_memory(call: &Call) {
    const MS_SYNC: usize = 4;
    let (address, len) = (call.arguments[0] as u64, call.arguments[1] as u64);
    if call.arguments[2] & MS_SYNC == 0 {
        return;
    }
    let end = address.saturating_add(len).next_multiple_of(PAGE);
    log_sync(call, address, end);
}

/// What the runtime itself has stored is durable.
pub(super) fn note_sync(address: u64, len: u64) {
    let call = Call {
        number: MSYNC,
        arguments: [0; 6],
        code: sys::registers(),
        mask: None,
    };
    log_sync(&call, address, address + len);
}

fn log_sync(call: &Call, address: u64, end: u64) {
    turn::take(|state| {
        for it in &state.mappings {
            let (from, to) = (address.max(it.address), end.min(it.end()));
            if from < to && !it.is_private {
                let offset = it.offset + (from - it.address);
                state.log_sync(it.pool, offset, to - from, call.code.pc);
            }
        }
    });
}

/// Advice on memory of a pool: what would lose private changes is not given.
fn advise(call: &Call) -> isize {
    const DONTNEED: usize = 4;
    const FREE: usize = 8;
    const REMOVE: usize = 9;
    match call.arguments[2] {
        DONTNEED => 0,
        FREE | REMOVE => super::refuse("the recovery frees pages of a pool with madvise"),
        _ => call.make(),
    }
}

/// Whether a command of fcntl is about locks. Branches of an execution must not lock each other out.
fn is_lock(command: usize) -> bool {
    const SETLK: usize = 6;
    const SETLKW: usize = 7;
    const OFD_SETLK: usize = 37;
    const OFD_SETLKW: usize = 38;
    matches!(command, SETLK | SETLKW | OFD_SETLK | OFD_SETLKW)
}

fn refuse_moves(call: &Call) -> Option<isize> {
    let [first, second, third, ..] = call.arguments;
    let other = if call.number == SENDFILE {
        second
    } else {
        third
    };
    if state::pool_of(first as i32)
        .or_else(|| state::pool_of(other as i32))
        .is_some()
    {
        super::refuse(
            "the recovery copies from or to a pool's file with sendfile, splice or copy_file_range",
        );
    }
    None
}

fn truncate(call: &Call, pool: u32) -> isize {
    let len = call.arguments[1] as u64;
    let before = sys::fstat(call.fd()).map_or(0, |status| status.len_bytes);
    if len == before {
        return 0;
    }
    needs_file("changes the length of a pool");
    let is_cut = |page: &powerfail_protocol::explore::OpenPage| {
        page.pool == pool && page.offset + PAGE > len && page.open_lines > 0
    };
    if shared_file::open_pages().iter().any(is_cut) {
        super::refuse("the recovery truncates a part of a pool whose content is undecided");
    }
    call.make()
}

fn allocate(call: &Call, pool: u32) -> isize {
    const KEEP_SIZE: usize = 1;
    let [_, mode, offset, len, ..] = call.arguments;
    let (offset, end) = (offset as u64, (offset + len) as u64);
    let before = sys::fstat(call.fd()).map_or(0, |status| status.len_bytes);
    if mode == 0 && end <= before || mode == KEEP_SIZE {
        return 0;
    }
    needs_file("changes the file of a pool with fallocate");
    let is_hit = |page: &powerfail_protocol::explore::OpenPage| {
        page.pool == pool && page.offset < end && offset < page.offset + PAGE && page.open_lines > 0
    };
    if mode != 0 && shared_file::open_pages().iter().any(is_hit) {
        super::refuse(
            "the recovery changes a part of a pool with fallocate whose content is undecided",
        );
    }
    call.make()
}
