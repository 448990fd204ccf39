//! The order of what the target records: stamps of the clock that host and targets share, and how they relate to time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A stamp of the clock ([`powerfail_protocol::clock`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(pub(crate) u64);

impl Stamp {
    /// After every moment.
    pub(crate) const MAX: Self = Self(u64::MAX);
}

/// Stamps that the host has taken, and when.
#[derive(Debug)]
pub(crate) struct TakenStamps {
    slack: Duration,
    /// Oldest first. The first one is older than the slack, if there is one that is.
    taken: VecDeque<(Instant, Stamp)>,
}

impl TakenStamps {
    /// No two stamps that are kept are closer to each other.
    const DISTANCE: Duration = Duration::from_millis(1);

    pub(crate) const fn new(slack: Duration) -> Self {
        Self {
            slack,
            taken: VecDeque::new(),
        }
    }

    /// Adds the stamp that was taken now. Gives one that was taken longer ago than the slack.
    pub(crate) fn add(&mut self, stamp: Stamp, now: Instant) -> Stamp {
        let is_far = |(then, _): &(Instant, Stamp)| now.duration_since(*then) >= Self::DISTANCE;
        if self.taken.back().is_none_or(is_far) {
            self.taken.push_back((now, stamp));
        }
        let is_old = |(then, _): &(Instant, Stamp)| now.duration_since(*then) > self.slack;
        while self.taken.get(1).is_some_and(is_old) {
            self.taken.pop_front();
        }
        let oldest = self.taken.front().filter(|oldest| is_old(oldest));
        oldest.map_or(Stamp(0), |(_, stamp)| *stamp)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Stamp, TakenStamps};

    #[test]
    fn a_stamp_is_given_when_it_is_older_than_the_slack() {
        let begin = Instant::now();
        let mut stamps = TakenStamps::new(Duration::from_millis(50));
        let mut add = |ms, stamp| stamps.add(Stamp(stamp), begin + Duration::from_millis(ms));
        assert_eq!(add(0, 5), Stamp(0));
        assert_eq!(add(50, 6), Stamp(0));
        assert_eq!(add(51, 7), Stamp(5));
        assert_eq!(add(100, 8), Stamp(5));
        assert_eq!(add(101, 9), Stamp(6));
        assert_eq!(add(300, 10), Stamp(9));
    }

    #[test]
    fn few_stamps_are_kept() {
        let begin = Instant::now();
        let mut stamps = TakenStamps::new(Duration::from_millis(50));
        for number in 0..100_000 {
            stamps.add(Stamp(number), begin + Duration::from_micros(10 * number));
            assert!(stamps.taken.len() <= 53, "{}", stamps.taken.len());
        }
    }
}
