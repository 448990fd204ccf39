//! The trees of a recording: which files they have, and what operations of the runtime mean for them.
//!
//! The runtime names files by device and inode, and new names by paths. Here these become nodes and entries of the trace.
//! For that, the names of all trees are kept as they are after the records that were written; contents are not kept.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use powerfail_model::files::{ByteRange, NodeId, NodeKind};
use powerfail_protocol::file::{FileCode, FileEvent, WRITE_DATA_SYNC};
use powerfail_trace::recording::TreeSummary;
use powerfail_trace::{
    EntryName, FileOperation, FinalContent, FinalEntry, ImageHasher, InitialNode, NewNode,
    RangeChange, TraceError, TraceWriter, Tree, TreeIndex,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::RecordError;
use crate::sparse::{FileIdentity, SparseFile};

/// A directory that becomes a tree because the target changes something in it may have so many names,
const IMPLICIT_NAMES_MAX: u64 = 20_000;
/// and so many bytes.
const IMPLICIT_BYTES_MAX: u64 = 256 << 20;
/// Permissions in a mode.
const PERMISSIONS: u32 = 0o7777;

/// All trees of a recording.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    roots: Vec<Tree>,
    /// Where this process finds the roots that only the target sees at their own paths.
    private: BTreeMap<PathBuf, PathBuf>,
    /// Below this, directories become trees when the target changes something in them.
    candidate: Option<PathBuf>,
    /// The nodes that exist.
    nodes: FxHashMap<FileIdentity, NodeId>,
    /// The names in each directory.
    directories: FxHashMap<NodeId, BTreeMap<Vec<u8>, NodeId>>,
    /// How many names each node has.
    link_counts: FxHashMap<NodeId, u32>,
    next_node: u32,
    /// Files that the target maps and that are not pools.
    unrecorded: FxHashSet<FileIdentity>,
    /// Files and directories that belong to no tree.
    excluded: Excluded,
    /// Directories that were too large to become trees, and why.
    refused: BTreeMap<PathBuf, String>,
}

/// What lies in a tree and does not belong to it.
#[derive(Debug, Default)]
struct Excluded {
    paths: Vec<PathBuf>,
    files: FxHashSet<FileIdentity>,
}

impl Excluded {
    fn has(&self, path: &Path) -> bool {
        self.paths.iter().any(|it| path.starts_with(it))
    }
}

/// What an operation of the runtime is in the trace.
pub(crate) enum Meaning<'a> {
    /// This.
    Operations(Vec<FileOperation<'a>>),
    /// Nothing: the call changed nothing, or something that is not recorded, such as a socket.
    Nothing,
    /// The record contradicts those before it.
    Contradiction,
}

/// What a directory may hold at most.
struct Limits {
    names: u64,
    bytes: u64,
}

impl Trees {
    /// Makes a directory and everything below it a tree. It exists.
    pub(crate) fn add(
        &mut self,
        writer: &mut TraceWriter<File>,
        path: &Path,
    ) -> Result<(), RecordError> {
        let failed = |source| RecordError::Tree {
            path: path.to_owned(),
            source,
        };
        let path = path.canonicalize().map_err(failed)?;
        if !path.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        if self.contains(&path) {
            return Ok(());
        }
        let scanned = Scan::of(&path, None, &self.roots, &self.excluded).map_err(failed)?;
        if let Some(scanned) = scanned {
            self.define(writer, path, &scanned)?;
        }
        Ok(())
    }

    /// Makes a directory a tree that the target sees at another path.
    pub(crate) fn add_private(
        &mut self,
        writer: &mut TraceWriter<File>,
        original: &Path,
        private: &Path,
    ) -> Result<(), RecordError> {
        let failed = |source| RecordError::Tree {
            path: private.to_owned(),
            source,
        };
        let scanned = Scan::of(private, None, &[], &self.excluded).map_err(failed)?;
        if let Some(scanned) = scanned {
            let known = (original.to_path_buf(), private.to_path_buf());
            self.private.extend([known]);
            self.define(writer, original.to_path_buf(), &scanned)?;
        }
        Ok(())
    }

    /// Leaves a file or a directory out of all trees.
    pub(crate) fn exclude(&mut self, path: &Path) {
        let (Ok(path), Ok(metadata)) = (path.canonicalize(), fs::metadata(path)) else {
            return;
        };
        self.excluded.paths.push(path);
        self.excluded.files.insert(FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
        });
    }

    /// Whether a file was left out.
    pub(crate) fn is_excluded(&self, file: FileIdentity) -> bool {
        self.excluded.files.contains(&file)
    }

    /// Directories below this one become trees when the target changes something in them.
    pub(crate) fn add_candidate(&mut self, path: &Path) {
        self.candidate = path.canonicalize().ok();
    }

    /// Whether operations on files are recorded.
    pub(crate) fn are_recorded(&self) -> bool {
        !self.roots.is_empty() || self.candidate.is_some()
    }

    /// The directory below which directories become trees.
    pub(crate) fn candidate(&self) -> Option<&Path> {
        self.candidate.as_deref()
    }

    /// The roots.
    pub(crate) fn roots(&self) -> &[Tree] {
        &self.roots
    }

    /// The paths of the roots.
    pub(crate) fn root_paths(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(|root| root.path.as_path())
    }

    /// Whether a path lies in a tree.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(&root.path))
    }

    /// The target is about to change something in a directory: whether that is in a tree now.
    pub(crate) fn ask(
        &mut self,
        writer: &mut TraceWriter<File>,
        path: &Path,
    ) -> Result<bool, TraceError> {
        if self.contains(path) {
            return Ok(true);
        }
        let is_below = |candidate: &PathBuf| path.starts_with(candidate);
        let is_candidate = self.candidate.as_ref().is_some_and(is_below);
        if !is_candidate || self.refused.contains_key(path) || self.excluded.has(path) {
            return Ok(false);
        }
        let limits = Limits {
            names: IMPLICIT_NAMES_MAX,
            bytes: IMPLICIT_BYTES_MAX,
        };
        match Scan::of(path, Some(&limits), &self.roots, &self.excluded) {
            Ok(Some(scanned)) => {
                self.define(writer, path.to_path_buf(), &scanned)?;
                Ok(true)
            }
            Ok(None) => {
                let reason = format!(
                    "it has more than {IMPLICIT_NAMES_MAX} names or {} MiB",
                    IMPLICIT_BYTES_MAX >> 20
                );
                self.refused.insert(path.to_path_buf(), reason);
                Ok(false)
            }
            Err(error) => {
                self.refused.insert(path.to_path_buf(), error.to_string());
                Ok(false)
            }
        }
    }

    /// Writes what was found in a directory to the trace.
    fn define(
        &mut self,
        writer: &mut TraceWriter<File>,
        path: PathBuf,
        scan: &Scan,
    ) -> Result<(), TraceError> {
        for found in &scan.found {
            let is_new = !self.nodes.contains_key(&found.identity);
            let node = if is_new {
                let node = self.new_node(found.identity);
                writer.define_node(&InitialNode {
                    node,
                    kind: found.kind.clone(),
                    mode: found.mode,
                    len_bytes: found.len_bytes,
                })?;
                if found.kind == NodeKind::Directory {
                    self.directories.insert(node, BTreeMap::new());
                }
                node
            } else {
                self.nodes[&found.identity]
            };
            if let Some((directory, name)) = &found.entry
                && let Some(directory) = self.nodes.get(directory).copied()
                && self.insert(directory, name, node)
            {
                writer.define_entry(EntryName::new(directory, name), node)?;
            }
            if is_new && found.kind == NodeKind::File {
                self.define_content(writer, node, found)?;
            }
        }
        let root = scan.found.first().map(|root| self.nodes[&root.identity]);
        let tree = Tree {
            path,
            root: root.unwrap_or_default(),
        };
        writer.define_tree(&tree)?;
        self.roots.push(tree);
        Ok(())
    }

    fn define_content(
        &mut self,
        writer: &mut TraceWriter<File>,
        node: NodeId,
        found: &ScannedNode,
    ) -> Result<(), TraceError> {
        let opened = File::open(&found.path).and_then(|file| SparseFile::from_target(file.into()));
        let Ok(Some(file)) = opened else {
            self.unrecorded.insert(found.identity);
            return Ok(());
        };
        file.for_each_run(found.len_bytes, |offset, bytes| {
            writer.initial_file(node, offset, bytes)
        })
    }

    fn new_node(&mut self, identity: FileIdentity) -> NodeId {
        let node = NodeId(self.next_node);
        self.next_node += 1;
        self.nodes.insert(identity, node);
        node
    }

    /// Adds a name; whether it was free.
    fn insert(&mut self, directory: NodeId, name: &[u8], node: NodeId) -> bool {
        let Some(names) = self.directories.get_mut(&directory) else {
            return false;
        };
        let is_free = names.insert(name.to_vec(), node).is_none();
        if is_free {
            *self.link_counts.entry(node).or_default() += 1;
        }
        is_free
    }

    /// Removes a name; the node that had it.
    fn remove(&mut self, directory: NodeId, name: &[u8]) -> Option<NodeId> {
        let node = self.directories.get_mut(&directory)?.remove(name)?;
        if let Some(count) = self.link_counts.get_mut(&node) {
            *count = count.saturating_sub(1);
        }
        Some(node)
    }

    /// The directory and the name that a path means.
    fn resolve<'p>(&self, path: &'p [u8]) -> Option<EntryName<'p>> {
        let path = Path::new(OsStr::from_bytes(path));
        let name = path.file_name()?.as_bytes();
        let parent = path.parent()?;
        // The innermost tree knows its directory.
        let inside = self
            .roots
            .iter()
            .filter(|root| parent.starts_with(&root.path));
        let root = inside.max_by_key(|root| root.path.as_os_str().len())?;
        let mut directory = root.root;
        for part in parent.strip_prefix(&root.path).ok()? {
            directory = *self.directories.get(&directory)?.get(part.as_bytes())?;
        }
        Some(EntryName::new(directory, name))
    }

    fn named(&self, entry: EntryName<'_>) -> Option<NodeId> {
        self.directories
            .get(&entry.directory)?
            .get(entry.name)
            .copied()
    }

    /// The node of a file.
    pub(crate) fn node(&self, file: FileIdentity) -> Option<NodeId> {
        self.nodes.get(&file).copied()
    }

    /// The target maps a file and the mapping is not recorded.
    pub(crate) fn mark_unrecorded(&mut self, file: FileIdentity) {
        self.unrecorded.insert(file);
    }

    /// What an operation of the runtime means. Writes are not among them.
    pub(crate) fn apply<'a>(&mut self, event: &FileEvent<'a>) -> Meaning<'a> {
        let file = FileIdentity {
            device: event.device,
            inode: event.inode,
        };
        let meant = match event.code {
            FileCode::Create => self.create(file, event),
            FileCode::Link => self.link(file, event.bytes),
            FileCode::Unlink => return self.unlink(event.bytes),
            FileCode::Rename => return self.rename(event),
            FileCode::Truncate => self.node(file).map(|node| FileOperation::Truncate {
                node,
                len_bytes: event.numbers[0],
            }),
            FileCode::Allocate => self.node(file).map(|node| allocation(node, event.numbers)),
            FileCode::Sync => self.node(file).map(|node| FileOperation::SyncFile {
                node,
                data_only: event.numbers[0] != 0,
            }),
            FileCode::SyncAll => Some(FileOperation::SyncFileSystem),
            FileCode::Close => self.node(file).map(|node| FileOperation::Close { node }),
            FileCode::FailedSync => self
                .node(file)
                .map(|node| FileOperation::FailedSync { node }),
            FileCode::CrossedDevices => self
                .resolve(event.bytes)
                .map(|entry| FileOperation::CrossedDevices { entry }),
            FileCode::Write | FileCode::Continued => None,
        };
        meant.map_or(Meaning::Contradiction, |operation| {
            Meaning::Operations(vec![operation])
        })
    }

    fn create<'a>(
        &mut self,
        file: FileIdentity,
        event: &FileEvent<'a>,
    ) -> Option<FileOperation<'a>> {
        const TYPE: u32 = 0o170_000;
        let [mode, path_len, _] = event.numbers;
        let (path, target) = event.divided(path_len)?;
        let mode = u32::try_from(mode).ok()?;
        let known = self.node(file);
        let is_alive = |node: &NodeId| self.link_counts.get(node).is_some_and(|count| *count > 0);
        if known.is_some_and(|node| is_alive(&node)) {
            // A file outside of the trees that has had a name in one already.
            return self.link(file, path);
        }
        let entry = if path.is_empty() {
            None
        } else {
            Some(self.resolve(path)?)
        };
        let node = self.new_node(file);
        let kind = match mode & TYPE {
            0o100_000 => NewNode::File,
            0o040_000 => {
                self.directories.insert(node, BTreeMap::new());
                NewNode::Directory
            }
            0o120_000 => NewNode::Symlink(target),
            _ => NewNode::Other,
        };
        if let Some(entry) = entry
            && !self.insert(entry.directory, entry.name, node)
        {
            return None;
        }
        Some(FileOperation::Create {
            node,
            kind,
            mode: mode & PERMISSIONS,
            entry,
        })
    }

    fn link<'a>(&mut self, file: FileIdentity, path: &'a [u8]) -> Option<FileOperation<'a>> {
        let (node, entry) = (self.node(file)?, self.resolve(path)?);
        self.insert(entry.directory, entry.name, node)
            .then_some(FileOperation::Link { node, entry })
    }

    fn unlink<'a>(&mut self, path: &'a [u8]) -> Meaning<'a> {
        let Some(entry) = self.resolve(path) else {
            return Meaning::Contradiction;
        };
        match self.remove(entry.directory, entry.name) {
            Some(node) => Meaning::Operations(vec![FileOperation::Unlink { node, entry }]),
            // A socket. If it was something else, the check at the end finds that.
            None => Meaning::Nothing,
        }
    }

    fn rename<'a>(&mut self, event: &FileEvent<'a>) -> Meaning<'a> {
        const EXCHANGE: u64 = 2;
        let [flags, old_len, _] = event.numbers;
        let Some((old, new)) = event.divided(old_len) else {
            return Meaning::Contradiction;
        };
        let (Some(from), Some(to)) = (self.resolve(old), self.resolve(new)) else {
            return Meaning::Contradiction;
        };
        let Some(node) = self.named(from) else {
            return Meaning::Nothing;
        };
        let replaced = self.named(to);
        if flags & EXCHANGE != 0 {
            let Some(other) = replaced else {
                return Meaning::Contradiction;
            };
            self.remove(from.directory, from.name);
            self.remove(to.directory, to.name);
            self.insert(from.directory, from.name, other);
            self.insert(to.directory, to.name, node);
            return Meaning::Operations(vec![FileOperation::Exchange {
                first: from,
                first_node: node,
                second: to,
                second_node: other,
            }]);
        }
        if replaced == Some(node) {
            // Two names of one file: the call does nothing.
            return Meaning::Nothing;
        }
        self.remove(from.directory, from.name);
        self.remove(to.directory, to.name);
        self.insert(to.directory, to.name, node);
        Meaning::Operations(vec![FileOperation::Rename {
            node,
            from,
            to,
            replaced,
        }])
    }

    /// What a write means: the write, and that it was durable at once, if it was.
    pub(crate) fn write<'a>(
        &self,
        file: FileIdentity,
        offset: u64,
        bytes: &'a [u8],
        sync: u64,
    ) -> Option<(FileOperation<'a>, Option<FileOperation<'a>>)> {
        let node = self.node(file)?;
        let write = FileOperation::Write {
            node,
            offset,
            bytes,
        };
        let durable = (sync != 0).then_some(FileOperation::SyncFile {
            node,
            data_only: sync == WRITE_DATA_SYNC,
        });
        Some((write, durable))
    }

    /// What was found in each tree now, for the end of the trace.
    pub(crate) fn finish(&self, writer: &mut TraceWriter<File>) -> Result<(), RecordError> {
        for (file, node) in &self.nodes {
            if self.unrecorded.contains(file) {
                writer.define_unrecorded(*node)?;
            }
        }
        for (index, root) in (0..).map(TreeIndex).zip(&self.roots) {
            let path = self.private.get(&root.path).unwrap_or(&root.path);
            let scan = Scan::of(path, None, &[], &self.excluded)
                .map_err(|source| unreadable(&root.path, path, source))?;
            let mut entries = Vec::new();
            for found in scan.iter().flat_map(|scan| &scan.found) {
                entries.push(FinalEntry {
                    path: { found.path.strip_prefix(path) }
                        .unwrap_or(&found.path)
                        .to_path_buf(),
                    content: self.final_content(found)?,
                });
            }
            writer.final_tree(index, &entries)?;
        }
        Ok(())
    }

    fn final_content(&self, found: &ScannedNode) -> Result<FinalContent, TraceError> {
        Ok(match &found.kind {
            NodeKind::File if self.unrecorded.contains(&found.identity) => FinalContent::Unrecorded,
            NodeKind::File => {
                let file = match File::open(&found.path) {
                    Ok(file) => SparseFile::from_target(file.into())?,
                    // The target has denied it to its own user.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        return Ok(FinalContent::Unrecorded);
                    }
                    Err(error) => return Err(error.into()),
                };
                let len_bytes = found.len_bytes;
                let mut hasher = ImageHasher::new(len_bytes);
                if let Some(file) = file {
                    file.for_each_run(len_bytes, |offset, bytes| {
                        hasher.update(offset, bytes);
                        Ok::<_, TraceError>(())
                    })?;
                }
                FinalContent::File {
                    len_bytes,
                    hash: hasher.finish(),
                }
            }
            NodeKind::Directory => FinalContent::Directory,
            NodeKind::Symlink { target } => FinalContent::Symlink(target.clone()),
            NodeKind::Other => FinalContent::Other,
        })
    }

    /// The trees, for the summary.
    pub(crate) fn summary(&self) -> Vec<TreeSummary> {
        let names = |root: &Tree| self.count_names(root.root);
        self.roots
            .iter()
            .map(|root| TreeSummary {
                path: root.path.clone(),
                names: names(root),
            })
            .collect()
    }

    fn count_names(&self, root: NodeId) -> u64 {
        let mut open = vec![root];
        let mut count = 0;
        while let Some(directory) = open.pop() {
            for node in self
                .directories
                .get(&directory)
                .into_iter()
                .flat_map(BTreeMap::values)
            {
                count += 1;
                open.push(*node);
            }
        }
        count
    }

    /// Directories in which the target changed something and which did not become trees, a sentence each.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.refused.iter().map(|(path, reason)| {
            format!(
                "the files in {} are not recorded: {reason}; choose a directory with --tree",
                path.display()
            )
        })
    }
}

/// Why a tree cannot be read after the recording. `path` is where this process finds it.
fn unreadable(root: &Path, path: &Path, source: io::Error) -> RecordError {
    let root = root.to_path_buf();
    if source.kind() == io::ErrorKind::NotFound && !path.exists() {
        return RecordError::TreeGone { path: root };
    }
    RecordError::Tree { path: root, source }
}

/// A mode of `fallocate`.
fn allocation<'a>(node: NodeId, [mode, offset, len_bytes]: [u64; 3]) -> FileOperation<'a> {
    const KEEP_SIZE: u64 = 1;
    const PUNCH_HOLE: u64 = 2;
    const COLLAPSE: u64 = 8;
    const ZERO: u64 = 0x10;
    const INSERT: u64 = 0x20;
    const WRITE_ZEROES: u64 = 0x80;
    let keep_size = mode & KEEP_SIZE != 0;
    let change = if mode & PUNCH_HOLE != 0 {
        RangeChange::PunchHole
    } else if mode & COLLAPSE != 0 {
        RangeChange::Collapse
    } else if mode & INSERT != 0 {
        RangeChange::Insert
    } else if mode & (ZERO | WRITE_ZEROES) != 0 {
        RangeChange::Zero { keep_size }
    } else {
        RangeChange::Allocate { keep_size }
    };
    FileOperation::Change {
        node,
        change,
        range: ByteRange::new(offset, len_bytes),
    }
}

/// A file or directory that a scan found.
struct ScannedNode {
    path: PathBuf,
    identity: FileIdentity,
    kind: NodeKind,
    mode: u32,
    len_bytes: u64,
    /// Its directory, and its name there; none for the root.
    entry: Option<(FileIdentity, Vec<u8>)>,
}

/// A directory and everything below it, directories before what they hold. Sockets are left out: they hold nothing.
#[derive(Default)]
struct Scan {
    found: Vec<ScannedNode>,
}

impl Scan {
    /// Reads a directory; `None` if it holds more than the limits allow. What is below trees that are known is left out:
    /// operations in them may not have been written yet. So is what belongs to no tree.
    fn of(
        path: &Path,
        limits: Option<&Limits>,
        known: &[Tree],
        excluded: &Excluded,
    ) -> io::Result<Option<Self>> {
        let mut scan = Self::default();
        let mut bytes = 0;
        let root = ScannedNode::new(path.to_path_buf(), &fs::metadata(path)?, None)?;
        let mut open: Vec<ScannedNode> = root.into_iter().collect();
        while let Some(found) = open.pop() {
            let is_known = known.iter().any(|tree| tree.path == found.path);
            if found.kind == NodeKind::Directory && !is_known {
                let mut names: Vec<_> =
                    fs::read_dir(&found.path)?.collect::<io::Result<Vec<_>>>()?;
                // The same order in every recording, whatever the file system does.
                names.sort_unstable_by_key(fs::DirEntry::file_name);
                for entry in names.into_iter().rev() {
                    if excluded.has(&entry.path()) {
                        continue;
                    }
                    let name = entry.file_name().into_vec();
                    let metadata = match entry.path().symlink_metadata() {
                        Ok(metadata) => metadata,
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        Err(error) => return Err(error),
                    };
                    let entry_in = Some((found.identity, name));
                    open.extend(ScannedNode::new(entry.path(), &metadata, entry_in)?);
                }
            }
            bytes += found.len_bytes;
            scan.found.push(found);
            let count = (scan.found.len() + open.len()) as u64;
            if limits.is_some_and(|limits| count > limits.names || bytes > limits.bytes) {
                return Ok(None);
            }
        }
        Ok(Some(scan))
    }
}

impl ScannedNode {
    fn new(
        path: PathBuf,
        metadata: &Metadata,
        entry: Option<(FileIdentity, Vec<u8>)>,
    ) -> io::Result<Option<Self>> {
        let file_type = metadata.file_type();
        let mut len_bytes = 0;
        let kind = if file_type.is_file() {
            len_bytes = metadata.len();
            NodeKind::File
        } else if file_type.is_dir() {
            NodeKind::Directory
        } else if file_type.is_symlink() {
            let target = fs::read_link(&path)?.into_os_string().into_vec();
            NodeKind::Symlink {
                target: target.into(),
            }
        } else if file_type.is_socket() {
            return Ok(None);
        } else {
            NodeKind::Other
        };
        Ok(Some(Self {
            path,
            identity: FileIdentity {
                device: metadata.dev(),
                inode: metadata.ino(),
            },
            kind,
            mode: metadata.mode() & PERMISSIONS,
            len_bytes,
            entry,
        }))
    }
}
