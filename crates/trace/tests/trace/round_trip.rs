//! Written records are read back: in order, from any position, and block by block.

use std::thread;

use crate::common::{
    Owned, OwnedBody, append, file_operations, frame, meta, module, pool, records_from,
};
use powerfail_model::{
    Event, EventIndex, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex,
};
use powerfail_trace::{
    Annotation, Body, Completeness, Compression, FinalImage, Frame, ImageHash, MAX_PAYLOAD_BYTES,
    Mark, MarkKind, ModuleIndex, Pool, PoolKind, StackId, Statistics, Thread, Trace, TraceError,
    TraceWriter, WriterOptions,
};
use proptest::prelude::*;

const POOLS: u32 = 6;
const THREADS: u32 = 5;
const STACKS: u32 = 40;

fn store_kind() -> impl Strategy<Value = StoreKind> {
    prop_oneof![
        Just(StoreKind::Plain),
        Just(StoreKind::NonTemporal),
        Just(StoreKind::Locked),
        Just(StoreKind::System),
    ]
}

fn flush_kind() -> impl Strategy<Value = FlushKind> {
    prop_oneof![
        Just(FlushKind::Clflush),
        Just(FlushKind::Clflushopt),
        Just(FlushKind::Clwb),
    ]
}

fn fence_kind() -> impl Strategy<Value = FenceKind> {
    prop_oneof![
        Just(FenceKind::Sfence),
        Just(FenceKind::Mfence),
        Just(FenceKind::Locked),
    ]
}

fn mark_kind() -> impl Strategy<Value = MarkKind> {
    prop_oneof![
        (any::<i32>(), any::<u64>())
            .prop_map(|(fd, full_len_bytes)| MarkKind::Output { fd, full_len_bytes }),
        any::<u32>().prop_map(|code| MarkKind::Annotation(Annotation::from_code(code))),
        Just(MarkKind::OperationBegin),
        Just(MarkKind::OperationEnd),
    ]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        10 => prop_oneof![Just(1), Just(2), Just(4), Just(8), Just(16), Just(32), Just(64)],
        3 => 0..200usize,
        1 => 4000..70_000usize,
    ];
    (len, any::<u8>(), any::<bool>()).prop_map(|(len, seed, same)| {
        let step = if same { 0 } else { 31 };
        (0..len)
            .map(|n| seed.wrapping_add((n * step).to_le_bytes()[0]))
            .collect()
    })
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        5 => 0..4096u64,
        2 => any::<u32>().prop_map(u64::from),
        1 => any::<u64>(),
    ]
}

fn body() -> impl Strategy<Value = OwnedBody> {
    let pool = 0..POOLS;
    prop_oneof![
        10 => (store_kind(), pool.clone(), offset(), payload()).prop_map(
            |(kind, pool, offset, bytes)| {
                let last = u64::MAX - bytes.len() as u64;
                OwnedBody::Store(kind, pool, offset.min(last), bytes)
            }
        ),
        3 => (flush_kind(), pool.clone(), offset())
            .prop_map(|(kind, pool, offset)| OwnedBody::Flush(kind, pool, offset)),
        3 => fence_kind().prop_map(OwnedBody::Fence),
        1 => (pool.clone(), offset(), any::<u64>()).prop_map(|(pool, offset, len)| {
            OwnedBody::Sync(pool, offset, len.min(u64::MAX - offset))
        }),
        1 => (pool, any::<u64>()).prop_map(|(pool, len)| OwnedBody::Resize(pool, len)),
        1 => (mark_kind(), any::<u64>(), payload())
            .prop_map(|(kind, value, payload)| OwnedBody::Mark(kind, value, payload)),
        1 => (flush_kind(), any::<u64>())
            .prop_map(|(kind, address)| OwnedBody::VolatileFlush(kind, address)),
        3 => prop::sample::select(file_operations()).prop_map(OwnedBody::File),
        1 => (0..POOLS, 0..100u32).prop_map(|(pool, node)| OwnedBody::Mapped(pool, node)),
        1 => Just(OwnedBody::ThreadStart),
        1 => Just(OwnedBody::ThreadEnd),
    ]
}

fn record() -> impl Strategy<Value = Owned> {
    (0..THREADS, 0..=STACKS, body()).prop_map(|(thread, stack, body)| Owned {
        thread,
        stack,
        body,
    })
}

fn options() -> impl Strategy<Value = WriterOptions> {
    let compression = prop_oneof![
        Just(Compression::None),
        Just(Compression::Zstd { level: -1 }),
        Just(Compression::Zstd { level: 3 }),
    ];
    (compression, 1..50u32, 100..100_000usize).prop_map(
        |(compression, events_per_block, bytes_per_block)| WriterOptions {
            compression,
            events_per_block,
            bytes_per_block,
        },
    )
}

fn write(records: &[Owned], options: WriterOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes, &meta(), options).expect("memory does not fail");
    for number in 0..POOLS {
        writer
            .define_pool(&pool(&format!("/pmem/{number}"), 1 << 30))
            .expect("the pool is good");
    }
    for os_id in 0..THREADS {
        writer
            .define_thread(&crate::common::thread(os_id))
            .expect("the thread is good");
    }
    for address in 0..u64::from(STACKS) {
        writer
            .intern_frame(Frame::Absolute { address }, StackId::NONE)
            .expect("the frame is good");
    }
    for (number, record) in records.iter().enumerate() {
        assert_eq!(append(&mut writer, record), EventIndex(number as u64));
    }
    let summary = writer.finish(&[]).expect("memory does not fail");
    assert_eq!(summary.event_count, records.len() as u64);
    assert_eq!(summary.file_bytes, bytes.len() as u64);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn records_come_back(
        records in prop::collection::vec(record(), 0..120),
        options in options(),
    ) {
        let trace = Trace::from_bytes(write(&records, options)).expect("the trace is good");
        prop_assert_eq!(trace.completeness(), Completeness::Complete);
        prop_assert_eq!(trace.event_count(), records.len() as u64);
        prop_assert!(trace.verify().is_ok());
        prop_assert_eq!(&records_from(&trace, 0).expect("the trace is good"), &records);
        let statistics = Statistics::collect(&trace).expect("the trace is good");
        prop_assert_eq!(statistics.events, records.len() as u64);
    }

    #[test]
    fn seeking_is_skipping(
        records in prop::collection::vec(record(), 1..80),
        options in options(),
    ) {
        let trace = Trace::from_bytes(write(&records, options)).expect("the trace is good");
        for first in 0..=records.len() + 1 {
            let found = records_from(&trace, first as u64).expect("the trace is good");
            prop_assert_eq!(&found[..], records.get(first..).unwrap_or(&[]));
        }
        prop_assert!(records_from(&trace, u64::MAX).expect("the trace is good").is_empty());
    }

    #[test]
    fn blocks_in_parallel_are_the_stream(
        records in prop::collection::vec(record(), 0..120),
        options in options(),
    ) {
        let trace = Trace::from_bytes(write(&records, options)).expect("the trace is good");
        let blocks: Vec<Vec<Owned>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..trace.event_blocks().len())
                .map(|number| {
                    let trace = &trace;
                    scope.spawn(move || {
                        let block = trace.read_block(number).expect("the trace is good");
                        let mut index = block.first_event();
                        let mut found = Vec::new();
                        for record in block.records() {
                            let record = record.expect("the trace is good");
                            assert_eq!(record.index, index);
                            index.0 += 1;
                            found.push(Owned::of(&record));
                        }
                        assert_eq!(found.len(), block.event_count() as usize);
                        found
                    })
                })
                .collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("the worker does not panic"))
                .collect()
        });
        prop_assert_eq!(blocks.concat(), records);
    }

    #[test]
    fn stacks_come_back(
        stacks in prop::collection::vec(
            prop::collection::vec((any::<bool>(), 0..20u64), 0..12),
            0..40,
        ),
    ) {
        let stacks: Vec<Vec<Frame>> = stacks
            .into_iter()
            .map(|frames| {
                let frame_of = |(inside, value)| if inside {
                    frame(value)
                } else {
                    Frame::Absolute { address: value }
                };
                frames.into_iter().map(frame_of).collect()
            })
            .collect();
        let mut bytes = Vec::new();
        let mut writer = TraceWriter::new(&mut bytes, &meta(), WriterOptions::default())
            .expect("memory does not fail");
        writer.define_module(&module("/bin/map")).expect("the module is good");
        let ids: Vec<StackId> = stacks
            .iter()
            .map(|frames| writer.intern_stack(frames).expect("the stack is good"))
            .collect();
        for (frames, id) in stacks.iter().zip(&ids) {
            prop_assert_eq!(writer.intern_stack(frames).expect("the stack is good"), *id);
        }
        writer.finish(&[]).expect("memory does not fail");
        let trace = Trace::from_bytes(bytes).expect("the trace is good");
        for (frames, id) in stacks.iter().zip(ids) {
            prop_assert_eq!(&trace.stack(id).collect::<Vec<_>>(), frames);
        }
    }
}

#[test]
fn definitions_come_back() {
    let pools = [
        Pool {
            path: std::path::PathBuf::from(std::ffi::OsString::from("/pmem/ü")),
            kind: PoolKind::DaxDevice,
            len_bytes: u64::MAX,
            address: u64::MAX,
        },
        Pool {
            path: not_utf8(),
            kind: PoolKind::AnonymousRange,
            len_bytes: 0,
            address: 0,
        },
        pool("/pmem/plain", 5),
    ];
    let function = powerfail_trace::Module {
        build_id: Vec::new(),
        function: Some("Store.put".into()),
        ..module("/srv/store.py")
    };
    let modules = [module("/bin/map"), module("/lib/libpmem.so"), function];
    let threads = [
        crate::common::thread(7),
        Thread {
            os_id: u32::MAX,
            name: Some(b"worker\xff".to_vec()),
        },
    ];
    let images = [FinalImage {
        pool: PoolIndex(1),
        len_bytes: 77,
        hash: ImageHash([9; 32]),
    }];
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut writer = TraceWriter::create(file.path(), &meta(), WriterOptions::default())
        .expect("the file is writable");
    for pool in &pools {
        writer.define_pool(pool).expect("the pool is good");
    }
    for module in &modules {
        writer.define_module(module).expect("the module is good");
    }
    for thread in &threads {
        writer.define_thread(thread).expect("the thread is good");
    }
    writer.finish(&images).expect("the file is writable");

    let trace = Trace::open(file.path()).expect("the trace is good");
    assert_eq!(trace.meta(), &meta());
    assert_eq!(trace.pools(), pools);
    assert_eq!(trace.modules(), modules);
    assert_eq!(trace.threads(), threads);
    assert_eq!(trace.final_images(), images);
    assert_eq!(trace.event_count(), 0);
}

fn not_utf8() -> std::path::PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(b"/pmem/\xff\xfe".to_vec()).into()
}

#[test]
fn initial_images_come_back_without_zero_pages() {
    let mut image = vec![0u8; 5 << 20];
    image[5000..5100].fill(3);
    for (number, byte) in image[1 << 20..(3 << 20) + 123].iter_mut().enumerate() {
        *byte = number.to_le_bytes()[0] | 1;
    }
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes, &meta(), WriterOptions::default())
        .expect("memory does not fail");
    let len_bytes = (1 << 40) + image.len() as u64;
    let one = writer.define_pool(&pool("one", len_bytes)).expect("good");
    let two = writer.define_pool(&pool("two", 100)).expect("good");
    writer
        .initial_image(one, PoolOffset(1 << 40), &image)
        .expect("inside");
    writer
        .initial_image(two, PoolOffset(90), &[5; 10])
        .expect("inside");
    assert!(matches!(
        writer.initial_image(two, PoolOffset(91), &[5; 10]),
        Err(TraceError::OutsidePool { .. })
    ));
    writer.finish(&[]).expect("memory does not fail");
    assert!(bytes.len() < 1 << 20, "zero pages are not stored");

    let trace = Trace::from_bytes(bytes).expect("the trace is good");
    trace.verify().expect("the trace is good");
    let mut found = vec![0u8; image.len()];
    let mut stored = 0;
    let mut runs = trace.initial_image(one);
    while let Some(run) = runs.next_run().expect("the trace is good") {
        let start = usize::try_from(run.offset.0 - (1 << 40)).expect("inside");
        found[start..start + run.bytes.len()].copy_from_slice(run.bytes);
        stored += run.bytes.len();
        assert!(run.bytes.len() <= 1 << 20);
    }
    assert_eq!(stored, 4096 + (2 << 20) + 4096);
    assert!(found == image);
    let mut runs = trace.initial_image(two);
    let run = runs.next_run().expect("the trace is good").expect("a run");
    assert_eq!((run.pool, run.offset), (two, PoolOffset(90)));
    assert_eq!(run.bytes, [5; 10]);
    assert!(runs.next_run().expect("the trace is good").is_none());
}

#[test]
fn what_is_not_defined_cannot_be_written() {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes, &meta(), WriterOptions::default())
        .expect("memory does not fail");
    let fence = Body::Pm(Event::Fence(FenceKind::Sfence));
    let undefined = |result: powerfail_trace::Result<EventIndex>| {
        matches!(result, Err(TraceError::Undefined { .. }))
    };
    assert!(undefined(writer.append(
        ThreadIndex(0),
        StackId::NONE,
        fence
    )));
    let thread = writer
        .define_thread(&crate::common::thread(1))
        .expect("good");
    assert!(undefined(writer.append(thread, StackId(1), fence)));
    let flush = Body::Pm(Event::Flush {
        kind: FlushKind::Clwb,
        at: Place::new(PoolIndex(0), PoolOffset(0)),
    });
    assert!(undefined(writer.append(thread, StackId::NONE, flush)));
    assert!(writer.intern_stack(&[frame(1)]).is_err());
    assert!(
        writer
            .intern_frame(Frame::Absolute { address: 1 }, StackId(5))
            .is_err()
    );
    writer.define_pool(&pool("one", 100)).expect("good");
    let beyond = Body::Pm(Event::Store {
        kind: StoreKind::Plain,
        at: Place::new(PoolIndex(0), PoolOffset(u64::MAX - 3)),
        bytes: &[0; 8],
    });
    assert!(matches!(
        writer.append(thread, StackId::NONE, beyond),
        Err(TraceError::OutsidePool { .. })
    ));
    let huge = vec![0; MAX_PAYLOAD_BYTES + 1];
    let mark = Body::Mark(Mark {
        kind: MarkKind::OperationBegin,
        value: 0,
        payload: &huge,
    });
    assert!(matches!(
        writer.append(thread, StackId::NONE, mark),
        Err(TraceError::TooLarge { .. })
    ));
    assert_eq!(writer.event_count(), 0);
    writer.finish(&[]).expect("memory does not fail");
    let trace = Trace::from_bytes(bytes).expect("the trace is good");
    assert_eq!(trace.event_count(), 0);
    assert_eq!(trace.stack_count(), 0);
    assert_eq!(ModuleIndex(0).to_string(), "0");
}

#[test]
fn a_store_of_the_longest_payload_is_whole_and_a_longer_one_is_split_at_pages() {
    let bytes_of = |len: usize| -> Vec<u8> { (0..len).map(|n| (n / 7).to_le_bytes()[0]).collect() };
    let mut file = Vec::new();
    let mut writer = TraceWriter::new(&mut file, &meta(), WriterOptions::default())
        .expect("memory does not fail");
    writer.define_pool(&pool("one", 1 << 30)).expect("good");
    let thread = writer
        .define_thread(&crate::common::thread(1))
        .expect("good");
    let whole = bytes_of(MAX_PAYLOAD_BYTES);
    let long = bytes_of(2 * MAX_PAYLOAD_BYTES + 12_345);
    for bytes in [&whole, &long] {
        let store = Event::Store {
            kind: StoreKind::NonTemporal,
            at: Place::new(PoolIndex(0), PoolOffset(100)),
            bytes,
        };
        writer
            .append(thread, StackId::NONE, Body::Pm(store))
            .expect("good");
    }
    writer.finish(&[]).expect("memory does not fail");
    let trace = Trace::from_bytes(file).expect("the trace is good");
    let records = records_from(&trace, 0).expect("the trace is good");
    let mut stores = records.iter().map(|record| match &record.body {
        OwnedBody::Store(StoreKind::NonTemporal, 0, offset, bytes) => (*offset, bytes),
        other => panic!("not the store: {other:?}"),
    });
    let (offset, bytes) = stores.next().expect("the whole store");
    assert!(offset == 100 && *bytes == whole);
    let mut joined = Vec::new();
    for (offset, bytes) in stores {
        assert_eq!(offset, 100 + joined.len() as u64);
        assert!(joined.is_empty() || offset % 4096 == 0);
        assert!(bytes.len() <= MAX_PAYLOAD_BYTES);
        joined.extend_from_slice(bytes);
    }
    assert!(joined == long);
}
