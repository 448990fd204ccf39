//! Records of operations on files.
//!
//! # Safety
//!
//! As `record/append.rs`: a record is written between its reservation, which only the calling thread makes, and its
//! stamp. No signal has to be blocked: a place is reserved by one instruction.
#![allow(unsafe_code, reason = "writes records to the chunk of the thread")]

use core::sync::atomic::{Ordering, compiler_fence};

use powerfail_protocol::file::{FileCode, FileEvent, PIECE_MAX, WORDS_LEN};
use powerfail_protocol::{ADDRESS_AT, EventKind, Header, STAMP_AT, SiteId, ThreadBlock, chunk};

use crate::host;
use crate::platform::iovec::Part;
use crate::platform::sys;
use crate::record::{call_stacks, threads};
use crate::recovery::fork::path_of_descriptor;

/// Different for each function that asks for call stacks: above those of marks.
const STACK_KIND: u32 = 0x100;

/// Appends an operation.
#[inline(never)]
pub(super) fn append(event: FileEvent<'_>) {
    append_parts(event, &[]);
}

/// Appends an operation whose bytes are followed by others.
#[inline(never)]
pub(super) fn append_parts(event: FileEvent<'_>, more: &[&[u8]]) {
    let Some(block) = threads::block() else {
        return;
    };
    let stack = call_stacks::of_file_call(block, STACK_KIND);
    let words = event.words();
    let count = event.bytes.len() + more.iter().map(|part| part.len()).sum::<usize>();
    // SAFETY: the record has room for so many bytes.
    unsafe {
        let record = reserve(block, stack, WORDS_LEN + count);
        let mut at = put_words(record, words);
        for part in core::iter::once(&event.bytes).chain(more) {
            core::ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
            at = at.add(part.len());
        }
        commit(block, record);
    }
}

/// Appends a write: the first `len` bytes of the parts. `event` says everything but the bytes.
///
/// # Safety
/// The kernel has just read these bytes.
#[inline(never)]
pub(super) unsafe fn append_write(event: FileEvent<'_>, parts: &[Part], len: u64) {
    let Some(block) = threads::block() else {
        return;
    };
    let stack = call_stacks::of_file_call(block, STACK_KIND + 1);
    let mut source = Source { parts, used: 0 };
    let mut left = len;
    let mut words = event.words();
    while left > 0 {
        let count = left.min(PIECE_MAX as u64) as usize;
        // SAFETY: the record has room for the piece, and by the contract the parts have it.
        unsafe {
            let record = reserve(block, stack, WORDS_LEN + count);
            let at = put_words(record, words);
            source.copy(at, count);
            commit(block, record);
        }
        left -= count as u64;
        words[0] = FileCode::Continued as u64;
    }
}

/// What is left of the parts of a buffer.
struct Source<'a> {
    parts: &'a [Part],
    /// How much of the first part is used.
    used: u64,
}

impl Source<'_> {
    /// Copies the next bytes.
    ///
    /// # Safety
    /// The parts have so many bytes, and so has the destination.
    unsafe fn copy(&mut self, to: *mut u8, count: usize) {
        let mut done = 0;
        while done < count
            && let Some(part) = self.parts.first()
        {
            let len = (part.len - self.used).min((count - done) as u64) as usize;
            // SAFETY: both sides have this many bytes left, and a record is no memory of the target.
            unsafe {
                let from = (part.address + self.used) as *const u8;
                core::ptr::copy_nonoverlapping(from, to.add(done), len);
            }
            done += len;
            self.used += len as u64;
            if self.used == part.len {
                self.parts = &self.parts[1..];
                self.used = 0;
            }
        }
    }
}

/// Reserves a record with a value of so many bytes, and writes its header.
///
/// # Safety
/// The block is the calling thread's.
unsafe fn reserve(block: *mut ThreadBlock, site: SiteId, len: usize) -> *mut u8 {
    let header = Header {
        kind: EventKind::File,
        flags: 0,
        value_len: len as u16,
        site,
    };
    let record_len = u64::from(header.record_len());
    let mut start = record_len;
    // SAFETY: the block is this thread's; a reservation that does not fit is given up, as the protocol says, and one that
    // fits belongs to this thread alone.
    unsafe {
        core::arch::asm!(
            "xadd [{cursor}], {start}",
            cursor = in(reg) &raw mut (*block).cursor,
            start = inout(reg) start,
            options(nostack)
        );
        if chunk::overflows(start + record_len - 1) {
            let mask = sys::block_signals();
            threads::ensure_room(block, record_len);
            start = (*block).cursor;
            (*block).cursor += record_len;
            sys::restore_signals(mask);
        }
        let record = start as *mut u8;
        record.cast::<u64>().write_volatile(header.word());
        record
    }
}

/// Writes the words of an operation; where the bytes behind them go.
///
/// # Safety
/// The record was just reserved, with room for them.
unsafe fn put_words(record: *mut u8, words: [u64; 6]) -> *mut u8 {
    // SAFETY: the record was reserved with room for these words.
    unsafe {
        let at = record.add(ADDRESS_AT as usize);
        at.cast::<[u64; 6]>().write(words);
        at.add(WORDS_LEN)
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
        let stamp = record.add(STAMP_AT as usize).cast::<u64>();
        stamp.write_volatile(threads::read_clock(block));
    }
}

/// Appends a write whose bytes are in a file by now, at this offset. `event` says everything but the bytes.
#[inline(never)]
pub(super) fn append_content(event: FileEvent<'_>, fd: i32, offset: u64, len: u64) {
    let Some(block) = threads::block() else {
        return;
    };
    let stack = call_stacks::of_file_call(block, STACK_KIND + 2);
    let own = open_for_reading(fd);
    let mut words = event.words();
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let count = (end - at).min(PIECE_MAX as u64) as usize;
        // SAFETY: the record has room for the piece.
        unsafe {
            let record = reserve(block, stack, WORDS_LEN + count);
            let place = put_words(record, words);
            if !read_all(own, at, place, count) {
                host::fatal("a file that the target has written cannot be read");
            }
            commit(block, record);
        }
        at += count as u64;
        words[0] = FileCode::Continued as u64;
    }
    if own >= 0 {
        sys::close(own);
    }
}

/// A descriptor of the same file that can be read from; a negative number is an error.
fn open_for_reading(fd: i32) -> i32 {
    let mut link = [0; 32];
    path_of_descriptor(fd, &mut link);
    core::ffi::CStr::from_bytes_until_nul(&link).map_or(-1, |link| sys::open(link, 0, 0))
}

/// Reads bytes of a file; whether they are all there.
///
/// # Safety
/// There is room for them.
unsafe fn read_all(fd: i32, offset: u64, place: *mut u8, count: usize) -> bool {
    let mut done = 0;
    while done < count {
        let arguments = [
            fd as usize,
            place as usize + done,
            count - done,
            offset as usize + done,
            0,
            0,
        ];
        // SAFETY: the caller has room for this many bytes.
        let read = unsafe { sys::call(sys::number::PREAD64, arguments) };
        if read <= 0 {
            return false;
        }
        done += read as usize;
    }
    true
}
