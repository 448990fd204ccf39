//! What waits for a checker, the most promising first.

use std::cmp::Ordering;
use std::path::PathBuf;
use std::time::Duration;

use powerfail_check::Recovery;
use powerfail_explore::PointKey;
use powerfail_fuzz_engine::End;
use powerfail_fuzz_store::{CaseNumber, Priority, TestCase};

use crate::findings::StoredFinding;
use crate::messages::Received;

/// Something to be done.
#[derive(Debug)]
pub(crate) enum Job {
    /// A new test case: it is recorded and linted, and gives images.
    Record { number: CaseNumber, case: TestCase },
    /// Its trace waits for crashes.
    Crash {
        number: CaseNumber,
        case: TestCase,
        trace: PathBuf,
        /// Names of moments that no test case before it had.
        moments: Vec<PointKey>,
    },
    /// An execution has failed. `None`: recovery gave up without a signal.
    Blame {
        /// Its number in the queue, if it is there.
        number: Option<CaseNumber>,
        case: TestCase,
        end: Option<End>,
    },
    /// A test case of another machine.
    Import(Received),
    /// A finding wants a smaller test case.
    Minimise {
        stored: Box<StoredFinding>,
        case: TestCase,
        recovery: Box<Recovery>,
        recovery_input: Option<Vec<u8>>,
    },
}

/// What a checker divides its time between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What is new is looked at.
    TakeIn,
    /// The power fails.
    Crash,
    /// Findings get smaller.
    Minimise,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::TakeIn, Self::Crash, Self::Minimise];

    /// Its part of the time, if all kinds wait: a finding is known before it is small.
    const fn share(self) -> u32 {
        match self {
            Self::TakeIn | Self::Crash => 4,
            Self::Minimise => 1,
        }
    }
}

/// How the time of a checker was spent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shares([Duration; 3]);

impl Shares {
    /// The kinds, the one first that has had least of what is due to it.
    pub(crate) fn order(&self) -> [Kind; 3] {
        let mut kinds = Kind::ALL;
        kinds.sort_by_key(|kind| self.0[*kind as usize] / kind.share());
        kinds
    }

    /// Notes what was done. What had nothing to do meanwhile does not save its time up.
    pub(crate) fn spend(&mut self, kind: Kind, time: Duration, idle: &[Kind]) {
        self.0[kind as usize] += time;
        let due = self.0[kind as usize] / kind.share();
        for kind in idle {
            let spent = &mut self.0[*kind as usize];
            *spent = (*spent).max(due * kind.share());
        }
    }
}

impl Job {
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Blame { .. } | Self::Record { .. } | Self::Import(_) => Kind::TakeIn,
            Self::Crash { .. } => Kind::Crash,
            Self::Minimise { .. } => Kind::Minimise,
        }
    }

    /// What comes first, whatever it promises.
    const fn urgency(&self) -> u8 {
        match self {
            Self::Blame { .. } => 1,
            _ => 0,
        }
    }
}

/// A job in its queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) job: Job,
    rank: (u64, u8, u64),
}

impl Waiting {
    /// `news` is how many locations are new, `number` how many waited before.
    pub(crate) fn new(job: Job, priority: Priority, news: u64, number: u64) -> Self {
        let priority = match priority {
            Priority::Low => 0,
            Priority::Medium => 1,
            Priority::High => 2,
        };
        let rank = (
            priority * 1000 + news.min(900),
            job.urgency(),
            u64::MAX - number,
        );
        Self { job, rank }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BinaryHeap;

    use powerfail_fuzz_store::{CaseNumber, Images, Priority, TestCase};

    use super::{Job, Kind, Shares, Waiting};

    #[test]
    fn time_is_divided_and_idle_kinds_save_none_up() {
        let second = std::time::Duration::from_secs(1);
        let mut shares = Shares::default();
        let mut spent = [0; 3];
        for _ in 0..90 {
            let kind = shares.order()[0];
            spent[kind as usize] += 1;
            shares.spend(kind, second, &[]);
        }
        assert_eq!(spent, [40, 40, 10]);
        // Crashes have nothing to do for long, and then do not get all of the time.
        shares.spend(Kind::TakeIn, 1000 * second, &[Kind::Crash]);
        shares.spend(Kind::Minimise, 250 * second, &[]);
        shares.spend(Kind::Crash, second, &[]);
        assert_ne!(shares.order()[0], Kind::Crash);
    }

    #[test]
    fn the_most_promising_comes_first_and_then_the_oldest() {
        let record = |number| Job::Record {
            number: CaseNumber(number),
            case: TestCase {
                image: Images::empty(),
                input: Vec::new(),
            },
        };
        let mut heap: BinaryHeap<Waiting> = [
            (record(1), Priority::Low, 0),
            (record(2), Priority::Medium, 0),
            (record(3), Priority::Medium, 0),
            (record(4), Priority::High, 2),
            (record(5), Priority::High, 7),
        ]
        .into_iter()
        .zip(0..)
        .map(|((job, priority, news), number)| Waiting::new(job, priority, news, number))
        .collect();
        let mut order = Vec::new();
        while let Some(Waiting {
            job: Job::Record { number, .. },
            ..
        }) = heap.pop()
        {
            order.push(number.0);
        }
        assert_eq!(order, [5, 4, 2, 3, 1]);
    }
}
