//! What a crash may leave of a tree at the present position of a pass over its operations.

use std::collections::{BTreeMap, BTreeSet};

use super::aim::Random;
use super::content::{Version, VersionKind, filled, pieces};
use super::file::File;
use super::ids::{Entry, NodeId, OperationIndex, PAGE_BYTES, PageIndex, SECTOR_BYTES};
use super::machine::Machine;
use super::operation::{FileSystem, Operation};
use super::rules::Rules;
use super::state::{CrashState, Difference, Fate, FileDifference, InitialTree, LostPage, Piece};

/// What may survive a crash, operation by operation.
///
/// A step costs what it touches. The memory is that of the operations that are not sure yet, and of one
/// list of pieces for each page that an operation has written.
///
/// ```
/// use powerfail_model::files::{
///     ByteRange, Entry, FileSystem, Frontier, InitialTree, NodeId, NodeKind, Operation, OperationIndex,
/// };
/// let (root, file) = (NodeId(0), NodeId(1));
/// let mut frontier = Frontier::new(FileSystem::Xfs, &InitialTree::with_root(root));
/// let operations = [
///     Operation::Create { node: file, kind: NodeKind::File, entry: Some(Entry::new(root, "log")) },
///     Operation::Write { node: file, range: ByteRange::new(0, 100) },
/// ];
/// for (index, operation) in (0..).zip(&operations) {
///     frontier.apply(OperationIndex(index), operation);
/// }
/// // All of it, an empty file, or none.
/// assert_eq!(frontier.states().count(), 3);
/// assert!(frontier.raises_floor(&Operation::SyncFile { node: file, data_only: false }));
/// ```
#[derive(Clone, Debug)]
pub struct Frontier {
    file_system: FileSystem,
    /// What it is the union of.
    machines: Vec<(FileSystem, Machine)>,
    /// A state became possible since the last failure point.
    grown: bool,
}

impl Frontier {
    /// A pass over operations that start with a tree.
    pub fn new(file_system: FileSystem, tree: &InitialTree) -> Self {
        let machines = Rules::of(file_system).into_iter();
        Self {
            file_system,
            machines: machines
                .map(|(name, rules)| (name, Machine::new(rules, tree)))
                .collect(),
            grown: true,
        }
    }

    /// Whose rules these are.
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// Moves over one operation. Indexes grow from call to call.
    pub fn apply(&mut self, index: OperationIndex, operation: &Operation) {
        if self.is_failure_point(operation) {
            self.grown = false;
        }
        for (_, machine) in &mut self.machines {
            self.grown |= machine.apply(index, operation);
        }
    }

    /// Whether an operation, which is not applied yet, makes something sure that is not. Only these remove
    /// states (and under Btrfs add some): between two of them, states are only added.
    pub fn raises_floor(&self, operation: &Operation) -> bool {
        self.machines
            .iter()
            .any(|(_, machine)| machine.raises_floor(operation))
    }

    /// Whether the moment before an operation, which is not applied yet, is one of the fewest moments whose
    /// crash states are those of all moments.
    pub fn is_failure_point(&self, operation: &Operation) -> bool {
        self.grown && self.raises_floor(operation)
    }

    /// Whether the end, if it is here, is one of those moments.
    pub fn is_failure_point_at_end(&self) -> bool {
        self.grown
    }

    /// Whether a crash here can leave more than the newest state.
    pub fn is_open(&self) -> bool {
        self.machines.iter().any(|(_, machine)| machine.is_open())
    }

    /// Whether all that an operation before this moment has done is surely durable, or cannot be seen any more: its file
    /// has no name.
    pub fn is_sure(&self, index: OperationIndex, operation: &Operation) -> bool {
        let mut machines = self.machines.iter();
        machines.all(|(_, machine)| machine.is_sure(index, operation))
    }

    /// All crash states, each once, the newest first. There can be too many to list: see
    /// [`Self::state_count_up_to`].
    pub fn states(&self) -> impl Iterator<Item = CrashState> + '_ {
        self.machines
            .iter()
            .enumerate()
            .flat_map(move |(place, (_, machine))| {
                machine.states().filter(move |state| {
                    let earlier = &self.machines[..place];
                    !earlier.iter().any(|(_, machine)| machine.permits(state))
                })
            })
    }

    /// How many crash states there are, or `limit` if there are more. Costs at most about `limit` states.
    pub fn state_count_up_to(&self, limit: u64) -> u64 {
        let mut machines = self.machines.iter();
        if machines.any(|(_, machine)| machine.newest_frame_has_more_than(limit)) {
            return limit;
        }
        let limit_states = usize::try_from(limit).unwrap_or(usize::MAX);
        self.states().take(limit_states).count() as u64
    }

    /// Crash states by chance: `count` draws, what was drawn twice only once. The same seed gives the same
    /// states. Some draws lose little, some nearly all.
    pub fn sample(&self, seed: u64, count: usize) -> Vec<CrashState> {
        let mut random = Random(seed);
        let mut drawn = BTreeSet::new();
        let mut states = Vec::new();
        for draw in 0..count {
            let (_, machine) = &self.machines[draw % self.machines.len()];
            if let Some(state) = machine.random_state(&mut random)
                && drawn.insert(state.clone())
            {
                states.push(state);
            }
        }
        states
    }

    fn of_all<I: IntoIterator<Item = CrashState>>(
        &self,
        states: impl Fn(&Machine) -> I,
    ) -> Vec<CrashState> {
        let mut seen = BTreeSet::new();
        let all = self
            .machines
            .iter()
            .flat_map(|(_, machine)| states(machine));
        all.filter(|state| seen.insert(state.clone())).collect()
    }

    /// For each prefix of the operations on names, truncations and the like that may survive: with all
    /// data that can be there, and with as little as possible. The newest first. Of many prefixes, about `most` of each file
    /// system, the shortest among them: each costs as much as there is that is not sure.
    pub fn prefixes(&self, most: usize) -> Vec<CrashState> {
        self.of_all(|machine| machine.prefixes(most).collect::<Vec<_>>())
    }

    /// The states that lose an operation, with what must be lost with it, and keep all else: for a write
    /// that extends the file, one that keeps the length if that can be and one that does not. None if the
    /// operation is sure.
    pub fn losing(&self, index: OperationIndex, operation: &Operation) -> Vec<CrashState> {
        let mut states = self.of_all(|machine| machine.losing(index, operation));
        // A file without a name is not in any crash state.
        states.retain(|state| !state.is_newest());
        states
    }

    /// The states that keep an operation, with what it needs, and lose all else that can be lost.
    pub fn keeping(&self, index: OperationIndex, operation: &Operation) -> Vec<CrashState> {
        self.of_all(|machine| machine.keeping(index, operation))
    }

    /// The states in which a write survives in part and nothing else is lost: its first sector, its first page, a
    /// half, all but the last page, all but the last sector; and the other way round; and the file ends
    /// inside of it.
    pub fn tearing(&self, index: OperationIndex, operation: &Operation) -> Vec<CrashState> {
        self.of_all(|machine| machine.tearing(index, operation))
    }

    /// Whether a crash here can leave the state.
    pub fn permits(&self, state: &CrashState) -> bool {
        self.machines
            .iter()
            .any(|(_, machine)| machine.permits(state))
    }

    /// The file systems of which this frontier is the union, and whether each permits the state.
    pub fn permitted_by(&self, state: &CrashState) -> Vec<(FileSystem, bool)> {
        self.machines
            .iter()
            .map(|(name, machine)| (*name, machine.permits(state)))
            .collect()
    }

    // The newest tree is the same under all rules.
    fn tree(&self) -> &Machine {
        &self.machines[0].1
    }

    /// The names of the newest tree.
    pub fn newest_entries(&self) -> &BTreeMap<Entry, NodeId> {
        self.tree().names.newest()
    }

    /// The names of a node in the newest tree.
    pub fn newest_names(&self, node: NodeId) -> impl Iterator<Item = &Entry> {
        self.tree().names.of(node)
    }

    /// The length of a file in the newest tree.
    pub fn newest_len(&self, node: NodeId) -> Option<u64> {
        self.tree().file(node).map(File::len)
    }

    /// The content of a file in the newest tree, ascending; what no piece covers is zeros.
    pub fn newest_pieces(&self, node: NodeId) -> Vec<Piece> {
        let Some(file) = self.tree().file(node) else {
            return Vec::new();
        };
        let parts = file.newest_parts();
        let parts = parts.iter();
        parts
            .flat_map(|(page, parts)| pieces(*page, parts))
            .collect()
    }

    /// The machine that knows the history of all that the state names: the one that is sure of the least.
    fn judge(&self, state: &CrashState) -> &Machine {
        let permits = self.machines.iter().find(|(_, m)| m.permits(state));
        &permits.unwrap_or(&self.machines[0]).1
    }

    /// How the tree of a state differs from the newest one.
    pub fn difference(&self, state: &CrashState) -> Difference {
        let machine = self.judge(state);
        let view = machine.names.view(&state.lost);
        let newest_view = machine.names.view(&[]);
        let newest = machine.names.newest();
        let entries: Vec<(Entry, Option<NodeId>)> = view
            .entries
            .iter()
            .filter(|(entry, node)| newest.get(**entry) != node.as_ref())
            .map(|(&entry, &node)| (entry.clone(), node))
            .collect();
        // Files that have no name in the newest tree need all of their content.
        let mut whole: BTreeSet<NodeId> = entries.iter().filter_map(|(_, node)| *node).collect();
        whole.retain(|&node| machine.file(node).is_some());
        whole.retain(|&node| view.has(node) && !newest_view.has(node));
        let mut nodes: BTreeSet<NodeId> = state.lengths.iter().map(|length| length.node).collect();
        nodes.extend(state.pages.iter().map(|page| page.node));
        nodes.extend(&whole);
        let files = nodes.into_iter().filter_map(|node| {
            let file = machine.file(node)?;
            Some(file_difference(file, node, state, whole.contains(&node)))
        });
        Difference {
            files: files.collect(),
            entries,
        }
    }

    /// What became of each operation that is not sure, in the order of the calls. Those on files that have no name in
    /// the state are not listed.
    pub fn fates(&self, state: &CrashState) -> Vec<(OperationIndex, Fate)> {
        let machine = self.judge(state);
        let mut tally: BTreeMap<OperationIndex, (u64, u64)> = BTreeMap::new();
        let mut count = |index: OperationIndex, survived: bool| {
            let tally = tally.entry(index).or_default();
            if survived {
                tally.0 += 1;
            } else {
                tally.1 += 1;
            }
        };
        for &index in machine.names.open().keys() {
            count(index, state.lost.binary_search(&index).is_err());
        }
        let view = machine.names.view(&state.lost);
        for (node, file) in machine.open_files() {
            if !view.has(node) {
                continue;
            }
            let lost_length = state.lengths.iter().find(|length| length.node == node);
            let length_lost = lost_length.map_or(LostPage::NOTHING, |length| length.first_lost);
            let len = lost_length.map_or(file.len(), |length| length.len_bytes);
            let visible = len.max(file.len());
            let mut writes = BTreeSet::new();
            for (index, page) in file.open_pages() {
                let name = name_of(state, node, index);
                let written =
                    |v: &&Version| matches!(v.kind, VersionKind::Data | VersionKind::Tail);
                for version in page.versions.iter().filter(written) {
                    if version.kind == VersionKind::Data {
                        writes.insert(version.operation);
                    }
                    for (sector, &first) in name.iter().enumerate() {
                        if !version.touches(sector) {
                            continue;
                        }
                        let sector_start = index.0 * PAGE_BYTES + sector as u64 * SECTOR_BYTES;
                        let start =
                            sector_start.max(index.0 * PAGE_BYTES + u64::from(version.start));
                        if start < visible {
                            count(version.operation, version.operation < first && start < len);
                        }
                    }
                }
                let logged = |v: &&Version| v.kind == VersionKind::Logged;
                for version in page.versions.iter().filter(logged) {
                    for (sector, &first) in name.iter().enumerate() {
                        if version.touches(sector) && first != LostPage::NOTHING {
                            count(version.operation, version.operation < first);
                        }
                    }
                }
            }
            for (index, _) in file.length_changes() {
                if !writes.contains(&index) {
                    count(index, index < length_lost);
                }
            }
        }
        let fates = tally.into_iter().map(|(index, (survived, lost))| {
            let fate = match (survived, lost) {
                (_, 0) => Fate::Survived,
                (0, _) => Fate::Lost,
                _ => Fate::Torn,
            };
            (index, fate)
        });
        fates.collect()
    }
}

fn name_of(state: &CrashState, node: NodeId, page: PageIndex) -> super::file::PageName {
    let pages = &state.pages;
    pages
        .binary_search_by_key(&(node, page), |lost| (lost.node, lost.page))
        .map_or(LostPage::WHOLE, |place| pages[place].first_lost)
}

fn file_difference(file: &File, node: NodeId, state: &CrashState, whole: bool) -> FileDifference {
    let lost_length = state.lengths.iter().find(|length| length.node == node);
    let length_lost = lost_length.map_or(LostPage::NOTHING, |length| length.first_lost);
    let len = lost_length.map_or(file.len(), |length| length.len_bytes);
    let mut all: BTreeMap<PageIndex, Vec<Piece>> = BTreeMap::new();
    if whole {
        for (page, parts) in file.newest_parts() {
            let parts = pieces(page, &parts).filter(|piece| piece.range.offset < len);
            all.insert(page, parts.collect());
        }
    }
    for (index, page) in file.open_pages() {
        let start = index.0 * PAGE_BYTES;
        if start >= len {
            break;
        }
        let name = name_of(state, node, index);
        let lost_trim = |v: &Version| v.kind == VersionKind::Trim && v.operation >= length_lost;
        let trimmed = page.versions.iter().any(lost_trim);
        if whole || trimmed || name != LostPage::WHOLE {
            let in_page = (len - start).min(PAGE_BYTES);
            let parts = page.content(&name, length_lost, in_page);
            let parts = filled(&parts, in_page as u16);
            all.insert(index, pieces(index, &parts).collect());
        }
    }
    FileDifference {
        node,
        len_bytes: len,
        pieces: all.into_values().flatten().collect(),
    }
}
