//! The favoured test cases: a small set that reaches everything, with the cheapest at each location.

use std::sync::Arc;

use crate::coverage::Footprint;

/// No test case reaches this location.
const NONE: u32 = u32::MAX;

/// The favoured test cases.
#[derive(Debug, Default)]
pub(crate) struct Favoured {
    footprints: Vec<Arc<Footprint>>,
    costs: Vec<u64>,
    /// The cheapest at each location, by location.
    cheapest: Vec<u32>,
    chosen: Vec<usize>,
    changed: bool,
}

impl Favoured {
    pub(crate) fn len(&self) -> usize {
        self.chosen.len()
    }

    /// Adds the test case with the next number.
    pub(crate) fn add(&mut self, number: usize, footprint: &Arc<Footprint>, cost: u64) {
        debug_assert_eq!(number, self.footprints.len());
        self.footprints.push(Arc::clone(footprint));
        self.costs.push(cost);
        for location in locations(footprint) {
            if location >= self.cheapest.len() {
                self.cheapest.resize(location + 1, NONE);
            }
            let cheapest = &mut self.cheapest[location];
            if *cheapest == NONE || cost < self.costs[*cheapest as usize] {
                *cheapest = number as u32;
                self.changed = true;
            }
        }
    }

    /// Chooses again if something has changed; returns the test cases that are no longer favoured and those that are now.
    pub(crate) fn choose(&mut self) -> Option<(Vec<usize>, Vec<usize>)> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let mut covered = vec![false; self.cheapest.len()];
        let mut chosen = Vec::new();
        for (location, &who) in self.cheapest.iter().enumerate() {
            if who != NONE && !covered[location] {
                locations(&self.footprints[who as usize])
                    .for_each(|location| covered[location] = true);
                chosen.push(who as usize);
            }
        }
        chosen.sort_unstable();
        let without = |list: &[usize], other: &[usize]| {
            list.iter()
                .copied()
                .filter(|who| other.binary_search(who).is_err())
                .collect()
        };
        let difference = (
            without(&self.chosen, &chosen),
            without(&chosen, &self.chosen),
        );
        self.chosen = chosen;
        Some(difference)
    }
}

/// Even numbers are PM path locations, odd ones branches.
fn locations(footprint: &Footprint) -> impl Iterator<Item = usize> {
    let pm = footprint
        .pm
        .iter()
        .map(|touched| 2 * touched.location as usize);
    pm.chain(
        footprint
            .branches
            .iter()
            .map(|touched| 2 * touched.location as usize + 1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::Touched;

    fn footprint(locations: &[u32]) -> Arc<Footprint> {
        let pm = locations
            .iter()
            .map(|&location| Touched {
                location,
                bucket: 1,
            })
            .collect();
        Arc::new(Footprint {
            pm,
            branches: Vec::new(),
        })
    }

    #[test]
    fn the_cheapest_that_touch_everything() {
        let mut favoured = Favoured::default();
        favoured.add(0, &footprint(&[1, 2, 3]), 100);
        assert_eq!(favoured.choose(), Some((vec![], vec![0])));
        assert_eq!(favoured.choose(), None);
        favoured.add(1, &footprint(&[1, 2]), 10);
        favoured.add(2, &footprint(&[2]), 50);
        // 3 is reached by the first only, which then covers nothing else that is missing.
        assert_eq!(favoured.choose(), Some((vec![], vec![1])));
        favoured.add(3, &footprint(&[1, 2, 3]), 1);
        assert_eq!(favoured.choose(), Some((vec![0, 1], vec![3])));
    }
}
