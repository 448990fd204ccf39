//! Representatives first: of many crash states, one of each kind before more of the same.
//!
//! The idea is Pathfinder's: crash states are grouped by update behaviour, that is, by which sites of
//! stores are lost and which are kept, at which call stack the power fails. States of one group are
//! most likely right or wrong together. Under a budget one state of each group runs first; what is
//! left of the budget goes to groups whose representative failed, because their other states may
//! show a nearer cause, and then to the largest groups.
//!
//! Everything is a function of the sequence of groups, so a second pass finds the same states again.

use rustc_hash::{FxHashMap, FxHashSet};

/// A kind of crash states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u64);

/// How many more states of a group that failed are worth their time, before others are.
const MORE_OF_FAILED: u64 = 4;

#[derive(Clone, Copy, Debug)]
struct Group {
    /// When it was first met.
    order: usize,
    size: u64,
    first: u64,
}

/// The groups of a sequence of states.
#[derive(Clone, Debug, Default)]
pub struct Representatives {
    groups: FxHashMap<GroupId, Group>,
    states: u64,
}

impl Representatives {
    /// The next state of the sequence.
    pub fn push(&mut self, group: GroupId) {
        let (order, first) = (self.groups.len(), self.states);
        let group = self.groups.entry(group).or_insert(Group {
            order,
            size: 0,
            first,
        });
        group.size += 1;
        self.states += 1;
    }

    /// How many groups there are.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// How many states there are.
    pub const fn state_count(&self) -> u64 {
        self.states
    }

    /// The numbers of the states to run first: one of each group, or of as many groups as there is
    /// room for, spread over the whole sequence.
    pub fn first(&self, limit: usize) -> FxHashSet<u64> {
        let mut firsts: Vec<u64> = self.groups.values().map(|group| group.first).collect();
        firsts.sort_unstable();
        let count = firsts.len();
        if count <= limit {
            return firsts.into_iter().collect();
        }
        (0..limit)
            .map(|place| firsts[place * count / limit])
            .collect()
    }

    /// The numbers of the states to run next, at most `limit`: `failed` are groups of which a state
    /// failed, `done` are the states that ran. Reads the sequence once more.
    pub fn more(
        &self,
        limit: usize,
        failed: &FxHashSet<GroupId>,
        done: &FxHashSet<u64>,
        sequence: impl IntoIterator<Item = GroupId>,
    ) -> FxHashSet<u64> {
        let mut chosen = FxHashSet::default();
        let quotas = self.quotas(limit as u64, failed);
        let mut met: FxHashMap<GroupId, u64> = FxHashMap::default();
        for (number, id) in (0_u64..).zip(sequence) {
            let (Some(group), Some(quota)) = (self.groups.get(&id), quotas.get(&id)) else {
                continue;
            };
            // Those after the first, evenly spread.
            let met = met.entry(id).or_default();
            let before = *met * quota / group.size.max(1);
            *met += 1;
            let after = *met * quota / group.size.max(1);
            if after > before && !done.contains(&number) {
                chosen.insert(number);
            }
        }
        chosen
    }

    /// How many more states each group gets.
    fn quotas(&self, limit: u64, failed: &FxHashSet<GroupId>) -> FxHashMap<GroupId, u64> {
        let mut left = limit;
        let mut quotas: FxHashMap<GroupId, u64> = FxHashMap::default();
        let mut groups: Vec<(&GroupId, &Group)> = self.groups.iter().collect();
        groups.sort_unstable_by_key(|(_, group)| group.order);
        for (id, group) in &groups {
            if failed.contains(id) {
                let quota = MORE_OF_FAILED.min(group.size).min(left);
                left -= quota;
                quotas.insert(**id, quota);
            }
        }
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.size));
        let all: u64 = groups.iter().map(|(_, group)| group.size).sum();
        let share = left;
        for (id, group) in groups {
            // In proportion to their sizes, the largest first.
            let wide = u128::from(share) * u128::from(group.size) / u128::from(all.max(1));
            let quota = u64::try_from(wide).unwrap_or(u64::MAX).max(1);
            let entry = quotas.entry(*id).or_default();
            let quota = quota.min(left).min(group.size - (*entry).min(group.size));
            *entry += quota;
            left -= quota;
        }
        quotas.retain(|_, quota| *quota > 0);
        quotas
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn groups(sequence: &[u64]) -> Representatives {
        let mut groups = Representatives::default();
        for id in sequence {
            groups.push(GroupId(*id));
        }
        groups
    }

    #[test]
    fn one_of_each_group_comes_first() {
        let groups = groups(&[7, 7, 8, 7, 9, 9]);
        assert_eq!(groups.group_count(), 3);
        let mut first: Vec<u64> = groups.first(10).into_iter().collect();
        first.sort_unstable();
        assert_eq!(first, [0, 2, 4]);
        assert_eq!(groups.first(2).len(), 2);
    }

    #[test]
    fn groups_that_failed_come_next() {
        let mut sequence = vec![1; 1000];
        sequence.extend([2; 10]);
        let groups = groups(&sequence);
        let failed = [GroupId(2)].into_iter().collect();
        let done = groups.first(2);
        let more = groups.more(4, &failed, &done, sequence.iter().map(|id| GroupId(*id)));
        assert!(!more.is_empty());
        assert!(more.iter().all(|number| *number >= 1000), "{more:?}");
    }

    proptest! {
        #[test]
        fn what_comes_next_is_within_the_limit_and_new(
            sequence in prop::collection::vec(0_u64..8, 1..300),
            failed in prop::collection::hash_set(0_u64..8, 0..4),
            limit in 1_usize..100,
        ) {
            let groups = groups(&sequence);
            let done = groups.first(limit);
            prop_assert_eq!(done.len(), limit.min(groups.group_count()));
            let failed = failed.into_iter().map(GroupId).collect();
            let ids = || sequence.iter().map(|id| GroupId(*id));
            let more = groups.more(limit, &failed, &done, ids());
            prop_assert!(more.len() <= limit);
            prop_assert!(more.is_disjoint(&done));
            prop_assert!(more.iter().all(|number| *number < sequence.len() as u64));
            prop_assert_eq!(more, groups.more(limit, &failed, &done, ids()));
        }
    }
}
