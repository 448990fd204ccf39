//! The random decisions of the scheduler of the threads of a target. The same seed gives the same decisions in every
//! process.

use crate::random::Random;

/// How the threads of each process are scheduled at their operations on pools: by priorities that are
/// drawn at random, and lowered at a few moments that are drawn at random.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The number of priority changes plus one. 0: threads are not scheduled.
    pub depth: u32,
    /// The seed of all random decisions.
    pub seed: u64,
    /// The expected number of operations, among which the moments are drawn. 0: unknown.
    pub length: u64,
}

impl Schedule {
    /// The greatest depth.
    pub const DEPTH_MAX: u32 = 32;

    /// The priority with which a thread begins. Those of two threads differ, except with a
    /// probability of 2^-62.
    pub const fn first_priority(&self, thread: u32) -> i64 {
        let drawn = draw(self.seed ^ draw(1 << 32 | thread as u64));
        (drawn >> 2).cast_signed() + Self::DEPTH_MAX as i64
    }

    /// If the thread that makes the operation with this number, from 1, falls behind: its new priority,
    /// which is below all with which threads begin.
    pub fn lowered_at(&self, operation: u64) -> Option<i64> {
        let moments = 1..self.depth.min(Self::DEPTH_MAX);
        let number = moments.into_iter().find(|it| self.moment(*it) == operation);
        number.map(i64::from)
    }

    /// One of the moments of change, by its number.
    const fn moment(&self, number: u32) -> u64 {
        /// If the number of operations is not known, every order of magnitude has the same chance.
        const MAGNITUDES: u64 = 20;
        let drawn = draw(self.seed ^ draw(number as u64));
        let length = match self.length {
            0 => 2 << (draw(drawn) % MAGNITUDES),
            length => length,
        };
        1 + ((drawn as u128 * length as u128) >> 64) as u64
    }
}

/// The number that is drawn for a word.
const fn draw(word: u64) -> u64 {
    Random::new(word).word()
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    fn schedule(seed: u64, length: u64) -> Schedule {
        Schedule {
            depth: 3,
            seed,
            length,
        }
    }

    #[test]
    fn every_operation_can_be_a_moment_of_change() {
        const LENGTH: u64 = 10;
        let mut seen = [0; LENGTH as usize + 2];
        for seed in 0..1000 {
            let schedule = schedule(seed, LENGTH);
            for operation in 0..=LENGTH + 1 {
                seen[operation as usize] += u32::from(schedule.lowered_at(operation).is_some());
            }
        }
        assert_eq!((seen[0], seen[LENGTH as usize + 1]), (0, 0));
        // Two moments in ten operations, a thousand times.
        assert!(
            seen[1..=LENGTH as usize]
                .iter()
                .all(|count| (140..260).contains(count)),
            "{seen:?}"
        );
    }

    #[test]
    fn without_a_length_small_moments_are_as_likely_as_large_ones() {
        let small = |seed: &u64| schedule(*seed, 0).moment(1) <= 1 << 10;
        let count = (0..1000).filter(small).count();
        assert!((400..650).contains(&count), "{count}");
    }

    #[test]
    fn a_lowered_priority_is_below_all_initial_ones() {
        let schedule = schedule(7, 3);
        let lowered = (1..=3).filter_map(|operation| schedule.lowered_at(operation));
        let lowest = (0..100).map(|thread| schedule.first_priority(thread)).min();
        assert!(lowered.max() < lowest);
    }

    #[test]
    fn the_first_thread_is_no_better_than_the_second() {
        let first = |seed: &u64| {
            let schedule = schedule(*seed, 0);
            schedule.first_priority(0) > schedule.first_priority(1)
        };
        let count = (0..1000).filter(first).count();
        assert!((400..600).contains(&count), "{count}");
    }
}
