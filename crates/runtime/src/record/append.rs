//! Records that the runtime itself makes: stores that it makes for the target, stores by the kernel, marks, output.
//!
//! # Safety
//!
//! Callers run on a recorded thread with a block of its own. A record is written between a reservation, which only
//! this thread makes, and its header, which is written last, as the append protocol (`powerfail_protocol`)
//! requires; signals are blocked meanwhile.
#![allow(unsafe_code, reason = "writes records to the chunk of the thread")]

use core::sync::atomic::{Ordering, compiler_fence};

use powerfail_protocol::shared::{CHUNKS_ADDRESS, chunk_address, chunk_of};
use powerfail_protocol::{
    ADDRESS_AT, EventKind, FLAG_ADDRESS, FLAG_FOUND, FLUSHED_WORD_LEN, Header, MAX_VALUE_LEN,
    Records, STAMP_AT, STAMP_TENTATIVE, SiteId, ThreadBlock, VALUE_AT, chunk,
};

use crate::platform::sys;
use crate::record::window::window;
use crate::record::{call_stacks, store_locks, threads};

/// The site of records that no instruction of the target makes.
pub(crate) const NO_SITE: SiteId = SiteId(u32::MAX);

/// Appends one record of the calling thread, if it is recorded. A value longer than a record can
/// take is cut.
pub(crate) fn append(kind: EventKind, address: Option<u64>, value: &[&[u8]]) {
    let Some(block) = threads::block() else {
        return;
    };
    let stack = call_stacks::of_record(block, NO_SITE);
    append_at(block, stack, kind, address, value);
}

/// As `append`, of a call stack that is known, or a site.
pub(crate) fn append_at(
    block: *mut ThreadBlock,
    site: SiteId,
    kind: EventKind,
    address: Option<u64>,
    value: &[&[u8]],
) {
    let len = value
        .iter()
        .map(|part| part.len())
        .sum::<usize>()
        .min(MAX_VALUE_LEN.into());
    let flags = if address.is_some() { FLAG_ADDRESS } else { 0 };
    let header = Header {
        kind,
        flags,
        value_len: len as u16,
        site,
    };
    let mask = sys::block_signals();
    // SAFETY: the block is this thread's and its handlers cannot run; the record lies in its chunk.
    unsafe {
        let start = describe(block, header, address);
        let mut at = if address.is_some() {
            VALUE_AT
        } else {
            ADDRESS_AT
        } as usize;
        let mut left = len;
        for part in value {
            let count = part.len().min(left);
            core::ptr::copy_nonoverlapping(part.as_ptr(), start.add(at), count);
            at += count;
            left -= count;
        }
        commit(block, start);
    }
    sys::restore_signals(mask);
}

/// Reserves a record, and writes header and address.
///
/// # Safety
/// The block is the calling thread's, whose signals are blocked.
unsafe fn describe(block: *mut ThreadBlock, header: Header, address: Option<u64>) -> *mut u8 {
    // SAFETY: by the contract; the record lies in the chunk of the thread.
    unsafe {
        let record_len = u64::from(header.record_len());
        threads::ensure_room(block, record_len);
        let start = (*block).cursor as *mut u8;
        (*block).cursor += record_len;
        start.cast::<u64>().write(header.word());
        if let Some(address) = address {
            start.add(ADDRESS_AT as usize).cast::<u64>().write(address);
        }
        start
    }
}

/// Writes the stamp of a record that is complete.
///
/// # Safety
/// The record is one of the calling thread, and the block is its.
unsafe fn commit(block: *mut ThreadBlock, record: *mut u8) {
    compiler_fence(Ordering::Release);
    // SAFETY: by the contract, a word of the record.
    unsafe {
        record
            .add(STAMP_AT as usize)
            .cast::<u64>()
            .write_volatile(threads::read_clock(block));
    }
}

/// Records a store of the target and performs it through the alias. `make` turns the old bytes into the new ones, which have
/// the same length: at most [`MAX_VALUE_LEN`] bytes.
pub(crate) fn store_with(
    site: SiteId,
    kind: EventKind,
    address: u64,
    len: usize,
    make: impl FnOnce(&[u8], &mut [u8]),
) {
    let Some(block) = threads::block() else {
        return;
    };
    let is_shared = store_locks::are_used();
    let header = Header {
        kind,
        flags: FLAG_ADDRESS | if is_shared { FLAG_FOUND } else { 0 },
        value_len: len as u16,
        site: call_stacks::of_record(block, site),
    };
    let alias = window().alias(address) as *mut u8;
    let mask = sys::block_signals();
    // SAFETY: the block is this thread's and its handlers cannot run; the record lies in its chunk. The target may write
    // to this part of its pool, so the alias of it is mapped.
    unsafe {
        let record = describe(block, header, Some(address));
        if is_shared {
            store_locks::acquire(block, record as u64, address, len as u64);
            let found = record.add(header.found_at() as usize);
            core::ptr::copy_nonoverlapping(alias, found, len);
        }
        let value = core::slice::from_raw_parts_mut(record.add(VALUE_AT as usize), len);
        make(core::slice::from_raw_parts(alias, len), value);
        commit(block, record);
        write_whole(alias, value);
        if is_shared {
            store_locks::release(block, record as u64);
        }
    }
    sys::restore_signals(mask);
}

/// Writes bytes with one instruction, if there is one for so many.
///
/// # Safety
/// So many bytes may be written there.
unsafe fn write_whole(place: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller may write this many bytes there.
    unsafe {
        if let Ok(byte) = <[u8; 1]>::try_from(bytes) {
            place.write_volatile(u8::from_le_bytes(byte));
        } else if let Ok(word) = <[u8; 2]>::try_from(bytes) {
            place
                .cast::<u16>()
                .write_unaligned(u16::from_le_bytes(word));
        } else if let Ok(word) = <[u8; 4]>::try_from(bytes) {
            place
                .cast::<u32>()
                .write_unaligned(u32::from_le_bytes(word));
        } else if let Ok(word) = <[u8; 8]>::try_from(bytes) {
            place
                .cast::<u64>()
                .write_unaligned(u64::from_le_bytes(word));
        } else {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
        }
    }
}

/// Records a store of the runtime itself to a pool, and makes it. At most [`MAX_VALUE_LEN`] bytes.
pub(crate) fn store_system(address: u64, bytes: &[u8]) {
    store_with(
        NO_SITE,
        EventKind::StoreSystem,
        address,
        bytes.len(),
        |_, value| value.copy_from_slice(bytes),
    );
}

/// Stores bytes to a pool on behalf of the kernel, which would have written them there.
pub(crate) fn store_received(address: u64, bytes: &[u8]) {
    if threads::block().is_none() {
        let alias = window().alias(address) as *mut u8;
        // SAFETY: the target may write to this part of its pool, so the alias of it is mapped.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), alias, bytes.len()) };
        return;
    }
    let mut address = address;
    for piece in bytes.chunks(MAX_VALUE_LEN.into()) {
        store_system(address, piece);
        address += piece.len() as u64;
    }
}

/// Records a flush of a line of a pool that no instruction makes: in its place among the stores to that line.
pub(crate) fn flush_at(block: *mut ThreadBlock, site: SiteId, kind: EventKind, address: u64) {
    if !store_locks::are_used() {
        return append_at(block, site, kind, Some(address), &[]);
    }
    let header = Header {
        kind,
        flags: FLAG_ADDRESS,
        value_len: FLUSHED_WORD_LEN,
        site,
    };
    let word = address & !(u64::from(FLUSHED_WORD_LEN) - 1);
    let mask = sys::block_signals();
    // SAFETY: the block is this thread's and its handlers cannot run; the record lies in its chunk. The caller has found the
    // line in a pool, which is mapped where the target sees it.
    unsafe {
        let record = describe(block, header, Some(address));
        store_locks::acquire(block, record as u64, address, 1);
        let found = (word as *const u64).read_volatile();
        record
            .add(VALUE_AT as usize)
            .cast::<u64>()
            .write_volatile(found);
        commit(block, record);
        store_locks::release(block, record as u64);
    }
    sys::restore_signals(mask);
}

/// Makes the store that a record of the calling thread describes, through the alias, and commits the record.
pub(crate) fn complete(block: *mut ThreadBlock, record: u64) {
    // SAFETY: the caller has found the record in a chunk of this thread, described and with its value.
    unsafe {
        let Some((header, at)) = header_at(record) else {
            return;
        };
        let bytes = core::slice::from_raw_parts(at, header.record_len() as usize);
        let Some(Ok(read)) = Records::new(bytes).next() else {
            return;
        };
        if read.stamp == 0 {
            commit(block, at);
        }
        let address = read.address.unwrap_or_default();
        for (offset, bytes) in read.runs() {
            let alias = window().alias(address + offset as u64) as *mut u8;
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), alias, bytes.len());
        }
    }
}

/// A record of the calling thread is of a store that did not happen.
pub(crate) fn void(block: *mut ThreadBlock, record: u64) {
    // SAFETY: the caller has found the record in a chunk of this thread.
    unsafe {
        if let Some((header, at)) = header_at(record) {
            make_void(block, header, at);
        }
    }
}

/// The header of a record.
///
/// # Safety
/// The record lies in a chunk of the calling thread.
unsafe fn header_at(record: u64) -> Option<(Header, *mut u8)> {
    let at = record as *mut u8;
    // SAFETY: the record lies in a chunk of the calling thread.
    let word = unsafe { at.cast::<u64>().read() };
    Some((Header::from_word(word).ok()?, at))
}

/// # Safety
/// As [`header_at`], and the block is that of the calling thread.
unsafe fn make_void(block: *mut ThreadBlock, header: Header, at: *mut u8) {
    let kind = EventKind::Void;
    // SAFETY: by the contract. Nor will the record be made anew. The header is seen to change first.
    unsafe {
        at.cast::<u64>().write(Header { kind, ..header }.word());
        let stamp = at.add(STAMP_AT as usize).cast::<u64>();
        compiler_fence(Ordering::Release);
        match stamp.read() & !STAMP_TENTATIVE {
            0 => stamp.write_volatile(threads::read_clock(block)),
            taken => stamp.write_volatile(taken),
        }
    }
}

/// Appends a mark of the calling thread, if it is recorded: code, value, and what else belongs to it. Calls
/// of PMDK are many, so this costs no system call.
pub(crate) fn append_mark<const N: usize>(words: [u64; N]) {
    let Some(block) = threads::block() else {
        return;
    };
    append_words(block, NO_SITE, words);
}

/// As `append_mark`, with the call stack, which is found as emitted code finds it: unwound once.
#[inline(never)]
pub(crate) fn append_mark_with_stack<const N: usize>(words: [u64; N]) {
    let Some(block) = threads::block() else {
        return;
    };
    let stack = call_stacks::of_call(block, N as u32);
    append_words(block, stack, words);
}

/// Appends a mark as emitted code would: the place is reserved by one instruction, so no signal has to
/// be blocked.
fn append_words<const N: usize>(block: *mut ThreadBlock, site: SiteId, words: [u64; N]) {
    let header = Header {
        kind: EventKind::Mark,
        flags: 0,
        value_len: 8 * N as u16,
        site,
    };
    let record_len = u64::from(header.record_len());
    let mut start = record_len;
    // SAFETY: the block is this thread's; a reservation that does not fit is given up, as the protocol
    // says, and one that fits belongs to this thread alone.
    unsafe {
        core::arch::asm!(
            "xadd [{cursor}], {start}",
            cursor = in(reg) &raw mut (*block).cursor,
            start = inout(reg) start,
            options(nostack)
        );
        if chunk::overflows(start + record_len - 1) {
            let bytes = words.map(u64::to_le_bytes);
            append_at(block, site, EventKind::Mark, None, &[bytes.as_flattened()]);
            return;
        }
        let record = start as *mut u64;
        record.write_volatile(header.word());
        for (at, word) in words.into_iter().enumerate() {
            record.add(2 + at).write_volatile(word);
        }
        record
            .byte_add(STAMP_AT as usize)
            .write_volatile(threads::stamp(block));
    }
}

/// The kernel has written `bytes`, which the target sees at `address`, to a pool.
pub(crate) fn append_system_store(address: u64, bytes: &[u8]) {
    let mut address = address;
    for piece in bytes.chunks(MAX_VALUE_LEN.into()) {
        append(EventKind::StoreSystem, Some(address), &[piece]);
        address += piece.len() as u64;
    }
}

/// The newest record of the calling thread is of a store that did not happen.
pub(crate) fn void_last() {
    let Some(block) = threads::block() else {
        return;
    };
    let mask = sys::block_signals();
    // SAFETY: the block is this thread's and its handlers cannot run; all that is read and written
    // lies in its chunk, below its cursor.
    unsafe {
        let end = (*block).cursor;
        if end >= CHUNKS_ADDRESS {
            let mut at = chunk_address(chunk_of(end - 1).0);
            let mut last = None;
            while at < end {
                let word = (at as *const u64).read();
                match Header::from_word(word) {
                    Ok(header) => {
                        last = Some((at, header));
                        at += u64::from(header.record_len());
                    }
                    // A reservation that was given up.
                    Err(_) => at += 8,
                }
            }
            if let Some((at, header)) = last {
                make_void(block, header, at as *mut u8);
            }
        }
    }
    sys::restore_signals(mask);
}
