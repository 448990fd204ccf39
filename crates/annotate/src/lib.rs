//! Annotations for powerfail: never needed, sometimes helpful.
//!
//! The functions of `powerfail.h` for programs in Rust. There is nothing to link and nothing to switch off: where
//! the program does not run under powerfail, each annotation is one test of an address, and on anything but
//! x86-64 Linux it is nothing at all. A program with annotations runs unchanged without powerfail.
//!
//! The workload is the stage *before* the failure, recovery the one *after* it. Annotations that make sense in
//! both take the [`Stage`] in which they are meant; in the other one they do nothing. Where the functions of C
//! have a condition, write `if`, or `condition.then(..)` where a region is returned.
//!
//! ```
//! use powerfail_annotate::{Stage, failure_point, operation, region_of_interest};
//!
//! # fn insert(_: u64) {}
//! fn workload() {
//!     let _region = region_of_interest(Stage::Before);
//!     for number in 0..10 {
//!         let operation = operation(number);
//!         insert(number);
//!         failure_point();
//!         operation.end();
//!     }
//! } // The region ends here.
//! # workload();
//! ```
//!
//! No `std`, no dependencies.

#![no_std]

mod guard;
mod pool;
mod weak;

pub use guard::{Interest, Operation, SkippedDetection, SkippedFailure};
pub use pool::{ROOTS, Registered, register_pool, root};

use weak::{Bytes, annotate};

/// When an annotation is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Stage {
    /// In the workload, before the failure.
    Before = 1,
    /// In recovery, after the failure.
    After = 2,
    /// In both.
    Both = 3,
}

/// Begins a region of interest, which ends when the value is dropped: where there is one, failure points and
/// findings outside of all of them are left out. A region applies to all threads, whichever thread begins it.
#[inline]
pub fn region_of_interest(stage: Stage) -> Interest {
    interest_begin(stage);
    Interest::new(stage)
}

/// Begins a region of interest that [`interest_end`] ends.
#[inline]
pub fn interest_begin(stage: Stage) {
    annotate(0x0200, 0, Bytes::NONE, Bytes::NONE, stage);
}

/// Ends a region of interest that [`interest_begin`] has begun.
#[inline]
pub fn interest_end(stage: Stage) {
    annotate(0x0201, 0, Bytes::NONE, Bytes::NONE, stage);
}

/// Nothing that follows is of interest. The process keeps running.
#[inline]
pub fn complete(stage: Stage) {
    annotate(0x0202, 0, Bytes::NONE, Bytes::NONE, stage);
}

/// No failure points of this thread until the value is dropped.
#[inline]
pub fn skip_failure() -> SkippedFailure {
    skip_failure_begin();
    SkippedFailure::new()
}

/// No failure points of this thread until [`skip_failure_end`]. It may nest.
#[inline]
pub fn skip_failure_begin() {
    annotate(0x0203, 0, Bytes::NONE, Bytes::NONE, Stage::Before);
}

/// Failure points again.
#[inline]
pub fn skip_failure_end() {
    annotate(0x0204, 0, Bytes::NONE, Bytes::NONE, Stage::Before);
}

/// No findings about what this thread stores (before the failure) or reads (after it) until the value is dropped.
#[inline]
pub fn skip_detection(stage: Stage) -> SkippedDetection {
    skip_detection_begin(stage);
    SkippedDetection::new(stage)
}

/// No findings about what this thread does until [`skip_detection_end`]. It may nest.
#[inline]
pub fn skip_detection_begin(stage: Stage) {
    annotate(0x0205, 0, Bytes::NONE, Bytes::NONE, stage);
}

/// Findings again.
#[inline]
pub fn skip_detection_end(stage: Stage) {
    annotate(0x0206, 0, Bytes::NONE, Bytes::NONE, stage);
}

/// A failure point here, whether or not there would be one; not where failure points are left out.
#[inline]
pub fn failure_point() {
    annotate(0x0207, 0, Bytes::NONE, Bytes::NONE, Stage::Before);
}

/// A mark with a number and bytes of your own, of which the first 1008 are kept: findings say between which marks they
/// lie.
#[inline]
pub fn mark(value: u64, payload: &[u8]) {
    annotate(
        0x0208,
        value,
        Bytes::of(payload),
        Bytes::NONE,
        Stage::Before,
    );
}

/// Begins an operation of the workload; [`Operation::end`] says that it is complete. With `--dump`, the content
/// after a crash must be that after the last operation that had ended, or that after the next one.
#[inline]
pub fn operation(number: u64) -> Operation {
    operation_begin(number);
    Operation::new(number)
}

/// Begins an operation of the workload that [`operation_end`] ends.
#[inline]
pub fn operation_begin(number: u64) {
    annotate(0x0209, number, Bytes::NONE, Bytes::NONE, Stage::Before);
}

/// An operation of the workload is complete.
#[inline]
pub fn operation_end(number: u64) {
    annotate(0x020a, number, Bytes::NONE, Bytes::NONE, Stage::Before);
}

/// A variable that decides whether other data is valid. Reads of it after a failure are not races. With no range,
/// the only commit variable decides about all persistent memory. Only its address is used.
#[inline]
pub fn commit_variable<T>(variable: *const T) {
    annotate(0x8210, 0, Bytes::at(variable), Bytes::NONE, Stage::Both);
}

/// Data that a commit variable decides about. Ranges of different variables must not overlap. Only addresses are
/// used; [`core::ptr::slice_from_raw_parts`] makes a range of an address and a number.
#[inline]
pub fn commit_range<V, T>(variable: *const V, range: *const [T]) {
    annotate(
        0x8211,
        0,
        Bytes::at(variable),
        Bytes::of(range),
        Stage::Both,
    );
}
