//! The syncs that a finding asks for, made wherever the same code runs: what they prevent is the same bug.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_finding::Role;
use powerfail_model::EventIndex;
use powerfail_model::files::{Frontier, NodeId, Operation, OperationIndex};
use powerfail_trace::StackId;

use super::engine::TreeEngine;
use super::minimal::Minimal;
use super::words::{directories, kind};
use crate::error::CheckError;
use crate::places::Places;

/// A sync that is inserted before the operation at a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Insertion {
    pub(super) node: NodeId,
    pub(super) before: usize,
    pub(super) is_directory: bool,
}

/// Where a sync belongs in the program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// Before the operation at a place.
    Before(usize),
    /// After the operation at a place.
    After(usize),
}

impl Moment {
    const fn place(self) -> usize {
        match self {
            Self::Before(place) | Self::After(place) => place,
        }
    }
}

/// The code of an operation, its kind, and the kind of file that it changes.
type CodeKey = (CodeLine, String, Option<String>);

/// File, line and function.
type CodeLine = (Option<String>, Option<u32>, Option<String>);

/// Remedy by the places before which they are made: what a changed program would do.
pub(super) type Remedy = BTreeMap<usize, BTreeSet<NodeId>>;

/// How a file that is synced relates to the operation beside which it is synced.
enum Relation {
    /// The operation changes it.
    Own,
    /// The operation changes this one of its directories.
    Directory(usize),
    /// It is another file, with this role.
    Role(String),
    /// It is another file.
    Other(NodeId),
}

impl TreeEngine<'_, '_> {
    /// Whether syncs that are inserted make a failure impossible.
    pub(super) fn prevents(&self, insertions: &[Insertion], minimal: &Minimal) -> bool {
        let mut remedy = Remedy::new();
        for insertion in insertions {
            let nodes = remedy.entry(insertion.before).or_default();
            nodes.insert(insertion.node);
        }
        self.is_prevented(minimal, &remedy)
    }

    /// Whether a failure is impossible in a changed program.
    pub(super) fn is_prevented(&self, minimal: &Minimal, remedy: &Remedy) -> bool {
        let changed = self.frontier_with(remedy, minimal.place);
        !changed.permits(&minimal.state)
    }

    /// The syncs of a fix at all operations of the same code. `None` if that does not prevent the failure.
    pub(super) fn remedy(
        &self,
        fix: &[Insertion],
        moment: Moment,
        minimal: &Minimal,
        places: &mut Places<'_>,
    ) -> Result<Option<Remedy>, CheckError> {
        let roles = self.recording.roles();
        let mut known = BTreeMap::new();
        let code = self.code_at(moment.place(), &roles, &mut known, places)?;
        let mut same = Vec::new();
        for place in 0..self.recording.len() {
            if self.code_at(place, &roles, &mut known, places)? == code {
                same.push(place);
            }
        }
        let created = self.created();
        let mut remedy = Remedy::new();
        for insertion in fix {
            let relation = self.relation(insertion.node, moment.place(), &roles);
            for place in &same {
                let operation = &self.recording.operations[*place].operation;
                let nodes: Vec<NodeId> = match &relation {
                    Relation::Own => operation.node().into_iter().collect(),
                    Relation::Directory(number) => {
                        let all = directories(operation);
                        all.get(*number).copied().into_iter().collect()
                    }
                    Relation::Role(role) => {
                        let is_same = |node: &NodeId| roles.get(node) == Some(role);
                        created.keys().copied().filter(is_same).collect()
                    }
                    Relation::Other(node) => vec![*node],
                };
                let before = match moment {
                    Moment::Before(_) => *place,
                    Moment::After(_) => place + 1,
                };
                let exists = |node: &NodeId| created.get(node).is_some_and(|it| *it <= before);
                let nodes = nodes.into_iter().filter(exists);
                remedy.entry(before).or_default().extend(nodes);
            }
        }
        Ok(self.is_prevented(minimal, &remedy).then_some(remedy))
    }

    fn relation(&self, node: NodeId, place: usize, roles: &BTreeMap<NodeId, String>) -> Relation {
        let operation = &self.recording.operations[place].operation;
        if operation.node() == Some(node) {
            return Relation::Own;
        }
        let directory = directories(operation).iter().position(|it| *it == node);
        let role = || roles.get(&node).cloned().map(Relation::Role);
        let directory = directory.map(Relation::Directory);
        directory.or_else(role).unwrap_or(Relation::Other(node))
    }

    fn code_at(
        &self,
        place: usize,
        roles: &BTreeMap<NodeId, String>,
        known: &mut BTreeMap<StackId, CodeLine>,
        places: &mut Places<'_>,
    ) -> Result<CodeKey, CheckError> {
        let traced = &self.recording.operations[place];
        let line = match known.get(&traced.stack) {
            Some(line) => line.clone(),
            None => {
                let it = places.of_event(Role::Store, EventIndex(traced.index.0))?;
                let line = (it.file, it.line, it.function);
                known.insert(traced.stack, line.clone());
                line
            }
        };
        let role = traced.operation.node().and_then(|it| roles.get(&it));
        Ok((line, kind(&traced.operation), role.cloned()))
    }

    /// The first place before which each file exists.
    fn created(&self) -> BTreeMap<NodeId, usize> {
        let initial = self.recording.initial.nodes.iter();
        let mut created: BTreeMap<NodeId, usize> = initial.map(|it| (it.node, 0)).collect();
        for (place, it) in self.recording.operations.iter().enumerate() {
            if let Operation::Create { node, .. } = it.operation {
                created.entry(node).or_insert(place + 1);
            }
        }
        created
    }

    /// What a crash may leave before the operation at a place of a changed program.
    fn frontier_with(&self, remedy: &Remedy, place: usize) -> Frontier {
        let mut frontier = Frontier::new(self.file_system, &self.recording.initial);
        let mut last = OperationIndex(0);
        let insert = |frontier: &mut Frontier, place: usize, last: OperationIndex| {
            for node in remedy.get(&place).into_iter().flatten() {
                let sync = Operation::SyncFile {
                    node: *node,
                    data_only: false,
                };
                frontier.apply(last, &sync);
            }
        };
        for (place, it) in self.recording.operations[..place].iter().enumerate() {
            insert(&mut frontier, place, last);
            frontier.apply(it.index, &it.operation);
            last = it.index;
        }
        insert(&mut frontier, place, last);
        frontier
    }
}
