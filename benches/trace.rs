//! How fast traces are written and read on one core, and the size of an event.

#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use std::hint::black_box;
use std::io;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use powerfail_benches::Workload;
use powerfail_model::EventIndex;
use powerfail_trace::{RecordGroup, Statistics, Trace, WriterOptions};

const EVENTS: usize = 2_000_000;

fn trace(criterion: &mut Criterion) {
    let workload = Workload::index_inserts(EVENTS, 1);
    let mut bytes = Vec::new();
    workload
        .write(&mut bytes, WriterOptions::default())
        .expect("memory does not fail");
    let trace = Trace::from_bytes(bytes).expect("what was written is readable");
    let statistics = Statistics::collect(&trace).expect("what was written is readable");
    println!(
        "{} events: {} stores, {} flushes, {} fences",
        statistics.events,
        statistics.of_group(RecordGroup::Stores),
        statistics.of_group(RecordGroup::Flushes),
        statistics.of_group(RecordGroup::Fences)
    );
    println!(
        "{:.2} bytes per event ({:.2} with the whole file, {:.2} before compression)",
        statistics.bytes_per_event(),
        statistics.file_bytes_per_event(),
        statistics.bytes_per_event() * statistics.compression_ratio()
    );

    let mut group = criterion.benchmark_group("trace");
    group.throughput(Throughput::Elements(EVENTS as u64));
    group.sample_size(20);
    group.bench_function("write", |bencher| {
        bencher.iter(|| workload.write(io::sink(), WriterOptions::default()));
    });
    group.bench_function("read", |bencher| {
        bencher.iter(|| {
            let mut records = trace.records_from(EventIndex(0));
            while let Some(record) = records.next_record().expect("the trace is good") {
                black_box(&record);
            }
        });
    });
    group.bench_function("read block by block", |bencher| {
        bencher.iter(|| {
            for number in 0..trace.event_blocks().len() {
                let block = trace.read_block(number).expect("the trace is good");
                for record in block.records() {
                    black_box(&record.expect("the trace is good"));
                }
            }
        });
    });
    group.finish();
}

criterion_group!(benches, trace);
criterion_main!(benches);
