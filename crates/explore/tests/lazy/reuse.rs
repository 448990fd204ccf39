//! A failure point that needs no run would have given the results of the earlier one.

use std::collections::{BTreeSet, HashMap};

use powerfail_explore::lazy::nested::CrashPoint;
use powerfail_explore::lazy::{
    ChangeLogBuilder, CrashTable, Decision, PageLines, ReadSets, ReuseCounts, ReuseLimits,
};
use powerfail_model::{
    EventIndex, FailurePoints, FlushKind, Frontier, LineId, Rules, SparseImage, StoreKind,
};

use crate::generate::{Generator, all_rules};
use crate::lazily::explore;
use crate::machine::{Behaviour, Effect, Instruction, Program};
use crate::workload::{Workload, newest, step};

/// The behaviours at a failure point, the number of executions, and the lines that they read.
fn explored(
    program: &Program,
    frontier: &Frontier,
    len: usize,
) -> (BTreeSet<Behaviour>, u64, BTreeSet<LineId>) {
    let crash = CrashPoint::first(CrashTable::of(frontier));
    let executions = explore(program, &crash, &newest(frontier, len));
    let mut shown = BTreeSet::new();
    let mut read = BTreeSet::new();
    for execution in &executions {
        shown.insert(execution.behaviour.clone());
        read.extend(execution.touched.iter().copied());
    }
    (shown, executions.len() as u64, read)
}

/// Only the watched lines: the runtime need not report the others.
fn reported(read: BTreeSet<LineId>, watched: &[PageLines], line_bytes: usize) -> Vec<PageLines> {
    let mut read = PageLines::of(read, line_bytes);
    for page in &mut read {
        let same_page = |heard: &&PageLines| (heard.pool, heard.offset) == (page.pool, page.offset);
        page.lines &= watched
            .iter()
            .find(same_page)
            .map_or(0, |heard| heard.lines);
    }
    read.retain(|page| page.lines != 0);
    read
}

/// Decides for all failure points as a driver does, and compares each decision with the result of a run.
fn check(
    rules: Rules,
    workload: &Workload,
    program: &Program,
    len: usize,
    limits: ReuseLimits,
) -> (usize, ReuseCounts) {
    let mut builder = ChangeLogBuilder::new(rules, SparseImage::new());
    let mut frontiers: Vec<Frontier> = Vec::new();
    for (index, entry) in workload.iter().enumerate() {
        let step = step((index, entry));
        let frontier = builder.frontier();
        if frontier.is_failure_point(FailurePoints::Covering, &step) {
            frontiers.push(frontier.clone());
            builder.point(EventIndex(index as u64));
        }
        builder.apply(&step);
    }
    let log = builder.finish();
    assert_eq!(log.point_count(), frontiers.len());
    let line_bytes = rules.domain.line_bytes();
    let mut sets = ReadSets::new(&log, limits);
    let mut results = HashMap::new();
    let mut saved = ReuseCounts::default();
    for (point, frontier) in frontiers.iter().enumerate() {
        let (shown, executions, read) = explored(program, frontier, len);
        let foreseen = sets.foresee(point);
        let decided = sets.decide(point);
        assert_eq!(foreseen, decided);
        assert_eq!(sets.foresee(point), decided, "once more");
        match decided {
            Decision::Same {
                point: then,
                executions: then_executions,
            } => {
                assert_eq!(results[&then], shown, "{workload:?} {program:?}");
                assert_eq!(then_executions, executions);
                saved.points += 1;
                saved.executions += executions;
            }
            Decision::Explore => {
                let watched = sets.watch(point);
                let read = reported(read, &watched, line_bytes);
                sets.explored(point, executions, &watched, &read);
                results.insert(point, shown);
            }
        }
    }
    assert_eq!(sets.counts(), saved);
    (frontiers.len(), saved)
}

#[test]
fn points_that_need_no_run_would_have_shown_the_same() {
    for rules in all_rules() {
        let mut points = 0;
        let mut saved = 0;
        for seed in 0..400 {
            let lines = [4, 9, 80][seed as usize % 3];
            let mut generator = Generator::new(rules, lines, seed << 20);
            let workload = generator.workload(30);
            let program = generator.recovery(5, seed % 2 == 0);
            let limits = ReuseLimits {
                look_ahead: [0, 2, 32, 32][generator.below(4) as usize],
                watched_lines: [3, 2048][generator.below(2) as usize],
                candidates: 1 + generator.below(4) as usize,
                ..ReuseLimits::default()
            };
            let len = generator.pool_len();
            let (all, counts) = check(rules, &workload, &program, len, limits);
            points += all as u64;
            saved += counts.points;
        }
        assert!(
            saved > 30 && saved < points,
            "{rules:?} {saved} of {points}"
        );
    }
}

fn store(at: u64, value: u8) -> (u32, Effect) {
    (0, Effect::Store(StoreKind::Plain, at, vec![value]))
}

fn clflush(at: u64) -> (u32, Effect) {
    (0, Effect::Flush(FlushKind::Clflush, at))
}

/// Ten failure points; before each, another line of the same page is stored to.
fn ten_lines() -> Workload {
    (0..10)
        .flat_map(|line| [store(64 * line, 1), clflush(64 * line)])
        .collect()
}

fn load(at: u64) -> Program {
    vec![Instruction::Load { at, len: 1 }]
}

fn counts(workload: &Workload, program: &Program, limits: ReuseLimits) -> (usize, ReuseCounts) {
    check(Rules::default(), workload, program, 4096, limits)
}

#[test]
fn lines_of_one_page_are_told_apart() {
    // The first one is run, and the two whose line was just stored to or made durable.
    let (points, saved) = counts(&ten_lines(), &load(5 * 64), ReuseLimits::default());
    assert_eq!((points, saved.points), (10, 7));
    // Another line of the page is irrelevant.
    let (points, saved) = counts(&ten_lines(), &load(20 * 64), ReuseLimits::default());
    assert_eq!((points, saved.points, saved.executions), (10, 9, 9));
}

#[test]
fn what_was_not_watched_may_have_been_read() {
    let limits = ReuseLimits {
        look_ahead: 0,
        ..ReuseLimits::default()
    };
    assert_eq!(counts(&ten_lines(), &load(20 * 64), limits).1.points, 0);
    let limits = ReuseLimits {
        look_ahead: 3,
        ..ReuseLimits::default()
    };
    // Each run is reused for the next three.
    assert_eq!(counts(&ten_lines(), &load(20 * 64), limits).1.points, 7);
}

#[test]
fn a_line_that_changes_back_is_the_same_again() {
    let set = |value| [store(0, value), clflush(0), store(640, value), clflush(640)];
    let workload: Workload = [1, 2, 1, 2, 1, 2].into_iter().flat_map(set).collect();
    let (points, saved) = counts(&workload, &load(0), ReuseLimits::default());
    // The observable contents of line 0 are: 0 or 1, then 1, then 1 or 2, then 2, then 2 or 1; from then on only
    // contents that have been seen.
    assert_eq!((points, saved.points), (12, 7));
}

#[test]
fn another_length_of_a_pool_is_another_pool() {
    let mut builder = ChangeLogBuilder::new(Rules::default(), SparseImage::new());
    builder.point(EventIndex(0));
    builder.apply(&powerfail_model::Step {
        index: EventIndex(0),
        thread: crate::machine::THREAD,
        event: powerfail_model::Event::Resize {
            pool: crate::machine::POOL,
            len_bytes: 8192,
        },
    });
    builder.point(EventIndex(1));
    builder.point(EventIndex(1));
    let log = builder.finish();
    let mut sets = ReadSets::new(&log, ReuseLimits::default());
    assert_eq!(sets.decide(0), Decision::Explore);
    sets.explored(0, 1, &[], &[]);
    assert_eq!(sets.decide(1), Decision::Explore);
    sets.explored(1, 3, &[], &[]);
    let same = Decision::Same {
        point: 1,
        executions: 3,
    };
    assert_eq!(sets.decide(2), same);
}

/// A changed remark about a line counts like changed content.
#[test]
fn another_remark_about_a_line_that_is_read_is_a_change() {
    let line = powerfail_model::LineId {
        pool: crate::machine::POOL,
        line: powerfail_model::LineIndex(3),
    };
    let mut builder = ChangeLogBuilder::new(Rules::default(), SparseImage::new());
    for remark in [0, 5, 5, 0, 5] {
        builder.remark(line, remark);
        builder.point(EventIndex(0));
    }
    let log = builder.finish();
    let changes: Vec<usize> = (0..5).map(|point| log.changes(point).len()).collect();
    assert_eq!(changes, [0, 1, 0, 1, 1]);
    assert_eq!(log.changes(3)[0].now, log.changes(1)[0].before);
}
