//! When a pool was being created, as spans of events.
//!
//! The rule is that of [`crate::creation`]: while any thread is inside a function that creates a pool,
//! and does come out of it, power failures do not count.

use powerfail_model::{EventIndex, ThreadIndex};
use powerfail_trace::{Annotation, Body, MarkKind, Record};
use rustc_hash::FxHashMap;

/// The spans of events in which a pool was being created.
#[derive(Clone, Debug, Default)]
pub(crate) struct CreationSpans {
    depths: FxHashMap<ThreadIndex, u32>,
    begun: EventIndex,
    /// The mark at the begin and the mark at the end of each; in order, and apart.
    spans: Vec<(EventIndex, EventIndex)>,
}

impl CreationSpans {
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        match &record.body {
            Body::Mark(mark) => match mark.kind {
                MarkKind::Annotation(Annotation::CreationBegin) => {
                    if self.depths.is_empty() {
                        self.begun = record.index;
                    }
                    *self.depths.entry(record.thread).or_default() += 1;
                }
                MarkKind::Annotation(Annotation::CreationEnd) => {
                    let Some(depth) = self.depths.get_mut(&record.thread) else {
                        return;
                    };
                    *depth -= 1;
                    if *depth == 0 {
                        self.depths.remove(&record.thread);
                    }
                    if self.depths.is_empty() {
                        self.spans.push((self.begun, record.index));
                    }
                }
                _ => {}
            },
            // What it was creating stays half-made: nothing is left out for it.
            Body::ThreadEnd => {
                self.depths.remove(&record.thread);
            }
            _ => {}
        }
    }

    /// Whether a pool is being created where the pass stands.
    pub(crate) fn is_open(&self) -> bool {
        !self.depths.is_empty()
    }

    /// Whether a pool was being created just before an event.
    pub(crate) fn contains(&self, at: EventIndex) -> bool {
        let after = self.spans.partition_point(|(_, end)| *end < at);
        self.spans.get(after).is_some_and(|(begin, _)| *begin < at)
    }
}
