//! How fast the model processes a trace, what a query costs, and how long the litmus suite takes.

#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use powerfail_benches::{Random, Workload};
use powerfail_litmus::{LitmusFile, check};
use powerfail_model::{
    Domain, Event, EventIndex, FailurePoints, FenceKind, FlushKind, Frontier, Place, PoolIndex,
    PoolOffset, Rules, SparseImage, Step, StoreKind, ThreadIndex,
};

const EVENTS: usize = 2_000_000;

fn steps(workload: &Workload) -> Vec<Step<'_>> {
    workload
        .events()
        .zip(0..)
        .map(|((thread, _, event), index)| Step {
            index: EventIndex(index),
            thread,
            event,
        })
        .collect()
}

/// Operations that flush and fence all of their stores, so that few lines are open at a time: eight stores to three
/// lines of a pool of 16 MiB, three clwb, one sfence.
fn tidy_steps() -> Vec<Step<'static>> {
    const VALUE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    let place = |offset| Place::new(PoolIndex(0), PoolOffset(offset));
    let mut random = Random::new(1);
    let mut steps = Vec::new();
    while steps.len() < EVENTS {
        let lines: [u64; 3] = std::array::from_fn(|_| random.below(1 << 18) * 64);
        let stores = (0..8).map(|i| Event::Store {
            kind: StoreKind::Plain,
            at: place(lines[i % 3] + 8 * i as u64),
            bytes: &VALUE,
        });
        let flushes = lines.map(|line| Event::Flush {
            kind: FlushKind::Clwb,
            at: place(line),
        });
        for event in stores
            .chain(flushes)
            .chain([Event::Fence(FenceKind::Sfence)])
        {
            let index = EventIndex(steps.len() as u64);
            steps.push(Step {
                index,
                thread: ThreadIndex(0),
                event,
            });
        }
    }
    steps.truncate(EVENTS);
    steps
}

fn pass(frontier: &mut Frontier, steps: &[Step<'_>]) {
    for step in steps {
        frontier.apply(step);
    }
}

fn frontier(criterion: &mut Criterion) {
    let workload = Workload::index_inserts(EVENTS, 1);
    let steps = steps(&workload);
    let tidy = tidy_steps();
    let mut group = criterion.benchmark_group("frontier");
    group.throughput(Throughput::Elements(EVENTS as u64));
    group.sample_size(10);
    group.bench_function("pass Adr, all lines flushed", |bencher| {
        bencher.iter(|| {
            let mut frontier = Frontier::new(Rules::default(), SparseImage::new());
            pass(&mut frontier, &tidy);
            frontier.open_lines().len()
        });
    });
    for domain in [Domain::Adr, Domain::Eadr] {
        let rules = Rules {
            domain,
            ..Rules::default()
        };
        group.bench_function(format!("pass {domain:?}"), |bencher| {
            bencher.iter(|| {
                let mut frontier = Frontier::new(rules, SparseImage::new());
                pass(&mut frontier, &steps);
                frontier.open_lines().len()
            });
        });
        group.bench_function(
            format!("pass with covering failure points {domain:?}"),
            |bencher| {
                bencher.iter(|| {
                    let mut frontier = Frontier::new(rules, SparseImage::new());
                    let mut points = 0;
                    for step in &steps {
                        points +=
                            u64::from(frontier.is_failure_point(FailurePoints::Covering, step));
                        frontier.apply(step);
                    }
                    points
                });
            },
        );
    }
    group.finish();

    let mut frontier = Frontier::new(Rules::default(), SparseImage::new());
    pass(&mut frontier, &steps);
    println!("{} open lines at the end", frontier.open_lines().len());
    criterion.bench_function("number of crash states", |bencher| {
        bencher.iter(|| black_box(frontier.crash_state_count()));
    });
}

fn litmus(criterion: &mut Criterion) {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/litmus");
    let files: Vec<LitmusFile> = [suite.clone(), suite.join("traces")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("the suite is part of the project"))
        .map(|entry| entry.expect("readable").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .map(|path| std::fs::read_to_string(path).expect("readable"))
        .map(|text| LitmusFile::parse(&text).expect("well-formed"))
        .collect();
    println!("{} litmus files", files.len());
    let mut group = criterion.benchmark_group("litmus");
    group.sample_size(10);
    group.bench_function("whole suite on one core", |bencher| {
        bencher.iter(|| {
            files
                .iter()
                .all(|file| check(file).is_ok_and(|verdict| verdict.passed()))
        });
    });
    group.finish();
}

criterion_group!(benches, frontier, litmus);
criterion_main!(benches);
