//! The file that is shared with the oracle.
//!
//! # Safety
//!
//! The oracle creates the file with the length and layout of `powerfail_protocol::explore`, and writes what is not
//! atomic only while no execution runs. It is mapped once, at addresses that are free, and stays mapped for good.
#![allow(unsafe_code, reason = "the shared file lies at a fixed address")]

use core::sync::atomic::{AtomicI32, Ordering};

use powerfail_protocol::explore::{
    ADDRESS, CHOICES_AT, Choice, FILE_LEN, FILE_VARIABLE, LINES_AT, LineEntry, MAGIC, NOTES_AT,
    Note, OPEN_PAGES_AT, OUTPUT_VARIABLE, OpenPage, POOLS_AT, PREFIX_AT, PoolEntry,
    RecoveryControl, SOCKET_VARIABLE, VERSION, WATCHES_AT, Watch,
};

use crate::platform::sys;

use super::oracle_messages;

static FILE: AtomicI32 = AtomicI32::new(-1);
/// The descriptor of the runtime itself, which programs that the recovery starts load.
static LIBRARY: AtomicI32 = AtomicI32::new(-1);

fn number_from_environment(name: &str) -> Option<i32> {
    std::env::var(name).ok()?.parse().ok()
}

/// The number in `LD_PRELOAD=/proc/self/fd/NUMBER`, which other libraries may follow.
fn library_number() -> Option<i32> {
    let preload = std::env::var("LD_PRELOAD").ok()?;
    let first = preload.split(':').next()?;
    first.strip_prefix("/proc/self/fd/")?.parse().ok()
}

/// Maps the file, if there is one.
pub(super) fn attach() -> bool {
    let file = number_from_environment(FILE_VARIABLE);
    let socket = number_from_environment(SOCKET_VARIABLE);
    let (Some(file), Some(socket)) = (file, socket) else {
        return false;
    };
    let both = sys::PROT_READ | sys::PROT_WRITE;
    let flags = sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE | sys::MAP_NORESERVE;
    let is_long_enough = sys::fstat(file).is_some_and(|status| status.len_bytes >= FILE_LEN);
    // SAFETY: MAP_FIXED_NOREPLACE fails where something is mapped, so no memory that is in use changes.
    let result = unsafe { sys::mmap(ADDRESS, FILE_LEN, both, flags, file, 0) };
    if !is_long_enough || result != ADDRESS as isize {
        return false;
    }
    FILE.store(file, Ordering::Relaxed);
    LIBRARY.store(library_number().unwrap_or(-1), Ordering::Relaxed);
    oracle_messages::use_descriptors(socket, number_from_environment(OUTPUT_VARIABLE));
    let control = control();
    if control.magic != MAGIC || control.version != VERSION {
        super::refuse("the runtime and the oracle of powerfail have different versions");
    }
    true
}

/// The descriptor of the file.
pub(super) fn descriptor() -> i32 {
    FILE.load(Ordering::Relaxed)
}

/// Whether a descriptor is one of ours.
pub(super) fn owns(fd: i32) -> bool {
    fd >= 0
        && (fd == descriptor()
            || fd == LIBRARY.load(Ordering::Relaxed)
            || oracle_messages::owns(fd))
}

/// The first page.
pub(super) fn control() -> &'static RecoveryControl {
    // SAFETY: mapped since `attach`, for good. What is not atomic is written by the host while no
    // process runs that reads it.
    unsafe { &*(ADDRESS as *const RecoveryControl) }
}

/// # Safety
/// An array of these lies there.
unsafe fn array<T>(at: u64, len: u32) -> &'static [T] {
    // SAFETY: by the contract the host has written `len` values there, in the file, which stays mapped for good.
    unsafe { core::slice::from_raw_parts((ADDRESS + at) as *const T, len as usize) }
}

/// The pools.
pub(super) fn pools() -> &'static [PoolEntry] {
    // SAFETY: the count and what it counts were written by the host before the recovery was told to run.
    unsafe { array(POOLS_AT, control().pool_count) }
}

/// The path of a pool.
pub(super) fn path(pool: &PoolEntry) -> &'static [u8] {
    // SAFETY: the length and the bytes were written by the host before the recovery was told to run.
    unsafe { array(pool.path_at, pool.path_len as u32) }
}

/// The open lines, by pool and offset.
pub(super) fn lines() -> &'static [LineEntry] {
    // SAFETY: the count and what it counts were written by the host before the recovery was told to run.
    unsafe { array(LINES_AT, control().line_count) }
}

/// The pages with open or watched lines, by pool and offset.
pub(super) fn open_pages() -> &'static [OpenPage] {
    // SAFETY: the host has written them; what changes is atomic.
    unsafe { array(OPEN_PAGES_AT, control().page_count) }
}

/// The choices to follow.
pub(super) fn prefix() -> &'static [u32] {
    // SAFETY: the count and what it counts were written by the host before the recovery was told to run.
    unsafe { array(PREFIX_AT, control().prefix_len) }
}

/// The place of a choice.
pub(super) fn choice(number: u32) -> *mut Choice {
    ((ADDRESS + CHOICES_AT) as *mut Choice).wrapping_add(number as usize)
}

/// The lines with watched bytes, by pool and offset.
pub(super) fn watches() -> &'static [Watch] {
    // SAFETY: the count and what it counts were written by the host before the recovery was told to run.
    unsafe { array(WATCHES_AT, control().watch_count) }
}

/// The place of a note.
pub(super) fn note(number: u32) -> *mut Note {
    ((ADDRESS + NOTES_AT) as *mut Note).wrapping_add(number as usize)
}
