//! Plans: what is tried, in which order of priority, and what is left out.

use powerfail_explore::{FailurePointOptions, FailurePointsByStack, Plan, PlanOptions};

use crate::common::{Line, Op, store, trace_of};

/// Stack 1 is passed ten times, stacks 2 and 3 once each; every image is different.
fn lines() -> Vec<Line> {
    let mut lines = Vec::new();
    for round in 0..10 {
        lines.push((0, 9, store(0, round + 1)));
        lines.push((0, 1, Op::Fence));
        if round == 4 || round == 7 {
            lines.push((0, 9, store(8, round)));
            lines.push((0, u32::from(round == 7) + 2, Op::Fence));
        }
    }
    lines
}

fn plan(lines: &[Line], limit: Option<usize>, keep_equal_images: bool) -> Plan {
    let tree = FailurePointsByStack::of(&trace_of(lines), FailurePointOptions::default()).unwrap();
    Plan::of(
        &tree,
        PlanOptions {
            limit,
            keep_equal_images,
        },
    )
}

fn places(plan: &Plan) -> Vec<u64> {
    plan.points
        .iter()
        .map(|planned| planned.point.at.0)
        .collect()
}

#[test]
fn rare_stacks_come_first_and_points_are_in_the_order_of_the_trace() {
    assert_eq!(places(&plan(&lines(), Some(1), false)), [11]);
    assert_eq!(places(&plan(&lines(), Some(2), false)), [11, 19]);
    assert_eq!(places(&plan(&lines(), Some(3), false)), [1, 11, 19]);
    assert_eq!(places(&plan(&lines(), Some(4), false)), [1, 11, 19, 23]);
    let all = plan(&lines(), None, false);
    assert_eq!(all.points.len(), 5);
    assert!(all.points.is_sorted_by_key(|planned| planned.point.at));
}

#[test]
fn what_is_left_out_is_counted() {
    let left = plan(&lines(), Some(1), false).left_out;
    assert_eq!(left.same_stack, 7);
    assert_eq!(left.over_limit, 4);
    assert_eq!(left.stacks_over_limit, 2);
    assert_eq!((left.equal_image, left.in_creation), (0, 0));
}

#[test]
fn equal_images_are_tried_once() {
    // The second store changes nothing, so both fences have the same image.
    let lines = [
        (0, 9, store(0, 1)),
        (0, 1, Op::Fence),
        (0, 9, store(0, 1)),
        (0, 2, Op::Fence),
    ];
    let once = plan(&lines, None, false);
    assert_eq!(places(&once), [1]);
    assert_eq!(once.points[0].equal_images, 1);
    assert_eq!(once.left_out.equal_image, 1);
    assert_eq!(places(&plan(&lines, None, true)), [1, 3]);
}
