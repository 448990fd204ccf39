//! Identifiers of the file model, each with its own type.

use std::fmt;

/// How many bytes a device writes as a whole.
pub const SECTOR_BYTES: u64 = 512;
/// How many bytes the kernel writes back at a time.
pub const PAGE_BYTES: u64 = 4096;
/// How many sectors a page has.
pub const SECTORS_PER_PAGE: usize = 8;

/// An inode: a file, a directory, a symbolic link or another thing with a name. A number that the
/// file system gives to a new inode after the old one is gone is a new node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// The place of an operation in the recorded order. Indexes grow from operation to operation but need not
/// be dense; a crash "at `k`" is a crash just before operation `k`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationIndex(pub u64);

/// A page of a file: its offset divided by [`PAGE_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageIndex(pub u64);

/// A sector of a file: its offset divided by [`SECTOR_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectorIndex(pub u64);

/// One component of a path: any bytes but `/` and NUL.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// The name of these bytes.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The directory.
    pub directory: NodeId,
    /// The name in it.
    pub name: Name,
}

impl Entry {
    /// The entry `name` of `directory`.
    pub fn new(directory: NodeId, name: impl Into<Name>) -> Self {
        Self {
            directory,
            name: name.into(),
        }
    }
}

/// Where the bytes of a part of a file come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Zeros: a hole, or a block that was allocated and never written.
    Zeros,
    /// What a file had before the first operation, from an offset of that file.
    Initial {
        /// The file.
        node: NodeId,
        /// Where the bytes were in it.
        offset: u64,
    },
    /// What a [`Write`](super::Operation::Write) wrote, from an offset in its data.
    Written {
        /// The write.
        operation: OperationIndex,
        /// Where the bytes are in its data.
        offset: u64,
    },
}

impl Source {
    /// The source of the bytes that are `by` bytes further on.
    #[must_use]
    pub const fn advanced(self, by: u64) -> Self {
        match self {
            Self::Zeros => Self::Zeros,
            Self::Initial { node, offset } => Self::Initial {
                node,
                offset: offset + by,
            },
            Self::Written { operation, offset } => Self::Written {
                operation,
                offset: offset + by,
            },
        }
    }
}

macro_rules! display_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

display_number!(NodeId, OperationIndex, PageIndex, SectorIndex);
