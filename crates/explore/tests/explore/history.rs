//! Since when content has been durable in a trace.

use powerfail_explore::lazy::History;
use powerfail_model::{EventIndex, FlushKind, LineId, Rules, SparseImage, StoreKind};
use powerfail_protocol::observe::ByteSet;

use crate::common::{Line, Op, trace_of};

fn store(offset: u64, value: u8) -> Line {
    (0, 1, Op::Store(StoreKind::Plain, offset, vec![value]))
}

#[test]
fn only_sure_stores_to_the_same_words_count() {
    let flush: Line = (0, 1, Op::Flush(FlushKind::Clflush, 0));
    let mut lines = vec![
        store(0, 1),
        store(8, 1),
        flush.clone(),
        store(0, 2),
        store(0, 2), // changes nothing
        flush.clone(),
        store(8, 3),
    ];
    for value in 10..60 {
        lines.extend([store(16, value), store(0, 2), flush.clone()]);
    }
    let trace = trace_of(&lines);
    let mut records = trace.records_from(EventIndex(0));
    let mut history = History::new(Rules::default(), SparseImage::new());
    let mut since = |at: u64, byte: usize| {
        history.move_to(&mut records, EventIndex(at)).unwrap();
        let bytes = ByteSet::range(byte, byte + 1);
        let event = history.durable_since(LineId::default(), &bytes);
        event.map(|event| event.0)
    };
    assert_eq!(since(2, 0), None, "not sure yet");
    assert_eq!(since(3, 0), Some(0));
    assert_eq!(since(3, 8), Some(1));
    assert_eq!(since(5, 0), Some(0));
    assert_eq!(since(6, 0), Some(3));
    assert_eq!(since(7, 8), Some(1));
    assert_eq!(since(10, 8), Some(6));
    let last = lines.len() as u64;
    assert_eq!(since(last - 1, 16), Some(last - 6));
    assert_eq!(since(last, 16), Some(last - 3));
    assert_eq!(since(last, 0), Some(3));
    assert_eq!(since(last, 32), None);
}
