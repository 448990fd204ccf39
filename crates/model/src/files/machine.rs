//! The frontier of one set of rules: what is not sure yet, and what syncs make sure.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::file::File;
use super::ids::{NodeId, OperationIndex, Source};
use super::names::{NameChange, Names};
use super::operation::{ByteRange, NodeKind, Operation};
use super::rules::{Rules, SyncScope};
use super::state::InitialTree;

/// An operation that waits in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logged {
    /// It changes names.
    Names,
    /// It changes the length or the blocks of a file, or forces its delayed blocks into the log.
    File(NodeId),
}

/// When a node was last changed.
#[derive(Clone, Copy, Debug, Default)]
struct LastChange {
    any: Option<OperationIndex>,
    /// What `fdatasync` looks at: not names, and not writes to blocks that are there.
    data: Option<OperationIndex>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) rules: Rules,
    pub(super) names: Names,
    files: FxHashMap<NodeId, File>,
    /// The files with something that is not sure.
    open_files: BTreeSet<NodeId>,
    /// What waits in the log. Where the file system has none, what changes names.
    log: BTreeMap<OperationIndex, Logged>,
    last_changes: FxHashMap<NodeId, LastChange>,
}

impl Machine {
    pub(super) fn new(rules: Rules, tree: &InitialTree) -> Self {
        let files = tree.nodes.iter().filter(|node| node.kind == NodeKind::File);
        Self {
            rules,
            names: Names::new(tree),
            files: files
                .map(|file| (file.node, File::new(file.node, file.len_bytes)))
                .collect(),
            open_files: BTreeSet::new(),
            log: BTreeMap::new(),
            last_changes: FxHashMap::default(),
        }
    }

    pub(super) fn file(&self, node: NodeId) -> Option<&File> {
        self.files.get(&node)
    }

    pub(super) fn open_files(&self) -> impl Iterator<Item = (NodeId, &File)> {
        self.open_files
            .iter()
            .map(|&node| (node, &self.files[&node]))
    }

    pub(super) fn log(&self) -> &BTreeMap<OperationIndex, Logged> {
        &self.log
    }

    /// Whether something can be lost.
    pub(super) fn is_open(&self) -> bool {
        !self.log.is_empty() || !self.open_files.is_empty()
    }

    fn changed(&mut self, node: NodeId, index: OperationIndex, data: bool) {
        let last = self.last_changes.entry(node).or_default();
        last.any = Some(index);
        if data {
            last.data = Some(index);
        }
    }

    /// Moves over an operation. Whether a state became possible.
    pub(super) fn apply(&mut self, index: OperationIndex, operation: &Operation) -> bool {
        match operation {
            Operation::Create { node, kind, .. } => {
                if *kind == NodeKind::File {
                    self.files.insert(*node, File::new(*node, 0));
                }
                self.changed(*node, index, true);
            }
            Operation::Rename {
                node,
                replaced: Some(replaced),
                ..
            } => {
                let of_files = self.files.contains_key(node) && self.files.contains_key(replaced);
                if self.rules.flush_on_replace && of_files {
                    self.force(*node, index);
                }
            }
            _ => {}
        }
        if let Some(change) = NameChange::of(operation) {
            for &node in &change.nodes {
                self.changed(node, index, false);
            }
            for (entry, _) in &change.entries {
                self.changed(entry.directory, index, true);
            }
            self.names.apply(index, change);
            self.log.insert(index, Logged::Names);
            return true;
        }
        match *operation {
            Operation::Write { node, range } => {
                if range.len_bytes == 0 {
                    return false;
                }
                let Some(file) = self.files.get_mut(&node) else {
                    return false;
                };
                let grows = range.end() > file.len();
                let source = Source::Written {
                    operation: index,
                    offset: 0,
                };
                file.write(index, range, Some(source));
                self.open_files.insert(node);
                self.changed(node, index, grows);
                true
            }
            Operation::Truncate { node, len_bytes } => {
                self.change_file(node, index, |file| file.truncate(index, len_bytes))
            }
            Operation::Allocate {
                node,
                range,
                keep_size,
            } => self.change_file(node, index, |file| {
                !keep_size && file.allocate(index, range)
            }),
            Operation::Zero {
                node,
                range,
                keep_size,
            } => self.change_file(node, index, |file| {
                let zeroed = file.zero(index, range);
                (!keep_size && file.allocate(index, range)) || zeroed
            }),
            Operation::PunchHole { node, range } => {
                self.change_file(node, index, |file| file.zero(index, range))
            }
            Operation::CollapseRange { node, range } => {
                self.change_file(node, index, |file| file.shift(index, range, false))
            }
            Operation::InsertRange { node, range } => {
                self.change_file(node, index, |file| file.shift(index, range, true))
            }
            Operation::SyncFile { .. } | Operation::SyncRange { .. } => {
                // What a log tree makes durable overtakes what came before it: that is new.
                let overtakes = self.rules.sync_scope == SyncScope::LogTree;
                let grows = overtakes && self.raises_floor(operation);
                self.sync(operation);
                grows && self.is_open()
            }
            Operation::SyncFileSystem => {
                self.sync_all();
                false
            }
            Operation::Close { node } => {
                if let Some(file) = self.files.get_mut(&node)
                    && std::mem::take(&mut file.truncated_to_nothing)
                    && self.rules.flush_on_replace
                {
                    self.force(node, index);
                }
                false
            }
            Operation::Create { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::Rename { .. }
            | Operation::Exchange { .. } => false,
        }
    }

    fn force(&mut self, node: NodeId, index: OperationIndex) {
        if let Some(file) = self.files.get_mut(&node)
            && file.has_delayed()
        {
            file.force(index);
            self.log.insert(index, Logged::File(node));
        }
    }

    /// A change of a file that says whether it is in the log.
    fn change_file(
        &mut self,
        node: NodeId,
        index: OperationIndex,
        change: impl FnOnce(&mut File) -> bool,
    ) -> bool {
        let Some(file) = self.files.get_mut(&node) else {
            return false;
        };
        let logged = change(file);
        if logged && self.rules.ordered {
            self.log.insert(index, Logged::File(node));
        }
        let open = file.is_open();
        if open {
            self.open_files.insert(node);
        }
        self.changed(node, index, logged);
        open
    }

    /// Whether a sync makes something sure.
    pub(super) fn raises_floor(&self, operation: &Operation) -> bool {
        match *operation {
            Operation::SyncFileSystem => self.is_open(),
            Operation::SyncFile { node, .. } => {
                self.open_files.contains(&node)
                    || !self.logged_by(operation, self.has_delayed(node)).is_empty()
            }
            Operation::SyncRange { node, range } => {
                let file = self.files.get(&node);
                file.is_some_and(|file| file.is_open_in(range) || file.has_logged_length())
                    || !self.logged_by(operation, false).is_empty()
            }
            _ => false,
        }
    }

    /// Whether all that an operation has done is sure, or its file has no name.
    pub(super) fn is_sure(&self, index: OperationIndex, operation: &Operation) -> bool {
        if operation.is_namespace() {
            return !self.names.open().contains_key(&index);
        }
        let Some(node) = operation.file() else {
            return true;
        };
        let open = self.log.contains_key(&index)
            || self.files.get(&node).is_some_and(|file| {
                let range = match *operation {
                    Operation::Write { range, .. } => Some(range),
                    _ => None,
                };
                file.has_open(index, range)
            });
        !open || !self.names.has_name(node)
    }

    fn has_delayed(&self, node: NodeId) -> bool {
        self.files.get(&node).is_some_and(File::has_delayed)
    }

    /// What of the log a sync of a node makes sure, if it has to put something into the log or not.
    fn logged_by(&self, operation: &Operation, delayed: bool) -> BTreeSet<OperationIndex> {
        let (node, data_only) = match *operation {
            Operation::SyncFile { node, data_only } => (node, data_only),
            // The kernel asks for the data and what is needed to read it.
            Operation::SyncRange { node, .. } => (node, true),
            _ => return BTreeSet::new(),
        };
        match self.rules.sync_scope {
            SyncScope::Log => {
                let last = self.last_changes.get(&node).copied().unwrap_or_default();
                let limit = match (delayed, data_only) {
                    (true, _) => Some(OperationIndex(u64::MAX)),
                    (false, true) => last.data,
                    (false, false) => last.any,
                };
                let Some(limit) = limit else {
                    return BTreeSet::new();
                };
                self.log.range(..=limit).map(|(&index, _)| index).collect()
            }
            SyncScope::LogTree => {
                let mut set = self.names.open_in(node);
                let mut nodes = vec![node];
                let mut seen = BTreeSet::new();
                while let Some(node) = nodes.pop() {
                    if !seen.insert(node) {
                        continue;
                    }
                    for index in self.names.open_of(node) {
                        set.insert(index);
                        let entries = self.names.open()[&index].entries.iter();
                        nodes.extend(entries.map(|(entry, _)| entry.directory));
                    }
                }
                self.names.close_downwards(&mut set);
                set
            }
            SyncScope::Node => {
                let mut set = self.names.open_in(node);
                self.names.close_downwards(&mut set);
                set
            }
        }
    }

    fn sync(&mut self, operation: &Operation) {
        let (node, delayed) = match *operation {
            Operation::SyncFile { node, .. } => {
                let delayed = self.has_delayed(node);
                self.close_file(node);
                (node, delayed)
            }
            Operation::SyncRange { node, range } => (node, self.sync_range(node, range)),
            _ => return,
        };
        for index in self.logged_by(operation, delayed) {
            self.names.make_sure(index);
            self.log.remove(&index);
        }
        if self.files.get(&node).is_some_and(|file| !file.is_open()) {
            self.open_files.remove(&node);
        }
    }

    /// A file is durable, with what it had in the log.
    fn close_file(&mut self, node: NodeId) {
        let Some(file) = self.files.get_mut(&node) else {
            return;
        };
        for index in file.logged() {
            if self.log.get(&index) == Some(&Logged::File(node)) {
                self.log.remove(&index);
            }
        }
        file.close();
    }

    /// A range of a file is durable, with the length that a truncation or an allocation has given to the file: without it the
    /// data cannot be read. Whether that puts something into the log.
    ///
    /// Btrfs writes the inode to its log tree, and syncs the whole file after an operation that has cut or moved pages
    /// (`BTRFS_INODE_NEEDS_FULL_SYNC` in `btrfs_sync_file`). POSIX asks for "synchronized I/O data integrity completion", as
    /// of fdatasync. Where the log is in order, the caller makes all of it durable.
    fn sync_range(&mut self, node: NodeId, range: ByteRange) -> bool {
        let Some(file) = self.files.get_mut(&node) else {
            return false;
        };
        let has_logged_pages = file.has_logged_pages();
        match self.rules.sync_scope {
            SyncScope::LogTree if has_logged_pages => {
                let delayed = self.has_delayed(node);
                self.close_file(node);
                delayed
            }
            SyncScope::LogTree | SyncScope::Node if !has_logged_pages => {
                let delayed = file.close_range(range);
                for index in file.close_logged_lengths() {
                    self.log.remove(&index);
                }
                delayed
            }
            _ => file.close_range(range),
        }
    }

    fn sync_all(&mut self) {
        for index in std::mem::take(&mut self.log).into_keys() {
            self.names.make_sure(index);
        }
        for node in std::mem::take(&mut self.open_files) {
            if let Some(file) = self.files.get_mut(&node) {
                file.close();
            }
        }
    }
}
