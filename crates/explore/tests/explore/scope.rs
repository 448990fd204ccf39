//! Failure points that annotations of the program remove or add.

use powerfail_explore::{
    EagerOptions, EagerStates, FailurePointOptions, FailurePointsByStack, Survey, Trigger,
};
use powerfail_model::{Domain, FlushKind, Rules, SparseImage};
use powerfail_trace::Annotation;

use crate::common::{Line, Op, store, trace_of};

fn say(thread: u32, annotation: Annotation) -> Line {
    (thread, 7, Op::Annotation(annotation))
}

/// A store and a flush that makes it durable at once; the flush is the failure point.
fn pair(thread: u32, at: u64) -> [Line; 2] {
    let flush = Op::Flush(FlushKind::Clflush, 64 * at);
    [(thread, 1, store(64 * at, 1)), (thread, 2, flush)]
}

fn options() -> FailurePointOptions {
    FailurePointOptions {
        per_stack: 0,
        ..FailurePointOptions::default()
    }
}

fn all(tree: &FailurePointsByStack) -> Vec<u64> {
    let points = tree.stacks().iter().flat_map(|stack| &stack.points);
    let mut points: Vec<u64> = points.map(|point| point.at.0).collect();
    points.sort_unstable();
    points
}

/// Failure points, and how many are removed by annotations: by granularity, covering, and of segments.
fn points(lines: &[Line]) -> [(Vec<u64>, u64); 3] {
    let trace = trace_of(lines);
    let tree = FailurePointsByStack::of(&trace, options()).unwrap();
    let rules = Rules {
        domain: Domain::Adr,
        ..Rules::default()
    };
    let covering = FailurePointsByStack::covering(&trace, rules, options()).unwrap();
    let eager = EagerOptions::default();
    let survey = Survey::of(&trace, SparseImage::new(), &eager).unwrap();
    let chosen: Vec<u64> = survey
        .segments
        .iter()
        .enumerate()
        .filter(|(number, _)| survey.is_chosen(*number))
        .map(|(_, segment)| segment.at.0)
        .collect();
    assert_eq!(survey.segment_count(), chosen.len() as u64);
    let mut states = EagerStates::new(&trace, SparseImage::new(), eager, &survey);
    while let Some(state) = states.next_state().unwrap() {
        assert!(chosen.contains(&state.at.0), "{state:?}");
    }
    [
        (all(&tree), tree.out_of_scope_count()),
        (all(&covering), covering.out_of_scope_count()),
        (chosen, survey.out_of_scope.len() as u64),
    ]
}

#[test]
fn nothing_outside_of_regions_of_interest() {
    let mut lines = Vec::new();
    lines.extend(pair(0, 0)); // 1
    lines.push(say(0, Annotation::InterestBegin));
    lines.extend(pair(0, 1)); // 4
    lines.push(say(0, Annotation::InterestBegin));
    lines.push(say(1, Annotation::InterestEnd));
    lines.extend(pair(1, 2)); // 8
    lines.push(say(0, Annotation::InterestEnd));
    lines.extend(pair(0, 3)); // 11
    lines.push(say(1, Annotation::InterestBegin));
    lines.extend(pair(0, 4)); // 14
    for found in points(&lines) {
        assert_eq!(found, (vec![4, 8, 14], 2));
    }
}

#[test]
fn a_region_that_comes_last_leaves_out_everything_before() {
    let mut lines = vec![say(0, Annotation::CreationBegin)];
    lines.extend(pair(0, 0));
    lines.push(say(0, Annotation::CreationEnd));
    lines.extend(pair(0, 1));
    lines.push(say(0, Annotation::InterestBegin));
    for found in points(&lines) {
        assert_eq!(found, (vec![], 2));
    }
    // Also in the middle of a creation.
    let mut lines = vec![say(0, Annotation::CreationBegin)];
    lines.extend(pair(0, 0));
    lines.push(say(0, Annotation::InterestBegin));
    lines.extend(pair(0, 1));
    lines.push(say(0, Annotation::CreationEnd));
    lines.extend(pair(0, 2)); // 8
    for found in points(&lines) {
        assert_eq!(found, (vec![8], 1));
    }
}

#[test]
fn nothing_after_the_end_of_interest() {
    let mut lines = Vec::new();
    lines.extend(pair(0, 0)); // 1
    lines.push(say(1, Annotation::Complete));
    lines.extend(pair(0, 1));
    lines.push(say(0, Annotation::InterestBegin));
    lines.extend(pair(0, 2));
    let [granular, covering, eager] = points(&lines);
    // A region begins after the end of interest: so nothing is inside any region.
    for found in [granular, covering, eager] {
        assert_eq!(found, (vec![], 3));
    }
    lines.truncate(5);
    for found in points(&lines) {
        assert_eq!(found, (vec![1], 1));
    }
}

#[test]
fn a_thread_skips_for_itself() {
    let mut lines = vec![
        say(0, Annotation::SkipFailureBegin),
        say(0, Annotation::SkipFailureBegin),
    ];
    lines.extend(pair(0, 0)); // 3
    lines.push(say(0, Annotation::SkipFailureEnd));
    lines.extend(pair(0, 1)); // 6
    lines.extend(pair(1, 2)); // 8
    lines.push(say(0, Annotation::SkipFailureEnd));
    lines.extend(pair(0, 3)); // 11
    for found in points(&lines) {
        assert_eq!(found, (vec![8, 11], 2));
    }
}

#[test]
fn failure_points_of_the_programs_own() {
    let lines = [
        (0, 1, store(0, 1)),
        say(0, Annotation::FailurePoint), // 1
        say(0, Annotation::FailurePoint), // 2
        say(0, Annotation::SkipFailureBegin),
        say(0, Annotation::FailurePoint),
        say(1, Annotation::FailurePoint), // 5
        say(0, Annotation::SkipFailureEnd),
    ];
    let trace = trace_of(&lines);
    let tree = FailurePointsByStack::of(&trace, options()).unwrap();
    assert_eq!((all(&tree), tree.out_of_scope_count()), (vec![1, 2, 5], 1));
    let point = tree.stacks()[0].points[0];
    assert_eq!(point.trigger, Trigger::Annotation);
    assert!(point.digest.is_some());
    let [_, covering, eager] = points(&lines);
    // The points where failures stop counting, and the end, are points for lost lines as well.
    assert_eq!(covering, (vec![1, 2, 3, 5, 7], 1));
    assert_eq!(eager, (vec![1, 2, 3, 5, 7], 1));
}

/// The flush outside of the region would have been the point to try.
#[test]
fn what_may_be_lost_in_a_region_is_tried_at_its_end() {
    let lines = [
        say(0, Annotation::InterestBegin),
        (0, 1, store(0, 1)),
        say(0, Annotation::InterestEnd), // 2
        (0, 2, Op::Flush(FlushKind::Clflush, 0)),
    ];
    let [granular, covering, eager] = points(&lines);
    assert_eq!(granular, (vec![], 1));
    assert_eq!(covering, (vec![2], 1));
    assert_eq!(eager, (vec![2], 1));
}
