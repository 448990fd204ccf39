//! Operations on the files of a tree, as a record carries them.
//!
//! They are those of the model ([`Operation`]), with borrowed names and with the bytes that a write has written.
//! [`FileOperations`] turns the records of a trace into operations of the model, also what was stored to a pool that is
//! a file of a tree.

use powerfail_model::files::{ByteRange, Entry, Name, NodeId, NodeKind, Operation};
use powerfail_model::{Event, PoolIndex};

use crate::record::{Body, Record};

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryName<'a> {
    /// The directory.
    pub directory: NodeId,
    /// The name in it: not empty, neither `.` nor `..`, without `/` and zero bytes.
    pub name: &'a [u8],
}

impl<'a> EntryName<'a> {
    /// The entry `name` of `directory`.
    pub const fn new(directory: NodeId, name: &'a [u8]) -> Self {
        Self { directory, name }
    }

    /// The same as the model has it.
    pub fn to_entry(self) -> Entry {
        Entry::new(self.directory, Name::new(self.name))
    }
}

/// The longest name of an entry. Names of Linux have at most 255 bytes.
pub const MAX_NAME_BYTES: usize = 1024;

/// Whether bytes can be a name in a directory.
pub fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes.len() <= MAX_NAME_BYTES
        && bytes != b"."
        && bytes != b".."
        && !bytes.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// What a new node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NewNode<'a> {
    /// A regular file, which is empty.
    File,
    /// A directory, which is empty.
    Directory,
    /// A symbolic link to this.
    Symlink(&'a [u8]),
    /// A pipe, a socket or a device.
    Other,
}

impl NewNode<'_> {
    /// The same as the model has it.
    pub fn to_kind(self) -> NodeKind {
        match self {
            Self::File => NodeKind::File,
            Self::Directory => NodeKind::Directory,
            Self::Symlink(target) => NodeKind::Symlink {
                target: target.into(),
            },
            Self::Other => NodeKind::Other,
        }
    }
}

/// A change of a range of a file that writes no bytes: a mode of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RangeChange {
    /// Blocks are reserved, and the length grows unless it is kept.
    Allocate {
        /// Whether the length stays.
        keep_size: bool,
    },
    /// The range is set to zeros, and the length grows unless it is kept.
    Zero {
        /// Whether the length stays.
        keep_size: bool,
    },
    /// The range becomes a hole.
    PunchHole,
    /// The range is removed.
    Collapse,
    /// A hole is inserted.
    Insert,
}

/// An operation on the files of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOperation<'a> {
    /// A node is made.
    Create {
        /// The node.
        node: NodeId,
        /// What it is.
        kind: NewNode<'a>,
        /// Its permissions, without the type.
        mode: u32,
        /// Its name; `None` for `O_TMPFILE`.
        entry: Option<EntryName<'a>>,
    },
    /// A node gets one more name.
    Link {
        /// The node.
        node: NodeId,
        /// The name, which was free.
        entry: EntryName<'a>,
    },
    /// A name is removed.
    Unlink {
        /// The node that had it.
        node: NodeId,
        /// The name.
        entry: EntryName<'a>,
    },
    /// A node gets another name.
    Rename {
        /// The node.
        node: NodeId,
        /// The old name.
        from: EntryName<'a>,
        /// The new name.
        to: EntryName<'a>,
        /// The node that had the new name.
        replaced: Option<NodeId>,
    },
    /// Two names are swapped.
    Exchange {
        /// One name.
        first: EntryName<'a>,
        /// The node that had it.
        first_node: NodeId,
        /// The other name.
        second: EntryName<'a>,
        /// The node that had that one.
        second_node: NodeId,
    },
    /// Bytes are written.
    Write {
        /// The file.
        node: NodeId,
        /// Where.
        offset: u64,
        /// The bytes, at most [`MAX_PAYLOAD_BYTES`](crate::MAX_PAYLOAD_BYTES).
        bytes: &'a [u8],
    },
    /// A file is cut or extended.
    Truncate {
        /// The file.
        node: NodeId,
        /// Its new length.
        len_bytes: u64,
    },
    /// A range of a file changes without bytes that are written.
    Change {
        /// The file.
        node: NodeId,
        /// How it changes.
        change: RangeChange,
        /// The range.
        range: ByteRange,
    },
    /// A file or a directory is made durable.
    SyncFile {
        /// The file or directory.
        node: NodeId,
        /// Whether metadata may be left out that is not needed to read the data.
        data_only: bool,
    },
    /// Everything is made durable.
    SyncFileSystem,
    /// The last descriptor with which a file was open for writing is closed.
    Close {
        /// The file.
        node: NodeId,
    },
    /// A sync failed with an error that says that data may be lost. It made nothing durable.
    FailedSync {
        /// The file or directory.
        node: NodeId,
    },
    /// A file was to get this name, and did not because it lies on another file system.
    CrossedDevices {
        /// The name.
        entry: EntryName<'a>,
    },
}

impl<'a> FileOperation<'a> {
    /// The same as the model has it; none for a call that failed, which changes nothing.
    pub fn to_operation(&self) -> Option<Operation> {
        Some(match *self {
            Self::Create {
                node, kind, entry, ..
            } => Operation::Create {
                node,
                kind: kind.to_kind(),
                entry: entry.map(EntryName::to_entry),
            },
            Self::Link { node, entry } => Operation::Link {
                node,
                entry: entry.to_entry(),
            },
            Self::Unlink { node, entry } => Operation::Unlink {
                node,
                entry: entry.to_entry(),
            },
            Self::Rename {
                node,
                from,
                to,
                replaced,
            } => Operation::Rename {
                node,
                from: from.to_entry(),
                to: to.to_entry(),
                replaced,
            },
            Self::Exchange {
                first,
                first_node,
                second,
                second_node,
            } => Operation::Exchange {
                first: first.to_entry(),
                first_node,
                second: second.to_entry(),
                second_node,
            },
            Self::Write {
                node,
                offset,
                bytes,
            } => Operation::Write {
                node,
                range: ByteRange::new(offset, bytes.len() as u64),
            },
            Self::Truncate { node, len_bytes } => Operation::Truncate { node, len_bytes },
            Self::Change {
                node,
                change,
                range,
            } => match change {
                RangeChange::Allocate { keep_size } => Operation::Allocate {
                    node,
                    range,
                    keep_size,
                },
                RangeChange::Zero { keep_size } => Operation::Zero {
                    node,
                    range,
                    keep_size,
                },
                RangeChange::PunchHole => Operation::PunchHole { node, range },
                RangeChange::Collapse => Operation::CollapseRange { node, range },
                RangeChange::Insert => Operation::InsertRange { node, range },
            },
            Self::SyncFile { node, data_only } => Operation::SyncFile { node, data_only },
            Self::SyncFileSystem => Operation::SyncFileSystem,
            Self::Close { node } => Operation::Close { node },
            Self::FailedSync { .. } | Self::CrossedDevices { .. } => return None,
        })
    }

    /// The bytes that it writes; none if it writes nothing.
    pub const fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Write { bytes, .. } => bytes,
            _ => &[],
        }
    }

    /// The node that it is about first; none for those about everything.
    pub const fn node(&self) -> Option<NodeId> {
        match *self {
            Self::Create { node, .. }
            | Self::Link { node, .. }
            | Self::Unlink { node, .. }
            | Self::Rename { node, .. }
            | Self::Write { node, .. }
            | Self::Truncate { node, .. }
            | Self::Change { node, .. }
            | Self::SyncFile { node, .. }
            | Self::Close { node }
            | Self::FailedSync { node } => Some(node),
            Self::Exchange { first_node, .. } => Some(first_node),
            Self::SyncFileSystem | Self::CrossedDevices { .. } => None,
        }
    }
}

/// Turns records, in their order, into operations of the model. Knows which pools are files of a tree.
#[derive(Clone, Debug, Default)]
pub struct FileOperations {
    nodes: Vec<Option<NodeId>>,
}

impl FileOperations {
    /// The file that a pool is, if it is one of a tree.
    pub fn node_of(&self, pool: PoolIndex) -> Option<NodeId> {
        self.nodes.get(pool.0 as usize).copied().flatten()
    }

    /// The operation of the next record, with the bytes that it writes. `None` if it is none.
    pub fn operation<'a>(&mut self, record: &Record<'a>) -> Option<(Operation, &'a [u8])> {
        match record.body {
            Body::File(operation) => Some((operation.to_operation()?, operation.bytes())),
            Body::Mapped { pool, node } => {
                let place = pool.0 as usize;
                if self.nodes.len() <= place {
                    self.nodes.resize(place + 1, None);
                }
                self.nodes[place] = Some(node);
                None
            }
            Body::Pm(Event::Store { at, bytes, .. }) => {
                let node = self.node_of(at.pool)?;
                let range = ByteRange::new(at.offset.0, bytes.len() as u64);
                Some((Operation::Write { node, range }, bytes))
            }
            Body::Pm(Event::Resize { pool, len_bytes }) => {
                let node = self.node_of(pool)?;
                Some((Operation::Truncate { node, len_bytes }, &[]))
            }
            Body::Pm(Event::Sync {
                pool,
                offset,
                len_bytes,
            }) => {
                let node = self.node_of(pool)?;
                let range = ByteRange::new(offset.0, len_bytes);
                Some((Operation::SyncRange { node, range }, &[]))
            }
            _ => None,
        }
    }
}
