//! The lint of ordinary files: for each code programs with the bug, as lists of operations, and their repaired twins.

use powerfail_finding::Code;
use powerfail_lint::files::{
    FileEvent, FileHit, FileLintOptions, FileStep, MissingSync, lint_files, lint_trace,
};
use powerfail_model::ThreadIndex;
use powerfail_model::files::{
    ByteRange, Entry, FileSystem, InitialTree, NodeId, NodeKind, Operation, OperationIndex,
};
use powerfail_trace::{
    Body, EntryName, FileOperation, InitialNode, Meta, NewNode, StackId, Thread, Trace,
    TraceWriter, Tree, WriterOptions,
};

const ROOT: NodeId = NodeId(0);
const OLD: NodeId = NodeId(1);
const NEW: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);

/// A step of a program; its stack is its line.
#[derive(Clone, Debug)]
enum Line {
    Do(Operation),
    Acknowledge,
    FailSync(NodeId),
    CrossDevices(&'static str),
}

fn entry(name: &str) -> Entry {
    Entry::new(ROOT, name)
}

fn create(node: NodeId, name: &str) -> Line {
    Line::Do(Operation::Create {
        node,
        kind: NodeKind::File,
        entry: Some(entry(name)),
    })
}

fn write(node: NodeId, offset: u64, len: u64) -> Line {
    Line::Do(Operation::Write {
        node,
        range: ByteRange::new(offset, len),
    })
}

fn fsync(node: NodeId) -> Line {
    Line::Do(Operation::SyncFile {
        node,
        data_only: false,
    })
}

fn fdatasync(node: NodeId) -> Line {
    Line::Do(Operation::SyncFile {
        node,
        data_only: true,
    })
}

fn rename(node: NodeId, from: &str, to: &str, replaced: Option<NodeId>) -> Line {
    Line::Do(Operation::Rename {
        node,
        from: entry(from),
        to: entry(to),
        replaced,
    })
}

fn link(node: NodeId, to: &str) -> Line {
    Line::Do(Operation::Link {
        node,
        entry: entry(to),
    })
}

fn unlink(node: NodeId, name: &str) -> Line {
    Line::Do(Operation::Unlink {
        node,
        entry: entry(name),
    })
}

fn truncate(node: NodeId, len_bytes: u64) -> Line {
    Line::Do(Operation::Truncate { node, len_bytes })
}

/// A tree with one file, `old`, of 1000 bytes.
fn hits_under(options: FileLintOptions, lines: &[Line]) -> Vec<FileHit> {
    let mut tree = InitialTree::with_root(ROOT);
    tree.add(OLD, NodeKind::File, 1000, Some(entry("old")));
    let targets: Vec<Entry> = lines
        .iter()
        .map(|line| match line {
            Line::CrossDevices(name) => entry(name),
            _ => entry("unused"),
        })
        .collect();
    let steps = lines
        .iter()
        .zip(&targets)
        .zip(0..)
        .map(|((line, target), index)| FileStep {
            index: OperationIndex(index),
            stack: StackId(index as u32 + 1),
            event: match line {
                Line::Do(operation) => FileEvent::Operation(operation),
                Line::Acknowledge => FileEvent::Acknowledged,
                Line::FailSync(node) => FileEvent::SyncFailed(*node),
                Line::CrossDevices(_) => FileEvent::CrossedDevices(target),
            },
        });
    lint_files(&tree, steps, options)
}

fn hits(lines: &[Line]) -> Vec<FileHit> {
    hits_under(FileLintOptions::default(), lines)
}

/// Each hit as its code and the lines of its sites.
fn found(lines: &[Line]) -> Vec<(Code, Vec<u64>)> {
    let sites = |hit: &FileHit| hit.sites.iter().map(|site| site.index.0).collect();
    hits(lines)
        .iter()
        .map(|hit| (hit.code, sites(hit)))
        .collect()
}

/// The program has this hit, and its twin none of this code.
fn planted(code: Code, bad: &[Line], at: &[u64], good: &[Line]) {
    let all = found(bad);
    assert!(
        all.contains(&(code, at.to_vec())),
        "{code}: {all:?} in {bad:#?}"
    );
    let all = found(good);
    assert!(
        all.iter().all(|hit| hit.0 != code),
        "{code}: {all:?} in {good:#?}"
    );
}

#[test]
fn a_file_is_renamed_before_it_is_synced() {
    let code = Code::NamedBeforeSynced;
    let (make, fill) = (create(NEW, "new"), write(NEW, 0, 100));
    let replace = rename(NEW, "new", "old", Some(OLD));
    planted(
        code,
        &[make.clone(), fill.clone(), replace.clone()],
        &[1, 2],
        &[make.clone(), fill.clone(), fsync(NEW), replace.clone()],
    );
    // Synced too late.
    planted(
        code,
        &[make.clone(), fill.clone(), replace.clone(), fsync(NEW)],
        &[1, 2],
        &[make.clone(), fill.clone(), fdatasync(NEW), replace.clone()],
    );
    // Written once more after the sync.
    planted(
        code,
        &[
            make.clone(),
            fill.clone(),
            fsync(NEW),
            write(NEW, 100, 1),
            replace.clone(),
        ],
        &[3, 4],
        &[
            make.clone(),
            fill.clone(),
            write(NEW, 100, 1),
            fsync(NEW),
            replace.clone(),
        ],
    );
    // By a link; and another file is synced.
    planted(
        code,
        &[make.clone(), fill.clone(), fsync(OLD), link(NEW, "name")],
        &[1, 3],
        &[
            make.clone(),
            fill.clone(),
            Line::Do(Operation::SyncFileSystem),
            link(NEW, "name"),
        ],
    );
    // An old file that is put aside is only a candidate.
    let aside = hits(&[write(OLD, 0, 1), rename(OLD, "old", "old.1", None)]);
    assert!(aside.iter().any(|hit| hit.code == code && !hit.confirmed));
    let missing = hits(&[make, fill, replace]);
    let hit = missing.iter().find(|hit| hit.code == code).expect("found");
    assert!(hit.confirmed);
    let expected = MissingSync {
        node: NEW,
        before: Some(OperationIndex(2)),
    };
    assert_eq!(hit.missing_sync, Some(expected));
}

#[test]
fn a_name_is_acknowledged_and_its_directory_not_synced() {
    let code = Code::DirectoryNotSynced;
    let safe = [create(NEW, "new"), write(NEW, 0, 100), fsync(NEW)];
    let with = |more: &[Line]| [&safe[..], more].concat();
    let replace = rename(NEW, "new", "old", Some(OLD));
    planted(
        code,
        &with(&[replace.clone(), Line::Acknowledge]),
        &[3],
        &with(&[replace.clone(), fsync(ROOT), Line::Acknowledge]),
    );
    planted(
        code,
        &[unlink(OLD, "old"), Line::Acknowledge],
        &[0],
        &[unlink(OLD, "old"), fsync(ROOT), Line::Acknowledge],
    );
    planted(
        code,
        &[link(OLD, "more"), Line::Acknowledge, fsync(ROOT)],
        &[0],
        &[link(OLD, "more"), fsync(ROOT), Line::Acknowledge],
    );
    planted(
        code,
        &[create(NEW, "new"), Line::Acknowledge],
        &[0],
        &[
            create(NEW, "new"),
            unlink(NEW, "new"),
            fsync(ROOT),
            Line::Acknowledge,
        ],
    );
    // An fsync of the new file is enough on Linux and not under POSIX.
    assert!(found(&with(&[Line::Acknowledge])).is_empty());
    let posix = FileLintOptions {
        file_system: FileSystem::Posix,
        ..FileLintOptions::default()
    };
    let strict = hits_under(posix, &with(&[Line::Acknowledge]));
    assert!(strict.iter().any(|hit| hit.code == code && hit.confirmed));
    // The end of the run is a weaker word.
    let at_end = hits(&with(&[replace]));
    let at_end = at_end.iter().find(|hit| hit.code == code).expect("found");
    assert!(!at_end.confirmed);
}

#[test]
fn a_write_is_acknowledged_and_not_synced() {
    let code = Code::WriteNotSynced;
    planted(
        code,
        &[write(OLD, 1000, 10), Line::Acknowledge, fsync(OLD)],
        &[0],
        &[write(OLD, 1000, 10), fdatasync(OLD), Line::Acknowledge],
    );
    planted(
        code,
        &[write(OLD, 0, 10), fsync(ROOT), Line::Acknowledge],
        &[0],
        &[write(OLD, 0, 10), fsync(OLD), Line::Acknowledge],
    );
    let range = |offset| {
        Line::Do(Operation::SyncRange {
            node: OLD,
            range: ByteRange::new(offset, 4096),
        })
    };
    planted(
        code,
        &[write(OLD, 0, 10), range(4096), Line::Acknowledge],
        &[0],
        &[write(OLD, 0, 10), range(0), Line::Acknowledge],
    );
    planted(
        code,
        &[truncate(OLD, 10), Line::Acknowledge],
        &[0],
        &[truncate(OLD, 10), fsync(OLD), Line::Acknowledge],
    );
    planted(
        code,
        &[
            create(NEW, "new"),
            write(NEW, 0, 9),
            Line::Do(Operation::Close { node: NEW }),
            Line::Acknowledge,
        ],
        &[1],
        &[
            create(NEW, "new"),
            write(NEW, 0, 9),
            unlink(NEW, "new"),
            fsync(ROOT),
            Line::Acknowledge,
        ],
    );
}

#[test]
fn a_file_is_rewritten_in_place() {
    let code = Code::TruncatedInPlace;
    let replace = rename(NEW, "new", "old", Some(OLD));
    planted(
        code,
        &[truncate(OLD, 0), write(OLD, 0, 50), fsync(OLD)],
        &[0, 1],
        &[create(NEW, "new"), write(NEW, 0, 50), fsync(NEW), replace],
    );
    // A new file had nothing to lose; a synced one had.
    planted(
        code,
        &[
            create(NEW, "new"),
            write(NEW, 0, 50),
            fsync(NEW),
            truncate(NEW, 0),
            write(NEW, 0, 50),
        ],
        &[3, 4],
        &[
            create(NEW, "new"),
            write(NEW, 0, 50),
            truncate(NEW, 0),
            write(NEW, 0, 50),
            fsync(NEW),
        ],
    );
    // What was cut off is not written again.
    planted(
        code,
        &[truncate(OLD, 100), write(OLD, 100, 50), fsync(OLD)],
        &[0, 1],
        &[
            truncate(OLD, 100),
            fsync(OLD),
            write(OLD, 1000, 50),
            fsync(OLD),
        ],
    );
}

#[test]
fn the_old_copy_goes_first() {
    let code = Code::RemovedBeforeSynced;
    let new = [create(NEW, "new"), write(NEW, 0, 50)];
    let with = |more: &[Line]| [&new[..], more].concat();
    planted(
        code,
        &with(&[unlink(OLD, "old"), fsync(NEW)]),
        &[1, 2],
        &with(&[fsync(NEW), unlink(OLD, "old")]),
    );
    // Another name is left.
    planted(
        code,
        &[
            link(OLD, "more"),
            create(NEW, "new"),
            write(NEW, 0, 1),
            unlink(OLD, "old"),
            unlink(OLD, "more"),
        ],
        &[2, 4],
        &[
            link(OLD, "more"),
            create(NEW, "new"),
            write(NEW, 0, 1),
            unlink(OLD, "old"),
        ],
    );
    // A temporary file had nothing durable.
    let temporary = create(OTHER, "temporary");
    planted(
        code,
        &with(&[
            temporary.clone(),
            write(OTHER, 0, 1),
            fsync(OTHER),
            unlink(OTHER, "temporary"),
        ]),
        &[1, 5],
        &with(&[
            temporary,
            write(OTHER, 0, 1),
            unlink(OTHER, "temporary"),
            fsync(NEW),
        ]),
    );
}

#[test]
fn a_sync_is_retried() {
    let code = Code::SyncRetried;
    planted(
        code,
        &[write(OLD, 0, 10), Line::FailSync(OLD), fsync(OLD)],
        &[0, 1, 2],
        &[
            write(OLD, 0, 10),
            Line::FailSync(OLD),
            write(OLD, 0, 10),
            fsync(OLD),
        ],
    );
    planted(
        code,
        &[
            write(OLD, 0, 10),
            Line::FailSync(OLD),
            fsync(ROOT),
            fdatasync(OLD),
        ],
        &[0, 1, 3],
        &[
            write(OLD, 0, 10),
            fsync(OLD),
            Line::FailSync(OLD),
            fsync(OLD),
        ],
    );
}

/// It may be meant for the data that is not durable. If there is none, it is useless only.
#[test]
fn a_sync_of_a_range_beside_the_data() {
    let msync = |offset| {
        Line::Do(Operation::SyncRange {
            node: OLD,
            range: ByteRange::new(offset, 4096),
        })
    };
    let beside = |lines: &[Line]| {
        let hits = hits(lines);
        // The first sync may be for what an earlier run has left.
        let sync = { hits.iter() }.rfind(|it| it.code == Code::RedundantSync);
        sync.expect("a useless sync").beside
    };
    let wrong = beside(&[fsync(OLD), write(OLD, 0, 10), msync(8192)]);
    let wrong = wrong.expect("data beside the range");
    assert_eq!((wrong.node, wrong.range.offset), (OLD, 8192));
    let twice = beside(&[fsync(OLD), write(OLD, 0, 10), msync(0), msync(0)]);
    assert_eq!(twice, None);
}

#[test]
fn a_sync_is_useless() {
    let code = Code::RedundantSync;
    planted(
        code,
        &[write(OLD, 0, 10), fdatasync(OLD), fsync(OLD)],
        &[2],
        &[
            write(OLD, 0, 10),
            fdatasync(OLD),
            write(OLD, 0, 10),
            fsync(OLD),
        ],
    );
    planted(
        code,
        &[create(NEW, "new"), fsync(ROOT), fsync(ROOT)],
        &[2],
        &[
            create(NEW, "new"),
            fsync(ROOT),
            unlink(NEW, "new"),
            fsync(ROOT),
        ],
    );
    // The first sync of what was there before may be for an earlier run: it is only a candidate.
    let all = hits(&[fsync(OLD), fsync(OLD)]);
    let judged: Vec<_> = { all.iter() }
        .map(|hit| (hit.code, hit.sites[0].index.0, hit.confirmed))
        .collect();
    assert_eq!(judged, [(code, 0, false), (code, 1, true)]);
    assert_eq!(found(&[write(OLD, 0, 10), fsync(OLD)]), []);
    // An fsync after a rename makes the new name durable on Linux.
    planted(
        code,
        &[write(OLD, 0, 1), fsync(OLD), write(OLD, 0, 0), fsync(OLD)],
        &[3],
        &[
            write(OLD, 0, 1),
            fsync(OLD),
            rename(OLD, "old", "b", None),
            fsync(OLD),
        ],
    );
    let hit = &hits(&[fsync(OLD), fsync(OLD)])[1];
    assert_eq!((hit.count, hit.of), (1, Some(1)));
}

#[test]
fn a_temporary_file_is_copied() {
    let code = Code::TemporaryElsewhere;
    planted(
        code,
        &[
            Line::CrossDevices("old"),
            truncate(OLD, 0),
            write(OLD, 0, 10),
        ],
        &[0, 2],
        &[
            create(NEW, "new"),
            write(NEW, 0, 10),
            rename(NEW, "new", "old", Some(OLD)),
        ],
    );
    planted(
        code,
        &[
            Line::CrossDevices("fresh"),
            create(NEW, "fresh"),
            write(NEW, 0, 10),
        ],
        &[0, 1],
        &[
            Line::CrossDevices("fresh"),
            create(NEW, "elsewhere"),
            write(NEW, 0, 10),
        ],
    );
}

#[test]
fn the_right_way_to_replace_a_file_is_silent() {
    let lines = [
        create(NEW, "new"),
        write(NEW, 0, 5000),
        write(NEW, 5000, 100),
        fsync(NEW),
        Line::Do(Operation::Close { node: NEW }),
        rename(NEW, "new", "old", Some(OLD)),
        fsync(ROOT),
        Line::Acknowledge,
    ];
    assert_eq!(hits(&lines), []);
}

/// A trace of the same tree, with a file that is replaced without a sync.
fn trace_of_replacement(synced: bool) -> Trace {
    let good = "memory does not fail";
    let mut bytes = Vec::new();
    let mut writer =
        TraceWriter::new(&mut bytes, &Meta::default(), WriterOptions::default()).expect(good);
    let thread = Thread {
        os_id: 1,
        name: None,
    };
    writer.define_thread(&thread).expect(good);
    for (node, kind, len_bytes) in [(ROOT, NodeKind::Directory, 0), (OLD, NodeKind::File, 1000)] {
        let initial = InitialNode {
            node,
            kind,
            mode: 0o644,
            len_bytes,
        };
        writer.define_node(&initial).expect(good);
    }
    let name = |name: &'static str| EntryName::new(ROOT, name.as_bytes());
    writer.define_entry(name("old"), OLD).expect(good);
    writer.initial_file(OLD, 0, &[1; 1000]).expect(good);
    let tree = Tree {
        path: "/data".into(),
        root: ROOT,
    };
    writer.define_tree(&tree).expect(good);
    let sync = FileOperation::SyncFile {
        node: NEW,
        data_only: false,
    };
    let bodies = [
        Some(FileOperation::Create {
            node: NEW,
            kind: NewNode::File,
            mode: 0o644,
            entry: Some(name("new")),
        }),
        Some(FileOperation::Write {
            node: NEW,
            offset: 0,
            bytes: b"content",
        }),
        synced.then_some(sync),
        Some(FileOperation::Rename {
            node: NEW,
            from: name("new"),
            to: name("old"),
            replaced: Some(OLD),
        }),
    ];
    for operation in bodies.into_iter().flatten() {
        let body = Body::File(operation);
        writer
            .append(ThreadIndex(0), StackId::NONE, body)
            .expect(good);
    }
    writer.finish(&[]).expect(good);
    Trace::from_bytes(bytes).expect("a good trace")
}

#[test]
fn operations_are_taken_from_a_trace() {
    let options = FileLintOptions::default();
    for (synced, expected) in [(false, true), (true, false)] {
        let hits = lint_trace(&trace_of_replacement(synced), options).expect("a good trace");
        let found = hits.iter().any(|hit| {
            let sites: Vec<u64> = hit.sites.iter().map(|site| site.index.0).collect();
            hit.code == Code::NamedBeforeSynced && sites == [1, 2] && hit.confirmed
        });
        assert_eq!(found, expected, "{hits:#?}");
    }
}
