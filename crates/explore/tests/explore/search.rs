//! Failure points that are found on the way.

use std::cell::Cell;

use powerfail_explore::{FailurePointOptions, FailurePointsByStack, PointSearch};
use powerfail_trace::Annotation;

use crate::common::{Line, Op, store, trace_of};

/// A store and a fence after it; the fence has the call stack.
fn pair(stack: u32) -> [Line; 2] {
    [(0, 9, store(0, 1)), (0, stack, Op::Fence)]
}

#[test]
fn the_first_of_each_stack_is_found_on_the_way() {
    let mut lines = Vec::new();
    lines.extend(pair(1)); // fence at 1
    lines.extend(pair(1)); // 3
    lines.push((0, 0, Op::Annotation(Annotation::CreationBegin)));
    lines.extend(pair(2)); // 6, which does not count
    lines.push((0, 0, Op::Annotation(Annotation::CreationEnd)));
    lines.extend(pair(2)); // 9
    lines.extend(pair(3)); // 11
    lines.extend(pair(1)); // 13
    let trace = trace_of(&lines);
    let options = FailurePointOptions::default();
    let mut search = PointSearch::new(&trace, options).unwrap();
    let mut found = Vec::new();
    while let Some(point) = search.next_first(&|| false).unwrap() {
        found.push(point.at.0);
    }
    assert_eq!(found, [1, 9, 11]);
    let all = FailurePointsByStack::of(&trace, options).unwrap();
    assert_eq!(search.finish(), all);
    assert_eq!(all.unsearched_count(), 0);
}

#[test]
fn a_search_that_is_stopped_has_the_beginning() {
    // One call stack, so that nothing is found on the way but the first point.
    let lines: Vec<Line> = (0..60_000).flat_map(|_| pair(1)).collect();
    let trace = trace_of(&lines);
    let asked = Cell::new(0);
    let is_stopped = || {
        asked.set(asked.get() + 1);
        true
    };
    let options = FailurePointOptions::default();
    let part = FailurePointsByStack::of_unless(&trace, options, &is_stopped).unwrap();
    assert_eq!(asked.get(), 1);
    let searched = trace.event_count() - part.unsearched_count();
    assert!(searched < trace.event_count(), "{searched}");
    let beginning = trace_of(&lines[..searched as usize]);
    let whole = FailurePointsByStack::of(&beginning, options).unwrap();
    assert_eq!(part.point_count(), whole.point_count());
    assert_eq!(part.stacks(), whole.stacks());
}
