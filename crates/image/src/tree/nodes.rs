//! The files of trees while operations are applied to them, one after the other.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use powerfail_model::files::{Entry, Name, NodeId, NodeKind, Operation};

use super::content::FileContent;
use super::image::{NodeKey, TreeEntry, TreeFile, TreeImage};

const DIRECTORY_MODE: u32 = 0o755;

/// A node of a tree.
#[derive(Clone, Debug)]
pub struct TreeNode {
    /// What it is.
    pub kind: NodeKind,
    /// The permission bits.
    pub mode: u32,
    /// The bytes, if it is a file.
    pub content: FileContent,
}

/// Names and nodes. A directory is known by its node, so that renaming it costs nothing for what is in it. A copy shares
/// the bytes of files.
#[derive(Clone, Debug, Default)]
pub struct TreeNodes {
    /// The roots.
    pub roots: Vec<NodeId>,
    /// All nodes, also those without a name.
    pub nodes: BTreeMap<NodeId, TreeNode>,
    /// All names.
    pub entries: BTreeMap<Entry, NodeId>,
}

impl TreeNodes {
    /// Applies an operation. `mode` and `bytes` are the permissions of what it creates and the bytes that it writes.
    pub fn apply(&mut self, operation: &Operation, mode: u32, bytes: &[u8]) {
        match operation {
            Operation::Create { node, kind, entry } => {
                let fresh = TreeNode {
                    kind: kind.clone(),
                    mode,
                    content: FileContent::default(),
                };
                self.nodes.insert(*node, fresh);
                if let Some(entry) = entry {
                    self.entries.insert(entry.clone(), *node);
                }
            }
            Operation::Link { node, entry } => {
                self.entries.insert(entry.clone(), *node);
            }
            Operation::Unlink { entry, .. } => {
                self.entries.remove(entry);
            }
            Operation::Rename { node, from, to, .. } => {
                self.entries.remove(from);
                self.entries.insert(to.clone(), *node);
            }
            Operation::Exchange {
                first,
                first_node,
                second,
                second_node,
            } => {
                self.entries.insert(first.clone(), *second_node);
                self.entries.insert(second.clone(), *first_node);
            }
            Operation::Write { node, range } => {
                self.change(*node, |content| content.write(range.offset, bytes));
            }
            Operation::Truncate { node, len_bytes } => {
                self.change(*node, |content| content.set_len(*len_bytes));
            }
            Operation::Allocate {
                node,
                range,
                keep_size,
            } => self.change(*node, |content| {
                if !keep_size && content.len_bytes() < range.end() {
                    content.set_len(range.end());
                }
            }),
            Operation::Zero {
                node,
                range,
                keep_size,
            } => self.change(*node, |content| {
                if !keep_size && content.len_bytes() < range.end() {
                    content.set_len(range.end());
                }
                content.zero(range.offset..range.end());
            }),
            Operation::PunchHole { node, range } => {
                self.change(*node, |content| content.zero(range.offset..range.end()));
            }
            Operation::CollapseRange { node, range } => {
                self.change(*node, |content| {
                    if range.end() <= content.len_bytes() {
                        content.collapse(range.offset..range.end());
                    }
                });
            }
            Operation::InsertRange { node, range } => {
                self.change(*node, |content| {
                    if range.offset <= content.len_bytes() {
                        content.insert(range.offset, range.len_bytes);
                    }
                });
            }
            Operation::SyncFile { .. }
            | Operation::SyncRange { .. }
            | Operation::SyncFileSystem
            | Operation::Close { .. } => {}
        }
    }

    fn change(&mut self, node: NodeId, change: impl FnOnce(&mut FileContent)) {
        if let Some(node) = self.nodes.get_mut(&node) {
            change(&mut node.content);
        }
    }

    /// The tree of what has a name.
    pub fn image(&self) -> TreeImage {
        self.image_of(&self.entries, &BTreeMap::new())
    }

    /// The tree of other names, and with other bytes of some files.
    pub fn image_of(
        &self,
        entries: &BTreeMap<Entry, NodeId>,
        contents: &BTreeMap<NodeId, FileContent>,
    ) -> TreeImage {
        let mut image = TreeImage::default();
        let mut waiting: Vec<(PathBuf, NodeId)> = Vec::new();
        for (number, root) in self.roots.iter().enumerate() {
            waiting.push((TreeImage::root(number), *root));
        }
        while let Some((path, node)) = waiting.pop() {
            let known = self.nodes.get(&node);
            let mode = known.map_or(DIRECTORY_MODE, |it| it.mode);
            // A state that no file system has could put a directory into itself.
            if image.entries.contains_key(&path) || path.components().count() > DEPTH_MAX {
                continue;
            }
            image
                .entries
                .insert(path.clone(), TreeEntry::Directory { mode });
            for (entry, child) in children(entries, node) {
                let at = path.join(OsStr::from_bytes(entry.name.as_bytes()));
                let Some(known) = self.nodes.get(&child) else {
                    continue;
                };
                match &known.kind {
                    NodeKind::Directory => waiting.push((at, child)),
                    NodeKind::File => {
                        let key = NodeKey(child.0.into());
                        image.entries.insert(at, TreeEntry::File(key));
                        image.files.entry(key).or_insert_with(|| TreeFile {
                            mode: known.mode,
                            content: contents.get(&child).unwrap_or(&known.content).clone(),
                        });
                    }
                    NodeKind::Symlink { target } => {
                        let target = PathBuf::from(std::ffi::OsString::from_vec(target.to_vec()));
                        image.entries.insert(at, TreeEntry::Link { target });
                    }
                    NodeKind::Other => {}
                }
            }
        }
        image
    }

    /// The path of a name below its root, with the number of the root; `None` if the directory has no name.
    pub fn path_of(&self, entry: &Entry) -> Option<(usize, PathBuf)> {
        let mut parts = vec![entry.name.clone()];
        let mut directory = entry.directory;
        loop {
            if let Some(root) = self.roots.iter().position(|root| *root == directory) {
                let parts = parts.iter().rev().map(Name::as_bytes);
                let path: PathBuf = parts
                    .map(|part| Path::new(OsStr::from_bytes(part)))
                    .collect();
                return Some((root, path));
            }
            let (above, _) = self.entries.iter().find(|(_, node)| **node == directory)?;
            parts.push(above.name.clone());
            directory = above.directory;
            if parts.len() > DEPTH_MAX {
                return None;
            }
        }
    }

    /// A name of a node, if it has one.
    pub fn name_of(&self, node: NodeId) -> Option<&Entry> {
        let mut entries = self.entries.iter();
        entries
            .find(|(_, named)| **named == node)
            .map(|(entry, _)| entry)
    }
}

/// Deeper directories are not reached by a path that the kernel accepts.
const DEPTH_MAX: usize = 2048;

/// The entries of a directory.
fn children(
    entries: &BTreeMap<Entry, NodeId>,
    directory: NodeId,
) -> impl Iterator<Item = (&Entry, NodeId)> {
    let first = Entry::new(directory, "");
    let entries = entries.range(first..);
    let entries = entries.take_while(move |(entry, _)| entry.directory == directory);
    entries.map(|(entry, node)| (entry, *node))
}
