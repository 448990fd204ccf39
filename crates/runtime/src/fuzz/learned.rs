//! What executions find out about the code of the target: numbers of call stacks, rules of how to unwind, where
//! functions are. The process that forks executions reads it before it forks the next one, so that it is found out
//! once and not in each execution, and the host hears of a call stack once.
//!
//! All this is about code at its addresses. So nothing is noted by an execution that has loaded or unloaded code,
//! and what was noted for one server is not read by another.
//!
//! # Safety
//!
//! The table is mapped once, at addresses that are free, before the first execution is forked, and stays mapped for
//! good; all that changes in it is atomic.
#![allow(unsafe_code, reason = "keeps a table in memory that executions share")]

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use powerfail_protocol::fuzz::AREA_ADDRESS;

use crate::host;
use crate::platform::sys;
use crate::record::call_stacks;

use super::{is_active, level};

/// Where this is in each process of the target: behind the area that is shared with the host.
const ADDRESS: u64 = AREA_ADDRESS + (1 << 30);
const ENTRIES_MAX: usize = 8192;

#[repr(C)]
struct Entry {
    /// One of [`kind`]; zero while it is written.
    kind: AtomicU32,
    number: AtomicU32,
    first: AtomicU64,
    second: AtomicU64,
}

mod kind {
    /// A call stack and its number.
    pub(super) const STACK: u32 = 1;
    /// An address of code whose rule was looked up.
    pub(super) const RULE: u32 = 2;
    /// A word of ours that holds the address of a function, and that address.
    pub(super) const FUNCTION: u32 = 3;
}

/// All of it is zero at first.
#[repr(C)]
struct Table {
    /// The server that this is for.
    owner: AtomicU32,
    count: AtomicU32,
    entries: [Entry; ENTRIES_MAX],
}

/// How many entries this process has read.
static READ: AtomicU32 = AtomicU32::new(0);
/// How often code had been loaded or unloaded when this process, or who has forked it, became a server.
static GENERATION: AtomicU32 = AtomicU32::new(0);

fn table() -> &'static Table {
    debug_assert!(is_active());
    // SAFETY: mapped since `attach`, for good; all that changes in it is atomic.
    unsafe { &*(ADDRESS as *const Table) }
}

/// Maps it, for this process and all that it forks.
pub(super) fn attach() {
    let both = sys::PROT_READ | sys::PROT_WRITE;
    let flags = sys::MAP_SHARED | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE;
    let len = (size_of::<Table>() as u64).next_multiple_of(4096);
    // SAFETY: MAP_FIXED_NOREPLACE fails where something is mapped, so no memory that is in use changes.
    let result = unsafe { sys::mmap(ADDRESS, len, both, flags, -1, 0) };
    if result != ADDRESS as isize {
        host::fatal("the address range that powerfail needs for fuzzing is in use");
    }
}

/// This process is the server that learns from now on.
pub(super) fn begin() {
    let table = table();
    table.owner.store(sys::getpid(), Ordering::Relaxed);
    table.count.store(0, Ordering::Release);
    READ.store(0, Ordering::Relaxed);
    GENERATION.store(call_stacks::generation(), Ordering::Relaxed);
}

fn note(kind: u32, number: u32, first: u64, second: u64) {
    let is_noted = is_active()
        && !level::serves()
        && call_stacks::generation() == GENERATION.load(Ordering::Relaxed);
    if !is_noted {
        return;
    }
    let table = table();
    let at = table.count.fetch_add(1, Ordering::Relaxed) as usize;
    // It is read only after this process has ended, but the process may be killed in the middle.
    if let Some(entry) = table.entries.get(at) {
        entry.kind.store(0, Ordering::Release);
        entry.number.store(number, Ordering::Relaxed);
        entry.first.store(first, Ordering::Relaxed);
        entry.second.store(second, Ordering::Relaxed);
        entry.kind.store(kind, Ordering::Release);
    }
}

/// A call stack has got a number, and the host was told.
pub(crate) fn note_stack(key: u128, number: u32) {
    note(kind::STACK, number, key as u64, (key >> 64) as u64);
}

/// A rule was looked up.
pub(crate) fn note_rule(pc: u64) {
    note(kind::RULE, 0, pc, 0);
}

/// A function was found.
pub(crate) fn note_function(place: &'static AtomicUsize, address: usize) {
    note(
        kind::FUNCTION,
        0,
        core::ptr::from_ref(place) as u64,
        address as u64,
    );
}

/// Learns what is new, when what this server has forked has ended.
pub(super) fn learn() {
    let table = table();
    if table.owner.load(Ordering::Relaxed) != sys::getpid() {
        // It was for a server that this one has forked.
        begin();
        return;
    }
    let count = table.count.load(Ordering::Acquire).min(ENTRIES_MAX as u32);
    let read = READ.swap(count, Ordering::Relaxed);
    for entry in &table.entries[read as usize..count.max(read) as usize] {
        let number = entry.number.load(Ordering::Relaxed);
        let first = entry.first.load(Ordering::Relaxed);
        let second = entry.second.load(Ordering::Relaxed);
        match entry.kind.load(Ordering::Acquire) {
            kind::STACK => call_stacks::learn(u128::from(second) << 64 | u128::from(first), number),
            kind::RULE => call_stacks::learn_rule(first),
            // SAFETY: a word that lives as long as we do, at the same place in each process that was forked.
            kind::FUNCTION => unsafe {
                (*(first as *const AtomicUsize)).store(second as usize, Ordering::Relaxed);
            },
            _ => {}
        }
    }
}
