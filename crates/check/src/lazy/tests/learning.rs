//! Failure points learn from each other: the tree of observations changes how often recovery is executed, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use powerfail_explore::FailurePoint;
use powerfail_explore::lazy::nested::CrashPoint;
use powerfail_explore::lazy::{SegmentLimits, Segments};
use powerfail_model::{EventIndex, Rules};
use powerfail_trace::Trace;

use super::simulated::{Engine, KeptFile, Memory, Op, Simulated, trace_of};
use super::{
    DATA, FLAG, OTHER, data_if_flag, long_trace, points, settings, winding, winding_trace,
};
use crate::content::ExpectedContents;
use crate::lazy::driver::{Bounds, Progress, Round, RoundObserver, round};
use crate::lazy::executor::LazyExecutor;
use crate::lazy::observations::{ObservedCrash, Trees};
use crate::lazy::point::{PointResult, PointSettings, explore_point};
use crate::lazy::reuse::{Changes, Reuse};

type Recovery = fn(&mut Memory<'_>) -> bool;

struct Learned {
    progress: Progress<PointResult>,
    note: Option<String>,
    /// How often recovery was executed to be explored, by all workers.
    executed: u64,
}

#[derive(Clone, Copy)]
struct Task {
    recovery: Recovery,
    engine: Engine,
    workers: usize,
    /// `None`: points do not learn.
    limits: Option<SegmentLimits>,
    limit: Option<u64>,
}

impl Task {
    fn of(recovery: Recovery) -> Self {
        Self {
            recovery,
            engine: Engine::Fork,
            workers: 1,
            limits: Some(SegmentLimits::default()),
            limit: Some(1000),
        }
    }

    fn run(&self, trace: &Trace) -> Learned {
        self.run_share(trace, None, |_| true)
    }

    /// Explores some of the points. Executions are kept in a file.
    fn run_share(
        &self,
        trace: &Trace,
        file: Option<&Arc<KeptFile>>,
        is_own: impl Fn(usize) -> bool,
    ) -> Learned {
        let points = points(trace);
        let moments: Vec<EventIndex> = points.iter().map(|point| point.at).collect();
        let contents = ExpectedContents::default();
        let segments = |limits| {
            Segments::of(trace, Rules::default(), None, &moments, limits).expect("a sound trace")
        };
        let trees = self.limits.map(|limits| Trees::new(segments(limits), 1));
        let changes = Changes::none();
        let mut progress = Progress::<PointResult>::default();
        let mut reuse = Reuse::new(&changes, &contents, progress.results.iter());
        let settings = PointSettings {
            trees: trees.as_ref(),
            limit: self.limit,
            ..settings(&contents)
        };
        let executed = AtomicU64::new(0);
        let own = points.into_iter().enumerate();
        let own = own.filter_map(|(number, point)| is_own(number).then_some(point));
        let points: Vec<FailurePoint> = own.collect();
        let executors = (0..self.workers).map(|_| {
            let mut executor = Simulated::new(trace, self.recovery);
            executor.engine = self.engine;
            executor.file = file.cloned();
            executor
        });
        let about = Round {
            points: &points,
            explore: &|executor: &mut Simulated<'_>, point: &FailurePoint, watched| {
                let before = executor.executed.get();
                let result = explore_point(executor, point.at, point.stack, watched, &settings);
                let now = executor.executed.get() - before;
                executed.fetch_add(now, Ordering::Relaxed);
                result
            },
            accept: &|result: &mut PointResult| result.accept(trees.as_ref()),
            bounds: Bounds {
                max_executions: None,
                deadline: None,
            },
        };
        let mut observer = RoundObserver {
            tick: &mut |_| true,
            kill: &|| (),
        };
        round(
            executors.collect(),
            &about,
            &mut reuse,
            &mut progress,
            &mut observer,
        )
        .expect("it runs");
        Learned {
            progress,
            note: trees.and_then(|trees| trees.note()),
            executed: executed.into_inner(),
        }
    }
}

/// What a report would say of the points, without the number of executions.
fn shown(learned: &Learned) -> Vec<String> {
    let results = learned.progress.results.iter();
    let shown = results.map(|result| {
        let failures: Vec<_> = result
            .failures
            .iter()
            .map(|it| (&it.key, &it.state, &it.stores, it.count, it.loads.len()))
            .collect();
        format!(
            "{:?} {:?} {} {failures:?}",
            result.at, result.thoroughness, result.choices
        )
    });
    shown.collect()
}

fn traces() -> [Trace; 3] {
    [winding_trace(), long_trace(), alternating()]
}

/// Writes the same words again and again, so that most contents were there before.
fn alternating() -> Trace {
    let mut ops = Vec::new();
    for round in 0..30_u64 {
        for line in 0..3 {
            ops.push(Op::Store(64 * line, (round + line) % 3));
            if round % 2 == 0 {
                ops.push(Op::Flush(64 * line));
            }
        }
        ops.push(Op::Fence);
    }
    trace_of(&ops)
}

const RECOVERIES: [Recovery; 3] = [winding, data_if_flag, |memory| {
    let first = memory.load(DATA);
    memory.store(FLAG, first);
    memory.load(FLAG) + memory.load(OTHER) + memory.load(128 + 8 * (first % 2)) != 3
}];

#[test]
fn what_is_known_is_shown_as_if_it_were_executed() {
    let mut saved = 0;
    for trace in traces() {
        for recovery in RECOVERIES {
            for engine in [Engine::Fork, Engine::RecoveryCrash, Engine::ForkHalf] {
                for limit in [Some(1000), Some(5)] {
                    // Within a limit, executions that branch by themselves come in the order of their choices.
                    if limit == Some(5) && engine != Engine::Fork {
                        continue;
                    }
                    let with = Task {
                        engine,
                        limit,
                        ..Task::of(recovery)
                    };
                    let without = Task {
                        limits: None,
                        ..with
                    };
                    let (with, without) = (with.run(&trace), without.run(&trace));
                    assert_eq!(shown(&with), shown(&without), "{engine:?} {limit:?}");
                    assert_eq!(with.note, None);
                    let executions = with.progress.executions;
                    if limit == Some(1000) {
                        // Nothing is sampled, which would count as well.
                        assert_eq!(with.executed, executions, "each counts once");
                    }
                    assert_eq!(
                        executions + with.progress.saved,
                        without.progress.executions,
                        "{engine:?} {limit:?}"
                    );
                    saved += with.progress.saved;
                }
            }
        }
    }
    assert!(saved > 100, "{saved}");
}

#[test]
fn what_a_segment_watches_is_made_once() {
    let trace = long_trace();
    let points = points(&trace);
    let moments: Vec<EventIndex> = points.iter().map(|point| point.at).collect();
    let limits = SegmentLimits::default();
    let segments = Segments::of(&trace, Rules::default(), None, &moments, limits);
    let trees = Trees::new(segments.expect("a sound trace"), 1);
    let mut executor = Simulated::new(&trace, data_if_flag);
    let pools = executor.pools();
    let mut known = Vec::new();
    for at in moments {
        executor.move_to(at).expect("a sound trace");
        let crash = CrashPoint::first(executor.crash_table());
        let tree = trees.at(at, false).expect("one segment");
        let observed = ObservedCrash::of(tree, &crash, &pools, &|_| Vec::new());
        known.push(Arc::clone(&observed.watches));
    }
    assert!(known.len() > 2 && !known[0].is_empty());
    assert!(known.iter().all(|it| Arc::ptr_eq(it, &known[0])));
}

/// Two lines in a page: segments are short, and the executions are the same.
#[test]
fn a_long_run_has_several_trees() {
    let trace = winding_trace();
    let limits = SegmentLimits { lines: 5, pages: 9 };
    let few = Task {
        limits: Some(limits),
        ..Task::of(winding)
    };
    let without = Task {
        limits: None,
        ..few
    };
    let few = few.run(&trace);
    assert_eq!(shown(&few), shown(&without.run(&trace)));
}

#[test]
fn the_number_of_workers_does_not_count() {
    for trace in traces() {
        let one = Task::of(winding);
        let four = Task { workers: 4, ..one };
        let (one, four) = (one.run(&trace), four.run(&trace));
        assert_eq!(shown(&one), shown(&four));
        let counts = |learned: &Learned| {
            let results = learned.progress.results.iter();
            let each: Vec<_> = results.map(|it| (it.executions, it.saved)).collect();
            (each, learned.progress.executions, learned.progress.saved)
        };
        assert_eq!(counts(&one), counts(&four));
    }
}

/// What a report would say, with the number of executions.
fn counted(learned: &Learned) -> (Vec<String>, Vec<(u64, u64)>) {
    let results = learned.progress.results.iter();
    let counts = results.map(|it| (it.executions, it.saved));
    (shown(learned), counts.collect())
}

#[test]
fn what_was_kept_is_not_executed_again_in_any_order() {
    for trace in traces() {
        for recovery in RECOVERIES {
            for engine in [Engine::Fork, Engine::RecoveryCrash] {
                let task = Task {
                    engine,
                    ..Task::of(recovery)
                };
                let whole = task.run(&trace);
                // Three shares, which know nothing of each other, and the later ones come first.
                let file = Arc::<KeptFile>::default();
                let mut executed = 0;
                for share in (0..3).rev() {
                    let own = Arc::<KeptFile>::default();
                    let shown = task.run_share(&trace, Some(&own), |number| number % 3 == share);
                    executed += shown.executed;
                    let mut all = file.lock().unwrap();
                    all.append(&mut own.lock().unwrap());
                }
                assert!(executed >= whole.executed);
                let merged = task.run_share(&trace, Some(&file), |_| true);
                assert_eq!(merged.executed, 0, "{engine:?}");
                assert_eq!(counted(&merged), counted(&whole), "{engine:?}");
            }
        }
    }
}

#[test]
fn a_run_that_was_killed_executes_only_the_rest() {
    let mut rests = 0;
    for trace in traces() {
        for recovery in RECOVERIES {
            let task = Task::of(recovery);
            let whole = task.run(&trace);
            for points in [1, 2, 4] {
                let file = Arc::<KeptFile>::default();
                let begun = task.run_share(&trace, Some(&file), |number| number < points);
                let resumed = task.run_share(&trace, Some(&file), |_| true);
                assert_eq!(begun.executed + resumed.executed, whole.executed);
                assert_eq!(counted(&resumed), counted(&whole));
                rests += usize::from(resumed.executed > 0);
            }
        }
    }
    assert!(rests > 3, "{rests}");
}

/// What it reads next depends on how often it was executed.
fn fickle(memory: &mut Memory<'_>) -> bool {
    let line = memory.executions_before() % 2;
    memory.load(64 * line) + memory.load(64 * (1 - line)) != 2
}

#[test]
fn a_recovery_that_reads_something_else_is_noticed_and_explored_without_the_tree() {
    let trace = winding_trace();
    let task = Task::of(fickle);
    let without = Task {
        limits: None,
        ..task
    };
    let (with, without) = (task.run(&trace), without.run(&trace));
    assert!(with.note.is_some());
    assert_eq!(with.progress.results.len(), without.progress.results.len());
    assert!(without.note.is_none());
}
