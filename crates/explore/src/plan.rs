//! Which failure points to try within a budget, and what that leaves out.
//!
//! The value of a point: first each call stack once, rare stacks before frequent ones (code that runs
//! seldom is tested seldom), then each of them a second time, and so on. Where that leaves a choice,
//! any number of points is spread evenly over the trace, by taking them in bit-reversed order.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::by_stack::FailurePointsByStack;
use crate::digest::ImageDigest;
use crate::point::FailurePoint;

/// What to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// At most this many points.
    pub limit: Option<usize>,
    /// Try points whose images equal that of another one as well.
    pub keep_equal_images: bool,
}

/// A failure point that is to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPoint {
    /// The point.
    pub point: FailurePoint,
    /// How many points are worth more.
    pub rank: usize,
    /// How many other kept points have the same image and are covered by this one.
    pub equal_images: u64,
}

/// How many failure points a plan does not try, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Others with the same call stack are tried.
    pub same_stack: u64,
    /// The image is that of a point that is tried, or that the limit cut.
    pub equal_image: u64,
    /// The limit was reached.
    pub over_limit: u64,
    /// Call stacks of which no point is tried because the limit was reached.
    pub stacks_over_limit: u64,
    /// A pool was being created.
    pub in_creation: u64,
    /// Annotations of the program say so.
    pub out_of_scope: u64,
}

/// The failure points to try, and what is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The points to try, in the order of the trace: one forward pass serves all of them.
    pub points: Vec<PlannedPoint>,
    /// What is not tried.
    pub left_out: LeftOut,
}

impl Plan {
    /// Chooses among the points of a tree.
    pub fn of(tree: &FailurePointsByStack, options: PlanOptions) -> Self {
        let mut left_out = LeftOut {
            same_stack: tree.point_count() - tree.kept_count(),
            in_creation: tree.excluded_count(),
            out_of_scope: tree.out_of_scope_count(),
            ..LeftOut::default()
        };
        let limit = options.limit.unwrap_or(usize::MAX);
        let mut chosen: Vec<PlannedPoint> = Vec::new();
        let mut by_image: FxHashMap<ImageDigest, usize> = FxHashMap::default();
        for point in by_value(tree) {
            if let Some(digest) = point.digest.filter(|_| !options.keep_equal_images) {
                let next = chosen.len();
                let same = *by_image.entry(digest).or_insert(next);
                if same < next {
                    chosen[same].equal_images += 1;
                    left_out.equal_image += 1;
                    continue;
                }
            }
            chosen.push(PlannedPoint {
                point,
                rank: chosen.len(),
                equal_images: 0,
            });
        }
        let cut = chosen.split_off(limit.min(chosen.len()));
        left_out.over_limit = cut.len() as u64;
        // Round one comes first: a stack whose first point is cut has no other point before it.
        left_out.stacks_over_limit = cut
            .iter()
            .filter(|planned| planned.point.occurrence == 0)
            .count() as u64;
        chosen.sort_unstable_by_key(|planned| planned.point.at);
        Self {
            points: chosen,
            left_out,
        }
    }
}

/// All kept points, the most valuable first.
fn by_value(tree: &FailurePointsByStack) -> Vec<FailurePoint> {
    let mut ranked: Vec<(usize, u64, FailurePoint)> = Vec::new();
    for stack in tree.stacks() {
        for (round, point) in stack.points.iter().enumerate() {
            ranked.push((round, stack.occurrences, *point));
        }
    }
    ranked.sort_unstable_by_key(|&(round, occurrences, point)| (round, occurrences, point.at));
    let groups = ranked.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1));
    groups
        .flat_map(|group| spread(group.len()).map(|place| group[place].2))
        .collect()
}

/// The numbers below `count`, each once, so that any beginning of the sequence is spread evenly.
pub fn spread(count: usize) -> impl Iterator<Item = usize> {
    let bits = count.next_power_of_two().trailing_zeros();
    (0..1_usize << bits)
        .map(move |number| {
            if bits == 0 {
                0
            } else {
                number.reverse_bits() >> (usize::BITS - bits)
            }
        })
        .filter(move |&place| place < count)
}

/// How many runs fit into `total` when each takes `each` and `workers` run at a time; at least one.
/// The limit of a plan follows from it.
pub fn runs_within(total: Duration, each: Duration, workers: usize) -> usize {
    let each = each.as_nanos().max(1);
    let runs = (total.as_nanos() / each).saturating_mul(workers.max(1) as u128);
    usize::try_from(runs).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreading_visits_each_place_once_and_far_apart_first() {
        assert_eq!(spread(8).collect::<Vec<_>>(), [0, 4, 2, 6, 1, 5, 3, 7]);
        for count in 0..70 {
            let mut places: Vec<usize> = spread(count).collect();
            places.sort_unstable();
            assert_eq!(places, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_budget_of_time_is_a_number_of_runs() {
        let ms = Duration::from_millis;
        assert_eq!(runs_within(ms(1000), ms(5), 2), 400);
        assert_eq!(runs_within(ms(1), ms(5), 2), 1);
        assert_eq!(runs_within(ms(1), Duration::ZERO, 0), 1_000_000);
    }
}
