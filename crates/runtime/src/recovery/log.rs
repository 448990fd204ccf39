//! The log of what recovery does to pools.
//!
//! # Safety
//!
//! Callers have the turn, and pass bytes that are mapped. The file is mapped for good, and the log ends where its
//! constants say.
#![allow(unsafe_code, reason = "writes the log to the shared file")]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use powerfail_protocol::explore::{ADDRESS, LOG_AT, LOG_MAX, LogHeader, LogKind};

use crate::platform::sys;

use super::lock_owners;
use super::shared_file;
use super::state::State;

/// How many stores this execution has logged.
static EVENTS: AtomicU32 = AtomicU32::new(0);

/// How long the log was behind the last fence, and whose that was. A branch that is resumed continues behind an earlier fence.
static LAST_FENCE_END: AtomicU64 = AtomicU64::new(0);
static LAST_FENCE_THREAD: AtomicU32 = AtomicU32::new(0);

/// The thread of a branch, and the number that the log has for it: a branch continues a thread of its parent under another
/// number, and a fence orders only the flushes of its own thread.
static BRANCH_THREAD: AtomicU32 = AtomicU32::new(0);
static LOGGED_THREAD: AtomicU32 = AtomicU32::new(0);

/// The number that the log has for the calling thread.
pub(super) fn thread() -> u32 {
    let me = sys::gettid();
    if BRANCH_THREAD.load(Ordering::Relaxed) == me {
        LOGGED_THREAD.load(Ordering::Relaxed)
    } else {
        me
    }
}

/// In a branch: the calling thread continues the thread of its parent that has this number in the log.
pub(super) fn continue_thread(logged: u32) {
    BRANCH_THREAD.store(sys::gettid(), Ordering::Relaxed);
    LOGGED_THREAD.store(logged, Ordering::Relaxed);
}

/// How many stores were logged.
pub(super) fn events() -> u32 {
    EVENTS.load(Ordering::Relaxed)
}

/// A branch goes back to where it was.
pub(super) fn set_events(events: u32) {
    EVENTS.store(events, Ordering::Relaxed);
}

/// Logs an event; of a store, with its bytes, which lie at an address of ours.
fn append(kind: LogKind, pool: u32, offset: u64, len: u64, site: u64, bytes: Option<u64>) {
    let control = shared_file::control();
    let at = control.log_len.load(Ordering::Relaxed);
    let header_len = size_of::<LogHeader>() as u64;
    let end = at + header_len + bytes.map_or(0, |_| len.next_multiple_of(8));
    if end > LOG_MAX {
        super::refuse("the recovery makes more changes to its pools than can be logged");
    }
    let header = LogHeader {
        kind: kind as u32,
        pool,
        offset,
        len,
        site,
        thread: thread(),
        choices: control.choice_count.load(Ordering::Relaxed),
    };
    let place = ADDRESS + LOG_AT + at;
    // SAFETY: inside of the file, which is mapped for good; the bytes are mapped.
    unsafe {
        (place as *mut LogHeader).write(header);
        if let Some(bytes) = bytes {
            let to = (place + header_len) as *mut u8;
            core::ptr::copy_nonoverlapping(bytes as *const u8, to, len as usize);
            EVENTS.fetch_add(1, Ordering::Relaxed);
        }
    }
    control.log_len.store(end, Ordering::Release);
}

impl State {
    /// Bytes of a pool were written, and are at an address that can be read.
    pub(super) fn log_store(
        &self,
        is_non_temporal: bool,
        pool: u32,
        offset: u64,
        len: u64,
        site: u64,
        bytes: u64,
    ) {
        if self.is_logged {
            let kind = if is_non_temporal {
                LogKind::StoreNonTemporal
            } else {
                LogKind::Store
            };
            let bytes = lock_owners::logged(site, bytes, len);
            append(kind, pool, offset, len, site, Some(bytes));
        }
    }

    /// A line that is seen at an address was flushed.
    pub(super) fn log_flush(&self, kind: LogKind, address: u64, site: u64) {
        const LINE: u64 = 64;
        let Some(index) = self.mapping_at(address).filter(|_| self.is_logged) else {
            return;
        };
        let mapping = &self.mappings[index];
        if mapping.is_private {
            return;
        }
        let offset = mapping.offset + (address - mapping.address);
        append(kind, mapping.pool, offset / LINE * LINE, LINE, site, None);
    }

    /// A fence, or what is one. One right behind another orders nothing.
    pub(super) fn log_fence(&self, site: u64) {
        if !self.is_logged || self.mappings.is_empty() {
            return;
        }
        let log_len = &shared_file::control().log_len;
        let me = thread();
        let is_behind_fence = LAST_FENCE_END.load(Ordering::Relaxed)
            == log_len.load(Ordering::Relaxed)
            && LAST_FENCE_THREAD.load(Ordering::Relaxed) == me;
        if is_behind_fence {
            return;
        }
        append(LogKind::Fence, 0, 0, 0, site, None);
        LAST_FENCE_END.store(log_len.load(Ordering::Relaxed), Ordering::Relaxed);
        LAST_FENCE_THREAD.store(me, Ordering::Relaxed);
    }

    /// A range of a pool was made durable.
    pub(super) fn log_sync(&self, pool: u32, offset: u64, len: u64, site: u64) {
        if self.is_logged {
            append(LogKind::Sync, pool, offset, len, site, None);
        }
    }
}
