//! Which line of the user's is to blame for a useless call.
//!
//! Programs wrap flushes and fences in functions of their own, and compilers copy them: into their callers, and for the
//! rounds of a loop. So the unit is the line of code, not the instruction. Where a line is useless each time it is
//! executed, it is to blame itself. Where it is useless only sometimes and its callers differ in that, it does what they
//! ask for: then those callers are to blame. A line with a single calling line, as in a function that wraps one
//! instruction, is one with that line.

use powerfail_trace::StackId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attribution::{Attribution, CodeKey, Position};
use crate::tally::{Calls, Seen, Uses};

/// How far from the innermost line of the user's a culprit may be.
const MAX_DEPTH: u32 = 3;

/// A useless call, to be reported once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Culprit {
    /// Where it was useless first; its user is the frame to blame.
    pub(crate) first: Seen,
    /// The line of that frame to blame; see [`Position`].
    pub(crate) inlined: u32,
    /// The line calls a function of the user's that does it.
    pub(crate) is_caller: bool,
    pub(crate) key: CodeKey,
    pub(crate) useless: u64,
    pub(crate) all: u64,
}

impl Culprit {
    /// Whether it was useless each time.
    pub(crate) const fn is_always_useless(&self) -> bool {
        self.useless == self.all
    }

    /// Whether it was useless at least every second time, so that a condition pays off.
    pub(crate) const fn is_mostly_useless(&self) -> bool {
        self.useless >= self.all - self.useless
    }
}

/// A call, seen from a line some way up its stack.
#[derive(Clone, Copy)]
struct Call {
    at: Position,
    key: CodeKey,
    uses: Uses,
}

/// The culprits, in no particular order.
pub(crate) fn culprits(calls: &Calls, users: &mut Attribution<'_>) -> Vec<Culprit> {
    let calls = calls.0.iter().map(|(&node, &uses)| {
        let (at, key) = users.code_at(Position::of(node, uses.is_site));
        Call { at, key, uses }
    });
    let mut culprits = Vec::new();
    for group in by_key(calls.collect()) {
        blame(&group, 0, users, &mut culprits);
    }
    culprits
}

fn blame(group: &[Call], depth: u32, users: &mut Attribution<'_>, culprits: &mut Vec<Culprit>) {
    if is_pure(group) || depth == MAX_DEPTH {
        culprits.extend(culprit(group, depth));
        return;
    }
    let mut outer = group.to_vec();
    for further in depth + 1..=MAX_DEPTH {
        let mut callers = Vec::with_capacity(outer.len());
        for call in &outer {
            let Some((at, key)) = users.code_outside(call.at) else {
                culprits.extend(culprit(group, depth));
                return;
            };
            callers.push(Call { at, key, ..*call });
        }
        let mut groups = by_key(callers);
        if groups.iter().any(|group| is_pure(group)) {
            for group in &groups {
                blame(group, further, users, culprits);
            }
            return;
        }
        match groups.pop() {
            Some(only) if groups.is_empty() => outer = only,
            _ => break,
        }
    }
    culprits.extend(culprit(group, depth));
}

/// The lines of code, and those that call them, in which these calls are.
pub(crate) fn lines_with(
    calls: &FxHashMap<StackId, bool>,
    users: &mut Attribution<'_>,
) -> FxHashSet<CodeKey> {
    let mut keys = FxHashSet::default();
    for (&node, &is_site) in calls {
        let mut next = Some(users.code_at(Position::of(node, is_site)));
        for _ in 0..=MAX_DEPTH {
            let Some((at, key)) = next else { break };
            keys.insert(key);
            next = users.code_outside(at);
        }
    }
    keys
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

fn culprit(group: &[Call], depth: u32) -> Option<Culprit> {
    let (useless, all) = sums(group);
    let firsts = group.iter().filter_map(|call| {
        let first = call.uses.first?;
        let user = call.at.node;
        Some((Seen { user, ..first }, call.at.inlined, call.key))
    });
    let (first, inlined, key) = firsts.min_by_key(|(first, inlined, _)| (*first, *inlined))?;
    Some(Culprit {
        first,
        inlined,
        is_caller: depth > 0,
        key,
        useless,
        all,
    })
}

fn by_key(calls: Vec<Call>) -> Vec<Vec<Call>> {
    let mut groups: FxHashMap<CodeKey, Vec<Call>> = FxHashMap::default();
    for call in calls {
        groups.entry(call.key).or_default().push(call);
    }
    groups.into_values().collect()
}
