//! Failure points before ordering points.

use powerfail_explore::{FailurePointOptions, FailurePointsByStack, Trigger};
use powerfail_model::{Domain, FlushKind, Rules, StoreKind};
use powerfail_trace::Annotation;

use crate::common::{Line, Op, store, trace_of};

/// The call stack of events in a trusted library.
const LIBRARY: u32 = 9;

fn say(annotation: Annotation) -> Line {
    (0, 1, Op::Annotation(annotation))
}

fn call(function: &'static str) -> Line {
    (0, 1, Op::Call(function))
}

fn clwb(offset: u64) -> Op {
    Op::Flush(FlushKind::Clwb, offset)
}

/// The failure points, and the next event at each of them.
fn points_in(domain: Domain, lines: &[Line]) -> Vec<(u64, Trigger)> {
    let trace = trace_of(lines);
    let rules = Rules {
        domain,
        ..Rules::default()
    };
    let options = FailurePointOptions {
        per_stack: 0,
        ..FailurePointOptions::default()
    };
    let is_librarys = |index: usize| lines.get(index).is_some_and(|line| line.1 == LIBRARY);
    let tree = FailurePointsByStack::ordering(&trace, rules, options, &mut |record| {
        is_librarys(usize::try_from(record.index.0).unwrap())
    })
    .unwrap();
    let points = tree.stacks().iter().flat_map(|stack| &stack.points);
    let mut points: Vec<(u64, Trigger)> = points.map(|point| (point.at.0, point.trigger)).collect();
    points.sort_unstable();
    points
}

fn points(lines: &[Line]) -> Vec<(u64, Trigger)> {
    points_in(Domain::Adr, lines)
}

#[test]
fn before_each_ordering_point_that_follows_a_change() {
    let locked = Op::Store(StoreKind::Locked, 128, vec![1; 8]);
    let lines = [
        (0, 1, Op::Fence),
        (0, 1, store(0, 1)),
        (0, 1, store(64, 1)),
        (0, 1, clwb(0)),
        (0, 1, Op::Fence), // 4
        (0, 1, Op::Fence),
        (0, 1, clwb(64)),
        (0, 1, Op::Fence),
        (0, 1, store(0, 2)),
        (0, 1, locked),    // 9
        (0, 1, Op::Fence), // 10: the locked operation stores after it has fenced
        (0, 1, store(64, 2)),
        (0, 1, Op::Sync), // 12
        (0, 1, Op::Resize(4096)),
        (0, 1, Op::Fence), // 14
    ];
    assert_eq!(
        points(&lines),
        [
            (4, Trigger::Fence),
            (9, Trigger::LockedStore),
            (10, Trigger::Fence),
            (12, Trigger::Sync),
            (14, Trigger::Fence)
        ]
    );
}

#[test]
fn a_clflush_counts_where_it_makes_something_durable() {
    let clflush = |offset| Op::Flush(FlushKind::Clflush, offset);
    let lines = [
        (0, 1, store(0, 1)),
        (0, 1, store(64, 1)),
        (0, 1, clflush(128)),
        (0, 1, clflush(0)),  // 3
        (0, 1, clflush(64)), // 4: the first line is durable, the second is not
        (0, 1, clflush(64)),
    ];
    assert_eq!(
        points(&lines),
        [(3, Trigger::Flush), (4, Trigger::Flush), (6, Trigger::End)]
    );
    // If caches survive, flushes have no effect, and only the end is left.
    assert_eq!(points_in(Domain::Eadr, &lines), [(6, Trigger::End)]);
}

#[test]
fn only_syncs_order_what_lies_in_a_page_cache() {
    let lines = [
        (0, 1, store(0, 1)),
        (0, 1, clwb(0)),
        (0, 1, Op::Fence),
        (0, 1, Op::Sync), // 3
        (0, 1, store(0, 2)),
    ];
    assert_eq!(
        points_in(Domain::PageCache, &lines),
        [(3, Trigger::Sync), (5, Trigger::End)]
    );
}

#[test]
fn a_call_of_a_library_is_one_ordering_point() {
    let lines = [
        (0, 1, store(0, 1)),
        call("pmemobj_alloc"), // 1
        (0, LIBRARY, store(64, 1)),
        (0, LIBRARY, Op::Fence),
        (0, LIBRARY, store(128, 1)),
        (0, LIBRARY, Op::Fence),
        say(Annotation::LibraryLeave),
        call("pmemobj_free"), // 7: the library has changed something
        say(Annotation::LibraryLeave),
        call("pmemobj_persist"),
        (0, 1, store(0, 2)),
        call("pmemobj_flush"), // orders nothing
        call("pmemobj_drain"), // 12
    ];
    assert_eq!(
        points(&lines),
        [(1, Trigger::Call), (7, Trigger::Call), (12, Trigger::Call)]
    );
}

#[test]
fn what_a_library_stores_in_a_transaction_is_no_change() {
    let lines = [
        say(Annotation::TransactionBegin),
        (0, LIBRARY, store(64, 1)),
        call("pmemobj_tx_alloc"),
        (0, LIBRARY, store(128, 1)),
        (0, 1, store(0, 1)),
        call("pmemobj_tx_alloc"), // 5
        (1, LIBRARY, store(192, 1)),
        call("pmemobj_tx_alloc"), // 7: the other thread is in no transaction
        say(Annotation::TransactionEnd),
        (0, LIBRARY, store(64, 2)),
        (0, 1, Op::Fence), // 10
    ];
    assert_eq!(
        points(&lines),
        [(5, Trigger::Call), (7, Trigger::Call), (10, Trigger::Fence)]
    );
}

#[test]
fn creations_and_annotations_leave_points_out() {
    let lines = [
        say(Annotation::CreationBegin),
        (0, 1, store(0, 1)),
        (0, 1, Op::Fence),
        say(Annotation::CreationEnd),
        (0, 1, store(0, 2)),
        say(Annotation::SkipFailureBegin), // 5: what was stored is out of scope from here on
        (0, 1, Op::Fence),
        say(Annotation::SkipFailureEnd),
        (0, 1, Op::Fence),             // 8
        say(Annotation::FailurePoint), // 9: although nothing has changed
        (0, 1, Op::Fence),
    ];
    assert_eq!(
        points(&lines),
        [
            (5, Trigger::Annotation),
            (8, Trigger::Fence),
            (9, Trigger::Annotation)
        ]
    );
}
