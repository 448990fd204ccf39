//! The syncs that a finding asks for, made wherever the same code runs: what they prevent is the same bug.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_finding::{Code, Role};
use powerfail_model::EventIndex;
use powerfail_model::files::{CrashState, Frontier, LostPage, NodeId, Operation, OperationIndex};
use powerfail_trace::StackId;

use super::engine::TreeEngine;
use super::minimal::{Minimal, lost_operations, smaller};
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

/// How many parts of what a crash has lost are looked at.
const PARTS_MAX: usize = 512;

/// The largest part of what a crash has lost that is possible, as far as leaving out single things leads to it. `None` if that
/// is not found out.
fn largest_part(
    state: &CrashState,
    is_possible: &dyn Fn(&CrashState) -> bool,
) -> Option<CrashState> {
    let size = |it: &CrashState| {
        let lost = it.pages.iter().flat_map(|page| page.first_lost);
        let sectors = lost.filter(|it| *it != LostPage::NOTHING).count();
        it.lost.len() + it.lengths.len() + sectors
    };
    let mut parts = vec![state.clone()];
    let mut known = BTreeSet::new();
    while !parts.is_empty() {
        let mut next: Vec<CrashState> = parts.iter().flat_map(smaller).collect();
        next.retain(|it| known.insert(it.clone()));
        if known.len() > PARTS_MAX {
            return None;
        }
        let possible = next.iter().filter(|it| it.is_newest() || is_possible(it));
        if let Some(largest) = possible.max_by_key(|it| size(it)) {
            return Some(largest.clone());
        }
        parts = next;
    }
    Some(CrashState::default())
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

    /// What is left of a failure where the syncs of known bugs are made: the rest of what it has lost, if a program that makes
    /// them can lose that. `None` if this does not tell whether they prevent the failure.
    pub(super) fn left_by(
        &mut self,
        remedy: &Remedy,
        place: usize,
        state: &CrashState,
        code: Code,
    ) -> Result<Option<CrashState>, CheckError> {
        let changed = self.frontier_with(remedy, place);
        if changed.permits(state) {
            return Ok(None);
        }
        // Until some moment the syncs are not made yet. If recovery fails there, they are not what is missing.
        let newest_lost = lost_operations(state).max().unwrap_or(OperationIndex(0));
        let operations = &self.recording.operations;
        let first = operations.partition_point(|it| it.index <= newest_lost);
        let (mut low, mut high) = (first.max(self.creation_end), place);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.frontier_with(remedy, middle).permits(state) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if let Some(last) = low.checked_sub(1).filter(|it| *it >= first) {
            let frontier = self.frontier(self.file_system, last);
            if frontier.permits(state) && self.judge_state(&frontier, last, state)?.is_some() {
                return Ok(None);
            }
        }
        let frontier = self.frontier(self.file_system, place);
        let is_possible = |it: &CrashState| changed.permits(it) && frontier.permits(it);
        let Some(part) = largest_part(state, &is_possible) else {
            return Ok(None);
        };
        if part.is_newest() {
            return Ok(Some(part));
        }
        let judged = self.judge_state(&frontier, place, &part)?;
        Ok(Some(match judged.filter(|it| it.code == code) {
            Some(_) => part,
            None => CrashState::default(),
        }))
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
