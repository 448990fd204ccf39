//! The tree compared with naive implementations: which moments are failure points, and which images are equal.

use std::collections::BTreeMap;

use powerfail_explore::{
    FailurePoint, FailurePointOptions, FailurePointsByStack, Granularity, OperationKind,
};
use powerfail_model::{
    Event, EventIndex, FailurePoints, FenceKind, FlushKind, Frontier, Rules, SparseImage, StoreKind,
};
use proptest::prelude::*;

use crate::common::{Line, Op, POOL_BYTES, trace_of};

fn line() -> impl Strategy<Value = Line> {
    let kind = prop_oneof![Just(StoreKind::Plain), Just(StoreKind::Locked)];
    let bytes = prop::collection::vec(0_u8..3, 1..20);
    let op = prop_oneof![
        6 => (kind, 0_u64..40, bytes).prop_map(|(k, o, b)| Op::Store(k, o, b)),
        1 => (4080_u64..6000, prop::collection::vec(0_u8..3, 1..600))
            .prop_map(|(o, b)| Op::Store(StoreKind::Plain, o, b)),
        3 => (0_u64..64).prop_map(|o| Op::Flush(FlushKind::Clwb, o)),
        2 => Just(Op::Fence),
        1 => Just(Op::Sync),
        1 => (4096_u64..6000).prop_map(Op::Resize),
    ];
    (0_u32..2, 0_u32..4, op)
}

fn all(granularity: Granularity) -> FailurePointOptions {
    FailurePointOptions {
        granularity,
        per_stack: 0,
        ..FailurePointOptions::default()
    }
}

fn points(tree: &FailurePointsByStack) -> Vec<FailurePoint> {
    let stacks = tree.stacks().iter();
    let mut points: Vec<FailurePoint> = stacks.flat_map(|stack| stack.points.clone()).collect();
    points.sort_unstable_by_key(|point| point.at);
    points
}

/// The moments before events that match `wanted`, with a change since the last such event.
fn naive_points(lines: &[Line], wanted: fn(&Event<'_>) -> bool) -> Vec<u64> {
    let mut found = Vec::new();
    let mut changed = false;
    for ((_, _, op), index) in lines.iter().zip(0..) {
        let powerfail_trace::Body::Pm(event) = op.body() else {
            continue;
        };
        if wanted(&event) {
            if changed {
                found.push(index);
            }
            changed = false;
        }
        changed |= matches!(event, Event::Store { .. } | Event::Resize { .. });
    }
    found
}

fn is_flush(event: &Event<'_>) -> bool {
    matches!(event, Event::Flush { .. } | Event::Sync { .. })
}

fn is_fence(event: &Event<'_>) -> bool {
    let locked = StoreKind::Locked;
    matches!(event, Event::Fence(_) | Event::Sync { .. })
        || matches!(event, Event::Store { kind, .. } if *kind == locked)
}

proptest! {
    #[test]
    fn failure_points_are_those_of_the_definition(lines in prop::collection::vec(line(), 0..60)) {
        let trace = trace_of(&lines);
        let found = |granularity| -> Vec<u64> {
            let tree = FailurePointsByStack::of(&trace, all(granularity)).unwrap();
            points(&tree).iter().map(|point| point.at.0).collect()
        };
        prop_assert_eq!(found(Granularity::Flush), naive_points(&lines, is_flush));
        prop_assert_eq!(found(Granularity::Fence), naive_points(&lines, is_fence));
        prop_assert_eq!(found(Granularity::All), naive_points(&lines, |_| true));
        let is_store = |event: &Event<'_>| {
            matches!(event, Event::Store { .. } | Event::Resize { .. })
        };
        prop_assert_eq!(found(Granularity::Store), naive_points(&lines, is_store));
        let only = |operation| found(Granularity::Only(operation));
        let is_clwb = |event: &Event<'_>| {
            matches!(event, Event::Flush { kind: FlushKind::Clwb, .. })
        };
        let clwb = OperationKind::Flush(FlushKind::Clwb);
        prop_assert_eq!(only(clwb), naive_points(&lines, is_clwb));
        let is_locked = |event: &Event<'_>| {
            matches!(event, Event::Fence(FenceKind::Locked))
                || matches!(event, Event::Store { kind: StoreKind::Locked, .. })
        };
        prop_assert_eq!(only(OperationKind::Locked), naive_points(&lines, is_locked));
        // The default is what the model calls the failure points of prefix crashes.
        let mut frontier = Frontier::new(Rules::default(), SparseImage::new());
        let mut of_the_model = Vec::new();
        let mut records = trace.records_from(EventIndex(0));
        while let Some(record) = records.next_record().unwrap() {
            let step = record.step().unwrap();
            if frontier.is_failure_point(FailurePoints::Prefix, &step) {
                of_the_model.push(step.index.0);
            }
            frontier.apply(&step);
        }
        prop_assert_eq!(found(Granularity::FlushAndFence), of_the_model);
    }

    /// Where lost lines are explored: the model's covering moments, and the end.
    #[test]
    fn covering_failure_points_are_those_of_the_model(
        lines in prop::collection::vec(line(), 0..60),
    ) {
        let trace = trace_of(&lines);
        let rules = Rules::default();
        let mut frontier = Frontier::new(rules, SparseImage::new());
        let mut of_the_model = Vec::new();
        let mut records = trace.records_from(EventIndex(0));
        while let Some(record) = records.next_record().unwrap() {
            let step = record.step().unwrap();
            if frontier.is_failure_point(FailurePoints::Covering, &step) {
                of_the_model.push(step.index.0);
            }
            frontier.apply(&step);
        }
        if frontier.is_failure_point_at_end(FailurePoints::Covering) {
            of_the_model.push(trace.event_count());
        }
        let tree = FailurePointsByStack::covering(&trace, rules, all(Granularity::default())).unwrap();
        let found: Vec<u64> = points(&tree).iter().map(|point| point.at.0).collect();
        prop_assert_eq!(found, of_the_model);
    }

    #[test]
    fn digests_are_equal_where_images_are(lines in prop::collection::vec(line(), 0..60)) {
        let tree = FailurePointsByStack::of(&trace_of(&lines), all(Granularity::All)).unwrap();
        let mut pool = vec![0; POOL_BYTES as usize];
        let mut images = vec![pool.clone()];
        for (_, _, op) in &lines {
            match op {
                Op::Store(_, offset, bytes) => {
                    for (at, byte) in (*offset as usize..).zip(bytes) {
                        if let Some(place) = pool.get_mut(at) {
                            *place = *byte;
                        }
                    }
                }
                Op::Resize(len) => pool.resize(*len as usize, 0),
                _ => {}
            }
            images.push(pool.clone());
        }
        let mut by_image = BTreeMap::new();
        let mut by_digest = BTreeMap::new();
        for point in points(&tree) {
            let image = &images[point.at.0 as usize];
            let digest = point.digest.unwrap();
            prop_assert_eq!(*by_image.entry(image.clone()).or_insert(digest), digest);
            prop_assert_eq!(by_digest.entry(digest).or_insert(image), &image);
        }
        prop_assert_eq!(tree.distinct_image_count(), Some(by_image.len()));
    }

    #[test]
    fn what_is_kept_is_what_was_asked_for(
        lines in prop::collection::vec(line(), 0..80),
        per_stack in 1_usize..6,
        seed in any::<u64>(),
    ) {
        let trace = trace_of(&lines);
        let options = FailurePointOptions { per_stack, seed, ..FailurePointOptions::default() };
        let tree = FailurePointsByStack::of(&trace, options).unwrap();
        prop_assert_eq!(&tree, &FailurePointsByStack::of(&trace, options).unwrap());
        let whole = FailurePointsByStack::of(&trace, all(Granularity::default())).unwrap();
        prop_assert_eq!(tree.point_count(), whole.kept_count());
        for (some, every) in tree.stacks().iter().zip(whole.stacks()) {
            prop_assert_eq!((some.stack, some.occurrences), (every.stack, every.occurrences));
            prop_assert_eq!(some.points.len() as u64, every.occurrences.min(per_stack as u64));
            prop_assert!(some.points.iter().all(|point| every.points.contains(point)));
            prop_assert_eq!(some.points[0], every.points[0]);
            if per_stack > 1 && every.occurrences > 1 {
                prop_assert_eq!(some.points[1], every.points[1], "the last");
            }
            let mut distinct: Vec<_> = some.points.iter().map(|point| point.at).collect();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), some.points.len());
        }
    }
}
