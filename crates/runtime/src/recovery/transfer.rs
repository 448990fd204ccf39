//! What the kernel reads from pools and writes to them: buffers in their memory, and their files.
//!
//! A call that concerns a pool is made on a buffer of ours. Before bytes of a pool go out, what they can
//! be is decided; bytes that come in overwrite what was there.
//!
//! # Safety
//!
//! Callers pass a call that the recovery makes now. Buffers are mapped here for one call; the truth of each page of
//! a pool is mapped, and used only with the turn.
#![allow(unsafe_code, reason = "makes system calls of the recovery")]

use core::sync::atomic::Ordering;

use crate::platform::iovec::{self, Message, Part};
use crate::platform::sys;

use super::pages::{protect, table_page};
use super::pool_calls::Call;
use super::state::{self, PAGE, State};
use super::{shared_file, turn};
use crate::platform::number::{
    GETRANDOM, LSEEK, PREAD64, PREADV, PREADV2, PROCESS_VM_WRITEV, PWRITE64, PWRITEV, PWRITEV2,
    READ, READV, RECVFROM, RECVMSG, SENDMSG, SENDTO, WRITE, WRITEV,
};

const SEEK_SET: usize = 0;
const SEEK_CUR: usize = 1;

/// Memory of ours, for the time of one call.
struct Buffer {
    address: u64,
    len: u64,
}

impl Buffer {
    fn new(len: u64) -> Self {
        let len = len.max(1).next_multiple_of(PAGE);
        let Some(address) = sys::map_anywhere(len) else {
            super::refuse("out of memory for a copy of a buffer");
        };
        Self { address, len }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let arguments = [self.address as usize, self.len as usize, 0, 0, 0, 0];
        // SAFETY: the memory was mapped for this buffer, and nothing refers to it any more.
        unsafe { sys::call(sys::number::MUNMAP, arguments) };
    }
}

/// What a call transfers.
struct Transfer {
    parts: [Part; 1],
    /// Parts in the memory of the recovery; none if there is only one.
    scattered: Option<&'static [Part]>,
    is_input: bool,
    /// Which argument is the buffer, if it is one.
    buffer: usize,
    offset: Option<u64>,
    /// Whether the descriptor may be that of a file.
    is_file: bool,
}

impl Transfer {
    fn of(call: &Call) -> Option<Self> {
        let [_, second, third, fourth, ..] = call.arguments;
        let one = |address: usize, len: usize| {
            [Part {
                address: address as u64,
                len: len as u64,
            }]
        };
        let is_input = matches!(
            call.number,
            READ | PREAD64 | READV | PREADV | PREADV2 | RECVFROM | RECVMSG | GETRANDOM
        );
        let mut transfer = Self {
            parts: one(second, third),
            scattered: None,
            is_input,
            buffer: 1,
            offset: None,
            is_file: true,
        };
        match call.number {
            READ | WRITE => {}
            PREAD64 | PWRITE64 => transfer.offset = Some(fourth as u64),
            READV | WRITEV => transfer.scattered = Some(scattered(second, third)),
            PREADV | PWRITEV | PREADV2 | PWRITEV2 => {
                transfer.scattered = Some(scattered(second, third));
                // This offset means the position of the descriptor.
                transfer.offset = Some(fourth as u64).filter(|offset| *offset != u64::MAX);
            }
            RECVFROM | SENDTO => transfer.is_file = false,
            GETRANDOM => {
                transfer.parts = one(call.arguments[0], second);
                transfer.buffer = 0;
                transfer.is_file = false;
            }
            RECVMSG | SENDMSG => {
                let message = second as *const Message;
                if message.is_null() {
                    return None;
                }
                // SAFETY: the recovery passes this message to the kernel.
                transfer.scattered = Some(unsafe { iovec::parts_of_message(message) });
                transfer.is_file = false;
            }
            _ => return None,
        }
        Some(transfer)
    }

    fn parts(&self) -> &[Part] {
        self.scattered.unwrap_or(&self.parts)
    }

    fn len(&self) -> u64 {
        iovec::len_of(self.parts())
    }
}

fn scattered(address: usize, count: usize) -> &'static [Part] {
    // SAFETY: the two are arguments of the call, which the recovery passes to the kernel.
    unsafe { iovec::parts(address, count) }
}

/// Makes a call that transfers bytes from or to a pool; `None` if it is none.
pub(super) fn perform(call: &Call) -> Option<isize> {
    let transfer = Transfer::of(call)?;
    let pool = if transfer.is_file {
        state::pool_of(call.fd())
    } else {
        None
    };
    let in_pool = turn::take(|state| {
        transfer
            .parts()
            .iter()
            .any(|part| state.is_in_pool(part.address, part.len))
    });
    if pool.is_none() && !in_pool {
        return None;
    }
    if pool.is_some() {
        turn::take(State::begin);
    }
    Some(if transfer.is_input {
        receive(call, &transfer, pool)
    } else {
        send(call, &transfer, pool)
    })
}

/// The same call, with one buffer of ours.
fn make_with(call: &Call, transfer: &Transfer, buffer: &Buffer, len: u64) -> isize {
    let mut call = *call;
    let Some(_) = transfer.scattered else {
        call.arguments[transfer.buffer] = buffer.address as usize;
        return call.make();
    };
    let part = Part {
        address: buffer.address,
        len,
    };
    if matches!(call.number, RECVMSG | SENDMSG) {
        let original = call.arguments[1] as *mut Message;
        // SAFETY: the recovery passes this message to the kernel; `Transfer::of` has seen that it is not null.
        return unsafe {
            iovec::with_other_parts(original, &[part], |message| {
                call.arguments[1] = message;
                call.make()
            })
        };
    }
    call.arguments[1] = &raw const part as usize;
    call.arguments[2] = 1;
    call.make()
}

fn position(call: &Call, transfer: &Transfer) -> u64 {
    transfer.offset.unwrap_or_else(|| {
        // SAFETY: `lseek` by nothing from the current position takes no pointer and changes nothing.
        let at = unsafe { sys::call(LSEEK, [call.arguments[0], 0, SEEK_CUR, 0, 0, 0]) };
        at.max(0) as u64
    })
}

fn receive(call: &Call, transfer: &Transfer, pool: Option<u32>) -> isize {
    let len = transfer.len();
    let buffer = Buffer::new(len);
    let at = position(call, transfer);
    let done = make_with(call, transfer, &buffer, len);
    if done <= 0 {
        return done;
    }
    let count = done as u64;
    turn::take(|state| {
        if let Some(pool) = pool {
            state.read_file(pool, at, count, buffer.address, call);
        }
        let mut from = buffer.address;
        let mut left = count;
        for part in transfer.parts() {
            let len = part.len.min(left);
            state.store(part.address, from, len, call);
            from += len;
            left -= len;
        }
    });
    done
}

fn send(call: &Call, transfer: &Transfer, pool: Option<u32>) -> isize {
    let len = transfer.len();
    let buffer = Buffer::new(len);
    turn::take(|state| {
        let mut to = buffer.address;
        for part in transfer.parts() {
            state.load(part.address, to, part.len, call);
            to += part.len;
        }
    });
    let Some(pool) = pool else {
        return make_with(call, transfer, &buffer, len);
    };
    let at = if is_appending(call.fd()) {
        sys::fstat(call.fd()).map_or(0, |status| status.len_bytes)
    } else {
        position(call, transfer)
    };
    let is_private = turn::take(|state| state.is_private);
    let done = if is_private {
        if at + len > turn::take(|state| state.pools[pool as usize].len) {
            super::refuse_private("the recovery makes a pool longer by writing to its file");
        }
        if transfer.offset.is_none() {
            let arguments = [call.arguments[0], (at + len) as usize, SEEK_SET, 0, 0, 0];
            // SAFETY: the position that the write would have left.
            unsafe { sys::call(LSEEK, arguments) };
        }
        len as isize
    } else {
        make_with(call, transfer, &buffer, len)
    };
    if done > 0 {
        turn::take(|state| {
            state.write_file(pool, at, buffer.address, done as u64, call.code.pc);
        });
    }
    done
}

fn is_appending(fd: i32) -> bool {
    const F_GETFL: usize = 3;
    const O_APPEND: usize = 0o2000;
    // SAFETY: `F_GETFL` takes no pointer and changes nothing.
    let flags = unsafe { sys::call(sys::number::FCNTL, [fd as usize, F_GETFL, 0, 0, 0, 0]) };
    flags > 0 && flags as usize & O_APPEND != 0
}

/// Copies bytes from or to memory of the target that may not be there; whether it was.
fn copy_target(number: usize, own: u64, target: u64, len: u64) {
    let own = [own as usize, len as usize];
    let other = [target as usize, len as usize];
    let arguments = [
        sys::getpid() as usize,
        own.as_ptr() as usize,
        1,
        other.as_ptr() as usize,
        1,
        0,
    ];
    // SAFETY: the kernel copies, or says that it cannot.
    unsafe { sys::call(number, arguments) };
}

impl State {
    fn is_in_pool(&self, address: u64, len: u64) -> bool {
        let end = address.saturating_add(len);
        self.mappings
            .iter()
            .any(|it| it.address < end && address < it.end())
    }

    /// Calls `work` with each part of a range that lies in one page: its address, its length, and if it is a pool's, the
    /// mapping and the offset in the pool.
    fn for_each_piece(
        &mut self,
        address: u64,
        len: u64,
        mut work: impl FnMut(&mut Self, u64, u64, Option<(usize, u64)>),
    ) {
        let (mut at, end) = (address, address.saturating_add(len));
        while at < end {
            let next = ((at / PAGE + 1) * PAGE).min(end);
            let place = self.mapping_at(at).map(|index| {
                let mapping = &self.mappings[index];
                (index, mapping.offset + (at - mapping.address))
            });
            work(self, at, next - at, place);
            at = next;
        }
    }

    /// Whether a page of a mapping is hidden.
    fn is_hidden(&self, mapping: usize, offset: u64) -> bool {
        let page = offset / PAGE * PAGE;
        let mapping = &self.mappings[mapping];
        !mapping.own.contains(&page) && self.is_stepped(mapping.pool, page)
    }

    /// Reads memory of the recovery for the kernel.
    fn load(&mut self, address: u64, to: u64, len: u64, call: &Call) {
        self.for_each_piece(address, len, |state, at, len, place| {
            let to = to + (at - address);
            if let Some((mapping, offset)) = place
                && state.is_hidden(mapping, offset)
            {
                let (pool, page) = (state.mappings[mapping].pool, offset / PAGE * PAGE);
                let source = state.decide_bytes(pool, page, offset - page, len, call);
                // SAFETY: the truth is mapped, and the buffer is long enough.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        source as *const u8,
                        to as *mut u8,
                        len as usize,
                    );
                }
                return;
            }
            copy_target(sys::number::PROCESS_VM_READV, to, at, len);
        });
    }

    /// The kernel reads bytes of a hidden page: where they are, when it is decided what they are.
    fn decide_bytes(&mut self, pool: u32, page: u64, from: u64, len: u64, call: &Call) -> u64 {
        if let Some(index) = table_page(pool, page) {
            let was_open = self.pages[index].open > 0;
            self.observe(index, from, from + len, call.code);
            self.maybe_settle(index, was_open);
        }
        shared_file::control().traps.fetch_add(1, Ordering::Relaxed);
        self.truth(pool, page, None) + from
    }

    /// Writes memory of the recovery for the kernel.
    fn store(&mut self, address: u64, from: u64, len: u64, call: &Call) {
        self.for_each_piece(address, len, |state, at, len, place| {
            let from = from + (at - address);
            let Some((mapping, offset)) = place else {
                copy_target(PROCESS_VM_WRITEV, from, at, len);
                return;
            };
            if state.mappings[mapping].is_private {
                state.own_page(mapping, offset / PAGE * PAGE, call);
                copy_target(PROCESS_VM_WRITEV, from, at, len);
                return;
            }
            let pool = state.mappings[mapping].pool;
            state.write_page(pool, offset, from, len, call.code.pc);
        });
    }

    /// A private page of the recovery is written by the kernel: it is its own from now on.
    fn own_page(&mut self, mapping: usize, page: u64, call: &Call) {
        if !self.is_hidden(mapping, page) {
            return;
        }
        // All that could be observed there is decided before.
        let pool = self.mappings[mapping].pool;
        if let Some(index) = table_page(pool, page) {
            let was_open = self.pages[index].open > 0;
            self.observe_rest(index, call.code);
            self.maybe_settle(index, was_open);
        }
        if !self.is_hidden(mapping, page) {
            return;
        }
        let Some(address) = self.mappings[mapping].address_of(page) else {
            return;
        };
        let truth = self.truth(pool, page, None);
        self.show(mapping, address, truth);
        protect(address, PAGE, self.mappings[mapping].protection);
        self.mappings[mapping].own.insert(page);
        self.publish(mapping, page);
    }

    /// Writes bytes that lie in one page of a pool.
    fn write_page(&mut self, pool: u32, offset: u64, from: u64, len: u64, site: u64) {
        let page = offset / PAGE * PAGE;
        self.crowd_page(pool, page);
        let index = table_page(pool, page);
        let was_open = index.is_some_and(|index| self.pages[index].open > 0);
        let put = |to: u64| {
            // SAFETY: mapped, writable memory of ours, or of the pool with rights that were just given.
            unsafe {
                core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len as usize);
            }
        };
        if self.is_stepped(pool, page) || !self.is_private {
            put(self.truth(pool, page, index) + (offset - page));
        } else {
            put(self.pools[pool as usize].home + offset);
            for number in 0..self.mappings.len() {
                let mapping = &self.mappings[number];
                if mapping.pool != pool || mapping.is_private {
                    continue;
                }
                if let Some(address) = mapping.address_of(page) {
                    protect(address, PAGE, sys::PROT_READ | sys::PROT_WRITE);
                    put(address + (offset - page));
                    protect(address, PAGE, self.rights(number));
                }
            }
        }
        self.log_store(false, pool, offset, len, site, from);
        if let Some(index) = index {
            self.overwritten(index, offset - page, offset - page + len);
            self.maybe_settle(index, was_open);
        }
    }

    /// The recovery has read from the file of a pool: puts what it must see into the buffer.
    fn read_file(&mut self, pool: u32, at: u64, len: u64, buffer: u64, call: &Call) {
        self.bring_home(pool);
        let (mut from, end) = (at, at + len);
        while from < end {
            let page = from / PAGE * PAGE;
            let next = (page + PAGE).min(end);
            let source = self.decide_file(pool, page, from - page, next - from, call);
            if let Some(source) = source {
                let to = buffer + (from - at);
                // SAFETY: the truth is mapped, and the buffer is long enough.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        source as *const u8,
                        to as *mut u8,
                        (next - from) as usize,
                    );
                }
            }
            from = next;
        }
    }

    /// Where bytes of a file are, if not in the file.
    fn decide_file(
        &mut self,
        pool: u32,
        page: u64,
        from: u64,
        len: u64,
        call: &Call,
    ) -> Option<u64> {
        let is_known = page < self.pools[pool as usize].len;
        if !is_known {
            return None;
        }
        if table_page(pool, page).is_some() {
            return Some(self.decide_bytes(pool, page, from, len, call));
        }
        self.is_private
            .then(|| self.pools[pool as usize].home + page + from)
    }

    /// The recovery writes to the file of a pool.
    fn write_file(&mut self, pool: u32, at: u64, from: u64, len: u64, site: u64) {
        let (mut offset, end) = (at, at + len);
        while offset < end {
            let next = ((offset / PAGE + 1) * PAGE).min(end);
            if offset < self.pools[pool as usize].len {
                self.write_page(pool, offset, from + (offset - at), next - offset, site);
            } else {
                self.log_store(
                    false,
                    pool,
                    offset,
                    next - offset,
                    site,
                    from + (offset - at),
                );
            }
            offset = next;
        }
    }
}
