//! What waits for a checker, the most promising first.

use std::cmp::Ordering;
use std::path::PathBuf;

use powerfail_corpus::{CaseNumber, Priority, TestCase};
use powerfail_evidence::Recovery;
use powerfail_explore::PointKey;
use powerfail_fuzz::End;

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

impl Job {
    /// What comes first, whatever it promises.
    const fn urgency(&self) -> u8 {
        match self {
            Self::Blame { .. } => 3,
            Self::Record { .. } | Self::Import(_) => 2,
            Self::Crash { .. } => 1,
            Self::Minimise { .. } => 0,
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

    use powerfail_corpus::{CaseNumber, Images, Priority, TestCase};

    use super::{Job, Waiting};

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
