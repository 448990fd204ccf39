//! Failure points before ordering points, for the races analysis.
//!
//! The rule is that of `XFDetector` (section 4.2 of its paper): data can become consistent at an ordering point
//! only, so it is enough to look just before each, if persistent memory was changed since the one before. An ordering
//! point is a fence, a locked operation, a clflush of a line that is not durable, a sync, and a call of a library
//! that orders what it stores.
//!
//! What a trusted library does inside of such a call has no failure points of its own. Its stores count as changes
//! only outside of transactions: inside of one, rollback undoes them.
//!
//! Deviations: (1) a flush that makes nothing durable is not a change, because recovery would read the same and it
//! would mean the same; (2) the end of the trace is a failure point, so that stores are seen that no ordering
//! point follows; (3) where only syncs make stores durable, fences order nothing.

use powerfail_model::{
    Domain, Event, FlushKind, Frontier, LineId, LineIndex, Place, Rules, StoreKind, ThreadIndex,
};
use powerfail_protocol::mark::orders;
use powerfail_trace::{Annotation, Body, MarkKind, Record};
use rustc_hash::FxHashSet;

use crate::point::Trigger;

/// Finds the ordering points of a trace, record by record.
#[derive(Debug)]
pub(crate) struct OrderingPoints {
    /// What is durable matters here, and not what it holds.
    frontier: Frontier<()>,
    in_transaction: FxHashSet<ThreadIndex>,
    is_changed: bool,
}

impl OrderingPoints {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            frontier: Frontier::new(rules, ()),
            in_transaction: FxHashSet::default(),
            is_changed: false,
        }
    }

    /// Whether persistent memory was changed since the last failure point.
    pub(crate) const fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The moment was taken as a failure point.
    pub(crate) const fn take(&mut self) {
        self.is_changed = false;
    }

    /// What the next record is, if the moment before it is a failure point. `is_own` says that it is a trusted
    /// library's own business.
    pub(crate) fn trigger(&self, record: &Record<'_>, is_own: bool) -> Option<Trigger> {
        if !self.is_changed || is_own {
            return None;
        }
        let fences_order = self.frontier.rules().domain != Domain::PageCache;
        match &record.body {
            Body::Pm(event) => {
                let is_point = match *event {
                    Event::Fence(_) => fences_order,
                    Event::Store { kind, .. } => kind == StoreKind::Locked && fences_order,
                    Event::Sync { .. } => true,
                    Event::Flush { kind, at } => self.makes_durable(kind, at),
                    Event::Resize { .. } => false,
                };
                is_point.then(|| Trigger::of(event))
            }
            Body::Mark(mark) => {
                let call = MarkKind::Annotation(Annotation::LibraryEnter);
                (mark.kind == call && orders(mark.value)).then_some(Trigger::Call)
            }
            _ => None,
        }
    }

    /// Moves over a record.
    pub(crate) fn apply(&mut self, record: &Record<'_>, is_own: bool) {
        match &record.body {
            Body::Pm(event) => {
                self.is_changed |= match *event {
                    Event::Store { bytes, .. } => {
                        let is_undone = is_own && self.in_transaction.contains(&record.thread);
                        !bytes.is_empty() && !is_undone
                    }
                    Event::Resize { .. } => true,
                    Event::Flush { kind, at } => !is_own && self.makes_durable(kind, at),
                    Event::Fence(_) | Event::Sync { .. } => false,
                };
                if let Some(step) = record.step() {
                    self.frontier.apply(&step);
                }
            }
            Body::Mark(mark) => match mark.kind {
                MarkKind::Annotation(Annotation::TransactionBegin) => {
                    self.in_transaction.insert(record.thread);
                }
                MarkKind::Annotation(Annotation::TransactionEnd) => {
                    self.in_transaction.remove(&record.thread);
                }
                _ => {}
            },
            Body::ThreadEnd => {
                self.in_transaction.remove(&record.thread);
            }
            _ => {}
        }
    }

    fn makes_durable(&self, kind: FlushKind, at: Place) -> bool {
        let domain = self.frontier.rules().domain;
        let line = LineId {
            pool: at.pool,
            line: LineIndex(at.offset.0 / domain.line_bytes() as u64),
        };
        kind == FlushKind::Clflush
            && domain == Domain::Adr
            && self.frontier.open_line(line).is_some()
    }
}
