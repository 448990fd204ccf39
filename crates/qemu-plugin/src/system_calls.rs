//! System calls of a program that concern its pools.
//!
//! # Safety
//!
//! Descriptors of the target are those of this process, because QEMU passes them on. Memory of pools is mapped while the
//! calling thread has the turn.
#![allow(
    unsafe_code,
    reason = "asks the kernel about descriptors of the target"
)]

use std::collections::BTreeSet;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Mutex;

use powerfail_protocol::message::MessageKind;
use powerfail_protocol::{EventKind, MAX_VALUE_LEN, mark};

use crate::pools::{FileIdentity, Mapping, PoolFile};
use crate::program::Thread;
use crate::{host, memory, modules, pools};

/// A system call, as the target makes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
}

/// The beginning of an output that is kept.
const OUTPUT_MAX: usize = MAX_VALUE_LEN as usize - 16;

/// Whether a call makes a process, which returns from it, too. QEMU makes one for vfork as for fork.
pub(crate) fn makes_process(call: Call) -> bool {
    match call.number {
        libc::SYS_fork | libc::SYS_vfork => true,
        libc::SYS_clone => call.arguments[0] & libc::CLONE_THREAD as u64 == 0,
        _ => false,
    }
}

/// Whether a call ends the thread.
pub(crate) fn ends_thread(number: i64) -> bool {
    number == libc::SYS_exit || number == libc::SYS_exit_group
}

/// Before a call. Says whether other threads may run meanwhile.
pub(crate) fn before(thread: &mut Thread, call: Call) -> bool {
    let [a, b, c, d, ..] = call.arguments;
    match call.number {
        // From now on a store there would fault.
        libc::SYS_munmap => unmap(a, b),
        libc::SYS_execve => announce_program(a, b, c),
        libc::SYS_execveat => announce_program(b, c, d),
        libc::SYS_sendfile | libc::SYS_copy_file_range | libc::SYS_splice => {
            let out = if call.number == libc::SYS_sendfile {
                a
            } else {
                c
            };
            refuse_pool(thread, out, call.number);
        }
        _ => {}
    }
    !makes_process(call) && call.number != libc::SYS_clone
}

/// After a call.
pub(crate) fn after(thread: &mut Thread, call: Call, result: i64) {
    let [a, b, c, d, ..] = call.arguments;
    let count = result.cast_unsigned();
    match call.number {
        libc::SYS_execve | libc::SYS_execveat => {
            host::send(MessageKind::ExecFailed, [0; 5], &[], None);
        }
        _ if result < 0 => {}
        libc::SYS_mmap => map(thread, count, call.arguments),
        libc::SYS_mremap => remap(a, b, count, c),
        libc::SYS_ftruncate | libc::SYS_fallocate => {
            let is_fallocate = call.number == libc::SYS_fallocate;
            changed_length(thread, a, is_fallocate.then_some([b, c, d]));
        }
        libc::SYS_truncate => {
            use std::os::unix::ffi::OsStrExt;
            let path = memory::text(a);
            if let Ok(status) = std::fs::metadata(std::ffi::OsStr::from_bytes(&path)) {
                resized(thread, identity(&status), status.len());
            }
        }
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_recvfrom => received(thread, b, count),
        libc::SYS_getrandom => received(thread, a, count),
        libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => {
            received_parts(thread, b, c, count);
        }
        libc::SYS_recvmsg => {
            let parts = memory::number(b + 16, 8).zip(memory::number(b + 24, 8));
            if let Some((list, len)) = parts {
                received_parts(thread, list, len, count);
            }
        }
        libc::SYS_write => wrote(thread, a, count, None, &[(b, count)]),
        libc::SYS_pwrite64 => wrote(thread, a, count, Some(d), &[(b, count)]),
        libc::SYS_writev => wrote(thread, a, count, None, &memory::ranges(b, c)),
        libc::SYS_pwritev => wrote(thread, a, count, Some(d), &memory::ranges(b, c)),
        libc::SYS_pwritev2 => {
            let offset = (d != u64::MAX).then_some(d);
            wrote(thread, a, count, offset, &memory::ranges(b, c));
        }
        libc::SYS_msync => {
            let is_waiting = c & u64::from(libc::MS_SYNC.cast_unsigned()) != 0;
            let len = b.next_multiple_of(4096);
            match pools::parts(a, len).first() {
                Some(_) if is_waiting => synced(thread, a, len),
                Some(_) => noted_sync(thread, a, len),
                None => {}
            }
        }
        libc::SYS_fsync | libc::SYS_fdatasync => {
            let pool = file_of(a).and_then(|(_, status)| pools::file(identity(&status)));
            if let Some(pool) = pool {
                synced(thread, pool.address, pool.len_bytes);
            }
        }
        libc::SYS_sync | libc::SYS_syncfs => {
            let files = pools::files().clone();
            for pool in files {
                synced(thread, pool.address, pool.len_bytes);
            }
        }
        _ => {}
    }
}

/// A descriptor of the target, and what the kernel says of its file.
fn file_of(descriptor: u64) -> Option<(RawFd, std::fs::Metadata)> {
    let number = RawFd::try_from(descriptor as u32).ok()?;
    let status = borrowed(number).metadata().ok()?;
    Some((number, status))
}

/// A descriptor of the target, which stays open.
fn borrowed(number: RawFd) -> ManuallyDrop<File> {
    // SAFETY: never closed here; a number that is not open is an error of each call.
    ManuallyDrop::new(unsafe { File::from_raw_fd(number) })
}

fn identity(status: &std::fs::Metadata) -> FileIdentity {
    FileIdentity {
        device: status.dev(),
        inode: status.ino(),
    }
}

fn path_of(descriptor: RawFd) -> PathBuf {
    std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap_or_default()
}

/// The target has mapped something.
fn map(thread: &Thread, address: u64, arguments: [u64; 6]) {
    let [_, len, protection, flags, descriptor, offset] = arguments;
    let sharing = flags & u64::from(libc::MAP_TYPE.cast_unsigned());
    let has = |bit: libc::c_int| protection & u64::from(bit.cast_unsigned()) != 0;
    let is_anonymous = flags & u64::from(libc::MAP_ANONYMOUS.cast_unsigned()) != 0;
    let len = len.next_multiple_of(4096);
    unmap(address, len);
    if is_anonymous {
        return;
    }
    let Some((number, status)) = file_of(descriptor) else {
        return;
    };
    if has(libc::PROT_EXEC) && modules::is_code(&borrowed(number)) {
        modules::add(&path_of(number), address, Some(offset));
    }
    let is_shared = sharing == u64::from(libc::MAP_SHARED.cast_unsigned())
        || sharing == u64::from(libc::MAP_SHARED_VALIDATE.cast_unsigned());
    if !is_shared || !has(libc::PROT_WRITE) {
        return;
    }
    let path = path_of(number);
    let path = path.as_os_str().as_encoded_bytes();
    if thread
        .appender
        .asks_for_pool(number, path, address, len, offset)
    {
        let file = identity(&status);
        if pools::file(file).is_none() {
            let added = pools::add_file(file, status.len());
            let (address, len) = (added.address, pools::FILE_LEN);
            thread.appender.asks_for_pool(number, path, address, len, 0);
        }
        pools::map(Mapping {
            address,
            len_bytes: len,
            offset,
            file,
        });
    }
}

fn unmap(address: u64, len: u64) {
    let len = len.next_multiple_of(4096);
    // The host keeps it: the target may still write to the file.
    if pools::are_any() {
        pools::unmap(address, len);
    }
}

fn remap(from: u64, old_len: u64, to: u64, new_len: u64) {
    let (old_len, new_len) = (
        old_len.next_multiple_of(4096),
        new_len.next_multiple_of(4096),
    );
    let Some(part) = pools::all()
        .into_iter()
        .find(|it| from.wrapping_sub(it.address) < it.len_bytes)
    else {
        unmap(to, new_len);
        return;
    };
    let stamp = host::tick();
    pools::unmap(from, old_len);
    pools::map(Mapping {
        address: to,
        len_bytes: new_len,
        offset: part.offset + (from - part.address),
        file: part.file,
    });
    let words = [from, to, new_len, stamp, 0];
    host::send(MessageKind::PoolMove, words, &[], None);
}

/// The kernel has written to memory of the target.
fn received(thread: &mut Thread, address: u64, len: u64) {
    for (address, len) in pools::parts(address, len) {
        stored(thread, address, len);
    }
}

fn received_parts(thread: &mut Thread, list: u64, count: u64, mut left: u64) {
    if !pools::are_any() {
        return;
    }
    for (address, len) in memory::ranges(list, count) {
        received(thread, address, len.min(left));
        left = left.saturating_sub(len);
    }
}

/// The kernel has stored to a pool.
fn stored(thread: &mut Thread, address: u64, len: u64) {
    // SAFETY: mapped as a pool.
    let bytes = unsafe { memory::bytes(address, len as usize) };
    stored_bytes(thread, address, bytes);
}

fn stored_bytes(thread: &mut Thread, mut address: u64, bytes: &[u8]) {
    let stack = thread.stack_of_call();
    for piece in bytes.chunks(MAX_VALUE_LEN.into()) {
        let kind = EventKind::StoreSystem;
        thread.appender.append(kind, stack, Some(address), &[piece]);
        address += piece.len() as u64;
    }
}

pub(crate) fn resized(thread: &mut Thread, file: FileIdentity, len: u64) {
    let Some(pool) = pools::file(file).filter(|it| it.len_bytes != len) else {
        return;
    };
    pools::set_len(file, len);
    let stack = thread.stack_of_call();
    let value = len.to_le_bytes();
    let kind = EventKind::Resize;
    thread
        .appender
        .append(kind, stack, Some(pool.address), &[&value]);
}

/// A range of a pool's file changed.
fn changed(thread: &mut Thread, number: RawFd, pool: PoolFile, offset: u64, len: u64) {
    let mut bytes = vec![0; len as usize];
    // The descriptor of the target may be one that only writes.
    let read = File::open(format!("/proc/self/fd/{number}"))
        .and_then(|file| file.read_exact_at(&mut bytes, offset));
    match read {
        Ok(()) => stored_bytes(thread, pool.address + offset, &bytes),
        Err(error) => host::fatal(&format!(
            "the file of a pool was written and cannot be read: {error}"
        )),
    }
}

/// A call that changes the length of a file, and perhaps its content: mode, offset and length of `fallocate`.
fn changed_length(thread: &mut Thread, descriptor: u64, allocation: Option<[u64; 3]>) {
    let Some((number, status)) = file_of(descriptor) else {
        return;
    };
    let Some(pool) = pools::file(identity(&status)) else {
        return note_written(descriptor, &status);
    };
    resized(thread, pool.file, status.len());
    let Some([mode, offset, len]) = allocation else {
        return;
    };
    let has = |bit: libc::c_int| mode & u64::from(bit.cast_unsigned()) != 0;
    if has(libc::FALLOC_FL_COLLAPSE_RANGE) || has(libc::FALLOC_FL_INSERT_RANGE) {
        host::fatal(
            "a range of a pool's file was collapsed or inserted with fallocate, which cannot be recorded",
        );
    }
    if has(libc::FALLOC_FL_PUNCH_HOLE) || has(libc::FALLOC_FL_ZERO_RANGE) {
        let len = len.min(status.len().saturating_sub(offset));
        changed(thread, number, pool, offset, len);
    }
}

fn synced(thread: &mut Thread, address: u64, len: u64) {
    let stack = thread.stack_of_call();
    let value = len.to_le_bytes();
    let kind = EventKind::Sync;
    thread
        .appender
        .append(kind, stack, Some(address), &[&value]);
}

/// A call of msync that makes nothing durable.
fn noted_sync(thread: &mut Thread, address: u64, len: u64) {
    let stack = thread.stack_of_call();
    let words = [u64::from(mark::ASYNCHRONOUS_SYNC), 0, address, len].map(u64::to_le_bytes);
    thread
        .appender
        .append(EventKind::Mark, stack, None, &[words.as_flattened()]);
}

/// The target has written to a descriptor.
fn wrote(
    thread: &mut Thread,
    descriptor: u64,
    count: u64,
    offset: Option<u64>,
    parts: &[(u64, u64)],
) {
    let Some((number, status)) = file_of(descriptor) else {
        return;
    };
    if !status.is_file() {
        return said(thread, descriptor, count, parts);
    }
    let Some(pool) = pools::file(identity(&status)) else {
        return note_written(descriptor, &status);
    };
    // SAFETY: a plain system call.
    let position = unsafe { libc::lseek(number, 0, libc::SEEK_CUR) };
    // SAFETY: a plain system call.
    let appends = unsafe { libc::fcntl(number, libc::F_GETFL) } & libc::O_APPEND != 0;
    let offset = match offset {
        // Also where the call names an offset.
        _ if appends => status.len().saturating_sub(count),
        Some(offset) => offset,
        None => position.cast_unsigned().saturating_sub(count),
    };
    resized(thread, pool.file, status.len());
    changed(thread, number, pool, offset, count);
}

/// The target has written output.
fn said(thread: &mut Thread, descriptor: u64, count: u64, parts: &[(u64, u64)]) {
    let mut text = Vec::new();
    for (address, len) in parts {
        let room = OUTPUT_MAX - text.len();
        let len = (*len).min(count).min(room as u64) as usize;
        let start = text.len();
        text.resize(start + len, 0);
        let got = memory::read(*address, &mut text[start..]);
        text.truncate(start + got);
    }
    let stack = thread.stack_of_call();
    let (fd, count) = (descriptor.to_le_bytes(), count.to_le_bytes());
    thread
        .appender
        .append(EventKind::Output, stack, None, &[&fd, &count, &text]);
}

/// Tells the host of a file that the target writes and that is not mapped as a pool.
fn note_written(descriptor: u64, status: &std::fs::Metadata) {
    static KNOWN: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
    let is_new = KNOWN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .insert((status.dev(), status.ino()));
    if is_new && status.is_file() {
        let path = path_of((descriptor as u32).cast_signed());
        let words = [status.dev(), status.ino(), 0, 0, 0];
        let path = path.as_os_str().as_encoded_bytes();
        host::send(MessageKind::Wrote, words, path, None);
    }
}

fn refuse_pool(_thread: &Thread, descriptor: u64, number: i64) {
    let Some((_, status)) = file_of(descriptor) else {
        return;
    };
    if pools::file(identity(&status)).is_some() {
        let name = match number {
            libc::SYS_sendfile => "sendfile",
            libc::SYS_splice => "splice",
            _ => "copy_file_range",
        };
        host::fatal(&format!(
            "the target wrote to the file of a pool with {name}, which cannot be recorded"
        ));
    }
}

/// The target is about to execute another program, which runs without QEMU.
fn announce_program(path: u64, arguments: u64, variables: u64) {
    const ARGUMENTS: u64 = 0;
    const VARIABLES: u64 = 1;
    for (list, kind) in [(arguments, ARGUMENTS), (variables, VARIABLES)] {
        let words = memory::texts(list);
        for piece in words.chunks(4000) {
            host::send(MessageKind::ExecWords, [0, kind, 0, 0, 0], piece, None);
        }
    }
    host::send(MessageKind::Exec, [0; 5], &memory::text(path), None);
}
