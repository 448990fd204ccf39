//! Random traces, and the pools at each moment, computed by a naive replay.

use powerfail_model::{
    Event, FenceKind, FlushKind, Place, PoolIndex, PoolOffset, Rules, StoreKind, ThreadIndex,
};
use powerfail_trace::{
    Body, FinalImage, Meta, Pool, PoolKind, StackId, Thread, Trace, TraceWriter, WriterOptions,
};
use proptest::prelude::*;

pub(crate) const POOL_BYTES: [u64; 2] = [5 * 4096 + 100, 2 * 4096];

/// An event that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Store(StoreKind, u32, u64, Vec<u8>),
    Flush(FlushKind, u32, u64),
    Fence,
    Sync(u32, u64, u64),
    Resize(u32, u64),
}

impl Op {
    pub(crate) fn event(&self) -> Event<'_> {
        let place = |pool, offset| Place::new(PoolIndex(pool), PoolOffset(offset));
        match self {
            Self::Store(kind, pool, offset, bytes) => Event::Store {
                kind: *kind,
                at: place(*pool, *offset),
                bytes,
            },
            Self::Flush(kind, pool, offset) => Event::Flush {
                kind: *kind,
                at: place(*pool, *offset),
            },
            Self::Fence => Event::Fence(FenceKind::Sfence),
            Self::Sync(pool, offset, len_bytes) => Event::Sync {
                pool: PoolIndex(*pool),
                offset: PoolOffset(*offset),
                len_bytes: *len_bytes,
            },
            Self::Resize(pool, len_bytes) => Event::Resize {
                pool: PoolIndex(*pool),
                len_bytes: *len_bytes,
            },
        }
    }
}

pub(crate) fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 1..80),
        1 => (1_usize..6000, 0_u8..2).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let offset = || prop_oneof![0_u64..7 * 4096, 4000_u64..4200, 20_400_u64..20_700];
    let kind = prop_oneof![
        Just(StoreKind::Plain),
        Just(StoreKind::NonTemporal),
        Just(StoreKind::Locked)
    ];
    let flush = prop_oneof![Just(FlushKind::Clflush), Just(FlushKind::Clwb)];
    prop_oneof![
        12 => (kind, 0_u32..2, offset(), bytes()).prop_map(|(k, p, o, b)| Op::Store(k, p, o, b)),
        4 => (flush, 0_u32..2, offset()).prop_map(|(k, p, o)| Op::Flush(k, p, o)),
        2 => Just(Op::Fence),
        1 => (0_u32..2, offset(), 0_u64..9000).prop_map(|(p, o, l)| Op::Sync(p, o, l)),
        1 => (0_u32..2, offset()).prop_map(|(p, l)| Op::Resize(p, l)),
    ]
}

pub(crate) type Initial = Vec<(u32, u64, Vec<u8>)>;

pub(crate) fn initial() -> impl Strategy<Value = Initial> {
    let run = (0_u32..2, 0_u64..8192, bytes()).prop_map(|(pool, offset, mut bytes)| {
        bytes.truncate((POOL_BYTES[pool as usize] - offset) as usize);
        (pool, offset, bytes)
    });
    // A trace has each byte of an initial image once, so overlapping parts are merged here.
    prop::collection::vec(run, 0..4).prop_map(|runs| {
        let pools = (0..).zip(Naive::new(&runs).0);
        pools.map(|(pool, bytes)| (pool, 0, bytes)).collect()
    })
}

pub(crate) fn pool_at(path: &str, len_bytes: u64) -> Pool {
    Pool {
        path: path.into(),
        kind: PoolKind::File,
        len_bytes,
        address: 0x7f00_0000_0000,
    }
}

/// A trace of pools with these paths and lengths, all events by one thread.
pub(crate) fn trace_of(pools: &[Pool], initial: &Initial, ops: &[Op]) -> Trace {
    let meta = Meta {
        working_directory: "/nowhere/run".into(),
        ..Meta::default()
    };
    let mut file = Vec::new();
    let mut writer = TraceWriter::new(&mut file, &meta, WriterOptions::default()).unwrap();
    for pool in pools {
        writer.define_pool(pool).unwrap();
    }
    writer
        .define_thread(&Thread {
            os_id: 1,
            name: None,
        })
        .unwrap();
    for (pool, offset, bytes) in initial {
        writer
            .initial_image(PoolIndex(*pool), PoolOffset(*offset), bytes)
            .unwrap();
    }
    for op in ops {
        writer
            .append(ThreadIndex(0), StackId::NONE, Body::Pm(op.event()))
            .unwrap();
    }
    let images: [FinalImage; 0] = [];
    writer.finish(&images).unwrap();
    Trace::from_bytes(file).unwrap()
}

pub(crate) fn two_pools() -> [Pool; 2] {
    [
        pool_at("/nowhere/a/pool", POOL_BYTES[0]),
        pool_at("other", POOL_BYTES[1]),
    ]
}

/// Pools as plain bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Naive(pub(crate) Vec<Vec<u8>>);

impl Naive {
    pub(crate) fn new(initial: &Initial) -> Self {
        let mut pools = Self(POOL_BYTES.map(|len| vec![0; len as usize]).to_vec());
        for (pool, offset, bytes) in initial {
            pools.store(*pool, *offset, bytes);
        }
        pools
    }

    fn store(&mut self, pool: u32, offset: u64, bytes: &[u8]) {
        let content = &mut self.0[pool as usize];
        for (at, byte) in (offset as usize..).zip(bytes) {
            if let Some(place) = content.get_mut(at) {
                *place = *byte;
            }
        }
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::Store(_, pool, offset, bytes) => self.store(*pool, *offset, bytes),
            Op::Resize(pool, len) => self.0[*pool as usize].resize(*len as usize, 0),
            _ => {}
        }
    }
}

/// The parameters with which the tests track frontiers.
pub(crate) fn rules() -> impl Strategy<Value = Rules> {
    use powerfail_model::{Atomicity, Domain};
    let domain = prop_oneof![Just(Domain::Adr), Just(Domain::PageCache)];
    let atomicity = prop_oneof![Just(Atomicity::Store), Just(Atomicity::Word)];
    (domain, atomicity).prop_map(|(domain, atomicity)| Rules { domain, atomicity })
}
