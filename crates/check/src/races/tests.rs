//! Watching and confirming on a recovery that is a function, and what is folded into what.

use powerfail_finding::{
    Code, Evidence, FailurePoint, Finding, Fix, LostLine, RecoveryOutcome, Role, Severity,
    SourcePlace,
};
use powerfail_model::{EventIndex, LineId, LineIndex, PoolIndex, PoolOffset};
use powerfail_races::{CommitVariable, NotDurable, PoolRange, ShadowOptions};
use powerfail_trace::Trace;

use super::confirm::{Answer, ConfirmTask, Scenario, ShownBy, patches, rerun_at, spread};
use super::fold::{fold, fold_survivors};
use super::pairs::Instance;
use super::points::point_at;
use super::shadows::ShadowPass;
use super::watch::{OtherClass, OtherValue, ReadKind, WatchSettings, WatchedPoint, watch};
use crate::content::ExpectedContents;
use crate::lazy::tests::simulated::{Engine, Memory, Op, Simulated, trace_of};

const DATA: u64 = 0;
const FLAG: u64 = 64;
const POOL: PoolIndex = PoolIndex(0);

/// Data and flag, flushed together: at the fence either can be lost.
fn unordered() -> Trace {
    trace_of(&[
        Op::Store(DATA, 7),
        Op::Store(FLAG, 1),
        Op::Flush(DATA),
        Op::Flush(FLAG),
        Op::Fence,
    ])
}

fn data_if_flag(memory: &mut Memory<'_>) -> bool {
    memory.load(FLAG) != 1 || memory.load(DATA) == 7
}

fn watch_at(
    executor: &mut Simulated<'_>,
    trace: &Trace,
    at: u64,
    cross: &ShadowOptions,
) -> WatchedPoint {
    let contents = ExpectedContents::default();
    let settings = WatchSettings {
        contents: &contents,
        benign: &[],
    };
    let at = EventIndex(at);
    let mut pass = ShadowPass::new(trace, cross).expect("no annotations");
    let shadow = pass.at(at).expect("a sound trace");
    watch(executor, shadow, &point_at(at), Vec::new(), &settings).expect("it runs")
}

#[test]
fn a_load_of_several_values_is_a_race_with_its_writer() {
    let trace = unordered();
    let mut executor = Simulated::new(&trace, data_if_flag);
    let watched = watch_at(&mut executor, &trace, 4, &ShadowOptions::default());
    assert_eq!((watched.executions, watched.failed), (1, None));
    let [flag, data] = &watched.suspect_reads[..] else {
        panic!("{:?}", watched.suspect_reads);
    };
    assert_eq!((flag.kind, flag.offset), (ReadKind::Race, FLAG));
    assert_eq!(flag.writer, Some(EventIndex(1)));
    assert_eq!((data.kind, data.offset), (ReadKind::Race, DATA));
    assert_eq!(data.writer, Some(EventIndex(0)));
    assert_eq!(data.bytes, 7_u64.to_le_bytes());
    assert_eq!(data.instead, [0_u64.to_le_bytes()]);
    let flush = EventIndex(2);
    assert_eq!(data.why, Some(NotDurable::NotFenced { flush }));
    assert_eq!(data.other, OtherValue::Class(class(1, DATA)));
}

#[test]
fn reads_of_commit_variables_are_benign() {
    let trace = unordered();
    let range = |offset| PoolRange {
        pool: POOL,
        offset: PoolOffset(offset),
        len: 8,
    };
    let cross = ShadowOptions {
        commit_variables: vec![CommitVariable {
            at: range(FLAG),
            ranges: vec![range(DATA)],
        }],
        ..ShadowOptions::default()
    };
    let mut executor = Simulated::new(&trace, data_if_flag);
    let watched = watch_at(&mut executor, &trace, 4, &cross);
    let offsets: Vec<u64> = watched.suspect_reads.iter().map(|it| it.offset).collect();
    assert_eq!(offsets, [DATA]);
}

#[test]
fn where_nothing_is_open_nothing_runs_and_refusals_are_kept() {
    let trace = unordered();
    let mut executor = Simulated::new(&trace, data_if_flag);
    assert_eq!(
        watch_at(&mut executor, &trace, 0, &ShadowOptions::default()).executions,
        0
    );
    executor.engine = Engine::Refuse("statically linked");
    let watched = watch_at(&mut executor, &trace, 4, &ShadowOptions::default());
    assert_eq!(watched.refused.as_deref(), Some("statically linked"));
    assert!(watched.suspect_reads.is_empty() && watched.reads.is_none());
}

/// The load of a line with two classes: the store, and nothing.
fn class(choice: usize, offset: u64) -> OtherClass {
    OtherClass {
        choice,
        count: 2,
        line: LineId {
            pool: POOL,
            line: LineIndex(offset / 64),
        },
        without: 0,
    }
}

fn task(pair: usize, scenario: Scenario, class: OtherClass, is_failing: bool) -> ConfirmTask {
    ConfirmTask {
        pair,
        scenario,
        instances: vec![Instance {
            at: EventIndex(4),
            other: OtherValue::Class(class),
            is_failing,
            is_uncommitted: false,
        }],
        kept: Vec::new(),
    }
}

/// The flag is read first, the data second.
fn tasks(scenario: Scenario, is_failing: bool) -> Vec<ConfirmTask> {
    vec![
        task(0, scenario, class(0, FLAG), is_failing),
        task(1, scenario, class(1, DATA), is_failing),
    ]
}

/// Tries pairs before the fence. Those that are confirmed, the lines that are lost then, and the number of executions.
fn tried(
    executor: &mut Simulated<'_>,
    tasks: &[ConfirmTask],
) -> (Vec<(usize, ShownBy, Vec<u64>)>, u64) {
    let contents = ExpectedContents::default();
    let settings = WatchSettings {
        contents: &contents,
        benign: &[],
    };
    let tried = rerun_at(executor, EventIndex(4), tasks, &settings).expect("it runs");
    let confirmed = tried.outcomes.iter();
    let confirmed = confirmed.filter_map(|it| match &it.answer {
        Answer::Confirmed(confirmed) => {
            let lost = confirmed.state.versions.iter();
            let lost = lost.map(|(id, _)| id.line.0 * 64).collect();
            Some((it.pair, confirmed.shown_by, lost))
        }
        _ => None,
    });
    (confirmed.collect(), tried.executions)
}

#[test]
fn a_race_is_confirmed_by_a_plain_run() {
    let trace = unordered();
    let mut executor = Simulated::new(&trace, data_if_flag);
    let tasks = tasks(Scenario::OtherValue, false);
    // The flag may be lost; the data may not.
    let confirmed = vec![(1, ShownBy::OtherValue, vec![DATA])];
    assert_eq!(tried(&mut executor, &tasks), (confirmed, 3));
    executor.succeeds_without_exploration = true;
    assert_eq!(tried(&mut executor, &tasks).0, []);
}

#[test]
fn a_store_that_survives_while_others_are_lost_is_tried_too() {
    let trace = unordered();
    let mut executor = Simulated::new(&trace, data_if_flag);
    let mut tasks = tasks(Scenario::Survivor, false);
    let confirmed = vec![(0, ShownBy::Survivor, vec![DATA])];
    assert_eq!(tried(&mut executor, &tasks).0, confirmed);
    // What the loss of the data does is known.
    tasks[0].kept = vec![class(1, DATA).line];
    assert_eq!(tried(&mut executor, &tasks).0, []);
    // Without the flag it fails, too: it is not the flag that matters.
    let mut executor = Simulated::new(&trace, |memory| {
        let _ = memory.load(FLAG);
        memory.load(DATA) == 7
    });
    tasks[0].kept.clear();
    assert_eq!(tried(&mut executor, &tasks[..1]).0, []);
}

#[test]
fn where_the_newest_value_fails_the_other_one_has_to_succeed() {
    let trace = unordered();
    let mut executor = Simulated::new(&trace, |memory| {
        let data = memory.load(DATA);
        memory.load(FLAG) != 1 || data == 8
    });
    // The data is read first and never right; the flag decides.
    let tasks = [
        task(0, Scenario::OtherValue, class(0, DATA), true),
        task(1, Scenario::OtherValue, class(1, FLAG), true),
    ];
    let confirmed = vec![(1, ShownBy::EveryStore, vec![])];
    assert_eq!(tried(&mut executor, &tasks).0, confirmed);
}

#[test]
fn any_beginning_is_spread_over_all() {
    assert!(spread(0).is_empty());
    assert_eq!(spread(1), [0]);
    assert_eq!(spread(9), [0, 8, 4, 2, 6, 1, 3, 5, 7]);
    let mut all = spread(1000);
    all.sort_unstable();
    assert!(all.into_iter().eq(0..1000));
}

#[test]
fn bytes_that_touch_are_filled_together() {
    let patched = patches(&[(POOL, 0, 0b11 << 62), (POOL, 64, 0b1011)], 0xa5);
    let runs: Vec<(u64, usize)> = patched
        .iter()
        .map(|it| (it.offset, it.bytes.len()))
        .collect();
    assert_eq!(runs, [(62, 4), (67, 1)]);
    assert!(
        patched
            .iter()
            .all(|it| it.bytes.iter().all(|byte| *byte == 0xa5))
    );
}

fn place(role: Role, line: u32) -> SourcePlace {
    SourcePlace {
        file: Some("a.c".into()),
        line: Some(line),
        ..SourcePlace::new(role)
    }
}

fn finding(code: Code, severity: Severity, places: Vec<SourcePlace>) -> Finding {
    Finding {
        severity,
        ..Finding::new(code, String::new(), places)
    }
}

/// A finding with evidence that loses so many lines.
fn shown(mut finding: Finding, lost: usize) -> Finding {
    let line = LostLine {
        pool: 0,
        pool_offset: 0,
        version: 0,
        stores: None,
    };
    finding.evidence = Some(Evidence {
        failure: FailurePoint {
            event: 1,
            lost_lines: vec![line; lost],
            again: None,
            filled: Vec::new(),
        },
        recovery: RecoveryOutcome::Exit {
            status: 1,
            command: "recovery".into(),
            output: String::new(),
        },
        last_good_event: None,
        next_good_event: None,
        trace: None,
        difference: None,
        torn: false,
        choices: Vec::new(),
    });
    finding
}

fn race(severity: Severity, store: u32) -> Finding {
    let places = vec![place(Role::Store, store), place(Role::Load, 90)];
    finding(Code::CrossFailureRace, severity, places)
}

fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|it| it.code.as_str()).collect()
}

#[test]
fn a_confirmed_race_takes_in_what_is_blamed_on_the_same_store() {
    let mut lost = shown(
        finding(
            Code::RecoveryRejects,
            Severity::Error,
            vec![place(Role::Store, 5)],
        ),
        1,
    );
    lost.suggestion = Some("flush".into());
    lost.fix = Some(Fix::verified(Vec::new()));
    let durable = shown(
        finding(
            Code::RecoveryRejects,
            Severity::Error,
            vec![place(Role::Store, 5)],
        ),
        0,
    );
    let other = finding(
        Code::StoreNotFlushed,
        Severity::Error,
        vec![place(Role::Store, 6)],
    );
    let mut findings = vec![lost, durable, other];
    fold(&mut findings, vec![shown(race(Severity::Error, 5), 2)]);
    // With every store durable, it is not this store that is missing.
    assert_eq!(codes(&findings), ["PF0301", "PF0101", "PF0701"]);
    let race = &findings[2];
    assert_eq!(race.suggestion.as_deref(), Some("flush"));
    assert!(race.fix.is_some(), "the fix comes with its evidence");
    let evidence = race.evidence.as_ref().expect("that of fewer lost lines");
    assert_eq!(evidence.failure.lost_lines.len(), 1);
}

/// With every store in place recovery fails because of what it reads: the store is there, and not lost. No flush helps, so
/// the order of the stores is what is wrong.
#[test]
fn a_race_that_needs_no_loss_adds_its_reader_to_what_its_store_leads_to() {
    let places = vec![place(Role::Store, 6), place(Role::Survivor, 5)];
    let prefix = shown(finding(Code::RecoveryCrashes, Severity::Error, places), 0);
    let mut findings = vec![prefix.clone()];
    fold(&mut findings, vec![shown(race(Severity::Error, 5), 0)]);
    assert_eq!(codes(&findings), ["PF0401"]);
    assert_eq!(findings[0].places[2].role, Role::Load);
    let mut findings = vec![prefix];
    fold(&mut findings, vec![shown(race(Severity::Error, 5), 1)]);
    assert_eq!(codes(&findings), ["PF0401", "PF0701"]);
}

#[test]
fn an_unconfirmed_race_gives_way_and_leaves_its_reader() {
    let known = finding(
        Code::StoreNotFlushed,
        Severity::Error,
        vec![place(Role::Store, 5)],
    );
    let mut findings = vec![known];
    fold(
        &mut findings,
        vec![race(Severity::Warning, 5), race(Severity::Warning, 7)],
    );
    assert_eq!(codes(&findings), ["PF0101", "PF0701"]);
    assert_eq!(findings[0].places[1].role, Role::Load);
    assert_eq!(findings[1].places[0].line, Some(7));
}

#[test]
fn what_races_first_and_is_not_valid_later_is_said_twice() {
    let mut semantic = race(Severity::Error, 5);
    semantic.code = Code::CrossFailureSemantic;
    let mut findings = Vec::new();
    fold(&mut findings, vec![race(Severity::Warning, 5), semantic]);
    assert_eq!(codes(&findings), ["PF0702", "PF0701"]);
    assert_eq!(findings[1].severity, Severity::Warning);
}

#[test]
fn a_race_that_other_losses_show_gives_way_to_what_is_known_of_them() {
    let places = vec![place(Role::Store, 4), place(Role::Survivor, 5)];
    let lost = shown(finding(Code::RecoveryCrashes, Severity::Error, places), 1);
    let mut findings = vec![lost];
    let survivors = [5, 6].map(|store| shown(race(Severity::Error, store), 1));
    fold_survivors(&mut findings, survivors.to_vec());
    assert_eq!(codes(&findings), ["PF0401", "PF0701"]);
    assert_eq!(findings[0].places[2].role, Role::Load);
    assert_eq!(findings[1].places[0].line, Some(6));
}

/// `--strict` makes an error of what no run shows: it is still not the race that says more.
#[test]
fn an_error_without_evidence_gives_way_as_well() {
    let known = finding(
        Code::StoreNotFlushed,
        Severity::Error,
        vec![place(Role::Store, 5)],
    );
    let mut findings = vec![known];
    fold(&mut findings, vec![race(Severity::Error, 5)]);
    assert_eq!(codes(&findings), ["PF0101"]);
}
