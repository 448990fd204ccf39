//! Pairs of findings with one cause, and pairs without.

use powerfail_finding::{Evidence, FailurePoint, Fix, Helper, LostLine, StackFrame, UnsafeRead};

use super::*;

fn place(role: Role, line: u32) -> SourcePlace {
    SourcePlace {
        file: Some("list.c".into()),
        line: Some(line),
        ..SourcePlace::new(role)
    }
}

/// A read that recovery could make before an event.
pub(crate) fn unsafe_read(event: u64, not_durable: NotDurable) -> UnsafeRead {
    UnsafeRead {
        event,
        failure_points: 1,
        command: "recovery".into(),
        bytes: String::new(),
        instead: Vec::new(),
        not_durable: Some(not_durable),
        trace: None,
        strict: false,
        tried: None,
    }
}

fn found(code: Code, places: Vec<SourcePlace>) -> Finding {
    Finding::new(code, String::new(), places)
}

fn exit(status: i32) -> RecoveryOutcome {
    RecoveryOutcome::Exit {
        status,
        command: "recovery".into(),
        output: format!("output {status}"),
    }
}

fn shown(code: Code, places: Vec<SourcePlace>, recovery: RecoveryOutcome, lost: usize) -> Finding {
    let line = LostLine {
        pool: 0,
        pool_offset: 0,
        version: 0,
        stores: None,
    };
    Finding {
        evidence: Some(Evidence {
            failure: FailurePoint {
                event: 5,
                lost_lines: vec![line; lost],
                again: None,
                filled: Vec::new(),
            },
            recovery,
            last_good_event: None,
            next_good_event: None,
            trace: None,
            difference: None,
            torn: false,
            choices: Vec::new(),
        }),
        ..found(code, places)
    }
}

fn folded(mut findings: Vec<Finding>) -> Vec<(Code, Severity)> {
    fold_root_causes(&mut findings);
    findings.iter().map(|it| (it.code, it.severity)).collect()
}

#[test]
fn a_missing_flush_is_one_finding() {
    let store = || place(Role::Store, 7);
    let findings = vec![
        found(Code::StoreNotFlushed, vec![store()]),
        shown(
            Code::PublishedBeforeDurable,
            vec![store(), place(Role::Publish, 9)],
            exit(1),
            1,
        ),
        found(Code::TransientData, vec![store()]),
        shown(Code::AcknowledgedLost, vec![store()], exit(2), 1),
        found(Code::StoreNotFlushed, vec![place(Role::Store, 8)]),
    ];
    assert_eq!(
        folded(findings),
        [
            (Code::PublishedBeforeDurable, Severity::Error),
            (Code::StoreNotFlushed, Severity::Error),
        ]
    );
}

#[test]
fn the_store_that_is_shown_is_the_one_that_the_crash_lost() {
    // One line of code stores to many entries.
    let store = |event| SourcePlace {
        event: Some(event),
        ..place(Role::Store, 7)
    };
    let never = found(Code::StoreNotFlushed, vec![store(40)]);
    let lost = vec![store(3), place(Role::Survivor, 9), place(Role::Store, 8)];
    for code in [Code::StoreNotFlushed, Code::RecoveryRejects] {
        let mut findings = vec![never.clone(), shown(code, lost.clone(), exit(1), 1)];
        findings[1].message = "the crash".into();
        fold_root_causes(&mut findings);
        let [finding] = &findings[..] else {
            panic!("{findings:?}");
        };
        assert_eq!(finding.code, Code::StoreNotFlushed);
        assert_eq!(finding.places[0].event, Some(3));
        assert_eq!(finding.message, "the crash");
    }
}

#[test]
fn invalid_fields_of_different_records_of_a_type_are_one_finding() {
    let of = |code, line, offset, commit| {
        let store = SourcePlace {
            function: Some("save".into()),
            pool: Some("pool".into()),
            pool_offset: Some(offset),
            ..place(Role::Store, line)
        };
        found(code, vec![store, place(Role::Commit, commit)])
    };
    let count = |findings| folded(findings).len();
    let semantic = |line, offset, commit| of(Code::CrossFailureSemantic, line, offset, commit);
    assert_eq!(count(vec![semantic(7, 64, 20), semantic(8, 136, 20)]), 1);
    assert_eq!(count(vec![semantic(7, 64, 20), semantic(8, 136, 21)]), 2);
    assert_eq!(count(vec![semantic(7, 64, 20), semantic(17, 136, 20)]), 2);
    let race = |line, offset| of(Code::CrossFailureRace, line, offset, 20);
    assert_eq!(count(vec![race(7, 64), race(8, 136)]), 2);
}

#[test]
fn what_a_crash_has_lost_is_not_called_transient() {
    let lost = vec![place(Role::Store, 8), place(Role::Failure, 12)];
    for code in [Code::RecoveryCrashes, Code::RecoveryRejects] {
        let shown = |lines| shown(code, lost.clone(), exit(1), lines);
        let transient = |line| found(Code::TransientData, vec![place(Role::Store, line)]);
        let error = (code, Severity::Error);
        assert_eq!(folded(vec![transient(8), shown(2)]), [error]);
        assert_eq!(folded(vec![transient(9), shown(2)]).len(), 2);
        // With every earlier store durable, nothing of it is lost.
        assert_eq!(folded(vec![transient(8), shown(0)]).len(), 2);
    }
}

#[test]
fn a_flush_that_may_be_missing_is_part_of_what_shows_that_it_is() {
    let store = || place(Role::Store, 7);
    let hints = || {
        vec![
            found(Code::LateFlush, vec![store()]),
            found(Code::NeighbourFlush, vec![store()]),
        ]
    };
    assert_eq!(folded(hints()), [(Code::NeighbourFlush, Severity::Warning)]);
    let shown = shown(Code::RecoveryRejects, vec![store()], exit(1), 1);
    let elsewhere = found(Code::LateFlush, vec![place(Role::Store, 8)]);
    assert_eq!(
        folded([hints(), vec![shown, elsewhere]].concat()),
        [
            (Code::RecoveryRejects, Severity::Error),
            (Code::LateFlush, Severity::Warning),
        ]
    );
}

#[test]
fn stores_of_one_record_are_one_finding() {
    for code in [Code::CrossFailureRace, Code::NeighbourFlush] {
        let of = |line, offset| {
            let store = SourcePlace {
                function: Some("insert".into()),
                pool: Some("pool".into()),
                pool_offset: Some(offset),
                ..place(Role::Store, line)
            };
            found(code, vec![store, place(Role::Load, 20)])
        };
        let mut findings = vec![of(7, 64), of(8, 72), of(9, 128)];
        fold_root_causes(&mut findings);
        let stores: Vec<_> = findings
            .iter()
            .map(|it| lines(it, Role::Store).len())
            .collect();
        assert_eq!(stores, [2, 1]);
    }
}

#[test]
fn reads_of_two_lines_before_one_flag_lack_one_fence() {
    // Each line is flushed before the next one is stored to.
    let read = |line: u32, offset, flag| {
        let at = |role, line: u32| SourcePlace {
            event: Some(u64::from(line)),
            ..place(role, line)
        };
        let store = SourcePlace {
            function: Some("insert".into()),
            pool: Some("pool".into()),
            pool_offset: Some(offset),
            ..at(Role::Store, line)
        };
        let places = vec![store, at(Role::Flush, line + 1), at(Role::Publish, flag)];
        Finding {
            read: Some(unsafe_read(30, NotDurable::NotFenced)),
            ..shown(Code::CrossFailureRace, places, exit(1), 1)
        }
    };
    assert_eq!(folded(vec![read(7, 64, 11), read(9, 128, 11)]).len(), 1);
    // Another flag, or the second line is the flag of the first one.
    assert_eq!(folded(vec![read(7, 64, 11), read(9, 128, 12)]).len(), 2);
    assert_eq!(folded(vec![read(7, 64, 9), read(9, 128, 9)]).len(), 2);
}

#[test]
fn reads_of_what_one_crash_loses_lack_one_flush() {
    let read = |function: &str, line, offset, event| {
        let store = SourcePlace {
            function: Some(function.into()),
            pool: Some("pool".into()),
            pool_offset: Some(offset),
            ..place(Role::Store, line)
        };
        Finding {
            read: Some(unsafe_read(event, NotDurable::NeverFlushed)),
            ..shown(Code::CrossFailureRace, vec![store], exit(1), 1)
        }
    };
    let slots = || read("make", 38, 384, 138);
    let stores = |findings: &[Finding]| lines(&findings[0], Role::Store).len();
    // Of one line of the pool, or of neighbouring lines of code.
    for other in [read("grow", 55, 392, 138), read("make", 40, 640, 138)] {
        let mut findings = vec![slots(), other];
        fold_root_causes(&mut findings);
        assert_eq!((findings.len(), stores(&findings)), (1, 2));
        // A test case that shows one of the two shows the same bug.
        assert!(have_one_cause(&findings[0], &slots()));
    }
    // Another object and function, other code of that function, or another crash.
    for other in [
        read("grow", 55, 640, 138),
        read("make", 60, 640, 138),
        read("grow", 55, 392, 150),
    ] {
        assert!(!have_one_cause(&slots(), &other));
        assert_eq!(folded(vec![slots(), other]).len(), 2);
    }
}

#[test]
fn data_that_one_store_publishes_lacks_one_fence() {
    let published = |line, publish| {
        let store = SourcePlace {
            function: Some("insert".into()),
            ..place(Role::Store, line)
        };
        let places = vec![store, place(Role::Publish, publish)];
        shown(Code::PublishedBeforeDurable, places, exit(1), 1)
    };
    let mut findings = vec![published(7, 20), published(8, 20), published(9, 30)];
    fold_root_causes(&mut findings);
    let stores: Vec<_> = findings
        .iter()
        .map(|it| lines(it, Role::Store).len())
        .collect();
    assert_eq!(stores, [2, 1]);
}

#[test]
fn the_same_place_is_not_shown_twice() {
    let read = || {
        let store = SourcePlace {
            function: Some("insert".into()),
            pool: Some("pool".into()),
            pool_offset: Some(64),
            ..place(Role::Store, 7)
        };
        shown(Code::RecoveryRejects, vec![store], exit(1), 0)
    };
    let mut one = read();
    absorb(&mut one, read());
    assert_eq!(one.places.len(), 1);
}

#[test]
fn a_wrong_add_is_part_of_the_store_that_was_not_added() {
    let of = |function: &str, place| SourcePlace {
        function: Some(function.into()),
        ..place
    };
    let not_added = |severity| Finding {
        severity,
        ..found(
            Code::StoreNotAdded,
            vec![of("insert", place(Role::Store, 7))],
        )
    };
    let add = |function| {
        found(
            Code::AddWithoutStore,
            vec![of(function, place(Role::Add, 6))],
        )
    };
    let error = || not_added(Severity::Error);
    assert_eq!(
        folded(vec![add("insert"), error()]),
        [(Code::StoreNotAdded, Severity::Error)]
    );
    assert_eq!(folded(vec![add("remove"), error()]).len(), 2);
    let far = found(
        Code::AddWithoutStore,
        vec![of("insert", place(Role::Add, 3))],
    );
    assert_eq!(folded(vec![far, error()]).len(), 2);
    // What counts as a bug stays one.
    let warning = not_added(Severity::Warning);
    assert_eq!(folded(vec![add("insert"), warning]).len(), 2);
}

#[test]
fn a_flush_of_the_wrong_thing_is_part_of_the_missing_one() {
    let of = |function: &str, place| SourcePlace {
        function: Some(function.into()),
        ..place
    };
    let missing = || {
        found(
            Code::StoreNotFlushed,
            vec![of("update", place(Role::Store, 7))],
        )
    };
    let flush = |function, line| {
        let places = vec![of(function, place(Role::Flush, line))];
        found(Code::RedundantFlush, places)
    };
    let one = [(Code::StoreNotFlushed, Severity::Error)];
    assert_eq!(folded(vec![flush("update", 9), missing()]), one);
    for (function, line) in [("update", 6), ("update", 20), ("insert", 9)] {
        assert_eq!(folded(vec![flush(function, line), missing()]).len(), 2);
    }
}

#[test]
fn a_race_for_a_store_that_was_not_added_is_part_of_that() {
    let not_added = shown(Code::StoreNotAdded, vec![place(Role::Store, 7)], exit(1), 0);
    let race = shown(
        Code::CrossFailureRace,
        vec![place(Role::Store, 7), place(Role::Load, 20)],
        exit(2),
        1,
    );
    let mut findings = vec![race, not_added];
    fold_root_causes(&mut findings);
    let [finding] = &findings[..] else {
        panic!("{findings:?}");
    };
    assert_eq!(finding.code, Code::StoreNotAdded);
    assert_eq!(finding.consequences, [exit(2)]);
}

#[test]
fn stores_of_one_line_and_function_lack_one_flush() {
    let store = |line, offset| SourcePlace {
        function: Some("insert".into()),
        pool: Some("pool".into()),
        pool_offset: Some(offset),
        ..place(Role::Store, line)
    };
    let published = shown(Code::PublishedBeforeDurable, vec![store(8, 64)], exit(1), 1);
    let beside = found(Code::StoreNotFlushed, vec![store(7, 128)]);
    let last = found(Code::StoreNotFlushed, vec![store(8, 136)]);
    let elsewhere = found(Code::StoreNotFlushed, vec![store(9, 192)]);
    assert_eq!(
        folded(vec![published, beside, last, elsewhere]),
        [
            (Code::PublishedBeforeDurable, Severity::Error),
            (Code::StoreNotFlushed, Severity::Error),
        ]
    );
}

#[test]
fn stores_of_one_function_to_one_object_lack_one_persist() {
    let store = |line, offset| SourcePlace {
        function: Some("construct".into()),
        pool: Some("pool".into()),
        pool_offset: Some(offset),
        ..place(Role::Store, line)
    };
    let link = shown(Code::StoreNotFlushed, vec![store(9, 192)], exit(1), 1);
    let name = found(Code::ObjectNotPersisted, vec![store(8, 1024)]);
    let other = found(Code::ObjectNotPersisted, vec![store(20, 2048)]);
    assert_eq!(
        folded(vec![link, name, other]),
        [
            (Code::StoreNotFlushed, Severity::Error),
            (Code::ObjectNotPersisted, Severity::Error),
        ]
    );
}

#[test]
fn a_missing_add_is_one_finding_and_an_error_if_a_crash_shows_harm() {
    let warning = || Finding {
        severity: Severity::Warning,
        ..found(Code::StoreNotAdded, vec![place(Role::Store, 7)])
    };
    let lint = || found(Code::StoreNotFlushed, vec![place(Role::Store, 7)]);
    assert_eq!(
        folded(vec![lint(), warning()]),
        [(Code::StoreNotAdded, Severity::Error)]
    );
    let harmless = Finding {
        severity: Severity::Warning,
        ..lint()
    };
    assert_eq!(
        folded(vec![harmless, warning()]),
        [(Code::StoreNotAdded, Severity::Warning)]
    );
    let survivor = vec![place(Role::Store, 9), place(Role::Survivor, 7)];
    let crash = shown(Code::RecoveryRejects, survivor, exit(1), 0);
    assert_eq!(
        folded(vec![lint(), crash, warning()]),
        [(Code::StoreNotAdded, Severity::Error)]
    );
}

#[test]
fn stores_to_one_object_that_was_not_added_are_one_finding() {
    let not_added = |severity, line, offset, begin| {
        let store = SourcePlace {
            function: Some("split".into()),
            pool: Some("pool".into()),
            pool_offset: Some(offset),
            ..place(Role::Store, line)
        };
        Finding {
            severity,
            ..found(
                Code::StoreNotAdded,
                vec![store, place(Role::Transaction, begin)],
            )
        }
    };
    let mut findings = vec![
        not_added(Severity::Warning, 7, 4096, 1),
        not_added(Severity::Error, 8, 4160, 1),
        not_added(Severity::Warning, 9, 4240, 1),
        // Another object, and another transaction.
        not_added(Severity::Warning, 10, 4296, 1),
        not_added(Severity::Warning, 11, 4100, 2),
    ];
    fold_root_causes(&mut findings);
    let stores: Vec<Vec<Option<u32>>> = findings
        .iter()
        .map(|it| stores(it).map(|store| store.line).collect())
        .collect();
    assert_eq!(
        stores,
        [
            vec![Some(8), Some(7), Some(9)],
            vec![Some(10)],
            vec![Some(11)]
        ]
    );
}

#[test]
fn several_outcomes_of_one_lost_store_are_listed() {
    let places = || vec![place(Role::Store, 7), place(Role::Survivor, 9)];
    let signal = |signal| RecoveryOutcome::Signal {
        signal,
        command: "recovery".into(),
        output: String::new(),
    };
    let mut findings = vec![
        shown(Code::RecoveryRejects, places(), exit(1), 1),
        shown(Code::RecoveryCrashes, places(), signal(6), 1),
        shown(Code::RecoveryCrashes, places(), signal(11), 1),
        shown(Code::RecoveryRejects, places(), exit(1), 1),
    ];
    fold_root_causes(&mut findings);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].code, Code::RecoveryCrashes);
    assert_eq!(findings[0].consequences, [signal(11), exit(1)]);
    // Other stores are other bugs, and so is a failure that needs no loss.
    let others = vec![
        shown(Code::RecoveryRejects, places(), exit(1), 1),
        shown(Code::RecoveryCrashes, places(), signal(6), 0),
        shown(
            Code::RecoveryCrashes,
            vec![place(Role::Store, 7)],
            signal(6),
            1,
        ),
    ];
    assert_eq!(folded(others).len(), 3);
}

#[test]
fn stores_that_wait_for_one_fence_come_too_late_together() {
    let in_function = |role, line, function: &str| SourcePlace {
        function: Some(function.into()),
        ..place(role, line)
    };
    let frame = |function: &str, line| StackFrame {
        function: Some(function.into()),
        file: Some("list.c".into()),
        line: Some(line),
        module: None,
        offset: 0,
        trusted: false,
    };
    let failure = |line| SourcePlace {
        stack: vec![frame("fence", 3), frame("log_images", line)],
        ..in_function(Role::Failure, 3, "fence")
    };
    let lost = |line, fence| {
        let store = in_function(Role::Store, line, "log_images");
        shown(Code::ContentTorn, vec![store, failure(fence)], exit(1), 1)
    };
    let beside = |line, function: &str| {
        let mut finding = lost(line, 25);
        let survivor = in_function(Role::Survivor, 11, function);
        finding.places.insert(1, survivor);
        finding
    };
    assert_eq!(folded(vec![lost(8, 25), lost(10, 25)]).len(), 1);
    assert_eq!(folded(vec![lost(8, 25), beside(10, "log_images")]).len(), 1);
    // Another fence, another function that relies on them, and a failure that needs no loss.
    assert_eq!(folded(vec![lost(8, 25), lost(10, 30)]).len(), 2);
    assert_eq!(folded(vec![lost(8, 25), beside(10, "commit")]).len(), 2);
    let mut needing_no_loss = lost(10, 25);
    if let Some(evidence) = &mut needing_no_loss.evidence {
        evidence.failure.lost_lines.clear();
    }
    assert_eq!(folded(vec![lost(8, 25), needing_no_loss]).len(), 2);
}

/// The workload is its own recovery: a second failure shows the same code again.
#[test]
fn what_recovery_repeats_is_the_mistake_of_the_workload() {
    let store = |line, function: &str| SourcePlace {
        function: Some(function.into()),
        ..place(Role::Store, line)
    };
    let again = |code, line, function| {
        let mut finding = shown(code, vec![store(line, function)], exit(1), 1);
        if let Some(evidence) = &mut finding.evidence {
            evidence.failure.again = Some(powerfail_finding::SecondFailure {
                failures: 2,
                events: 5,
                written: Vec::new(),
            });
        }
        finding
    };
    let unflushed = || shown(Code::StoreNotFlushed, vec![store(29, "put")], exit(1), 1);
    let rejected = Code::RecoveryRejects;
    let one = folded(vec![again(rejected, 27, "put"), unflushed()]);
    assert_eq!(one, [(Code::StoreNotFlushed, Severity::Error)]);
    // Another function, and a finding that a first failure shows.
    assert_eq!(
        folded(vec![unflushed(), again(rejected, 40, "repair")]).len(),
        2
    );
    let first = shown(rejected, vec![store(27, "put")], exit(1), 1);
    assert_eq!(folded(vec![unflushed(), first]).len(), 2);
    // The same line of code, and another one.
    let early = || shown(rejected, vec![store(30, "put")], exit(1), 1);
    assert_eq!(folded(vec![again(rejected, 30, "put"), early()]).len(), 1);
    assert_eq!(folded(vec![early(), again(rejected, 33, "put")]).len(), 2);
    // A first failure has hit recovery itself, and does something else to the same store, called in the same way or not.
    let recovered = |mut finding: Finding, callers: &[&str]| {
        let frames = callers.iter().map(|it| StackFrame {
            function: Some((*it).into()),
            file: None,
            line: None,
            module: None,
            offset: 0,
            trusted: false,
        });
        let last = finding.places.last_mut().unwrap();
        last.stack = frames.collect();
        finding
    };
    let torn = || {
        let places = vec![place(Role::Survivor, 28), store(30, "repair")];
        let finding = shown(Code::ContentTorn, places, exit(1), 0);
        recovered(finding, &["repair", "open", "main"])
    };
    let lost = |callers| recovered(again(Code::AcknowledgedLost, 30, "repair"), callers);
    let both = folded(vec![lost(&["repair", "open", "main"]), torn()]);
    assert_eq!(both, [(Code::ContentTorn, Severity::Error)]);
    assert_eq!(folded(vec![torn(), lost(&["repair", "main"])]).len(), 2);
}

fn called(line: u32) -> SourcePlace {
    SourcePlace {
        helper: Some(Helper {
            function: Some("put_u64".into()),
            file: Some("list.c".into()),
            line: Some(3),
        }),
        ..place(Role::Store, line)
    }
}

#[test]
fn a_helper_that_never_flushes_is_one_finding_and_two_callers_are_two() {
    let shown_at = |line| shown(Code::StoreNotFlushed, vec![called(line)], exit(1), 1);
    let helper = found(Code::TransientData, vec![place(Role::Store, 3)]);
    let mut findings = vec![helper, shown_at(7)];
    fold_root_causes(&mut findings);
    let [finding] = &findings[..] else {
        panic!("{findings:?}");
    };
    assert_eq!(finding.code, Code::StoreNotFlushed);
    assert_eq!(
        (finding.places[0].line, &finding.places[0].helper),
        (Some(3), &None)
    );
    let callers = vec![shown_at(7), shown_at(8)];
    assert_eq!(folded(callers).len(), 2);
}

#[test]
fn only_what_its_evidence_loses_is_called_lost() {
    let store = |line, offset| SourcePlace {
        function: Some("insert".into()),
        pool: Some("pool".into()),
        pool_offset: Some(offset),
        ..place(Role::Store, line)
    };
    let mut cause = found(Code::StoreNotFlushed, vec![store(7, 64)]);
    let beside = shown(Code::RecoveryRejects, vec![store(8, 72)], exit(1), 1);
    absorb(&mut cause, beside);
    assert_eq!(cause.places[0].line, Some(8), "line 7 survives");
    assert!(cause.evidence.is_some());
}

#[test]
fn a_fix_belongs_to_the_evidence() {
    let fixed = |finding| Finding {
        fix: Some(Fix::verified(Vec::new())),
        suggestion: Some("flush it".into()),
        ..finding
    };
    let store = || vec![place(Role::Store, 7)];
    let mut cause = fixed(found(Code::StoreNotFlushed, store()));
    absorb(
        &mut cause,
        shown(Code::RecoveryRejects, store(), exit(1), 1),
    );
    assert_eq!((&cause.fix, &cause.suggestion), (&None, &None));
    let mut cause = found(Code::StoreNotFlushed, store());
    absorb(
        &mut cause,
        fixed(shown(Code::StoreNotFlushed, store(), exit(1), 1)),
    );
    assert!(cause.fix.is_some() && cause.suggestion.is_some());
}
