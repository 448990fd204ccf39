//! Failure points during the creation of a pool are left out.

use powerfail_explore::{FailurePointOptions, FailurePointsByStack};
use powerfail_trace::Annotation;

use crate::common::{Line, Op, kept, store, trace_of};

fn begin(thread: u32) -> Line {
    (thread, 0, Op::Annotation(Annotation::CreationBegin))
}

fn end(thread: u32) -> Line {
    (thread, 0, Op::Annotation(Annotation::CreationEnd))
}

/// A store and a fence after it; the fence has the call stack.
fn pair(thread: u32, stack: u32) -> [Line; 2] {
    [(thread, 9, store(0, 1)), (thread, stack, Op::Fence)]
}

fn options() -> FailurePointOptions {
    FailurePointOptions {
        per_stack: 0,
        ..FailurePointOptions::default()
    }
}

#[test]
fn points_inside_are_left_out_and_counted() {
    let mut lines = Vec::new();
    lines.extend(pair(0, 1)); // fence at 1
    lines.push(begin(0));
    lines.extend(pair(0, 1)); // 4
    lines.extend(pair(0, 2)); // 6
    // A crash in another thread would leave the half-created pool as well.
    lines.extend(pair(1, 3)); // 8
    lines.push(end(0));
    lines.extend(pair(0, 1)); // 11
    assert_eq!(kept(&lines, options()), [(2, vec![1, 11])]);
    let tree = FailurePointsByStack::of(&trace_of(&lines), options()).unwrap();
    assert_eq!((tree.point_count(), tree.excluded_count()), (2, 3));
    let include = FailurePointOptions {
        include_create: true,
        ..options()
    };
    let tree = FailurePointsByStack::of(&trace_of(&lines), include).unwrap();
    assert_eq!((tree.point_count(), tree.excluded_count()), (5, 0));
}

#[test]
fn sampling_goes_on_as_if_the_creation_had_not_been() {
    let options = FailurePointOptions::default();
    let calm: Vec<Line> = (0..40).flat_map(|_| pair(0, 1)).collect();
    let mut disturbed = calm.clone();
    let inside: Vec<Line> = std::iter::once(begin(0))
        .chain((0..5).flat_map(|_| pair(0, 1)))
        .chain([end(0)])
        .collect();
    disturbed.splice(40..40, inside.clone());
    let moved = |at: u64| {
        if at < 40 {
            at
        } else {
            at + inside.len() as u64
        }
    };
    let expected: Vec<(u64, Vec<u64>)> = kept(&calm, options)
        .into_iter()
        .map(|(count, points)| (count, points.into_iter().map(moved).collect()))
        .collect();
    assert_eq!(kept(&disturbed, options), expected);
}

#[test]
fn a_creation_that_never_ends_leaves_out_nothing() {
    let mut lines = vec![begin(0)];
    lines.extend(pair(0, 1));
    lines.extend(pair(1, 2));
    assert_eq!(kept(&lines, options()).len(), 2);
    lines.push((0, 0, Op::ThreadEnd));
    lines.push(begin(1));
    lines.extend(pair(1, 3));
    lines.push(end(1));
    // The creation ended with its thread; the next thread has its own.
    assert_eq!(kept(&lines, options()), [(1, vec![2]), (1, vec![4])]);
}

#[test]
fn creations_nest_and_an_end_alone_means_nothing() {
    let mut lines = vec![end(0)];
    lines.extend(pair(0, 1)); // 2
    lines.extend([begin(0), begin(0)]);
    lines.extend(pair(0, 2));
    lines.push(end(0));
    lines.extend(pair(0, 2));
    lines.push(end(0));
    assert_eq!(kept(&lines, options()), [(1, vec![2])]);
}
