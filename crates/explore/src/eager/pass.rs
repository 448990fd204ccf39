//! One forward pass over a trace that stops at the end of each segment.

use powerfail_model::{Event, EventIndex, Image, Step, ThreadIndex};
use powerfail_trace::{Record, RecordCursor, Result, StackId, Trace};
use powerfail_trace::{Scope, ScopeChange};

use super::creation_spans::CreationSpans;
use super::open_versions::{OpenVersions, PassOptions};

/// Where a pass stands: at the end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its number, from zero.
    pub(crate) number: usize,
    /// The power fails just before this event.
    pub(crate) at: EventIndex,
    /// The call stack of that event; none at the end of the trace.
    pub(crate) stack: StackId,
    /// Whether annotations of the program let a failure count here, as far as they are known yet.
    pub(crate) in_scope: bool,
    /// Whether it ends where the heap of the program writes what is its own.
    pub(crate) in_heap: bool,
}

/// A forward pass over a trace that stops at the end of each segment.
pub(crate) struct SegmentPass<'t, I> {
    trace: &'t Trace,
    records: RecordCursor<'t>,
    /// The event at which the pass stopped: it is not applied yet.
    held: Option<Held>,
    pub(crate) open: OpenVersions<I>,
    pub(crate) creation: CreationSpans,
    scope: Scope,
    /// The number of the first segment that ends after a region of interest began.
    first_of_interest: Option<usize>,
    next_number: usize,
    is_over: bool,
}

/// A record that outlives its block.
#[derive(Debug)]
struct Held {
    index: EventIndex,
    thread: ThreadIndex,
    stack: StackId,
    /// Without the bytes of a store.
    event: Event<'static>,
    bytes: Vec<u8>,
}

impl Held {
    fn of(record: &Record<'_>, step: &Step<'_>) -> Self {
        let mut held = Self {
            index: step.index,
            thread: step.thread,
            stack: record.stack,
            event: Event::Fence(powerfail_model::FenceKind::Sfence),
            bytes: Vec::new(),
        };
        held.event = match step.event {
            Event::Store { kind, at, bytes } => {
                held.bytes.extend_from_slice(bytes);
                Event::Store {
                    kind,
                    at,
                    bytes: &[],
                }
            }
            Event::Flush { kind, at } => Event::Flush { kind, at },
            Event::Fence(kind) => Event::Fence(kind),
            Event::Sync {
                pool,
                offset,
                len_bytes,
            } => Event::Sync {
                pool,
                offset,
                len_bytes,
            },
            Event::Resize { pool, len_bytes } => Event::Resize { pool, len_bytes },
        };
        held
    }

    fn step(&self) -> Step<'_> {
        let event = match self.event {
            Event::Store { kind, at, .. } => Event::Store {
                kind,
                at,
                bytes: &self.bytes,
            },
            other => other,
        };
        Step {
            index: self.index,
            thread: self.thread,
            event,
        }
    }
}

impl<'t, I: Image> SegmentPass<'t, I> {
    /// Before the first event of a trace; `image` has the pools as they were then.
    pub(crate) fn new(trace: &'t Trace, image: I, options: PassOptions) -> Self {
        let len_bytes = trace.pools().iter().map(|pool| pool.len_bytes).collect();
        Self {
            trace,
            records: trace.records_from(EventIndex(0)),
            held: None,
            open: OpenVersions::new(image, len_bytes, options),
            creation: CreationSpans::default(),
            scope: Scope::new(),
            first_of_interest: None,
            next_number: 0,
            is_over: false,
        }
    }

    /// Moves to the end of the next segment; nothing after the last one.
    pub(crate) fn next_segment(&mut self) -> Result<Option<Segment>> {
        if self.is_over {
            return Ok(None);
        }
        if let Some(held) = self.held.take() {
            self.open.apply(&held.step(), held.stack);
        }
        while let Some(record) = self.records.next_record()? {
            self.creation.push(&record);
            let (at, stack) = (record.index, record.stack);
            let ends = match self.scope.push(&record) {
                None => None,
                Some(ScopeChange::FirstRegion) => {
                    self.first_of_interest = Some(self.next_number);
                    None
                }
                Some(ScopeChange::FailurePoint) => Some(true),
                Some(ScopeChange::SkippedFailurePoint) => Some(false),
                // The end of the segment is out of scope; its beginning was not.
                Some(ScopeChange::Closed) => self.open.may_lose().then_some(true),
            };
            if let Some(in_scope) = ends {
                return Ok(Some(self.stop(at, stack, in_scope)));
            }
            let Some(step) = record.step() else { continue };
            if self.open.ends_segment(Some(&step)) {
                self.held = Some(Held::of(&record, &step));
                let in_scope = self.scope.admits_failure(record.thread);
                let in_heap = self.scope.is_in_heap(record.thread);
                let segment = self.stop(at, stack, in_scope);
                return Ok(Some(Segment { in_heap, ..segment }));
            }
            self.open.apply(&step, record.stack);
        }
        self.is_over = true;
        if !self.open.ends_segment(None) {
            return Ok(None);
        }
        let end = EventIndex(self.trace.event_count());
        let in_scope = self.scope.admits_failure_at_end();
        Ok(Some(self.stop(end, StackId::NONE, in_scope)))
    }

    /// The number of the first segment that ends after a region of interest began: those before it are out of
    /// scope, whatever was said of them.
    pub(crate) const fn first_of_interest(&self) -> Option<usize> {
        self.first_of_interest
    }

    fn stop(&mut self, at: EventIndex, stack: StackId, in_scope: bool) -> Segment {
        self.open.settle();
        let number = self.next_number;
        self.next_number += 1;
        Segment {
            number,
            at,
            stack,
            in_scope,
            in_heap: false,
        }
    }
}
