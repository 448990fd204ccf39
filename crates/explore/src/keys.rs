//! Names of failure points that stay: the same moment of the same program in another trace has the same.
//!
//! Whoever checks many traces of one program does not try again what was tried. A moment is named by the call
//! stack of the event before which the power fails, and by that of the operation which its thread did before:
//! an operation on persistent memory, as PM paths see it. The same code on the same path does the same, up to
//! what the data is; so a few tries of each name are worth more than many of one.

use powerfail_model::{EventIndex, ThreadIndex};
use powerfail_protocol::fuzz::{CodePlace, ModuleHash, Operation};
use powerfail_trace::{Body, Frame, Result, StackId, Trace};
use rustc_hash::FxHashMap;

/// Names a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PointKey(pub u64);

/// Call stacks of a trace, by names that stay.
#[derive(Debug)]
pub struct StackNames<'t> {
    trace: &'t Trace,
    modules: Vec<ModuleHash>,
    known: FxHashMap<StackId, Operation>,
}

impl<'t> StackNames<'t> {
    /// For a trace.
    pub fn new(trace: &'t Trace) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let modules = trace.modules().iter();
        Self {
            trace,
            modules: modules
                .map(|module| ModuleHash::of_path(module.path.as_os_str().as_bytes()))
                .collect(),
            known: FxHashMap::default(),
        }
    }

    /// The name of a call stack.
    pub fn of(&mut self, stack: StackId) -> Operation {
        if let Some(known) = self.known.get(&stack) {
            return *known;
        }
        let places = self.trace.stack(stack).map(|frame| self.place(frame));
        let name = Operation::of_stack(places);
        self.known.insert(stack, name);
        name
    }

    /// The name of the innermost frame of a call stack alone.
    pub fn of_site(&self, stack: StackId) -> Operation {
        let site = self.trace.stack(stack).take(1);
        Operation::of_stack(site.map(|frame| self.place(frame)))
    }

    fn place(&self, frame: Frame) -> CodePlace {
        match frame {
            Frame::Module { module, offset } => CodePlace {
                module: self
                    .modules
                    .get(module.0 as usize)
                    .copied()
                    .unwrap_or(ModuleHash::NONE),
                offset,
            },
            Frame::Absolute { address } => CodePlace {
                module: ModuleHash::NONE,
                offset: address,
            },
        }
    }
}

/// The names of all moments of a trace.
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

    /// The name of the moment just before an event, or of the end.
    pub fn at(&self, at: EventIndex) -> PointKey {
        let number = usize::try_from(at.0).unwrap_or(usize::MAX);
        self.keys.get(number).copied().unwrap_or(self.end)
    }
}

fn joined(here: Operation, before: Operation) -> u64 {
    u64::from(here.0) << 32 | u64::from(before.0)
}
