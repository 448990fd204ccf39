//! Which line of the user's is to blame for a useless call.
//!
//! Programs wrap flushes and fences in functions of their own. Where a place in the code is useless
//! each time it is executed, it is to blame itself. Where it is useless only sometimes and its callers
//! differ in that, it does what they ask for: then those callers are to blame.

use powerfail_trace::{Frame, StackId, Trace};
use rustc_hash::FxHashMap;

use crate::attribution::Attribution;
use crate::tally::{Calls, Seen, Uses};

/// How far from the innermost frame of the user's a culprit may be.
const MAX_DEPTH: u32 = 3;

/// A useless call, to be reported once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Culprit {
    /// Where it was useless first; its user is the frame to blame.
    pub(crate) first: Seen,
    pub(crate) useless: u64,
    pub(crate) all: u64,
}

/// A call, seen from a frame some way up its stack.
#[derive(Clone, Copy)]
struct Call {
    node: StackId,
    uses: Uses,
}

/// The culprits, in no particular order.
pub(crate) fn culprits(calls: &Calls, users: &Attribution<'_>, trace: &Trace) -> Vec<Culprit> {
    let calls = calls.0.iter();
    let calls = calls.map(|(&node, &uses)| Call { node, uses }).collect();
    let mut culprits = Vec::new();
    for group in by_frame(calls, trace) {
        blame(&group, 0, users, trace, &mut culprits);
    }
    culprits
}

fn blame(
    group: &[Call],
    depth: u32,
    users: &Attribution<'_>,
    trace: &Trace,
    culprits: &mut Vec<Culprit>,
) {
    if is_pure(group) || depth == MAX_DEPTH {
        culprits.extend(culprit(group));
        return;
    }
    let mut callers = Vec::with_capacity(group.len());
    for call in group {
        let caller = trace.stack_node(call.node).map(|node| node.caller);
        match caller {
            Some(node) if users.is_user(node) => callers.push(Call { node, ..*call }),
            _ => {
                culprits.extend(culprit(group));
                return;
            }
        }
    }
    let groups = by_frame(callers, trace);
    if groups.iter().any(|group| is_pure(group)) {
        for group in &groups {
            blame(group, depth + 1, users, trace, culprits);
        }
    } else {
        culprits.extend(culprit(group));
    }
}

/// Whether all calls were useless, or none.
fn is_pure(group: &[Call]) -> bool {
    let (useless, all) = sums(group);
    useless == 0 || useless == all
}

fn sums(group: &[Call]) -> (u64, u64) {
    group.iter().fold((0, 0), |(useless, all), call| {
        (useless + call.uses.useless, all + call.uses.all)
    })
}

fn culprit(group: &[Call]) -> Option<Culprit> {
    let (useless, all) = sums(group);
    let firsts = group.iter().filter_map(|call| {
        let first = call.uses.first?;
        Some(Seen {
            user: call.node,
            ..first
        })
    });
    Some(Culprit {
        first: firsts.min()?,
        useless,
        all,
    })
}

fn by_frame(calls: Vec<Call>, trace: &Trace) -> Vec<Vec<Call>> {
    let mut groups: FxHashMap<Option<Frame>, Vec<Call>> = FxHashMap::default();
    for call in calls {
        let frame = trace.stack_node(call.node).map(|node| node.frame);
        groups.entry(frame).or_default().push(call);
    }
    groups.into_values().collect()
}
