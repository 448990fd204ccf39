//! The rules of cross-failure analysis on hand-made traces: the examples of the paper, and one trace for each
//! rule.

use crate::common::{Script, place};
use powerfail_model::{Domain, EventIndex, FlushKind, PoolIndex, PoolOffset, Rules};
use powerfail_races::{
    CommitVariable, Judgement, NotDurable, Persistence, PoolRange, Shadow, ShadowOptions,
};
use powerfail_trace::{Annotation, Trace, annotation};

const VALID: u64 = 0x000;
const BACKUP: u64 = 0x100;
const ARRAY: u64 = 0x200;
const WORD: u64 = 0xff;

fn adr() -> ShadowOptions {
    ShadowOptions::default()
}

fn strict() -> ShadowOptions {
    ShadowOptions {
        strict: true,
        ..ShadowOptions::default()
    }
}

/// The shadow just before event `at`.
fn shadow_at(trace: &Trace, options: &ShadowOptions, at: u64) -> Shadow {
    let mut shadow = Shadow::new(trace, options).expect("no overlap");
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record().expect("the trace is good") {
        if record.index.0 == at {
            break;
        }
        shadow.apply(&record).expect("no overlap");
    }
    shadow
}

/// The result of a read of the word at `offset` just before event `at`. Judged lines are watched.
fn read(trace: &Trace, options: &ShadowOptions, at: u64, offset: u64) -> Vec<Judgement> {
    let shadow = shadow_at(trace, options, at);
    let line = PoolOffset(offset / 64 * 64);
    let bytes = WORD << (offset % 64);
    let judgements = shadow.judge(PoolIndex(0), line, bytes);
    let watched = shadow
        .watches()
        .iter()
        .find(|watch| watch.offset == line)
        .map_or(0, |watch| watch.bytes & bytes);
    let judged = judgements.iter().fold(0, |all, it| all | it.bytes());
    assert_eq!(watched, judged, "{judgements:?}");
    let word = |bytes: u64| bytes >> (offset % 64);
    let of_word = judgements.into_iter().map(|judgement| match judgement {
        Judgement::Race { bytes, writer, why } => Judgement::Race {
            bytes: word(bytes),
            writer,
            why,
        },
        Judgement::Uncommitted {
            bytes,
            writer,
            commit,
        } => Judgement::Uncommitted {
            bytes: word(bytes),
            writer,
            commit,
        },
        Judgement::Stale {
            bytes,
            writer,
            commits,
        } => Judgement::Stale {
            bytes: word(bytes),
            writer,
            commits,
        },
        Judgement::Uninitialised { bytes, allocation } => Judgement::Uninitialised {
            bytes: word(bytes),
            allocation,
        },
    });
    of_word.collect()
}

fn uncommitted(writer: u64, commit: Option<u64>) -> Vec<Judgement> {
    vec![Judgement::Uncommitted {
        bytes: WORD,
        writer: EventIndex(writer),
        commit: commit.map(EventIndex),
    }]
}

fn stale(writer: u64, commits: [u64; 2]) -> Vec<Judgement> {
    vec![Judgement::Stale {
        bytes: WORD,
        writer: EventIndex(writer),
        commits: commits.map(EventIndex),
    }]
}

fn race(writer: u64, why: NotDurable) -> Vec<Judgement> {
    vec![Judgement::Race {
        bytes: WORD,
        writer: EventIndex(writer),
        why,
    }]
}

/// Figure 2, without the values of the valid bit: they decide what recovery reads, not what it may read.
fn update() -> Trace {
    Script::default()
        .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 8)]) // 0
        .store(BACKUP, 7) // 1: create the backup
        .persist(BACKUP) // 2, 3
        .store(VALID, 1) // 4
        .persist(VALID) // 5, 6
        .store(ARRAY, 8) // 7: update in place
        .persist(ARRAY) // 8, 9
        .store(VALID, 2) // 10
        .persist(VALID) // 11, 12
        .trace()
}

#[test]
fn figure_2_with_the_right_valid_bit_is_silent() {
    let trace = update();
    for options in [adr(), strict()] {
        // Valid is set: recovery reads the backup and overwrites the array.
        for failure in [6, 9] {
            assert_eq!(read(&trace, &options, failure, VALID), []);
            assert_eq!(read(&trace, &options, failure, BACKUP), []);
        }
        // Not valid yet, or not any more: the array is read.
        for failure in [3, 12] {
            assert_eq!(read(&trace, &options, failure, VALID), []);
            assert_eq!(read(&trace, &options, failure, ARRAY), []);
        }
    }
}

#[test]
fn figure_2_with_the_wrong_valid_bit_reads_what_is_not_persisted_and_then_what_is_stale() {
    let trace = update();
    // The bit says that there is no backup, so the array is read while it is updated.
    let flushed = NotDurable::NotFenced {
        flush: EventIndex(8),
    };
    assert_eq!(read(&trace, &strict(), 9, ARRAY), race(7, flushed));
    assert_eq!(read(&trace, &adr(), 9, ARRAY), []);
    // At the end it says that there is one.
    assert_eq!(read(&trace, &adr(), 12, BACKUP), stale(1, [4, 10]));
    assert_eq!(read(&trace, &strict(), 12, BACKUP), stale(1, [4, 10]));
}

#[test]
fn figure_11_is_a_race_at_the_first_failure_and_a_semantic_bug_at_the_second() {
    const BACKUP: u64 = 0x08;
    let trace = Script::default()
        .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 8)]) // 0
        .store(BACKUP, 7) // 1
        .store(VALID, 1) // 2, in the same line
        .persist(VALID) // 3, 4: the first failure is before the flush
        .store(ARRAY, 8) // 5
        .persist(ARRAY) // 6, 7: and the second before this one
        .trace();
    let strict = strict();
    assert_eq!(read(&trace, &strict, 3, VALID), []);
    assert_eq!(
        read(&trace, &strict, 3, BACKUP),
        race(1, NotDurable::NeverFlushed)
    );
    assert_eq!(read(&trace, &strict, 6, VALID), []);
    for options in [adr(), strict] {
        assert_eq!(read(&trace, &options, 6, BACKUP), uncommitted(1, Some(2)));
    }
}

#[test]
fn figure_6_tells_what_was_modified_between_the_last_two_commit_writes() {
    let (first, second) = (0x400, 0x480);
    let trace = Script::default()
        .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 8)]) // 0
        .store(first, 1) // 1
        .persist(first) // 2, 3
        .store(VALID, 1) // 4
        .persist(VALID) // 5, 6
        .store(second, 1) // 7
        .persist(second) // 8, 9
        .store(VALID, 2) // 10
        .persist(VALID) // 11, 12
        .store(second, 2) // 13
        .persist(second) // 14, 15
        .mark(Annotation::User) // 16
        .trace();
    assert_eq!(read(&trace, &adr(), 13, first), stale(1, [4, 10]));
    assert_eq!(read(&trace, &adr(), 13, second), []);
    assert_eq!(read(&trace, &adr(), 16, second), uncommitted(13, None));
}

#[test]
fn a_fence_without_a_flush_commits_nothing() {
    let trace = Script::default()
        .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 8)]) // 0
        .store(ARRAY, 1) // 1
        .sfence() // 2: orders, but makes nothing durable
        .store(VALID, 1) // 3
        .persist(VALID) // 4, 5
        .persist(ARRAY) // 6, 7
        .mark(Annotation::User) // 8
        .trace();
    assert_eq!(read(&trace, &adr(), 8, ARRAY), uncommitted(1, Some(3)));
}

#[test]
fn a_store_that_does_not_wait_for_the_commit_before_it_is_not_committed_by_the_next_one() {
    let script = |persist_commit: bool| {
        let mut script = Script::default();
        script
            .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 8)]) // 0
            .store(VALID, 1) // 1
            .clwb(if persist_commit { VALID } else { BACKUP }) // 2
            .sfence() // 3
            .store(ARRAY, 1) // 4
            .persist(ARRAY) // 5, 6
            .store(VALID, 2) // 7
            .persist(VALID) // 8, 9
            .trace()
    };
    assert_eq!(read(&script(true), &adr(), 9, ARRAY), []);
    assert_eq!(read(&script(false), &adr(), 9, ARRAY), stale(4, [1, 7]));
}

#[test]
fn stores_between_two_ordering_points_are_one_commit_write() {
    let script = |between: Annotation| {
        Script::default()
            .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 16)]) // 0
            .store(ARRAY, 1) // 1
            .persist(ARRAY) // 2, 3
            .store(VALID, 1) // 4: the first half of a pointer
            .mark(between) // 5
            .store(VALID + 8, 1) // 6
            .mark(Annotation::User) // 7
            .trace()
    };
    assert_eq!(read(&script(Annotation::User), &adr(), 7, ARRAY), []);
    let apart = script(Annotation::LibraryEnter);
    assert_eq!(read(&apart, &adr(), 7, ARRAY), stale(1, [4, 6]));
}

#[test]
fn a_locked_commit_write_is_a_fence_first() {
    let trace = Script::default()
        .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 8)]) // 0
        .store(ARRAY, 1) // 1
        .clwb(ARRAY) // 2
        .locked(VALID, 1) // 3
        .mark(Annotation::User) // 4
        .trace();
    assert_eq!(read(&trace, &strict(), 4, ARRAY), []);
}

#[test]
fn where_caches_survive_each_store_waits_for_the_one_before_it() {
    let trace = Script::default()
        .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 16)]) // 0
        .store(BACKUP, 1) // 1
        .store(VALID, 1) // 2
        .store(VALID + 8, 1) // 3
        .store(ARRAY, 1) // 4
        .store(VALID, 2) // 5
        .store(ARRAY, 2) // 6
        .stream(ARRAY + 64, 2) // 7
        .mark(Annotation::User) // 8
        .trace();
    let options = ShadowOptions {
        rules: Rules {
            domain: Domain::Eadr,
            ..Rules::default()
        },
        strict: true,
        ..ShadowOptions::default()
    };
    assert_eq!(read(&trace, &options, 4, BACKUP), []);
    assert_eq!(read(&trace, &options, 5, ARRAY), uncommitted(4, None));
    assert_eq!(read(&trace, &options, 6, ARRAY), []);
    assert_eq!(read(&trace, &options, 6, BACKUP), stale(1, [2, 5]));
    let unfenced = NotDurable::NotFenced {
        flush: EventIndex(7),
    };
    assert_eq!(read(&trace, &options, 8, ARRAY + 64), race(7, unfenced));
}

#[test]
fn ranges_say_what_a_variable_decides_about() {
    let other = 0x40;
    let trace = Script::default()
        .mark_ranges(Annotation::CommitRange, 0, &[(VALID, 8), (ARRAY, 8)]) // 0
        .mark_ranges(Annotation::CommitRange, 0, &[(other, 8), (BACKUP, 8)]) // 1
        .store(ARRAY, 1) // 2
        .store(ARRAY + 8, 1) // 3: no variable decides about it
        .clwb(ARRAY) // 4
        .store(BACKUP, 1) // 5
        .persist(BACKUP) // 6, 7
        .store(other, 1) // 8
        .persist(other) // 9, 10
        .mark(Annotation::User) // 11
        .trace();
    assert_eq!(read(&trace, &adr(), 11, ARRAY), uncommitted(2, None));
    assert_eq!(read(&trace, &adr(), 11, ARRAY + 8), []);
    assert_eq!(read(&trace, &adr(), 11, BACKUP), []);
    let shadow = shadow_at(&trace, &adr(), 11);
    let is_variable =
        |offset, len| shadow.is_commit_variable(PoolIndex(0), PoolOffset(offset), len);
    assert!(is_variable(VALID, 8) && is_variable(other, 4));
    assert!(!is_variable(VALID, 9) && !is_variable(ARRAY, 8));
    assert_eq!(
        shadow.commit_variable_bytes(PoolIndex(0), PoolOffset(other)),
        WORD
    );
}

#[test]
fn a_second_variable_without_ranges_leaves_none_that_decides_about_everything() {
    let trace = Script::default()
        .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 8)]) // 0
        .store(ARRAY, 1) // 1
        .persist(ARRAY) // 2, 3
        .mark_ranges(Annotation::CommitVariable, 0, &[(BACKUP, 8)]) // 4
        .mark(Annotation::User) // 5
        .trace();
    assert_eq!(read(&trace, &adr(), 4, ARRAY), uncommitted(1, None));
    assert_eq!(read(&trace, &adr(), 5, ARRAY), []);
}

#[test]
fn ranges_of_two_variables_that_overlap_are_an_error_that_names_both() {
    let trace = Script::default()
        .mark_ranges(Annotation::CommitRange, 0, &[(VALID, 8), (ARRAY, 0x40)])
        .mark_ranges(Annotation::CommitRange, 0, &[(VALID, 8), (ARRAY, 0x40)])
        .mark_ranges(
            Annotation::CommitRange,
            0,
            &[(0x40, 8), (ARRAY + 0x38, 0x40)],
        )
        .trace();
    let mut shadow = Shadow::new(&trace, &adr()).expect("nothing is known yet");
    let mut errors = Vec::new();
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record().expect("the trace is good") {
        errors.extend(shadow.apply(&record).err());
    }
    let [error] = &errors[..] else {
        panic!("{errors:?}");
    };
    assert_eq!(
        error.to_string(),
        "the commit variables at 0x0 of /mnt/pool and at 0x40 of /mnt/pool both decide about 0x238..0x240 of \
         /mnt/pool, but a byte can have one commit variable only"
    );
    assert_eq!(error.mark(), Some(EventIndex(2)));
    let at = |offset| PoolRange {
        pool: PoolIndex(0),
        offset: PoolOffset(offset),
        len: 8,
    };
    assert_eq!(error.variables(), [at(VALID), at(0x40)]);
    let given = |offset| CommitVariable {
        at: at(offset),
        ranges: vec![],
    };
    let options = ShadowOptions {
        commit_variables: vec![given(0x100), given(0x104)],
        ..ShadowOptions::default()
    };
    let error = Shadow::new(&trace, &options).expect_err("they overlap");
    assert_eq!(
        error.to_string(),
        "the commit variables at 0x100 of /mnt/pool and at 0x104 of /mnt/pool share the bytes 0x104..0x108 of \
         /mnt/pool, but a byte can have one commit variable only"
    );
}

#[test]
fn what_was_durable_before_the_variable_was_named_is_unmodified() {
    let trace = Script::default()
        .store(ARRAY, 1) // 0
        .persist(ARRAY) // 1, 2
        .store(BACKUP, 1) // 3
        .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 8)]) // 4
        .persist(BACKUP) // 5, 6
        .mark(Annotation::User) // 7
        .trace();
    assert_eq!(read(&trace, &adr(), 7, ARRAY), []);
    assert_eq!(read(&trace, &adr(), 7, BACKUP), uncommitted(3, None));
}

#[test]
fn what_a_transaction_restores_is_consistent() {
    let trace = Script::default()
        .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 8)]) // 0
        .store(ARRAY, 1) // 1
        .persist(ARRAY) // 2, 3
        .mark(Annotation::TransactionBegin) // 4
        .mark_ranges(Annotation::TransactionAdd, 0, &[(ARRAY, 16)]) // 5
        .store(ARRAY + 8, 2) // 6
        .store(BACKUP, 2) // 7: not added
        .mark_ranges(
            Annotation::TransactionAdd,
            annotation::add::NO_SNAPSHOT,
            &[(BACKUP + 8, 8)],
        ) // 8
        .store(BACKUP + 8, 2) // 9
        .clwb(ARRAY) // 10
        .persist(BACKUP) // 11, 12
        .mark(Annotation::TransactionEnd) // 13
        .store(ARRAY + 8, 3) // 14
        .persist(ARRAY) // 15, 16
        .mark(Annotation::User) // 17
        .trace();
    assert_eq!(read(&trace, &adr(), 5, ARRAY), uncommitted(1, None));
    assert_eq!(read(&trace, &adr(), 13, ARRAY), []);
    assert_eq!(read(&trace, &adr(), 13, ARRAY + 8), []);
    assert_eq!(read(&trace, &adr(), 13, BACKUP), uncommitted(7, None));
    assert_eq!(read(&trace, &adr(), 13, BACKUP + 8), uncommitted(9, None));
    assert_eq!(read(&trace, &adr(), 17, ARRAY), []);
    assert_eq!(read(&trace, &adr(), 17, ARRAY + 8), uncommitted(14, None));
}

fn uninitialised(allocation: u64) -> Vec<Judgement> {
    vec![Judgement::Uninitialised {
        bytes: WORD,
        allocation: EventIndex(allocation),
    }]
}

#[test]
fn allocated_memory_is_uninitialised_until_it_is_written() {
    let (zeroed, written) = (
        annotation::allocation::ZEROED,
        annotation::allocation::WRITTEN,
    );
    let trace = Script::default()
        .mark_ranges(Annotation::Allocate, 0, &[(ARRAY, 0x100)]) // 0
        .store(ARRAY + 8, 1) // 1
        .mark_ranges(Annotation::Allocate, zeroed, &[(BACKUP, 16)]) // 2
        .mark_ranges(Annotation::Allocate, written, &[(BACKUP + 16, 16)]) // 3
        .mark_ranges(Annotation::Free, 0, &[(ARRAY, 0x100)]) // 4
        .mark_ranges(Annotation::Allocate, 0, &[(ARRAY, 0x40)]) // 5
        .mark(Annotation::User) // 6
        .trace();
    let adr = adr();
    for offset in [0, 0x10, 0x40, 0xf8] {
        assert_eq!(read(&trace, &adr, 4, ARRAY + offset), uninitialised(0));
    }
    for offset in [ARRAY + 8, ARRAY - 8, ARRAY + 0x100, BACKUP, BACKUP + 16] {
        assert_eq!(read(&trace, &adr, 4, offset), []);
    }
    assert_eq!(read(&trace, &adr, 5, ARRAY), []);
    assert_eq!(read(&trace, &adr, 6, ARRAY + 8), uninitialised(5));
    assert_eq!(read(&trace, &adr, 6, ARRAY + 0x40), []);
}

#[test]
fn a_reserved_object_that_is_cancelled_is_gone_as_a_whole() {
    let reserved = annotation::allocation::RESERVED;
    let trace = Script::default()
        .mark_ranges(Annotation::Allocate, reserved, &[(ARRAY, 0x100)]) // 0
        .mark_ranges(Annotation::Allocate, reserved, &[(BACKUP, 0x40)]) // 1
        .store(ARRAY, 1) // 2
        .mark_ranges(Annotation::Publish, 0, &[(BACKUP, 1)]) // 3
        .mark_ranges(Annotation::Free, 0, &[(ARRAY, 1)]) // 4
        .mark(Annotation::User) // 5
        .trace();
    assert_eq!(read(&trace, &adr(), 4, ARRAY + 8), uninitialised(0));
    assert_eq!(read(&trace, &adr(), 5, ARRAY + 8), []);
    assert_eq!(read(&trace, &adr(), 5, BACKUP), uninitialised(1));
}

#[test]
fn objects_of_a_transaction_go_with_it() {
    let script = |abort: bool| {
        let mut script = Script::default();
        script
            .mark_ranges(Annotation::Allocate, 0, &[(BACKUP, 8)]) // 0
            .mark(Annotation::TransactionBegin) // 1
            .mark_ranges(Annotation::TransactionAllocate, 0, &[(ARRAY, 8)]) // 2
            .mark_ranges(Annotation::TransactionFree, 0, &[(BACKUP, 8)]); // 3
        let end = if abort {
            Annotation::TransactionAbort
        } else {
            Annotation::TransactionCommit
        };
        script
            .mark(end)
            .mark(Annotation::TransactionEnd)
            .mark(Annotation::User)
            .trace() // 4, 5, 6
    };
    for abort in [false, true] {
        assert_eq!(read(&script(abort), &adr(), 4, ARRAY), uninitialised(2));
        assert_eq!(read(&script(abort), &adr(), 4, BACKUP), uninitialised(0));
    }
    assert_eq!(read(&script(false), &adr(), 6, ARRAY), uninitialised(2));
    assert_eq!(read(&script(false), &adr(), 6, BACKUP), []);
    assert_eq!(read(&script(true), &adr(), 6, ARRAY), []);
    assert_eq!(read(&script(true), &adr(), 6, BACKUP), uninitialised(0));
}

#[test]
fn what_annotations_leave_out_is_no_finding() {
    let trace = Script::default()
        .mark_ranges(Annotation::CommitVariable, 0, &[(VALID, 8)]) // 0
        .mark_ranges(Annotation::Allocate, 0, &[(BACKUP, 16)]) // 1
        .store(ARRAY, 1) // 2
        .mark(Annotation::InterestBegin) // 3
        .mark(Annotation::SkipDetectionBegin) // 4
        .store(ARRAY + 8, 1) // 5
        .mark_ranges(Annotation::Allocate, 0, &[(BACKUP + 16, 8)]) // 6
        .mark(Annotation::SkipDetectionEnd) // 7
        .store(ARRAY + 16, 1) // 8
        .mark(Annotation::User) // 9
        .persist(ARRAY) // 10, 11
        .mark(Annotation::User) // 12
        .trace();
    let left_out = |at, offset| {
        let shadow = shadow_at(&trace, &adr(), at);
        shadow.is_left_out(PoolIndex(0), PoolOffset(offset), 8)
    };
    assert_eq!(
        read(&trace, &strict(), 3, ARRAY),
        race(2, NotDurable::NeverFlushed)
    );
    assert_eq!(read(&trace, &adr(), 3, BACKUP), uninitialised(1));
    assert!(!left_out(3, ARRAY));
    for offset in [ARRAY, ARRAY + 8, BACKUP, BACKUP + 16] {
        for at in [9, 12] {
            assert_eq!(read(&trace, &strict(), at, offset), []);
        }
    }
    assert!(left_out(9, ARRAY) && left_out(9, ARRAY + 8));
    assert!(!left_out(12, ARRAY) && !left_out(9, BACKUP));
    assert_eq!(
        read(&trace, &strict(), 9, ARRAY + 16),
        race(8, NotDurable::NeverFlushed)
    );
    assert!(!left_out(9, ARRAY + 16));
    assert_eq!(read(&trace, &adr(), 12, ARRAY + 16), uncommitted(8, None));
}

#[test]
fn it_is_known_why_bytes_are_not_durable() {
    let trace = Script::default()
        .store(0x00, 1) // 0
        .store(0x40, 1) // 1
        .clwb(0x40) // 2
        .store(0x48, 1) // 3
        .stream(0x80, 1) // 4
        .store(0xc0, 1) // 5
        .flush_as(FlushKind::Clflush, 0xc0) // 6
        .mark(Annotation::User) // 7
        .sfence() // 8
        .mark(Annotation::User) // 9
        .trace();
    let at = |shadow: &Shadow, offset, len| {
        shadow
            .why_not_durable(PoolIndex(0), PoolOffset(offset), len)
            .map(|(writer, why)| (writer.0, why))
    };
    let flush = EventIndex(2);
    let before = shadow_at(&trace, &adr(), 7);
    assert_eq!(at(&before, 0x00, 8), Some((0, NotDurable::NeverFlushed)));
    assert_eq!(
        at(&before, 0x40, 8),
        Some((1, NotDurable::NotFenced { flush }))
    );
    let last = Some((3, NotDurable::FlushedBefore { flush }));
    assert_eq!(at(&before, 0x40, 16), last);
    let stream = EventIndex(4);
    assert_eq!(
        at(&before, 0x80, 8),
        Some((4, NotDurable::NotFenced { flush: stream }))
    );
    assert_eq!(at(&before, 0xc0, 8), None);
    assert_eq!(at(&before, 0x08, 8), None);
    let after = shadow_at(&trace, &adr(), 9);
    assert_eq!(at(&after, 0x40, 8), None);
    assert_eq!(at(&after, 0x40, 16), last);
    assert_eq!(at(&after, 0x80, 8), None);
    let state = |shadow: &Shadow, offset| {
        let place = place(offset);
        shadow.persistence(place.pool, place.offset)
    };
    assert_eq!(state(&before, 0x00), Persistence::Modified);
    assert_eq!(state(&before, 0x40), Persistence::WritebackPending);
    assert_eq!(state(&before, 0x48), Persistence::Modified);
    assert_eq!(state(&after, 0x40), Persistence::Settled);
}
