//! The driver on a recovery that is a function: no process, and everything else as it is.

mod learning;
pub(crate) mod simulated;

use powerfail_explore::{FailurePoint, FailurePointOptions, FailurePointsByStack};
use powerfail_finding::Code;
use powerfail_model::{EventIndex, Rules};
use powerfail_trace::Trace;

use super::driver::{Bounds, Progress, Round, RoundObserver, round};
use super::point::{PointResult, PointSettings, Reason, Thoroughness, explore_point};
use super::reuse::{Changes, Reuse};
use super::summarise;
use super::turns::{self, TurnKind};
use super::walk::{Attempt, Explorer, Extent, WalkTask, classes_of, walk_executions};
use crate::content::ExpectedContents;
use crate::error::CheckError;
use crate::options::LazyOptions;
use simulated::{Engine, Memory, Op, Simulated, trace_of};

const DATA: u64 = 0;
const FLAG: u64 = 64;
const OTHER: u64 = 4096;

fn points(trace: &Trace) -> Vec<FailurePoint> {
    let options = FailurePointOptions {
        per_stack: 0,
        ..FailurePointOptions::default()
    };
    let tree =
        FailurePointsByStack::covering(trace, Rules::default(), options).expect("a sound trace");
    let stacks = tree.stacks().iter();
    let mut points: Vec<FailurePoint> = stacks.flat_map(|stack| stack.points.clone()).collect();
    points.sort_by_key(|point| point.at);
    points
}

fn settings(contents: &ExpectedContents) -> PointSettings<'_> {
    PointSettings {
        contents,
        fork: true,
        depth: 1,
        limit: Some(1000),
        sample: 64,
        is_random: false,
        robustness: false,
        seed: 0,
        deadline: None,
        known: None,
        judged: None,
        trees: None,
    }
}

fn explore_at(executor: &mut Simulated<'_>, at: u64, settings: &PointSettings<'_>) -> PointResult {
    let stack = powerfail_trace::StackId::NONE;
    explore_point(executor, EventIndex(at), stack, Vec::new(), settings).expect("it runs")
}

/// Data and flag on different lines, flushed together: the flag can be durable without the data.
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

#[test]
fn a_flag_without_its_data_is_found_and_nothing_else() {
    let trace = unordered();
    let contents = ExpectedContents::default();
    let mut executor = Simulated::new(&trace, data_if_flag);
    let result = explore_at(&mut executor, 4, &settings(&contents));
    assert_eq!(result.thoroughness, Thoroughness::Exhaustive);
    // Flag new and data new, flag new and data old, flag old.
    assert_eq!((result.executions, result.choices), (3, 2));
    let [failure] = &result.failures[..] else {
        panic!("{:?}", result.failures);
    };
    assert_eq!(failure.symptom.code, Code::RecoveryRejects);
    assert_eq!(failure.state.versions.len(), 1);
    assert_eq!(failure.state.versions[0].0.line.0, DATA / 64);
    let decisive: Vec<bool> = failure.loads.iter().map(|load| load.decisive).collect();
    assert_eq!(decisive, [false, true]);
    let load = &failure.loads[1];
    assert_eq!((load.sources.len(), load.taken), (2, 1));
    assert_eq!(load.sources[0].stores, [EventIndex(0)]);
    assert!(load.sources[1].stores.is_empty());
}

/// Reads words of five lines, some of which decide what is read next.
fn winding(memory: &mut Memory<'_>) -> bool {
    let mut sum = 0;
    for line in 0..4 {
        let value = memory.load(64 * line);
        sum += value;
        if value == 2 {
            memory.store(64 * (line + 1), 9);
        }
        if value % 2 == 1 {
            sum += memory.load(OTHER);
        }
    }
    sum % 3 != 1
}

fn winding_trace() -> Trace {
    let mut ops = Vec::new();
    for round in 1..4 {
        for line in 0..4 {
            ops.push(Op::Store(64 * line, round));
        }
        ops.push(Op::Store(OTHER, 10 * round));
        ops.push(Op::Flush(64 * (round % 4)));
        ops.push(Op::Fence);
    }
    trace_of(&ops)
}

#[test]
fn forking_and_executing_again_give_the_same() {
    let trace = winding_trace();
    let mut leaves = Vec::new();
    for engine in [Engine::Fork, Engine::RecoveryCrash, Engine::ForkHalf] {
        let mut executor = Simulated::new(&trace, winding);
        executor.engine = engine;
        executor.go_to_end();
        let table = executor.line_table();
        let task = WalkTask {
            table: &table,
            fork: true,
            log: false,
            limit: u64::MAX,
            deadline: None,
        };
        let mut found = Vec::new();
        let walk = walk_executions(&mut executor, task, &mut |execution| {
            found.push((classes_of(&execution), execution.verdict.clone()));
            Ok(())
        })
        .expect("it runs");
        assert_eq!(walk.extent, Extent::Exhaustive);
        assert_eq!(walk.executions, found.len() as u64);
        found.sort_by(|one, other| one.0.cmp(&other.0));
        leaves.push((found, walk.choices, walk.read));
    }
    assert!(leaves[0].0.len() > 20);
    assert_eq!(leaves[0], leaves[1]);
    assert_eq!(leaves[0], leaves[2]);
}

/// Where time is short a large tree is tried with few executions first, and the result is the same.
#[test]
fn a_large_tree_is_explored_in_time() {
    let trace = winding_trace();
    let contents = ExpectedContents::default();
    let end = trace.event_count();
    let summary = |deadline| {
        let settings = PointSettings {
            deadline,
            ..settings(&contents)
        };
        let mut executor = Simulated::new(&trace, winding);
        let result = explore_at(&mut executor, end, &settings);
        (result.thoroughness, result.executions, result.choices)
    };
    let hour = std::time::Duration::from_hours(1);
    let deadline = std::time::Instant::now() + hour;
    let each = std::time::Duration::from_millis(1);
    let any = summary(None);
    assert!(any.1 > 64, "{any:?}");
    assert_eq!(any, summary(Some((deadline, each))));
}

#[test]
fn beyond_the_limit_a_point_is_sampled() {
    let trace = winding_trace();
    let contents = ExpectedContents::default();
    let mut executor = Simulated::new(&trace, winding);
    let end = trace.event_count();
    let settings = PointSettings {
        limit: Some(5),
        ..settings(&contents)
    };
    let result = explore_at(&mut executor, end, &settings);
    let reason = Reason::TooMany;
    assert_eq!(result.thoroughness, Thoroughness::Sampled { reason });
    // Recovery fails in the first executions: the point is left.
    assert_eq!(result.executions, 5);
    assert!(result.reads.is_none());
    assert!(!result.failures.is_empty());
    let mut executor = Simulated::new(&trace, |memory| {
        winding(memory);
        true
    });
    let result = explore_at(&mut executor, end, &settings);
    assert_eq!(result.executions, 5 + 64);
    assert!(result.failures.is_empty());
}

/// Recovery reads everything, and fails wherever something is missing.
fn all_or_nothing(memory: &mut Memory<'_>) -> bool {
    let sum: u64 = (0..LINES).map(|line| memory.load(64 * line)).sum();
    sum == 0 || sum == LINES
}

const LINES: u64 = 16;

/// The same lines are stored and not flushed in time, many times.
fn many_lines() -> Trace {
    let mut ops = Vec::new();
    for _ in 0..8 {
        ops.extend((0..LINES).map(|line| Op::Store(64 * line, 1)));
        ops.push(Op::Store(OTHER, 1));
        ops.extend((0..LINES).map(|line| Op::Flush(64 * line)));
        ops.push(Op::Fence);
        ops.extend((0..LINES).map(|line| Op::Store(64 * line, 0)));
        ops.extend((0..LINES).map(|line| Op::Flush(64 * line)));
        ops.push(Op::Fence);
    }
    trace_of(&ops)
}

/// What one point has shown is not shown again by thousands of executions at the others.
#[test]
fn a_known_failure_costs_other_points_few_executions() {
    let trace = many_lines();
    let contents = ExpectedContents::default();
    let points = points(&trace);
    let mut executor = Simulated::new(&trace, all_or_nothing);
    let first = explore_at(&mut executor, points[0].at.0, &settings(&contents));
    assert!(first.is_large() && first.fails(), "{first:?}");
    let known = turns::KnownFailures::of(std::slice::from_ref(&first));
    let again = PointSettings {
        known: Some(&known),
        ..settings(&contents)
    };
    let mut executor = Simulated::new(&trace, all_or_nothing);
    let other = explore_at(&mut executor, points[4].at.0, &again);
    assert!(other.fails(), "{other:?}");
    assert!(other.failures.is_empty(), "{other:?}");
    assert!(other.executions <= 16, "{}", other.executions);
}

/// A point at which recovery fails is left, and one with much to observe gets its next turn.
#[test]
fn only_large_points_that_do_not_fail_get_another_turn() {
    let trace = many_lines();
    let contents = ExpectedContents::default();
    let points = points(&trace);
    let at = points[0].at.0;
    let few = PointSettings {
        limit: Some(64),
        ..settings(&contents)
    };
    let mut executor = Simulated::new(&trace, all_or_nothing);
    let failing = explore_at(&mut executor, at, &few);
    let mut executor = Simulated::new(&trace, |memory| {
        all_or_nothing(memory);
        true
    });
    let large = explore_at(&mut executor, at, &few);
    let options = LazyOptions::default();
    let all = turns::turns(&options, 10);
    let limits: Vec<_> = all.iter().map(|turn| turn.limit).collect();
    assert_eq!(limits, [Some(64), Some(512), Some(2000)]);
    let chosen = |result: &PointResult| {
        turns::points_of(all[1], &points, std::slice::from_ref(result)).len()
    };
    assert_eq!((chosen(&failing), chosen(&large)), (0, 1));
    let mut results = vec![failing];
    turns::settle_reasons(&mut results, options.limit);
    let reason = Reason::Fails;
    assert_eq!(results[0].thoroughness, Thoroughness::Sampled { reason });
    let mut results = vec![large.clone()];
    turns::settle_reasons(&mut results, options.limit);
    let reason = Reason::Time;
    assert_eq!(results[0].thoroughness, Thoroughness::Sampled { reason });

    // What a turn shows replaces what was known, and all executions count.
    let mut results = vec![large.clone()];
    assert_eq!(turns::merge(&mut results, vec![large.clone()], &[]), 0);
    assert_eq!(results[0].executions, 2 * large.executions);
    assert_eq!(turns::merge(&mut results, Vec::new(), &[large.at]), 1);
    assert!(results.is_empty());
}

/// Second failures come when each point had its first turn, and without limits everything is one turn.
#[test]
fn second_failures_come_after_the_first_turn_and_before_large_points() {
    let with = |change: &dyn Fn(&mut LazyOptions)| {
        let mut options = LazyOptions {
            depth: 2,
            ..LazyOptions::default()
        };
        change(&mut options);
        let turns = turns::turns(&options, 10).into_iter();
        turns
            .map(|turn| (turn.kind, turn.depth))
            .collect::<Vec<_>>()
    };
    let (first, second, again) = (TurnKind::First, TurnKind::Second, TurnKind::Again);
    let last = TurnKind::SecondAgain;
    let usual = [(first, 1), (second, 2), (again, 1), (again, 1), (last, 2)];
    assert_eq!(with(&|_| ()), usual);
    assert_eq!(with(&|options| options.limit = None), [(first, 2)]);
    let drawn = with(&|options| options.random = Some(5));
    assert_eq!(drawn, [(first, 2)]);
}

/// Each failure point gets its part of a limit of all executions, at least one.
#[test]
fn a_limit_of_executions_is_divided_by_the_points() {
    let first_limit = |max, points| {
        let options = LazyOptions {
            max_executions: Some(max),
            ..LazyOptions::default()
        };
        turns::turns(&options, points)[0].limit
    };
    assert_eq!(first_limit(5, 10), Some(1));
    assert_eq!(first_limit(45, 10), Some(4));
    assert_eq!(first_limit(1_000_000, 10), Some(64));
}

#[test]
fn what_cannot_be_explored_is_sampled_and_says_why() {
    let trace = unordered();
    let contents = ExpectedContents::default();
    let mut executor = Simulated::new(&trace, data_if_flag);
    executor.engine = Engine::Refuse("statically linked");
    let result = explore_at(&mut executor, 4, &settings(&contents));
    // Four combinations: all of them were tried, whatever the reason was.
    assert_eq!(result.thoroughness, Thoroughness::Exhaustive);
    assert_eq!(result.executions, 4);
    assert_eq!(result.failures.len(), 1);
    let limited = PointSettings {
        sample: 3,
        ..settings(&contents)
    };
    let mut executor = Simulated::new(&trace, data_if_flag);
    executor.engine = Engine::Refuse("statically linked");
    let result = explore_at(&mut executor, 4, &limited);
    let reason = Reason::Refused("statically linked".to_owned());
    assert_eq!(result.thoroughness, Thoroughness::Sampled { reason });
}

#[test]
fn what_does_not_fail_by_itself_is_not_reported() {
    let trace = unordered();
    let contents = ExpectedContents::default();
    let mut executor = Simulated::new(&trace, data_if_flag);
    executor.succeeds_without_exploration = true;
    let result = explore_at(&mut executor, 4, &settings(&contents));
    assert!(result.failures.is_empty());
    assert_eq!(result.unconfirmed, 1);
    // It is not known what that execution would have done, so not everything was tried.
    let reason = Reason::Unconfirmed;
    assert_eq!(result.thoroughness, Thoroughness::Sampled { reason });
    assert!(result.reads.is_none());
    let progress = Progress {
        results: vec![result],
        ..Progress::default()
    };
    let explored = summarise(progress, 1);
    let totals = &explored.exploration;
    assert_eq!((totals.exhaustive, totals.sampled), (0, 1));
    let says = |text: &str| explored.notes.iter().any(|note| note.contains(text));
    assert!(says(
        "1 failing execution is not reproduced without exploration"
    ));
    assert!(says("1 failure point is counted as sampled"));
}

/// Where the newest content fails in the same way, nothing is blamed on lost lines.
#[test]
fn what_fails_with_everything_there_needs_no_loss() {
    let trace = unordered();
    let contents = ExpectedContents::default();
    let mut executor = Simulated::new(&trace, |memory| memory.load(FLAG) != 1);
    let result = explore_at(&mut executor, 4, &settings(&contents));
    let [failure] = &result.failures[..] else {
        panic!("{:?}", result.failures);
    };
    assert!(failure.state.versions.is_empty());
}

/// A failure of the newest content that is none without exploration hides no other one.
#[test]
fn an_unconfirmed_failure_with_everything_there_hides_nothing() {
    let trace = unordered();
    let contents = ExpectedContents::default();
    let mut executor = Simulated::new(&trace, data_if_flag);
    executor.newest_fails_in_exploration = true;
    let result = explore_at(&mut executor, 4, &settings(&contents));
    let [failure] = &result.failures[..] else {
        panic!("{:?}", result.failures);
    };
    assert!(!failure.state.versions.is_empty());
    assert_eq!(result.unconfirmed, 1);
}

fn progress_of(
    trace: &Trace,
    workers: usize,
    max: Option<u64>,
    engine: Engine,
) -> Progress<PointResult> {
    let points = points(trace);
    let moments: Vec<EventIndex> = points.iter().map(|point| point.at).collect();
    let contents = ExpectedContents::default();
    let changes = Changes::of(trace, Rules::default(), None, &moments).expect("a sound trace");
    let mut progress = Progress::<PointResult>::default();
    let mut reuse = Reuse::new(&changes, &contents, progress.results.iter());
    let executors = (0..workers).map(|_| {
        let mut executor = Simulated::new(trace, data_if_flag);
        executor.engine = engine;
        executor
    });
    let bounds = Bounds {
        max_executions: max,
        deadline: None,
    };
    let about = Round {
        points: &points,
        explore: &|executor: &mut Simulated<'_>, point: &FailurePoint, watched| {
            explore_point(
                executor,
                point.at,
                point.stack,
                watched,
                &settings(&contents),
            )
        },
        accept: &|_| (),
        bounds,
    };
    let mut watch = RoundObserver {
        tick: &mut |_| true,
        kill: &|| (),
    };
    round(
        executors.collect(),
        &about,
        &mut reuse,
        &mut progress,
        &mut watch,
    )
    .expect("it runs");
    progress
}

/// Most rounds change lines that recovery never reads.
fn long_trace() -> Trace {
    let mut ops = Vec::new();
    for round in 0..40 {
        let at = if round % 8 == 0 { DATA } else { OTHER };
        let is_set = u64::from(round / 8 % 2 == 0);
        ops.push(Op::Store(at, 7 * is_set + round % 8));
        ops.push(Op::Store(at + 64, is_set));
        ops.push(Op::Flush(at));
        ops.push(Op::Flush(at + 64));
        ops.push(Op::Fence);
    }
    trace_of(&ops)
}

type Summary = (Vec<(EventIndex, u64, u64, usize)>, u64, u64, u64);

fn summary(progress: &Progress<PointResult>) -> Summary {
    let result = progress.results.iter();
    let result = result.map(|it| (it.at, it.executions, it.choices, it.failures.len()));
    (
        result.collect(),
        progress.unchanged,
        progress.saved,
        progress.executions,
    )
}

#[test]
fn the_number_of_workers_changes_nothing() {
    let trace = long_trace();
    let one = summary(&progress_of(&trace, 1, None, Engine::Fork));
    for workers in [2, 3, 7] {
        for engine in [Engine::Fork, Engine::RecoveryCrash] {
            let several = summary(&progress_of(&trace, workers, None, engine));
            assert_eq!(one, several, "{workers} {engine:?}");
        }
    }
}

#[test]
fn what_recovery_does_not_read_needs_no_run() {
    let trace = long_trace();
    let progress = progress_of(&trace, 2, None, Engine::Fork);
    assert_eq!(progress.done(), points(&trace).len() as u64);
    assert!(progress.unchanged > 20, "{}", progress.unchanged);
    assert!(progress.saved >= progress.unchanged);
    assert!(progress.results.len() >= 3);
}

#[test]
fn a_limit_of_executions_ends_it() {
    let trace = long_trace();
    let all = progress_of(&trace, 1, None, Engine::Fork);
    for workers in [1, 4] {
        let some = progress_of(&trace, workers, Some(3), Engine::Fork);
        assert!(some.is_over);
        assert!(some.executions >= 3 && some.executions < all.executions);
        assert_eq!(
            summary(&some),
            summary(&progress_of(&trace, 2, Some(3), Engine::Fork))
        );
    }
}

/// An interruption keeps what was found until then.
#[test]
fn an_interruption_keeps_what_was_found() {
    let trace = long_trace();
    let points = points(&trace);
    let moments: Vec<EventIndex> = points.iter().map(|point| point.at).collect();
    let contents = ExpectedContents::default();
    let changes = Changes::of(&trace, Rules::default(), None, &moments).expect("a sound trace");
    let mut progress = Progress::<PointResult>::default();
    let mut reuse = Reuse::new(&changes, &contents, progress.results.iter());
    let bounds = Bounds {
        max_executions: None,
        deadline: None,
    };
    let ended = std::cell::Cell::new(0);
    let about = Round {
        points: &points,
        explore: &|executor: &mut Simulated<'_>, point: &FailurePoint, watched| {
            explore_point(
                executor,
                point.at,
                point.stack,
                watched,
                &settings(&contents),
            )
        },
        accept: &|_| (),
        bounds,
    };
    let mut watch = RoundObserver {
        tick: &mut |done| done < 4,
        kill: &|| ended.set(ended.get() + 1),
    };
    let executors = vec![Simulated::new(&trace, data_if_flag)];
    round(executors, &about, &mut reuse, &mut progress, &mut watch)
        .expect("an interruption is no error");
    assert!(progress.is_interrupted);
    assert!(progress.done() >= 4);
    assert_eq!(ended.get(), 1);
}

/// A recovery that contradicts itself ends, and is not asked for the same twice.
#[test]
fn a_recovery_that_does_not_repeat_itself_ends() {
    struct Fickle<'t>(Simulated<'t>, u64);
    impl Explorer for Fickle<'_> {
        fn explore(
            &mut self,
            request: &powerfail_oracle::ExploreRequest<'_>,
        ) -> Result<Attempt, CheckError> {
            self.1 += 1;
            let Attempt::Explored(mut explored) = self.0.explore(request)? else {
                panic!("it can be explored");
            };
            for choice in &mut explored.executions[0].choices {
                choice.class = 0;
                choice.class_count = 3;
                choice.left = 1;
            }
            Ok(Attempt::Explored(explored))
        }

        fn read(&self, id: powerfail_model::LineId, line_bytes: usize) -> Vec<u8> {
            Explorer::read(&self.0, id, line_bytes)
        }
    }
    let trace = unordered();
    let mut executor = Simulated::new(&trace, data_if_flag);
    executor.engine = Engine::RecoveryCrash;
    executor.go_to_end();
    let table = executor.line_table();
    let mut fickle = Fickle(executor, 0);
    let task = WalkTask {
        table: &table,
        fork: false,
        log: false,
        limit: 100,
        deadline: None,
    };
    walk_executions(&mut fickle, task, &mut |_| Ok(())).expect("it runs");
    assert!(fickle.1 < 20, "{}", fickle.1);
}
