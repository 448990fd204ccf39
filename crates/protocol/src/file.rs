//! Operations on files of the trees of a recording: what the runtime says of one, and the memory that processes share for
//! it.
//!
//! An operation is a record of the kind [`EventKind::File`](crate::EventKind::File). Its value is six words (see
//! [`FileEvent`]) and bytes: paths, or what was written. A longer write has further records of the same thread behind it,
//! with [`FileCode::Continued`]. Files are named by device and inode, which the host turns into nodes.
//!
//! All processes make their operations under one lock ([`TreeTable::lock`]), from before the system call until its record
//! is complete: so the order of records is the order in which the kernel did it.

use core::sync::atomic::{AtomicU8, AtomicU32};

/// How many bytes of a write one record has at most.
pub const PIECE_MAX: usize = 32 * 1024;
/// How many bytes the paths of all trees have.
pub const PATHS_MAX: usize = 16 * 1024;
/// Set in [`TreeTable::lock`] while a thread waits for it.
pub const LOCK_WAITED_FOR: u32 = 1 << 31;

/// The trees, as all processes see them.
#[repr(C)]
#[derive(Debug)]
pub struct TreeTable {
    /// Not zero: operations on files are recorded.
    pub is_on: AtomicU32,
    /// How many bytes of the paths are valid. Grows when a tree is added.
    pub paths_len: AtomicU32,
    /// Futex: 0, or the number of the thread that makes an operation plus one, and [`LOCK_WAITED_FOR`].
    pub lock: AtomicU32,
    /// The paths, each with its length in two bytes before it. The first one is not a tree, but the directory below which a
    /// directory becomes a tree when the target changes something in it; empty if none does.
    pub paths: [AtomicU8; PATHS_MAX],
}

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum FileCode {
    /// A file was made. Numbers: mode (with the type), length of the path. Bytes: path (none for `O_TMPFILE`), target of a
    /// symbolic link.
    Create = 1,
    /// A file got one more name. Bytes: path.
    Link = 2,
    /// A name was removed. Bytes: path.
    Unlink = 3,
    /// A name was changed. Numbers: flags of `renameat2`, length of the old path. Bytes: old path, new path.
    Rename = 4,
    /// Bytes were written. Numbers: offset, length, [`WRITE_SYNC`] or [`WRITE_DATA_SYNC`] or 0. Bytes: the first
    /// [`PIECE_MAX`] of them.
    Write = 5,
    /// More bytes of the write before.
    Continued = 6,
    /// A file has another length. Numbers: length.
    Truncate = 7,
    /// `fallocate`. Numbers: mode, offset, length.
    Allocate = 8,
    /// A file or directory was made durable. Numbers: 1 if only its data was.
    Sync = 9,
    /// All files were made durable.
    SyncAll = 10,
    /// A file that was open for writing was closed.
    Close = 11,
    /// A sync of a file or directory failed, and data may be lost.
    FailedSync = 12,
    /// A file did not get a name because it lies on another file system. Bytes: path.
    CrossedDevices = 13,
}

/// A write through a descriptor with `O_SYNC`, or with `RWF_SYNC`.
pub const WRITE_SYNC: u64 = 1;
/// A write through a descriptor with `O_DSYNC`, or with `RWF_DSYNC`.
pub const WRITE_DATA_SYNC: u64 = 2;

impl FileCode {
    const ALL: [Self; 13] = [
        Self::Create,
        Self::Link,
        Self::Unlink,
        Self::Rename,
        Self::Write,
        Self::Continued,
        Self::Truncate,
        Self::Allocate,
        Self::Sync,
        Self::SyncAll,
        Self::Close,
        Self::FailedSync,
        Self::CrossedDevices,
    ];

    fn from_number(number: u64) -> Option<Self> {
        let place = usize::try_from(number.checked_sub(1)?).ok()?;
        Self::ALL.get(place).copied()
    }
}

/// An operation, as a record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEvent<'a> {
    /// What it is.
    pub code: FileCode,
    /// The device of the file; 0 where a path says which file it is.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// See [`FileCode`].
    pub numbers: [u64; 3],
    /// See [`FileCode`].
    pub bytes: &'a [u8],
}

/// How long the beginning of the value is.
pub const WORDS_LEN: usize = 6 * 8;

impl<'a> FileEvent<'a> {
    /// The words with which the value begins.
    pub const fn words(&self) -> [u64; 6] {
        let [first, second, third] = self.numbers;
        [
            self.code as u64,
            self.device,
            self.inode,
            first,
            second,
            third,
        ]
    }

    /// Reads a value; `None` if it is not one.
    pub fn from_value(value: &'a [u8]) -> Option<Self> {
        let (words, bytes) = value.split_at_checked(WORDS_LEN)?;
        let word = |at: usize| {
            let word = words.get(8 * at..8 * at + 8)?;
            Some(u64::from_le_bytes(word.try_into().ok()?))
        };
        Some(Self {
            code: FileCode::from_number(word(0)?)?,
            device: word(1)?,
            inode: word(2)?,
            numbers: [word(3)?, word(4)?, word(5)?],
            bytes,
        })
    }

    /// The bytes, divided where a number says.
    pub fn divided(&self, len: u64) -> Option<(&'a [u8], &'a [u8])> {
        self.bytes.split_at_checked(usize::try_from(len).ok()?)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::{FileCode, FileEvent};
    use std::vec::Vec;

    #[test]
    fn events_survive_their_bytes() {
        for code in FileCode::ALL {
            let event = FileEvent {
                code,
                device: 1,
                inode: u64::MAX,
                numbers: [3, 4, 5],
                bytes: b"/data/a/data/b",
            };
            let mut value: Vec<u8> = event.words().map(u64::to_le_bytes).concat();
            value.extend(event.bytes);
            assert_eq!(FileEvent::from_value(&value), Some(event));
            assert_eq!(FileEvent::from_value(&value[..47]), None);
            assert_eq!(event.divided(7), Some((&b"/data/a"[..], &b"/data/b"[..])));
            assert_eq!(event.divided(99), None);
        }
        assert_eq!(FileEvent::from_value(&[0; 48]), None);
    }
}
