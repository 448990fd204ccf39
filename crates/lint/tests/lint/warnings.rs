//! Stores that depend on the flush of a neighbour (PF0604), or are flushed late (PF0605), on hand-made traces.

use crate::common::{Found, LIBPMEMOBJ, PROGRAM, Script, hits, script, summary};
use powerfail_finding::Code;
use powerfail_lint::LintOptions;
use powerfail_trace::Annotation;

/// What is found of a code.
fn found(code: Code, script: &mut Script) -> Found {
    let options = LintOptions {
        warnings: true,
        ..LintOptions::default()
    };
    let trace = script.trace();
    let mut all = summary(&trace, &hits(&trace, &options));
    all.retain(|(found, ..)| *found == code);
    all
}

fn neighbours(script: &mut Script) -> Found {
    found(Code::NeighbourFlush, script)
}

/// Events at a line of a function that main calls at another line.
fn within(script: &mut Script, line: u64, call: u64) -> &mut Script {
    script.stack(&[(PROGRAM, line), (PROGRAM, call), (PROGRAM, 1)])
}

/// A library is asked to flush a range, and does.
fn flush_range(script: &mut Script, offset: u64, len: u64) -> &mut Script {
    script.mark_ranges(Annotation::FlushRange, 0, &[(offset, len)]);
    for line in offset / 64..(offset + len).div_ceil(64) {
        script.clwb(line * 64);
    }
    script.sfence()
}

#[test]
fn a_store_outside_of_the_range_that_is_flushed() {
    let mut script = script();
    script.line(10).store(0, 1).line(11).store(8, 2);
    flush_range(script.line(12), 0, 8);
    assert_eq!(
        neighbours(&mut script),
        [(Code::NeighbourFlush, vec![11, 12], 1)]
    );
}

#[test]
fn a_shared_line_is_reported_once() {
    let warned = |script: &mut Script| {
        let options = LintOptions {
            warnings: true,
            ..LintOptions::default()
        };
        let trace = script.trace();
        summary(&trace, &hits(&trace, &options))
    };
    let mut lucky = script();
    lucky.line(10).store(0, 1).line(11).store(8, 2);
    flush_range(lucky.line(12), 0, 8);
    assert_eq!(
        warned(&mut lucky),
        [(Code::NeighbourFlush, vec![11, 12], 1)]
    );
    // Another flush of stores that it is made for is another matter.
    let mut both = script();
    both.line(10).store(0, 1).line(11).store(8, 2);
    flush_range(both.line(12), 0, 8);
    both.line(20).store(64, 1).line(21).store(72, 2);
    flush_range(both.line(22), 64, 16);
    assert_eq!(
        warned(&mut both),
        [
            (Code::SharedFlush, vec![22, 20, 21], 1),
            (Code::NeighbourFlush, vec![11, 12], 1)
        ]
    );
    // The store has a flush of its own after all: it was not lucky, and the line is shared.
    let mut later = script();
    later.line(10).store(0, 1).line(11).store(8, 2);
    flush_range(later.line(12), 0, 8);
    flush_range(later.line(13), 8, 8);
    let shared = (Code::SharedFlush, vec![12, 10, 11], 1);
    assert!(warned(&mut later).contains(&shared));
}

#[test]
fn a_store_in_the_range_or_with_a_flush_of_its_own() {
    let mut whole = script();
    whole.line(10).store(0, 1).line(11).store(8, 2);
    flush_range(whole.line(12), 0, 16);
    assert_eq!(neighbours(&mut whole), []);
    let mut later = script();
    later.line(10).store(0, 1).line(11).store(8, 2);
    flush_range(later.line(12), 0, 8);
    flush_range(later.line(13), 8, 8);
    assert_eq!(neighbours(&mut later), []);
    // Nothing that the flush is made for is new: it is made for what is.
    let mut other = script();
    other.line(11).store(8, 2);
    flush_range(other.line(12), 0, 8);
    assert_eq!(neighbours(&mut other), []);
}

#[test]
fn the_range_of_a_library_is_that_of_its_own_flushes() {
    // What follows is a flush of the program's, of all of the line.
    let mut script = script();
    script.line(10).store(64, 1);
    flush_range(script.line(12), 64, 8);
    script.line(13).store(64, 2).line(14).store(72, 3);
    script.line(15).clwb(64).sfence();
    assert_eq!(neighbours(&mut script), []);
}

#[test]
fn a_flush_inside_of_the_line_by_another_function() {
    let mut script = script();
    within(&mut script, 10, 100).store(0, 1);
    within(&mut script, 20, 101).store(8, 2).persist(8);
    assert_eq!(
        neighbours(&mut script),
        [(Code::NeighbourFlush, vec![10, 20], 1)]
    );
}

#[test]
fn a_flush_inside_of_the_line_may_be_for_all_that_its_function_has_stored() {
    let mut one = script();
    within(&mut one, 10, 100).store(0, 1);
    within(&mut one, 11, 100).store(8, 2).persist(8);
    assert_eq!(neighbours(&mut one), []);
    // By a function that it calls.
    let mut called = script();
    called
        .stack(&[(PROGRAM, 10), (PROGRAM, 50), (PROGRAM, 100), (PROGRAM, 1)])
        .store(0, 1);
    within(&mut called, 11, 100).store(8, 2).persist(8);
    assert_eq!(neighbours(&mut called), []);
    // From the beginning of the line on.
    let mut whole = script();
    within(&mut whole, 10, 100).store(0, 1);
    within(&mut whole, 20, 101).store(8, 2).persist(0);
    assert_eq!(neighbours(&mut whole), []);
    // A store behind the address may be in the range.
    let mut behind = script();
    within(&mut behind, 10, 100).store(16, 1);
    within(&mut behind, 20, 101).store(8, 2).persist(8);
    assert_eq!(neighbours(&mut behind), []);
}

#[test]
fn a_flush_that_a_library_makes_for_itself() {
    let mut script = script();
    let library = [(LIBPMEMOBJ, 7), (PROGRAM, 20), (PROGRAM, 1)];
    script.line(10).store(16, 1).stack(&library);
    script.mark(Annotation::LibraryEnter).store(0, 5).persist(0);
    script.mark(Annotation::LibraryLeave);
    assert_eq!(
        neighbours(&mut script),
        [(Code::NeighbourFlush, vec![10, 20], 1)]
    );

    let mut committed = script;
    committed.mark(Annotation::TransactionBegin);
    committed.line(10).store(16, 1).stack(&library);
    committed
        .mark(Annotation::LibraryEnter)
        .store(0, 5)
        .persist(0);
    committed.mark(Annotation::LibraryLeave);
    committed.mark(Annotation::TransactionEnd);
    assert_eq!(neighbours(&mut committed), []);
}

/// A store, flushes and fences of other lines, and its flush.
fn flushed_after(fences: u64) -> Script {
    let mut script = script();
    script.line(10).store(0, 1);
    for number in 1..=fences {
        script.line(11).store(number * 64, number);
        script.persist(number * 64);
    }
    script.line(12).persist(0);
    script
}

#[test]
fn a_store_that_is_flushed_after_ten_fences_is_late() {
    let late = [(Code::LateFlush, vec![10, 12], 1)];
    assert_eq!(found(Code::LateFlush, &mut flushed_after(10)), late);
    assert_eq!(found(Code::LateFlush, &mut flushed_after(9)), []);
}

#[test]
fn bytes_are_dirty_since_the_first_store_to_them() {
    let mut script = script();
    for number in 1..=10 {
        script.line(10).store(0, number);
        script.line(11).store(number * 64, number);
        script.persist(number * 64);
    }
    script.line(12).persist(0);
    assert_eq!(
        found(Code::LateFlush, &mut script),
        [(Code::LateFlush, vec![10, 12], 1)]
    );
}

#[test]
fn fences_with_nothing_to_wait_for_and_those_of_other_threads_do_not_count() {
    let mut script = script();
    script.line(10).store(0, 1);
    for number in 1..=20 {
        script.line(11).sfence();
        script.thread(1).line(13).store(number * 64, number);
        script.persist(number * 64).thread(0);
    }
    script.line(12).persist(0);
    assert_eq!(found(Code::LateFlush, &mut script), []);
}

#[test]
fn warnings_are_found_only_if_they_are_wanted() {
    let trace = flushed_after(10).trace();
    assert_eq!(hits(&trace, &LintOptions::default()), []);
}
