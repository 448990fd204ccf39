//! Replaying the operations over the initial tree gives the final tree, but only if nothing is wrong.

use std::path::PathBuf;

use crate::common::{file_operations, meta, pool, thread};
use powerfail_model::files::{ByteRange, Name, NodeId, NodeKind, Operation};
use powerfail_model::{Event, EventIndex, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex};
use powerfail_trace::tree_replay::{TreeDifference, TreeReplay, replay_trees, replay_trees_within};
use powerfail_trace::{
    Body, EntryName, FileOperation, FileOperations, FinalContent, FinalEntry, ImageHasher,
    InitialNode, NewNode, RangeChange, StackId, Trace, TraceError, TraceWriter, Tree,
    WriterOptions,
};
use proptest::prelude::*;

const ROOT: NodeId = NodeId(0);
const OLD: NodeId = NodeId(1);
const NEW: NodeId = NodeId(2);

fn initial(node: NodeId, kind: NodeKind, len_bytes: u64) -> InitialNode {
    InitialNode {
        node,
        kind,
        mode: 0o644,
        len_bytes,
    }
}

fn file(path: &str, content: &[u8]) -> FinalEntry {
    let mut hasher = ImageHasher::new(content.len() as u64);
    hasher.update(0, content);
    FinalEntry {
        path: path.into(),
        content: FinalContent::File {
            len_bytes: content.len() as u64,
            hash: hasher.finish(),
        },
    }
}

fn directory(path: &str) -> FinalEntry {
    FinalEntry {
        path: path.into(),
        content: FinalContent::Directory,
    }
}

fn name(name: &'static str) -> EntryName<'static> {
    EntryName::new(ROOT, name.as_bytes())
}

/// A trace of a directory with one file, `old`, which has this content at the beginning.
fn trace(content: &[u8], bodies: &[Body<'_>], end: &[FinalEntry]) -> Trace {
    let good = "memory does not fail";
    let mut bytes = Vec::new();
    let options = WriterOptions {
        events_per_block: 3,
        ..WriterOptions::default()
    };
    let mut writer = TraceWriter::new(&mut bytes, &meta(), options).expect(good);
    let pool = writer.define_pool(&pool("/data/old", content.len() as u64));
    writer
        .initial_image(pool.expect(good), PoolOffset(0), content)
        .expect(good);
    writer.define_thread(&thread(1)).expect(good);
    let root = initial(ROOT, NodeKind::Directory, 0);
    let old = initial(OLD, NodeKind::File, content.len() as u64);
    writer.define_node(&root).expect(good);
    writer.define_node(&old).expect(good);
    writer.define_entry(name("old"), OLD).expect(good);
    writer.initial_file(OLD, 0, content).expect(good);
    let tree = Tree {
        path: "/data".into(),
        root: ROOT,
    };
    let tree = writer.define_tree(&tree).expect(good);
    for body in bodies {
        writer
            .append(ThreadIndex(0), StackId::NONE, *body)
            .expect(good);
    }
    writer.final_tree(tree, end).expect(good);
    writer.finish(&[]).expect(good);
    Trace::from_bytes(bytes).expect("a good trace")
}

fn replayed(trace: &Trace) -> TreeReplay {
    let trees = replay_trees(trace).expect("a good trace");
    let [tree] = <[TreeReplay; 1]>::try_from(trees).expect("one tree");
    tree
}

fn write(node: NodeId, offset: u64, bytes: &[u8]) -> Body<'_> {
    Body::File(FileOperation::Write {
        node,
        offset,
        bytes,
    })
}

/// The usual way to replace a file.
fn replace() -> Vec<Body<'static>> {
    vec![
        Body::File(FileOperation::Create {
            node: NEW,
            kind: NewNode::File,
            mode: 0o600,
            entry: Some(name("new")),
        }),
        write(NEW, 0, b"new content"),
        Body::File(FileOperation::SyncFile {
            node: NEW,
            data_only: false,
        }),
        Body::File(FileOperation::Rename {
            node: NEW,
            from: name("new"),
            to: name("old"),
            replaced: Some(OLD),
        }),
        Body::File(FileOperation::SyncFile {
            node: ROOT,
            data_only: false,
        }),
    ]
}

#[test]
fn a_file_is_replaced() {
    let end = [directory(""), file("old", b"new content")];
    let trace = trace(b"old content", &replace(), &end);
    trace.verify().expect("a good trace");
    let tree = replayed(&trace);
    assert_eq!((tree.matches(), tree.names), (Some(true), 2));
    assert_eq!(trace.initial_entries()[0].entry.name, Name::from("old"));
    let mut runs = trace.initial_file(OLD);
    let run = runs.next_run().expect("a good trace").expect("one piece");
    assert_eq!(
        (run.node, run.offset, run.bytes),
        (OLD, 0, &b"old content"[..])
    );
}

#[test]
fn every_difference_is_found() {
    let path = |path: &str| PathBuf::from(path);
    let wrong = [
        (
            vec![directory(""), file("old", b"old content")],
            TreeDifference::Content(path("old")),
        ),
        (
            vec![directory(""), file("old", b"new")],
            TreeDifference::Length {
                path: path("old"),
                replayed: 11,
                found: 3,
            },
        ),
        (vec![directory("")], TreeDifference::Unexpected(path("old"))),
        (
            vec![
                directory(""),
                file("old", b"new content"),
                file("other", b""),
            ],
            TreeDifference::Missing(path("other")),
        ),
        (
            vec![directory(""), directory("old")],
            TreeDifference::Kind(path("old")),
        ),
    ];
    for (end, difference) in wrong {
        let tree = replayed(&trace(b"old content", &replace(), &end));
        assert_eq!(tree.difference, Some(difference));
    }
}

#[test]
fn an_operation_on_nothing_is_a_difference() {
    for body in file_operations() {
        // Those that make a node, or are about all or about a name in the root, are possible here.
        if matches!(
            body,
            FileOperation::Create { .. }
                | FileOperation::SyncFileSystem
                | FileOperation::CrossedDevices { .. }
        ) {
            continue;
        }
        let end = [directory(""), file("old", b"x")];
        let tree = replayed(&trace(b"x", &[Body::File(body)], &end));
        let index = EventIndex(0);
        assert_eq!(
            tree.difference,
            Some(TreeDifference::Impossible { index }),
            "{body:?}"
        );
    }
}

#[test]
fn what_is_stored_to_a_mapped_file_is_in_the_file() {
    let pool = PoolIndex(0);
    let store = Body::Pm(Event::Store {
        kind: StoreKind::Plain,
        at: Place::new(pool, PoolOffset(2)),
        bytes: b"XY",
    });
    let bodies = [
        Body::Mapped { pool, node: OLD },
        store,
        Body::Pm(Event::Resize { pool, len_bytes: 5 }),
    ];
    let trace = trace(b"abcdef", &bodies, &[directory(""), file("old", b"abXYe")]);
    assert_eq!(replayed(&trace).matches(), Some(true));
    let mut operations = FileOperations::default();
    let mut seen = Vec::new();
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record().expect("a good trace") {
        seen.extend(
            operations
                .operation(&record)
                .map(|(operation, _)| operation),
        );
    }
    let range = ByteRange::new(2, 2);
    let expected = [
        Operation::Write { node: OLD, range },
        Operation::Truncate {
            node: OLD,
            len_bytes: 5,
        },
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_replay_has_a_limit_of_memory() {
    let bodies = [write(OLD, 0, &[1; 3 * 4096])];
    let trace = trace(b"", &bodies, &[]);
    assert!(matches!(
        replay_trees_within(&trace, 2 * 4096),
        Err(TraceError::TooLarge { .. })
    ));
}

#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
    Range(RangeChange, usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let kinds = vec![
        RangeChange::Allocate { keep_size: true },
        RangeChange::Allocate { keep_size: false },
        RangeChange::Zero { keep_size: true },
        RangeChange::Zero { keep_size: false },
        RangeChange::PunchHole,
        RangeChange::Collapse,
        RangeChange::Insert,
    ];
    let bytes = prop::collection::vec(1..255u8, 1..3000);
    prop_oneof![
        3 => (0..20_000usize, bytes).prop_map(|(offset, bytes)| Change::Write(offset, bytes)),
        1 => (0..20_000usize).prop_map(Change::Truncate),
        4 => (prop::sample::select(kinds), 0..20_000usize, 1..9000usize)
            .prop_map(|(change, offset, len)| Change::Range(change, offset, len)),
    ]
}

/// What each call does, on a plain array.
fn apply(content: &mut Vec<u8>, change: &Change) {
    let len = content.len();
    match change {
        Change::Write(offset, bytes) => {
            content.resize(len.max(offset + bytes.len()), 0);
            content[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Change::Truncate(len) => content.resize(*len, 0),
        Change::Range(change, offset, count) => {
            let (from, to) = ((*offset).min(len), (offset + count).min(len));
            match change {
                RangeChange::Allocate { keep_size } => {
                    if !keep_size {
                        content.resize(len.max(offset + count), 0);
                    }
                }
                RangeChange::Zero { keep_size } => {
                    content[from..to].fill(0);
                    if !keep_size {
                        content.resize(len.max(offset + count), 0);
                    }
                }
                RangeChange::PunchHole => content[from..to].fill(0),
                RangeChange::Collapse => drop(content.drain(from..to)),
                RangeChange::Insert => {
                    let tail = content.split_off(from);
                    content.resize(from + count, 0);
                    content.extend(tail);
                }
            }
        }
    }
}

/// Whether the kernel would do it: ranges that are removed or inserted end inside of the file.
fn is_possible(content: &[u8], change: &Change) -> bool {
    match change {
        Change::Range(RangeChange::Collapse | RangeChange::Insert, offset, count) => {
            offset + count < content.len()
        }
        _ => true,
    }
}

proptest! {
    #[test]
    fn contents_agree_with_a_plain_array(changes in prop::collection::vec(change(), 1..20)) {
        let mut content = b"the beginning".to_vec();
        let mut bodies = Vec::new();
        for change in &changes {
            if !is_possible(&content, change) {
                continue;
            }
            apply(&mut content, change);
            bodies.push(match change {
                Change::Write(offset, bytes) => write(OLD, *offset as u64, bytes),
                Change::Truncate(len) => Body::File(FileOperation::Truncate {
                    node: OLD,
                    len_bytes: *len as u64,
                }),
                Change::Range(change, offset, len) => Body::File(FileOperation::Change {
                    node: OLD,
                    change: *change,
                    range: ByteRange::new(*offset as u64, *len as u64),
                }),
            });
        }
        let end = [directory(""), file("old", &content)];
        let tree = replayed(&trace(b"the beginning", &bodies, &end));
        prop_assert_eq!(tree.difference, None);
    }
}
