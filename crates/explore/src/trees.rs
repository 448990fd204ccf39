//! Which crashes of ordinary files are tried, and in which order.
//!
//! The power fails before operations that make something durable, and at the end: the crash states there are those of all
//! moments ([`Frontier::is_failure_point`]). Points with the same call stack are alike, so a few of each are taken. At a
//! point with few crash states all of them are tried. Elsewhere, operations that may still be lost are grouped by
//! call stack and by the role of their file, and one or two of each group are lost, kept alone and torn; then come the
//! prefixes of the operations on names, and a sample. States that lose a single operation come first, for every point, and
//! samples last: a budget that ends early has seen every group once.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_model::files::{
    CrashState, Difference, FileSystem, Frontier, InitialTree, NodeId, Operation, OperationIndex,
};
use powerfail_protocol::random::Random;
use powerfail_trace::StackId;

/// An operation of a recording.
#[derive(Clone, Copy, Debug)]
pub struct OperationAt<'a> {
    /// Its event.
    pub index: OperationIndex,
    /// What it does.
    pub operation: &'a Operation,
    /// From where.
    pub stack: StackId,
}

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct TreePlanOptions {
    /// What a crash may leave.
    pub file_system: FileSystem,
    /// How many points of each call stack; zero is all of them.
    pub per_stack: usize,
    /// Points with at most so many crash states are tried exhaustively.
    pub exhaustive: u64,
    /// How many states are drawn at random at other points.
    pub sample: usize,
    /// How many prefixes of the operations on names are tried at other points.
    pub prefixes: usize,
    /// Decides all random choices.
    pub seed: u64,
    /// The power fails only before the operation at this place of the list.
    pub only: Option<usize>,
    /// Points before this place are left out.
    pub from: usize,
    /// Places at which more is expected than at the point before: what was lost there already may be wrong only here.
    pub also: Vec<usize>,
}

impl Default for TreePlanOptions {
    fn default() -> Self {
        Self {
            file_system: FileSystem::default(),
            per_stack: 3,
            exhaustive: 48,
            sample: 16,
            prefixes: 32,
            seed: 0,
            only: None,
            from: 0,
            also: Vec::new(),
        }
    }
}

/// What a crash state is tried for. The order is that in which states are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aim {
    /// One operation is lost, with what must be lost with it.
    Lose(OperationIndex),
    /// Everything is lost that can be.
    Floor,
    /// One operation is kept, with what it needs.
    Keep(OperationIndex),
    /// One write is torn.
    Tear(OperationIndex),
    /// A prefix of the operations on names survives.
    Prefix,
    /// One of few states.
    All,
    /// One of many.
    Sample,
}

/// A crash state to try.
#[derive(Clone, Debug)]
pub struct PlannedState {
    /// The power fails before the operation at this place of the list.
    pub place: usize,
    /// What is lost.
    pub state: CrashState,
    /// What that means for the tree.
    pub difference: Difference,
    /// Why it is tried.
    pub aim: Aim,
}

/// The crash states to try, in their order.
#[derive(Clone, Debug, Default)]
pub struct TreePlan {
    /// The states; none has lost nothing.
    pub states: Vec<PlannedState>,
    /// How many failure points there are.
    pub points: u64,
    /// How many call stacks they have.
    pub stacks: u64,
    /// The points that were taken.
    pub taken: Vec<usize>,
    /// How many of these have few states, all of which are in the plan.
    pub exhausted: u64,
}

/// Places of the list, one for each call stack first, then the last of each, then some in between, at most `per_stack`;
/// zero is all. Ascending.
fn of_each_stack(
    places: &[(StackId, usize)],
    per_stack: usize,
    seed: u64,
) -> (BTreeSet<usize>, u64) {
    let mut by_stack: BTreeMap<StackId, Vec<usize>> = BTreeMap::new();
    for (stack, place) in places {
        by_stack.entry(*stack).or_default().push(*place);
    }
    let mut random = Random::new(seed);
    let mut taken = BTreeSet::new();
    for all in by_stack.values() {
        if per_stack == 0 || all.len() <= per_stack {
            taken.extend(all);
            continue;
        }
        taken.insert(all[0]);
        if per_stack > 1 {
            taken.insert(all[all.len() - 1]);
        }
        for _ in 2..per_stack {
            taken.insert(all[random.below(all.len() as u64) as usize]);
        }
    }
    (taken, by_stack.len() as u64)
}

/// The places before which the power fails with nothing lost: operations that change something, a few of each call stack,
/// and the end.
pub fn prefix_places(operations: &[OperationAt<'_>], per_stack: usize, seed: u64) -> Vec<usize> {
    let mut places: Vec<(StackId, usize)> = Vec::new();
    let mut is_changed = false;
    for (place, it) in operations.iter().enumerate() {
        // Before something else changes, and before it is made durable, the tree is what the last change left.
        if is_changed {
            places.push((it.stack, place));
        }
        is_changed = !it.operation.is_sync() && !matches!(it.operation, Operation::Close { .. });
    }
    let (mut taken, _) = of_each_stack(&places, per_stack, seed);
    taken.insert(operations.len());
    taken.into_iter().collect()
}

/// Chooses crash states.
pub fn tree_plan(
    initial: &InitialTree,
    operations: &[OperationAt<'_>],
    role_of: &dyn Fn(NodeId) -> String,
    options: &TreePlanOptions,
) -> TreePlan {
    let mut frontier = Frontier::new(options.file_system, initial);
    let mut points = Vec::new();
    for (place, it) in operations.iter().enumerate() {
        if frontier.is_failure_point(it.operation) {
            points.push((it.stack, place));
        }
        frontier.apply(it.index, it.operation);
    }
    if frontier.is_failure_point_at_end() {
        points.push((StackId::NONE, operations.len()));
    }
    for place in &options.also {
        let before = place.checked_sub(1).and_then(|it| operations.get(it));
        let stack = before.map_or(StackId::NONE, |it| it.stack);
        if !points.iter().any(|(_, known)| known == place) {
            points.push((stack, *place));
        }
    }
    points.sort_by_key(|(_, place)| *place);
    points.retain(|(_, place)| *place >= options.from);
    let (mut taken, stacks) = of_each_stack(&points, options.per_stack, options.seed);
    if let Some(only) = options.only {
        taken = BTreeSet::from([only.min(operations.len())]);
    }
    let mut plan = TreePlan {
        points: points.len() as u64,
        stacks,
        taken: taken.iter().copied().collect(),
        ..TreePlan::default()
    };
    let mut frontier = Frontier::new(options.file_system, initial);
    let mut done = 0;
    for place in taken {
        for it in &operations[done..place] {
            frontier.apply(it.index, it.operation);
        }
        done = place;
        plan.add_point(&frontier, place, operations, role_of, options);
    }
    // Stable: states of one aim are in the order of their points.
    plan.states.sort_by_key(|it| rank(it.aim));
    plan
}

/// The order of aims, whatever they aim at.
const fn rank(aim: Aim) -> u8 {
    match aim {
        Aim::Lose(_) => 0,
        Aim::Floor => 1,
        Aim::Keep(_) => 2,
        Aim::Tear(_) => 3,
        Aim::Prefix => 4,
        Aim::All => 5,
        Aim::Sample => 6,
    }
}

impl TreePlan {
    fn add_point(
        &mut self,
        frontier: &Frontier,
        place: usize,
        operations: &[OperationAt<'_>],
        role_of: &dyn Fn(NodeId) -> String,
        options: &TreePlanOptions,
    ) {
        let mut known: BTreeSet<CrashState> = BTreeSet::from([CrashState::default()]);
        let mut add = |state: CrashState, aim: Aim| {
            if known.insert(state.clone()) {
                let difference = frontier.difference(&state);
                self.states.push(PlannedState {
                    place,
                    state,
                    difference,
                    aim,
                });
            }
        };
        for group in groups(frontier, operations, role_of) {
            // The last of a group is the one that the next operations depend on; the first one has waited longest.
            let ends = [group.last(), group.first().filter(|_| group.len() > 1)];
            for it in ends.into_iter().flatten() {
                for state in frontier.losing(it.index, it.operation) {
                    add(state, Aim::Lose(it.index));
                }
                for state in frontier.keeping(it.index, it.operation) {
                    add(state, Aim::Keep(it.index));
                }
                for state in frontier.tearing(it.index, it.operation) {
                    add(state, Aim::Tear(it.index));
                }
            }
        }
        let prefixes = frontier.prefixes(options.prefixes);
        if let Some(floor) = prefixes.last() {
            add(floor.clone(), Aim::Floor);
        }
        let step = prefixes.len().div_ceil(options.prefixes.max(1)).max(1);
        for state in prefixes.into_iter().step_by(step) {
            add(state, Aim::Prefix);
        }
        if frontier.state_count_up_to(options.exhaustive + 1) <= options.exhaustive {
            for state in frontier.states() {
                add(state, Aim::All);
            }
            self.exhausted += 1;
        } else {
            let seed = options.seed.wrapping_add(place as u64);
            for state in frontier.sample(seed, options.sample) {
                add(state, Aim::Sample);
            }
        }
    }
}

/// The operations that are not sure, put together by call stack, kind and role of their file.
fn groups<'a>(
    frontier: &Frontier,
    operations: &[OperationAt<'a>],
    role_of: &dyn Fn(NodeId) -> String,
) -> Vec<Vec<OperationAt<'a>>> {
    let mut groups: BTreeMap<(StackId, u8, String), Vec<OperationAt<'a>>> = BTreeMap::new();
    for (index, _) in frontier.fates(&CrashState::default()) {
        let Ok(place) = operations.binary_search_by_key(&index, |it| it.index) else {
            continue;
        };
        let it = operations[place];
        let role = it.operation.node().map(role_of).unwrap_or_default();
        let key = (it.stack, kind_of(it.operation), role);
        groups.entry(key).or_default().push(it);
    }
    groups.into_values().collect()
}

const fn kind_of(operation: &Operation) -> u8 {
    match operation {
        Operation::Create { .. } => 0,
        Operation::Link { .. } => 1,
        Operation::Unlink { .. } => 2,
        Operation::Rename { .. } => 3,
        Operation::Exchange { .. } => 4,
        Operation::Write { .. } => 5,
        Operation::Truncate { .. } => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use powerfail_model::files::{
        ByteRange, Entry, FileSystem, Frontier, InitialTree, NodeId, NodeKind, Operation,
        OperationIndex,
    };
    use powerfail_trace::StackId;

    use super::{Aim, OperationAt, TreePlanOptions, prefix_places, tree_plan};

    const ROOT: NodeId = NodeId(0);
    const FILE: NodeId = NodeId(1);

    /// Writes a new file and renames it over `config`.
    fn replace() -> Vec<Operation> {
        vec![
            Operation::Create {
                node: FILE,
                kind: NodeKind::File,
                entry: Some(Entry::new(ROOT, "config.tmp")),
            },
            Operation::Write {
                node: FILE,
                range: ByteRange::new(0, 100),
            },
            Operation::Close { node: FILE },
            Operation::Rename {
                node: FILE,
                from: Entry::new(ROOT, "config.tmp"),
                to: Entry::new(ROOT, "config"),
                replaced: None,
            },
        ]
    }

    fn numbered(operations: &[Operation]) -> Vec<OperationAt<'_>> {
        let numbered = (0..).zip(operations);
        numbered
            .map(|(index, operation)| OperationAt {
                index: OperationIndex(index),
                operation,
                stack: StackId::NONE,
            })
            .collect()
    }

    #[test]
    fn the_rename_survives_without_the_write() {
        let operations = replace();
        let initial = InitialTree::with_root(ROOT);
        let options = TreePlanOptions::default();
        let plan = tree_plan(
            &initial,
            &numbered(&operations),
            &|_| String::new(),
            &options,
        );
        assert_eq!((plan.points, plan.exhausted), (1, 1));
        let alone = plan.states.iter().filter(|it| it.state.lost.is_empty());
        // The file is empty, or has its length and zeros.
        let lens = |len_bytes: u64| {
            let mut files = alone.clone().flat_map(|it| &it.difference.files);
            files.any(|file| file.len_bytes == len_bytes)
        };
        assert!(lens(0) && lens(100));
        let mut aims = alone.clone().map(|it| it.aim);
        assert!(aims.any(|aim| aim == Aim::Lose(OperationIndex(1))));
    }

    /// ext4 writes the data of a file that replaces another before the rename; it is lost without one to replace.
    #[test]
    fn a_synced_file_is_not_lost() {
        let mut operations = replace();
        let sync = Operation::SyncFile {
            node: FILE,
            data_only: false,
        };
        operations.insert(2, sync);
        let initial = InitialTree::with_root(ROOT);
        for file_system in FileSystem::ALL {
            let options = TreePlanOptions {
                file_system,
                ..TreePlanOptions::default()
            };
            let plan = tree_plan(
                &initial,
                &numbered(&operations),
                &|_| String::new(),
                &options,
            );
            let end = operations.len();
            let at_end = plan.states.iter().filter(|it| it.place == end);
            let lengths = at_end.flat_map(|it| &it.difference.files);
            assert!(
                lengths.into_iter().all(|it| it.len_bytes == 100),
                "{file_system}"
            );
        }
    }

    /// What a plan costs does not grow with the square of the names that are not durable.
    #[test]
    fn of_many_prefixes_a_few_are_made() {
        let operations: Vec<Operation> = (1..=200)
            .map(|number| Operation::Create {
                node: NodeId(number),
                kind: NodeKind::File,
                entry: Some(Entry::new(ROOT, format!("file{number}").as_str())),
            })
            .collect();
        let mut frontier = Frontier::new(FileSystem::Ext4, &InitialTree::with_root(ROOT));
        for it in numbered(&operations) {
            frontier.apply(it.index, it.operation);
        }
        let (few, all) = (frontier.prefixes(10), frontier.prefixes(usize::MAX));
        assert_eq!(all.len(), 201);
        assert!((10..=12).contains(&few.len()), "{}", few.len());
        assert_eq!(few.last(), all.last());
    }

    #[test]
    fn points_of_one_stack_are_few() {
        let mut operations = vec![replace().remove(0)];
        for number in 0..50 {
            operations.push(Operation::Write {
                node: FILE,
                range: ByteRange::new(number * 10, 10),
            });
            operations.push(Operation::SyncFile {
                node: FILE,
                data_only: false,
            });
        }
        let initial = InitialTree::with_root(ROOT);
        let options = TreePlanOptions::default();
        let numbered = numbered(&operations);
        let plan = tree_plan(&initial, &numbered, &|_| String::new(), &options);
        assert_eq!(plan.points, 50);
        assert_eq!(plan.taken.len(), 3);
        assert!(plan.taken.contains(&2) && plan.taken.contains(&100));
        assert!(prefix_places(&numbered, 3, 0).len() <= 4);
    }
}
