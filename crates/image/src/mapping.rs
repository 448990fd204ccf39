//! A read-only view of a private file, kept from one comparison to the next: comparing mapped pages
//! takes a third of the time of reading them.
//!
//! # Safety
//!
//! The mapping is shared with a file that recovery, another process, has mapped writable before. No
//! reference to its bytes is ever made; `memcmp` reads them through raw pointers and the answer is
//! only "differs or not". Pages are asked for only where the file was found to have data after its
//! length was set, because touching a page beyond the end is a SIGBUS; that no other process truncates the file
//! meanwhile is the contract of [`ImageSlot::prepare`](crate::ImageSlot::prepare): recovery has ended.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags};

use crate::page::{PAGE, Page};

/// A mapped file, read-only.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// `None` if it has no pages.
    base: Option<NonNull<c_void>>,
    page_count: u64,
}

// SAFETY: the mapping belongs to the process and not to a thread, and is only read.
unsafe impl Send for Mapping {}
// SAFETY: the mapping is read-only, so nothing changes through a shared reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len_bytes` of a file, which need not be there yet.
    pub(crate) fn new(file: &File, len_bytes: u64) -> io::Result<Self> {
        let page_count = len_bytes.div_ceil(PAGE);
        let base = if page_count == 0 {
            None
        } else {
            let len = usize::try_from(page_count.saturating_mul(PAGE))
                .map_err(|_| io::ErrorKind::FileTooLarge)?;
            // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
            let base = unsafe {
                rustix::mm::mmap(
                    ptr::null_mut(),
                    len,
                    ProtFlags::READ,
                    MapFlags::SHARED | MapFlags::NORESERVE,
                    file,
                    0,
                )
            }?;
            NonNull::new(base)
        };
        Ok(Self { base, page_count })
    }

    /// How many pages it covers.
    pub(crate) const fn page_count(&self) -> u64 {
        self.page_count
    }

    /// Whether a page of the file holds other bytes. The file must reach into that page.
    pub(crate) fn differs(&self, number: u64, page: &Page) -> bool {
        let Some(base) = self.base.filter(|_| number < self.page_count) else {
            return true;
        };
        // SAFETY: the page lies within the mapping, by the comparison above, and within the file, by
        // the contract. The other argument is a live page of the same length. Nothing is kept.
        unsafe {
            let found = base.as_ptr().cast::<u8>().add((number * PAGE) as usize);
            libc::memcmp(found.cast(), page.0.as_ptr().cast(), page.0.len()) != 0
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(base) = self.base {
            // SAFETY: the mapping was made with this length by `new`, and no reference to it is left.
            let _ = unsafe { rustix::mm::munmap(base.as_ptr(), (self.page_count * PAGE) as usize) };
        }
    }
}
