//! Names of failure points that are the same in other traces of the program.
//!
//! A fuzzer checks many traces of one program and should not try a failure point again that was tried in another
//! trace. A failure point is named by the call stack of the event before which the power fails, and by the call stack
//! of the previous operation of the same thread (an operation on persistent memory, as in PM paths). The same code on
//! the same path does the same, apart from the data, so a few tries of each name are worth more than many of one.

use powerfail_model::{EventIndex, ThreadIndex};
use powerfail_protocol::fuzz::{CodePlace, Operation};
use powerfail_trace::{Body, Result, StackId, Trace};
use rustc_hash::FxHashMap;

/// The name of a failure point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PointKey(pub u64);

impl PointKey {
    /// The name of the call stack at the failure point, without the previous operation.
    pub const fn stack(self) -> Operation {
        Operation((self.0 >> 32) as u32)
    }
}

/// Names the call stacks of a trace so that the same stack has the same name in other traces of the program.
#[derive(Debug)]
pub struct StackNames<'t> {
    trace: &'t Trace,
    names: FxHashMap<StackId, Operation>,
}

impl<'t> StackNames<'t> {
    /// For a trace.
    pub fn new(trace: &'t Trace) -> Self {
        Self {
            trace,
            names: FxHashMap::default(),
        }
    }

    /// The name of a call stack.
    pub fn of(&mut self, stack: StackId) -> Operation {
        let trace = self.trace;
        *self.names.entry(stack).or_insert_with(|| {
            let places = trace.code_places(stack);
            Operation::of_stack(places.map(|(path, offset)| CodePlace::new(path, offset)))
        })
    }

    /// The name of the innermost frame of a call stack alone.
    pub fn of_site(&self, stack: StackId) -> Operation {
        let site = self.trace.code_places(stack).take(1);
        Operation::of_stack(site.map(|(path, offset)| CodePlace::new(path, offset)))
    }
}

/// The names of all failure points of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointKeys {
    keys: Vec<PointKey>,
    end: PointKey,
}

impl PointKeys {
    /// One pass over a trace.
    pub fn of(trace: &Trace) -> Result<Self> {
        let mut names = StackNames::new(trace);
        let mut previous: FxHashMap<ThreadIndex, Operation> = FxHashMap::default();
        let mut last = Operation(0);
        let mut keys = Vec::with_capacity(usize::try_from(trace.event_count()).unwrap_or(0));
        let mut records = trace.records_from(EventIndex(0));
        while let Some(record) = records.next_record()? {
            let here = names.of(record.stack);
            let before = previous.get(&record.thread).copied();
            keys.push(PointKey(joined(here, before.unwrap_or(Operation(0)))));
            if matches!(record.body, Body::Pm(_) | Body::Mark(_)) {
                previous.insert(record.thread, here);
                last = here;
            }
        }
        Ok(Self {
            keys,
            end: PointKey(joined(Operation(0), last)),
        })
    }

    /// The name of the failure point just before an event, or at the end.
    pub fn at(&self, at: EventIndex) -> PointKey {
        let number = usize::try_from(at.0).unwrap_or(usize::MAX);
        self.keys.get(number).copied().unwrap_or(self.end)
    }
}

fn joined(here: Operation, before: Operation) -> u64 {
    u64::from(here.0) << 32 | u64::from(before.0)
}
