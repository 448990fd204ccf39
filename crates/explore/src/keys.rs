//! Names of failure points that are the same in other traces of the program.
//!
//! A fuzzer checks many traces of one program and should not try a failure point again that was tried in another
//! trace. A failure point is named by the call stack of the event before which the power fails, and by the call stack
//! of the previous operation of the same thread (an operation on persistent memory, as in PM paths), and by the call stacks
//! of the stores that are not flushed yet, which a test case may have left out to flush. The same code on the same path does the
//! same, apart from the data, so a few tries of each name are worth more than many of one.

use powerfail_model::{Event, EventIndex, PoolIndex, StoreKind, ThreadIndex};
use powerfail_protocol::fuzz::{CodePlace, Operation};
use powerfail_trace::{Body, Result, StackId, Trace};
use rustc_hash::FxHashMap;

const LINE_BYTES: u64 = 64;

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
        let mut unflushed = Unflushed::default();
        let mut previous: FxHashMap<ThreadIndex, Operation> = FxHashMap::default();
        let mut last = Operation(0);
        let mut keys = Vec::with_capacity(usize::try_from(trace.event_count()).unwrap_or(0));
        let mut records = trace.records_from(EventIndex(0));
        while let Some(record) = records.next_record()? {
            let here = names.of(record.stack);
            let before = previous.get(&record.thread).copied();
            let before = unflushed.with(before.unwrap_or(Operation(0)));
            keys.push(PointKey(joined(here, before)));
            if let Body::Pm(event) = &record.body {
                unflushed.add(event, here);
            }
            if matches!(record.body, Body::Pm(_) | Body::Mark(_)) {
                previous.insert(record.thread, here);
                last = here;
            }
        }
        Ok(Self {
            keys,
            end: PointKey(joined(Operation(0), unflushed.with(last))),
        })
    }

    /// The name of the failure point just before an event, or at the end.
    pub fn at(&self, at: EventIndex) -> PointKey {
        let number = usize::try_from(at.0).unwrap_or(usize::MAX);
        self.keys.get(number).copied().unwrap_or(self.end)
    }
}

/// The stores that are not flushed yet, by the names of their call stacks.
#[derive(Default)]
struct Unflushed {
    /// The last store to each line.
    lines: FxHashMap<(PoolIndex, u64), Operation>,
    /// How many lines each call stack has.
    counts: FxHashMap<Operation, u64>,
    /// What stands for the call stacks that have some.
    digest: u32,
}

impl Unflushed {
    fn add(&mut self, event: &Event<'_>, here: Operation) {
        match event {
            Event::Store { kind, at, bytes } if *kind != StoreKind::NonTemporal => {
                let last = at.offset.0 + (bytes.len() as u64).saturating_sub(1);
                for line in at.offset.0 / LINE_BYTES..=last / LINE_BYTES {
                    let before = self.lines.insert((at.pool, line), here);
                    self.count(before, false);
                    self.count(Some(here), true);
                }
            }
            Event::Flush { at, .. } => {
                let before = self.lines.remove(&(at.pool, at.offset.0 / LINE_BYTES));
                self.count(before, false);
            }
            Event::Sync { .. } => *self = Self::default(),
            Event::Store { .. } | Event::Fence(_) | Event::Resize { .. } => {}
        }
    }

    fn count(&mut self, stack: Option<Operation>, is_added: bool) {
        let Some(stack) = stack else { return };
        let count = self.counts.entry(stack).or_default();
        let had = *count > 0;
        *count = if is_added {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
        if had != (*count > 0) {
            // Spreads the bits, so that the names of two stacks do not add up to that of a third one.
            self.digest ^= stack.0.wrapping_mul(0x9e37_79b1).rotate_left(15);
        }
    }

    /// The name of an operation, with these.
    const fn with(&self, operation: Operation) -> Operation {
        Operation(operation.0 ^ self.digest)
    }
}

fn joined(here: Operation, before: Operation) -> u64 {
    u64::from(here.0) << 32 | u64::from(before.0)
}
