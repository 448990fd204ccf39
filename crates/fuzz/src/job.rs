//! The work of checkers: the jobs, their order, and how a checker divides its time between kinds of jobs.

use std::cmp::Ordering;
use std::path::PathBuf;
use std::time::Duration;

use powerfail_explore::PointKey;
use powerfail_fuzz_engine::End;
use powerfail_fuzz_store::{CaseNumber, Priority, Retirement, StoredFinding, TestCase};

use crate::machines::RemoteCase;
use crate::minimise_finding::Progress;

/// What a checker does next.
#[derive(Debug)]
pub(crate) enum Job {
    /// Record a new test case, lint its trace, and make images from it.
    Record { number: CaseNumber, case: TestCase },
    /// Try power failures in the trace of a test case.
    Crash {
        number: CaseNumber,
        case: TestCase,
        trace: PathBuf,
        /// Names of moments that no earlier test case had.
        moments: Vec<PointKey>,
    },
    /// Find out why an execution failed.
    Explain {
        /// The number of the test case, if it is in the queue.
        number: Option<CaseNumber>,
        case: TestCase,
        failure: ExecutionFailure,
    },
    /// Import a test case of another machine.
    Import(RemoteCase),
    /// Look for a smaller test case that shows a finding.
    Minimise {
        stored: Box<StoredFinding>,
        /// What was tried before.
        progress: Box<Progress>,
    },
}

/// How an execution failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecutionFailure {
    /// A signal ended it. The signal is unknown if a campaign of format 1 has stored the test case.
    Signal(Option<i32>),
    /// It timed out.
    Timeout,
    /// The target gave up on the image before it read its input.
    GaveUp,
}

impl ExecutionFailure {
    /// `None` if the execution did not fail, or if it failed because it wrote a longer file than powerfail allows.
    pub(crate) const fn of_end(end: End) -> Option<Self> {
        match end {
            End::Exit(_) | End::Signal(libc::SIGXFSZ) => None,
            End::Signal(signal) => Some(Self::Signal(Some(signal))),
            End::Timeout => Some(Self::Timeout),
        }
    }

    /// The failure for which a test case was retired, if that is why.
    pub(crate) const fn of_retirement(because: &Retirement) -> Option<Self> {
        match because {
            Retirement::Hangs => Some(Self::Timeout),
            Retirement::Crashes { signal: None } => Some(Self::Signal(None)),
            Retirement::Crashes {
                signal: Some(signal),
            } => Self::of_end(End::Signal(*signal)),
            Retirement::Redundant | Retirement::Shortened { .. } | Retirement::Other(_) => None,
        }
    }
}

/// The kinds of jobs that a checker divides its time between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// New test cases and failures are recorded.
    TakeIn,
    /// Power failures are tried.
    Crash,
    /// Test cases of findings are minimised.
    Minimise,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::TakeIn, Self::Crash, Self::Minimise];

    /// Its share of the time if jobs of all kinds wait. Finding something comes before minimising it.
    const fn share(self) -> u32 {
        match self {
            Self::TakeIn | Self::Crash => 4,
            Self::Minimise => 1,
        }
    }
}

/// How a checker has spent its time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shares([Duration; 3]);

impl Shares {
    /// The kinds, the one first that has received the least of its share.
    pub(crate) fn order(&self) -> [Kind; 3] {
        let mut kinds = Kind::ALL;
        kinds.sort_by_key(|kind| self.0[*kind as usize] / kind.share());
        kinds
    }

    /// Adds time that was spent. Kinds without jobs in that time do not save up their share.
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
            Self::Explain { .. } | Self::Record { .. } | Self::Import(_) => Kind::TakeIn,
            Self::Crash { .. } => Kind::Crash,
            Self::Minimise { .. } => Kind::Minimise,
        }
    }

    /// Breaks ties between jobs that promise the same.
    const fn urgency(&self) -> u8 {
        match self {
            Self::Explain { .. } => 1,
            _ => 0,
        }
    }
}

/// A job in its queue, ordered by how promising it is.
#[derive(Debug)]
pub(crate) struct QueuedJob {
    pub(crate) job: Job,
    rank: (u64, u8, u64),
}

impl QueuedJob {
    /// `news` is the number of new locations, `number` the number of jobs that waited already.
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

impl PartialEq for QueuedJob {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for QueuedJob {}

impl PartialOrd for QueuedJob {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedJob {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BinaryHeap;

    use powerfail_fuzz_store::{CaseNumber, Images, Priority, Retirement, TestCase};

    use super::{ExecutionFailure, Job, Kind, QueuedJob, Shares};

    #[test]
    fn a_stored_failure_keeps_its_signal() {
        let crashed = |signal| ExecutionFailure::of_retirement(&Retirement::Crashes { signal });
        assert_eq!(
            crashed(Some(libc::SIGABRT)),
            Some(ExecutionFailure::Signal(Some(libc::SIGABRT)))
        );
        assert_eq!(crashed(None), Some(ExecutionFailure::Signal(None)));
        // Our own limit on the size of files ended it.
        assert_eq!(crashed(Some(libc::SIGXFSZ)), None);
        assert_eq!(
            ExecutionFailure::of_retirement(&Retirement::Hangs),
            Some(ExecutionFailure::Timeout)
        );
        assert_eq!(
            ExecutionFailure::of_retirement(&Retirement::Redundant),
            None
        );
    }

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
        let mut heap: BinaryHeap<QueuedJob> = [
            (record(1), Priority::Low, 0),
            (record(2), Priority::Medium, 0),
            (record(3), Priority::Medium, 0),
            (record(4), Priority::High, 2),
            (record(5), Priority::High, 7),
        ]
        .into_iter()
        .zip(0..)
        .map(|((job, priority, news), number)| QueuedJob::new(job, priority, news, number))
        .collect();
        let mut order = Vec::new();
        while let Some(QueuedJob {
            job: Job::Record { number, .. },
            ..
        }) = heap.pop()
        {
            order.push(number.0);
        }
        assert_eq!(order, [5, 4, 2, 3, 1]);
    }
}
