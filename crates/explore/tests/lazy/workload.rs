//! The recorded run: its frontier at failure points.

use powerfail_model::{
    EventIndex, FailurePoints, Frontier, Image, PoolIndex, Rules, SparseImage, Step, ThreadIndex,
};

use crate::machine::{Effect, place};

/// A recorded run: effects with their threads.
pub(crate) type Workload = Vec<(u32, Effect)>;

pub(crate) fn step((index, (thread, effect)): (usize, &(u32, Effect))) -> Step<'_> {
    Step {
        index: EventIndex(index as u64),
        thread: ThreadIndex(*thread),
        event: effect.event(),
    }
}

/// Shows the frontier at every failure point, with its position.
pub(crate) fn at_failure_points(
    rules: Rules,
    workload: &Workload,
    mut visit: impl FnMut(usize, &Frontier),
) {
    let mut frontier = Frontier::new(rules, SparseImage::new());
    for (index, entry) in workload.iter().enumerate() {
        let step = step((index, entry));
        if frontier.is_failure_point(FailurePoints::Covering, &step) {
            visit(index, &frontier);
        }
        frontier.apply(&step);
    }
    if frontier.is_failure_point_at_end(FailurePoints::Covering) {
        visit(workload.len(), &frontier);
    }
}

/// The frontier after the first events.
pub(crate) fn frontier_at(rules: Rules, workload: &[(u32, Effect)]) -> Frontier {
    let mut frontier = Frontier::new(rules, SparseImage::new());
    for entry in workload.iter().enumerate() {
        frontier.apply(&step(entry));
    }
    frontier
}

/// The first bytes of the pool, with the newest content.
pub(crate) fn newest(frontier: &Frontier, len: usize) -> Vec<u8> {
    let mut pool = vec![0; len];
    frontier.newest().read(place(0), &mut pool);
    pool
}

/// An image with these bytes in the pool.
pub(crate) fn image_of(pool: &[u8]) -> SparseImage {
    let mut image = SparseImage::new();
    image.write(place(0), pool);
    assert_eq!(place(0).pool, PoolIndex(0));
    image
}
