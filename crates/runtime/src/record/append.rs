//! Records that the runtime itself makes: stores by the kernel, marks, output.
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
    EventKind, FLAG_ADDRESS, Header, MAX_VALUE_LEN, STAMP_AT, STAMP_TENTATIVE, SiteId, ThreadBlock,
    chunk,
};

use crate::platform::sys;
use crate::record::{call_stacks, threads};

/// The site of records that no instruction of the target makes.
pub(crate) const NO_SITE: SiteId = SiteId(u32::MAX);

/// Appends one record of the calling thread, if it is recorded. A value longer than a record can
/// take is cut.
pub(crate) fn append(kind: EventKind, address: Option<u64>, value: &[&[u8]]) {
    append_of(NO_SITE, kind, address, value);
}

/// As `append`, of an instruction of the target that has no trampoline.
pub(crate) fn append_of(site: SiteId, kind: EventKind, address: Option<u64>, value: &[&[u8]]) {
    let Some(block) = threads::block() else {
        return;
    };
    append_at(
        block,
        call_stacks::of_record(block, site),
        kind,
        address,
        value,
    );
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
        let record_len = u64::from(header.record_len());
        threads::ensure_room(block, record_len);
        let start = (*block).cursor as *mut u8;
        (*block).cursor += record_len;
        start.cast::<u64>().write(header.word());
        let mut at = 16;
        if let Some(address) = address {
            start.add(at).cast::<u64>().write(address);
            at += 8;
        }
        let mut left = len;
        for part in value {
            let count = part.len().min(left);
            core::ptr::copy_nonoverlapping(part.as_ptr(), start.add(at), count);
            at += count;
            left -= count;
        }
        compiler_fence(Ordering::Release);
        start
            .add(STAMP_AT as usize)
            .cast::<u64>()
            .write_volatile(sys::stamp());
    }
    sys::restore_signals(mask);
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
            .write_volatile(sys::stamp());
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
                let kind = EventKind::Void;
                (at as *mut u64).write(Header { kind, ..header }.word());
                // Nor will it be made anew. The header is seen to change first.
                let stamp = (at + u64::from(STAMP_AT)) as *mut u64;
                compiler_fence(Ordering::Release);
                stamp.write_volatile(stamp.read() & !STAMP_TENTATIVE);
            }
        }
    }
    sys::restore_signals(mask);
}
