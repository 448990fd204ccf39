//! What a crash image costs: finding failure points, moving a cursor, preparing a slot.
//!
//! A slot of a dense pool of 8 MiB and one of a sparse pool of 8 GiB are prepared after a recovery that changed 16
//! pages, and after one that changed nothing. For comparison, the whole dense pool is copied.

#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use powerfail_benches::{Random, Workload};
use powerfail_explore::{FailurePointOptions, FailurePointsByStack};
use powerfail_image::{CursorOptions, ImageCursor, Layout, RunDirectory, default_parent};
use powerfail_model::{CrashState, Event, EventIndex, Place, PoolIndex, PoolOffset, Rules};
use powerfail_model::{StoreKind, ThreadIndex};
use powerfail_trace::{
    Body, Meta, Pool, PoolKind, StackId, Thread, Trace, TraceWriter, WriterOptions,
};

const EVENTS: usize = 1_000_000;
const RECOVERY_PAGES: u64 = 16;

fn newest() -> CrashState {
    CrashState::default()
}

fn workload_trace() -> Trace {
    let mut file = Vec::new();
    let workload = Workload::index_inserts(EVENTS, 1);
    workload
        .write(&mut file, WriterOptions::default())
        .expect("a trace in memory can be written");
    Trace::from_bytes(file).expect("it is a trace")
}

/// A pool with one page-sized store every `stride` bytes.
fn pool_trace(len_bytes: u64, stride: u64) -> Trace {
    let mut file = Vec::new();
    let mut writer = TraceWriter::new(&mut file, &Meta::default(), WriterOptions::default())
        .expect("a trace in memory can be written");
    let pool = Pool {
        path: "/pm/pool".into(),
        kind: PoolKind::File,
        len_bytes,
        address: 0,
    };
    let pool = writer.define_pool(&pool).expect("one pool");
    let thread = Thread {
        os_id: 1,
        name: None,
    };
    writer.define_thread(&thread).expect("one thread");
    let mut random = Random::new(1);
    for offset in (0..len_bytes).step_by(stride as usize) {
        let bytes: Vec<u8> = (0..4096).map(|_| random.word() as u8 | 1).collect();
        let store = Event::Store {
            kind: StoreKind::Plain,
            at: Place::new(pool, PoolOffset(offset)),
            bytes: &bytes,
        };
        writer
            .append(ThreadIndex(0), StackId::NONE, Body::Pm(store))
            .expect("a store");
    }
    writer.finish(&[]).expect("the trace ends");
    Trace::from_bytes(file).expect("it is a trace")
}

fn passes(criterion: &mut Criterion) {
    let trace = workload_trace();
    let mut group = criterion.benchmark_group("pass");
    group.throughput(Throughput::Elements(trace.event_count()));
    group.sample_size(10);
    let tree = |digests| {
        let options = FailurePointOptions {
            digests,
            ..FailurePointOptions::default()
        };
        FailurePointsByStack::of(&trace, options).expect("the trace is good")
    };
    group.bench_function("failure-point tree", |bench| bench.iter(|| tree(false)));
    group.bench_function("failure-point tree with digests", |bench| {
        bench.iter(|| tree(true));
    });
    for (name, rules) in [
        ("cursor, newest only", None),
        ("cursor with frontier", Some(Rules::default())),
    ] {
        group.bench_function(name, |bench| {
            bench.iter(|| {
                let options = CursorOptions {
                    rules,
                    ..CursorOptions::default()
                };
                let mut cursor = ImageCursor::new(&trace, options).expect("the trace is good");
                cursor.move_to_end().expect("the trace is good");
                black_box(cursor.position())
            });
        });
    }
    group.finish();
}

fn slots(criterion: &mut Criterion) {
    let run = RunDirectory::create_in(&default_parent()).expect("there is room");
    let mut group = criterion.benchmark_group("prepare");
    let pools = [
        ("dense 8 MiB", 8 << 20, 4096),
        ("sparse 8 GiB", 8 << 30, 16 << 20),
    ];
    for (number, (name, len_bytes, stride)) in pools.into_iter().enumerate() {
        let trace = pool_trace(len_bytes, stride);
        let layout = Layout::of(&trace, &[]).expect("one file");
        let mut cursor =
            ImageCursor::new(&trace, CursorOptions::default()).expect("the trace is good");
        cursor
            .move_to(EventIndex(trace.event_count()))
            .expect("the trace is good");
        let mut slot = run.slot(number, &layout);
        slot.prepare(&cursor, &newest()).expect("there is room");
        let path = slot.path_of(PoolIndex(0)).expect("the pool is a file");
        let mut file = File::options()
            .write(true)
            .open(&path)
            .expect("it is there");
        for (what, pages) in [("untouched", 0), ("16 pages changed", RECOVERY_PAGES)] {
            group.bench_function(format!("{name}, {what}"), |bench| {
                bench.iter(|| {
                    for page in 0..pages {
                        let offset = page * (len_bytes / RECOVERY_PAGES);
                        file.write_all_at(&[0; 64], offset).expect("there is room");
                    }
                    slot.prepare(&cursor, &newest()).expect("there is room")
                });
            });
        }
        if number == 0 {
            let copy = run.path().join("copy");
            group.bench_function(format!("{name}, copied whole"), |bench| {
                bench.iter(|| fs::copy(&path, &copy).expect("there is room"));
            });
            group.bench_function(format!("{name}, made anew"), |bench| {
                bench.iter(|| {
                    fs::remove_file(&path).expect("it is there");
                    slot.prepare(&cursor, &newest()).expect("there is room")
                });
            });
            file = File::options()
                .write(true)
                .open(&path)
                .expect("it is there");
        }
        drop(file);
    }
    group.finish();
}

criterion_group!(benches, passes, slots);
criterion_main!(benches);
