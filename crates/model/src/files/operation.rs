//! What a program does to the files of a tree, as the model sees it.

use std::fmt;
use std::str::FromStr;

use super::ids::{Entry, NodeId};

/// What a new node is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A regular file; it begins empty.
    File,
    /// A directory; it begins empty.
    Directory,
    /// A symbolic link.
    Symlink {
        /// What it points to, as it is written in it.
        target: Box<[u8]>,
    },
    /// A socket, a pipe or a device: it has a name and no content.
    Other,
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    /// The first one.
    pub offset: u64,
    /// How many.
    pub len_bytes: u64,
}

impl ByteRange {
    /// `len_bytes` bytes from `offset`.
    pub const fn new(offset: u64, len_bytes: u64) -> Self {
        Self { offset, len_bytes }
    }

    /// The offset behind the last byte.
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.len_bytes)
    }
}

/// A system call that succeeded and changed the tree or made a part of it durable. A system call that
/// does several things is several operations: `open` with `O_CREAT` and `O_TRUNC` is a
/// [`Create`](Self::Create) or a [`Truncate`](Self::Truncate); a write through a descriptor with
/// `O_SYNC` or `O_DSYNC`, or with `RWF_SYNC` or `RWF_DSYNC`, is a [`Write`](Self::Write) and a
/// [`SyncFile`](Self::SyncFile); `copy_file_range`, `sendfile`, `splice` and stores to a shared mapping are
/// writes. What makes nothing durable is not an operation: `sync_file_range`, `msync(MS_ASYNC)`, reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A node is made: `open(O_CREAT)`, `mkdir`, `symlink`, `mknod`, `bind`.
    Create {
        /// The new node.
        node: NodeId,
        /// What it is.
        kind: NodeKind,
        /// Its name; `None` for `O_TMPFILE`.
        entry: Option<Entry>,
    },
    /// A node gets one more name: `link`.
    Link {
        /// The node.
        node: NodeId,
        /// Its new name, which was free.
        entry: Entry,
    },
    /// A name is removed: `unlink`, `rmdir`.
    Unlink {
        /// The node that had the name.
        node: NodeId,
        /// The name.
        entry: Entry,
    },
    /// A node gets another name: `rename`, also with `RENAME_NOREPLACE`.
    Rename {
        /// The node.
        node: NodeId,
        /// The old name.
        from: Entry,
        /// The new name.
        to: Entry,
        /// The node that had the new name until now.
        replaced: Option<NodeId>,
    },
    /// Two names are swapped: `renameat2(RENAME_EXCHANGE)`.
    Exchange {
        /// One name.
        first: Entry,
        /// The node that had it.
        first_node: NodeId,
        /// The other name.
        second: Entry,
        /// The node that had the other name.
        second_node: NodeId,
    },
    /// Bytes are written to a file, which grows if they end beyond its end. The bytes themselves are with
    /// the recording.
    Write {
        /// The file.
        node: NodeId,
        /// Where, also for `O_APPEND`.
        range: ByteRange,
    },
    /// A file is cut or extended: `truncate`, `open(O_TRUNC)`.
    Truncate {
        /// The file.
        node: NodeId,
        /// Its new length.
        len_bytes: u64,
    },
    /// Blocks are reserved: `fallocate` without a mode, or with `FALLOC_FL_KEEP_SIZE`. What they hold
    /// does not change; holes read as zeros as before.
    Allocate {
        /// The file.
        node: NodeId,
        /// The blocks.
        range: ByteRange,
        /// Whether the length stays even if the range ends beyond it.
        keep_size: bool,
    },
    /// A range is set to zeros: `FALLOC_FL_ZERO_RANGE`.
    Zero {
        /// The file.
        node: NodeId,
        /// The bytes.
        range: ByteRange,
        /// Whether the length stays even if the range ends beyond it.
        keep_size: bool,
    },
    /// A range becomes a hole: `FALLOC_FL_PUNCH_HOLE`. The length stays.
    PunchHole {
        /// The file.
        node: NodeId,
        /// The bytes.
        range: ByteRange,
    },
    /// A range is removed, and what follows moves down: `FALLOC_FL_COLLAPSE_RANGE`.
    CollapseRange {
        /// The file.
        node: NodeId,
        /// The bytes.
        range: ByteRange,
    },
    /// A hole is inserted, and what follows moves up: `FALLOC_FL_INSERT_RANGE`.
    InsertRange {
        /// The file.
        node: NodeId,
        /// Where, and how many bytes.
        range: ByteRange,
    },
    /// A file or a directory is made durable: `fsync`, `fdatasync`, a synchronous write.
    SyncFile {
        /// The file or directory.
        node: NodeId,
        /// Whether metadata may be left out that is not needed to read the data: `fdatasync`, `O_DSYNC`.
        data_only: bool,
    },
    /// A range of a file is made durable: `msync(MS_SYNC)`.
    SyncRange {
        /// The file.
        node: NodeId,
        /// The bytes.
        range: ByteRange,
    },
    /// Everything is made durable: `sync`, `syncfs`.
    SyncFileSystem,
    /// The last descriptor of an open file description that was open for writing is closed. Makes
    /// nothing durable, but ext4 has a rule for it.
    Close {
        /// The file.
        node: NodeId,
    },
}

impl Operation {
    /// The node that it is about: of an exchange the first one, of a sync of the file system none.
    pub const fn node(&self) -> Option<NodeId> {
        match self {
            Self::Create { node, .. }
            | Self::Link { node, .. }
            | Self::Unlink { node, .. }
            | Self::Rename { node, .. }
            | Self::Write { node, .. }
            | Self::Truncate { node, .. }
            | Self::Allocate { node, .. }
            | Self::Zero { node, .. }
            | Self::PunchHole { node, .. }
            | Self::CollapseRange { node, .. }
            | Self::InsertRange { node, .. }
            | Self::SyncFile { node, .. }
            | Self::SyncRange { node, .. }
            | Self::Close { node } => Some(*node),
            Self::Exchange { first_node, .. } => Some(*first_node),
            Self::SyncFileSystem => None,
        }
    }

    /// Whether it makes something durable, or would if something were not.
    pub const fn is_sync(&self) -> bool {
        matches!(
            self,
            Self::SyncFile { .. } | Self::SyncRange { .. } | Self::SyncFileSystem
        )
    }

    /// The file whose data or length it changes.
    pub const fn file(&self) -> Option<NodeId> {
        match *self {
            Self::Write { node, .. }
            | Self::Truncate { node, .. }
            | Self::Allocate { node, .. }
            | Self::Zero { node, .. }
            | Self::PunchHole { node, .. }
            | Self::CollapseRange { node, .. }
            | Self::InsertRange { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Whether it changes names.
    pub const fn is_namespace(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::Link { .. }
                | Self::Unlink { .. }
                | Self::Rename { .. }
                | Self::Exchange { .. }
        )
    }
}

/// Whose rules decide what a crash may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileSystem {
    /// What at least one of ext4, xfs and btrfs, with their default options, permits.
    #[default]
    Linux,
    /// ext4 with its default options (`data=ordered`, delayed allocation, `auto_da_alloc`).
    Ext4,
    /// XFS with its default options.
    Xfs,
    /// Btrfs with its default options.
    Btrfs,
    /// Any file system: only what was synced is sure.
    Posix,
}

impl FileSystem {
    /// All of them, in the order in which they are listed for people.
    pub const ALL: [Self; 5] = [Self::Linux, Self::Ext4, Self::Xfs, Self::Btrfs, Self::Posix];
    /// Those that exist.
    pub const REAL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// As it is written on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Posix => "posix",
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FileSystem {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|fs| fs.as_str() == text);
        found.ok_or_else(|| {
            let all: Vec<_> = Self::ALL.iter().map(|fs| fs.as_str()).collect();
            format!("expected {}", all.join(", "))
        })
    }
}
