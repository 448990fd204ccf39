//! The memory in which LLMP keeps its messages.
//!
//! `LibAFL`'s own providers share memory between processes, by System V segments, by names in /dev/shm or by
//! file descriptors. The first two stay behind when a campaign is killed; the last closes a descriptor once
//! for each mapping, and so may close an unrelated one. All clients of LLMP here are threads of one process, so plain
//! memory is enough: it is freed with the process. Memory that a remote peer names does not exist here, and is rejected.
//!
//! # Safety
//!
//! LLMP reads and writes shared memory through raw pointers from several threads and orders what it does by
//! atomic variables in the memory itself. It needs memory that is aligned to eight bytes, and that is
//! not moved or freed while it is in use: a boxed slice of words in an `Arc` guarantees that. The cells allow changes through shared references.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use libafl_bolts::Error;
use libafl_bolts::shmem::{ShMem, ShMemId, ShMemProvider};

const WORD: usize = size_of::<u64>();

/// Words that several threads change.
struct Page(Box<[UnsafeCell<u64>]>);

// SAFETY: the words are plain integers. Who accesses them is LLMP alone, which orders its accesses by atomic
// variables, as it does between processes.
unsafe impl Sync for Page {}

#[derive(Default)]
struct Pages {
    by_number: HashMap<i32, Weak<Page>>,
    last: i32,
}

fn pages() -> MutexGuard<'static, Pages> {
    static PAGES: LazyLock<Mutex<Pages>> = LazyLock::new(Mutex::default);
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A page of memory that threads share.
pub(super) struct ProcessMemory {
    number: i32,
    len_bytes: usize,
    page: Arc<Page>,
}

impl fmt::Debug for ProcessMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "ProcessMemory({}, {} bytes)",
            self.number, self.len_bytes
        )
    }
}

impl Drop for ProcessMemory {
    fn drop(&mut self) {
        let mut pages = pages();
        // This one still counts.
        if Arc::strong_count(&self.page) == 1 {
            pages.by_number.remove(&self.number);
        }
    }
}

impl Deref for ProcessMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the box has at least this many bytes, and it lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.page.0.as_ptr().cast(), self.len_bytes) }
    }
}

impl DerefMut for ProcessMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = UnsafeCell::raw_get(self.page.0.as_ptr()).cast();
        // SAFETY: the box has at least this many bytes and lives as long as `self`; the cells allow writes. LLMP only takes
        // the address of this slice.
        unsafe { std::slice::from_raw_parts_mut(start, self.len_bytes) }
    }
}

// SAFETY: a box of words of eight bytes is aligned to eight bytes.
unsafe impl ShMem for ProcessMemory {
    fn id(&self) -> ShMemId {
        ShMemId::from_int(self.number)
    }
}

/// Provides such memory.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessMemoryProvider;

impl ShMemProvider for ProcessMemoryProvider {
    type ShMem = ProcessMemory;

    fn new() -> Result<Self, Error> {
        Ok(Self)
    }

    fn new_shmem(&mut self, map_size: usize) -> Result<ProcessMemory, Error> {
        let words = (0..map_size.div_ceil(WORD))
            .map(|_| UnsafeCell::new(0))
            .collect();
        let page = Arc::new(Page(words));
        let mut pages = pages();
        pages.last = pages
            .last
            .checked_add(1)
            .ok_or_else(|| Error::illegal_state("too many pages"))?;
        let number = pages.last;
        pages.by_number.insert(number, Arc::downgrade(&page));
        Ok(ProcessMemory {
            number,
            len_bytes: map_size,
            page,
        })
    }

    fn shmem_from_id_and_size(&mut self, id: ShMemId, size: usize) -> Result<ProcessMemory, Error> {
        // Not by the conversion of LibAFL: it panics on what a peer may send.
        let name = id
            .as_array()
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        let number = std::str::from_utf8(name)
            .ok()
            .and_then(|name| name.parse().ok());
        let page = number.and_then(|number| pages().by_number.get(&number).and_then(Weak::upgrade));
        match (number, page) {
            (Some(number), Some(page)) if size <= page.0.len() * WORD => Ok(ProcessMemory {
                number,
                len_bytes: size,
                page,
            }),
            _ => Err(Error::key_not_found(
                "there is no such memory in this process",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_shared_by_number_and_go_with_their_last_user() {
        let mut provider = ProcessMemoryProvider;
        let mut one = provider.new_shmem(100).unwrap();
        let other = provider.shmem_from_id_and_size(one.id(), 100).unwrap();
        one[99] = 7;
        assert_eq!((other[99], other.len()), (7, 100));
        let id = one.id();
        drop(one);
        assert!(provider.shmem_from_id_and_size(id, 100).is_ok());
        assert!(provider.shmem_from_id_and_size(id, 200).is_err());
        drop(other);
        assert!(provider.shmem_from_id_and_size(id, 100).is_err());
        for name in [[0; 20], [0xff; 20], *b"12345678901234567890"] {
            assert!(
                provider
                    .shmem_from_id_and_size(ShMemId::from_array(&name), 8)
                    .is_err()
            );
        }
    }
}
