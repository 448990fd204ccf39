//! The failure points that are kept of one call stack: the first, the last and a few in between.
//!
//! Those in between are chosen by reservoir sampling (Vitter's algorithm R): after any number of
//! points each of them was kept with the same probability, in constant memory.

use powerfail_protocol::random::Random;

use crate::point::FailurePoint;

/// The failure points kept of one call stack.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    /// How many there were.
    pub(crate) occurrences: u64,
    pub(crate) first: FailurePoint,
    /// The newest one, if it is not the first.
    pub(crate) last: Option<FailurePoint>,
    /// Some of those between the first and the last.
    pub(crate) between: Vec<FailurePoint>,
    random: Random,
}

impl Samples {
    pub(crate) const fn new(first: FailurePoint, random: Random) -> Self {
        Self {
            occurrences: 1,
            first,
            last: None,
            between: Vec::new(),
            random,
        }
    }

    /// Adds the next point. `per_stack` is how many to keep in all; zero keeps all of them.
    pub(crate) fn push(&mut self, mut point: FailurePoint, per_stack: usize) {
        point.occurrence = self.occurrences;
        self.occurrences += 1;
        if per_stack == 1 {
            return;
        }
        let Some(passed) = self.last.replace(point) else {
            return;
        };
        if per_stack == 0 {
            self.between.push(passed);
            return;
        }
        let room = per_stack - 2;
        if self.between.len() < room {
            self.between.push(passed);
        } else if room > 0 {
            // `passed` is the point number `occurrence` after the first, counted from one.
            let place = self.random.below(passed.occurrence);
            if let Some(kept) = self.between.get_mut(place as usize) {
                *kept = passed;
            }
        }
    }

    /// All that are kept, the most telling first.
    pub(crate) fn into_points(self) -> Vec<FailurePoint> {
        let mut points = vec![self.first];
        points.extend(self.last);
        points.extend(self.between);
        points
    }
}

#[cfg(test)]
mod tests {
    use powerfail_model::{EventIndex, ThreadIndex};
    use powerfail_trace::StackId;

    use super::*;
    use crate::point::Trigger;

    fn point(at: u64) -> FailurePoint {
        FailurePoint {
            at: EventIndex(at),
            stack: StackId(1),
            thread: ThreadIndex(0),
            trigger: Trigger::Flush,
            occurrence: 0,
            digest: None,
        }
    }

    fn kept(count: u64, per_stack: usize, seed: u64) -> Vec<u64> {
        let mut samples = Samples::new(point(0), Random::new(seed));
        for at in 1..count {
            samples.push(point(at), per_stack);
        }
        assert_eq!(samples.occurrences, count);
        let points = samples.into_points();
        assert!(points.iter().all(|point| point.occurrence == point.at.0));
        points.iter().map(|point| point.at.0).collect()
    }

    #[test]
    fn first_last_and_some_between() {
        assert_eq!(kept(100, 1, 0), [0]);
        assert_eq!(kept(100, 2, 0), [0, 99]);
        assert_eq!(kept(1, 3, 0), [0]);
        assert_eq!(kept(2, 3, 0), [0, 1]);
        assert_eq!(kept(3, 3, 0), [0, 2, 1]);
        assert_eq!(kept(100, 3, 0).len(), 3);
        assert_eq!(kept(5, 0, 0), [0, 4, 1, 2, 3]);
    }

    #[test]
    fn every_point_between_is_equally_likely() {
        let mut counts = [0_u32; 10];
        for seed in 0..8000 {
            counts[kept(10, 3, seed)[2] as usize] += 1;
        }
        assert_eq!((counts[0], counts[9]), (0, 0));
        // 1000 expected each, with a standard deviation of 30.
        assert!(
            counts[1..9].iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
    }
}
