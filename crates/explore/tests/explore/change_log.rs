//! Changes between failure points of a trace, with and without a fill byte.

use powerfail_explore::lazy::ChangeLog;
use powerfail_model::{EventIndex, FlushKind, Rules, StoreKind};

use crate::common::{Line, Op, trace_of};

fn changed(lines: &[Line], fill: Option<u8>, points: &[u64]) -> Vec<Vec<u64>> {
    let points: Vec<EventIndex> = points.iter().copied().map(EventIndex).collect();
    let log = ChangeLog::of(&trace_of(lines), Rules::default(), fill, &points).unwrap();
    assert_eq!(log.point_count(), points.len());
    (0..points.len())
        .map(|point| {
            assert_eq!(log.at(point), points[point]);
            let changes = log.changes(point).iter();
            changes.map(|change| change.id.line.0).collect()
        })
        .collect()
}

fn store(offset: u64, value: u8) -> Line {
    (0, 1, Op::Store(StoreKind::Plain, offset, vec![value]))
}

fn flush(offset: u64) -> Line {
    (0, 1, Op::Flush(FlushKind::Clflush, offset))
}

#[test]
fn lines_change_when_something_else_can_be_there() {
    let lines = [
        store(0, 5),
        store(64, 0), // nothing new
        store(128, 5),
        flush(0),
        store(640, 1),
        flush(640), // no failure point since the store
        store(128, 0),
        store(128, 5), // the same two contents, and the same newest
        (0, 1, Op::ThreadEnd),
    ];
    let expected = [vec![0, 2], vec![0, 10], vec![]];
    assert_eq!(changed(&lines, None, &[3, 6, 8]), expected);
    assert_eq!(changed(&lines, None, &[0, 9]), [vec![], vec![0, 2, 10]]);
}

#[test]
fn a_fill_byte_makes_zeros_and_whole_pages_news() {
    let lines = [store(0, 5), store(64, 0), store(65, 0), flush(0)];
    let page: Vec<u64> = (0..64).collect();
    // The first touch fills the page; then one byte becomes zero, and then another.
    let expected = [page, vec![1], vec![1]];
    assert_eq!(changed(&lines, Some(0xaa), &[1, 2, 3]), expected);
    assert_eq!(changed(&lines, None, &[1, 2, 3]), [vec![0], vec![], vec![]]);
}
