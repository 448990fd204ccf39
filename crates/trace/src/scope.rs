//! What the program's annotations leave out: where the power may fail, and what findings may be about.
//!
//! A pass over a trace feeds a [`Scope`] with every record and asks it at each moment. The rules:
//!
//! - **Regions of interest** apply to the whole program: while any thread is inside one, all threads are. If a trace
//!   has a region, nothing outside all regions counts. A pass learns that only when the first region begins, so it
//!   must then drop everything it has collected ([`ScopeChange::FirstRegion`]).
//! - After **complete** nothing counts.
//! - **Skipping** failures or detection applies to one thread, until it has ended the skip as often as it has
//!   begun it.
//! - While the **heap** writes its own data on a thread, no failure of that thread counts.
//! - A **failure point** that the program asks for counts only where other failure points would.
//!
//! An end without a beginning has no effect. Skipping detection leaves out findings about stores; it does not leave
//! out crashes.

use powerfail_model::ThreadIndex;
use rustc_hash::FxHashMap;

use crate::annotation::Annotation;
use crate::record::{Body, MarkKind, Record};

/// Follows the annotations of a trace and says which failures and findings count.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The trace has annotations that leave something out; before the first of them everything counts.
    is_used: bool,
    /// The trace has a region of interest.
    has_regions: bool,
    /// How many regions of interest are open.
    regions: u64,
    is_complete: bool,
    /// How deep each thread's skips are nested; never zero.
    skipped_failures: FxHashMap<ThreadIndex, u64>,
    skipped_detection: FxHashMap<ThreadIndex, u64>,
    /// Threads on which the heap writes its own data.
    in_heap: FxHashMap<ThreadIndex, u64>,
}

/// What an annotation means for a pass that looks for failure points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeChange {
    /// The first region of interest begins: nothing before it counts.
    FirstRegion,
    /// The program asks for a failure point here, and it counts.
    FailurePoint,
    /// The program asks for a failure point here, but none counts.
    SkippedFailurePoint,
    /// Failures of the annotation's thread have counted up to here, and do not from here on.
    Closed,
}

impl Scope {
    /// Before the first record of a trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves over the next record of the trace.
    pub fn push(&mut self, record: &Record<'_>) -> Option<ScopeChange> {
        match &record.body {
            Body::Mark(mark) => match mark.kind {
                MarkKind::Annotation(annotation) => self.annotation(record.thread, annotation),
                _ => None,
            },
            Body::ThreadEnd => {
                self.skipped_failures.remove(&record.thread);
                self.skipped_detection.remove(&record.thread);
                self.in_heap.remove(&record.thread);
                None
            }
            _ => None,
        }
    }

    /// Applies an annotation of a thread.
    fn annotation(&mut self, thread: ThreadIndex, annotation: Annotation) -> Option<ScopeChange> {
        let counted = self.admits_failure(thread);
        let is_first = annotation == Annotation::InterestBegin && !self.has_regions;
        match annotation {
            Annotation::InterestBegin => {
                self.has_regions = true;
                self.regions += 1;
            }
            Annotation::InterestEnd => self.regions = self.regions.saturating_sub(1),
            Annotation::Complete => self.is_complete = true,
            Annotation::SkipFailureBegin => enter(&mut self.skipped_failures, thread),
            Annotation::SkipFailureEnd => leave(&mut self.skipped_failures, thread),
            Annotation::SkipDetectionBegin => enter(&mut self.skipped_detection, thread),
            Annotation::SkipDetectionEnd => leave(&mut self.skipped_detection, thread),
            Annotation::HeapBegin => enter(&mut self.in_heap, thread),
            Annotation::HeapEnd => leave(&mut self.in_heap, thread),
            Annotation::FailurePoint => {
                return Some(if counted {
                    ScopeChange::FailurePoint
                } else {
                    ScopeChange::SkippedFailurePoint
                });
            }
            _ => return None,
        }
        self.is_used = true;
        if is_first {
            Some(ScopeChange::FirstRegion)
        } else {
            (counted && !self.admits_failure(thread)).then_some(ScopeChange::Closed)
        }
    }

    /// Whether a failure counts just before the next event of a thread.
    pub fn admits_failure(&self, thread: ThreadIndex) -> bool {
        !self.is_used
            || self.is_of_interest()
                && !self.skipped_failures.contains_key(&thread)
                && !self.is_in_heap(thread)
    }

    /// Whether the heap writes its own data on a thread. Failures left out there are not the program's choice, so
    /// they are not reported as left out.
    pub fn is_in_heap(&self, thread: ThreadIndex) -> bool {
        self.in_heap.contains_key(&thread)
    }

    /// Whether a failure counts at the end of the trace, if that is here.
    pub fn admits_failure_at_end(&self) -> bool {
        !self.is_used || self.is_of_interest() && self.skipped_failures.is_empty()
    }

    /// Whether findings count about what a thread does now.
    #[inline]
    pub fn admits_findings(&self, thread: ThreadIndex) -> bool {
        !self.is_used || self.is_of_interest() && !self.skipped_detection.contains_key(&thread)
    }

    fn is_of_interest(&self) -> bool {
        !self.is_complete && (!self.has_regions || self.regions > 0)
    }
}

fn enter(depths: &mut FxHashMap<ThreadIndex, u64>, thread: ThreadIndex) {
    *depths.entry(thread).or_default() += 1;
}

fn leave(depths: &mut FxHashMap<ThreadIndex, u64>, thread: ThreadIndex) {
    if let Some(depth) = depths.get_mut(&thread) {
        *depth -= 1;
        if *depth == 0 {
            depths.remove(&thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Scope, ScopeChange};
    use powerfail_model::{EventIndex, ThreadIndex};

    use crate::annotation::Annotation;
    use crate::definition::StackId;
    use crate::record::{Body, Record};

    const ONE: ThreadIndex = ThreadIndex(1);
    const TWO: ThreadIndex = ThreadIndex(2);

    /// Failures and findings of two threads.
    fn admitted(scope: &Scope) -> [bool; 4] {
        [
            scope.admits_failure(ONE),
            scope.admits_failure(TWO),
            scope.admits_findings(ONE),
            scope.admits_findings(TWO),
        ]
    }

    #[test]
    fn the_heap_is_of_one_thread() {
        let mut scope = Scope::new();
        let closes = Some(ScopeChange::Closed);
        assert_eq!(scope.annotation(ONE, Annotation::HeapBegin), closes);
        assert_eq!(admitted(&scope), [false, true, true, true]);
        assert!(scope.is_in_heap(ONE) && !scope.is_in_heap(TWO));
        assert!(scope.admits_failure_at_end());
        assert_eq!(scope.annotation(ONE, Annotation::HeapEnd), None);
        assert_eq!(admitted(&scope), [true; 4]);
    }

    #[test]
    fn regions_nest_and_apply_to_all_threads() {
        let mut scope = Scope::new();
        assert_eq!(admitted(&scope), [true; 4]);
        let first = scope.annotation(ONE, Annotation::InterestBegin);
        assert_eq!(first, Some(ScopeChange::FirstRegion));
        assert_eq!(scope.annotation(TWO, Annotation::InterestBegin), None);
        assert_eq!(scope.annotation(ONE, Annotation::InterestEnd), None);
        assert_eq!(admitted(&scope), [true; 4]);
        let closes = Some(ScopeChange::Closed);
        assert_eq!(scope.annotation(ONE, Annotation::InterestEnd), closes);
        assert_eq!(admitted(&scope), [false; 4]);
        assert!(!scope.admits_failure_at_end());
        // One end too many has no effect.
        assert_eq!(scope.annotation(ONE, Annotation::InterestEnd), None);
        assert_eq!(scope.annotation(TWO, Annotation::InterestBegin), None);
        assert_eq!(admitted(&scope), [true; 4]);
    }

    #[test]
    fn an_end_alone_is_no_region() {
        let mut scope = Scope::new();
        assert_eq!(scope.annotation(ONE, Annotation::InterestEnd), None);
        assert_eq!(scope.annotation(ONE, Annotation::SkipFailureEnd), None);
        assert_eq!(admitted(&scope), [true; 4]);
    }

    #[test]
    fn skipping_is_a_threads_own_and_nests() {
        let mut scope = Scope::new();
        let closes = Some(ScopeChange::Closed);
        assert_eq!(scope.annotation(ONE, Annotation::SkipFailureBegin), closes);
        assert_eq!(scope.annotation(ONE, Annotation::SkipFailureBegin), None);
        assert_eq!(scope.annotation(TWO, Annotation::SkipDetectionBegin), None);
        assert_eq!(admitted(&scope), [false, true, true, false]);
        assert!(!scope.admits_failure_at_end());
        scope.annotation(ONE, Annotation::SkipFailureEnd);
        assert_eq!(admitted(&scope), [false, true, true, false]);
        scope.annotation(ONE, Annotation::SkipFailureEnd);
        assert!(scope.admits_failure_at_end());
        assert_eq!(admitted(&scope), [true, true, true, false]);
        let end = Record {
            index: EventIndex(9),
            thread: TWO,
            stack: StackId::NONE,
            body: Body::ThreadEnd,
        };
        scope.push(&end);
        assert_eq!(admitted(&scope), [true; 4]);
    }

    #[test]
    fn a_failure_point_counts_where_others_do() {
        let mut scope = Scope::new();
        let point = |scope: &mut Scope| scope.annotation(ONE, Annotation::FailurePoint);
        assert_eq!(point(&mut scope), Some(ScopeChange::FailurePoint));
        scope.annotation(ONE, Annotation::SkipFailureBegin);
        assert_eq!(point(&mut scope), Some(ScopeChange::SkippedFailurePoint));
        scope.annotation(ONE, Annotation::SkipFailureEnd);
        assert_eq!(point(&mut scope), Some(ScopeChange::FailurePoint));
        assert_eq!(
            scope.annotation(TWO, Annotation::Complete),
            Some(ScopeChange::Closed)
        );
        assert_eq!(point(&mut scope), Some(ScopeChange::SkippedFailurePoint));
        assert_eq!(scope.annotation(TWO, Annotation::Complete), None);
        assert_eq!(admitted(&scope), [false; 4]);
    }
}
