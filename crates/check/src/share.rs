//! Shares of a crash test: which of its items are in a share.
//!
//! Items come in the order of the trace, and a share is a part of that order, so that neighbours, which have much in
//! common, are in one share. The shares of a run are disjoint, together they are everything, and they cost about the same.
//! Items of one moment are in one share.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_config::Partition;
use powerfail_model::EventIndex;

/// Which of some items with these costs are in a share, in their order.
pub(crate) fn own_items(partition: Partition, costs: &[u64]) -> Vec<bool> {
    let total: u128 = costs.iter().map(|cost| u128::from(*cost)).sum();
    let mut before: u128 = 0;
    let share = |cost: &u64| {
        let cost = u128::from(*cost);
        // An item belongs where its middle is.
        let middle = 2 * before + cost;
        before += cost;
        let share = middle * u128::from(partition.of()) / (2 * total).max(1);
        share.min(u128::from(partition.of() - 1)) + 1 == u128::from(partition.number())
    };
    costs.iter().map(share).collect()
}

/// The moments in a share. What is tried at a moment has a cost; a moment can come several times.
pub(crate) fn own_moments(
    partition: Partition,
    costs: impl Iterator<Item = (EventIndex, u64)>,
) -> BTreeSet<EventIndex> {
    let mut by_moment: BTreeMap<EventIndex, u64> = BTreeMap::new();
    for (at, cost) in costs {
        *by_moment.entry(at).or_default() += cost;
    }
    let costs: Vec<u64> = by_moment.values().copied().collect();
    let own = own_items(partition, &costs);
    let moments = by_moment.into_keys().zip(own);
    moments
        .filter_map(|(at, is_own)| is_own.then_some(at))
        .collect()
}

#[cfg(test)]
mod tests {
    use powerfail_config::Partition;
    use powerfail_model::EventIndex;
    use proptest::prelude::*;

    use super::{own_items, own_moments};

    proptest! {
        #[test]
        fn shares_are_disjoint_and_complete_and_in_order(
            costs in proptest::collection::vec(0_u64..1000, 0..200),
            of in 1_u64..20,
        ) {
            let mut owners = vec![0; costs.len()];
            for number in 1..=of {
                let own = own_items(Partition::new(number, of).unwrap(), &costs);
                for (owner, is_own) in owners.iter_mut().zip(own) {
                    if is_own {
                        prop_assert_eq!(*owner, 0);
                        *owner = number;
                    }
                }
            }
            prop_assert!(owners.iter().all(|owner| *owner > 0));
            prop_assert!(owners.is_sorted());
            // No share costs more than its part and one item.
            let total: u64 = costs.iter().sum();
            let largest = costs.iter().max().copied().unwrap_or(0);
            for number in 1..=of {
                let own = owners.iter().zip(&costs).filter(|(owner, _)| **owner == number);
                let cost: u64 = own.map(|(_, cost)| *cost).sum();
                prop_assert!(cost <= total / of + 1 + largest, "{} of {}", cost, total);
            }
        }
    }

    #[test]
    fn a_moment_is_in_one_share() {
        let moments = [7_u64, 3, 3, 3, 9, 7].map(|at| (EventIndex(at), 1));
        let first = own_moments(Partition::new(1, 2).unwrap(), moments.into_iter());
        let second = own_moments(Partition::new(2, 2).unwrap(), moments.into_iter());
        assert_eq!(first.into_iter().collect::<Vec<_>>(), [EventIndex(3)]);
        assert_eq!(
            second.into_iter().collect::<Vec<_>>(),
            [EventIndex(7), EventIndex(9)]
        );
    }
}
