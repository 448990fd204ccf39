//! Failures during recovery, compared with brute force over every crash state, every moment of recovery, every crash
//! state of that moment, and so on.

use std::collections::{BTreeSet, HashSet};

use powerfail_explore::lazy::nested::{
    CrashPoint, InterruptedRecovery, NestedPoint, NestedPointKey, RecoveryEvent, failure_points,
};
use powerfail_explore::lazy::{CrashTable, Seen, TableLimits};
use powerfail_model::{FlushKind, Frontier, Rules, StoreKind};

use crate::brute::{
    behaviour_on, behaviours, crash_image, crash_images, interrupted, recovery_frontier,
};
use crate::generate::{Generator, all_rules};
use crate::lazily::{Execution, explore};
use crate::machine::{Behaviour, Effect, Instruction, Program, THREAD};
use crate::workload::{at_failure_points, frontier_at, newest};

/// The nested failure points of an execution.
fn points_of(
    rules: Rules,
    crash: &CrashPoint,
    execution: &Execution,
    pool: &[u8],
    known: &mut HashSet<NestedPointKey>,
) -> Vec<NestedPoint> {
    let log: Vec<RecoveryEvent<'_>> = execution
        .log
        .iter()
        .map(|logged| RecoveryEvent {
            event: logged.effect.event(),
            thread: THREAD,
            choices: logged.choices,
        })
        .collect();
    let image = |at: powerfail_model::Place, out: &mut [u8]| {
        let at = at.offset.0 as usize;
        out.copy_from_slice(&pool[at..at + out.len()]);
    };
    let interrupted = InterruptedRecovery {
        crash,
        choices: &execution.observed,
        log: &log,
    };
    let limits = TableLimits::default();
    failure_points(rules, &interrupted, &image, limits, &mut |key| {
        !known.insert(key)
    })
    .unwrap()
}

/// The behaviours of the last recovery after up to this many failures of earlier recoveries.
fn lazily(
    rules: Rules,
    program: &Program,
    crash: &CrashPoint,
    pool: &[u8],
    depth: usize,
    shown: &mut BTreeSet<Behaviour>,
    explored: &mut HashSet<(u128, usize)>,
) {
    if !explored.insert((crash.digest(), depth)) {
        return;
    }
    let executions = explore(program, crash, pool);
    let mut known = HashSet::new();
    for execution in &executions {
        shown.insert(execution.behaviour.clone());
        if depth == 0 {
            continue;
        }
        for point in points_of(rules, crash, execution, pool, &mut known) {
            assert!(point.crash.table.is_complete());
            let crash = &point.crash;
            lazily(rules, program, crash, pool, depth - 1, shown, explored);
        }
    }
}

fn brute(
    rules: Rules,
    program: &Program,
    frontier: &Frontier,
    len: usize,
    depth: usize,
) -> BTreeSet<Behaviour> {
    let mut images = crash_images(frontier, len);
    for _ in 0..depth {
        images = interrupted(rules, program, &images);
    }
    behaviours(program, &images)
}

/// How many cases a comparison covered.
#[derive(Default)]
struct Compared {
    points: usize,
    /// Cases in which failures of recovery gave a new behaviour.
    with_news: usize,
}

fn compare_random(rules: Rules, depth: usize, wanted: usize, log10_states: f64) -> Compared {
    let mut compared = Compared::default();
    let mut seed = 1 << 32;
    while compared.points < wanted {
        seed += 1;
        let mut generator = Generator::new(rules, 2 + seed % 2, seed);
        let len = 2 + generator.below(6);
        let workload = generator.workload(len);
        let recovery_len = 3 + generator.below(10 - 2 * depth as u64) as usize;
        let program = generator.recovery(recovery_len, true);
        let len = generator.pool_len();
        at_failure_points(rules, &workload, |_, frontier| {
            if frontier.crash_state_count_log10() > log10_states {
                return;
            }
            let expected = brute(rules, &program, frontier, len, depth);
            let mut shown = BTreeSet::new();
            let crash = CrashPoint::first(CrashTable::of(frontier));
            let pool = newest(frontier, len);
            let mut explored = HashSet::new();
            lazily(
                rules,
                &program,
                &crash,
                &pool,
                depth,
                &mut shown,
                &mut explored,
            );
            assert_eq!(shown, expected, "{rules:?} {workload:?} {program:?}");
            compared.points += 1;
            let without = brute(rules, &program, frontier, len, depth - 1);
            compared.with_news += usize::from(without != expected);
        });
    }
    compared
}

#[test]
fn two_failures_show_what_brute_force_shows() {
    for rules in all_rules() {
        let compared = compare_random(rules, 1, 500, 1.3);
        assert!(compared.with_news > 20, "{rules:?} {}", compared.with_news);
    }
}

#[test]
fn three_failures_show_what_brute_force_shows() {
    let compared = all_rules().map(|rules| compare_random(rules, 2, 200, 0.8));
    let with_news: usize = compared.map(|compared| compared.with_news).sum();
    assert!(with_news > 0);
}

/// Each failure takes this recovery one step further: it needs as many failures as it has steps to show the last one.
#[test]
fn depth_is_what_it_takes_to_get_deep() {
    let byte = |at, value| Instruction::Store {
        kind: StoreKind::Plain,
        at,
        bytes: vec![value],
    };
    let jump = |value, to| Instruction::JumpIf { byte: 0, value, to };
    let flush = Instruction::Flush {
        kind: FlushKind::Clflush,
        at: 0,
    };
    let mut program = vec![
        Instruction::Load { at: 0, len: 1 },
        jump(1, 5),
        jump(2, 8),
        jump(3, 11),
        Instruction::Stop(9),
    ];
    for step in 1..=3 {
        program.extend([byte(0, step + 1), flush.clone(), Instruction::Stop(step)]);
    }
    let rules = Rules::default();
    let workload = vec![(0, Effect::Store(StoreKind::Plain, 0, vec![1]))];
    let frontier = frontier_at(rules, &workload);
    let outcomes = |depth| -> BTreeSet<u8> {
        let mut shown = BTreeSet::new();
        let crash = CrashPoint::first(CrashTable::of(&frontier));
        let pool = newest(&frontier, 64);
        let mut explored = HashSet::new();
        lazily(
            rules,
            &program,
            &crash,
            &pool,
            depth,
            &mut shown,
            &mut explored,
        );
        assert_eq!(shown, brute(rules, &program, &frontier, 64, depth));
        shown.iter().map(|behaviour| behaviour.outcome).collect()
    };
    assert_eq!(outcomes(0), [1, 9].into());
    assert_eq!(outcomes(1), [1, 2, 9].into());
    assert_eq!(outcomes(2), [1, 2, 3, 9].into());
}

/// Every execution after a nested failure can be made concrete: as an image, and as the crash state of the
/// first run with the one of recovery.
#[test]
fn what_nested_failures_show_has_a_concrete_cause() {
    let mut checked = 0;
    for rules in all_rules() {
        for seed in 0..150 {
            let mut generator = Generator::new(rules, 3, seed << 40);
            let workload = generator.workload(6);
            let program = generator.recovery(8, true);
            let len = generator.pool_len();
            at_failure_points(rules, &workload, |_, frontier| {
                if frontier.crash_state_count_log10() > 1.5 {
                    return;
                }
                checked += check_causes(rules, frontier, &program, len);
            });
        }
    }
    assert!(checked > 2000, "{checked}");
}

fn check_causes(rules: Rules, frontier: &Frontier, program: &Program, len: usize) -> usize {
    let pool = newest(frontier, len);
    let first = CrashPoint::first(CrashTable::of(frontier));
    let mut checked = 0;
    for execution in explore(program, &first, &pool) {
        let mut known = HashSet::new();
        for point in points_of(rules, &first, &execution, &pool, &mut known) {
            let choices = &execution.observed[..point.choices];
            let outer_seen = Seen::of(&first.table, choices.iter().copied()).unwrap();
            for again in explore(program, &point.crash, &pool) {
                let seen = Seen::of(&point.crash.table, again.observed.iter().copied()).unwrap();
                // As an image.
                let mut image = pool.clone();
                for (id, bytes) in point.crash.concrete(&seen).lines() {
                    let start = id.line.0 as usize * bytes.len();
                    image[start..start + bytes.len()].copy_from_slice(bytes);
                }
                assert_eq!(behaviour_on(program, &image).0, again.behaviour);
                // As a crash of the workload, and one of its recovery.
                let (outer, recovery) = point.crash.explain(&seen);
                let state = outer_seen.state_with(&outer);
                let start = crash_image(frontier, &state, len);
                let (behaviour, log) = behaviour_on(program, &start);
                let loads = log[point.last_store].loads;
                assert_eq!(
                    behaviour.loaded[..loads],
                    execution.behaviour.loaded[..loads]
                );
                let interrupted = recovery_frontier(rules, &start, &log[..=point.last_store]);
                assert_eq!(crash_image(&interrupted, &recovery, len), image);
                checked += 1;
            }
        }
    }
    checked
}
