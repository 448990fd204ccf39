//! On random small lists of operations on files the frontier gives the same trees as the naive reading of the rules; every
//! state that it lists, samples or aims at is permitted, and listed once.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_model::files::{
    ByteRange, CrashState, Entry, FileSystem, Frontier, InitialTree, NodeId, NodeKind, Operation,
    OperationIndex, Piece, Source,
};
use proptest::prelude::*;

use crate::naive_files::{Fs, Node, Op, Place, Tree, World};

const NAMES: [&str; 3] = ["a", "b", "c"];
const ROOT: Node = 0;
const OLD: Node = 1;
const OLD_LEN: u64 = 5000;

fn entry(place: Place) -> Entry {
    Entry::new(NodeId(place.0), place.1)
}

fn operation(op: &Op) -> Operation {
    let created = |node: Node, kind, place| Operation::Create {
        node: NodeId(node),
        kind,
        entry: Some(entry(place)),
    };
    match *op {
        Op::Create(node, place) => created(node, NodeKind::File, place),
        Op::Mkdir(node, place) => created(node, NodeKind::Directory, place),
        Op::Link(node, place) => Operation::Link {
            node: NodeId(node),
            entry: entry(place),
        },
        Op::Unlink(node, place) => Operation::Unlink {
            node: NodeId(node),
            entry: entry(place),
        },
        Op::Rename(node, from, to, replaced) => Operation::Rename {
            node: NodeId(node),
            from: entry(from),
            to: entry(to),
            replaced: replaced.map(NodeId),
        },
        Op::Write(node, offset, len) => Operation::Write {
            node: NodeId(node),
            range: ByteRange::new(offset, len),
        },
        Op::Truncate(node, len_bytes) => Operation::Truncate {
            node: NodeId(node),
            len_bytes,
        },
        Op::Punch(node, offset, len) => Operation::PunchHole {
            node: NodeId(node),
            range: ByteRange::new(offset, len),
        },
        Op::Allocate(node, end) => Operation::Allocate {
            node: NodeId(node),
            range: ByteRange::new(0, end),
            keep_size: false,
        },
        Op::Sync(node, data_only) => Operation::SyncFile {
            node: NodeId(node),
            data_only,
        },
        Op::SyncAll => Operation::SyncFileSystem,
        Op::Close(node) => Operation::Close { node: NodeId(node) },
    }
}

/// What a random operation begins with; names and nodes are found when the list is made.
#[derive(Clone, Copy, Debug)]
enum Draft {
    Create(usize),
    Mkdir(usize),
    Link(usize, usize),
    Unlink(usize),
    Rename(usize, usize),
    Write(usize, u64, u64),
    Truncate(usize, u64),
    Punch(usize, u64, u64),
    Allocate(usize, u64),
    Sync(usize, bool),
    SyncDirectory(usize),
    SyncAll,
    Close(usize),
}

fn any_draft() -> impl Strategy<Value = Draft> {
    use proptest::sample::select;
    let offset = || select(vec![0_u64, 300, 512, 3900, 4096, 4500, 5000, 9000]);
    let len = || select(vec![100_u64, 600, 1000]);
    prop_oneof![
        3 => (0..5_usize).prop_map(Draft::Create),
        1 => (0..3_usize).prop_map(Draft::Mkdir),
        1 => (0..5_usize, 0..5_usize).prop_map(|(a, b)| Draft::Link(a, b)),
        1 => (0..5_usize).prop_map(Draft::Unlink),
        2 => (0..5_usize, 0..5_usize).prop_map(|(a, b)| Draft::Rename(a, b)),
        6 => (0..5_usize, offset(), len()).prop_map(|(f, o, l)| Draft::Write(f, o, l)),
        2 => (0..5_usize, select(vec![0_u64, 700, 4096, 6000])).prop_map(|(f, l)| Draft::Truncate(f, l)),
        1 => (0..5_usize, select(vec![0_u64, 4096]), select(vec![4096_u64, 8192]))
            .prop_map(|(f, o, l)| Draft::Punch(f, o, l)),
        1 => (0..5_usize, select(vec![1000_u64, 9000])).prop_map(|(f, e)| Draft::Allocate(f, e)),
        2 => (0..5_usize, any::<bool>()).prop_map(|(f, d)| Draft::Sync(f, d)),
        1 => (0..2_usize).prop_map(Draft::SyncDirectory),
        1 => Just(Draft::SyncAll),
        1 => (0..5_usize).prop_map(Draft::Close),
    ]
}

/// A list of operations that could have succeeded.
fn realise(drafts: &[Draft]) -> Vec<Op> {
    let mut names: BTreeMap<Place, Node> = BTreeMap::from([((ROOT, NAMES[0]), OLD)]);
    let mut directories = vec![ROOT];
    let mut next = 2;
    let mut ops = Vec::new();
    for &draft in drafts {
        let place = |n: usize, directories: &[Node]| -> Place {
            let directory = directories[usize::from(n >= 3) % directories.len()];
            (directory, NAMES[n % 3])
        };
        let at = |n: usize| place(n, &directories);
        let file = |n: usize| {
            let node = *names.get(&at(n))?;
            (!directories.contains(&node)).then_some(node)
        };
        let op = match draft {
            Draft::Create(n) => (!names.contains_key(&at(n))).then(|| Op::Create(next, at(n))),
            Draft::Mkdir(n) => (directories.len() < 2 && !names.contains_key(&at(n)))
                .then(|| Op::Mkdir(next, at(n))),
            Draft::Link(n, m) => file(n)
                .filter(|_| !names.contains_key(&at(m)))
                .map(|node| Op::Link(node, at(m))),
            Draft::Unlink(n) => file(n).map(|node| Op::Unlink(node, at(n))),
            Draft::Rename(n, m) => file(n).and_then(|node| {
                let replaced = names.get(&at(m)).copied();
                let fits = replaced.is_none_or(|r| r != node && !directories.contains(&r));
                (at(n) != at(m) && fits).then(|| Op::Rename(node, at(n), at(m), replaced))
            }),
            Draft::Write(n, offset, len) => file(n).map(|node| Op::Write(node, offset, len)),
            Draft::Truncate(n, len) => file(n).map(|node| Op::Truncate(node, len)),
            Draft::Punch(n, offset, len) => file(n).map(|node| Op::Punch(node, offset, len)),
            Draft::Allocate(n, end) => file(n).map(|node| Op::Allocate(node, end)),
            Draft::Sync(n, data_only) => file(n).map(|node| Op::Sync(node, data_only)),
            Draft::SyncDirectory(n) => Some(Op::Sync(directories[n % directories.len()], false)),
            Draft::SyncAll => Some(Op::SyncAll),
            Draft::Close(n) => file(n).map(Op::Close),
        };
        let Some(op) = op else { continue };
        match op {
            Op::Create(node, place) => {
                names.insert(place, node);
                next += 1;
            }
            Op::Mkdir(node, place) => {
                names.insert(place, node);
                directories.push(node);
                next += 1;
            }
            Op::Link(node, place) => {
                names.insert(place, node);
            }
            Op::Unlink(_, place) => {
                names.remove(&place);
            }
            Op::Rename(node, from, to, _) => {
                names.remove(&from);
                names.insert(to, node);
            }
            _ => {}
        }
        ops.push(op);
    }
    ops
}

fn frontier(file_system: FileSystem, ops: &[Op]) -> Frontier {
    let mut tree = InitialTree::with_root(NodeId(ROOT));
    let old = entry((ROOT, NAMES[0]));
    tree.add(NodeId(OLD), NodeKind::File, OLD_LEN, Some(old));
    let mut frontier = Frontier::new(file_system, &tree);
    for (index, op) in (0..).zip(ops) {
        frontier.apply(OperationIndex(index), &operation(op));
    }
    frontier
}

fn tag(piece: &Piece) -> i64 {
    match piece.source {
        Source::Zeros => -1,
        Source::Initial { .. } => -2,
        Source::Written { operation, .. } => operation.0.cast_signed(),
    }
}

/// The tree of a state, as the one who makes a directory of it would make it.
fn tree(frontier: &Frontier, ops: &[Op], state: &CrashState) -> Tree {
    let difference = frontier.difference(state);
    let mut entries = frontier.newest_entries().clone();
    for (entry, node) in &difference.entries {
        match node {
            Some(node) => entries.insert(entry.clone(), *node),
            None => entries.remove(entry),
        };
    }
    let directory = |node: NodeId| {
        node.0 == ROOT
            || ops
                .iter()
                .any(|op| matches!(op, Op::Mkdir(n, _) if *n == node.0))
    };
    let content = |node: NodeId| {
        let mut len = frontier.newest_len(node).expect("a file");
        // One tag for four bytes: everything in these lists is a multiple of it.
        let mut tags: Vec<i64> = Vec::new();
        let put = |tags: &mut Vec<i64>, piece: &Piece| {
            for at in (piece.range.offset..piece.range.end()).step_by(4) {
                tags[(at / 4) as usize] = tag(piece);
            }
        };
        tags.resize(len.div_ceil(4) as usize, -1);
        for piece in frontier.newest_pieces(node) {
            put(&mut tags, &piece);
        }
        if let Some(file) = difference.files.iter().find(|file| file.node == node) {
            len = file.len_bytes;
            tags.resize(len.div_ceil(4) as usize, -1);
            for piece in &file.pieces {
                put(&mut tags, piece);
            }
        }
        let mut runs: Vec<(u64, i64)> = Vec::new();
        for (place, &tag) in tags.iter().enumerate() {
            if runs.last().is_none_or(|(_, last)| *last != tag) {
                runs.push((place as u64 * 4, tag));
            }
        }
        (len, runs)
    };
    let mut tree = Tree::new();
    let mut todo = vec![(NodeId(ROOT), String::new())];
    while let Some((parent, path)) = todo.pop() {
        for (entry, &node) in &entries {
            if entry.directory != parent {
                continue;
            }
            let path = format!("{path}/{}", entry.name);
            if directory(node) {
                todo.push((node, path.clone()));
                tree.insert(path, None);
            } else {
                tree.insert(path, Some(content(node)));
            }
        }
    }
    tree
}

const LIMIT: u64 = 3000;

fn trees(frontier: &Frontier, ops: &[Op]) -> BTreeSet<Tree> {
    frontier
        .states()
        .map(|state| tree(frontier, ops, &state))
        .collect()
}

fn naive(fs: Fs, ops: &[Op]) -> BTreeSet<Tree> {
    let world = World {
        fs,
        ops: ops.to_vec(),
        initial: vec![(OLD, (ROOT, NAMES[0]), OLD_LEN)],
    };
    world.trees()
}

const SYSTEMS: [(FileSystem, Fs); 4] = [
    (FileSystem::Ext4, Fs::Ext4),
    (FileSystem::Xfs, Fs::Xfs),
    (FileSystem::Btrfs, Fs::Btrfs),
    (FileSystem::Posix, Fs::Posix),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn trees_are_those_of_the_naive_model(drafts in proptest::collection::vec(any_draft(), 1..9)) {
        let ops = realise(&drafts);
        for (file_system, fs) in SYSTEMS {
            let frontier = frontier(file_system, &ops);
            if frontier.state_count_up_to(LIMIT) == LIMIT {
                continue;
            }
            let (found, expected) = (trees(&frontier, &ops), naive(fs, &ops));
            let missing: Vec<_> = expected.difference(&found).take(2).collect();
            let extra: Vec<_> = found.difference(&expected).take(2).collect();
            prop_assert!(
                missing.is_empty() && extra.is_empty(),
                "{file_system}: {ops:#?}\nmissing {missing:#?}\nextra {extra:#?}"
            );
        }
    }

    #[test]
    fn linux_is_the_union(drafts in proptest::collection::vec(any_draft(), 1..7)) {
        let ops = realise(&drafts);
        let linux = frontier(FileSystem::Linux, &ops);
        if linux.state_count_up_to(LIMIT) < LIMIT {
            let of_each = FileSystem::REAL.map(|fs| frontier(fs, &ops).states().collect::<BTreeSet<_>>());
            let union: BTreeSet<_> = of_each.iter().flatten().cloned().collect();
            let states: Vec<CrashState> = linux.states().collect();
            prop_assert_eq!(states.len(), union.len());
            prop_assert_eq!(states.iter().cloned().collect::<BTreeSet<_>>(), union);
            for state in &states {
                for ((name, permitted), of_one) in linux.permitted_by(state).iter().zip(&of_each) {
                    prop_assert_eq!(*permitted, of_one.contains(state), "{}", name);
                }
            }
        }
    }

    #[test]
    fn what_is_aimed_at_can_be_left(drafts in proptest::collection::vec(any_draft(), 1..12), seed: u64) {
        let ops = realise(&drafts);
        for file_system in FileSystem::ALL {
            let frontier = frontier(file_system, &ops);
            prop_assert!(frontier.permits(&CrashState::default()));
            let mut states = frontier.sample(seed, 20);
            states.extend(frontier.prefixes(usize::MAX));
            for (index, op) in (0..).zip(&ops) {
                let (index, op) = (OperationIndex(index), operation(op));
                for state in frontier.losing(index, &op) {
                    prop_assert!(!state.is_newest(), "{:?}", op);
                    states.push(state);
                }
                states.extend(frontier.keeping(index, &op));
                states.extend(frontier.tearing(index, &op));
            }
            for state in states {
                prop_assert!(frontier.permits(&state), "{file_system}: {state:#?} {ops:#?}");
            }
        }
    }

    #[test]
    fn failure_points_cover_all_moments(drafts in proptest::collection::vec(any_draft(), 1..8)) {
        let ops = realise(&drafts);
        for file_system in [FileSystem::Ext4, FileSystem::Btrfs, FileSystem::Posix] {
            let mut pass = frontier(file_system, &[]);
            let (mut covered, mut everywhere) = (BTreeSet::new(), BTreeSet::new());
            for (at, op) in ops.iter().enumerate() {
                if pass.state_count_up_to(LIMIT) == LIMIT {
                    return Ok(());
                }
                let operation = operation(op);
                let here = trees(&pass, &ops);
                if pass.is_failure_point(&operation) {
                    covered.extend(here.iter().cloned());
                }
                everywhere.extend(here);
                pass.apply(OperationIndex(at as u64), &operation);
            }
            if pass.state_count_up_to(LIMIT) == LIMIT {
                return Ok(());
            }
            everywhere.extend(trees(&pass, &ops));
            if pass.is_failure_point_at_end() {
                covered.extend(trees(&pass, &ops));
            }
            prop_assert_eq!(covered, everywhere);
        }
    }
}
