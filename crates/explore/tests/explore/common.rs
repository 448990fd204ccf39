//! Small traces.

use powerfail_explore::{FailurePointOptions, FailurePointsByStack};
use powerfail_model::{
    Event, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex,
};
use powerfail_protocol::mark;
use powerfail_trace::{
    Annotation, Body, Frame, Mark, MarkKind, Meta, Module, ModuleIndex, Pool, PoolKind, StackId,
    Thread, Trace, TraceWriter, WriterOptions,
};

pub(crate) const POOL_BYTES: u64 = 4096 + 1000;

/// Something a thread does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Store(StoreKind, u64, Vec<u8>),
    Flush(FlushKind, u64),
    Fence,
    Sync,
    Resize(u64),
    Annotation(Annotation),
    /// The call of a function of libpmemobj.
    Call(&'static str),
    ThreadEnd,
}

/// An op with its thread and its call stack, numbered from one.
pub(crate) type Line = (u32, u32, Op);

pub(crate) fn store(offset: u64, byte: u8) -> Op {
    Op::Store(StoreKind::Plain, offset, vec![byte; 8])
}

impl Op {
    pub(crate) fn body(&self) -> Body<'_> {
        let pool = PoolIndex(0);
        let at = |offset: u64| Place::new(pool, PoolOffset(offset));
        match self {
            Self::Store(kind, offset, bytes) => Body::Pm(Event::Store {
                kind: *kind,
                at: at(*offset),
                bytes,
            }),
            Self::Flush(kind, offset) => Body::Pm(Event::Flush {
                kind: *kind,
                at: at(*offset),
            }),
            Self::Fence => Body::Pm(Event::Fence(FenceKind::Sfence)),
            Self::Sync => Body::Pm(Event::Sync {
                pool,
                offset: PoolOffset(0),
                len_bytes: 4096,
            }),
            Self::Resize(len_bytes) => Body::Pm(Event::Resize {
                pool,
                len_bytes: *len_bytes,
            }),
            Self::Annotation(annotation) => Body::Mark(Mark {
                kind: MarkKind::Annotation(*annotation),
                value: 0,
                payload: &[],
            }),
            Self::Call(function) => Body::Mark(Mark {
                kind: MarkKind::Annotation(Annotation::LibraryEnter),
                value: mark::function(function),
                payload: &[],
            }),
            Self::ThreadEnd => Body::ThreadEnd,
        }
    }
}

pub(crate) fn trace_of(lines: &[Line]) -> Trace {
    trace_with_pool(lines, POOL_BYTES)
}

pub(crate) fn trace_with_pool(lines: &[Line], len_bytes: u64) -> Trace {
    let mut file = Vec::new();
    let mut writer =
        TraceWriter::new(&mut file, &Meta::default(), WriterOptions::default()).unwrap();
    let pool = Pool {
        path: "/pm/pool".into(),
        kind: PoolKind::File,
        len_bytes,
        address: 0,
    };
    writer.define_pool(&pool).unwrap();
    for os_id in 1..4 {
        writer.define_thread(&Thread { os_id, name: None }).unwrap();
    }
    let module = Module {
        path: "/bin/target".into(),
        build_id: Vec::new(),
        load_address: 0,
        len_bytes: 1 << 20,
        function: None,
    };
    writer.define_module(&module).unwrap();
    for (thread, stack, op) in lines {
        let frames = [
            Frame::Module {
                module: ModuleIndex(0),
                offset: 7,
            },
            Frame::Module {
                module: ModuleIndex(0),
                offset: 100 + u64::from(*stack),
            },
        ];
        let stack = match stack {
            0 => StackId::NONE,
            _ => writer.intern_stack(&frames).unwrap(),
        };
        writer
            .append(ThreadIndex(*thread), stack, op.body())
            .unwrap();
    }
    writer.finish(&[]).unwrap();
    Trace::from_bytes(file).unwrap()
}

/// The kept points of a tree, by stack.
pub(crate) fn kept(lines: &[Line], options: FailurePointOptions) -> Vec<(u64, Vec<u64>)> {
    let tree = FailurePointsByStack::of(&trace_of(lines), options).unwrap();
    tree.stacks()
        .iter()
        .map(|stack| {
            let points = stack.points.iter().map(|point| point.at.0).collect();
            (stack.occurrences, points)
        })
        .collect()
}
