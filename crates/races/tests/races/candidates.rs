//! Stores with ordering before and after them.

use crate::common::Script;
use powerfail_model::{Domain, EventIndex, Rules, StoreKind};
use powerfail_races::{Candidate, Candidates};
use powerfail_trace::Trace;

const DATA: u64 = 0x1000;
const FLAG: u64 = 0x2000;

fn candidates_in(trace: &Trace, domain: Domain) -> Vec<Candidate> {
    let mut candidates = Candidates::new(Rules {
        domain,
        ..Rules::default()
    });
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record().expect("the trace is good") {
        candidates.apply(&record);
    }
    candidates.finish()
}

/// Offset, length, and for each store: when it happens, until when it may be lost, whether all before it was durable.
type Told = (u64, u64, Vec<(u64, u64, bool)>);

fn candidates(script: &mut Script) -> Vec<Told> {
    let found = candidates_in(&script.trace(), Domain::Adr);
    let told = found.into_iter().map(|it| {
        let writes = it.writes.iter();
        let writes = writes.map(|it| (it.store.0, it.durable.0, it.follows_all));
        (it.at.offset.0, it.at.len, writes.collect())
    });
    told.collect()
}

#[test]
fn a_flag_that_is_persisted_after_its_data_is_one() {
    let mut script = Script::default();
    script.store(DATA, 1).store(DATA + 8, 2).clwb(DATA).sfence();
    script
        .store(FLAG, 1)
        .clwb(FLAG)
        .sfence()
        .store(DATA + 64, 3);
    assert_eq!(candidates(&mut script), [(FLAG, 8, vec![(4, 6, true)])]);
}

#[test]
fn the_last_store_is_one_only_if_it_is_durable() {
    for (is_fenced, count) in [(true, 1), (false, 0)] {
        let mut script = Script::default();
        script.store(DATA, 1).clwb(DATA).sfence();
        script.store(FLAG, 1).clwb(FLAG);
        if is_fenced {
            script.sfence();
        }
        assert_eq!(candidates(&mut script).len(), count);
    }
}

#[test]
fn what_is_not_ordered_on_both_sides_is_none() {
    // Its data is not fenced before it.
    let mut script = Script::default();
    script.store(DATA, 1).clwb(DATA).store(FLAG, 1);
    script.clwb(FLAG).sfence().store(DATA, 2);
    assert_eq!(candidates(&mut script), []);
    // The next store comes before it is durable.
    let mut script = Script::default();
    script.store(DATA, 1).clwb(DATA).sfence().store(FLAG, 1);
    script.store(DATA + 64, 1).clwb(FLAG).sfence();
    assert_eq!(candidates(&mut script), []);
    // There is nothing before it.
    let mut script = Script::default();
    script.store(FLAG, 1).clwb(FLAG).sfence();
    assert_eq!(candidates(&mut script), []);
}

#[test]
fn older_stores_that_are_never_flushed_are_told() {
    let mut script = Script::default();
    script.store(0, 1).store(DATA, 1).clwb(DATA).sfence();
    script.store(FLAG, 1).clwb(FLAG).sfence();
    let expected = [(FLAG, 8, vec![(4, 6, false)])];
    assert_eq!(candidates(&mut script), expected);
}

#[test]
fn only_words_are_candidates() {
    let mut script = Script::default();
    script.store(DATA, 1).clwb(DATA).sfence();
    for (offset, len) in [(0, 16), (3, 2), (4, 8), (8, 3), (6, 2), (12, 4), (64, 1)] {
        script.store_as(StoreKind::Plain, FLAG + offset, &vec![1; len]);
        script.clwb(FLAG + offset).sfence();
    }
    let found = candidates(&mut script);
    let places: Vec<_> = found.iter().map(|it| (it.0 - FLAG, it.1)).collect();
    assert_eq!(places, [(6, 2), (12, 4), (64, 1)]);
}

#[test]
fn a_word_may_be_stored_in_two_parts() {
    let mut script = Script::default();
    script.store(DATA, 1).clwb(DATA).sfence();
    script.store_as(StoreKind::Plain, FLAG, &[1; 4]);
    script.store_as(StoreKind::Plain, FLAG + 4, &[1; 4]);
    script.clwb(FLAG).sfence();
    // Not within one word.
    for (first, second) in [(68, 72), (128, 136), (196, 192)] {
        script.store_as(StoreKind::Plain, FLAG + first, &[1; 4]);
        script.store_as(StoreKind::Plain, FLAG + second, &[1; 4]);
        script.clwb(FLAG + first).sfence();
    }
    let expected = [(FLAG, 8, vec![(4, 6, true)])];
    assert_eq!(candidates(&mut script), expected);
}

#[test]
fn threads_are_ordered_each_for_itself() {
    let mut script = Script::default();
    script.store(DATA, 1).clwb(DATA).sfence();
    // A store of another thread is open all the time.
    script.thread(1).store(DATA + 64, 1).thread(0);
    script.store(FLAG, 1).clwb(FLAG).sfence();
    let expected = [(FLAG, 8, vec![(4, 6, true)])];
    assert_eq!(candidates(&mut script), expected);
}

#[test]
fn streamed_and_locked_stores_can_be_candidates() {
    let mut script = Script::default();
    script.store(DATA, 1).clwb(DATA).sfence();
    script.stream(FLAG, 1).sfence();
    script.locked(FLAG + 64, 1).clwb(FLAG + 64).sfence();
    let expected = [
        (FLAG, 8, vec![(3, 4, true)]),
        (FLAG + 64, 8, vec![(5, 7, true)]),
    ];
    assert_eq!(candidates(&mut script), expected);
}

/// If every store becomes durable in order, the order carries no information.
#[test]
fn with_durable_caches_there_are_none() {
    let mut script = Script::default();
    script.store(DATA, 1).sfence().store(FLAG, 1).sfence();
    assert_eq!(candidates_in(&script.trace(), Domain::Eadr), []);
}
