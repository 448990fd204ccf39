//! Events that annotations exclude from the lint.

use crate::common::{Script, summary};
use powerfail_finding::Code;
use powerfail_lint::{LintOptions, NoSymbols, lint, lint_while};
use powerfail_trace::Annotation;

type Found = Vec<(Code, Vec<u64>, u64)>;

/// The number of stores, flushes and fences in [`bugs`].
const EVENTS: u64 = 15;

/// A bug of each kind, on lines of the program and of the pool that start at a number.
fn bugs(script: &mut Script, line: u64) -> &mut Script {
    let at = 64 * line;
    script
        // Overwritten before it was flushed, in a line that is flushed later.
        .line(line)
        .store(at, 1)
        .line(line + 1)
        .store(at, 2)
        .line(line + 2)
        .clwb(at)
        // One fence for two flushes.
        .line(line + 3)
        .store(at + 64, 1)
        .clwb(at + 64)
        .line(line + 4)
        .sfence()
        // Nothing to wait for, nothing to write back.
        .line(line + 5)
        .sfence()
        .line(line + 6)
        .clwb(at)
        .sfence()
        // One flush for two lines of code.
        .line(line + 7)
        .store(at + 128, 1)
        .line(line + 8)
        .store(at + 136, 1)
        .line(line + 9)
        .clwb(at + 128)
        // Never fenced, and never flushed.
        .line(line + 3)
        .store(at + 64, 3)
        .clwb(at + 64)
        .line(line + 1)
        .store(at, 5)
}

fn found(script: &mut Script) -> (Found, u64) {
    let options = LintOptions {
        warnings: true,
        ..LintOptions::default()
    };
    let trace = script.trace();
    let linted = lint(&trace, &options, &mut NoSymbols, &mut |_| {}).expect("a good trace");
    (summary(&trace, &linted.hits), linted.out_of_scope)
}

/// The findings without any annotation.
fn expected(line: u64) -> Found {
    let (found, left_out) = found(bugs(&mut Script::default(), line));
    assert_eq!(left_out, 0);
    let codes: Vec<Code> = found.iter().map(|(code, ..)| *code).collect();
    assert_eq!(
        codes,
        [
            Code::StoreNotFlushed,
            Code::FlushNotFenced,
            Code::FlushNotFenced,
            Code::FlushNotFenced,
            Code::RedundantFlush,
            Code::RedundantFence,
            Code::DirtyOverwrite,
            Code::SharedFlush,
            Code::UnorderedFlushes,
        ]
    );
    found
}

#[test]
fn what_is_skipped_is_left_out_and_counted() {
    let mut script = Script::default();
    script.mark(Annotation::SkipDetectionBegin);
    bugs(&mut script, 10).mark(Annotation::SkipDetectionEnd);
    assert_eq!(found(&mut script), (vec![], EVENTS));
}

#[test]
fn threads_skip_for_themselves() {
    let mut script = Script::default();
    script
        .mark(Annotation::SkipDetectionBegin)
        .mark(Annotation::SkipDetectionBegin)
        .mark(Annotation::SkipDetectionEnd)
        .thread(1);
    bugs(&mut script, 10).thread(0);
    bugs(&mut script, 40).mark(Annotation::SkipDetectionEnd);
    assert_eq!(found(&mut script), (expected(10), EVENTS));
}

#[test]
fn only_what_is_inside_of_a_region_of_interest_counts() {
    // Separate threads: a fence outside would make the last stores inside durable.
    let mut script = Script::default();
    bugs(script.thread(1), 40).mark(Annotation::InterestBegin);
    bugs(script.thread(0), 10).mark(Annotation::InterestEnd);
    bugs(script.thread(2), 70);
    assert_eq!(found(&mut script), (expected(10), 2 * EVENTS));
}

#[test]
fn a_region_without_anything_leaves_nothing() {
    let mut script = Script::default();
    bugs(&mut script, 40).mark(Annotation::InterestBegin);
    assert_eq!(found(&mut script), (vec![], EVENTS));
}

#[test]
fn nothing_counts_after_complete() {
    let mut script = Script::default();
    bugs(&mut script, 10).thread(1).mark(Annotation::Complete);
    bugs(&mut script, 40);
    assert_eq!(found(&mut script), (expected(10), EVENTS));
}

/// Skipped failures only concern crashes, which the lint does not simulate.
#[test]
fn skipped_failures_do_not_concern_the_lint() {
    let mut script = Script::default();
    script.mark(Annotation::SkipFailureBegin);
    bugs(&mut script, 10).mark(Annotation::SkipFailureEnd);
    assert_eq!(found(&mut script), (expected(10), 0));
}

/// Events outside of a region affect findings inside.
#[test]
fn flushes_outside_of_a_region_count_for_stores_inside() {
    let mut script = Script::default();
    script
        .line(10)
        .mark(Annotation::InterestBegin)
        .store(0, 1)
        .mark(Annotation::InterestEnd)
        .persist(0);
    assert_eq!(found(&mut script), (vec![], 2));
}

#[test]
fn a_lint_that_is_stopped_finds_nothing() {
    let mut script = Script::default();
    let trace = bugs(&mut script, 1).trace();
    let options = LintOptions::default();
    let mut asked = 0;
    let stopped = lint_while(&trace, &options, &mut NoSymbols, &mut |_| {
        asked += 1;
        asked < 2
    });
    assert_eq!(stopped.unwrap(), None);
    assert_eq!(asked, 2, "no further block is read");
    let whole = lint_while(&trace, &options, &mut NoSymbols, &mut |_| true).unwrap();
    assert_eq!(
        whole,
        Some(lint(&trace, &options, &mut NoSymbols, &mut |_| {}).unwrap())
    );
}
