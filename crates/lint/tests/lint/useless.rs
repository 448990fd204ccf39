//! Flushes and fences that are of no use: which are found, and what is said about those that some execution needs.

use crate::common::{Script, found, hits, hits_with, script, summary};
use powerfail_finding::Code;
use powerfail_lint::{Business, Caution, LineNumber, LintOptions, Symbols};
use powerfail_model::{Event, FenceKind};
use powerfail_trace::Frame;

#[test]
fn a_flush_of_what_is_flushed_is_redundant() {
    let bug = found(script().line(10).store(0, 1).persist(0).line(20).persist(0));
    assert_eq!(bug, [(Code::RedundantFlush, vec![20], 1)]);
    let pending = found(script().line(10).store(0, 1).clwb(0).line(20).persist(0));
    assert_eq!(pending, [(Code::RedundantFlush, vec![20], 1)]);
    let streamed = found(script().line(10).stream(0, 1).line(20).persist(0));
    assert_eq!(streamed, [(Code::RedundantFlush, vec![20], 1)]);
    let helping = found(
        script()
            .line(10)
            .store(0, 1)
            .clwb(0)
            .thread(1)
            .line(20)
            .persist(0)
            .thread(0)
            .line(10)
            .sfence(),
    );
    assert_eq!(helping, []);
}

/// Two threads with separate words in one line: one flush may write back both, but a thread cannot rely on that.
#[test]
fn a_thread_flushes_what_it_stored_in_a_line_that_others_flushed() {
    let both = || {
        let mut script = script();
        script.line(10).store(0, 1).thread(1).line(20).store(8, 1);
        script.persist(0).thread(0).line(10).persist(0);
        script
    };
    assert_eq!(found(&mut both()), []);
    let again = found(both().line(30).persist(0));
    assert_eq!(again, [(Code::RedundantFlush, vec![30], 1)]);
    let other = found(both().thread(1).line(30).persist(0));
    assert_eq!(other, [(Code::RedundantFlush, vec![30], 1)]);
}

#[test]
fn a_call_with_one_new_line_is_useful() {
    let whole = |script: &mut Script| {
        found(
            script
                .line(10)
                .store(64, 1)
                .line(20)
                .clwb(0)
                .clwb(64)
                .clwb(128)
                .sfence(),
        )
    };
    assert_eq!(whole(&mut script()), []);
    // Two calls: the second one has nothing new.
    let bug = found(
        script()
            .line(10)
            .store(64, 1)
            .line(20)
            .clwb(0)
            .clwb(64)
            .line(21)
            .clwb(128)
            .clwb(192)
            .sfence(),
    );
    assert_eq!(bug, [(Code::RedundantFlush, vec![21], 1)]);
    let backwards = found(
        script()
            .line(10)
            .store(64, 1)
            .line(20)
            .clwb(64)
            .clwb(0)
            .sfence(),
    );
    assert_eq!(backwards, [(Code::RedundantFlush, vec![20], 1)]);
}

#[test]
fn a_fence_with_nothing_to_wait_for_is_redundant() {
    let bug = found(script().line(10).store(0, 1).persist(0).line(20).sfence());
    assert_eq!(bug, [(Code::RedundantFence, vec![20], 1)]);
    for kind in [FenceKind::Mfence, FenceKind::Locked] {
        let other = found(
            script()
                .line(10)
                .store(0, 1)
                .persist(0)
                .line(20)
                .pm(Event::Fence(kind)),
        );
        assert_eq!(other, []);
    }
    // The purpose of the locked operation was not the flush.
    let locked = found(
        script()
            .line(10)
            .store(0, 1)
            .clwb(0)
            .pm(Event::Fence(FenceKind::Locked))
            .line(20)
            .sfence(),
    );
    assert_eq!(locked, []);
}

/// The function to persist of CCEH begins with an mfence. The flush does not need it.
#[test]
fn an_mfence_before_a_flush_of_the_same_function_is_redundant() {
    let mfence = Event::Fence(FenceKind::Mfence);
    let persists = |script: &mut Script| {
        script.line(20).store(0, 1);
        script.line(30).pm(mfence);
        script.line(31).clwb(0);
        script.line(32).pm(mfence);
    };
    let mut once = script();
    persists(&mut once);
    let trace = once.trace();
    let found_hits = hits(&trace, &LintOptions::default());
    assert_eq!(
        summary(&trace, &found_hits),
        [(Code::RedundantFence, vec![30], 1)]
    );
    assert_eq!(found_hits[0].caution, Some(Caution::OrdersThreads));
    // It may order threads where no flush follows: then it is not judged at all.
    let mut other = script();
    persists(&mut other);
    assert_eq!(
        found(other.line(30).pm(mfence).line(40).store(8, 2).persist(8)),
        []
    );
    // A locked operation has another purpose.
    let locked = found(
        script()
            .line(20)
            .store(0, 1)
            .line(30)
            .pm(Event::Fence(FenceKind::Locked))
            .line(31)
            .persist(0),
    );
    assert_eq!(locked, []);
}

/// A fence makes nothing durable that was not flushed, and stores of one thread are in order without it.
#[test]
fn an_mfence_before_a_store_is_redundant_without_other_threads() {
    let mfence = Event::Fence(FenceKind::Mfence);
    let found_with = |threads| {
        let mut script = Script::with_threads(threads);
        script.line(20).store(0, 1);
        script.line(30).pm(mfence);
        script.line(31).store(8, 2);
        script.line(32).clwb(0);
        script.line(33).pm(mfence);
        found(&mut script)
    };
    assert_eq!(found_with(1), [(Code::RedundantFence, vec![30], 1)]);
    assert_eq!(found_with(2), []);
}

#[test]
fn a_redundant_flush_with_its_fence_is_one_finding() {
    let bug = found(
        script()
            .line(10)
            .store(0, 1)
            .persist(0)
            .line(20)
            .persist(0)
            .line(20)
            .persist(0),
    );
    assert_eq!(bug, [(Code::RedundantFlush, vec![20], 2)]);
}

#[test]
fn a_helper_is_to_blame_for_its_callers_only_if_it_is_always_useless() {
    const HELPER: (u32, u64) = (crate::common::PROGRAM, 50);
    const MAIN: (u32, u64) = (crate::common::PROGRAM, 1);
    let called = |line| [HELPER, (crate::common::PROGRAM, line), MAIN];
    let trace = script()
        .line(10)
        .store(0, 1)
        .stack(&called(20))
        .persist(0)
        .stack(&called(30))
        .persist(0)
        .trace();
    let found_hits = hits(&trace, &LintOptions::default());
    assert_eq!(
        summary(&trace, &found_hits),
        [(Code::RedundantFlush, vec![30], 1)]
    );
    assert_eq!(found_hits[0].of, Some(1));
    let always = found(
        script()
            .stack(&called(20))
            .persist(0)
            .stack(&called(30))
            .persist(0),
    );
    assert_eq!(always, [(Code::RedundantFlush, vec![50], 2)]);
}

/// `persist` wraps a function that flushes: its callers are to blame, as if it flushed itself.
#[test]
fn a_helper_of_a_helper_is_one_with_it() {
    const FLUSH: (u32, u64) = (crate::common::PROGRAM, 40);
    const PERSIST: (u32, u64) = (crate::common::PROGRAM, 50);
    const MAIN: (u32, u64) = (crate::common::PROGRAM, 1);
    let called = |line| [FLUSH, PERSIST, (crate::common::PROGRAM, line), MAIN];
    let found = |calls: &[(u64, u64)]| {
        let mut script = script();
        for (value, line) in calls {
            if *value != 0 {
                script.line(10).store(0, *value);
            }
            script.stack(&called(*line)).persist(0);
        }
        let trace = script.trace();
        summary(&trace, &hits(&trace, &LintOptions::default()))
    };
    // Useless at line 30, in one of three executions.
    let once = found(&[(1, 20), (2, 25), (0, 30)]);
    assert_eq!(once, [(Code::RedundantFlush, vec![30], 1)]);
    // Needed at each line once: nothing is useless in a line each time, and too few are.
    let needed = found(&[(1, 20), (0, 20), (2, 20), (3, 30), (0, 30), (4, 30)]);
    assert_eq!(needed, []);
}

/// A line that is needed in some executions is shown with its counts, if it was useless in at least half of them.
#[test]
fn what_is_needed_in_some_executions_is_counted() {
    let rounds = |script: &mut Script, rounds: &[bool]| {
        for (round, &flushes) in (0..).zip(rounds) {
            if flushes {
                script.line(10).store(round * 64, 1).clwb(round * 64);
            }
            script.line(20).sfence();
        }
        let trace = script.trace();
        let hits = hits(&trace, &LintOptions::default());
        hits.iter()
            .map(|hit| (hit.count, hit.of))
            .collect::<Vec<_>>()
    };
    let every_second = rounds(&mut script(), &[true, false, true, false]);
    assert_eq!(every_second, [(2, Some(4))]);
    assert_eq!(rounds(&mut script(), &[true, true, true, false]), []);
}

/// Names lines of the sources: ten bytes of code are a line, and from 1000 on a function is inlined that has its own.
struct Lines;

impl Symbols for Lines {
    fn business(&mut self, _: Frame, _: bool) -> Business {
        Business::Unknown
    }

    fn business_of_call(&mut self, _: Frame) -> Business {
        Business::Unknown
    }

    fn lines(&mut self, frame: Frame, _: bool) -> Option<Vec<LineNumber>> {
        let Frame::Module { offset, .. } = frame else {
            return None;
        };
        let line = LineNumber((offset % 1000 / 10) as u32);
        Some(if offset >= 1000 {
            vec![LineNumber(99), line]
        } else {
            vec![line]
        })
    }
}

/// Copies of a line that the compiler made are one line.
#[test]
fn an_unrolled_loop_is_one_place() {
    let trace = script()
        .line(10)
        .store(0, 1)
        .clwb(0)
        .line(20)
        .sfence()
        .line(24)
        .sfence()
        .trace();
    let hits = hits_with(&trace, &LintOptions::default(), &mut Lines);
    assert_eq!(hits.len(), 1);
    assert_eq!((hits[0].count, hits[0].of), (1, Some(2)));
}

/// A function that is inlined flushes for its callers, as one that is not.
#[test]
fn an_inlined_helper_is_not_to_blame_for_its_callers() {
    let trace = script()
        .line(10)
        .store(0, 1)
        .line(1020)
        .persist(0)
        .line(1030)
        .persist(0)
        .trace();
    let found = hits_with(&trace, &LintOptions::default(), &mut Lines);
    assert_eq!(
        summary(&trace, &found),
        [(Code::RedundantFlush, vec![1030], 1)]
    );
    assert_eq!((found[0].sites[0].inlined, found[0].is_caller), (1, true));
    assert_eq!(found[0].of, Some(1));
}

#[test]
fn a_useless_flush_may_come_with_a_fence_that_is_needed() {
    let has_needed_fence = |script: &mut Script| {
        let trace = script.trace();
        let hits = hits(&trace, &LintOptions::default());
        assert_eq!(hits.len(), 1);
        assert_eq!(hits[0].code, Code::RedundantFlush);
        hits[0].caution == Some(Caution::NeededFence)
    };
    let completes = has_needed_fence(script().line(10).store(0, 1).clwb(0).line(20).persist(64));
    assert!(completes);
    let waits_for_nothing = has_needed_fence(
        script()
            .line(10)
            .store(0, 1)
            .persist(0)
            .line(20)
            .persist(64),
    );
    assert!(!waits_for_nothing);
}

/// A function stores and calls another one, which stores beside it and flushes what it has stored itself.
#[test]
fn a_flush_for_other_code_does_not_make_ones_own_redundant() {
    let main = (crate::common::PROGRAM, 1);
    let outer = |line| [(crate::common::PROGRAM, line), main];
    let inner = |line| {
        [
            (crate::common::PROGRAM, line),
            (crate::common::PROGRAM, 25),
            main,
        ]
    };
    let beside = |script: &mut Script| {
        script.stack(&outer(20)).store(8, 1);
        script.stack(&inner(30)).store(0, 1);
        script.stack(&inner(31)).persist(0);
        script.stack(&outer(26)).persist(8);
    };
    let mut once = script();
    beside(&mut once);
    assert_eq!(found(&mut once), []);
    let mut twice = script();
    beside(&mut twice);
    twice.stack(&outer(27)).persist(8);
    assert_eq!(found(&mut twice), [(Code::RedundantFlush, vec![27], 1)]);
    // The inner function flushes what the outer one has stored, and nothing else: it was called for that.
    let called_for_it = found(
        script()
            .stack(&outer(20))
            .store(8, 1)
            .stack(&inner(31))
            .persist(0)
            .stack(&outer(26))
            .persist(8),
    );
    assert_eq!(called_for_it, [(Code::RedundantFlush, vec![26], 1)]);
}
