//! Replaying the stores over the initial image gives the final image, but only if nothing is wrong.

use crate::common::{meta, pool, thread};
use powerfail_model::{Event, Place, PoolIndex, PoolOffset, StoreKind};
use powerfail_trace::replay::{PoolReplay, replay, replay_unless, replay_within};
use powerfail_trace::{
    Body, FinalImage, ImageHash, ImageHasher, MAX_PAYLOAD_BYTES, StackId, Trace, TraceError,
    TraceWriter, WriterOptions,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Change {
    Store(usize, u64, Vec<u8>),
    Resize(usize, u64),
}

const POOL_LEN: u64 = 20_000;

fn hash(image: &[u8]) -> ImageHash {
    let mut hasher = ImageHasher::new(image.len() as u64);
    hasher.update(0, image);
    hasher.finish()
}

/// Writes a trace of two pools; returns it and the final content of the pools.
fn record(initial: &[u8], changes: &[Change], tamper: Option<usize>) -> (Trace, [Vec<u8>; 2]) {
    let mut images = [initial.to_vec(), vec![0; initial.len()]];
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes, &meta(), WriterOptions::default())
        .expect("memory does not fail");
    for image in &images {
        let pool = writer
            .define_pool(&pool("pool", image.len() as u64))
            .expect("the pool is good");
        writer
            .initial_image(pool, PoolOffset(0), image)
            .expect("inside");
    }
    let thread = writer.define_thread(&thread(1)).expect("good");
    for (number, change) in changes.iter().enumerate() {
        let event = match change {
            Change::Store(pool, offset, bytes) => {
                let image = &mut images[*pool];
                let start = usize::try_from(*offset).expect("small").min(image.len());
                let len = bytes.len().min(image.len() - start);
                image[start..start + len].copy_from_slice(&bytes[..len]);
                if tamper == Some(number) {
                    image[start] ^= 1;
                }
                Event::Store {
                    kind: StoreKind::Plain,
                    at: Place::new(PoolIndex(u32::from(*pool == 1)), PoolOffset(*offset)),
                    bytes,
                }
            }
            Change::Resize(pool, len_bytes) => {
                images[*pool].resize(usize::try_from(*len_bytes).expect("small"), 0);
                Event::Resize {
                    pool: PoolIndex(u32::from(*pool == 1)),
                    len_bytes: *len_bytes,
                }
            }
        };
        writer
            .append(thread, StackId::NONE, Body::Pm(event))
            .expect("good");
    }
    let finals: Vec<FinalImage> = (0..)
        .map(PoolIndex)
        .zip(&images)
        .map(|(pool, image)| FinalImage {
            pool,
            len_bytes: image.len() as u64,
            hash: hash(image),
        })
        .collect();
    writer.finish(&finals).expect("memory does not fail");
    (Trace::from_bytes(bytes).expect("the trace is good"), images)
}

fn change() -> impl Strategy<Value = Change> {
    let bytes = (0..9000usize, 0..3u8).prop_map(|(len, byte)| vec![byte; len]);
    prop_oneof![
        8 => (0..2usize, 0..POOL_LEN, bytes)
            .prop_map(|(pool, offset, bytes)| Change::Store(pool, offset, bytes)),
        1 => (0..2usize, 0..2 * POOL_LEN).prop_map(|(pool, len)| Change::Resize(pool, len)),
    ]
}

proptest! {
    #[test]
    fn replay_gives_the_final_images(
        initial in prop::collection::vec(0..2u8, 0..20_000),
        changes in prop::collection::vec(change(), 0..40),
    ) {
        let (trace, images) = record(&initial, &changes, None);
        let results = replay(&trace).expect("the trace is good");
        prop_assert_eq!(results.len(), 2);
        for (result, image) in results.iter().zip(&images) {
            prop_assert_eq!(result.matches(), Some(true));
            prop_assert_eq!(result.len_bytes, image.len() as u64);
            prop_assert_eq!(result.hash, hash(image));
        }
    }
}

#[test]
fn a_store_that_the_trace_does_not_have_is_noticed() {
    let changes = [
        Change::Store(0, 100, vec![5; 8]),
        Change::Store(0, 9000, vec![6; 8]),
        Change::Store(1, 300, vec![7; 8]),
    ];
    let initial = vec![1; 10_000];
    for (tamper, expected) in [
        (None, [true, true]),
        (Some(1), [false, true]),
        (Some(2), [true, false]),
    ] {
        let (trace, _) = record(&initial, &changes, tamper);
        let results = replay(&trace).expect("the trace is readable");
        let found: Vec<_> = results.iter().map(PoolReplay::matches).collect();
        assert_eq!(found, expected.map(Some));
    }
}

#[test]
fn a_split_store_replays_as_the_whole_one() {
    let long: Vec<u8> = (0..MAX_PAYLOAD_BYTES + 100_000)
        .map(|n| (n / 5).to_le_bytes()[0])
        .collect();
    let initial = vec![0; long.len() + 5000];
    let (trace, images) = record(&initial, &[Change::Store(1, 4000, long)], None);
    assert_eq!(trace.event_count(), 2);
    let results = replay(&trace).expect("the trace is good");
    assert_eq!(results[1].hash, hash(&images[1]));
    assert_eq!(results[1].matches(), Some(true));
}

#[test]
fn bytes_outside_of_a_pool_are_counted() {
    let (trace, _) = record(&[0; 100], &[Change::Store(0, 96, vec![1; 10])], None);
    let results = replay(&trace).expect("the trace is good");
    assert_eq!(results[0].outside_bytes, 6);
    assert_eq!(results[0].matches(), Some(true));
}

#[test]
fn memory_is_bounded_on_request() {
    let (trace, _) = record(
        &vec![0; 100_000],
        &[Change::Store(0, 0, vec![1; 40_960])],
        None,
    );
    assert!(replay_within(&trace, 40_960).is_ok());
    assert!(matches!(
        replay_within(&trace, 40_959),
        Err(TraceError::TooLarge { .. })
    ));
}

#[test]
fn an_interruption_ends_a_long_replay() {
    let changes = vec![Change::Store(0, 0, vec![1]); 100_000];
    let (trace, _) = record(&[0; 100], &changes, None);
    let mut asked = 0;
    let replayed = replay_unless(&trace, u64::MAX, &mut || {
        asked += 1;
        asked == 2
    });
    assert!(replayed.expect("the trace is good").is_none());
    assert_eq!(asked, 2, "it is asked more than once, and not again");
}

#[test]
fn a_pool_of_a_terabyte_costs_its_content() {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes, &meta(), WriterOptions::default())
        .expect("memory does not fail");
    let pool = writer.define_pool(&pool("huge", 1 << 40)).expect("good");
    let thread = writer.define_thread(&thread(1)).expect("good");
    let offset = (1 << 40) - 8;
    let store = Event::Store {
        kind: StoreKind::Plain,
        at: Place::new(pool, PoolOffset(offset)),
        bytes: &[3; 8],
    };
    writer
        .append(thread, StackId::NONE, Body::Pm(store))
        .expect("good");
    let mut hasher = ImageHasher::new(1 << 40);
    hasher.update(offset, &[3; 8]);
    let end = FinalImage {
        pool,
        len_bytes: 1 << 40,
        hash: hasher.finish(),
    };
    writer.finish(&[end]).expect("memory does not fail");
    let trace = Trace::from_bytes(bytes).expect("the trace is good");
    let results = replay_within(&trace, 4096).expect("one page");
    assert_eq!(results[0].matches(), Some(true));
}
