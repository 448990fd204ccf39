//! A few small traces: complete and cut off, compressed and not.

use powerfail_model::{
    Event, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex,
};
use powerfail_trace::{
    Annotation, Body, Compression, FinalImage, Frame, ImageHash, Mark, MarkKind, Meta, Module,
    ModuleIndex, Pool, PoolKind, Result, StackId, Thread, TraceWriter, WriterOptions,
};

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for compression in [Compression::None, Compression::Zstd { level: 1 }] {
        for event_count in [5, 0, 1, 40] {
            for complete in [true, false] {
                let bytes = seed(compression, event_count, complete);
                seeds.push(bytes.expect("a trace in memory"));
            }
        }
    }
    seeds
}

fn seed(compression: Compression, event_count: u64, complete: bool) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let options = WriterOptions {
        compression,
        events_per_block: 15,
        ..WriterOptions::default()
    };
    let meta = Meta {
        powerfail_version: "0".into(),
        command: vec!["a".into(), "b".into()],
        notes: vec![("n".into(), "v".into())],
        ..Meta::default()
    };
    let mut writer = TraceWriter::new(&mut bytes, &meta, options)?;
    for (kind, len_bytes) in [(PoolKind::File, 1 << 16), (PoolKind::DaxDevice, 1 << 40)] {
        let pool = writer.define_pool(&Pool {
            path: "p".into(),
            kind,
            len_bytes,
            address: 0x7000_0000,
        })?;
        writer.initial_image(pool, PoolOffset(4090), &[1; 20])?;
    }
    writer.define_module(&Module {
        path: "m".into(),
        build_id: vec![1, 2],
        load_address: 0x5000,
        len_bytes: 0x1000,
        function: None,
    })?;
    writer.define_module(&Module {
        path: "s.py".into(),
        len_bytes: 1 << 20,
        function: Some("f".into()),
        ..Module::default()
    })?;
    for (os_id, name) in [(1, None), (2, Some(b"t".to_vec()))] {
        writer.define_thread(&Thread { os_id, name })?;
    }
    let inner = Frame::Module {
        module: ModuleIndex(0),
        offset: 16,
    };
    writer.intern_stack(&[inner, Frame::Absolute { address: 9 }])?;
    for number in 0..event_count {
        let thread = ThreadIndex(u32::from(number % 11 == 10));
        let stack = StackId(u32::from(number % 3 == 1));
        writer.append(thread, stack, body(number))?;
    }
    writer.flush_block()?;
    if complete {
        writer.finish(&[FinalImage {
            pool: PoolIndex(1),
            len_bytes: 1 << 40,
            hash: ImageHash([3; 32]),
        }])?;
    }
    Ok(bytes)
}

fn body(number: u64) -> Body<'static> {
    let at = Place::new(
        PoolIndex(u32::from(number % 5 == 4)),
        PoolOffset(number * 8),
    );
    let mark = |kind| {
        Body::Mark(Mark {
            kind,
            value: number,
            payload: b"xy",
        })
    };
    let store = |kind, bytes| Body::Pm(Event::Store { kind, at, bytes });
    match number % 14 {
        0 => store(StoreKind::Plain, &[1; 8]),
        1 => store(StoreKind::NonTemporal, &[2; 64]),
        2 => store(StoreKind::Locked, &[3; 4]),
        3 => store(StoreKind::System, &[4; 19]),
        4 => Body::Pm(Event::Flush {
            kind: FlushKind::Clwb,
            at,
        }),
        5 => Body::Pm(Event::Fence(FenceKind::Sfence)),
        6 => Body::Pm(Event::Sync {
            pool: at.pool,
            offset: at.offset,
            len_bytes: 4096,
        }),
        7 => Body::Pm(Event::Resize {
            pool: at.pool,
            len_bytes: 5000 + number,
        }),
        8 => Body::VolatileFlush {
            kind: FlushKind::Clflush,
            address: 0x7fff_0000,
        },
        9 => mark(MarkKind::Output {
            fd: 1,
            full_len_bytes: 9,
        }),
        10 => mark(MarkKind::Annotation(Annotation::AsynchronousSync)),
        11 => mark(MarkKind::OperationBegin),
        12 => Body::ThreadStart,
        _ => Body::ThreadEnd,
    }
}
