//! The rules about transactions, on made-up records: the bug is found at its line, and the repaired twin has no
//! finding.

use crate::common::{LIBPMEM, LIBPMEMOBJ, PROGRAM, Script, hits, summary};
use powerfail_finding::{Code, Role};
use powerfail_lint::{LintOptions, Trust};
use powerfail_protocol::mark;
use powerfail_trace::annotation::{add, allocation};
use powerfail_trace::{Annotation, Body, Mark, MarkKind};

/// The objects of these tests: on separate lines, flushed by the commits.
const FIRST: u64 = 4096;
const SECOND: u64 = 4096 + 64;

/// The operations of programs on transactions.
trait Does {
    fn value_mark(&mut self, annotation: Annotation, value: u64) -> &mut Self;
    fn call(&mut self, function: &str) -> &mut Self;
    fn opened() -> Self;
    fn begin(&mut self) -> &mut Self;
    fn add(&mut self, offset: u64, len: u64) -> &mut Self;
    fn allocate(&mut self, offset: u64, len: u64) -> &mut Self;
    fn commit(&mut self) -> &mut Self;
    fn abort(&mut self) -> &mut Self;
}

impl Does for Script {
    fn value_mark(&mut self, annotation: Annotation, value: u64) -> &mut Self {
        self.append(Body::Mark(Mark {
            kind: MarkKind::Annotation(annotation),
            value,
            payload: &[],
        }))
    }

    /// A call without effects in the trace.
    fn call(&mut self, function: &str) -> &mut Self {
        self.value_mark(Annotation::LibraryEnter, mark::function(function))
            .value_mark(Annotation::LibraryLeave, mark::function(function))
    }

    fn opened() -> Self {
        let mut script = Self::default();
        script.line(2).mark_ranges(Annotation::Open, 0, &[(0, 1)]);
        script
    }

    fn begin(&mut self) -> &mut Self {
        self.mark(Annotation::TransactionBegin)
    }

    fn add(&mut self, offset: u64, len: u64) -> &mut Self {
        self.call("pmemobj_tx_add_range").mark_ranges(
            Annotation::TransactionAdd,
            0,
            &[(offset, len)],
        )
    }

    fn allocate(&mut self, offset: u64, len: u64) -> &mut Self {
        self.call("pmemobj_tx_alloc").mark_ranges(
            Annotation::TransactionAllocate,
            0,
            &[(offset, len)],
        )
    }

    /// The commit flushes all stores of these tests.
    fn commit(&mut self) -> &mut Self {
        let commit = mark::function("pmemobj_tx_commit");
        self.mark(Annotation::TransactionCommit)
            .value_mark(Annotation::LibraryEnter, commit)
            .stack(&[(LIBPMEMOBJ, 5), (PROGRAM, 90)])
            .clwb(FIRST)
            .clwb(SECOND)
            .sfence()
            .value_mark(Annotation::LibraryLeave, commit)
            .line(91)
            .mark(Annotation::TransactionEnd)
    }

    fn abort(&mut self) -> &mut Self {
        self.mark(Annotation::TransactionAbort)
            .call("pmemobj_tx_abort")
            .stack(&[(LIBPMEMOBJ, 5), (PROGRAM, 92)])
            .clwb(FIRST)
            .clwb(SECOND)
            .sfence()
            .line(92)
            .mark(Annotation::TransactionEnd)
    }
}

type Found = Vec<(Code, Vec<u64>, u64)>;

fn found(script: &mut Script) -> Found {
    let trace = script.trace();
    summary(&trace, &hits(&trace, &LintOptions::default()))
}

#[test]
fn a_store_to_what_was_not_added_is_found() {
    let bug = found(
        Script::opened()
            .line(9)
            .begin()
            .line(10)
            .add(FIRST, 8)
            .line(11)
            .store(FIRST, 1)
            .line(12)
            .store(FIRST + 8, 2)
            .commit(),
    );
    assert_eq!(bug, [(Code::StoreNotAdded, vec![12, 9], 1)]);
    let repaired = found(
        Script::opened()
            .line(9)
            .begin()
            .line(10)
            .add(FIRST, 16)
            .line(11)
            .store(FIRST, 1)
            .line(12)
            .store(FIRST + 8, 2)
            .commit(),
    );
    assert_eq!(repaired, []);
}

#[test]
fn it_is_a_candidate_with_all_its_moments() {
    let mut script = Script::opened();
    for value in 0..3 {
        script.line(9).begin().line(12).store(FIRST, value).commit();
    }
    let trace = script.trace();
    let hits = hits(&trace, &LintOptions::default());
    let [hit] = &hits[..] else {
        panic!("{hits:?}");
    };
    assert_eq!((hit.code, hit.count), (Code::StoreNotAdded, 3));
    assert!(!hit.confirmed);
    assert_eq!(hit.more.len(), 3);
    assert_eq!(hit.more[0], hit.sites[0].event);
    let roles: Vec<Role> = hit.sites.iter().map(|site| site.role).collect();
    assert_eq!(roles, [Role::Store, Role::Transaction]);
}

#[test]
fn a_store_that_is_partly_covered_is_found() {
    let bug = found(
        Script::opened()
            .line(9)
            .begin()
            .add(FIRST, 4)
            .line(12)
            .store(FIRST, 2)
            .commit(),
    );
    assert_eq!(bug, [(Code::StoreNotAdded, vec![12, 9], 1)]);
}

#[test]
fn a_store_before_the_add_is_found_and_the_add_is_not_for_nothing() {
    let bug = found(
        Script::opened()
            .line(9)
            .begin()
            .line(12)
            .store(FIRST, 2)
            .line(13)
            .add(FIRST, 8)
            .commit(),
    );
    assert_eq!(bug, [(Code::StoreNotAdded, vec![12, 9], 1)]);
}

#[test]
fn nested_transactions_inherit_and_leave_what_was_added() {
    let silent = found(
        Script::opened()
            .line(9)
            .begin()
            .line(10)
            .add(FIRST, 8)
            .line(20)
            .mark(Annotation::NestedBegin)
            .line(21)
            .store(FIRST, 1)
            .add(SECOND, 8)
            .line(22)
            .call("pmemobj_tx_commit")
            .mark(Annotation::NestedEnd)
            .line(23)
            .store(SECOND, 3)
            .commit(),
    );
    assert_eq!(silent, []);
}

#[test]
fn what_was_allocated_in_the_transaction_needs_no_add() {
    let silent = found(
        Script::opened()
            .line(9)
            .begin()
            .allocate(FIRST, 64)
            .store(FIRST + 8, 1)
            .mark_ranges(Annotation::Allocate, 0, &[(SECOND, 64)])
            .store(SECOND, 1)
            .commit(),
    );
    assert_eq!(silent, []);
    // In the next transaction it is not its allocation any more.
    let bug = found(
        Script::opened()
            .line(9)
            .begin()
            .allocate(FIRST, 64)
            .commit()
            .line(19)
            .begin()
            .line(20)
            .store(FIRST, 1)
            .commit(),
    );
    assert_eq!(bug, [(Code::StoreNotAdded, vec![20, 19], 1)]);
}

#[test]
fn reserved_objects_are_unowned_until_they_are_published() {
    let reserved = &[(FIRST, 64)];
    let published = &[(FIRST, 1)];
    let silent = found(
        Script::opened()
            .mark_ranges(Annotation::Allocate, allocation::RESERVED, reserved)
            .line(9)
            .begin()
            .store(FIRST, 1)
            .mark_ranges(Annotation::Publish, 1, published)
            .store(FIRST + 8, 1)
            .commit(),
    );
    assert_eq!(silent, []);
    let bug = found(
        Script::opened()
            .mark_ranges(Annotation::Allocate, allocation::RESERVED, reserved)
            .mark_ranges(Annotation::Publish, 0, published)
            .line(9)
            .begin()
            .line(10)
            .store(FIRST, 1)
            .commit(),
    );
    assert_eq!(bug, [(Code::StoreNotAdded, vec![10, 9], 1)]);
}

#[test]
fn stores_of_the_library_are_not_reported_with_any_trust() {
    for trust in [Trust::default(), Trust::none()] {
        let trace = Script::opened()
            .line(9)
            .begin()
            .stack(&[(LIBPMEMOBJ, 7), (PROGRAM, 9)])
            .store(64, 1)
            .persist(64)
            .line(10)
            .value_mark(Annotation::LibraryEnter, mark::function("pmemobj_tx_alloc"))
            .stack(&[(LIBPMEM, 7), (LIBPMEMOBJ, 7), (PROGRAM, 10)])
            .store(128, 1)
            .persist(128)
            .value_mark(Annotation::LibraryLeave, mark::function("pmemobj_tx_alloc"))
            .line(11)
            .allocate(FIRST, 8)
            .commit()
            .trace();
        let options = LintOptions {
            trust,
            ..LintOptions::default()
        };
        let hits = hits(&trace, &options);
        assert!(
            hits.iter().all(|hit| hit.code != Code::StoreNotAdded),
            "{hits:?}"
        );
    }
}

#[test]
fn what_the_library_copies_is_its_callers() {
    struct KnowsCopies;
    impl powerfail_lint::Symbols for KnowsCopies {
        fn business(&mut self, _: powerfail_trace::Frame, _: bool) -> powerfail_lint::Business {
            powerfail_lint::Business::Callers
        }
        fn business_of_call(&mut self, _: powerfail_trace::Frame) -> powerfail_lint::Business {
            powerfail_lint::Business::Callers
        }
    }
    let copy = mark::function("pmemobj_memcpy_persist");
    let trace = Script::opened()
        .line(9)
        .begin()
        .line(10)
        .value_mark(Annotation::LibraryEnter, copy)
        .stack(&[(LIBPMEM, 7), (LIBPMEMOBJ, 7), (PROGRAM, 10), (PROGRAM, 1)])
        .store(FIRST, 1)
        .persist(FIRST)
        .value_mark(Annotation::LibraryLeave, copy)
        .line(11)
        .commit()
        .trace();
    let hits = crate::common::hits_with(&trace, &LintOptions::default(), &mut KnowsCopies);
    let found = summary(&trace, &hits);
    assert!(
        found.contains(&(Code::StoreNotAdded, vec![10, 9], 1)),
        "{found:?}"
    );
}

#[test]
fn stores_in_other_stages_and_other_pools_are_no_part_of_it() {
    let silent = found(
        Script::opened()
            .line(9)
            .begin()
            .add(FIRST, 8)
            .store(FIRST, 1)
            .mark(Annotation::TransactionCommit)
            .call("pmemobj_tx_commit")
            .persist(FIRST)
            .line(20)
            .store(SECOND, 1)
            .persist(SECOND)
            .mark(Annotation::TransactionEnd)
            .store(SECOND, 2)
            .persist(SECOND),
    );
    assert_eq!(silent, []);
    // Nothing identifies the pool as one of libpmemobj.
    let silent = found(Script::default().line(9).begin().store(FIRST, 1).commit());
    assert_eq!(silent, []);
}

#[test]
fn threads_have_transactions_of_their_own() {
    let bug = found(
        Script::opened()
            .line(9)
            .begin()
            .add(FIRST, 8)
            .thread(1)
            .line(19)
            .begin()
            .line(20)
            .store(FIRST, 1)
            .commit()
            .thread(0)
            .line(10)
            .store(FIRST, 2)
            .commit(),
    );
    assert_eq!(bug, [(Code::StoreNotAdded, vec![20, 19], 1)]);
}

#[test]
fn a_range_that_is_there_already_is_added_for_nothing() {
    let bug = found(
        Script::opened()
            .line(9)
            .begin()
            .line(10)
            .add(FIRST, 16)
            .store(FIRST, 1)
            .line(11)
            .add(FIRST + 8, 8)
            .store(FIRST + 8, 1)
            .commit(),
    );
    assert_eq!(bug, [(Code::DuplicateAdd, vec![11, 10], 1)]);
    let fresh = found(
        Script::opened()
            .line(9)
            .begin()
            .line(10)
            .allocate(FIRST, 64)
            .line(11)
            .add(FIRST, 8)
            .store(FIRST, 1)
            .commit(),
    );
    assert_eq!(fresh, [(Code::DuplicateAdd, vec![11, 10], 1)]);
    let partly = found(
        Script::opened()
            .line(9)
            .begin()
            .line(10)
            .add(FIRST, 8)
            .store(FIRST, 1)
            .line(11)
            .add(FIRST, 16)
            .store(FIRST + 8, 1)
            .commit(),
    );
    assert_eq!(partly, []);
}

#[test]
fn an_add_that_does_more_than_the_first_is_no_duplicate() {
    let mut script = Script::opened();
    script
        .line(9)
        .begin()
        .line(10)
        .mark_ranges(Annotation::TransactionAdd, add::NO_FLUSH, &[(FIRST, 8)])
        .store(FIRST, 1)
        .line(11)
        .add(FIRST, 8)
        .commit();
    assert_eq!(found(&mut script), []);
}

#[test]
fn an_add_without_a_store_counts_if_the_transaction_is_committed() {
    let bug = found(
        Script::opened()
            .line(9)
            .begin()
            .line(10)
            .add(FIRST, 8)
            .line(11)
            .add(SECOND, 8)
            .store(SECOND, 1)
            .line(12)
            .commit(),
    );
    assert_eq!(bug, [(Code::AddWithoutStore, vec![10, 12], 1)]);
    let aborted = found(
        Script::opened()
            .line(9)
            .begin()
            .line(10)
            .add(FIRST, 8)
            .abort(),
    );
    assert_eq!(aborted, []);
}

#[test]
fn an_add_that_is_stored_to_at_other_times_is_needed() {
    let mut script = Script::opened();
    for value in [0, 7] {
        script.line(9).begin().line(10).add(FIRST, 8);
        if value != 0 {
            script.line(11).store(FIRST, value);
        }
        script.line(12).commit();
    }
    assert_eq!(found(&mut script), []);
}

#[test]
fn freeing_an_object_is_a_use_of_its_add() {
    let mut script = Script::opened();
    script
        .line(9)
        .begin()
        .line(10)
        .add(FIRST, 8)
        .mark_ranges(Annotation::TransactionFree, 0, &[(FIRST, 64)])
        .commit();
    assert_eq!(found(&mut script), []);
}

#[test]
fn client_requests_of_the_library_are_not_counted_twice() {
    let mut script = Script::opened();
    script.line(9).begin();
    script.stack(&[(LIBPMEMOBJ, 1), (PROGRAM, 9)]).begin();
    script
        .line(10)
        .value_mark(
            Annotation::LibraryEnter,
            mark::function("pmemobj_tx_add_range"),
        )
        .mark_ranges(Annotation::TransactionAdd, 0, &[(FIRST, 8)])
        .value_mark(
            Annotation::LibraryLeave,
            mark::function("pmemobj_tx_add_range"),
        )
        .mark_ranges(Annotation::TransactionAdd, 0, &[(FIRST, 8)])
        .store(FIRST, 1)
        .commit();
    assert_eq!(found(&mut script), []);
}

#[test]
fn client_requests_alone_are_transactions() {
    let mut script = Script::default();
    script
        .line(9)
        .begin()
        .line(10)
        .mark_ranges(Annotation::TransactionAdd, 0, &[(FIRST, 8)])
        .line(11)
        .store(FIRST + 8, 1)
        .persist(FIRST)
        .line(12)
        .mark(Annotation::TransactionEnd);
    let found = found(&mut script);
    assert_eq!(
        found,
        [
            (Code::StoreNotAdded, vec![11, 9], 1),
            (Code::AddWithoutStore, vec![10], 1)
        ]
    );
}

#[test]
fn an_object_that_only_its_library_flushed_is_not_persisted() {
    let allocated = |script: &mut Script| {
        script
            .stack(&[(LIBPMEMOBJ, 7), (PROGRAM, 9)])
            .store(FIRST, 0)
            .persist(FIRST)
            .line(9)
            .mark_ranges(Annotation::Allocate, allocation::ZEROED, &[(FIRST, 64)]);
    };
    let mut script = Script::opened();
    allocated(&mut script);
    script.line(10).store(FIRST + 8, 5);
    assert_eq!(
        found(&mut script),
        [(Code::ObjectNotPersisted, vec![10], 1)]
    );
    // If the program flushes the line at other times, the missing flush is the bug.
    let mut script = Script::opened();
    allocated(&mut script);
    script
        .line(10)
        .store(FIRST + 8, 5)
        .persist(FIRST)
        .line(11)
        .store(FIRST + 8, 6);
    assert_eq!(found(&mut script), [(Code::StoreNotFlushed, vec![11], 1)]);
    let mut script = Script::opened();
    allocated(&mut script);
    script.line(10).store(FIRST + 8, 5).persist(FIRST);
    assert_eq!(found(&mut script), []);
}

#[test]
fn a_transaction_of_ten_thousand_inserts_is_silent() {
    let mut script = Script::opened();
    script.line(9).begin();
    for insert in 0..10_000 {
        let at = FIRST + insert * 64;
        script
            .line(10)
            .allocate(at, 64)
            .line(11)
            .add(FIRST - 64, 8)
            .line(12)
            .store(at, 1)
            .line(13)
            .store(FIRST - 64, insert);
    }
    script.mark(Annotation::TransactionCommit).line(14);
    for insert in 0..10_001 {
        script.clwb(FIRST - 64 + insert * 64);
    }
    script.sfence().mark(Annotation::TransactionEnd);
    assert_eq!(
        found(&mut script),
        [(Code::DuplicateAdd, vec![11, 11], 9_999)]
    );
}

/// Memory that a transaction allocates is discarded if the transaction is rolled back, if the memory is freed again,
/// or if a reservation is cancelled: stores to it are not flushed and need no flush.
#[test]
fn an_object_that_is_gone_needs_no_flush() {
    const FREED: u64 = 8192;
    const LIVE: u64 = FREED + 64;
    let ways: [fn(&mut Script); 3] = [
        |script| {
            script.line(9).begin().line(10).allocate(FREED, 64);
            script.line(11).store(FREED, 1).line(12).abort();
        },
        |script| {
            script.line(9).begin().line(10).allocate(FREED, 64);
            script.line(11).store(FREED, 1).line(12);
            script.mark_ranges(Annotation::TransactionFree, 0, &[(FREED, 64)]);
            script.commit();
        },
        |script| {
            let reserved = allocation::RESERVED;
            script.line(10);
            script.mark_ranges(Annotation::Allocate, reserved, &[(FREED, 64)]);
            script.line(11).store(FREED, 1).line(12);
            script.mark_ranges(Annotation::Free, 0, &[(FREED, 1)]);
        },
    ];
    for way in ways {
        // The memory was used before, so stores to it are not transient.
        let used = || {
            let mut script = Script::opened();
            for offset in [FREED, LIVE] {
                script.line(8).store(offset, 9).persist(offset);
            }
            way(&mut script);
            script
        };
        assert_eq!(found(&mut used()), []);
        // Stores to its neighbour, and later stores to it, are not discarded.
        for offset in [FREED, LIVE] {
            let bug = found(used().line(13).store(offset, 2));
            assert_eq!(bug, [(Code::StoreNotFlushed, vec![13], 1)]);
        }
    }
}
