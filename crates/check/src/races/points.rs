//! When the power fails.

use powerfail_explore::{FailurePoint, FailurePointTree, Plan, PlanOptions, TreeOptions};
use powerfail_model::{EventIndex, Rules};
use powerfail_trace::Trace;

use crate::error::CheckError;
use crate::lazy::rounds;

/// Failure points, the most valuable first.
pub(super) struct Points {
    pub(super) ranked: Vec<FailurePoint>,
    pub(super) stacks: usize,
    in_creation: u64,
}

/// The failure points of a trace, or one of them.
pub(super) fn of(
    trace: &Trace,
    rules: Rules,
    tree: TreeOptions,
    only: Option<EventIndex>,
) -> Result<Points, CheckError> {
    let options = TreeOptions {
        per_stack: 0,
        ..tree
    };
    let tree = FailurePointTree::covering(trace, rules, options)?;
    let plan = Plan::of(
        &tree,
        PlanOptions {
            limit: None,
            keep_equal_images: true,
        },
    );
    let mut planned = plan.points;
    planned.sort_unstable_by_key(|planned| planned.rank);
    let mut ranked: Vec<FailurePoint> = planned.into_iter().map(|it| it.point).collect();
    if let Some(only) = only {
        ranked.retain(|point| point.at == only);
    }
    Ok(Points {
        ranked,
        stacks: tree.stacks().len(),
        in_creation: plan.left_out.in_creation,
    })
}

impl Points {
    /// When the power fails.
    pub(super) fn moments(&self) -> impl Iterator<Item = EventIndex> {
        self.ranked.iter().map(|point| point.at)
    }

    /// Rounds, each in the order of the trace: everything at once if there is time for all, else call stacks
    /// first once, then more and more.
    pub(super) fn rounds(&self, is_bounded: bool) -> Vec<Vec<FailurePoint>> {
        rounds(&self.ranked, is_bounded.then_some(self.stacks))
    }

    /// What is left out.
    pub(super) fn note(&self) -> Option<String> {
        (self.in_creation > 0).then(|| {
            format!(
                "{} failure points while PMDK creates a pool are left out; --include-create tries them",
                self.in_creation
            )
        })
    }
}
