//! The store of `powerfail demo`: a table of keys and values in persistent memory, with four planted
//! bugs. The comments say which, and `demo.rs` what they are.
//!
//! # Safety
//!
//! The pool is mapped for as long as the process lives; every access is inside of it, because the
//! table has a fixed length. No other process uses the file.
#![allow(unsafe_code)]

use std::arch::x86_64::{_mm_clflush, _mm_sfence};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::Context;

use crate::args::DemoStoreArgs;
use crate::exit::Exit;

const ENTRIES: u64 = 64;
const MAGIC: u64 = 0x6465_6d6f;

/// An entry of the table, in a line of its own.
#[repr(C, align(64))]
struct Entry {
    key: u64,
    value: u64,
}

#[repr(C, align(64))]
struct Header {
    magic: u64,
    count: u64,
}

/// The pool: all fields are reached by pointers, because they are in a file.
#[repr(C)]
struct Store {
    header: Header,
    /// When the store was last used: in a line of its own.
    used: Entry,
    entries: [Entry; ENTRIES as usize],
}

fn read(place: *const u64) -> u64 {
    // SAFETY: see the head of the file.
    unsafe { place.read_volatile() }
}

pub(crate) fn run(args: &DemoStoreArgs) -> anyhow::Result<Exit> {
    let store = open(&args.pool)?;
    if args.recover {
        return Ok(if is_sound(store) {
            Exit::Clean
        } else {
            Exit::Findings
        });
    }
    for number in 1..=8 {
        insert(store, number, number * number);
    }
    touch(store);
    Ok(Exit::Clean)
}

fn open(path: &Path) -> anyhow::Result<*mut Store> {
    let len = size_of::<Store>().next_multiple_of(4096);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| path.display().to_string())?;
    if file.metadata()?.len() < len as u64 {
        file.set_len(len as u64)?;
    }
    // SAFETY: a new mapping of a file that is long enough.
    let store = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    anyhow::ensure!(
        store != libc::MAP_FAILED,
        "{} cannot be mapped",
        path.display()
    );
    let store = store.cast::<Store>();
    // SAFETY: see the head of the file.
    unsafe {
        let magic = &raw mut (*store).header.magic;
        if magic.read_volatile() != MAGIC {
            magic.write_volatile(MAGIC);
            _mm_clflush(magic.cast());
            _mm_sfence();
        }
    }
    Ok(store)
}

#[inline(never)]
fn insert(store: *mut Store, key: u64, value: u64) {
    // SAFETY: see the head of the file; the demo makes fewer entries than fit.
    unsafe {
        let count = &raw mut (*store).header.count;
        let number = count.read_volatile();
        let entry = &raw mut (*store).entries[(number % ENTRIES) as usize];
        // Bug 1: the count is durable before the entry that it counts.
        count.write_volatile(number + 1);
        _mm_clflush(count.cast());
        _mm_sfence();
        (&raw mut (*entry).key).write_volatile(key);
        (&raw mut (*entry).value).write_volatile(value);
        _mm_clflush(entry.cast());
        _mm_sfence();
        // Bug 2: nothing was stored to the entry since it was flushed.
        _mm_clflush(entry.cast());
        _mm_sfence();
        // Bug 3: nothing was flushed since the last fence.
        _mm_sfence();
    }
}

#[inline(never)]
fn touch(store: *mut Store) {
    // SAFETY: see the head of the file.
    unsafe {
        let used = &raw mut (*store).used;
        (&raw mut (*used).key).write_volatile(1);
        _mm_clflush(used.cast());
        _mm_sfence();
        // Bug 4: this is never flushed, though its line is.
        (&raw mut (*used).value).write_volatile(2);
    }
}

/// What recovery checks: every entry that is counted is there.
#[inline(never)]
fn is_sound(store: *mut Store) -> bool {
    // SAFETY: the fields are in the mapping.
    let count = unsafe { read(&raw const (*store).header.count) };
    (0..count.min(ENTRIES)).all(|at| {
        // SAFETY: `at` is below the number of entries, so the entry is in the mapping.
        let entry = unsafe { &raw const (*store).entries[at as usize] };
        // SAFETY: the entry is in the mapping.
        let (key, value) = unsafe {
            (
                read(&raw const (*entry).key),
                read(&raw const (*entry).value),
            )
        };
        key != 0 && value == key * key
    })
}
