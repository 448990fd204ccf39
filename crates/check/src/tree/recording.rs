//! The operations of a trace on its trees, and the trees at any moment of the run.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use powerfail_explore::OperationAt;

use powerfail_image::{FileContent, TreeImage, TreeNode, TreeNodes};
use powerfail_model::files::{
    Difference, Entry, InitialTree, NodeId, Operation, OperationIndex, Source,
};
use powerfail_model::{Domain, EventIndex};
use powerfail_trace::{Body, FileOperation, FileOperations, StackId, Trace};

use super::words::role_of;
use crate::error::CheckError;
use crate::reading::WatchedRecords;

/// Trees are kept at about this many moments, so that any other is near one of them,
const SNAPSHOTS: usize = 128;
/// but not more often than after so many operations,
const INTERVAL_MIN: usize = 32;
/// unless these have written so many bytes, and this part of all: copying them costs more than a snapshot, which shares
/// all other bytes.
const INTERVAL_BYTES: usize = 128 << 10;
const PARTS: usize = 256;

/// An operation, with what the model does not need.
#[derive(Clone, Debug)]
pub(crate) struct TracedOperation {
    /// Its event in the trace.
    pub(crate) index: OperationIndex,
    pub(crate) operation: Operation,
    /// The permissions of what it creates.
    mode: u32,
    /// The bytes that it writes.
    pub(crate) bytes: Box<[u8]>,
    pub(crate) stack: StackId,
}

/// What a workload did to its trees.
#[derive(Debug)]
pub(crate) struct TreeRecording {
    /// The roots in the recorded run.
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) initial: InitialTree,
    pub(crate) operations: Vec<TracedOperation>,
    /// The trees before some of the operations, by their places in the list.
    snapshots: BTreeMap<usize, TreeNodes>,
    /// Files whose content is not recorded.
    pub(crate) unrecorded: Vec<NodeId>,
    /// Files that are mapped as pools.
    mapped: BTreeSet<NodeId>,
    /// Names that files of several directories have.
    shared_names: BTreeSet<OsString>,
}

impl TreeRecording {
    /// Whether a crash can be one of files: they are not beside pools in persistent memory.
    pub(crate) fn crashes(trace: &Trace, domain: Domain) -> bool {
        trace.pools().is_empty() || domain == Domain::PageCache
    }

    /// Reads a trace. `None` if it has no tree. `progress` hears how many bytes of it were read.
    pub(crate) fn of(
        trace: &Trace,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<Self>, CheckError> {
        if trace.trees().is_empty() {
            return Ok(None);
        }
        let mut operations = Vec::new();
        let mut files = FileOperations::default();
        let mut mapped = BTreeSet::new();
        let mut records = WatchedRecords::of(trace, progress);
        while let Some(record) = records.next_record()? {
            if let Body::Mapped { node, .. } = record.body {
                mapped.insert(node);
            }
            let Some((operation, bytes)) = files.operation(&record) else {
                continue;
            };
            operations.push(TracedOperation {
                index: OperationIndex(record.index.0),
                operation,
                mode: match record.body {
                    Body::File(FileOperation::Create { mode, .. }) => mode,
                    _ => 0,
                },
                bytes: bytes.into(),
                stack: record.stack,
            });
        }
        let interval = operations.len().div_ceil(SNAPSHOTS).max(INTERVAL_MIN);
        let mut recording = Self {
            roots: trace.trees().iter().map(|tree| tree.path.clone()).collect(),
            initial: trace.initial_tree(),
            operations,
            snapshots: BTreeMap::new(),
            unrecorded: trace.unrecorded_files().to_vec(),
            mapped,
            shared_names: BTreeSet::new(),
        };
        recording.shared_names = recording.names_of_several_directories();
        let mut nodes = initial_nodes(trace)?;
        let all: usize = recording.operations.iter().map(|it| it.bytes.len()).sum();
        let interval_bytes = INTERVAL_BYTES.max(all / PARTS);
        let (mut last, mut written) = (0, 0);
        for (place, operation) in recording.operations.iter().enumerate() {
            if place == 0 || place - last >= interval || written >= interval_bytes {
                recording.snapshots.insert(place, nodes.clone());
                (last, written) = (place, 0);
            }
            apply(&mut nodes, operation);
            written += operation.bytes.len();
        }
        recording
            .snapshots
            .insert(recording.operations.len(), nodes);
        Ok(Some(recording))
    }

    /// Whether a file is changed that is not a pool. Files whose content is not recorded hold no data that recovery needs.
    pub(crate) fn changes_files(&self) -> bool {
        let is_other = |node| self.mapped.contains(&node) || self.unrecorded.contains(&node);
        let mut changes = self.operations.iter().filter(|it| is_change(&it.operation));
        changes.any(|it| !it.operation.node().is_some_and(is_other))
    }

    /// How many operations there are.
    pub(crate) const fn len(&self) -> usize {
        self.operations.len()
    }

    /// The event before which the power fails if it fails before the operation at a place of the list.
    pub(crate) fn event_at(&self, place: usize, trace: &Trace) -> EventIndex {
        let operation = self.operations.get(place);
        operation.map_or(EventIndex(trace.event_count()), |it| EventIndex(it.index.0))
    }

    /// The place in the list of the first operation that is not before an event.
    pub(crate) fn place_at(&self, event: EventIndex) -> usize {
        self.operations.partition_point(|it| it.index.0 < event.0)
    }

    /// The operation with an index.
    pub(crate) fn operation(&self, index: OperationIndex) -> Option<&TracedOperation> {
        let place = self
            .operations
            .binary_search_by_key(&index, |it| it.index)
            .ok()?;
        self.operations.get(place)
    }

    /// The trees before the operation at a place of the list.
    pub(crate) fn newest(&self, place: usize) -> TreeNodes {
        let place = place.min(self.len());
        let Some((known, nodes)) = self.snapshots.range(..=place).next_back() else {
            return TreeNodes::default();
        };
        let mut nodes = nodes.clone();
        for operation in &self.operations[*known..place] {
            apply(&mut nodes, operation);
        }
        nodes
    }

    /// The trees that a crash before the operation at a place leaves, if they differ so from the newest ones.
    pub(crate) fn image(&self, place: usize, difference: &Difference) -> TreeImage {
        let newest = self.newest(place);
        if difference.entries.is_empty() && difference.files.is_empty() {
            return newest.image();
        }
        let mut entries = newest.entries.clone();
        for (entry, node) in &difference.entries {
            match node {
                Some(node) => entries.insert(entry.clone(), *node),
                None => entries.remove(entry),
            };
        }
        let mut contents = BTreeMap::new();
        for file in &difference.files {
            let known = newest.nodes.get(&file.node);
            let mut content = known.map(|it| it.content.clone()).unwrap_or_default();
            content.set_len(file.len_bytes);
            for piece in &file.pieces {
                let range = piece.range;
                match piece.source {
                    Source::Zeros => content.zero(range.offset..range.end()),
                    source => content.write(range.offset, &self.bytes_of(source, range.len_bytes)),
                }
            }
            contents.insert(file.node, content);
        }
        newest.image_of(&entries, &contents)
    }

    /// Bytes from where a state says that they come.
    fn bytes_of(&self, source: Source, len_bytes: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(len_bytes).unwrap_or(0)];
        match source {
            Source::Zeros => {}
            Source::Initial { node, offset } => {
                let initial = self.snapshots.get(&0).and_then(|it| it.nodes.get(&node));
                if let Some(initial) = initial {
                    initial.content.read(offset, &mut bytes);
                }
            }
            Source::Written { operation, offset } => {
                let written = self
                    .operation(operation)
                    .map_or(&[][..], |it| &it.bytes[..]);
                let from = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(written.len());
                let len = bytes.len().min(written.len() - from);
                bytes[..len].copy_from_slice(&written[from..from + len]);
            }
        }
        bytes
    }

    /// The operations as exploration sees them.
    pub(crate) fn listed(&self) -> Vec<OperationAt<'_>> {
        let operations = self.operations.iter();
        operations
            .map(|it| OperationAt {
                index: it.index,
                operation: &it.operation,
                stack: it.stack,
            })
            .collect()
    }

    /// Names that are in more than one directory at any time.
    fn names_of_several_directories(&self) -> BTreeSet<OsString> {
        let mut homes: BTreeMap<&[u8], NodeId> = BTreeMap::new();
        let mut shared = BTreeSet::new();
        let named = self.operations.iter().flat_map(|it| match &it.operation {
            Operation::Create { entry, .. } => [entry.as_ref(), None],
            Operation::Link { entry, .. } => [Some(entry), None],
            Operation::Rename { from, to, .. } => [Some(from), Some(to)],
            _ => [None, None],
        });
        let initial = self.initial.entries.iter().map(|(entry, _)| entry);
        for entry in initial.chain(named.flatten()) {
            let name = entry.name.as_bytes();
            let home = *homes.entry(name).or_insert(entry.directory);
            if home != entry.directory {
                shared.insert(OsStr::from_bytes(name).to_owned());
            }
        }
        shared
    }

    /// The role of each file: what its last name says. A temporary file has the role of the file that it becomes.
    pub(crate) fn roles(&self) -> BTreeMap<NodeId, String> {
        let named = self.operations.iter().filter_map(|it| match &it.operation {
            Operation::Create { node, entry, .. } => Some((*node, entry.as_ref()?)),
            Operation::Rename { node, to, .. } => Some((*node, to)),
            _ => None,
        });
        let initial = self.initial.entries.iter();
        let all = initial.map(|(entry, node)| (*node, entry)).chain(named);
        let last: BTreeMap<NodeId, &Entry> = all.collect();
        let roles = last.into_iter().map(|(node, entry)| {
            let name = OsStr::from_bytes(entry.name.as_bytes()).to_string_lossy();
            (node, role_of(&name))
        });
        roles.collect()
    }

    /// What the workload changes, or makes.
    pub(crate) fn changed_nodes(&self) -> BTreeSet<NodeId> {
        let changes = self.operations.iter().filter(|it| is_change(&it.operation));
        changes.filter_map(|it| it.operation.node()).collect()
    }

    /// Whether the trees had a file before the first operation that the workload changes.
    pub(crate) fn has_initial_files(&self) -> bool {
        let changed = self.changed_nodes();
        { self.initial.entries.iter() }.any(|(_, node)| changed.contains(node))
    }

    /// A path of a node, as the workload saw it: its name before the operation at a place, or else the last that it had
    /// before, or the first that it gets later.
    pub(crate) fn path_of(&self, node: NodeId, place: usize) -> Option<PathBuf> {
        let nodes = self.newest(place);
        if let Some(root) = nodes.roots.iter().position(|root| *root == node) {
            return self.roots.get(root).cloned();
        }
        if let Some(entry) = nodes.name_of(node) {
            return self.full_path(&nodes, entry);
        }
        let names = |operation: &TracedOperation| match &operation.operation {
            Operation::Create {
                node: named, entry, ..
            } if *named == node => entry.clone(),
            Operation::Link { node: named, entry } | Operation::Unlink { node: named, entry }
                if *named == node =>
            {
                Some(entry.clone())
            }
            Operation::Rename {
                node: named, to, ..
            } if *named == node => Some(to.clone()),
            _ => None,
        };
        let before = self.operations[..place.min(self.len())]
            .iter()
            .rev()
            .find_map(names);
        let entry = before.or_else(|| {
            self.operations[place.min(self.len())..]
                .iter()
                .find_map(names)
        })?;
        self.full_path(&nodes, &entry)
    }

    /// The files whose content is not recorded, in a sentence.
    pub(crate) fn names_of_unrecorded(&self) -> String {
        const NAMED_MAX: usize = 3;
        let paths = { self.unrecorded.iter() }.filter_map(|node| self.path_of(*node, self.len()));
        let mut names: Vec<String> = paths.map(|path| self.name_of(&path)).collect();
        names.sort();
        names.dedup();
        let more = names.len().saturating_sub(NAMED_MAX);
        names.truncate(NAMED_MAX);
        match more {
            0 => names.join(", "),
            _ => format!("{} and {more} more", names.join(", ")),
        }
    }

    /// What a path is called in a sentence: its last part, unless other files have the same one, and it is no tree.
    pub(crate) fn name_of(&self, path: &Path) -> String {
        let last = path.file_name().unwrap_or(path.as_os_str());
        let name = match self.root_of(path) {
            Some(root) if root == path => path.as_os_str(),
            Some(root) if self.shared_names.contains(last) => {
                // With several trees, their names tell files apart.
                let base = match self.roots.len() {
                    1 => root,
                    _ => root.parent().unwrap_or(root),
                };
                path.strip_prefix(base).map_or(last, Path::as_os_str)
            }
            _ => last,
        };
        name.to_string_lossy().into_owned()
    }

    /// What a name is called in a sentence about the operation at a place.
    pub(crate) fn name_of_entry(&self, entry: &Entry, place: usize) -> String {
        let name = OsStr::from_bytes(entry.name.as_bytes());
        let path = (self.shared_names.contains(name))
            .then(|| self.full_path(&self.newest(place), entry))
            .flatten();
        match path {
            Some(path) => self.name_of(&path),
            None => entry.name.to_string(),
        }
    }

    /// The tree in which a path is.
    fn root_of(&self, path: &Path) -> Option<&Path> {
        let roots = self.roots.iter().filter(|root| path.starts_with(root));
        roots
            .max_by_key(|root| root.as_os_str().len())
            .map(PathBuf::as_path)
    }

    /// The whole path of a name.
    pub(crate) fn full_path(
        &self,
        nodes: &TreeNodes,
        entry: &powerfail_model::files::Entry,
    ) -> Option<PathBuf> {
        let (root, path) = nodes.path_of(entry)?;
        Some(self.roots.get(root)?.join(path))
    }
}

const fn is_change(operation: &Operation) -> bool {
    !operation.is_sync() && !matches!(operation, Operation::Close { .. })
}

fn apply(nodes: &mut TreeNodes, operation: &TracedOperation) {
    nodes.apply(&operation.operation, operation.mode, &operation.bytes);
}

fn initial_nodes(trace: &Trace) -> Result<TreeNodes, CheckError> {
    let mut nodes = TreeNodes {
        roots: trace.trees().iter().map(|tree| tree.root).collect(),
        ..TreeNodes::default()
    };
    for initial in trace.initial_nodes() {
        let mut content = FileContent::default();
        content.set_len(initial.len_bytes);
        let node = TreeNode {
            kind: initial.kind.clone(),
            mode: initial.mode,
            content,
        };
        nodes.nodes.insert(initial.node, node);
    }
    for initial in trace.initial_entries() {
        nodes.entries.insert(initial.entry.clone(), initial.node);
    }
    let mut runs = trace.initial_files();
    while let Some(run) = runs.next_run()? {
        if let Some(node) = nodes.nodes.get_mut(&run.node) {
            let len_bytes = node.content.len_bytes();
            node.content.write(run.offset, run.bytes);
            node.content.set_len(len_bytes);
        }
    }
    Ok(nodes)
}
