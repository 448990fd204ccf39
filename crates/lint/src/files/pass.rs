//! The pass over operations on files.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_finding::{Code, Role};
use powerfail_model::files::{
    ByteRange, Entry, FileSystem, Frontier, InitialTree, NodeId, NodeKind, Operation,
    OperationIndex,
};
use powerfail_trace::{
    Body, EventBlock, FileOperation, FileOperations, MarkKind, Result, StackId, Trace,
};
use rustc_hash::FxHashMap;

use super::{DataBeside, FileEvent, FileHit, FileLintOptions, FileSite, FileStep, MissingSync};

/// Finds the patterns in operations that start with a tree. The hits are in the order of codes and then of operations.
pub fn lint_files<'a>(
    tree: &InitialTree,
    steps: impl IntoIterator<Item = FileStep<'a>>,
    options: FileLintOptions,
) -> Vec<FileHit> {
    let mut pass = Pass::new(tree, options);
    for step in steps {
        pass.step(&step);
    }
    pass.finish()
}

/// Finds the patterns in a trace; none if it has no trees. The ends of operations of the workload are acknowledgements.
pub fn lint_trace(trace: &Trace, options: FileLintOptions) -> Result<Vec<FileHit>> {
    if trace.trees().is_empty() {
        return Ok(Vec::new());
    }
    let mut pass = Pass::new(&trace.initial_tree(), options);
    let mut operations = FileOperations::default();
    let mut block = EventBlock::default();
    for number in 0..trace.event_blocks().len() {
        trace.read_block_into(number, &mut block)?;
        for record in block.records() {
            let record = record?;
            let mut step = |event: FileEvent<'_>| {
                pass.step(&FileStep {
                    index: OperationIndex(record.index.0),
                    stack: record.stack,
                    event,
                });
            };
            if let Some((operation, _)) = operations.operation(&record) {
                step(FileEvent::Operation(&operation));
            }
            match record.body {
                Body::Mark(mark) if mark.kind == MarkKind::OperationEnd => {
                    step(FileEvent::Acknowledged);
                }
                Body::File(FileOperation::FailedSync { node }) => {
                    step(FileEvent::SyncFailed(node));
                }
                Body::File(FileOperation::CrossedDevices { entry }) => {
                    step(FileEvent::CrossedDevices(&entry.to_entry()));
                }
                _ => {}
            }
        }
    }
    Ok(pass.finish())
}

const fn site(role: Role, index: OperationIndex, stack: StackId) -> FileSite {
    FileSite { role, index, stack }
}

/// What is known of a file.
#[derive(Default)]
struct FileInfo {
    /// Made in this run.
    is_new: bool,
    /// It had content that was durable: from before the run, or by a sync.
    had_durable_content: bool,
    /// It got a name by a rename or a link.
    was_published: bool,
    /// The first and the last write since the last sync of all of it.
    unsynced: Option<(FileSite, FileSite)>,
    /// It was cut to less than it had: the truncation, and the length before.
    truncated: Option<(FileSite, u64)>,
    /// A sync failed: that sync, and the first write before it that was not synced.
    failed: Option<(FileSite, FileSite)>,
}

/// The syncs of a call stack.
#[derive(Default)]
struct Syncs {
    all: u64,
    /// Those that make nothing durable.
    useless: u64,
    /// Those that make nothing durable of a file which was there before and is synced for the first time: an earlier run may have
    /// left something to do.
    doubtful: u64,
    /// The first one of each.
    examples: [Option<FileSite>; 2],
    /// Of the first one that makes nothing durable because its range is beside the data.
    beside: Option<DataBeside>,
}

struct Pass {
    options: FileLintOptions,
    /// Under whose rules something is missing.
    frontier: Frontier,
    /// Under whose rules, and those of `weakest`, a sync is useless.
    linux: Frontier,
    weakest: Frontier,
    kinds: FxHashMap<NodeId, NodeKind>,
    files: FxHashMap<NodeId, FileInfo>,
    /// Files with writes that are not synced.
    unsynced: BTreeSet<NodeId>,
    /// What existed before the run and was not synced in it.
    never_synced: BTreeSet<NodeId>,
    /// What came since the last acknowledgement.
    since_acknowledged: Vec<(OperationIndex, StackId, Operation)>,
    was_acknowledged: bool,
    crossed: BTreeMap<Entry, FileSite>,
    syncs: BTreeMap<StackId, Syncs>,
    hits: BTreeMap<(Code, Vec<StackId>), FileHit>,
}

impl Pass {
    fn new(tree: &InitialTree, options: FileLintOptions) -> Self {
        let mut files: FxHashMap<NodeId, FileInfo> = FxHashMap::default();
        for node in tree.nodes.iter().filter(|n| n.kind == NodeKind::File) {
            let info = FileInfo {
                had_durable_content: node.len_bytes > 0,
                ..FileInfo::default()
            };
            files.insert(node.node, info);
        }
        Self {
            options,
            frontier: Frontier::new(options.file_system, tree),
            linux: Frontier::new(FileSystem::Linux, tree),
            weakest: Frontier::new(FileSystem::Posix, tree),
            kinds: tree
                .nodes
                .iter()
                .map(|node| (node.node, node.kind.clone()))
                .collect(),
            files,
            unsynced: BTreeSet::new(),
            never_synced: tree.nodes.iter().map(|node| node.node).collect(),
            since_acknowledged: Vec::new(),
            was_acknowledged: false,
            crossed: BTreeMap::new(),
            syncs: BTreeMap::new(),
            hits: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: &FileStep<'_>) {
        match step.event {
            FileEvent::Operation(operation) => self.operation(step.index, step.stack, operation),
            FileEvent::Acknowledged => self.acknowledged(Some(step.index)),
            FileEvent::SyncFailed(node) => self.sync_failed(node, step.index, step.stack),
            FileEvent::CrossedDevices(target) => {
                let site = site(Role::Publish, step.index, step.stack);
                self.crossed.insert(target.clone(), site);
            }
        }
    }

    fn hit(
        &mut self,
        code: Code,
        sites: Vec<FileSite>,
        confirmed: bool,
        missing_sync: Option<MissingSync>,
    ) {
        let stacks = sites.iter().map(|site| site.stack).collect();
        let hit = self.hits.entry((code, stacks)).or_insert(FileHit {
            code,
            sites,
            count: 0,
            of: None,
            confirmed,
            missing_sync,
            beside: None,
        });
        hit.count += 1;
        hit.confirmed |= confirmed;
    }

    fn operation(&mut self, index: OperationIndex, stack: StackId, operation: &Operation) {
        match operation {
            Operation::Create { node, kind, entry } => {
                self.kinds.insert(*node, kind.clone());
                if *kind == NodeKind::File {
                    let info = FileInfo {
                        is_new: true,
                        ..FileInfo::default()
                    };
                    self.files.insert(*node, info);
                }
                if let Some(entry) = entry {
                    self.copied_over(entry, index, stack);
                }
            }
            Operation::Write { node, range } => {
                self.written(*node, range.offset, index, stack);
            }
            Operation::Truncate { node, len_bytes } => {
                let before = self.frontier.newest_len(*node).unwrap_or(0);
                if let Some(file) = self.files.get_mut(node)
                    && *len_bytes < before
                    && file.had_durable_content
                {
                    file.truncated = Some((site(Role::Overwrite, index, stack), before));
                }
            }
            Operation::Rename { node, replaced, .. } => {
                self.published(*node, index, stack);
                if let Some(replaced) = replaced {
                    self.forget_unnamed(*replaced);
                }
            }
            Operation::Link { node, .. } => self.published(*node, index, stack),
            Operation::Unlink { node, entry } => self.removed(*node, entry, index, stack),
            Operation::SyncFile { node, .. } | Operation::SyncRange { node, .. } => {
                self.synced(*node, index, stack, operation);
            }
            Operation::SyncFileSystem => {
                for node in std::mem::take(&mut self.unsynced) {
                    self.all_synced(node);
                }
                self.never_synced.clear();
            }
            _ => {}
        }
        for frontier in [&mut self.frontier, &mut self.linux, &mut self.weakest] {
            frontier.apply(index, operation);
        }
        if operation.is_namespace() || operation.file().is_some() {
            self.since_acknowledged
                .push((index, stack, operation.clone()));
        }
    }

    fn written(&mut self, node: NodeId, offset: u64, index: OperationIndex, stack: StackId) {
        let write = site(Role::Store, index, stack);
        let Some(file) = self.files.get_mut(&node) else {
            return;
        };
        file.failed = None;
        file.unsynced = Some(match file.unsynced {
            Some((first, _)) => (first, write),
            None => (write, write),
        });
        self.unsynced.insert(node);
        if let Some((truncation, before)) = file.truncated
            && offset < before
        {
            file.truncated = None;
            self.hit(Code::TruncatedInPlace, vec![truncation, write], false, None);
        }
        if !self.crossed.is_empty() {
            let entry = {
                let mut names = self.frontier.newest_names(node);
                let entry = names.find(|entry| self.crossed.contains_key(entry));
                entry.cloned()
            };
            if let Some(entry) = entry {
                self.copied_over(&entry, index, stack);
            }
        }
    }

    fn copied_over(&mut self, entry: &Entry, index: OperationIndex, stack: StackId) {
        if let Some(crossed) = self.crossed.remove(entry) {
            let copy = site(Role::Store, index, stack);
            self.hit(Code::TemporaryElsewhere, vec![crossed, copy], true, None);
        }
    }

    /// A file gets a name by which others find it.
    fn published(&mut self, node: NodeId, index: OperationIndex, stack: StackId) {
        let Some(file) = self.files.get_mut(&node) else {
            return;
        };
        let first_time = !std::mem::replace(&mut file.was_published, true);
        // A file that was there before, such as a log that is put aside, is often renamed while it is written.
        let confirmed = file.is_new && first_time;
        if let Some((_, write)) = file.unsynced {
            let publish = site(Role::Publish, index, stack);
            let missing = MissingSync {
                node,
                before: Some(index),
            };
            self.hit(
                Code::NamedBeforeSynced,
                vec![write, publish],
                confirmed,
                Some(missing),
            );
        }
    }

    fn removed(&mut self, node: NodeId, entry: &Entry, index: OperationIndex, stack: StackId) {
        let last = self.frontier.newest_names(node).nth(1).is_none();
        let had_content = self
            .files
            .get(&node)
            .is_some_and(|file| file.had_durable_content);
        if last && had_content {
            // A new file beside it that is not durable yet.
            let is_beside = |named: NodeId| {
                let mut names = self.frontier.newest_names(named);
                named != node && names.any(|other| other.directory == entry.directory)
            };
            let writes: Vec<(NodeId, FileSite)> = self
                .unsynced
                .iter()
                .filter(|named| is_beside(**named))
                .filter_map(|named| {
                    let file = self.files.get(named)?;
                    let (_, write) = file.unsynced.filter(|_| file.is_new)?;
                    Some((*named, write))
                })
                .collect();
            for (named, write) in writes {
                let removal = site(Role::Publish, index, stack);
                let missing = MissingSync {
                    node: named,
                    before: Some(index),
                };
                self.hit(
                    Code::RemovedBeforeSynced,
                    vec![write, removal],
                    false,
                    Some(missing),
                );
            }
        }
        if last {
            self.forget_unnamed(node);
        }
    }

    /// A file without a name is not in any crash state: what it loses does not matter.
    fn forget_unnamed(&mut self, node: NodeId) {
        self.unsynced.remove(&node);
    }

    fn synced(
        &mut self,
        node: NodeId,
        index: OperationIndex,
        stack: StackId,
        operation: &Operation,
    ) {
        let useful = self.weakest.raises_floor(operation) || self.linux.raises_floor(operation);
        let beside = match operation {
            Operation::SyncRange { node, range } if !useful => self.data_beside(*node, *range),
            _ => None,
        };
        // The first sync of what was there before may be for what an earlier run has left.
        let first = self.never_synced.remove(&node);
        let sync = site(Role::Flush, index, stack);
        let syncs = self.syncs.entry(stack).or_default();
        syncs.all += 1;
        syncs.beside = syncs.beside.or(beside);
        if !useful && first {
            syncs.doubtful += 1;
            syncs.examples[1].get_or_insert(sync);
        } else if !useful {
            syncs.useless += 1;
            syncs.examples[0].get_or_insert(sync);
        }
        if let Operation::SyncFile { .. } = operation {
            if let Some(file) = self.files.get_mut(&node)
                && let Some((failure, write)) = file.failed.take()
            {
                self.hit(Code::SyncRetried, vec![write, failure, sync], true, None);
            }
            self.all_synced(node);
        }
    }

    /// Whether a file has data that is not durable, although a sync of this range makes nothing durable.
    fn data_beside(&self, node: NodeId, range: ByteRange) -> Option<DataBeside> {
        let whole = Operation::SyncFile {
            node,
            data_only: true,
        };
        let is_open = self.weakest.raises_floor(&whole) || self.linux.raises_floor(&whole);
        is_open.then_some(DataBeside { node, range })
    }

    fn all_synced(&mut self, node: NodeId) {
        self.unsynced.remove(&node);
        self.never_synced.remove(&node);
        let len = self.frontier.newest_len(node);
        if let Some(file) = self.files.get_mut(&node) {
            file.unsynced = None;
            file.had_durable_content |= len.is_some_and(|len| len > 0);
        }
    }

    fn sync_failed(&mut self, node: NodeId, index: OperationIndex, stack: StackId) {
        if let Some(file) = self.files.get_mut(&node)
            && let Some((write, _)) = file.unsynced
        {
            file.failed = Some((site(Role::Flush, index, stack), write));
        }
    }

    /// Everything so far should be durable.
    fn acknowledged(&mut self, at: Option<OperationIndex>) {
        self.was_acknowledged |= at.is_some();
        for (index, stack, operation) in std::mem::take(&mut self.since_acknowledged) {
            if self.frontier.is_sure(index, &operation) || self.is_undone(&operation) {
                continue;
            }
            let (code, role, node) = match &operation {
                Operation::Create {
                    entry: Some(entry), ..
                }
                | Operation::Link { entry, .. }
                | Operation::Unlink { entry, .. } => {
                    (Code::DirectoryNotSynced, Role::Store, entry.directory)
                }
                Operation::Rename { to, .. } => {
                    (Code::DirectoryNotSynced, Role::Store, to.directory)
                }
                Operation::Exchange { first, .. } => {
                    (Code::DirectoryNotSynced, Role::Store, first.directory)
                }
                _ => match operation.file() {
                    Some(node) => (Code::WriteNotSynced, Role::Store, node),
                    None => continue,
                },
            };
            let missing = MissingSync { node, before: at };
            let site = site(role, index, stack);
            self.hit(code, vec![site], at.is_some(), Some(missing));
        }
    }

    /// Whether a later operation has taken it back: the name is another one's by now.
    fn is_undone(&self, operation: &Operation) -> bool {
        let names = self.frontier.newest_entries();
        let (entry, node) = match operation {
            Operation::Create {
                node,
                entry: Some(entry),
                ..
            }
            | Operation::Link { node, entry } => (entry, Some(node)),
            Operation::Rename { node, to, .. } => (to, Some(node)),
            Operation::Unlink { entry, .. } => (entry, None),
            _ => return false,
        };
        names.get(entry) != node
    }

    fn finish(mut self) -> Vec<FileHit> {
        if self.options.end_acknowledges && !self.was_acknowledged {
            self.acknowledged(None);
        }
        for syncs in std::mem::take(&mut self.syncs).into_values() {
            let confirmed = syncs.useless * 2 >= syncs.all;
            let useless = syncs.useless + if confirmed { 0 } else { syncs.doubtful };
            let [proved, doubtful] = syncs.examples;
            if let Some(example) = proved.or(doubtful)
                && useless * 2 >= syncs.all
            {
                let hit = FileHit {
                    code: Code::RedundantSync,
                    sites: vec![example],
                    count: useless,
                    of: Some(syncs.all),
                    confirmed,
                    missing_sync: None,
                    beside: syncs.beside,
                };
                self.hits
                    .insert((Code::RedundantSync, vec![example.stack]), hit);
            }
        }
        let mut hits: Vec<FileHit> = self.hits.into_values().collect();
        hits.sort_by(|a, b| (a.code, &a.sites).cmp(&(b.code, &b.sites)));
        hits
    }
}
