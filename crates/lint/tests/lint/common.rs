//! Hand-made traces: one pool, some threads, and call stacks written as lists of frames.

#![allow(dead_code, reason = "each test file uses a part of it")]

use powerfail_finding::Code;
use powerfail_lint::{Hit, LintOptions, NoSymbols, Symbols, lint};
use powerfail_model::{
    Domain, Event, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex,
};
use powerfail_trace::{
    AnnotatedRange, Annotation, Body, Frame, Mark, MarkKind, Meta, Module, ModuleIndex, Pool,
    PoolKind, StackId, Thread, Trace, TraceWriter, WriterOptions,
};

pub(crate) const POOL_ADDRESS: u64 = 0x7f00_0000_0000;
pub(crate) const POOL_BYTES: u64 = 1 << 20;

/// Modules: their position here is the module's index.
pub(crate) const MODULES: [&str; 4] = [
    "/opt/program",
    "/lib/libpmem.so.1",
    "/lib/libpmemobj.so.1",
    "/lib/libc.so.6",
];
pub(crate) const PROGRAM: u32 = 0;
pub(crate) const LIBPMEM: u32 = 1;
pub(crate) const LIBPMEMOBJ: u32 = 2;
pub(crate) const LIBC: u32 = 3;

pub(crate) struct Script {
    writer: TraceWriter<Vec<u8>>,
    thread: ThreadIndex,
    stack: StackId,
}

impl Default for Script {
    fn default() -> Self {
        Self::with_image(&[])
    }
}

impl Script {
    /// A trace of a program with this many threads.
    pub(crate) fn with_threads(threads: u32) -> Self {
        Self::new(&[], threads)
    }

    /// A trace that begins with these bytes at these offsets.
    pub(crate) fn with_image(image: &[(u64, &[u8])]) -> Self {
        Self::new(image, 3)
    }

    fn new(image: &[(u64, &[u8])], threads: u32) -> Self {
        let options = WriterOptions {
            events_per_block: 5,
            ..WriterOptions::default()
        };
        let mut writer =
            TraceWriter::new(Vec::new(), &Meta::default(), options).expect("memory does not fail");
        let pool = Pool {
            path: "/mnt/pool".into(),
            kind: PoolKind::File,
            len_bytes: POOL_BYTES,
            address: POOL_ADDRESS,
        };
        writer.define_pool(&pool).expect("a pool");
        for (offset, bytes) in image {
            writer
                .initial_image(PoolIndex(0), PoolOffset(*offset), bytes)
                .expect("inside the pool");
        }
        for (number, path) in (1..).zip(MODULES) {
            let module = Module {
                path: path.into(),
                build_id: vec![],
                load_address: number << 32,
                len_bytes: 1 << 20,
                function: None,
            };
            writer.define_module(&module).expect("a module");
        }
        for os_id in 0..threads {
            let thread = Thread { os_id, name: None };
            writer.define_thread(&thread).expect("a thread");
        }
        Self {
            writer,
            thread: ThreadIndex(0),
            stack: StackId::NONE,
        }
    }

    pub(crate) fn thread(&mut self, thread: u32) -> &mut Self {
        self.thread = ThreadIndex(thread);
        self
    }

    /// The next events are at this line of the program, called by main.
    pub(crate) fn line(&mut self, line: u64) -> &mut Self {
        self.stack(&[(PROGRAM, line), (PROGRAM, 1)])
    }

    /// The next events have this stack, innermost first: modules and offsets.
    pub(crate) fn stack(&mut self, frames: &[(u32, u64)]) -> &mut Self {
        let frames: Vec<Frame> = frames
            .iter()
            .map(|&(module, offset)| Frame::Module {
                module: ModuleIndex(module),
                offset,
            })
            .collect();
        self.stack = self.writer.intern_stack(&frames).expect("a stack");
        self
    }

    pub(crate) fn append(&mut self, body: Body<'_>) -> &mut Self {
        self.writer
            .append(self.thread, self.stack, body)
            .expect("a good record");
        self
    }

    pub(crate) fn pm(&mut self, event: Event<'_>) -> &mut Self {
        self.append(Body::Pm(event))
    }

    pub(crate) fn store_as(&mut self, kind: StoreKind, offset: u64, bytes: &[u8]) -> &mut Self {
        let at = place(offset);
        self.pm(Event::Store { kind, at, bytes })
    }

    pub(crate) fn store(&mut self, offset: u64, value: u64) -> &mut Self {
        self.store_as(StoreKind::Plain, offset, &value.to_le_bytes())
    }

    pub(crate) fn stream(&mut self, offset: u64, value: u64) -> &mut Self {
        self.store_as(StoreKind::NonTemporal, offset, &value.to_le_bytes())
    }

    pub(crate) fn locked(&mut self, offset: u64, value: u64) -> &mut Self {
        self.store_as(StoreKind::Locked, offset, &value.to_le_bytes())
    }

    pub(crate) fn flush_as(&mut self, kind: FlushKind, offset: u64) -> &mut Self {
        let at = place(offset);
        self.pm(Event::Flush { kind, at })
    }

    pub(crate) fn clwb(&mut self, offset: u64) -> &mut Self {
        self.flush_as(FlushKind::Clwb, offset)
    }

    pub(crate) fn sfence(&mut self) -> &mut Self {
        self.pm(Event::Fence(FenceKind::Sfence))
    }

    pub(crate) fn persist(&mut self, offset: u64) -> &mut Self {
        self.clwb(offset).sfence()
    }

    pub(crate) fn sync(&mut self, offset: u64, len_bytes: u64) -> &mut Self {
        self.pm(Event::Sync {
            pool: PoolIndex(0),
            offset: PoolOffset(offset),
            len_bytes,
        })
    }

    pub(crate) fn mark(&mut self, annotation: Annotation) -> &mut Self {
        self.append(Body::Mark(Mark {
            kind: MarkKind::Annotation(annotation),
            value: 0,
            payload: &[],
        }))
    }

    /// A mark about ranges of the pool: offsets and lengths.
    pub(crate) fn mark_ranges(
        &mut self,
        annotation: Annotation,
        value: u64,
        ranges: &[(u64, u64)],
    ) -> &mut Self {
        let payload: Vec<u8> = ranges
            .iter()
            .flat_map(|&(offset, len)| {
                let pool = Some(PoolIndex(0));
                AnnotatedRange { pool, offset, len }.to_bytes()
            })
            .collect();
        self.append(Body::Mark(Mark {
            kind: MarkKind::Annotation(annotation),
            value,
            payload: &payload,
        }))
    }

    pub(crate) fn trace(&mut self) -> Trace {
        let finished = std::mem::replace(self, Self::with_image(&[]));
        let (bytes, _) = finished
            .writer
            .finish_into(&[])
            .expect("memory does not fail");
        Trace::from_bytes(bytes).expect("what was written is readable")
    }
}

pub(crate) fn place(offset: u64) -> Place {
    Place::new(PoolIndex(0), PoolOffset(offset))
}

pub(crate) fn hits(trace: &Trace, options: &LintOptions) -> Vec<Hit> {
    hits_with(trace, options, &mut NoSymbols)
}

pub(crate) fn hits_with(
    trace: &Trace,
    options: &LintOptions,
    symbols: &mut dyn Symbols,
) -> Vec<Hit> {
    let linted = lint(trace, options, symbols, &mut |_| {});
    linted.expect("the trace is good").hits
}

/// Findings as codes, the offsets of the blamed frames, and counts.
pub(crate) fn summary(trace: &Trace, hits: &[Hit]) -> Vec<(Code, Vec<u64>, u64)> {
    let line = |node| match trace.stack_node(node).map(|node| node.frame) {
        Some(Frame::Module { offset, .. }) => offset,
        _ => 0,
    };
    hits.iter()
        .map(|hit| {
            let lines = hit.sites.iter().map(|site| line(site.user)).collect();
            (hit.code, lines, hit.count)
        })
        .collect()
}

/// What was found: code, events of the first, and how often.
pub(crate) type Found = Vec<(Code, Vec<u64>, u64)>;

pub(crate) fn found_under(domain: Domain, script: &mut Script) -> Found {
    let options = LintOptions {
        domain,
        ..LintOptions::default()
    };
    let trace = script.trace();
    summary(&trace, &hits(&trace, &options))
}

pub(crate) fn found(script: &mut Script) -> Found {
    found_under(Domain::Adr, script)
}

pub(crate) fn script() -> Script {
    Script::default()
}
