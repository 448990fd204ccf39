//! The PM path of a recording. It has the same locations as an execution of the same test case.

use powerfail_model::{EventIndex, ThreadIndex};
use powerfail_protocol::fuzz::{CodePlace, Operation, Path};
use powerfail_trace::{Body, MarkKind, StackId, Trace, TraceError};
use rustc_hash::FxHashMap;

/// A location of a PM path, and the event at which it was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLocation {
    /// The event.
    pub event: EventIndex,
    /// Its thread.
    pub thread: ThreadIndex,
    /// The location: an index in a map.
    pub location: u32,
}

/// Calls `found` with the locations of a trace, in order. `stacks`: whether an operation is identified by its whole call
/// stack.
///
/// # Errors
/// The trace cannot be read.
pub fn locations_of(
    trace: &Trace,
    stacks: bool,
    mut found: impl FnMut(TraceLocation),
) -> Result<(), TraceError> {
    let depth = if stacks { usize::MAX } else { 1 };
    let mut operations: FxHashMap<StackId, Operation> = FxHashMap::default();
    let mut paths: FxHashMap<ThreadIndex, Path> = FxHashMap::default();
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        let is_operation = match record.body {
            Body::Pm(_) => true,
            Body::Mark(mark) => !matches!(mark.kind, MarkKind::Output { .. }),
            _ => false,
        };
        if !is_operation || record.stack.is_none() {
            continue;
        }
        let operation = *operations.entry(record.stack).or_insert_with(|| {
            let places = trace.code_places(record.stack).take(depth);
            Operation::of_stack(places.map(|(path, offset)| CodePlace::new(path, offset)))
        });
        let location = paths.entry(record.thread).or_default().step(operation) as u32;
        found(TraceLocation {
            event: record.index,
            thread: record.thread,
            location,
        });
    }
    Ok(())
}
