//! Mappings of pools that a lazy execution makes, changes and gives up.
//!
//! # Safety
//!
//! Calls are those that the recovery makes. Mappings of pools that they replace or remove are given up before, and
//! pages that must stay hidden are hidden after.
#![allow(unsafe_code, reason = "makes system calls of the recovery")]

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;

use crate::platform::number::OPEN;
use crate::platform::sys;
use crate::record::{dax, pools};

use super::pages::protect;
use super::pool_addresses;
use super::shared_file;
use super::state::{self, Mapping, PAGE, State};

const ENOMEM: isize = 12;
const MAP_SYNC: usize = 0x8_0000;

/// What mmap was asked for.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) protection: usize,
    pub(super) flags: usize,
    pub(super) fd: i32,
    pub(super) offset: u64,
}

impl Request {
    pub(super) fn of(arguments: [usize; 6]) -> Self {
        Self {
            address: arguments[0] as u64,
            len: arguments[1] as u64,
            protection: arguments[2],
            flags: arguments[3],
            fd: arguments[4] as i32,
            offset: arguments[5] as u64,
        }
    }

    fn perform(&self) -> isize {
        // SAFETY: the recovery makes this `mmap`; callers have seen to the pools that it replaces.
        unsafe {
            sys::mmap(
                self.address,
                self.len,
                self.protection,
                self.flags,
                self.fd,
                self.offset,
            )
        }
    }

    /// The pool that is to be mapped.
    pub(super) fn pool(&self) -> Option<u32> {
        if self.flags & sys::MAP_ANONYMOUS != 0 {
            return None;
        }
        state::pool_of(self.fd)
    }
}

impl From<Request> for pools::Request {
    fn from(request: Request) -> Self {
        Self {
            address: request.address,
            len: request.len,
            protection: request.protection,
            flags: request.flags,
            fd: request.fd,
            offset: request.offset,
        }
    }
}

/// One process at a time has pools mapped.
fn claim() {
    let me = sys::getpid();
    let attached = &shared_file::control().attached;
    let other = attached.load(Ordering::Acquire);
    if other != 0 && other != me && sys::is_alive(other, other) {
        let reason = "two processes of the recovery have a pool mapped at the same time";
        super::refuse(reason);
    }
    attached.store(me, Ordering::Release);
}

impl State {
    /// Maps what the recovery asks for; the address, or a negative error number.
    pub(super) fn map(&mut self, mut request: Request) -> isize {
        let len = request.len.next_multiple_of(PAGE);
        if request.pool().is_some() {
            request.flags = dax::granted(request.flags);
        }
        if request.flags & sys::MAP_FIXED != 0 {
            self.give_up(request.address, len);
        }
        let place = pool_addresses::map(request.into()).unwrap_or_else(|| request.perform());
        let Some(pool) = request.pool().filter(|_| place > 0) else {
            return place;
        };
        self.begin();
        claim();
        let place = place as u64;
        let is_private = request.flags & sys::MAP_TYPE == sys::MAP_PRIVATE;
        if self.is_private {
            self.bring_home(pool);
            let again = Request {
                address: place,
                flags: request.flags & !(sys::MAP_TYPE | MAP_SYNC | sys::MAP_FIXED_NOREPLACE)
                    | sys::MAP_PRIVATE
                    | sys::MAP_FIXED,
                ..request
            };
            if again.perform() < 0 {
                super::refuse("a pool cannot be mapped privately");
            }
        }
        let mapping = Mapping {
            address: place,
            len,
            pool,
            offset: request.offset,
            protection: request.protection,
            is_private,
            own: BTreeSet::new(),
        };
        self.crowd(&mapping);
        self.mappings.push(mapping);
        self.arrange_all(self.mappings.len() - 1);
        place as isize
    }

    /// Pages that are mapped once more, where mappings do not see each other.
    fn crowd(&mut self, new: &Mapping) {
        if !self.is_private || new.is_private {
            return;
        }
        for index in 0..self.mappings.len() {
            let other = &self.mappings[index];
            if other.pool != new.pool || other.is_private {
                continue;
            }
            let from = new.offset.max(other.offset);
            let to = (new.offset + new.len).min(other.offset + other.len);
            for offset in (from..to).step_by(PAGE as usize) {
                if self.crowded.insert((new.pool, offset)) {
                    self.arrange(index, offset);
                }
            }
        }
    }

    /// Gives each page of a new mapping the rights and the content that it must have.
    fn arrange_all(&mut self, index: usize) {
        let mapping = &self.mappings[index];
        let (pool, from, to) = (mapping.pool, mapping.offset, mapping.offset + mapping.len);
        let rights = self.rights(index);
        if rights != mapping.protection {
            protect(mapping.address, mapping.len, rights);
        }
        let mut offsets: BTreeSet<u64> = BTreeSet::new();
        let pages = shared_file::open_pages();
        let first = pages.partition_point(|page| (page.pool, page.offset) < (pool, from));
        for (number, page) in pages.iter().enumerate().skip(first) {
            if page.pool != pool || page.offset >= to {
                break;
            }
            if self.is_watched(number) {
                offsets.insert(page.offset);
            }
        }
        let crowded = self.crowded.range((pool, from)..(pool, to));
        offsets.extend(crowded.map(|(_, offset)| *offset));
        if self.is_private {
            let file = &self.pools[pool as usize];
            let len = (to - from).min(file.len.next_multiple_of(PAGE).saturating_sub(from));
            for_each_changed(file.home + from, len, |address| {
                offsets.insert(address - file.home);
            });
        }
        // Pages that have only to be hidden are many, and often side by side.
        let mut hidden = (0, 0);
        for offset in offsets {
            if !self.only_hides(index, offset) {
                self.arrange(index, offset);
                continue;
            }
            let mapping = &self.mappings[index];
            let address = mapping.address + (offset - mapping.offset);
            if hidden.1 != address {
                hide_range(hidden);
                hidden.0 = address;
            }
            hidden.1 = address + PAGE;
            self.publish(index, offset);
        }
        hide_range(hidden);
    }

    /// Brings home what the recovery has changed in pages that it has for itself.
    pub(super) fn bring_home(&mut self, pool: u32) {
        if !self.is_private {
            return;
        }
        let end = self.pools[pool as usize].len.next_multiple_of(PAGE);
        for mapping in &self.mappings {
            if mapping.pool != pool || mapping.is_private || mapping.protection == sys::PROT_NONE {
                continue;
            }
            let home = self.pools[pool as usize].home;
            let len = mapping.len.min(end.saturating_sub(mapping.offset));
            for_each_changed(mapping.address, len, |address| {
                let offset = mapping.offset + (address - mapping.address);
                if !self.is_stepped(pool, offset) {
                    super::pages::copy(address, home + offset);
                }
            });
        }
    }

    /// A range of addresses is about to be no pool's any more.
    fn give_up(&mut self, address: u64, len: u64) {
        let end = address.saturating_add(len);
        if !self
            .mappings
            .iter()
            .any(|it| it.address < end && address < it.end())
        {
            return;
        }
        for pool in 0..self.pools.len() as u32 {
            self.bring_home(pool);
        }
        self.split(address);
        self.split(end);
        let is_left = |it: &Mapping| it.end() <= address || end <= it.address;
        for index in 0..self.mappings.len() {
            if !is_left(&self.mappings[index]) {
                self.withdraw(index);
            }
        }
        self.mappings.retain(is_left);
        let crowded = core::mem::take(&mut self.crowded);
        for (pool, offset) in crowded {
            let is_here =
                |it: &Mapping| it.pool == pool && !it.is_private && it.address_of(offset).is_some();
            let holders = self.mappings.iter().filter(|it| is_here(it)).count();
            if holders > 1 {
                self.crowded.insert((pool, offset));
                continue;
            }
            for index in 0..self.mappings.len() {
                if is_here(&self.mappings[index]) {
                    self.arrange(index, offset);
                }
            }
        }
        // What a private execution has done is in this process, until it ends.
        if self.mappings.is_empty() && !self.is_private {
            shared_file::control().attached.store(0, Ordering::Release);
        }
    }

    /// Makes two mappings of one that an address lies inside of.
    fn split(&mut self, address: u64) {
        let Some(index) = self
            .mappings
            .iter()
            .position(|it| it.address < address && address < it.end())
        else {
            return;
        };
        let whole = &mut self.mappings[index];
        let len = address - whole.address;
        let offset = whole.offset + len;
        let behind = Mapping {
            address,
            len: whole.len - len,
            offset,
            own: whole.own.split_off(&offset),
            ..*whole
        };
        whole.len = len;
        self.mappings.push(behind);
    }

    /// Unmaps a range.
    pub(super) fn unmap(&mut self, arguments: [usize; 6]) -> isize {
        let len = (arguments[1] as u64).next_multiple_of(PAGE);
        self.give_up(arguments[0] as u64, len);
        // SAFETY: the recovery makes this `munmap`, and the mappings of pools in the range were given up above.
        unsafe { sys::call(sys::number::MUNMAP, arguments) }
    }

    /// Changes the rights of a range.
    pub(super) fn change_rights(&mut self, arguments: [usize; 6]) -> isize {
        let address = arguments[0] as u64;
        let end = address.saturating_add((arguments[1] as u64).next_multiple_of(PAGE));
        // What was changed must not be out of reach.
        for pool in 0..self.pools.len() as u32 {
            self.bring_home(pool);
        }
        // SAFETY: the recovery makes this `mprotect`; pages that must stay hidden are hidden again below.
        let done = unsafe { sys::call(sys::number::MPROTECT, arguments) };
        if done < 0 {
            return done;
        }
        self.split(address);
        self.split(end);
        for index in 0..self.mappings.len() {
            let mapping = &mut self.mappings[index];
            if mapping.address < address || mapping.end() > end {
                continue;
            }
            mapping.protection = arguments[2];
            let (start, len) = (mapping.address, mapping.len);
            protect(start, len, self.rights(index));
            let mapping = &self.mappings[index];
            for offset in (mapping.offset..mapping.offset + len).step_by(PAGE as usize) {
                if !mapping.own.contains(&offset) && self.is_stepped(mapping.pool, offset) {
                    let place = mapping.address + (offset - mapping.offset);
                    protect(place, PAGE, sys::PROT_NONE);
                }
            }
            self.publish_all(index);
        }
        0
    }

    /// Moves or resizes a mapping; `None` if it is no pool's.
    pub(super) fn remap(&mut self, arguments: [usize; 6]) -> Option<isize> {
        const MAYMOVE: usize = 1;
        let [address, old_len, new_len, flags, ..] = arguments;
        let address = address as u64;
        let old_len = (old_len as u64).next_multiple_of(PAGE);
        let new_len = (new_len as u64).next_multiple_of(PAGE);
        let index = self.mapping_at(address)?;
        if flags & !MAYMOVE != 0 || old_len == 0 || new_len == 0 {
            super::refuse("the recovery moves a pool with mremap to a fixed address");
        }
        if self.mappings[index].is_private {
            super::refuse("the recovery resizes a private mapping of a pool");
        }
        if new_len <= old_len {
            let behind = [
                (address + new_len) as usize,
                (old_len - new_len) as usize,
                0,
                0,
                0,
                0,
            ];
            if new_len < old_len {
                self.unmap(behind);
            }
            return Some(address as isize);
        }
        let mapping = &self.mappings[index];
        let whole = Request {
            address: 0,
            len: new_len,
            protection: mapping.protection,
            flags: sys::MAP_SHARED,
            fd: self.pools[mapping.pool as usize].fd,
            offset: mapping.offset + (address - mapping.address),
        };
        let behind = Request {
            address: address + old_len,
            len: new_len - old_len,
            flags: sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE,
            offset: whole.offset + old_len,
            ..whole
        };
        if self.map(behind) >= 0 {
            return Some(address as isize);
        }
        if flags & MAYMOVE == 0 {
            return Some(-ENOMEM);
        }
        let place = self.map(whole);
        if place >= 0 {
            self.unmap([address as usize, old_len as usize, 0, 0, 0, 0]);
        }
        Some(place)
    }
}

/// Takes all rights from a range of addresses, which may be empty.
fn hide_range((from, to): (u64, u64)) {
    if from < to {
        protect(from, to - from, sys::PROT_NONE);
    }
}

/// Shows the pages of a private mapping that are not those of the file any more.
fn for_each_changed(address: u64, len: u64, mut show: impl FnMut(u64)) {
    const O_CLOEXEC: usize = 0o2_000_000;
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    const BATCH: usize = 512;
    let path = c"/proc/self/pagemap".as_ptr() as usize;
    // SAFETY: the kernel reads the path, a constant with a zero byte at its end, and writes nothing.
    let fd = unsafe { sys::call(OPEN, [path, O_CLOEXEC, 0, 0, 0, 0]) };
    if fd < 0 {
        super::refuse("/proc/self/pagemap cannot be read");
    }
    let mut entries = [0u64; BATCH];
    let (mut page, end) = (address / PAGE, (address + len).div_ceil(PAGE));
    while page < end {
        let count = (end - page).min(BATCH as u64) as usize;
        let place = entries.as_mut_ptr() as usize;
        let arguments = [fd as usize, place, 8 * count, 8 * page as usize, 0, 0];
        // SAFETY: the kernel writes no more than there is.
        let done = unsafe { sys::call(sys::number::PREAD64, arguments) };
        if done <= 0 {
            break;
        }
        for entry in &entries[..done as usize / 8] {
            let is_there = entry & (PRESENT | SWAPPED) != 0;
            if is_there && (entry & OF_FILE == 0) {
                show(page * PAGE);
            }
            page += 1;
        }
    }
    sys::close(fd as i32);
}
