//! Records that own their bytes, and traces made of them.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(unreachable_pub, reason = "a module of tests has no outside")]

use powerfail_model::files::{ByteRange, NodeId, NodeKind};
use powerfail_model::{
    Event, EventIndex, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex,
};
use powerfail_trace::{
    Body, EntryName, FileOperation, Frame, Mark, MarkKind, Meta, Module, ModuleIndex, NewNode,
    Pool, PoolKind, RangeChange, Record, Result, StackId, Thread, Trace, TraceWriter,
    WriterOptions,
};
use powerfail_trace::{FinalContent, FinalEntry, ImageHasher, InitialNode, Tree, TreeIndex};

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub thread: u32,
    pub stack: u32,
    pub body: OwnedBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedBody {
    Store(StoreKind, u32, u64, Vec<u8>),
    Flush(FlushKind, u32, u64),
    Fence(FenceKind),
    Sync(u32, u64, u64),
    Resize(u32, u64),
    Mark(MarkKind, u64, Vec<u8>),
    VolatileFlush(FlushKind, u64),
    File(FileOperation<'static>),
    Mapped(u32, u32),
    ThreadStart,
    ThreadEnd,
}

/// The same operation with bytes that live for good: tests are short.
fn kept(operation: FileOperation<'_>) -> FileOperation<'static> {
    let keep = |bytes: &[u8]| -> &'static [u8] { Box::leak(bytes.into()) };
    let entry = |entry: EntryName<'_>| EntryName::new(entry.directory, keep(entry.name));
    match operation {
        FileOperation::Create {
            node,
            kind,
            mode,
            entry: name,
        } => FileOperation::Create {
            node,
            kind: match kind {
                NewNode::Symlink(target) => NewNode::Symlink(keep(target)),
                NewNode::File => NewNode::File,
                NewNode::Directory => NewNode::Directory,
                NewNode::Other => NewNode::Other,
            },
            mode,
            entry: name.map(entry),
        },
        FileOperation::Link { node, entry: name } => FileOperation::Link {
            node,
            entry: entry(name),
        },
        FileOperation::Unlink { node, entry: name } => FileOperation::Unlink {
            node,
            entry: entry(name),
        },
        FileOperation::Rename {
            node,
            from,
            to,
            replaced,
        } => FileOperation::Rename {
            node,
            from: entry(from),
            to: entry(to),
            replaced,
        },
        FileOperation::Exchange {
            first,
            first_node,
            second,
            second_node,
        } => FileOperation::Exchange {
            first: entry(first),
            first_node,
            second: entry(second),
            second_node,
        },
        FileOperation::Write {
            node,
            offset,
            bytes,
        } => FileOperation::Write {
            node,
            offset,
            bytes: keep(bytes),
        },
        FileOperation::Truncate { node, len_bytes } => FileOperation::Truncate { node, len_bytes },
        FileOperation::Change {
            node,
            change,
            range,
        } => FileOperation::Change {
            node,
            change,
            range,
        },
        FileOperation::SyncFile { node, data_only } => FileOperation::SyncFile { node, data_only },
        FileOperation::SyncFileSystem => FileOperation::SyncFileSystem,
        FileOperation::Close { node } => FileOperation::Close { node },
        FileOperation::FailedSync { node } => FileOperation::FailedSync { node },
        FileOperation::CrossedDevices { entry: name } => {
            FileOperation::CrossedDevices { entry: entry(name) }
        }
    }
}

/// One of each operation on files. They need not make sense together.
pub fn file_operations() -> Vec<FileOperation<'static>> {
    let (node, other) = (NodeId(3), NodeId(4));
    let name = |name: &'static str| EntryName::new(NodeId(0), name.as_bytes());
    let range = ByteRange::new(4096, 8192);
    let change = |change| FileOperation::Change {
        node,
        change,
        range,
    };
    let create = |kind, entry| FileOperation::Create {
        node,
        kind,
        mode: 0o644,
        entry,
    };
    vec![
        create(NewNode::File, Some(name("log"))),
        create(NewNode::File, None),
        create(NewNode::Directory, Some(name("folder"))),
        create(NewNode::Symlink(b"../target"), Some(name("link"))),
        create(NewNode::Other, Some(name("pipe"))),
        FileOperation::Link {
            node,
            entry: name("second"),
        },
        FileOperation::Unlink {
            node,
            entry: name("log"),
        },
        FileOperation::Rename {
            node,
            from: name("new"),
            to: name("old"),
            replaced: Some(other),
        },
        FileOperation::Rename {
            node,
            from: name("new"),
            to: name("free"),
            replaced: None,
        },
        FileOperation::Exchange {
            first: name("one"),
            first_node: node,
            second: name("two"),
            second_node: other,
        },
        FileOperation::Write {
            node,
            offset: 1000,
            bytes: b"some bytes",
        },
        FileOperation::Truncate {
            node,
            len_bytes: 17,
        },
        change(RangeChange::Allocate { keep_size: true }),
        change(RangeChange::Zero { keep_size: false }),
        change(RangeChange::PunchHole),
        change(RangeChange::Collapse),
        change(RangeChange::Insert),
        FileOperation::SyncFile {
            node,
            data_only: true,
        },
        FileOperation::SyncFileSystem,
        FileOperation::Close { node },
        FileOperation::FailedSync { node },
        FileOperation::CrossedDevices {
            entry: name("copied"),
        },
    ]
}

fn place(pool: u32, offset: u64) -> Place {
    Place::new(PoolIndex(pool), PoolOffset(offset))
}

impl Owned {
    pub fn body(&self) -> Body<'_> {
        match &self.body {
            OwnedBody::Store(kind, pool, offset, bytes) => Body::Pm(Event::Store {
                kind: *kind,
                at: place(*pool, *offset),
                bytes,
            }),
            OwnedBody::Flush(kind, pool, offset) => Body::Pm(Event::Flush {
                kind: *kind,
                at: place(*pool, *offset),
            }),
            OwnedBody::Fence(kind) => Body::Pm(Event::Fence(*kind)),
            OwnedBody::Sync(pool, offset, len_bytes) => Body::Pm(Event::Sync {
                pool: PoolIndex(*pool),
                offset: PoolOffset(*offset),
                len_bytes: *len_bytes,
            }),
            OwnedBody::Resize(pool, len_bytes) => Body::Pm(Event::Resize {
                pool: PoolIndex(*pool),
                len_bytes: *len_bytes,
            }),
            OwnedBody::Mark(kind, value, payload) => Body::Mark(Mark {
                kind: *kind,
                value: *value,
                payload,
            }),
            OwnedBody::VolatileFlush(kind, address) => Body::VolatileFlush {
                kind: *kind,
                address: *address,
            },
            OwnedBody::File(operation) => Body::File(*operation),
            OwnedBody::Mapped(pool, node) => Body::Mapped {
                pool: PoolIndex(*pool),
                node: NodeId(*node),
            },
            OwnedBody::ThreadStart => Body::ThreadStart,
            OwnedBody::ThreadEnd => Body::ThreadEnd,
        }
    }

    pub fn of(record: &Record<'_>) -> Self {
        let body = match record.body {
            Body::Pm(Event::Store { kind, at, bytes }) => {
                OwnedBody::Store(kind, at.pool.0, at.offset.0, bytes.to_vec())
            }
            Body::Pm(Event::Flush { kind, at }) => OwnedBody::Flush(kind, at.pool.0, at.offset.0),
            Body::Pm(Event::Fence(kind)) => OwnedBody::Fence(kind),
            Body::Pm(Event::Sync {
                pool,
                offset,
                len_bytes,
            }) => OwnedBody::Sync(pool.0, offset.0, len_bytes),
            Body::Pm(Event::Resize { pool, len_bytes }) => OwnedBody::Resize(pool.0, len_bytes),
            Body::Mark(mark) => OwnedBody::Mark(mark.kind, mark.value, mark.payload.to_vec()),
            Body::VolatileFlush { kind, address } => OwnedBody::VolatileFlush(kind, address),
            Body::File(operation) => OwnedBody::File(kept(operation)),
            Body::Mapped { pool, node } => OwnedBody::Mapped(pool.0, node.0),
            Body::ThreadStart => OwnedBody::ThreadStart,
            Body::ThreadEnd => OwnedBody::ThreadEnd,
        };
        Self {
            thread: record.thread.0,
            stack: record.stack.0,
            body,
        }
    }
}

/// All records of a trace from `first` on; their numbering is checked on the way.
pub fn records_from(trace: &Trace, first: u64) -> Result<Vec<Owned>> {
    let mut cursor = trace.records_from(EventIndex(first));
    let mut records = Vec::new();
    while let Some(record) = cursor.next_record()? {
        assert_eq!(record.index.0, first + records.len() as u64);
        records.push(Owned::of(&record));
    }
    Ok(records)
}

pub fn append<W: std::io::Write>(writer: &mut TraceWriter<W>, record: &Owned) -> EventIndex {
    writer
        .append(
            ThreadIndex(record.thread),
            StackId(record.stack),
            record.body(),
        )
        .expect("the record is good")
}

pub fn meta() -> Meta {
    Meta {
        powerfail_version: "0.1.0".into(),
        command: vec!["./map".into(), "--insert".into(), "1000".into()],
        working_directory: "/home/test".into(),
        started_unix_ms: 1_700_000_000_000,
        notes: vec![("kernel".into(), "6.1".into())],
    }
}

pub fn pool(name: &str, len_bytes: u64) -> Pool {
    Pool {
        path: name.into(),
        kind: PoolKind::File,
        len_bytes,
        address: 0x7f00_0000_0000,
    }
}

pub fn module(name: &str) -> Module {
    Module {
        path: name.into(),
        build_id: vec![1, 2, 3, 4],
        load_address: 0x5555_0000_0000,
        len_bytes: 1 << 16,
        function: None,
    }
}

pub fn thread(os_id: u32) -> Thread {
    Thread { os_id, name: None }
}

pub fn frame(offset: u64) -> Frame {
    Frame::Module {
        module: ModuleIndex(0),
        offset,
    }
}

/// The records of a small trace: those of [`memory_records`], and operations on files.
pub fn small_records() -> Vec<Owned> {
    let file = |body| Owned {
        thread: 1,
        stack: 2,
        body,
    };
    let mut records = memory_records();
    let operations = file_operations().into_iter();
    records.extend(operations.map(|operation| file(OwnedBody::File(operation))));
    records.push(file(OwnedBody::Mapped(1, 3)));
    records
}

/// Those that version 1.1 knew: calls that failed are newer.
pub fn records_of_version_1_1() -> Vec<Owned> {
    let mut records = small_records();
    records.retain(|record| match &record.body {
        OwnedBody::File(operation) => operation.to_operation().is_some(),
        _ => true,
    });
    records
}

/// The records of a small trace with every kind of record that is not about files.
pub fn memory_records() -> Vec<Owned> {
    let record = |thread, stack, body| Owned {
        thread,
        stack,
        body,
    };
    vec![
        record(0, 0, OwnedBody::ThreadStart),
        record(0, 1, OwnedBody::Store(StoreKind::Plain, 0, 64, vec![1; 8])),
        record(0, 2, OwnedBody::Flush(FlushKind::Clwb, 0, 64)),
        record(0, 2, OwnedBody::Fence(FenceKind::Sfence)),
        record(
            1,
            1,
            OwnedBody::Store(StoreKind::Locked, 1, 4090, vec![2; 13]),
        ),
        record(1, 3, OwnedBody::Sync(1, 0, 8192)),
        record(
            0,
            3,
            OwnedBody::Mark(
                MarkKind::Output {
                    fd: 1,
                    full_len_bytes: 99,
                },
                0,
                b"hello".to_vec(),
            ),
        ),
        record(
            0,
            1,
            OwnedBody::VolatileFlush(FlushKind::Clflush, 0x7fff_1234),
        ),
        record(0, 1, OwnedBody::Resize(1, 10_000)),
        record(0, 0, OwnedBody::ThreadEnd),
    ]
}

/// A small complete trace, and its records. Blocks hold three records each.
pub fn small_trace() -> (Vec<u8>, Vec<Owned>) {
    let mut bytes = Vec::new();
    let options = WriterOptions {
        events_per_block: 3,
        ..WriterOptions::default()
    };
    let mut writer = TraceWriter::new(&mut bytes, &meta(), options).expect("memory does not fail");
    define_small(&mut writer);
    let records = small_records();
    for record in &records {
        append(&mut writer, record);
    }
    final_small(&mut writer);
    writer.finish(&[]).expect("memory does not fail");
    (bytes, records)
}

/// A directory with a file and a symbolic link.
fn define_tree<W: std::io::Write>(writer: &mut TraceWriter<W>) {
    let define = "memory does not fail";
    let kinds = [
        NodeKind::Directory,
        NodeKind::File,
        NodeKind::Symlink {
            target: b"elsewhere".as_slice().into(),
        },
    ];
    for (node, kind) in (0..).map(NodeId).zip(kinds) {
        let len_bytes = if kind == NodeKind::File { 10_000 } else { 0 };
        let node = InitialNode {
            node,
            kind,
            mode: 0o600,
            len_bytes,
        };
        writer.define_node(&node).expect(define);
    }
    for (name, node) in [("file", NodeId(1)), ("link", NodeId(2))] {
        let entry = EntryName::new(NodeId(0), name.as_bytes());
        writer.define_entry(entry, node).expect(define);
    }
    writer
        .initial_file(NodeId(1), 5000, b"content")
        .expect(define);
    let tree = Tree {
        path: "/data".into(),
        root: NodeId(0),
    };
    writer.define_tree(&tree).expect(define);
    writer.define_unrecorded(NodeId(1)).expect(define);
}

/// What was found in that tree at the end.
pub fn final_small<W: std::io::Write>(writer: &mut TraceWriter<W>) {
    let entry = |path: &str, content| FinalEntry {
        path: path.into(),
        content,
    };
    let hash = ImageHasher::new(3).finish();
    let file = FinalContent::File { len_bytes: 3, hash };
    let entries = [
        entry("", FinalContent::Directory),
        entry("file", file),
        entry(
            "link",
            FinalContent::Symlink(b"elsewhere".as_slice().into()),
        ),
        entry("pipe", FinalContent::Other),
        entry("map", FinalContent::Unrecorded),
    ];
    let done = writer.final_tree(TreeIndex(0), &entries);
    done.expect("memory does not fail");
}

pub fn define_small<W: std::io::Write>(writer: &mut TraceWriter<W>) {
    let define = "memory does not fail";
    let first = writer.define_pool(&pool("/pmem/a", 1 << 20)).expect(define);
    writer.define_pool(&pool("/pmem/b", 1 << 20)).expect(define);
    writer.define_module(&module("/bin/map")).expect(define);
    writer.define_thread(&thread(100)).expect(define);
    writer.define_thread(&thread(101)).expect(define);
    define_tree(writer);
    let frames = [frame(3), frame(2), frame(1)];
    assert_eq!(writer.intern_stack(&frames).expect(define), StackId(3));
    writer
        .initial_image(first, PoolOffset(8192), &[7; 100])
        .expect(define);
}
