//! The trees of a recording: their files at the beginning, and what was found at the end.

use std::fmt;
use std::path::PathBuf;

use powerfail_model::files::{Entry, NodeId, NodeKind};

use crate::image::ImageHash;

/// A tree of a recording, in the order in which they are defined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeIndex(pub u32);

impl fmt::Display for TreeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A directory whose files take part in crashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Where it is: an absolute path without symbolic links.
    pub path: PathBuf,
    /// The directory. It is among the initial nodes.
    pub root: NodeId,
}

/// A node that existed before the first operation on its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialNode {
    /// The node.
    pub node: NodeId,
    /// What it is.
    pub kind: NodeKind,
    /// Its permissions, without the type.
    pub mode: u32,
    /// Its length; zero if it is not a regular file.
    pub len_bytes: u64,
}

/// A name that existed before the first operation on its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialEntry {
    /// The name.
    pub entry: Entry,
    /// The node that had it.
    pub node: NodeId,
}

/// A piece of a file as it was before the first operation on its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRun<'a> {
    /// The file.
    pub node: NodeId,
    /// Where it stands.
    pub offset: u64,
    /// What stands there.
    pub bytes: &'a [u8],
}

/// A name that a tree had at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalEntry {
    /// The path below the root of the tree; empty for the root.
    pub path: PathBuf,
    /// What was found there.
    pub content: FinalContent,
}

/// What was found under a name at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinalContent {
    /// A regular file.
    File {
        /// Its length.
        len_bytes: u64,
        /// The hash of its content.
        hash: ImageHash,
    },
    /// A directory.
    Directory,
    /// A symbolic link to this.
    Symlink(Box<[u8]>),
    /// A pipe or a device.
    Other,
    /// A regular file whose content is not recorded, because the target changed it by a mapping that is not a pool.
    Unrecorded,
}
