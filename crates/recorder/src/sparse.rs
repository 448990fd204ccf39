//! Reads a file without its holes, and without touching the target's file offset.
//!
//! # Safety
//!
//! A DAX device cannot be read but only mapped: that one mapping is private to a call, read-only,
//! of a length that the device has, and bytes are copied out of it with raw pointers because the
//! target may write them at any time.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;
use std::ptr;

use powerfail_trace::PoolKind;
use rustix::fs::SeekFrom;
use rustix::mm::{MapFlags, ProtFlags};

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileIdentity {
    #[cfg(test)]
    pub(crate) fn of_path(path: &Path) -> io::Result<Self> {
        let metadata = path.metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// A file that may be a pool, opened again for reading.
#[derive(Debug)]
pub(crate) struct SparseFile {
    file: File,
    /// Whether the file offset is not shared with the target.
    own_offset: bool,
    kind: PoolKind,
    identity: FileIdentity,
    /// Whether the file has a name somewhere.
    named: bool,
}

/// How much is read at a time.
const BUFFER_BYTES: usize = 1 << 20;

impl SparseFile {
    /// Takes the descriptor of a target. `None` if it is neither a regular file nor a DAX device.
    ///
    /// The descriptor shares its offset and its locks with the target, so it is replaced by a separate one.
    pub(crate) fn from_target(received: OwnedFd) -> io::Result<Option<Self>> {
        let received = File::from(received);
        let metadata = received.metadata()?;
        let kind = if metadata.is_file() {
            PoolKind::File
        } else if metadata.file_type().is_char_device() && is_dax(metadata.rdev()) {
            PoolKind::DaxDevice
        } else {
            return Ok(None);
        };
        let identity = FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        let named = metadata.nlink() > 0;
        let reopened = File::open(format!("/proc/self/fd/{}", received.as_raw_fd()));
        let own_offset = reopened.is_ok();
        Ok(Some(Self {
            file: reopened.unwrap_or(received),
            own_offset,
            kind,
            identity,
            named,
        }))
    }

    pub(crate) const fn kind(&self) -> PoolKind {
        self.kind
    }

    pub(crate) const fn identity(&self) -> FileIdentity {
        self.identity
    }

    pub(crate) const fn is_named(&self) -> bool {
        self.named
    }

    /// Whether it has a name now.
    pub(crate) fn is_still_named(&self) -> bool {
        let metadata = self.file.metadata();
        metadata.map_or(self.named, |metadata| metadata.nlink() > 0)
    }

    /// Its length now.
    pub(crate) fn len_bytes(&self) -> io::Result<u64> {
        let metadata = self.file.metadata()?;
        if self.kind == PoolKind::DaxDevice {
            let size = std::fs::read_to_string(device_directory(metadata.rdev()).join("size"))?;
            return size
                .trim()
                .parse()
                .map_err(|_| io::ErrorKind::InvalidData.into());
        }
        Ok(metadata.len())
    }

    /// Calls `visit` with offset and bytes of all that may not be zero, ascending, up to `len_bytes`.
    pub(crate) fn for_each_run<E: From<io::Error>>(
        &self,
        len_bytes: u64,
        mut visit: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer =
            vec![0; BUFFER_BYTES.min(usize::try_from(len_bytes).unwrap_or(BUFFER_BYTES))];
        let mut position = 0;
        while position < len_bytes {
            let (from, to) = self.next_data(position, len_bytes);
            let mut at = from;
            while at < to {
                let want = buffer.len().min((to - at) as usize);
                let got = self.read_at(&mut buffer[..want], at)?;
                if got == 0 {
                    // The file became shorter meanwhile.
                    return Ok(());
                }
                visit(at, &buffer[..got])?;
                at += got as u64;
            }
            position = to;
        }
        Ok(())
    }

    /// The next range that may hold data, or an empty one at the end.
    fn next_data(&self, position: u64, len_bytes: u64) -> (u64, u64) {
        if !self.own_offset || self.kind == PoolKind::DaxDevice {
            return (position, len_bytes);
        }
        let from = match rustix::fs::seek(&self.file, SeekFrom::Data(position)) {
            Ok(from) => from.min(len_bytes),
            Err(rustix::io::Errno::NXIO) => len_bytes,
            Err(_) => return (position, len_bytes),
        };
        let to = rustix::fs::seek(&self.file, SeekFrom::Hole(from))
            .map_or(len_bytes, |to| to.min(len_bytes));
        (from, to.max(from))
    }

    /// Reads at an offset; fewer bytes only at the end.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.kind == PoolKind::DaxDevice {
            return self.copy_mapped(buffer, offset);
        }
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// DAX devices map in units of huge pages.
    fn copy_mapped(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        const UNIT: u64 = 2 << 20;
        let end = self
            .len_bytes()?
            .min(offset.saturating_add(buffer.len() as u64));
        if offset >= end {
            return Ok(0);
        }
        let from = offset - offset % UNIT;
        let len = end.next_multiple_of(UNIT).min(self.len_bytes()?) - from;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len as usize,
                ProtFlags::READ,
                MapFlags::SHARED,
                &self.file,
                from,
            )
        }?;
        let count = (end - offset) as usize;
        // SAFETY: the mapping covers `offset..end`, the buffer has at least `count` bytes, and they
        // do not overlap. Nothing refers to the mapping when it is taken away.
        unsafe {
            let source = base.cast::<u8>().add((offset - from) as usize);
            ptr::copy_nonoverlapping(source, buffer.as_mut_ptr(), count);
            rustix::mm::munmap(base, len as usize)?;
        }
        Ok(count)
    }
}

fn device_directory(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PathBuf::from(format!("/sys/dev/char/{major}:{minor}"))
}

fn is_dax(device: u64) -> bool {
    std::fs::canonicalize(device_directory(device).join("subsystem"))
        .is_ok_and(|path| path.ends_with("dax"))
}

#[cfg(test)]
mod tests {
    use super::SparseFile;
    use std::io;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_skipped_and_the_offset_stays() {
        use std::io::{Seek, SeekFrom};
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(&[7; 100], 32 << 20).unwrap();
        file.write_all_at(&[8; 10], (64 << 20) - 10).unwrap();
        file.seek(SeekFrom::Start(12345)).unwrap();
        let sparse = SparseFile::from_target(file.try_clone().unwrap().into())
            .unwrap()
            .unwrap();
        let mut total = 0;
        let mut sum = 0u64;
        sparse
            .for_each_run(sparse.len_bytes().unwrap(), |_, bytes| {
                total += bytes.len();
                sum += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                Ok::<_, io::Error>(())
            })
            .unwrap();
        assert_eq!(sum, 780);
        assert!(total < 64 << 20, "{total} bytes were read");
        assert_eq!(file.stream_position().unwrap(), 12345);
        assert!(!sparse.is_named());
    }

    #[test]
    fn a_socket_is_no_pool() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(SparseFile::from_target(socket.into()).unwrap().is_none());
    }
}
