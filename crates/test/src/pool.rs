//! A file that is mapped as persistent memory.
//!
//! # Safety
//!
//! A pool is mapped for as long as the value lives, and nothing else in the process has a reference to it. Other processes
//! could change the file, but the path is a fresh one that only this test knows.

#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The unit that is flushed.
const LINE_BYTES: usize = 64;

/// Persistent memory: a file that is mapped shared. Stores to it are durable only after they were flushed and fenced.
#[derive(Debug)]
pub struct Pool {
    path: PathBuf,
    start: NonNull<u8>,
    len_bytes: usize,
}

impl Pool {
    pub(crate) fn open(path: &Path, len_bytes: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        if file.metadata()?.len() != len_bytes {
            file.set_len(len_bytes)?;
        }
        let len_bytes = len_bytes as usize;
        // SAFETY: the kernel chooses a place where nothing is mapped.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            path: path.to_path_buf(),
            start,
            len_bytes,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first byte, for structures that are laid out in the pool. It stays in its place while the pool exists, and is
    /// aligned to a page.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: that many bytes are mapped, and only a `&mut self` gives a way to write them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len_bytes) }
    }

    /// The content, to store something. A store is not durable before [`persist`](Self::persist).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: that many bytes are mapped writable, and this is the only reference to them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len_bytes) }
    }

    /// Flushes the lines of these bytes (`clflush`). They are durable at the latest after the next [`fence`](Self::fence).
    pub fn flush(&self, range: Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.len_bytes,
            "{range:?} is not in a pool of {} bytes",
            self.len_bytes
        );
        // What was stored through references must be in memory first.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        let first = range.start / LINE_BYTES * LINE_BYTES;
        for offset in (first..range.end).step_by(LINE_BYTES) {
            // SAFETY: the line is mapped: the mapping is a multiple of pages.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                std::arch::x86_64::_mm_clflush(self.start.as_ptr().add(offset));
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = offset;
        }
    }

    /// Waits until flushed lines are durable (`sfence`).
    pub fn fence(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has it.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }

    /// Makes these bytes durable: [`flush`](Self::flush) and [`fence`](Self::fence).
    pub fn persist(&self, range: Range<usize>) {
        self.flush(range);
        self.fence();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference outlives this value.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len_bytes) };
    }
}
