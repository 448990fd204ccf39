//! Replays the operations of a trace over its initial trees and compares with what was found at the end.
//!
//! If that gives the same names, lengths and bytes, the recorder missed nothing. Takes memory for the pages of files that
//! are not zero. Knows nothing of durability. Trusts nothing: operations on nodes or names that do not exist are
//! differences, not panics.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use powerfail_model::files::{ByteRange, NodeId, NodeKind};
use powerfail_model::{Event, EventIndex, PoolIndex};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::file::{EntryName, FileOperation, RangeChange};
use crate::image::ImageHash;
use crate::reader::Trace;
use crate::record::Body;
use crate::replay::{Memory, SparseImage};
use crate::tree::{FinalContent, FinalEntry, TreeIndex};

/// What became of one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeReplay {
    /// The tree.
    pub tree: TreeIndex,
    /// How many names it has at the end, its root included.
    pub names: u64,
    /// Whether the recorder said what it found.
    pub is_known: bool,
    /// The first difference between the replay and what the recorder found.
    pub difference: Option<TreeDifference>,
}

impl TreeReplay {
    /// Whether the replay gave what the recorder found; `None` if it did not say.
    pub const fn matches(&self) -> Option<bool> {
        if self.difference.is_some() {
            Some(false)
        } else if self.is_known {
            Some(true)
        } else {
            None
        }
    }
}

/// How a replayed tree differs from what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeDifference {
    /// An operation names a file or a directory that does not exist, or a name that is free or taken.
    Impossible {
        /// The operation.
        index: EventIndex,
    },
    /// A name was found that the operations do not give.
    Missing(PathBuf),
    /// A name that the operations give was not found.
    Unexpected(PathBuf),
    /// Another kind of file was found, or a symbolic link to something else.
    Kind(PathBuf),
    /// A file has another length.
    Length {
        /// Where.
        path: PathBuf,
        /// The length that the operations give.
        replayed: u64,
        /// The length that was found.
        found: u64,
    },
    /// A file has other bytes.
    Content(PathBuf),
}

impl fmt::Display for TreeDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Impossible { index } => {
                write!(f, "the operation {index} names a file that is not there")
            }
            Self::Missing(path) => write!(f, "nothing recorded made {}", path.display()),
            Self::Unexpected(path) => write!(f, "nothing recorded removed {}", path.display()),
            Self::Kind(path) => write!(f, "{} is another kind of file", path.display()),
            Self::Length {
                path,
                replayed,
                found,
            } => write!(
                f,
                "{} has {found} bytes, and {replayed} in the recording",
                path.display()
            ),
            Self::Content(path) => {
                write!(
                    f,
                    "{} has other bytes than in the recording",
                    path.display()
                )
            }
        }
    }
}

/// Replays a trace; one result per tree, in their order.
pub fn replay_trees(trace: &Trace) -> Result<Vec<TreeReplay>> {
    replay_trees_within(trace, u64::MAX)
}

/// The same, but gives up with [`TraceError::TooLarge`](crate::TraceError::TooLarge) before pages take more than
/// `memory_limit_bytes`.
pub fn replay_trees_within(trace: &Trace, memory_limit_bytes: u64) -> Result<Vec<TreeReplay>> {
    if trace.trees().is_empty() {
        return Ok(Vec::new());
    }
    let mut memory = Memory::new(memory_limit_bytes);
    let mut files = Files::initial(trace, &mut memory)?;
    let mut impossible = None;
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        if files.apply(&record.body, &mut memory)?.is_none() && impossible.is_none() {
            impossible = Some(TreeDifference::Impossible {
                index: record.index,
            });
        }
    }
    let unrecorded: FxHashSet<NodeId> = trace.unrecorded_files().iter().copied().collect();
    let results = (0..).map(TreeIndex).zip(trace.trees()).map(|(tree, root)| {
        let mut names = BTreeMap::new();
        files.list(root.root, &mut names);
        let found = trace.final_tree(tree);
        let difference = found.and_then(|found| files.compare(&names, found, &unrecorded));
        TreeReplay {
            tree,
            names: names.len() as u64,
            is_known: found.is_some(),
            difference: difference.or_else(|| impossible.clone()),
        }
    });
    Ok(results.collect())
}

/// A node.
enum Node {
    File(SparseImage),
    Directory(BTreeMap<Box<[u8]>, NodeId>),
    Symlink(Box<[u8]>),
    Other,
}

/// All nodes of all trees.
#[derive(Default)]
struct Files {
    nodes: FxHashMap<NodeId, Node>,
    /// The files that are pools.
    pools: Vec<Option<NodeId>>,
}

/// Something that an operation names is not there.
type Possible = Option<()>;

impl Files {
    fn initial(trace: &Trace, memory: &mut Memory) -> Result<Self> {
        let mut files = Self::default();
        for initial in trace.initial_nodes() {
            let node = match &initial.kind {
                NodeKind::File => Node::File(SparseImage::new(initial.len_bytes)),
                NodeKind::Directory => Node::Directory(BTreeMap::new()),
                NodeKind::Symlink { target } => Node::Symlink(target.clone()),
                NodeKind::Other => Node::Other,
            };
            files.nodes.insert(initial.node, node);
        }
        for initial in trace.initial_entries() {
            let directory = files.directory(initial.entry.directory);
            if let Some(directory) = directory {
                directory.insert(initial.entry.name.as_bytes().into(), initial.node);
            }
        }
        let mut runs = trace.initial_files();
        while let Some(run) = runs.next_run()? {
            if let Some(file) = files.file(run.node) {
                file.store(run.offset, run.bytes, memory)?;
            }
        }
        Ok(files)
    }

    fn directory(&mut self, node: NodeId) -> Option<&mut BTreeMap<Box<[u8]>, NodeId>> {
        match self.nodes.get_mut(&node)? {
            Node::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    fn file(&mut self, node: NodeId) -> Option<&mut SparseImage> {
        match self.nodes.get_mut(&node)? {
            Node::File(image) => Some(image),
            _ => None,
        }
    }

    fn pool_file(&mut self, pool: PoolIndex) -> Option<&mut SparseImage> {
        let node = self.pools.get(pool.0 as usize).copied().flatten()?;
        self.file(node)
    }

    /// Adds a name, which must be free.
    fn add(&mut self, entry: EntryName<'_>, node: NodeId) -> Possible {
        let directory = self.directory(entry.directory)?;
        let before = directory.insert(entry.name.into(), node);
        before.is_none().then_some(())
    }

    /// Removes a name, which must be that of a node.
    fn remove(&mut self, entry: EntryName<'_>, node: NodeId) -> Possible {
        let directory = self.directory(entry.directory)?;
        (directory.remove(entry.name) == Some(node)).then_some(())
    }

    /// Does what a record says. `None` if that is impossible.
    fn apply(&mut self, body: &Body<'_>, memory: &mut Memory) -> Result<Possible> {
        match *body {
            Body::Pm(Event::Store { at, bytes, .. }) => {
                if let Some(file) = self.pool_file(at.pool) {
                    file.store(at.offset.0, bytes, memory)?;
                }
            }
            Body::Pm(Event::Resize { pool, len_bytes }) => {
                if let Some(file) = self.pool_file(pool) {
                    file.resize(len_bytes, memory);
                }
            }
            Body::Mapped { pool, node } => {
                let place = pool.0 as usize;
                if self.pools.len() <= place {
                    self.pools.resize(place + 1, None);
                }
                self.pools[place] = Some(node);
                return Ok(self.file(node).map(drop));
            }
            Body::File(FileOperation::Write {
                node,
                offset,
                bytes,
            }) => {
                let Some(file) = self.file(node) else {
                    return Ok(None);
                };
                let end = offset.saturating_add(bytes.len() as u64);
                file.len_bytes = file.len_bytes.max(end);
                file.store(offset, bytes, memory)?;
            }
            Body::File(FileOperation::Change {
                node,
                change,
                range,
            }) => {
                let Some(file) = self.file(node) else {
                    return Ok(None);
                };
                change_range(file, change, range, memory)?;
            }
            Body::File(operation) => return Ok(self.apply_name(&operation, memory)),
            _ => {}
        }
        Ok(Some(()))
    }

    fn apply_name(&mut self, operation: &FileOperation<'_>, memory: &mut Memory) -> Possible {
        match *operation {
            FileOperation::Create {
                node, kind, entry, ..
            } => {
                let new = match kind.to_kind() {
                    NodeKind::File => Node::File(SparseImage::new(0)),
                    NodeKind::Directory => Node::Directory(BTreeMap::new()),
                    NodeKind::Symlink { target } => Node::Symlink(target),
                    NodeKind::Other => Node::Other,
                };
                let is_new = self.nodes.insert(node, new).is_none();
                if let Some(entry) = entry {
                    self.add(entry, node)?;
                }
                is_new.then_some(())
            }
            FileOperation::Link { node, entry } => {
                self.nodes.get(&node)?;
                self.add(entry, node)
            }
            FileOperation::Unlink { node, entry } => self.remove(entry, node),
            FileOperation::Rename {
                node,
                from,
                to,
                replaced,
            } => {
                self.remove(from, node)?;
                let directory = self.directory(to.directory)?;
                (directory.insert(to.name.into(), node) == replaced).then_some(())
            }
            FileOperation::Exchange {
                first,
                first_node,
                second,
                second_node,
            } => {
                self.remove(first, first_node)?;
                self.remove(second, second_node)?;
                self.add(first, second_node)?;
                self.add(second, first_node)
            }
            FileOperation::Truncate { node, len_bytes } => {
                self.file(node)?.resize(len_bytes, memory);
                Some(())
            }
            FileOperation::SyncFile { node, .. }
            | FileOperation::Close { node }
            | FileOperation::FailedSync { node } => self.nodes.get(&node).map(drop),
            FileOperation::CrossedDevices { entry } => self.directory(entry.directory).map(drop),
            FileOperation::SyncFileSystem
            | FileOperation::Write { .. }
            | FileOperation::Change { .. } => Some(()),
        }
    }

    /// All names below a directory, and itself.
    fn list(&self, root: NodeId, names: &mut BTreeMap<PathBuf, NodeId>) {
        let mut seen = FxHashSet::default();
        let mut open = vec![(PathBuf::new(), root)];
        while let Some((path, node)) = open.pop() {
            if let Some(Node::Directory(entries)) = self.nodes.get(&node)
                // A directory has one name; a damaged trace may give it more, and in a circle.
                && seen.insert(node)
            {
                for (name, node) in entries {
                    let name = OsString::from_vec(name.to_vec());
                    open.push((path.join(name), *node));
                }
            }
            names.insert(path, node);
        }
    }

    /// The first difference from what was found.
    fn compare(
        &self,
        names: &BTreeMap<PathBuf, NodeId>,
        found: &[FinalEntry],
        unrecorded: &FxHashSet<NodeId>,
    ) -> Option<TreeDifference> {
        let mut left: FxHashSet<&Path> = names.keys().map(PathBuf::as_path).collect();
        let mut hashes: FxHashMap<NodeId, (u64, ImageHash)> = FxHashMap::default();
        for entry in found {
            let path = &entry.path;
            let Some(node) = names.get(path) else {
                return Some(TreeDifference::Missing(path.clone()));
            };
            left.remove(path.as_path());
            let is_same = match (self.nodes.get(node)?, &entry.content) {
                (Node::File(_), FinalContent::File { .. }) if unrecorded.contains(node) => true,
                (Node::File(image), FinalContent::File { len_bytes, hash }) => {
                    if image.len_bytes != *len_bytes {
                        return Some(TreeDifference::Length {
                            path: path.clone(),
                            replayed: image.len_bytes,
                            found: *len_bytes,
                        });
                    }
                    let known = hashes.entry(*node);
                    let replayed = known.or_insert_with(|| (image.len_bytes, image.hash()));
                    if replayed.1 != *hash {
                        return Some(TreeDifference::Content(path.clone()));
                    }
                    true
                }
                (Node::File(_), FinalContent::Unrecorded)
                | (Node::Directory(_), FinalContent::Directory)
                | (Node::Other, FinalContent::Other) => true,
                (Node::Symlink(target), FinalContent::Symlink(found)) => target == found,
                _ => false,
            };
            if !is_same {
                return Some(TreeDifference::Kind(path.clone()));
            }
        }
        let unexpected = left.into_iter().min()?;
        Some(TreeDifference::Unexpected(unexpected.to_path_buf()))
    }
}

/// Changes a range of a file as `fallocate` does.
fn change_range(
    file: &mut SparseImage,
    change: RangeChange,
    range: ByteRange,
    memory: &mut Memory,
) -> Result<()> {
    match change {
        RangeChange::Allocate { keep_size } | RangeChange::Zero { keep_size } => {
            if matches!(change, RangeChange::Zero { .. }) {
                file.zero(range.offset, range.end());
            }
            if !keep_size {
                file.len_bytes = file.len_bytes.max(range.end());
            }
        }
        RangeChange::PunchHole => file.zero(range.offset, range.end()),
        RangeChange::Collapse => {
            let len = file.len_bytes;
            let tail = file.take_from(range.end(), memory);
            file.resize(range.offset.min(len), memory);
            file.len_bytes = len.saturating_sub(range.len_bytes).max(file.len_bytes);
            for (offset, bytes) in tail {
                file.store(offset - range.len_bytes, &bytes, memory)?;
            }
        }
        RangeChange::Insert => {
            let len = file.len_bytes;
            let tail = file.take_from(range.offset, memory);
            file.len_bytes = len.saturating_add(range.len_bytes);
            for (offset, bytes) in tail {
                file.store(offset.saturating_add(range.len_bytes), &bytes, memory)?;
            }
        }
    }
    Ok(())
}
