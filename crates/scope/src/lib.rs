//! What annotations of the program leave out: where the power may fail, and about what there are findings.
//!
//! Whoever passes over a trace feeds a [`Scope`] with its records and asks it at each moment. The rules:
//!
//! - **Regions of interest** are the whole program's: while any thread is inside one, all are. Where a trace has
//!   one, nothing outside of all of them counts. That there is one is known only when the first begins, so
//!   whoever follows a trace drops then what it has so far ([`Turn::FirstInterest`]).
//! - After **complete** nothing counts.
//! - **Skipping** failures or detection is a thread's: it concerns what this thread does until it ends it as
//!   often as it has begun it.
//! - While the **heap** of a thread writes for itself, no failure of the thread counts.
//! - A **failure point** of the program's own counts where others would.
//!
//! An end without a beginning is no end. Crashes are not findings about what was stored, so skipping
//! detection does not concern them.

use powerfail_model::ThreadIndex;
use powerfail_protocol::mark;
use powerfail_trace::{Body, MarkKind, Record};
use rustc_hash::FxHashMap;

/// See the module header.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Some annotation was met; else everything counts.
    is_used: bool,
    /// There is a region of interest in the trace.
    has_regions: bool,
    /// How many of them are open.
    regions: u64,
    is_complete: bool,
    /// How often each thread skips; never zero.
    skipped_failures: FxHashMap<ThreadIndex, u64>,
    skipped_detection: FxHashMap<ThreadIndex, u64>,
    /// Threads for which the heap writes what is its own.
    in_heap: FxHashMap<ThreadIndex, u64>,
}

/// What an annotation means for whoever looks for failure points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The first region of interest begins: nothing before it counts.
    FirstInterest,
    /// The program wants a failure point here, where one counts.
    FailurePoint,
    /// The program wants a failure point where none counts.
    LostFailurePoint,
    /// Failures of the annotation's thread counted up to here, and do not from here on.
    Closes,
}

impl Scope {
    /// Before the first record of a trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next record of the trace.
    pub fn push(&mut self, record: &Record<'_>) -> Option<Turn> {
        match &record.body {
            Body::Mark(mark) => match mark.kind {
                MarkKind::Annotation { code } => self.annotation(record.thread, code),
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

    /// An annotation of a thread, by its code.
    pub fn annotation(&mut self, thread: ThreadIndex, code: u32) -> Option<Turn> {
        let counted = self.admits_failure(thread);
        let is_first = code == mark::INTEREST_BEGIN && !self.has_regions;
        match code {
            mark::INTEREST_BEGIN => {
                self.has_regions = true;
                self.regions += 1;
            }
            mark::INTEREST_END => self.regions = self.regions.saturating_sub(1),
            mark::COMPLETE => self.is_complete = true,
            mark::SKIP_FAILURE_BEGIN => enter(&mut self.skipped_failures, thread),
            mark::SKIP_FAILURE_END => leave(&mut self.skipped_failures, thread),
            mark::SKIP_DETECTION_BEGIN => enter(&mut self.skipped_detection, thread),
            mark::SKIP_DETECTION_END => leave(&mut self.skipped_detection, thread),
            mark::HEAP_BEGIN => enter(&mut self.in_heap, thread),
            mark::HEAP_END => leave(&mut self.in_heap, thread),
            mark::FAILURE_POINT => {
                return Some(if counted {
                    Turn::FailurePoint
                } else {
                    Turn::LostFailurePoint
                });
            }
            _ => return None,
        }
        self.is_used = true;
        if is_first {
            Some(Turn::FirstInterest)
        } else {
            (counted && !self.admits_failure(thread)).then_some(Turn::Closes)
        }
    }

    /// Whether a failure counts just before the next event of a thread.
    pub fn admits_failure(&self, thread: ThreadIndex) -> bool {
        !self.is_used
            || self.is_of_interest()
                && !self.skipped_failures.contains_key(&thread)
                && !self.is_in_heap(thread)
    }

    /// Whether the heap writes for a thread what is its own. That no failure counts there is nothing that the
    /// program says, and nothing to tell anybody.
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
    use super::{Scope, Turn};
    use powerfail_model::{EventIndex, ThreadIndex};
    use powerfail_protocol::mark;
    use powerfail_trace::{Body, Record, StackId};

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
    fn the_heap_is_a_threads() {
        let mut scope = Scope::new();
        let closes = Some(Turn::Closes);
        assert_eq!(scope.annotation(ONE, mark::HEAP_BEGIN), closes);
        assert_eq!(admitted(&scope), [false, true, true, true]);
        assert!(scope.is_in_heap(ONE) && !scope.is_in_heap(TWO));
        assert!(scope.admits_failure_at_end());
        assert_eq!(scope.annotation(ONE, mark::HEAP_END), None);
        assert_eq!(admitted(&scope), [true; 4]);
    }

    #[test]
    fn regions_nest_and_are_everybodys() {
        let mut scope = Scope::new();
        assert_eq!(admitted(&scope), [true; 4]);
        let first = scope.annotation(ONE, mark::INTEREST_BEGIN);
        assert_eq!(first, Some(Turn::FirstInterest));
        assert_eq!(scope.annotation(TWO, mark::INTEREST_BEGIN), None);
        assert_eq!(scope.annotation(ONE, mark::INTEREST_END), None);
        assert_eq!(admitted(&scope), [true; 4]);
        let closes = Some(Turn::Closes);
        assert_eq!(scope.annotation(ONE, mark::INTEREST_END), closes);
        assert_eq!(admitted(&scope), [false; 4]);
        assert!(!scope.admits_failure_at_end());
        // One end too many is none.
        assert_eq!(scope.annotation(ONE, mark::INTEREST_END), None);
        assert_eq!(scope.annotation(TWO, mark::INTEREST_BEGIN), None);
        assert_eq!(admitted(&scope), [true; 4]);
    }

    #[test]
    fn an_end_alone_is_no_region() {
        let mut scope = Scope::new();
        assert_eq!(scope.annotation(ONE, mark::INTEREST_END), None);
        assert_eq!(scope.annotation(ONE, mark::SKIP_FAILURE_END), None);
        assert_eq!(admitted(&scope), [true; 4]);
    }

    #[test]
    fn skipping_is_a_threads_own_and_nests() {
        let mut scope = Scope::new();
        let closes = Some(Turn::Closes);
        assert_eq!(scope.annotation(ONE, mark::SKIP_FAILURE_BEGIN), closes);
        assert_eq!(scope.annotation(ONE, mark::SKIP_FAILURE_BEGIN), None);
        assert_eq!(scope.annotation(TWO, mark::SKIP_DETECTION_BEGIN), None);
        assert_eq!(admitted(&scope), [false, true, true, false]);
        assert!(!scope.admits_failure_at_end());
        scope.annotation(ONE, mark::SKIP_FAILURE_END);
        assert_eq!(admitted(&scope), [false, true, true, false]);
        scope.annotation(ONE, mark::SKIP_FAILURE_END);
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
        let point = |scope: &mut Scope| scope.annotation(ONE, mark::FAILURE_POINT);
        assert_eq!(point(&mut scope), Some(Turn::FailurePoint));
        scope.annotation(ONE, mark::SKIP_FAILURE_BEGIN);
        assert_eq!(point(&mut scope), Some(Turn::LostFailurePoint));
        scope.annotation(ONE, mark::SKIP_FAILURE_END);
        assert_eq!(point(&mut scope), Some(Turn::FailurePoint));
        assert_eq!(scope.annotation(TWO, mark::COMPLETE), Some(Turn::Closes));
        assert_eq!(point(&mut scope), Some(Turn::LostFailurePoint));
        assert_eq!(scope.annotation(TWO, mark::COMPLETE), None);
        assert_eq!(admitted(&scope), [false; 4]);
    }
}
