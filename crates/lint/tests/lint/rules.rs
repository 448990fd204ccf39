//! Each rule: the bug is found at its line, and the repaired twin has no finding. Flushes and fences that are of no use
//! have a file of their own, `useless.rs`.

use crate::common::{
    Found, POOL_ADDRESS, POOL_BYTES, Script, found, found_under, hits, place, script, summary,
};
use powerfail_finding::{Code, Role};
use powerfail_lint::LintOptions;
use powerfail_model::{Domain, Event, FenceKind, FlushKind, PoolIndex, StoreKind};
use powerfail_trace::{Annotation, Body};

fn warned(script: &mut Script) -> Found {
    let options = LintOptions {
        warnings: true,
        ..LintOptions::default()
    };
    let trace = script.trace();
    summary(&trace, &hits(&trace, &options))
}

#[test]
fn a_store_after_the_last_flush_is_lost() {
    let bug = found(
        script()
            .line(10)
            .store(0, 1)
            .persist(0)
            .line(20)
            .store(8, 2),
    );
    assert_eq!(bug, [(Code::StoreNotFlushed, vec![20], 1)]);
    let repaired = found(
        script()
            .line(10)
            .store(0, 1)
            .persist(0)
            .line(20)
            .store(8, 2)
            .persist(8),
    );
    assert_eq!(repaired, []);
}

#[test]
fn a_hit_describes_the_first_store() {
    let trace = script()
        .line(10)
        .store(0, 1)
        .persist(0)
        .thread(2)
        .line(20)
        .store_as(StoreKind::Plain, 16, &[7; 40])
        .trace();
    let hits = hits(&trace, &LintOptions::default());
    assert_eq!(hits.len(), 1);
    assert!(hits[0].confirmed);
    let site = &hits[0].sites[0];
    assert_eq!(site.role, Role::Store);
    assert_eq!((site.event.0, site.thread.0), (3, 2));
    assert_eq!(site.place, Some(place(16)));
    assert_eq!((site.len_bytes, &site.bytes[..]), (40, &[7; 32][..]));
    assert_eq!(site.stack, site.user);
}

#[test]
fn a_store_that_was_replaced_by_a_durable_one_is_not_missed() {
    let replaced = |script: &mut Script| {
        found(
            script
                .line(10)
                .store(0, 1)
                .persist(0)
                .line(20)
                .store_as(StoreKind::System, 0, &[2; 8])
                .line(30)
                .store(0, 3)
                .persist(0),
        )
    };
    assert_eq!(replaced(&mut script()), []);
    // One byte of it remains and is never flushed.
    let bug = found(
        script()
            .line(10)
            .store(0, 1)
            .persist(0)
            .line(20)
            .store(4, 2)
            .line(30)
            .store_as(StoreKind::Plain, 0, &[1; 8]),
    );
    assert_eq!(
        bug,
        [
            (Code::StoreNotFlushed, vec![20], 1),
            (Code::StoreNotFlushed, vec![30], 1)
        ]
    );
}

#[test]
fn a_store_over_two_lines_needs_both_flushed() {
    let bug = found(
        script()
            .line(10)
            .store_as(StoreKind::Plain, 60, &[1; 8])
            .persist(0),
    );
    assert_eq!(bug, [(Code::StoreNotFlushed, vec![10], 1)]);
    let repaired = found(
        script()
            .line(10)
            .store_as(StoreKind::Plain, 60, &[1; 8])
            .clwb(0)
            .persist(64),
    );
    assert_eq!(repaired, []);
}

#[test]
fn data_that_is_never_flushed_is_transient() {
    let bug = found(
        script()
            .line(10)
            .store(4096, 1)
            .line(20)
            .store(4096, 2)
            .line(30)
            .store(0, 1)
            .persist(0),
    );
    assert_eq!(bug, [(Code::TransientData, vec![20], 1)]);
    // A flush of the adjacent line makes no difference, as in examples/forgotten_flush.c.
    let beside = found(
        script()
            .line(10)
            .store(0, 0x11)
            .line(20)
            .store(64, 1)
            .persist(64),
    );
    assert_eq!(beside, [(Code::TransientData, vec![10], 1)]);
    let repaired = found(
        script()
            .line(10)
            .store(4096, 1)
            .persist(4096)
            .line(30)
            .store(0, 1)
            .persist(0),
    );
    assert_eq!(repaired, []);
}

#[test]
fn code_whose_other_stores_are_flushed_forgot_to_flush() {
    let bug = found(
        script()
            .line(10)
            .store(0, 1)
            .persist(0)
            .line(10)
            .store(8192, 1),
    );
    assert_eq!(bug, [(Code::StoreNotFlushed, vec![10], 1)]);
}

#[test]
fn locks_are_not_missed_but_pointers_are() {
    let lock = |script: &mut Script| {
        found(
            script
                .line(10)
                .locked(0, 1)
                .line(20)
                .store(8, 5)
                .persist(8)
                .line(30)
                .store(0, 0),
        )
    };
    assert_eq!(lock(&mut script()), []);
    let alone = found(script().line(10).locked(0, 1).line(30).store(0, 0));
    assert_eq!(alone, [(Code::TransientData, vec![30], 1)]);
    let pointer = found(
        script()
            .line(20)
            .store(8, 5)
            .persist(8)
            .line(10)
            .locked(0, POOL_ADDRESS + 4096),
    );
    assert_eq!(pointer, [(Code::StoreNotFlushed, vec![10], 1)]);
}

#[test]
fn a_flush_needs_a_fence_of_its_thread() {
    let bug = found(
        script()
            .line(10)
            .store(0, 1)
            .line(20)
            .clwb(0)
            .thread(1)
            .line(30)
            .store(64, 1)
            .persist(64),
    );
    assert_eq!(bug, [(Code::FlushNotFenced, vec![10, 20], 1)]);
    let repaired = found(
        script()
            .line(10)
            .store(0, 1)
            .line(20)
            .clwb(0)
            .thread(1)
            .line(30)
            .store(64, 1)
            .persist(64)
            .thread(0)
            .line(40)
            .sfence(),
    );
    assert_eq!(repaired, []);
    let by_another = found(
        script()
            .line(10)
            .store(0, 1)
            .line(20)
            .clwb(0)
            .thread(1)
            .line(30)
            .persist(0),
    );
    assert_eq!(by_another, []);
    let clflush = found(
        script()
            .line(10)
            .store(0, 1)
            .line(20)
            .flush_as(FlushKind::Clflush, 0),
    );
    assert_eq!(clflush, []);
    let locked = found(
        script()
            .line(10)
            .store(0, 1)
            .line(20)
            .clwb(0)
            .pm(Event::Fence(FenceKind::Locked)),
    );
    assert_eq!(locked, []);
}

#[test]
fn a_non_temporal_store_needs_a_fence() {
    for domain in [Domain::Adr, Domain::Eadr] {
        let bug = found_under(domain, script().line(10).stream(0, 1));
        assert_eq!(bug, [(Code::FlushNotFenced, vec![10], 1)]);
        let repaired = found_under(domain, script().line(10).stream(0, 1).sfence());
        assert_eq!(repaired, []);
    }
}

fn list(script: &mut Script) -> &mut Script {
    // A node, and a head that already has content.
    script
        .line(10)
        .store(4096, 7)
        .line(20)
        .store(0, POOL_ADDRESS + 4096)
}

#[test]
fn a_pointer_must_not_be_durable_before_its_target() {
    let head: &[(u64, &[u8])] = &[(8, b"magic")];
    let trace = list(&mut Script::with_image(head))
        .persist(0)
        .line(30)
        .persist(4096)
        .trace();
    let found_hits = hits(&trace, &LintOptions::default());
    assert_eq!(
        summary(&trace, &found_hits),
        [(Code::PublishedBeforeDurable, vec![10, 20], 1)]
    );
    assert!(!found_hits[0].confirmed);
    assert_eq!(found_hits[0].sites[1].role, Role::Publish);

    let repaired = found(
        Script::with_image(head)
            .line(10)
            .store(4096, 7)
            .persist(4096)
            .line(20)
            .store(0, POOL_ADDRESS + 4096)
            .persist(0),
    );
    assert_eq!(repaired, []);
    // Offsets are pointers too.
    let offset = found(
        Script::with_image(head)
            .line(10)
            .store(4096, 7)
            .line(20)
            .store(0, 4096)
            .persist(0)
            .line(30)
            .persist(4096),
    );
    assert_eq!(offset, [(Code::PublishedBeforeDurable, vec![10, 20], 1)]);
}

#[test]
fn flushing_the_target_first_does_not_help_a_pointer_that_is_stored_already() {
    let head: &[(u64, &[u8])] = &[(8, b"magic")];
    let candidate = [(Code::PublishedBeforeDurable, vec![10, 20], 1)];
    let one_fence = found(
        list(&mut Script::with_image(head))
            .clwb(4096)
            .clwb(0)
            .sfence(),
    );
    assert_eq!(one_fence, candidate);
    let flushed_before = found(
        Script::with_image(head)
            .line(10)
            .store(4096, 7)
            .clwb(4096)
            .line(20)
            .store(0, 4096)
            .persist(0),
    );
    assert_eq!(flushed_before, candidate);
    let two_fences = found(list(&mut Script::with_image(head)).persist(4096).persist(0));
    assert_eq!(two_fences, candidate);
}

#[test]
fn what_nothing_refers_to_may_be_built_in_any_order() {
    let unreachable = found(list(&mut script()).persist(0).line(30).persist(4096));
    assert_eq!(unreachable, []);
    let head: &[(u64, &[u8])] = &[(8, b"magic")];
    let transaction = found(
        list(Script::with_image(head).mark(Annotation::TransactionBegin))
            .persist(0)
            .line(30)
            .persist(4096)
            .mark(Annotation::TransactionEnd),
    );
    assert_eq!(transaction, []);
    // A pointer that is never flushed is lost anyway.
    let unflushed = found(list(&mut Script::with_image(head)).line(30).persist(4096));
    assert_eq!(unflushed, [(Code::TransientData, vec![20], 1)]);
}

#[test]
fn volatile_memory_needs_no_flush() {
    let volatile = Body::VolatileFlush {
        kind: FlushKind::Clwb,
        address: 0x1234,
    };
    let trace = script().line(10).append(volatile).sfence().trace();
    let found_hits = hits(&trace, &LintOptions::default());
    assert_eq!(
        summary(&trace, &found_hits),
        [(Code::VolatileFlush, vec![10], 1)]
    );
    assert_eq!(found_hits[0].sites[0].address, Some(0x1234));
    let cut = Event::Resize {
        pool: PoolIndex(0),
        len_bytes: 4096,
    };
    let beyond = found(script().line(10).pm(cut).line(20).persist(8192));
    assert_eq!(beyond, [(Code::VolatileFlush, vec![20], 1)]);
    let grown = Event::Resize {
        pool: PoolIndex(0),
        len_bytes: 2 * POOL_BYTES,
    };
    assert_eq!(
        found(script().line(10).pm(grown).line(20).store(0, 1).persist(0)),
        []
    );
}

#[test]
fn what_is_cut_off_is_not_missed() {
    let cut = Event::Resize {
        pool: PoolIndex(0),
        len_bytes: 4096,
    };
    assert_eq!(found(script().line(10).store(8192, 1).pm(cut)), []);
    let kept = found(
        script()
            .line(10)
            .store_as(StoreKind::Plain, 4092, &[1; 8])
            .pm(cut),
    );
    assert_eq!(kept, [(Code::TransientData, vec![10], 1)]);
}

#[test]
fn a_value_replaced_before_it_is_flushed_was_stored_in_vain() {
    let bug = found(
        script()
            .line(10)
            .store(0, 1)
            .line(20)
            .store(0, 2)
            .persist(0),
    );
    assert_eq!(bug, [(Code::DirtyOverwrite, vec![10, 20], 1)]);
    for (first, second) in [(0, 2), (2, 2)] {
        let fine = found(
            script()
                .line(10)
                .store(0, first)
                .line(20)
                .store(0, second)
                .persist(0),
        );
        assert_eq!(fine, []);
    }
    let between = found(
        script()
            .line(10)
            .store(0, 1)
            .persist(0)
            .line(20)
            .store(0, 2)
            .persist(0),
    );
    assert_eq!(between, []);
    let accumulated = found(script().line(10).store(0, 1).store(0, 2).persist(0));
    assert_eq!(accumulated, []);
    let transaction = found(
        script()
            .mark(Annotation::TransactionBegin)
            .line(10)
            .store(0, 1)
            .line(20)
            .store(0, 2)
            .mark(Annotation::TransactionEnd)
            .persist(0),
    );
    assert_eq!(transaction, []);
    let transient = found(script().line(10).store(0, 1).line(20).store(0, 2));
    assert_eq!(transient, [(Code::TransientData, vec![20], 1)]);
}

#[test]
fn the_creation_of_a_pool_is_silent() {
    let created = |script: &mut Script| {
        found(
            script
                .mark(Annotation::CreationBegin)
                .line(10)
                .store(0, 1)
                .persist(0)
                .persist(0)
                .sfence()
                .store(4096, 1)
                .store(0, 9)
                .mark(Annotation::CreationEnd),
        )
    };
    assert_eq!(created(&mut script()), []);
    let after = found(
        script()
            .mark(Annotation::CreationBegin)
            .line(10)
            .mark(Annotation::CreationEnd)
            .sfence(),
    );
    assert_eq!(after, [(Code::RedundantFence, vec![10], 1)]);
}

#[test]
fn warnings_are_off_by_default() {
    let shared = |script: &mut Script| {
        script
            .line(10)
            .store(0, 1)
            .line(11)
            .store(8, 1)
            .line(20)
            .persist(0)
            .trace()
    };
    let trace = shared(&mut script());
    assert_eq!(hits(&trace, &LintOptions::default()), []);
    let with = warned(
        script()
            .line(10)
            .store(0, 1)
            .line(11)
            .store(8, 1)
            .line(20)
            .persist(0),
    );
    assert_eq!(with, [(Code::SharedFlush, vec![20, 10, 11], 1)]);
    let unordered = warned(
        script()
            .line(10)
            .store(0, 1)
            .clwb(0)
            .line(11)
            .store(64, 1)
            .clwb(64)
            .line(20)
            .sfence(),
    );
    assert_eq!(unordered, [(Code::UnorderedFlushes, vec![20, 10, 11], 1)]);
    let ordered = warned(
        script()
            .line(10)
            .store(0, 1)
            .persist(0)
            .line(11)
            .store(64, 1)
            .persist(64),
    );
    assert_eq!(ordered, []);
}

#[test]
fn under_eadr_no_flush_is_missed_and_none_is_redundant() {
    let flushes = found_under(
        Domain::Eadr,
        script()
            .line(10)
            .store(0, 1)
            .persist(0)
            .line(20)
            .persist(0)
            .line(30)
            .store(0, 2)
            .line(40)
            .store(4096, 3),
    );
    assert_eq!(flushes, []);
    let fence = found_under(
        Domain::Eadr,
        script().line(10).store(0, 1).line(20).sfence(),
    );
    assert_eq!(fence, [(Code::RedundantFence, vec![20], 1)]);
}

#[test]
fn under_pagecache_syncs_are_the_flushes() {
    let instructions = found_under(
        Domain::PageCache,
        script()
            .line(10)
            .store(0, 1)
            .line(20)
            .persist(0)
            .line(30)
            .sfence(),
    );
    assert_eq!(instructions, [(Code::TransientData, vec![10], 1)]);
    let synced = found_under(
        Domain::PageCache,
        script().line(10).store(0, 1).line(20).sync(0, 4096),
    );
    assert_eq!(synced, []);
    // The unit is a sector of 512 bytes.
    let sector = found_under(
        Domain::PageCache,
        script().line(10).store(500, 1).line(20).sync(0, 1),
    );
    assert_eq!(sector, []);
    let lost = found_under(
        Domain::PageCache,
        script()
            .line(10)
            .store(0, 1)
            .line(20)
            .sync(0, 4096)
            .line(30)
            .store(64, 1),
    );
    assert_eq!(lost, [(Code::StoreNotFlushed, vec![30], 1)]);
    let redundant = found_under(
        Domain::PageCache,
        script()
            .line(10)
            .store(0, 1)
            .line(20)
            .sync(0, 4096)
            .line(30)
            .sync(0, 4096),
    );
    assert_eq!(redundant, [(Code::RedundantFlush, vec![30], 1)]);
}

#[test]
fn the_same_bug_is_one_hit_with_a_count() {
    let mut script = script();
    for round in 0..3 {
        script.stack(&[
            (crate::common::PROGRAM, 10),
            (crate::common::PROGRAM, 90 + round),
        ]);
        script
            .store(round * 64, 1)
            .persist(round * 64)
            .store(round * 64, 2);
    }
    assert_eq!(found(&mut script), [(Code::StoreNotFlushed, vec![10], 3)]);
}
