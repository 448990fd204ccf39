//! Pools: mapped where the target wants them, read-only, and writable at the alias.

use core::sync::atomic::{AtomicBool, Ordering};

use powerfail_abi::message::MessageKind;
use powerfail_abi::shared::{Reply, WINDOW_ADDRESS, WINDOW_LEN};
use powerfail_abi::{EventKind, WINDOW_GUARD_LEN};

use crate::lock::Lock;
use crate::sites::{Sites, WINDOW};
use crate::{append, host, signals, sys, thread};

/// Pools begin at multiples of this, so that their addresses look like those of DAX mappings.
const ALIGNMENT: u64 = 2 << 20;

/// A mapping of a pool.
#[derive(Clone, Copy)]
struct Mapping {
    address: u64,
    len: u64,
    offset: u64,
    device: u64,
    inode: u64,
}

struct Pools {
    mappings: Vec<Mapping>,
    /// Ranges of the window that are the target's and no pools: from, to.
    others: Vec<(u64, u64)>,
    next: u64,
}

static POOLS: Lock<Pools> = Lock::new(Pools {
    mappings: Vec::new(),
    others: Vec::new(),
    next: WINDOW_ADDRESS + ALIGNMENT,
});
/// Whether there was ever a pool.
static MAPPED: AtomicBool = AtomicBool::new(false);

/// In the child after fork.
pub(crate) fn reset_after_fork() {
    POOLS.reset_after_fork();
}

/// What mmap was asked for.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) address: u64,
    pub(crate) len: u64,
    pub(crate) protection: usize,
    pub(crate) flags: usize,
    pub(crate) fd: i32,
    pub(crate) offset: u64,
}

/// Maps what the target asks for; the address, or a negative error number.
pub(crate) fn map(request: Request) -> isize {
    let Request {
        address,
        len,
        protection,
        flags,
        fd,
        offset,
    } = request;
    let plain = || {
        // SAFETY: what the target asked for.
        unsafe { sys::mmap(address, len, protection, flags, fd, offset) }
    };
    let is_fixed = flags & (sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE) != 0;
    if !host::attached() || thread::slot().is_none() || !may_be_pool(request) {
        if host::attached() && is_fixed && WINDOW.contains(address) {
            return map_other_in_window(request);
        }
        return plain();
    }
    if is_fixed && !WINDOW.contains(address) {
        let path = path_of(fd);
        let path = String::from_utf8_lossy(&path).into_owned();
        host::fatal(&format!(
            "the target maps {path} at a fixed address ({address:#x}), which cannot be recorded yet"
        ));
    }
    let len = len.next_multiple_of(4096);
    let place = if is_fixed {
        address
    } else {
        POOLS.with(|pools| pools.allot(len))
    };
    match ask_host(place, len, offset, fd) {
        Reply::Ignore => return plain(),
        Reply::Record => {}
    }
    MAPPED.store(true, Ordering::Release);
    // First the signals: while code is patched, it meets its own breakpoints.
    signals::install();
    Sites::start();
    let flags = flags & !sys::MAP_FIXED_NOREPLACE | sys::MAP_FIXED;
    // SAFETY: the place lies in our window and is not in use, or the target fixed it there.
    unsafe {
        let seen = sys::mmap(place, len, protection & !sys::PROT_WRITE, flags, fd, offset);
        if seen < 0 {
            return seen;
        }
        let both = protection | sys::PROT_READ;
        let alias = sys::mmap(WINDOW.alias(place), len, both, flags, fd, offset);
        if alias < 0 {
            return alias;
        }
    }
    if let Some(status) = sys::fstat(fd) {
        let (device, inode) = (status.device, status.inode);
        POOLS.with(|pools| {
            pools.mappings.push(Mapping {
                address: place,
                len,
                offset,
                device,
                inode,
            });
        });
    }
    place as isize
}

impl Pools {
    /// Addresses in the window that were never used.
    fn allot(&mut self, len: u64) -> u64 {
        let place = self.next;
        self.next = (place + len + WINDOW_GUARD_LEN).next_multiple_of(ALIGNMENT);
        if self.next >= WINDOW_ADDRESS + WINDOW_LEN {
            host::fatal("the target has mapped more than 4 TiB of pools");
        }
        place
    }
}

/// Something that is no pool is mapped over a part of the window.
fn map_other_in_window(request: Request) -> isize {
    let Request {
        address,
        len,
        protection,
        flags,
        fd,
        offset,
    } = request;
    // SAFETY: the target replaces its own mapping; the alias of it is of no use any more.
    unsafe {
        let result = sys::mmap(address, len, protection, flags, fd, offset);
        if result >= 0 {
            reserve(WINDOW.alias(address), len, sys::MAP_FIXED);
        }
        result
    }
}

/// Whether an address in the window is of memory of the target that is no pool.
pub(crate) fn is_other(address: u64) -> bool {
    POOLS.with(|pools| {
        let holds = |range: &(u64, u64)| (range.0..range.1).contains(&address);
        pools.others.iter().any(holds)
    })
}

fn may_be_pool(request: Request) -> bool {
    const FILE_TYPE: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    const CHARACTER_DEVICE: u32 = 0o020_000;
    let sharing = request.flags & sys::MAP_TYPE;
    (sharing == sys::MAP_SHARED || sharing == sys::MAP_SHARED_VALIDATE)
        && request.flags & sys::MAP_ANONYMOUS == 0
        && request.protection & sys::PROT_WRITE != 0
        && !host::owns(request.fd)
        && sys::fstat(request.fd).is_some_and(|status| match status.mode & FILE_TYPE {
            REGULAR => true,
            CHARACTER_DEVICE => path_of(request.fd).starts_with(b"/dev/dax"),
            _ => false,
        })
}

fn path_of(fd: i32) -> Vec<u8> {
    let link = format!("/proc/self/fd/{fd}\0");
    let Ok(link) = core::ffi::CStr::from_bytes_with_nul(link.as_bytes()) else {
        return Vec::new();
    };
    let mut path = vec![0; 4096];
    let len = host::read_link(link, &mut path);
    path.truncate(len);
    path
}

fn reserve(address: u64, len: u64, fixed: usize) -> isize {
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE | fixed;
    // SAFETY: nothing is replaced but what the caller gives up.
    unsafe { sys::mmap(address, len, sys::PROT_NONE, flags, -1, 0) }
}

/// Keeps everybody else out of the window and its alias.
pub(crate) fn reserve_window() {
    let result = reserve(WINDOW_ADDRESS, 2 * WINDOW_LEN, sys::MAP_FIXED_NOREPLACE);
    if result != WINDOW_ADDRESS as isize {
        host::fatal("the addresses that powerfail needs for pools are taken");
    }
}

/// Shows the file to the host, which reads its content, and waits for the answer.
fn ask_host(place: u64, len: u64, offset: u64, fd: i32) -> Reply {
    let Some(slot) = thread::slot() else {
        return Reply::Ignore;
    };
    slot.reply.store(0, Ordering::Release);
    let words = [place, len, offset, thread::index_of(slot), 0];
    host::send(MessageKind::PoolMap, words, &path_of(fd), Some(fd));
    loop {
        match slot.reply.load(Ordering::Acquire) {
            0 => sys::futex_wait(&slot.reply, 0),
            reply if reply == Reply::Record as u32 => return Reply::Record,
            _ => return Reply::Ignore,
        }
    }
}

/// Unmaps a range; `None` if it is not in the window.
pub(crate) fn unmap(address: u64, len: u64) -> Option<isize> {
    if !host::attached() || !WINDOW.contains(address) {
        return None;
    }
    let len = len.next_multiple_of(4096);
    reserve(address, len, sys::MAP_FIXED);
    reserve(WINDOW.alias(address), len, sys::MAP_FIXED);
    POOLS.with(|pools| {
        pools.mappings.retain(|mapping| {
            !(address <= mapping.address && mapping.address + mapping.len <= address + len)
        });
    });
    Some(0)
}

/// A range of a pool, or of whatever lies there, was made durable.
pub(crate) fn synced(address: u64, len: u64) {
    if host::attached() && WINDOW.contains(address) {
        append::append(EventKind::Sync, Some(address), &[&len.to_le_bytes()]);
    }
}

fn mappings_of(fd: i32) -> Vec<Mapping> {
    if !host::attached() || !MAPPED.load(Ordering::Acquire) {
        return Vec::new();
    }
    let Some(status) = sys::fstat(fd) else {
        return Vec::new();
    };
    POOLS.with(|pools| {
        pools
            .mappings
            .iter()
            .filter(|mapping| (mapping.device, mapping.inode) == (status.device, status.inode))
            .copied()
            .collect()
    })
}

/// A whole file was made durable.
pub(crate) fn file_synced(fd: i32) {
    for mapping in mappings_of(fd) {
        synced(mapping.address, mapping.len);
    }
}

/// Whether a descriptor is that of a pool.
pub(crate) fn is_pool(fd: i32) -> bool {
    !mappings_of(fd).is_empty()
}

/// A pool's file has a new length.
pub(crate) fn resized(fd: i32, len: u64) {
    if let Some(mapping) = mappings_of(fd).first() {
        append::append(
            EventKind::Resize,
            Some(mapping.address),
            &[&len.to_le_bytes()],
        );
    }
}

/// The target has written to a pool's file with a system call.
pub(crate) fn file_written(fd: i32, offset: u64, bytes: &[u8]) {
    let mut seen = false;
    for mapping in mappings_of(fd) {
        let (from, to) = (offset.max(mapping.offset), offset + bytes.len() as u64);
        let to = to.min(mapping.offset + mapping.len);
        if from < to {
            let piece = &bytes[(from - offset) as usize..(to - offset) as usize];
            append::append_system_store(mapping.address + from - mapping.offset, piece);
            seen = true;
            break;
        }
    }
    if !seen {
        host::warn("the target wrote to a part of a pool's file that is not mapped");
    }
}
