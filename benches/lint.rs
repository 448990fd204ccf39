//! How fast the lint processes a trace, including reading it.

#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use powerfail_benches::{Random, Workload};
use powerfail_lint::{LintOptions, NoSymbols, lint};
use powerfail_model::{
    Domain, Event, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex,
};
use powerfail_trace::{
    Body, Frame, Meta, Module, ModuleIndex, Pool, PoolKind, Thread, Trace, TraceWriter,
    WriterOptions,
};

const EVENTS: u64 = 2_000_000;

/// An index under inserts: most of its lines are never flushed, so there are many findings.
fn untidy() -> Trace {
    let mut bytes = Vec::new();
    Workload::index_inserts(EVENTS as usize, 1)
        .write(&mut bytes, WriterOptions::default())
        .expect("memory does not fail");
    Trace::from_bytes(bytes).expect("what was written is readable")
}

/// Operations that flush and fence all of their stores: eight stores to three lines of a pool of 16 MiB, three clwb,
/// one sfence.
fn tidy() -> powerfail_trace::Result<Trace> {
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default(), WriterOptions::default())?;
    let pool = writer.define_pool(&Pool {
        path: "/mnt/pmem/tidy".into(),
        kind: PoolKind::File,
        len_bytes: 16 << 20,
        address: 0x7f3a_4000_0000,
    })?;
    writer.define_module(&Module {
        path: "/usr/bin/tidy".into(),
        build_id: Vec::new(),
        load_address: 0x5555_5555_0000,
        len_bytes: 1 << 20,
        function: None,
    })?;
    let thread: ThreadIndex = writer.define_thread(&Thread {
        os_id: 1,
        name: None,
    })?;
    let mut stacks = Vec::new();
    for site in 0..12 {
        let frame = |offset| Frame::Module {
            module: ModuleIndex(0),
            offset,
        };
        stacks.push(writer.intern_stack(&[frame(0x4000 + site * 13), frame(0x1000)])?);
    }
    let at = |pool: PoolIndex, offset| Place::new(pool, PoolOffset(offset));
    let mut random = Random::new(1);
    let mut count = 0;
    while count < EVENTS {
        let lines: [u64; 3] = std::array::from_fn(|_| random.below(1 << 18) * 64);
        let value = random.word().to_le_bytes();
        let stores = (0..8u64).map(|i| Event::Store {
            kind: StoreKind::Plain,
            at: at(pool, lines[(i % 3) as usize] + 8 * i),
            bytes: &value,
        });
        let flushes = lines.map(|line| Event::Flush {
            kind: FlushKind::Clwb,
            at: at(pool, line),
        });
        let fence = [Event::Fence(FenceKind::Sfence)];
        for (event, stack) in stores.chain(flushes).chain(fence).zip(&stacks) {
            writer.append(thread, *stack, Body::Pm(event))?;
            count += 1;
        }
    }
    Trace::from_bytes(writer.finish_into(&[])?.0)
}

fn pass(criterion: &mut Criterion) {
    let traces = [
        ("all lines flushed", tidy().expect("memory does not fail")),
        ("many lines never flushed", untidy()),
    ];
    let mut group = criterion.benchmark_group("lint");
    group.throughput(Throughput::Elements(EVENTS));
    group.sample_size(10);
    for (name, trace) in &traces {
        for (domain, warnings) in [
            (Domain::Adr, false),
            (Domain::Adr, true),
            (Domain::Eadr, false),
        ] {
            let options = LintOptions {
                domain,
                warnings,
                ..LintOptions::default()
            };
            let warned = if warnings { ", with warnings" } else { "" };
            group.bench_function(format!("{domain:?}, {name}{warned}"), |bencher| {
                bencher.iter(|| {
                    lint(trace, &options, &mut NoSymbols, &mut |_| {})
                        .expect("the trace is good")
                        .hits
                        .len()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, pass);
criterion_main!(benches);
