//! A tree of files as a value: what a crash leaves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::content::FileContent;
use super::watch::NodeSet;

/// A file, by a number that stays the same in all images of one trace: files that are the same node are hard links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(pub u64);

/// Equal for equal trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeDigest([u8; 32]);

/// The permissions and bytes of a file.
#[derive(Clone, Debug)]
pub struct TreeFile {
    /// The permission bits.
    pub mode: u32,
    /// The bytes.
    pub content: FileContent,
}

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEntry {
    /// A directory with these permission bits.
    Directory {
        /// The permission bits.
        mode: u32,
    },
    /// A regular file.
    File(NodeKey),
    /// A symbolic link.
    Link {
        /// What it points to.
        target: PathBuf,
    },
}

/// Directories, files and links. Paths are relative; the first component is the number of a root, which is always a
/// directory.
#[derive(Clone, Debug, Default)]
pub struct TreeImage {
    /// Every parent of an entry is a directory of the image.
    pub entries: BTreeMap<PathBuf, TreeEntry>,
    /// The files that entries name. One that no entry names does not exist on disk.
    pub files: BTreeMap<NodeKey, TreeFile>,
}

impl TreeImage {
    /// The path of a root in an image.
    pub fn root(number: usize) -> PathBuf {
        PathBuf::from(number.to_string())
    }

    /// The bytes of the file at a path, if one is there.
    pub fn content(&self, path: &Path) -> Option<&FileContent> {
        match self.entries.get(path)? {
            TreeEntry::File(node) => Some(&self.files.get(node)?.content),
            TreeEntry::Directory { .. } | TreeEntry::Link { .. } => None,
        }
    }

    /// All names of a file.
    pub fn names_of(&self, node: NodeKey) -> impl Iterator<Item = &Path> {
        let is_it = move |entry: &TreeEntry| *entry == TreeEntry::File(node);
        let entries = self.entries.iter();
        entries.filter_map(move |(path, entry)| is_it(entry).then_some(path.as_path()))
    }

    /// A digest that is equal for the same tree: names, kinds, permissions, hard links and bytes.
    pub fn digest(&self) -> TreeDigest {
        self.digest_as_read(&NodeSet::Everything)
    }

    /// Equal for trees that are the same but for the bytes of files that are not read: of these only the length counts.
    pub fn digest_as_read(&self, read: &NodeSet) -> TreeDigest {
        let mut hasher = blake3::Hasher::new();
        let mut numbers: BTreeMap<NodeKey, u64> = BTreeMap::new();
        for (path, entry) in &self.entries {
            let name = path.as_os_str().as_encoded_bytes();
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name);
            match entry {
                TreeEntry::Directory { mode } => {
                    hasher.update(b"d");
                    hasher.update(&mode.to_le_bytes());
                }
                TreeEntry::Link { target } => {
                    let target = target.as_os_str().as_encoded_bytes();
                    hasher.update(b"l");
                    hasher.update(&(target.len() as u64).to_le_bytes());
                    hasher.update(target);
                }
                TreeEntry::File(node) => {
                    // Nodes are numbered as they come: their keys may differ.
                    let next = numbers.len() as u64;
                    let number = *numbers.entry(*node).or_insert(next);
                    hasher.update(b"f");
                    hasher.update(&number.to_le_bytes());
                    if let Some(file) = self.files.get(node).filter(|_| number == next) {
                        hasher.update(&file.mode.to_le_bytes());
                        if read.contains(*node) {
                            file.content.add_to(&mut hasher);
                        } else {
                            hasher.update(&file.content.len_bytes().to_le_bytes());
                        }
                    }
                }
            }
        }
        TreeDigest(*hasher.finalize().as_bytes())
    }

    /// Whether both are the same tree: names, kinds, permissions, hard links and bytes.
    pub fn is_same(&self, other: &Self) -> bool {
        if self.entries.len() != other.entries.len() {
            return false;
        }
        let mut pairs: BTreeMap<NodeKey, NodeKey> = BTreeMap::new();
        let mut back: BTreeMap<NodeKey, NodeKey> = BTreeMap::new();
        self.entries.iter().zip(&other.entries).all(|(one, two)| {
            if one.0 != two.0 {
                return false;
            }
            match (one.1, two.1) {
                (TreeEntry::File(one), TreeEntry::File(two)) => {
                    let is_new = !pairs.contains_key(one) && !back.contains_key(two);
                    if !is_new {
                        return pairs.get(one) == Some(two) && back.get(two) == Some(one);
                    }
                    pairs.insert(*one, *two);
                    back.insert(*two, *one);
                    match (self.files.get(one), other.files.get(two)) {
                        (Some(one), Some(two)) => {
                            one.mode == two.mode && one.content.is_same(&two.content)
                        }
                        _ => false,
                    }
                }
                (one, two) => one == two,
            }
        })
    }
}
