//! The state that the threads of a campaign share: what is on disk, what waits to be done, and when to stop.
//!
//! Workers put their discoveries here; checkers take their jobs from here.

use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use powerfail_finding::Finding;
use powerfail_fuzz_engine::{Discovery, End, EngineStats, KnownCase, PathSet, Unstable};
use powerfail_fuzz_store::{
    Campaign, CaseNumber, Entry, Priority, Retirement, TestCase, Unchecked,
};
use powerfail_image::ImageId;

use crate::check_history::CheckHistory;
use crate::check_journal::CheckJournal;
use crate::checked::Checked;
use crate::crash_images::ImagedLocations;
use crate::error::CampaignError;
use crate::execution_limit::ExecutionLimit;
use crate::findings::{AddOutcome, Added, Basis, Findings};
use crate::job::{ExecutionFailure, Job, Kind, QueuedJob};
use crate::machines::Machines;
use crate::observer::CampaignObserver;
use crate::options::{CampaignOptions, Checks};

/// The progress of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) engine: EngineStats,
    pub(crate) speed: Option<String>,
}

/// What workers tell each other. Each reads from where it stopped the last time.
#[derive(Default)]
struct Exchange {
    /// With the worker that found it.
    cases: Vec<(usize, Arc<KnownCase>)>,
    unstable: Vec<(usize, Arc<Unstable>)>,
}

/// The state that the threads of a campaign share.
pub(crate) struct SharedState<'o> {
    pub(crate) options: Arc<CampaignOptions>,
    pub(crate) runtime: Arc<[u8]>,
    pub(crate) observer: &'o dyn CampaignObserver,
    /// What is on disk.
    pub(crate) campaign: Arc<Campaign>,
    pub(crate) findings: Findings,
    pub(crate) history: Arc<CheckHistory>,
    pub(crate) locations: Mutex<ImagedLocations>,
    pub(crate) check_journal: CheckJournal,
    /// Whether anything was checked.
    pub(crate) checked: Checked,
    pub(crate) paths: Arc<PathSet>,
    pub(crate) progress: Vec<Mutex<Progress>>,
    /// The connection to instances on other machines.
    pub(crate) machines: Option<Machines>,
    /// Images whose contents could not be repaired. Their test cases are not used.
    pub(crate) lost_images: HashSet<ImageId>,
    /// Images on which the target gave up before it read its input.
    pub(crate) suspects: Arc<Mutex<Vec<ImageId>>>,
    pub(crate) checks_done: AtomicU64,
    /// Recorded traces whose crash checks wait.
    pub(crate) traces_waiting: AtomicU64,
    pub(crate) crash_images: AtomicU64,
    /// When the last new test case was found, in seconds of the campaign: the bits of an `f64`.
    last_new: AtomicU64,
    begun: Instant,
    pub(crate) before: EarlierRuns,
    exchange: Mutex<Exchange>,
    /// Test cases on new images.
    new_image_cases: Mutex<VecDeque<TestCase>>,
    /// One queue for each kind of job.
    waiting: [Mutex<BinaryHeap<QueuedJob>>; Kind::ALL.len()],
    /// Warnings that were shown.
    warnings: Mutex<HashSet<String>>,
    /// A test case has timed out.
    has_hung: AtomicBool,
    pub(crate) limit: Arc<ExecutionLimit>,
    interrupted: AtomicBool,
    failure: Mutex<Option<CampaignError>>,
}

/// The totals of earlier runs of the campaign.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EarlierRuns {
    pub(crate) time_s: f64,
    pub(crate) execs: u64,
    pub(crate) pm_paths: u64,
    pub(crate) last_new_s: f64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'o> SharedState<'o> {
    pub(crate) fn new(
        options: &Arc<CampaignOptions>,
        runtime: &Arc<[u8]>,
        observer: &'o dyn CampaignObserver,
        campaign: Campaign,
        findings: Findings,
        before: EarlierRuns,
        machines: Option<Machines>,
    ) -> Result<Self, CampaignError> {
        let workers = options.jobs.max(1);
        let (history, mut locations) = (Arc::default(), ImagedLocations::default());
        let check_journal = CheckJournal::open(campaign.directory(), &history, &mut locations)?;
        Ok(Self {
            options: Arc::clone(options),
            runtime: Arc::clone(runtime),
            observer,
            campaign: Arc::new(campaign),
            findings,
            history,
            locations: Mutex::new(locations),
            checked: Checked::new(check_journal.has_checked(options.checks)),
            check_journal,
            paths: Arc::default(),
            progress: (0..workers).map(|_| Mutex::default()).collect(),
            machines,
            lost_images: HashSet::new(),
            suspects: Arc::default(),
            checks_done: AtomicU64::new(0),
            traces_waiting: AtomicU64::new(0),
            crash_images: AtomicU64::new(0),
            last_new: AtomicU64::new(before.last_new_s.to_bits()),
            begun: Instant::now(),
            before,
            exchange: Mutex::default(),
            new_image_cases: Mutex::default(),
            waiting: Default::default(),
            warnings: Mutex::default(),
            has_hung: AtomicBool::new(false),
            limit: Arc::new(ExecutionLimit::at_most(options.executions)),
            interrupted: AtomicBool::new(false),
            failure: Mutex::new(None),
        })
    }

    /// Seconds of the campaign.
    pub(crate) fn time_s(&self) -> f64 {
        self.before.time_s + self.begun.elapsed().as_secs_f64()
    }

    /// How long this run of the campaign has taken.
    pub(crate) fn elapsed(&self) -> std::time::Duration {
        self.begun.elapsed()
    }

    /// When the last test case was found, in seconds of the campaign.
    pub(crate) fn last_new_s(&self) -> f64 {
        f64::from_bits(self.last_new.load(Ordering::Relaxed))
    }

    /// Executions of the campaign.
    pub(crate) fn executions(&self) -> u64 {
        let progress = self.progress.iter();
        let now: u64 = progress.map(|it| lock(it).engine.executions).sum();
        self.before.execs + now
    }

    /// Whether all threads have to stop.
    pub(crate) fn is_over(&self) -> bool {
        if self.observer.is_interrupted() {
            self.interrupt();
        }
        self.limit.stops()
    }

    /// Stops all threads: the time is over or all executions are made.
    pub(crate) fn finish(&self) {
        self.limit.stop();
    }

    /// Stops all threads because the user asked for it.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.finish();
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Ends the campaign with an error. The first error is reported.
    pub(crate) fn fail(&self, error: CampaignError) {
        if matches!(error, CampaignError::Interrupted) {
            self.interrupt();
            return;
        }
        lock(&self.failure).get_or_insert(error);
        self.finish();
    }

    pub(crate) fn failure(&self) -> Option<CampaignError> {
        lock(&self.failure).take()
    }

    /// Shows a warning about a limit of the campaign, once.
    pub(crate) fn warn(&self, sentence: &str) {
        if lock(&self.warnings).insert(sentence.to_owned()) {
            self.observer.warning(sentence);
        }
    }

    /// Stores a test case that a worker has discovered, offers it to the other workers, and queues its check.
    pub(crate) fn discovered(
        &self,
        worker: usize,
        discovery: &Discovery,
    ) -> Result<(), CampaignError> {
        let entry = Entry {
            priority: discovery.priority,
            time_s: self.time_s(),
            execs: self.executions(),
            new_locations: discovery.new_locations.len() as u64,
            found_by: discovery.origin.name().to_owned(),
            minimised_from: None,
        };
        let is_normal = discovery.end.is_normal();
        let (number, is_new) = self.campaign.queue.append(&discovery.case, &entry)?;
        if is_normal {
            let known = Arc::new(KnownCase::from(discovery));
            lock(&self.exchange).cases.push((worker, known));
        } else {
            let because = match discovery.end {
                End::Signal(signal) => Retirement::Crashes {
                    signal: Some(signal),
                },
                End::Timeout | End::Exit(_) => Retirement::Hangs,
            };
            self.campaign.queue.retire(number, because)?;
        }
        if !is_new {
            return Ok(());
        }
        if let Some(machines) = &self.machines
            && is_normal
        {
            machines.send(&discovery.case, &self.campaign.images)?;
        }
        let now = self.time_s().to_bits();
        self.last_new.store(now, Ordering::Relaxed);
        let case = discovery.case.clone();
        if is_normal {
            let job = Job::Record { number, case };
            self.submit(job, entry.priority, entry.new_locations);
        } else if let Some(failure) = ExecutionFailure::of_end(discovery.end) {
            let (priority, news) = self.worth_of_failure(failure);
            let job = Job::Explain {
                number: Some(number),
                case,
                failure,
            };
            self.submit(job, priority, news);
        }
        Ok(())
    }

    /// Stores a test case of another instance, and offers it to the workers. The instance that found it checks it, and
    /// has sent it to all others.
    pub(crate) fn import(&self, case: TestCase, entry: &Entry) -> Result<(), CampaignError> {
        let (number, is_new) = self.campaign.queue.append(&case, entry)?;
        if is_new {
            self.check_journal.elsewhere(number)?;
            self.offer(std::iter::once(case));
        }
        Ok(())
    }

    /// How soon a failure is explained. It takes long to see a hang again, so hangs come last; except for the first
    /// one, which is most likely that of an input that the user gave.
    fn worth_of_failure(&self, failure: ExecutionFailure) -> (Priority, u64) {
        match failure {
            ExecutionFailure::Timeout if self.has_hung.swap(true, Ordering::Relaxed) => {
                (Priority::Low, 0)
            }
            ExecutionFailure::Timeout => (Priority::High, u64::MAX),
            _ => (Priority::Medium, 0),
        }
    }

    /// Queues a job for a checker. A campaign without checks does not explain failures; when it is resumed with
    /// checks, it does.
    pub(crate) fn submit(&self, job: Job, priority: Priority, news: u64) {
        if matches!(job, Job::Explain { .. }) && self.options.checks == Checks::NONE {
            return;
        }
        let mut waiting = lock(&self.waiting[job.kind() as usize]);
        let number = waiting.len() as u64;
        waiting.push(QueuedJob::new(job, priority, news, number));
    }

    /// The most promising job of a kind.
    pub(crate) fn next_job(&self, kind: Kind) -> Option<Job> {
        let waiting = &self.waiting[kind as usize];
        lock(waiting).pop().map(|waiting| waiting.job)
    }

    /// How many jobs wait.
    pub(crate) fn waiting_count(&self) -> u64 {
        let all = self.waiting.iter();
        all.map(|waiting| lock(waiting).len() as u64).sum()
    }

    /// Why nothing was checked, if that is so. What is not to be checked is not missing.
    pub(crate) fn unchecked(&self) -> Option<Unchecked> {
        let is_wanted = self.options.checks != Checks::NONE;
        self.checked.reason().filter(|_| is_wanted)
    }

    /// Offers test cases on new images to the workers. The first one that asks takes each.
    pub(crate) fn offer(&self, cases: impl IntoIterator<Item = TestCase>) {
        lock(&self.new_image_cases).extend(cases);
    }

    /// Takes a test case on a new image: the newest one or the oldest one. New ones promise most, but none should
    /// wait forever.
    pub(crate) fn take_new_image_case(&self, newest: bool) -> Option<TestCase> {
        let mut cases = lock(&self.new_image_cases);
        if newest {
            cases.pop_back()
        } else {
            cases.pop_front()
        }
    }

    /// What other workers have found since this worker asked the last time.
    pub(crate) fn news(
        &self,
        worker: usize,
        seen: &mut (usize, usize),
    ) -> (Vec<Arc<KnownCase>>, Vec<Arc<Unstable>>) {
        let exchange = lock(&self.exchange);
        let cases = exchange.cases[seen.0..].iter();
        let cases = cases.filter(|(by, _)| *by != worker);
        let cases = cases.map(|(_, case)| Arc::clone(case)).collect();
        let unstable = exchange.unstable[seen.1..].iter();
        let unstable = unstable.filter(|(by, _)| *by != worker);
        let unstable = unstable.map(|(_, it)| Arc::clone(it)).collect();
        *seen = (exchange.cases.len(), exchange.unstable.len());
        (cases, unstable)
    }

    /// Tells the other workers which locations a worker ignores from now on.
    pub(crate) fn tell_unstable(&self, worker: usize, unstable: Unstable) {
        let unstable = Arc::new(unstable);
        lock(&self.exchange).unstable.push((worker, unstable));
    }

    /// Stores and reports findings, and queues new ones for minimisation.
    pub(crate) fn report(
        &self,
        findings: Vec<Finding>,
        basis: &Basis<'_>,
    ) -> Result<(), CampaignError> {
        for finding in findings {
            if self.findings.contains(&finding) {
                continue;
            }
            let Added { outcome, joined } = self.findings.add(finding, basis)?;
            for (gone, name) in joined {
                let sentence = format!(
                    "finding {gone} is about the same bug as {name}, and is part of it now"
                );
                self.observer.warning(&sentence);
            }
            let stored = match outcome {
                AddOutcome::New(stored) => {
                    self.observer.finding(&stored.finding, &stored.directory);
                    stored
                }
                AddOutcome::Replaced(stored) => stored,
                AddOutcome::Duplicate => continue,
            };
            let progress = Box::default();
            self.submit(Job::Minimise { stored, progress }, Priority::Medium, 0);
        }
        Ok(())
    }

    /// The test cases that are in use.
    pub(crate) fn active_cases(&self) -> Vec<CaseNumber> {
        let cases = self.campaign.queue.cases();
        let active = cases
            .iter()
            .filter(|case| case.retired.is_none() && !self.lost_images.contains(&case.image));
        active.map(|case| case.number).collect()
    }
}
