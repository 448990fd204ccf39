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
use std::ops::Range;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

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

impl Mapping {
    /// Gives back the memory that these pages take in this process. The file keeps it.
    pub(crate) fn release(&self, pages: Range<u64>) {
        let end = pages.end.min(self.page_count);
        let Some(base) = self.base.filter(|_| pages.start < end) else {
            return;
        };
        let len = ((end - pages.start) * PAGE) as usize;
        // SAFETY: the pages lie within the mapping, by the comparison above. It is shared and read-only, so what is read
        // there later comes from the file, as before.
        unsafe {
            let start = base.as_ptr().byte_add((pages.start * PAGE) as usize);
            // If that fails, the memory stays.
            let _ = rustix::mm::madvise(start, len, Advice::LinuxDontNeed);
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// How many KiB of a mapping are in memory of this process.
    fn resident_kb(mapping: &Mapping) -> u64 {
        let start = format!("{:x}-", mapping.base.expect("pages").as_ptr() as usize);
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("a list of mappings");
        let mut own = maps.lines().skip_while(|line| !line.starts_with(&start));
        let size = own.find_map(|line| line.strip_prefix("Rss:"));
        let size = size.and_then(|size| size.split_whitespace().next());
        size.and_then(|size| size.parse().ok()).expect("a number")
    }

    #[test]
    fn released_pages_take_no_memory_and_are_compared_as_before() {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&vec![7; 8 * PAGE as usize], 0)
            .expect("it can be written");
        let mapping = Mapping::new(&file, 8 * PAGE).expect("a mapping");
        let sevens = Page([7; PAGE as usize]);
        let all_equal = || (0..8).all(|number| !mapping.differs(number, &sevens));
        assert!(all_equal());
        assert_eq!(resident_kb(&mapping), 32);
        mapping.release(0..u64::MAX);
        assert_eq!(resident_kb(&mapping), 0);
        assert!(all_equal());
        mapping.release(8..9);
        mapping.release(0..7);
        file.write_all_at(&[8], 3 * PAGE)
            .expect("it can be written");
        assert!(mapping.differs(3, &sevens));
    }
}
