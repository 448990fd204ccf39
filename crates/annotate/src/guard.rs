//! Regions that end when they are dropped.

use core::marker::PhantomData;

use crate::{Stage, interest_end, operation_end, skip_detection_end, skip_failure_end};

/// Makes a guard stay in the thread that made it: skipping is a thread's own.
type OfOneThread = PhantomData<*const ()>;

/// A region of interest: see [`region_of_interest`](crate::region_of_interest).
#[derive(Debug)]
#[must_use = "the region ends when this is dropped"]
pub struct Interest {
    stage: Stage,
}

impl Interest {
    pub(crate) const fn new(stage: Stage) -> Self {
        Self { stage }
    }
}

impl Drop for Interest {
    #[inline]
    fn drop(&mut self) {
        interest_end(self.stage);
    }
}

/// No failure points: see [`skip_failure`](crate::skip_failure).
#[derive(Debug)]
#[must_use = "failure points are skipped until this is dropped"]
pub struct SkippedFailure {
    thread: OfOneThread,
}

impl SkippedFailure {
    pub(crate) const fn new() -> Self {
        Self {
            thread: PhantomData,
        }
    }
}

impl Drop for SkippedFailure {
    #[inline]
    fn drop(&mut self) {
        skip_failure_end();
    }
}

/// No findings: see [`skip_detection`](crate::skip_detection).
#[derive(Debug)]
#[must_use = "detection is skipped until this is dropped"]
pub struct SkippedDetection {
    stage: Stage,
    thread: OfOneThread,
}

impl SkippedDetection {
    pub(crate) const fn new(stage: Stage) -> Self {
        Self {
            stage,
            thread: PhantomData,
        }
    }
}

impl Drop for SkippedDetection {
    #[inline]
    fn drop(&mut self) {
        skip_detection_end(self.stage);
    }
}

/// An operation that is under way: see [`operation`](crate::operation). One that is dropped has not ended.
#[derive(Debug)]
#[must_use = "an operation ends when it says so"]
pub struct Operation {
    number: u64,
}

impl Operation {
    pub(crate) const fn new(number: u64) -> Self {
        Self { number }
    }

    /// It is complete: from here on a crash must not lose it.
    #[inline]
    pub fn end(self) {
        operation_end(self.number);
    }
}
