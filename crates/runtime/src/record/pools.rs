//! Pools: mapped where the target wants them, read-only, and writable at the alias.
//!
//! # Safety
//!
//! The window and its alias are reserved for the runtime from the start, so a mapping in them replaces only what
//! the runtime has put there or what the target gives up by its own call. A pool's alias is mapped as long as the
//! pool, and as long as it.
#![allow(unsafe_code, reason = "maps pools and their aliases")]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use powerfail_protocol::message::MessageKind;
use powerfail_protocol::shared::{
    CHUNKS_ADDRESS, PMDK_HINT_VARIABLE, Reply, WINDOW_ADDRESS, WINDOW_LEN,
};
use powerfail_protocol::{EventKind, PoolWindow, WINDOW_GUARD_LEN};

use crate::platform::lock::Lock;
use crate::platform::sys;
use crate::record::sites::Sites;
use crate::record::window::{self, window};
use crate::record::{append, dax, faults, first_pool, generated_code, registered_ranges, threads};
use crate::recovery::pool_addresses;
use crate::{fuzz, host};

/// Pools begin at multiples of this, so that their addresses look like those of DAX mappings.
const ALIGNMENT: u64 = 2 << 20;
pub(crate) const PAGE: u64 = 4096;
const EEXIST: isize = 17;
/// From here on, nothing of ours lies at a place of its own.
const FREE_ADDRESS: u64 = 0x2000_0000_0000;

/// A mapping of a pool.
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) address: u64,
    pub(crate) len: u64,
    pub(crate) offset: u64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Mapping {
    fn end(&self) -> u64 {
        self.address + self.len
    }

    /// The part of it in a range of addresses.
    fn part(&self, from: u64, to: u64) -> Option<Self> {
        let (from, to) = (from.max(self.address), to.min(self.end()));
        (from < to).then(|| Self {
            address: from,
            len: to - from,
            offset: self.offset + (from - self.address),
            ..*self
        })
    }
}

pub(crate) struct Pools {
    pub(crate) mappings: Vec<Mapping>,
    /// Addresses that stand for parts of a pool's file that are not mapped, so that what is written
    /// to the file there can be recorded.
    shadows: Vec<Mapping>,
    /// All files that are or were mapped as pools, where they were mapped first.
    files: Vec<Mapping>,
    /// Ranges of the window that are the target's and not pools: from, to.
    pub(crate) others: Vec<(u64, u64)>,
    /// From here to its end, the window was never used.
    next: u64,
}

pub(crate) static POOLS: Lock<Pools> = Lock::new(Pools {
    mappings: Vec::new(),
    shadows: Vec::new(),
    files: Vec::new(),
    others: Vec::new(),
    next: WINDOW_ADDRESS + ALIGNMENT,
});
/// Where libpmem begins to look for room, if that is in the window.
static PMDK_HINT: AtomicU64 = AtomicU64::new(0);
/// Whether there was ever a pool.
static MAPPED: AtomicBool = AtomicBool::new(false);

/// Whether there was ever a pool.
pub(crate) fn was_mapped() -> bool {
    MAPPED.load(Ordering::Acquire)
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
pub(crate) fn map(mut request: Request) -> isize {
    if dax::is_imitated(request.flags) && !host::attached() && pool_addresses::is_pool(&request) {
        request.flags = dax::granted(request.flags);
    }
    let Request {
        address,
        len,
        protection,
        flags,
        fd,
        offset,
    } = request;
    if let Some(place) = pool_addresses::map(request) {
        return place;
    }
    let plain = || {
        if flags & sys::MAP_FIXED != 0 {
            generated_code::changes(address, len);
        }
        // SAFETY: the target makes this `mmap`, and what it replaces lies outside of the window, where no pool is.
        let place = unsafe { sys::mmap(address, len, protection, flags, fd, offset) };
        if place > 0 {
            generated_code::changed(place as u64, len, protection);
        }
        place
    };
    let is_fixed = flags & (sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE) != 0;
    let in_window = host::attached() && is_fixed && window().contains(address);
    if in_window && flags & sys::MAP_FIXED_NOREPLACE != 0 && !is_free(address, len) {
        return -EEXIST;
    }
    if !host::attached() || threads::slot().is_none() || !may_be_pool(request) {
        if in_window {
            return map_other_in_window(request);
        }
        if host::attached() && is_reservation(request) {
            return hand_out(request);
        }
        return plain();
    }
    first_pool::in_turn(|| map_candidate(request, plain))
}

/// Maps what may be a pool, if the host records it. `plain` maps it as the kernel would.
fn map_candidate(request: Request, plain: impl FnOnce() -> isize) -> isize {
    let Request {
        address,
        flags,
        fd,
        offset,
        ..
    } = request;
    let is_fixed = flags & (sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE) != 0;
    let in_window = is_fixed && window().contains(address);
    let len = request.len.next_multiple_of(PAGE);
    let has_moved = wants_another_window(request) && move_window(request);
    let is_outside = is_fixed && !window().contains(address);
    if is_outside && flags & sys::MAP_FIXED_NOREPLACE != 0 && !is_unused(address, len) {
        return -EEXIST;
    }
    let place = if is_fixed || has_moved {
        address & !(PAGE - 1)
    } else {
        POOLS.with(|pools| pools.choose(request, sys::fstat(fd)))
    };
    let imitates_dax = dax::is_imitated(flags);
    match ask_host([place, len, offset, imitates_dax.into()], fd) {
        Reply::Ignore if has_moved => {
            move_window_back();
            return plain();
        }
        Reply::Ignore if in_window => return map_other_in_window(request),
        Reply::Ignore => return plain(),
        Reply::Record if is_outside => refuse_address(fd, address),
        Reply::Record => {}
    }
    map_recorded(Request {
        address: place,
        len,
        flags: dax::granted(flags),
        ..request
    })
}

/// Whether nothing at all lies in a range outside of the window.
fn is_unused(address: u64, len: u64) -> bool {
    let is_unused = reserve(address, len, sys::MAP_FIXED_NOREPLACE) == address as isize;
    if is_unused {
        let arguments = [address as usize, len as usize, 0, 0, 0, 0];
        // SAFETY: our own reservation, made just now.
        unsafe { sys::call(sys::number::MUNMAP, arguments) };
    }
    is_unused
}

/// Ends the target, which requires an address for a pool at which it cannot be recorded.
fn refuse_address(fd: i32, address: u64) -> ! {
    let path = path_of(fd);
    let path = String::from_utf8_lossy(&path).into_owned();
    let (from, to) = (window().base, window::end_for_pools());
    host::fatal(&format!(
        "the target maps {path} at the fixed address {address:#x}, which cannot be recorded: pools that follow the \
         first one must lie between {from:#x} and {to:#x}, and so must all of a program that makes system calls of \
         its own; addresses that are reserved with PROT_NONE, PROT_READ or MAP_NORESERVE can be used"
    ))
}

/// Maps a file of ours as a pool, at an address in the window at which the target has nothing, or memory that
/// the file takes the place of. Whether it is recorded.
pub(crate) fn map_own(address: u64, len: u64, fd: i32) -> bool {
    ask_host([address, len, 0, 0], fd) == Reply::Record
        && map_recorded(Request {
            address,
            len,
            protection: sys::PROT_READ | sys::PROT_WRITE,
            flags: sys::MAP_SHARED,
            fd,
            offset: 0,
        }) >= 0
}

/// Maps what the host records, where the request says.
fn map_recorded(request: Request) -> isize {
    let Request {
        address: place,
        len,
        protection,
        flags,
        fd,
        offset,
    } = request;
    MAPPED.store(true, Ordering::Release);
    // First the signals: while code is patched, it meets its own breakpoints.
    faults::install();
    Sites::start();
    let flags = flags & !sys::MAP_FIXED_NOREPLACE | sys::MAP_FIXED;
    // SAFETY: the place lies in our window and is not in use, or the target fixed it there.
    unsafe {
        let seen = sys::mmap(place, len, protection & !sys::PROT_WRITE, flags, fd, offset);
        if seen < 0 {
            return seen;
        }
        let both = protection | sys::PROT_READ;
        let alias = sys::mmap(window().alias(place), len, both, flags, fd, offset);
        if alias < 0 {
            return alias;
        }
    }
    if let Some(status) = sys::fstat(fd) {
        let (device, inode) = (status.device, status.inode);
        POOLS.with(|pools| {
            pools.cut(place, len);
            let mapping = Mapping {
                address: place,
                len,
                offset,
                device,
                inode,
            };
            if pools.first_of((device, inode)).is_none() {
                pools.files.push(mapping);
            }
            pools.mappings.push(mapping);
        });
        first_pool::is_mapped();
    }
    place as isize
}

impl Pools {
    /// Takes a range out of what is mapped.
    pub(crate) fn cut(&mut self, address: u64, len: u64) {
        let end = address + len;
        let mappings = core::mem::take(&mut self.mappings);
        for mapping in mappings {
            self.mappings.extend(mapping.part(0, address));
            self.mappings.extend(mapping.part(end, u64::MAX));
        }
        let others = core::mem::take(&mut self.others);
        for (from, to) in others {
            let parts = [(from, to.min(address)), (from.max(end), to)];
            self.others
                .extend(parts.into_iter().filter(|part| part.0 < part.1));
        }
    }

    /// Whether nothing of the target lies in a range.
    pub(crate) fn is_free(&self, address: u64, len: u64) -> bool {
        let end = address + len;
        let mut mappings = self.mappings.iter().chain(&self.shadows);
        !mappings.any(|mapping| mapping.part(address, end).is_some())
            && !self
                .others
                .iter()
                .any(|other| other.0 < end && address < other.1)
    }

    /// Takes a range, if nothing of the target lies in it and nothing will.
    pub(crate) fn claim(&mut self, address: u64, len: u64) -> bool {
        let end = address + len;
        if !self.is_free(address, len) {
            return false;
        }
        if end + WINDOW_GUARD_LEN > self.next {
            if address + ALIGNMENT + WINDOW_GUARD_LEN < self.next
                || end + ALIGNMENT > window::end_for_pools()
            {
                return false;
            }
            self.next = (end + WINDOW_GUARD_LEN).next_multiple_of(ALIGNMENT);
            return true;
        }
        // Not up to the neighbour, between which and us a guard must stay.
        self.is_free(address, len + WINDOW_GUARD_LEN)
    }

    /// Where a file was mapped first.
    fn first_of(&self, identity: (u64, u64)) -> Option<&Mapping> {
        let is_it = |file: &&Mapping| (file.device, file.inode) == identity;
        self.files.iter().find(is_it)
    }

    /// Takes a range for a file, if no other file was mapped there first.
    fn claim_for(&mut self, identity: (u64, u64), address: u64, len: u64) -> bool {
        let is_other = |file: &Mapping| {
            (file.device, file.inode) != identity && file.part(address, address + len).is_some()
        };
        window().contains(address)
            && window().contains(address + len)
            && !self.files.iter().any(is_other)
            && (self.is_free(address - WINDOW_GUARD_LEN, WINDOW_GUARD_LEN)
                && self.claim(address, len)
                || self.is_beside_itself(identity, address, len))
    }

    /// Whether a range is free, was allotted before, and has no neighbours but parts of the same file.
    fn is_beside_itself(&self, identity: (u64, u64), address: u64, len: u64) -> bool {
        let (from, to) = (address - WINDOW_GUARD_LEN, address + len + WINDOW_GUARD_LEN);
        let mut near = self.mappings.iter().chain(&self.shadows);
        to <= self.next
            && self.is_free(address, len)
            && !self
                .others
                .iter()
                .any(|other| other.0 < to && from < other.1)
            && near.all(|mapping| {
                (mapping.device, mapping.inode) == identity || mapping.part(from, to).is_none()
            })
    }

    /// Where a file is mapped for which the target does not require an address. Targets keep addresses in pools: so a
    /// file that was mapped before is mapped at the same address, and a hint is followed as the kernel would.
    fn choose(&mut self, request: Request, status: Option<sys::FileStatus>) -> u64 {
        /// libpmem begins at multiples of this.
        const STEP: u64 = 1 << 30;
        const TRIES: u64 = 1024;
        let len = request.len.next_multiple_of(PAGE);
        let identity = status.map_or((0, 0), |status| (status.device, status.inode));
        let home = self.first_of(identity);
        let home = home.map(|first| (first.address + request.offset).wrapping_sub(first.offset));
        let hint = request.address & !(PAGE - 1);
        let given = home.into_iter().chain([hint]);
        for address in given {
            if self.claim_for(identity, address, len) {
                return address;
            }
        }
        // libpmem looks for addresses that are not in use, so it never proposes one of our window.
        let first = PMDK_HINT.load(Ordering::Relaxed).next_multiple_of(STEP);
        if hint != 0 && first != 0 {
            for number in 0..TRIES {
                if self.claim_for(identity, first + number * STEP, len) {
                    return first + number * STEP;
                }
            }
        }
        match status {
            Some(status) if self.first_of(identity).is_none() => {
                self.allot_file(request.offset, len, status.len_bytes)
            }
            _ => self.allot(len),
        }
    }

    /// The parts of pools in a range, by address.
    pub(crate) fn parts(&self, address: u64, len: u64) -> Vec<Mapping> {
        let part = |mapping: &Mapping| mapping.part(address, address + len);
        let mut parts: Vec<Mapping> = self.mappings.iter().filter_map(part).collect();
        parts.sort_unstable_by_key(|part| part.address);
        parts
    }

    /// Addresses in the window that were never used.
    pub(crate) fn allot(&mut self, len: u64) -> u64 {
        let place = self.next;
        self.next = (place + len + WINDOW_GUARD_LEN).next_multiple_of(ALIGNMENT);
        if self.next >= window::end_for_pools() {
            host::fatal(
                "there is no room for all pools that the target maps (3 TiB, or less beside a fixed address)",
            );
        }
        place
    }

    /// Addresses for a part of a file that is mapped for the first time. There is room for the rest of the file, because
    /// programs that map a file in parts may want to find them side by side, and recoveries may map them in another
    /// order. And there is room to grow, so that a file which is mapped again with a greater length keeps its address.
    fn allot_file(&mut self, offset: u64, len: u64, file_len: u64) -> u64 {
        const STRIDE: u64 = 1 << 30;
        let base = window().base;
        let middle = base + (window::end_for_pools() - base) / 2;
        let whole = offset.saturating_add(len).max(file_len);
        // The other half is for targets that map thousands of files.
        if self.next.saturating_add(whole).saturating_add(STRIDE) > middle {
            return self.allot(len);
        }
        let place = self.allot(whole) + offset;
        self.next = self.next.next_multiple_of(STRIDE);
        place
    }

    /// Whether no pool was mapped yet.
    const fn is_new(&self) -> bool {
        self.mappings.is_empty() && self.shadows.is_empty() && self.files.is_empty()
    }
}

/// Whether the target wants a pool at an address outside of the window.
fn wants_another_window(request: Request) -> bool {
    const REQUIRED: usize = sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE;
    let address = request.address & !(PAGE - 1);
    // libpmem looks for addresses that are not in use, from the hint in its variable on: behind what is ours.
    let is_of_libpmem = PMDK_HINT.load(Ordering::Relaxed) != 0
        && request.flags & REQUIRED == 0
        && (CHUNKS_ADDRESS..FREE_ADDRESS).contains(&address);
    address != 0 && !window().contains(address) && !is_of_libpmem
}

/// Moves the window to where the target wants its first pool. Whether that is possible: code that was emitted keeps
/// its borders.
fn move_window(request: Request) -> bool {
    let is_fixed = request.flags & sys::MAP_FIXED != 0;
    let address = request.address & !(PAGE - 1);
    let len = request.len.next_multiple_of(PAGE);
    let Some(base) = address.checked_sub(ALIGNMENT) else {
        return false;
    };
    if Sites::are_known() || registered_ranges::are_expected() {
        return false;
    }
    POOLS.with(|pools| {
        if !pools.is_new() || !is_fixed && !pools.others.is_empty() {
            return false;
        }
        let room = len + ALIGNMENT + 2 * WINDOW_GUARD_LEN;
        let Some(window_len) = reserve_longest(base, room).or_else(|| {
            if !is_fixed {
                return None;
            }
            let arguments = [address as usize, len as usize, 0, 0, 0, 0];
            // SAFETY: the target gives these addresses up, because it maps a file there.
            unsafe { sys::call(sys::number::MUNMAP, arguments) };
            reserve_longest(base, room)
        }) else {
            return false;
        };
        // What the target has in the window of before is memory like any other.
        pools.others.clear();
        window::set(base, window_len);
        pools.next = (address + len + WINDOW_GUARD_LEN).next_multiple_of(ALIGNMENT);
        true
    })
}

/// Reserves addresses from one on, as many as are free, but no fewer than are needed.
fn reserve_longest(base: u64, needed: u64) -> Option<u64> {
    let mut len = WINDOW_LEN;
    while len >= needed {
        if reserve(base, len, sys::MAP_FIXED_NOREPLACE) == base as isize {
            return Some(len);
        }
        len /= 2;
    }
    None
}

/// The window goes back to its own place: what was to be mapped is not a pool.
fn move_window_back() {
    let PoolWindow {
        base, len_bytes, ..
    } = window();
    POOLS.with(|pools| {
        window::set(WINDOW_ADDRESS, WINDOW_LEN);
        pools.next = WINDOW_ADDRESS + ALIGNMENT;
        let arguments = [base as usize, len_bytes as usize, 0, 0, 0, 0];
        // SAFETY: our own reservation, in which nothing was mapped.
        unsafe { sys::call(sys::number::MUNMAP, arguments) };
    });
}

/// Whether all of a range of addresses is memory of the target in the window that is not a pool.
pub(crate) fn is_all_other(address: u64, len: u64) -> bool {
    window().contains(address)
        && POOLS.with(|pools| {
            let holds = |range: &(u64, u64)| range.0 <= address && address + len <= range.1;
            pools.others.iter().any(holds)
        })
}

/// Something that is not a pool is mapped over a part of the window.
fn map_other_in_window(request: Request) -> isize {
    let Request {
        address,
        len,
        protection,
        flags,
        fd,
        offset,
    } = request;
    // That nothing of the target's is there was seen to: the reservation is ours.
    let flags = flags & !sys::MAP_FIXED_NOREPLACE | sys::MAP_FIXED;
    // SAFETY: the target replaces its own mapping; the alias of it is of no use any more.
    unsafe {
        let result = sys::mmap(address, len, protection, flags, fd, offset);
        if result >= 0 {
            let len = len.next_multiple_of(PAGE);
            reserve(window().alias(address), len, sys::MAP_FIXED);
            POOLS.with(|pools| {
                pools.cut(address, len);
                pools.others.push((address, address + len));
            });
        }
        result
    }
}

fn is_free(address: u64, len: u64) -> bool {
    POOLS.with(|pools| pools.is_free(address, len.next_multiple_of(PAGE)))
}

/// Whether the target reserves addresses, to map something there later. It may be a pool, so they
/// must lie in the window. libpmem2 reserves them with memory that can be read but never has content.
fn is_reservation(request: Request) -> bool {
    const LEN_MIN: u64 = 64 * 1024;
    let is_without_content = matches!(request.protection, sys::PROT_NONE | sys::PROT_READ);
    request.address == 0
        && (is_without_content || request.flags & sys::MAP_NORESERVE != 0)
        && request.flags & sys::MAP_TYPE == sys::MAP_PRIVATE
        && request.flags & sys::MAP_ANONYMOUS != 0
        && request.flags & sys::MAP_FIXED == 0
        && (LEN_MIN..WINDOW_LEN / 4).contains(&request.len)
}

/// Gives the target addresses in the window, which are reserved already.
fn hand_out(request: Request) -> isize {
    let len = request.len.next_multiple_of(PAGE);
    let place = POOLS.with(|pools| {
        let place = pools.allot(len);
        pools.others.push((place, place + len));
        place
    });
    if request.protection != sys::PROT_NONE {
        let arguments = [place as usize, len as usize, request.protection, 0, 0, 0];
        // SAFETY: nothing lies there but our reservation.
        unsafe { sys::call(sys::number::MPROTECT, arguments) };
    }
    place as isize
}

/// Where the kernel can write what the target sees at an address: the alias, if that is in a pool.
pub(crate) fn writable(address: usize) -> usize {
    if is_in_pool(address as u64) {
        window().alias(address as u64) as usize
    } else {
        address
    }
}

/// The first part of a range that lies in a pool: from, to.
pub(crate) fn first_part(from: u64, to: u64) -> Option<(u64, u64)> {
    if to <= window().base || window().base + window().len_bytes <= from {
        return None;
    }
    POOLS.with(|pools| {
        let parts = pools
            .mappings
            .iter()
            .filter_map(|mapping| mapping.part(from, to));
        parts.map(|part| (part.address, part.end())).min()
    })
}

/// Whether an address is in a pool.
pub(crate) fn is_in_pool(address: u64) -> bool {
    host::attached()
        && window().contains(address)
        && POOLS.with(|pools| !pools.parts(address, 1).is_empty())
}

/// How many bytes of a range, from its beginning, lie in pools.
pub(crate) fn len_within(address: u64, len: u64) -> u64 {
    let end = address.saturating_add(len);
    let mut at = address;
    while let Some((from, to)) = first_part(at, end) {
        if from != at {
            break;
        }
        at = to;
    }
    at - address
}

/// Where a pool's file has an offset in the window, or would have it if all of it was mapped: a store to it there takes the
/// same store lock.
pub(crate) fn address_in(fd: i32, offset: u64) -> u64 {
    let first = mappings_of(fd).into_iter().next();
    first.map_or(offset, |mapping| {
        mapping
            .address
            .wrapping_sub(mapping.offset)
            .wrapping_add(offset)
    })
}

/// Whether an address in the window is of memory of the target that is not a pool.
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

pub(crate) fn path_of(fd: i32) -> Vec<u8> {
    let link = format!("/proc/self/fd/{fd}\0");
    let Ok(link) = core::ffi::CStr::from_bytes_with_nul(link.as_bytes()) else {
        return Vec::new();
    };
    let mut path = vec![0; 4096];
    let len = host::read_link(link, &mut path);
    path.truncate(len);
    path
}

pub(crate) fn reserve(address: u64, len: u64, fixed: usize) -> isize {
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE | fixed;
    // SAFETY: callers pass MAP_FIXED only for memory that they give up; without it nothing is replaced.
    unsafe { sys::mmap(address, len, sys::PROT_NONE, flags, -1, 0) }
}

/// Reserves the window and its alias, so that nothing else is mapped there.
pub(crate) fn reserve_window() {
    let result = reserve(WINDOW_ADDRESS, 2 * WINDOW_LEN, sys::MAP_FIXED_NOREPLACE);
    if result != WINDOW_ADDRESS as isize {
        host::fatal("the address range that powerfail needs for pools is in use");
    }
    let hint = std::env::var(PMDK_HINT_VARIABLE).unwrap_or_default();
    let hint = u64::from_str_radix(hint.trim_start_matches("0x"), 16).unwrap_or(0);
    if window().contains(hint) {
        PMDK_HINT.store(hint, Ordering::Relaxed);
    }
}

/// Shows the file to the host, which reads its content, and waits for the answer. `mapping` is where it is to be mapped, how
/// much, from which offset on, and 1 if without `MAP_SYNC`.
fn ask_host(mapping: [u64; 4], fd: i32) -> Reply {
    let [place, len, offset, imitates_dax] = mapping;
    let Some(slot) = threads::slot() else {
        return Reply::Ignore;
    };
    if fuzz::is_active() {
        return fuzz::decide(&path_of(fd), [place, len, offset]);
    }
    slot.reply.store(0, Ordering::Release);
    let words = [place, len, offset, threads::index_of(slot), imitates_dax];
    if !host::send(MessageKind::PoolMap, words, &path_of(fd), Some(fd)) {
        host::unreachable();
    }
    loop {
        match slot.reply.load(Ordering::Acquire) {
            0 => sys::futex_wait(&slot.reply, 0),
            reply => {
                threads::keep_up_with_host();
                let is_pool = reply == Reply::Record as u32;
                return if is_pool {
                    Reply::Record
                } else {
                    Reply::Ignore
                };
            }
        }
    }
}

/// Unmaps a range; `None` if it is not in the window.
pub(crate) fn unmap(address: u64, len: u64) -> Option<isize> {
    if !host::attached() || !window().contains(address) {
        return None;
    }
    let len = len.next_multiple_of(PAGE);
    reserve(address, len, sys::MAP_FIXED);
    reserve(window().alias(address), len, sys::MAP_FIXED);
    POOLS.with(|pools| pools.cut(address, len));
    Some(0)
}

/// A range of a pool, or of whatever lies there, was made durable.
pub(crate) fn synced(address: u64, len: u64) {
    synced_as_found(address, len, None);
}

/// The same, with the word at its beginning, as it was before the call that made it durable.
pub(crate) fn synced_as_found(address: u64, len: u64, found: Option<u64>) {
    if host::attached() && window().contains(address) {
        let len = len.to_le_bytes();
        let found = found.map(u64::to_le_bytes);
        let found = found.as_ref().map_or(&[][..], |word| &word[..]);
        append::append(EventKind::Sync, Some(address), &[&len, found]);
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
        let all = pools.mappings.iter().chain(&pools.shadows);
        all.filter(|mapping| (mapping.device, mapping.inode) == (status.device, status.inode))
            .copied()
            .collect()
    })
}

/// Lets unused addresses stand for a part of a pool's file.
fn add_shadow(fd: i32, offset: u64) -> Option<Mapping> {
    const LEN: u64 = 64 << 20;
    let status = sys::fstat(fd)?;
    let offset = offset / LEN * LEN;
    let address = POOLS.with(|pools| pools.allot(LEN));
    if ask_host([address, LEN, offset, 0], fd) == Reply::Ignore {
        return None;
    }
    let shadow = Mapping {
        address,
        len: LEN,
        offset,
        device: status.device,
        inode: status.inode,
    };
    POOLS.with(|pools| pools.shadows.push(shadow));
    Some(shadow)
}

/// The ranges, by address and length, in which a file is mapped.
pub(crate) fn ranges_of(fd: i32) -> Vec<(u64, u64)> {
    let mappings = mappings_of(fd).into_iter();
    mappings
        .map(|mapping| (mapping.address, mapping.len))
        .collect()
}

/// A whole file was made durable.
pub(crate) fn file_synced(fd: i32) {
    for (address, len) in ranges_of(fd) {
        synced(address, len);
    }
}

/// Whether a descriptor is that of a pool, mapped now or before.
pub(crate) fn is_pool(fd: i32) -> bool {
    host::attached()
        && MAPPED.load(Ordering::Acquire)
        && sys::fstat(fd).is_some_and(|status| {
            POOLS.with(|pools| pools.first_of((status.device, status.inode)).is_some())
        })
}

/// A pool's file has a new length.
pub(crate) fn resized(fd: i32, len: u64) {
    if !is_pool(fd) {
        return;
    }
    let mapping = mappings_of(fd).first().copied();
    if let Some(mapping) = mapping.or_else(|| add_shadow(fd, 0)) {
        append::append(
            EventKind::Resize,
            Some(mapping.address),
            &[&len.to_le_bytes()],
        );
    }
}

/// The target has written to a pool's file with a system call.
pub(crate) fn file_written(fd: i32, offset: u64, bytes: &[u8]) {
    let (mut at, end) = (offset, offset + bytes.len() as u64);
    while at < end {
        let holds = |mapping: &Mapping| at.wrapping_sub(mapping.offset) < mapping.len;
        let mapping = mappings_of(fd).into_iter().find(holds);
        let Some(mapping) = mapping.or_else(|| add_shadow(fd, at)) else {
            host::warn(
                "the target wrote to a part of a pool's file that cannot be mapped; the write is not recorded",
            );
            return;
        };
        let to = end.min(mapping.offset + mapping.len);
        let piece = &bytes[(at - offset) as usize..(to - offset) as usize];
        append::append_system_store(mapping.address + (at - mapping.offset), piece);
        at = to;
    }
}
