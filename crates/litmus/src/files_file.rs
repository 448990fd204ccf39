//! Litmus files of the third kind: operations on ordinary files, and the trees that a crash after the last of them may
//! leave.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_model::files::{
    ByteRange, CrashState, Entry, FileSystem, Frontier, InitialTree, NodeId, NodeKind, Operation,
    OperationIndex, Piece, Source,
};

use crate::fields::{FormatError, Node};
use crate::limit::{POSITION_STATE_LIMIT, Undecided};

const MEMBERS: [&str; 6] = ["name", "doc", "source", "tree", "operations", "trees"];
const ROOT: NodeId = NodeId(0);
/// Keeps offsets far from overflow and pages few.
const BYTES_MAX: u64 = 1 << 24;

/// A tree as it is written in a file: for each path what is there. `/` is a directory, `-> T` a symbolic link, and a file is a
/// list of `WHO:BYTES`: `3:100` are the bytes of operation 3, `old:100` those that the file had before, `0s:100` are zeros.
pub type TreeText = BTreeMap<String, String>;
/// A set of trees.
pub type Trees = BTreeSet<TreeText>;

/// Operations on files, with the trees that a crash after them may leave.
#[derive(Clone, Debug)]
pub struct FilesFile {
    /// The name in the file.
    pub name: String,
    /// What it is about; may be empty.
    pub doc: String,
    /// Where the rule is written that it tests; may be empty.
    pub source: String,
    tree: InitialTree,
    operations: Vec<Operation>,
    texts: Vec<String>,
    kinds: BTreeMap<NodeId, NodeKind>,
    expected: Result<BTreeMap<FileSystem, Trees>, FormatError>,
}

impl FilesFile {
    pub(crate) fn read(root: &Node<'_>) -> Result<Self, FormatError> {
        root.refuse_unknown("a list of operations", &MEMBERS)?;
        let text = |name: &str| -> Result<String, FormatError> {
            let member = root.optional(name)?;
            Ok(member.map_or(Ok(""), |member| member.string())?.to_owned())
        };
        let mut reader = Reader {
            tree: InitialTree::with_root(ROOT),
            kinds: BTreeMap::from([(ROOT, NodeKind::Directory)]),
            names: BTreeMap::new(),
            handles: BTreeMap::new(),
        };
        if let Some(tree) = root.optional("tree")? {
            reader.read_tree(&tree)?;
        }
        let mut operations = Vec::new();
        let mut texts = Vec::new();
        for node in root.required("operations")?.list()? {
            let (operation, text) = reader.read_operation(&node)?;
            operations.push(operation);
            texts.push(text);
        }
        Ok(Self {
            name: root.required("name")?.string()?.to_owned(),
            doc: text("doc")?,
            source: text("source")?,
            tree: reader.tree,
            operations,
            texts,
            kinds: reader.kinds,
            expected: read_expected(root),
        })
    }

    /// The trees that the file lists for each file system that it names. `linux` is not listed: it is the union of three.
    pub fn expected(&self) -> Result<&BTreeMap<FileSystem, Trees>, FormatError> {
        self.expected.as_ref().map_err(Clone::clone)
    }

    /// The operations, as they are written.
    pub fn operations(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// A pass over the operations, at its end.
    fn frontier(&self, file_system: FileSystem) -> Frontier {
        let mut frontier = Frontier::new(file_system, &self.tree);
        for (index, operation) in (0..).zip(&self.operations) {
            frontier.apply(OperationIndex(index), operation);
        }
        frontier
    }

    /// The operations before which a failure is worth trying, and the number of operations if the end is worth it.
    pub fn failure_points(&self, file_system: FileSystem) -> Vec<usize> {
        let mut frontier = Frontier::new(file_system, &self.tree);
        let mut points = Vec::new();
        for (index, operation) in self.operations.iter().enumerate() {
            if frontier.is_failure_point(operation) {
                points.push(index);
            }
            frontier.apply(OperationIndex(index as u64), operation);
        }
        if frontier.is_failure_point_at_end() {
            points.push(self.operations.len());
        }
        points
    }

    /// What the model says; an error if there are too many states to list.
    pub fn trees(&self, file_system: FileSystem) -> Result<Trees, Undecided> {
        let frontier = self.frontier(file_system);
        let limit = POSITION_STATE_LIMIT as u64 + 1;
        if frontier.state_count_up_to(limit) == limit {
            return Err(Undecided {
                what: format!("the end of the operations under {file_system}"),
                limit: POSITION_STATE_LIMIT,
            });
        }
        let states = frontier.states();
        Ok(states.map(|state| self.text(&frontier, &state)).collect())
    }

    fn text(&self, frontier: &Frontier, state: &CrashState) -> TreeText {
        let difference = frontier.difference(state);
        let mut entries = frontier.newest_entries().clone();
        for (entry, node) in &difference.entries {
            match node {
                Some(node) => entries.insert(entry.clone(), *node),
                None => entries.remove(entry),
            };
        }
        let mut tree = TreeText::new();
        let mut todo = vec![(ROOT, String::new())];
        while let Some((directory, path)) = todo.pop() {
            for (entry, &node) in entries.iter().filter(|(e, _)| e.directory == directory) {
                let path = format!("{path}{}", entry.name);
                let text = match &self.kinds[&node] {
                    NodeKind::Directory => {
                        todo.push((node, format!("{path}/")));
                        "/".to_owned()
                    }
                    NodeKind::Symlink { target } => {
                        format!("-> {}", String::from_utf8_lossy(target))
                    }
                    NodeKind::Other => "other".to_owned(),
                    NodeKind::File => {
                        let len = frontier.newest_len(node).unwrap_or(0);
                        let mut content = Content::default();
                        content.resize(len);
                        content.put_all(&frontier.newest_pieces(node));
                        let file = difference.files.iter().find(|file| file.node == node);
                        if let Some(file) = file {
                            content.resize(file.len_bytes);
                            content.put_all(&file.pieces);
                        }
                        self.content_text(&content, node)
                    }
                };
                tree.insert(path, text);
            }
        }
        tree
    }

    fn content_text(&self, content: &Content, node: NodeId) -> String {
        let natural = |source: Source, at: u64| match source {
            Source::Zeros => true,
            Source::Initial { node: of, offset } => of == node && offset == at,
            Source::Written { operation, offset } => {
                let operation = self.operations.get(operation.0 as usize);
                matches!(operation, Some(Operation::Write { range, .. }) if range.offset + offset == at)
            }
        };
        let runs = content.0.iter().map(|piece| {
            let who = match piece.source {
                Source::Zeros => "0s".to_owned(),
                Source::Initial { .. } => "old".to_owned(),
                Source::Written { operation, .. } => operation.to_string(),
            };
            let from = match piece.source {
                _ if natural(piece.source, piece.range.offset) => String::new(),
                Source::Initial { offset, .. } | Source::Written { offset, .. } => {
                    format!("+{offset}")
                }
                Source::Zeros => String::new(),
            };
            format!("{who}{from}:{}", piece.range.len_bytes)
        });
        runs.collect::<Vec<_>>().join(" ")
    }
}

/// The content of a file: pieces without gaps, neighbours of one run joined.
#[derive(Default)]
struct Content(Vec<Piece>);

impl Content {
    fn len(&self) -> u64 {
        self.0.last().map_or(0, |piece| piece.range.end())
    }

    fn resize(&mut self, len: u64) {
        let end = self.len();
        if len > end {
            self.0.push(Piece {
                range: ByteRange::new(end, len - end),
                source: Source::Zeros,
            });
        }
        self.0.retain_mut(|piece| {
            let end = piece.range.end().min(len);
            piece.range.len_bytes = end.saturating_sub(piece.range.offset);
            piece.range.len_bytes > 0
        });
        self.join();
    }

    fn put_all(&mut self, pieces: &[Piece]) {
        for new in pieces {
            let mut all = Vec::with_capacity(self.0.len() + 2);
            for old in &self.0 {
                if old.range.offset < new.range.offset {
                    let end = old.range.end().min(new.range.offset);
                    all.push(Piece {
                        range: ByteRange::new(old.range.offset, end - old.range.offset),
                        ..*old
                    });
                }
                if old.range.end() > new.range.end() {
                    let start = old.range.offset.max(new.range.end());
                    all.push(Piece {
                        range: ByteRange::new(start, old.range.end() - start),
                        source: old.source.advanced(start - old.range.offset),
                    });
                }
            }
            all.push(*new);
            all.sort_unstable_by_key(|piece| piece.range.offset);
            self.0 = all;
        }
        self.join();
    }

    fn join(&mut self) {
        self.0.dedup_by(|next, last| {
            let joined = last.source.advanced(last.range.len_bytes) == next.source;
            if joined {
                last.range.len_bytes += next.range.len_bytes;
            }
            joined
        });
    }
}

/// Resolves paths while operations are read.
struct Reader {
    tree: InitialTree,
    kinds: BTreeMap<NodeId, NodeKind>,
    names: BTreeMap<Entry, NodeId>,
    /// Files without a name, by their handles.
    handles: BTreeMap<String, NodeId>,
}

impl Reader {
    fn new_node(&mut self, kind: NodeKind) -> NodeId {
        let node = NodeId(self.kinds.len() as u32);
        self.kinds.insert(node, kind);
        node
    }

    fn read_tree(&mut self, tree: &Node<'_>) -> Result<(), FormatError> {
        for (path, member) in tree.members()? {
            let (kind, len, path) = match path.strip_suffix('/') {
                Some(path) => (NodeKind::Directory, 0, path),
                None => (NodeKind::File, member.index_below(BYTES_MAX)?, path),
            };
            let entry = self.entry(path, &member)?;
            if self.names.contains_key(&entry) {
                return Err(member.error("is there twice"));
            }
            let node = self.new_node(kind.clone());
            self.tree.add(node, kind, len, Some(entry.clone()));
            self.names.insert(entry, node);
        }
        Ok(())
    }

    /// The entry of a path: all directories on the way are there.
    fn entry(&self, path: &str, node: &Node<'_>) -> Result<Entry, FormatError> {
        let (parents, name) = match path.rsplit_once('/') {
            Some((parents, name)) => (Some(parents), name),
            None => (None, path),
        };
        if name.is_empty() || name == "." || name == ".." {
            return Err(node.error(format!("`{path}` is not a path")));
        }
        let mut directory = ROOT;
        for parent in parents.into_iter().flat_map(|parents| parents.split('/')) {
            directory = self
                .names
                .get(&Entry::new(directory, parent))
                .copied()
                .filter(|node| self.kinds[node] == NodeKind::Directory)
                .ok_or_else(|| node.error(format!("`{parent}` is not a directory")))?;
        }
        Ok(Entry::new(directory, name))
    }

    fn existing(&self, path: &str, node: &Node<'_>) -> Result<NodeId, FormatError> {
        if path == "." {
            return Ok(ROOT);
        }
        let found = if path.starts_with('#') {
            self.handles.get(path).copied()
        } else {
            self.names.get(&self.entry(path, node)?).copied()
        };
        found.ok_or_else(|| node.error(format!("`{path}` is not there")))
    }

    fn file(&self, path: &str, node: &Node<'_>) -> Result<NodeId, FormatError> {
        let found = self.existing(path, node)?;
        if self.kinds[&found] == NodeKind::File {
            Ok(found)
        } else {
            Err(node.error(format!("`{path}` is not a file")))
        }
    }

    fn free(&self, path: &str, node: &Node<'_>) -> Result<Entry, FormatError> {
        let entry = self.entry(path, node)?;
        if self.names.contains_key(&entry) {
            return Err(node.error(format!("`{path}` is there")));
        }
        Ok(entry)
    }

    fn read_operation(&mut self, node: &Node<'_>) -> Result<(Operation, String), FormatError> {
        let fields = node.list()?;
        let Some((name, arguments)) = fields.split_first() else {
            return Err(node.error("is empty"));
        };
        let name = name.string()?;
        let (paths, numbers) = match name {
            "create" | "tmpfile" | "mkdir" | "unlink" | "rmdir" | "fsync" | "fdatasync"
            | "close" => (1, 0),
            "link" | "rename" | "exchange" | "symlink" => (2, 0),
            "write" | "allocate" | "allocate_keep_size" | "zero" | "zero_keep_size" | "punch"
            | "collapse" | "insert" | "msync" => (1, 2),
            "truncate" => (1, 1),
            "sync" => (0, 0),
            _ => return Err(node.error(format!("has the unknown operation `{name}`"))),
        };
        if arguments.len() != paths + numbers {
            return Err(node.error(format!(
                "must be `{name}`, {paths} paths and {numbers} numbers"
            )));
        }
        let (path_nodes, number_nodes) = arguments.split_at(paths);
        let paths = path_nodes
            .iter()
            .map(Node::string)
            .collect::<Result<Vec<_>, _>>()?;
        let numbers = number_nodes
            .iter()
            .map(|number| number.index_below(BYTES_MAX))
            .collect::<Result<Vec<_>, _>>()?;
        let mut text = vec![name.to_owned()];
        text.extend(paths.iter().map(|&path| path.to_owned()));
        text.extend(numbers.iter().map(ToString::to_string));
        let operation = self.operation(node, name, &paths, &numbers)?;
        Ok((operation, text.join(" ")))
    }

    fn operation(
        &mut self,
        node: &Node<'_>,
        name: &str,
        paths: &[&str],
        numbers: &[u64],
    ) -> Result<Operation, FormatError> {
        Ok(match name {
            "create" | "mkdir" => {
                let kind = if name == "create" {
                    NodeKind::File
                } else {
                    NodeKind::Directory
                };
                self.create(kind, Some(self.free(paths[0], node)?))
            }
            "symlink" => {
                let target = paths[0].as_bytes().into();
                let entry = self.free(paths[1], node)?;
                self.create(NodeKind::Symlink { target }, Some(entry))
            }
            "tmpfile" => {
                if !paths[0].starts_with('#') || self.handles.contains_key(paths[0]) {
                    return Err(node.error("needs a new handle that begins with #"));
                }
                let operation = self.create(NodeKind::File, None);
                if let Operation::Create { node, .. } = &operation {
                    self.handles.insert(paths[0].to_owned(), *node);
                }
                operation
            }
            "link" => {
                let of = self.file(paths[0], node)?;
                let entry = self.free(paths[1], node)?;
                self.names.insert(entry.clone(), of);
                Operation::Link { node: of, entry }
            }
            "unlink" | "rmdir" => {
                let of = self.existing(paths[0], node)?;
                let is_directory = self.kinds[&of] == NodeKind::Directory;
                let is_empty = !self.names.keys().any(|entry| entry.directory == of);
                if is_directory != (name == "rmdir") || !is_empty || paths[0].starts_with('#') {
                    return Err(
                        node.error(format!("`{paths}` cannot be removed so", paths = paths[0]))
                    );
                }
                let entry = self.entry(paths[0], node)?;
                self.names.remove(&entry);
                Operation::Unlink { node: of, entry }
            }
            "rename" => {
                let of = self.existing(paths[0], node)?;
                let (from, to) = (self.entry(paths[0], node)?, self.entry(paths[1], node)?);
                let replaced = self.names.get(&to).copied();
                if replaced == Some(of) || from == to {
                    return Err(node.error("renames a file to itself"));
                }
                self.names.remove(&from);
                self.names.insert(to.clone(), of);
                Operation::Rename {
                    node: of,
                    from,
                    to,
                    replaced,
                }
            }
            "exchange" => {
                let (first_node, second_node) = (
                    self.existing(paths[0], node)?,
                    self.existing(paths[1], node)?,
                );
                let (first, second) = (self.entry(paths[0], node)?, self.entry(paths[1], node)?);
                self.names.insert(first.clone(), second_node);
                self.names.insert(second.clone(), first_node);
                Operation::Exchange {
                    first,
                    first_node,
                    second,
                    second_node,
                }
            }
            _ => return self.file_operation(node, name, paths, numbers),
        })
    }

    /// The operations that change no names.
    fn file_operation(
        &self,
        node: &Node<'_>,
        name: &str,
        paths: &[&str],
        numbers: &[u64],
    ) -> Result<Operation, FormatError> {
        let range = || ByteRange::new(numbers[0], numbers[1]);
        Ok(match name {
            "write" => Operation::Write {
                node: self.file(paths[0], node)?,
                range: range(),
            },
            "truncate" => Operation::Truncate {
                node: self.file(paths[0], node)?,
                len_bytes: numbers[0],
            },
            "allocate" | "allocate_keep_size" => Operation::Allocate {
                node: self.file(paths[0], node)?,
                range: range(),
                keep_size: name != "allocate",
            },
            "zero" | "zero_keep_size" => Operation::Zero {
                node: self.file(paths[0], node)?,
                range: range(),
                keep_size: name != "zero",
            },
            "punch" => Operation::PunchHole {
                node: self.file(paths[0], node)?,
                range: range(),
            },
            "collapse" => Operation::CollapseRange {
                node: self.file(paths[0], node)?,
                range: range(),
            },
            "insert" => Operation::InsertRange {
                node: self.file(paths[0], node)?,
                range: range(),
            },
            "fsync" | "fdatasync" => Operation::SyncFile {
                node: self.existing(paths[0], node)?,
                data_only: name == "fdatasync",
            },
            "msync" => Operation::SyncRange {
                node: self.file(paths[0], node)?,
                range: range(),
            },
            "close" => Operation::Close {
                node: self.file(paths[0], node)?,
            },
            _ => Operation::SyncFileSystem,
        })
    }

    fn create(&mut self, kind: NodeKind, entry: Option<Entry>) -> Operation {
        let node = self.new_node(kind.clone());
        if let Some(entry) = &entry {
            self.names.insert(entry.clone(), node);
        }
        Operation::Create { node, kind, entry }
    }
}

/// The sets of trees, each for one file system or for several: `"ext4 xfs"`.
fn read_expected(root: &Node<'_>) -> Result<BTreeMap<FileSystem, Trees>, FormatError> {
    let listed = root.required("trees")?;
    let mut all = BTreeMap::new();
    for (names, list) in listed.members()? {
        let trees = list
            .list()?
            .iter()
            .map(|tree| {
                let members = tree.members()?.into_iter();
                members
                    .map(|(path, text)| Ok((path.to_owned(), text.string()?.to_owned())))
                    .collect::<Result<TreeText, FormatError>>()
            })
            .collect::<Result<Trees, FormatError>>()?;
        for name in names.split(' ') {
            let file_system: FileSystem = name
                .parse()
                .map_err(|problem| list.error(format!("has an unknown name: {problem}")))?;
            if file_system == FileSystem::Linux {
                return Err(list.error("is the union of ext4, xfs and btrfs: list these"));
            }
            if all.insert(file_system, trees.clone()).is_some() {
                return Err(list.error(format!("lists {name} twice")));
            }
        }
    }
    if all.is_empty() {
        return Err(listed.error("lists no file system"));
    }
    Ok(all)
}
