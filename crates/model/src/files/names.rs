//! The names of a tree: the newest ones, and the operations on them that may still be lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};

use super::ids::{Entry, NodeId, OperationIndex};
use super::operation::Operation;
use super::state::InitialTree;

/// What an operation does to names.
#[derive(Clone, Debug)]
pub(super) struct NameChange {
    /// The entries that it sets, with the node that has the name afterwards.
    pub(super) entries: Vec<(Entry, Option<NodeId>)>,
    /// The nodes whose names it changes.
    pub(super) nodes: Vec<NodeId>,
}

impl NameChange {
    pub(super) fn of(operation: &Operation) -> Option<Self> {
        let (entries, nodes) = match operation {
            Operation::Create {
                node,
                entry: Some(entry),
                ..
            }
            | Operation::Link { node, entry } => (vec![(entry.clone(), Some(*node))], vec![*node]),
            Operation::Unlink { node, entry } => (vec![(entry.clone(), None)], vec![*node]),
            Operation::Rename {
                node,
                from,
                to,
                replaced,
            } => (
                vec![(from.clone(), None), (to.clone(), Some(*node))],
                std::iter::once(*node).chain(*replaced).collect(),
            ),
            Operation::Exchange {
                first,
                first_node,
                second,
                second_node,
            } => (
                vec![
                    (first.clone(), Some(*second_node)),
                    (second.clone(), Some(*first_node)),
                ],
                vec![*first_node, *second_node],
            ),
            _ => return None,
        };
        Some(Self { entries, nodes })
    }
}

/// An entry that operations which may be lost have set.
#[derive(Clone, Debug)]
struct OpenEntry {
    /// Who surely has had the name.
    floor: Option<NodeId>,
    /// Those operations, in order.
    operations: VecDeque<OperationIndex>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    newest: BTreeMap<Entry, NodeId>,
    of_node: FxHashMap<NodeId, BTreeSet<Entry>>,
    roots: FxHashSet<NodeId>,
    open: BTreeMap<OperationIndex, NameChange>,
    open_entries: BTreeMap<Entry, OpenEntry>,
    /// The open operations on entries of a directory.
    open_in: FxHashMap<NodeId, BTreeSet<OperationIndex>>,
    /// The open operations on names of a node.
    open_of: FxHashMap<NodeId, BTreeSet<OperationIndex>>,
}

impl Names {
    pub(super) fn new(tree: &InitialTree) -> Self {
        let mut names = Self::default();
        names.roots.extend(tree.nodes.iter().map(|node| node.node));
        for (entry, node) in &tree.entries {
            names.roots.remove(node);
            names.set(entry, Some(*node));
        }
        names
    }

    pub(super) fn apply(&mut self, index: OperationIndex, change: NameChange) {
        for (entry, node) in &change.entries {
            let before = self.newest.get(entry).copied();
            let open = self
                .open_entries
                .entry(entry.clone())
                .or_insert_with(|| OpenEntry {
                    floor: before,
                    operations: VecDeque::new(),
                });
            open.operations.push_back(index);
            self.set(entry, *node);
            self.open_in
                .entry(entry.directory)
                .or_default()
                .insert(index);
        }
        for &node in &change.nodes {
            self.open_of.entry(node).or_default().insert(index);
        }
        self.open.insert(index, change);
    }

    fn set(&mut self, entry: &Entry, node: Option<NodeId>) {
        let before = match node {
            Some(node) => {
                self.of_node.entry(node).or_default().insert(entry.clone());
                self.newest.insert(entry.clone(), node)
            }
            None => self.newest.remove(entry),
        };
        if let Some(before) = before
            && Some(before) != node
            && let Some(names) = self.of_node.get_mut(&before)
        {
            names.remove(entry);
            if names.is_empty() {
                self.of_node.remove(&before);
            }
        }
    }

    /// The operations that may be lost, in order.
    pub(super) fn open(&self) -> &BTreeMap<OperationIndex, NameChange> {
        &self.open
    }

    pub(super) fn newest(&self) -> &BTreeMap<Entry, NodeId> {
        &self.newest
    }

    /// The names of a node in the newest tree.
    pub(super) fn of(&self, node: NodeId) -> impl Iterator<Item = &Entry> {
        self.of_node.get(&node).into_iter().flatten()
    }

    /// Whether the node has a name in the newest tree.
    pub(super) fn has_name(&self, node: NodeId) -> bool {
        self.of_node.contains_key(&node)
    }

    /// An operation is durable. All earlier ones on its entries are.
    pub(super) fn make_sure(&mut self, index: OperationIndex) {
        let Some(change) = self.open.remove(&index) else {
            return;
        };
        for node in &change.nodes {
            remove(&mut self.open_of, *node, index);
        }
        for (entry, node) in change.entries {
            remove(&mut self.open_in, entry.directory, index);
            let Some(open) = self.open_entries.get_mut(&entry) else {
                continue;
            };
            open.floor = node;
            // All earlier ones are sure, so it is the first.
            open.operations.pop_front();
            if open.operations.is_empty() {
                self.open_entries.remove(&entry);
            }
        }
    }

    /// The open operations on entries of a directory.
    pub(super) fn open_in(&self, directory: NodeId) -> BTreeSet<OperationIndex> {
        self.open_in.get(&directory).cloned().unwrap_or_default()
    }

    /// The open operations on names of a node.
    pub(super) fn open_of(&self, node: NodeId) -> impl Iterator<Item = OperationIndex> {
        self.open_of.get(&node).into_iter().flatten().copied()
    }

    /// Adds to `set` the open operations before its members on the same entries.
    pub(super) fn close_downwards(&self, set: &mut BTreeSet<OperationIndex>) {
        let mut todo: Vec<OperationIndex> = set.iter().copied().collect();
        while let Some(index) = todo.pop() {
            let Some(change) = self.open.get(&index) else {
                continue;
            };
            for (entry, _) in &change.entries {
                // The one before it; that one has its own.
                let operations = &self.open_entries[entry].operations;
                let before = operations.partition_point(|&other| other < index);
                if let Some(&other) = before.checked_sub(1).map(|at| &operations[at])
                    && set.insert(other)
                {
                    todo.push(other);
                }
            }
        }
    }

    /// Adds to `set` the open operations after its members on the same entries.
    pub(super) fn close_upwards(&self, set: &mut BTreeSet<OperationIndex>) {
        let mut todo: Vec<OperationIndex> = set.iter().copied().collect();
        while let Some(index) = todo.pop() {
            let Some(change) = self.open.get(&index) else {
                continue;
            };
            for (entry, _) in &change.entries {
                let operations = &self.open_entries[entry].operations;
                let after = operations.partition_point(|&other| other <= index);
                if let Some(&other) = operations.get(after)
                    && set.insert(other)
                {
                    todo.push(other);
                }
            }
        }
    }

    /// The names where the operations in `lost` are lost.
    pub(super) fn view(&self, lost: &[OperationIndex]) -> View<'_> {
        let mut entries = BTreeMap::new();
        let mut of_node: FxHashMap<NodeId, Vec<&Entry>> = FxHashMap::default();
        for (entry, open) in &self.open_entries {
            let newest = open
                .operations
                .iter()
                .rev()
                .find(|index| lost.binary_search(index).is_err());
            let node = match newest {
                Some(index) => {
                    let change = &self.open[index];
                    let set = change.entries.iter().rev().find(|(set, _)| set == entry);
                    set.and_then(|(_, node)| *node)
                }
                None => open.floor,
            };
            if let Some(node) = node {
                of_node.entry(node).or_default().push(entry);
            }
            entries.insert(entry, node);
        }
        View {
            names: self,
            entries,
            of_node,
        }
    }
}

fn remove(
    sets: &mut FxHashMap<NodeId, BTreeSet<OperationIndex>>,
    node: NodeId,
    index: OperationIndex,
) {
    if let Some(set) = sets.get_mut(&node) {
        set.remove(&index);
        if set.is_empty() {
            sets.remove(&node);
        }
    }
}

/// The names of a crash state.
pub(super) struct View<'a> {
    names: &'a Names,
    /// Who has the names that are not sure.
    pub(super) entries: BTreeMap<&'a Entry, Option<NodeId>>,
    of_node: FxHashMap<NodeId, Vec<&'a Entry>>,
}

impl View<'_> {
    /// Whether a path leads to the node.
    pub(super) fn has(&self, node: NodeId) -> bool {
        // A directory that hangs below itself is found again and again.
        let mut seen = FxHashSet::default();
        let mut todo = vec![node];
        while let Some(node) = todo.pop() {
            if self.names.roots.contains(&node) {
                return true;
            }
            if !seen.insert(node) {
                continue;
            }
            if let Some(entries) = self.names.of_node.get(&node) {
                let sure = entries
                    .iter()
                    .filter(|entry| !self.entries.contains_key(entry));
                todo.extend(sure.map(|entry| entry.directory));
            }
            if let Some(entries) = self.of_node.get(&node) {
                todo.extend(entries.iter().map(|entry| entry.directory));
            }
        }
        false
    }
}

/// All sets of open operations that can be lost where only the order on each entry counts, the empty one
/// first.
pub(super) struct LostSets<'a> {
    names: &'a Names,
    /// For each open operation whether it is kept.
    kept: Vec<bool>,
    done: bool,
}

impl<'a> LostSets<'a> {
    pub(super) fn new(names: &'a Names) -> Self {
        Self {
            names,
            kept: vec![true; names.open.len()],
            done: false,
        }
    }
}

impl Iterator for LostSets<'_> {
    type Item = Vec<OperationIndex>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let lost = self
            .names
            .open
            .keys()
            .zip(&self.kept)
            .filter(|(_, kept)| !**kept)
            .map(|(&index, _)| index)
            .collect();
        match self.kept.iter().rposition(|&kept| kept) {
            None => self.done = true,
            Some(turned) => {
                self.kept[turned] = false;
                let mut stopped: FxHashSet<&Entry> = FxHashSet::default();
                for (place, change) in self.names.open.values().enumerate() {
                    let entries = || change.entries.iter().map(|(entry, _)| entry);
                    if place > turned {
                        self.kept[place] = !entries().any(|entry| stopped.contains(entry));
                    }
                    if !self.kept[place] {
                        stopped.extend(entries());
                    }
                }
            }
        }
        Some(lost)
    }
}
