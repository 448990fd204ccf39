//! Recordings of one workload are distinguished by the order of their threads' events.

use powerfail_explore::Interleaving;
use powerfail_model::FlushKind;
use powerfail_trace::Annotation;

use crate::common::{Line, Op, store, trace_of};

fn of(lines: &[Line]) -> Interleaving {
    Interleaving::of(&trace_of(lines)).unwrap()
}

/// Two threads that each store to one location and flush it.
fn lines() -> Vec<Line> {
    vec![
        (0, 1, store(0, 1)),
        (1, 2, store(64, 1)),
        (0, 3, Op::Flush(FlushKind::Clwb, 0)),
        (1, 4, Op::Flush(FlushKind::Clwb, 64)),
        (0, 5, Op::Fence),
    ]
}

#[test]
fn values_and_numbers_of_threads_do_not_count() {
    let usual = of(&lines());
    let mut other = lines();
    other[0].2 = store(0, 9);
    for line in &mut other {
        line.0 = 2 - line.0;
    }
    assert_eq!(of(&other), usual);
}

#[test]
fn order_thread_place_code_and_kind_count() {
    let mut seen = vec![of(&lines()).digest];
    let changes: [fn(&mut Vec<Line>); 7] = [
        |lines| lines.swap(1, 2),
        |lines| lines.swap(0, 1),
        |lines| lines[3].0 = 0,
        |lines| lines[1].2 = store(72, 1),
        |lines| lines[1].1 = 3,
        |lines| lines[3].2 = Op::Flush(FlushKind::Clflush, 64),
        |lines| lines.truncate(4),
    ];
    for change in changes {
        let mut other = lines();
        change(&mut other);
        seen.push(of(&other).digest);
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

#[test]
fn what_is_no_operation_does_not_count() {
    let mut other = lines();
    other.insert(2, (1, 1, Op::Annotation(Annotation::Other(7))));
    other.push((1, 0, Op::ThreadEnd));
    assert_eq!(of(&other), of(&lines()));
}
