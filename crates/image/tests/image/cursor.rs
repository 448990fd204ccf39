//! The cursor gives the pools at each moment.

use powerfail_image::{CursorOptions, Fill, FillExtent, ImageCursor, ImageError};
use powerfail_model::{EventIndex, Place, PoolIndex, PoolOffset, Rules, StoreKind};
use powerfail_trace::replay::replay;
use proptest::prelude::*;

use crate::common::{Naive, Op, initial, op, pool_at, rules, trace_of, two_pools};

fn content(cursor: &ImageCursor<'_>) -> Naive {
    let pools = (0..2).map(|pool| {
        let len = cursor.len_bytes(PoolIndex(pool)).unwrap();
        let mut bytes = vec![0xee; len as usize];
        cursor.read(Place::new(PoolIndex(pool), PoolOffset(0)), &mut bytes);
        bytes
    });
    Naive(pools.collect())
}

proptest! {
    #[test]
    fn every_moment_equals_a_naive_replay(
        initial in initial(),
        ops in prop::collection::vec(op(), 0..60),
        rules in prop::option::of(rules()),
    ) {
        let trace = trace_of(&two_pools(), &initial, &ops);
        let options = CursorOptions { rules, ..CursorOptions::default() };
        let mut cursor = ImageCursor::new(&trace, options).unwrap();
        let mut naive = Naive::new(&initial);
        prop_assert_eq!(&content(&cursor), &naive);
        for (op, index) in ops.iter().zip(1..) {
            naive.apply(op);
            cursor.move_to(EventIndex(index)).unwrap();
            prop_assert_eq!(&content(&cursor), &naive, "before event {}", index);
        }
        for pool in replay(&trace).unwrap() {
            prop_assert_eq!(cursor.hash(pool.pool), Some(pool.hash));
        }
    }
}

proptest! {
    /// A fork goes its own way, and the cursor that it comes from does not notice.
    #[test]
    fn a_fork_equals_its_origin(
        initial in initial(),
        ops in prop::collection::vec(op(), 1..60),
        rules in prop::option::of(rules()),
        place in any::<prop::sample::Index>(),
    ) {
        let trace = trace_of(&two_pools(), &initial, &ops);
        let options = CursorOptions { rules, ..CursorOptions::default() };
        let mut cursor = ImageCursor::new(&trace, options).unwrap();
        cursor.move_to(EventIndex(place.index(ops.len()) as u64)).unwrap();
        let here = content(&cursor);
        let mut fork = cursor.fork();
        prop_assert_eq!(fork.position(), cursor.position());
        fork.move_to_end().unwrap();
        prop_assert_eq!(&content(&cursor), &here);
        cursor.move_to_end().unwrap();
        prop_assert_eq!(&content(&cursor), &content(&fork));
        let open = |cursor: &ImageCursor<'_>| {
            cursor.frontier().map(|it| format!("{:?}", it.open_lines_sorted()))
        };
        prop_assert_eq!(open(&cursor), open(&fork));
    }
}

fn store(pool: u32, offset: u64, bytes: &[u8]) -> Op {
    Op::Store(StoreKind::Plain, pool, offset, bytes.to_vec())
}

#[test]
fn moving_back_and_beyond_the_end_is_refused() {
    let trace = trace_of(&two_pools(), &Vec::new(), &[Op::Fence, Op::Fence]);
    let mut cursor = ImageCursor::new(&trace, CursorOptions::default()).unwrap();
    cursor.move_to(EventIndex(1)).unwrap();
    assert!(matches!(
        cursor.move_to(EventIndex(0)),
        Err(ImageError::Backwards { .. })
    ));
    assert!(matches!(
        cursor.move_to(EventIndex(3)),
        Err(ImageError::BeyondEnd { event_count: 2, .. })
    ));
    cursor.move_to_end().unwrap();
    assert_eq!(cursor.position(), EventIndex(2));
}

#[test]
fn a_small_trace_cannot_take_all_memory() {
    let ops: Vec<Op> = (0..64).map(|i| store(0, i << 20, &[1])).collect();
    let trace = trace_of(&[pool_at("/p", 1 << 40)], &Vec::new(), &ops);
    for rules in [None, Some(Rules::default())] {
        let options = CursorOptions {
            rules,
            memory_limit_bytes: Some(20 * 4096),
            ..CursorOptions::default()
        };
        let mut cursor = ImageCursor::new(&trace, options).unwrap();
        cursor.move_to(EventIndex(10)).unwrap();
        assert!(matches!(
            cursor.move_to_end(),
            Err(ImageError::TooLarge { .. })
        ));
    }
}

#[test]
fn a_fill_byte_shows_in_fresh_pools_only() {
    let initial = vec![(1, 4096, vec![1])];
    let ops = [store(0, 10, &[0; 4]), store(1, 10, &[0; 4])];
    let trace = trace_of(&two_pools(), &initial, &ops);
    let read = |extent, pool, offset| {
        let options = CursorOptions {
            fill: Some(Fill { byte: 0xaa, extent }),
            rules: Some(Rules::default()),
            ..CursorOptions::default()
        };
        let mut cursor = ImageCursor::new(&trace, options).unwrap();
        cursor.move_to_end().unwrap();
        let floor = cursor.frontier().unwrap().open_lines_sorted()[0].floor()[10];
        assert_eq!(floor, 0xaa, "what was there before the store");
        let mut out = [0; 6];
        cursor.read(Place::new(PoolIndex(pool), PoolOffset(offset)), &mut out);
        out
    };
    for extent in [FillExtent::TouchedPages, FillExtent::WholePool] {
        assert_eq!(read(extent, 0, 9), [0xaa, 0, 0, 0, 0, 0xaa]);
        assert_eq!(read(extent, 1, 9), [0; 6], "its zeros may mean something");
    }
}
