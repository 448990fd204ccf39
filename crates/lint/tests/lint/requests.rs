//! Client requests of pmemcheck: they act as flushes and fences, and cause no findings themselves.

use crate::common::{Script, hits, summary};
use powerfail_finding::Code;
use powerfail_lint::LintOptions;
use powerfail_model::{Event, FenceKind, PoolIndex};
use powerfail_protocol::request::pmemcheck;
use powerfail_trace::{AnnotatedRange, Annotation, Body, Mark, MarkKind};

type Found = Vec<(Code, Vec<u64>, u64)>;

fn found(script: &mut Script) -> Found {
    let trace = script.trace();
    summary(&trace, &hits(&trace, &LintOptions::default()))
}

fn mark(script: &mut Script, annotation: Annotation, value: u64, offset: u64, len: u64) {
    let range = AnnotatedRange {
        pool: Some(PoolIndex(0)),
        offset,
        len,
    };
    script.append(Body::Mark(Mark {
        kind: MarkKind::Annotation(annotation),
        value,
        payload: &range.to_bytes(),
    }));
}

/// A request to flush, as the runtime records it.
fn request_flush(script: &mut Script, offset: u64, len: u64) {
    mark(
        script,
        Annotation::ClientRequest,
        pmemcheck::FLUSH,
        offset,
        len,
    );
    for line in offset / 64..=(offset + len - 1) / 64 {
        script.clwb(64 * line);
    }
}

/// A request to fence, as the runtime records it if something is pending.
fn request_fence(script: &mut Script) {
    mark(script, Annotation::ClientRequest, pmemcheck::FENCE, 0, 0);
    script.pm(Event::Fence(FenceKind::Locked));
}

#[test]
fn requests_make_durable() {
    let mut script = Script::default();
    script.line(10).store(0, 1).store(100, 2);
    script.line(20);
    request_flush(&mut script, 0, 128);
    request_fence(&mut script);
    script.line(30).store(8, 3);
    assert_eq!(
        found(&mut script),
        [(Code::StoreNotFlushed, vec![30], 1)],
        "only what comes after them is missed"
    );
    let mut script = Script::default();
    script.line(10).store(0, 1);
    request_flush(&mut script, 0, 8);
    assert_eq!(
        found(&mut script).first().map(|hit| hit.0),
        Some(Code::FlushNotFenced),
        "a request to flush needs a fence as well"
    );
}

#[test]
fn beside_instructions_they_are_not_judged() {
    let mut after = Script::default();
    after.line(10).store(0, 1).clwb(0).sfence().line(20);
    request_flush(&mut after, 0, 8);
    request_fence(&mut after);
    assert_eq!(found(&mut after), []);
    let mut before = Script::default();
    before.line(10).store(0, 1).line(20);
    request_flush(&mut before, 0, 8);
    request_fence(&mut before);
    before.line(30).clwb(0).sfence();
    assert_eq!(found(&mut before), []);
    let mut between = Script::default();
    between.line(10).store(0, 1).clwb(0).line(20);
    request_flush(&mut between, 0, 8);
    request_fence(&mut between);
    between.line(30).sfence();
    assert_eq!(found(&mut between), []);
}

#[test]
fn an_instruction_that_no_request_has_announced_is_judged() {
    let mut script = Script::default();
    script.line(10).store(0, 1).clwb(0).sfence().line(20);
    request_flush(&mut script, 0, 8);
    request_fence(&mut script);
    script.line(30).clwb(0).sfence();
    assert_eq!(found(&mut script), [(Code::RedundantFlush, vec![30], 1)]);
}

#[test]
fn a_clean_store_is_not_missed() {
    let prepare = |script: &mut Script| {
        script.line(10).store(0, 1).persist(0);
        script.line(20).store(8, 2).line(21).store(16, 3);
    };
    let mut script = Script::default();
    prepare(&mut script);
    mark(&mut script, Annotation::Clean, 0, 8, 8);
    assert_eq!(found(&mut script), [(Code::StoreNotFlushed, vec![21], 1)]);
    let mut script = Script::default();
    prepare(&mut script);
    mark(&mut script, Annotation::Clean, 0, 0, 4096);
    assert_eq!(found(&mut script), []);
    let mut script = Script::default();
    prepare(&mut script);
    mark(&mut script, Annotation::Clean, 0, 0, 4096);
    script.line(30).store(8, 4);
    assert_eq!(
        found(&mut script),
        [(Code::StoreNotFlushed, vec![30], 1)],
        "later stores are not clean"
    );
}

#[test]
fn a_transaction_by_requests_has_to_hold_what_is_stored() {
    let store = |prepare: &dyn Fn(&mut Script)| {
        let mut script = Script::default();
        script.line(10).mark(Annotation::TransactionBegin);
        mark(&mut script, Annotation::TransactionAdd, 0, 0, 8);
        script.line(20).store(0, 1);
        prepare(&mut script);
        script.line(30).store(64, 2);
        script.line(40).clwb(0).clwb(64).sfence();
        script.mark(Annotation::TransactionEnd);
        found(&mut script)
    };
    let missing = [(Code::StoreNotAdded, vec![30, 10], 1)];
    assert_eq!(store(&|_| ()), missing);
    assert_eq!(
        store(&|it| mark(it, Annotation::TransactionAdd, 0, 64, 8)),
        []
    );
    let remove = |script: &mut Script| {
        mark(script, Annotation::TransactionAdd, 0, 64, 8);
        mark(script, Annotation::ClientRequest, pmemcheck::REMOVE, 64, 8);
    };
    assert_eq!(store(&remove)[..1], missing);
    let ignore = |script: &mut Script| {
        mark(script, Annotation::ClientRequest, pmemcheck::IGNORE, 64, 64);
    };
    assert_eq!(store(&ignore), []);
}
