//! The PM path of a recording. It has the same locations as an execution of the same test case.

use powerfail_model::{EventIndex, ThreadIndex};
use powerfail_protocol::fuzz::{CodePlace, ModuleHash, Operation, Path};
use powerfail_trace::{Body, Frame, MarkKind, StackId, Trace, TraceError};
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
    let hashes: Vec<ModuleHash> = trace
        .modules()
        .iter()
        .map(|module| ModuleHash::of_path(module.path.as_os_str().as_encoded_bytes()))
        .collect();
    let place = |frame: Frame| match frame {
        Frame::Module { module, offset } => CodePlace {
            module: hashes
                .get(module.0 as usize)
                .copied()
                .unwrap_or(ModuleHash::NONE),
            offset,
        },
        Frame::Absolute { address } => CodePlace {
            module: ModuleHash::NONE,
            offset: address,
        },
    };
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
            Operation::of_stack(trace.stack(record.stack).take(depth).map(place))
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
