//! What the threads of a campaign share.

use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use powerfail_finding::Finding;
use powerfail_fuzz_engine::{Discovery, End, Known as KnownCase, PathSet, Unstable};
use powerfail_fuzz_store::{Campaign, CaseNumber, Entry, Images, Priority, Queue, TestCase};
use powerfail_image::ImageId;

use crate::checked::Checked;
use crate::error::CampaignError;
use crate::findings::{Added, Basis, Findings};
use crate::harvest::Locations;
use crate::job::{Job, Kind, Waiting};
use crate::known::Known;
use crate::messages::Machines;
use crate::observer::Observer;
use crate::options::{CampaignOptions, Checks};

/// Why a test case is never mutated.
pub(crate) const HANGS: &str = "it hangs";
/// The same.
pub(crate) const CRASHES: &str = "it crashes";

/// What is on disk.
pub(crate) struct Kept {
    campaign: Campaign,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Kept")
            .field(&self.campaign.directory())
            .finish()
    }
}

impl Kept {
    pub(crate) const fn new(campaign: Campaign) -> Self {
        Self { campaign }
    }

    pub(crate) const fn images(&self) -> &Images {
        &self.campaign.images
    }

    pub(crate) const fn queue(&self) -> &Queue {
        &self.campaign.queue
    }

    pub(crate) const fn stats(&self) -> &powerfail_fuzz_store::Stats {
        &self.campaign.stats
    }

    pub(crate) fn directory(&self) -> &Path {
        self.campaign.directory()
    }
}

/// Where a thread stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) engine: powerfail_fuzz_engine::Stats,
    pub(crate) speed: Option<String>,
}

/// What is found by one worker and not known to the others.
#[derive(Default)]
struct Exchange {
    /// With the worker that found it.
    cases: Vec<(usize, Arc<KnownCase>)>,
    unstable: Vec<(usize, Arc<Unstable>)>,
}

/// See the module header.
pub(crate) struct Shared<'o> {
    pub(crate) options: Arc<CampaignOptions>,
    pub(crate) runtime: Arc<[u8]>,
    pub(crate) observer: &'o dyn Observer,
    pub(crate) kept: Arc<Kept>,
    pub(crate) findings: Findings,
    pub(crate) known: Arc<Known>,
    pub(crate) locations: Mutex<Locations>,
    pub(crate) checked: Checked,
    pub(crate) paths: Arc<PathSet>,
    pub(crate) progress: Vec<Mutex<Progress>>,
    /// Other machines.
    pub(crate) machines: Option<Machines>,
    /// Images whose recovery fails, as far as an execution can tell.
    pub(crate) suspects: Arc<Mutex<Vec<ImageId>>>,
    pub(crate) checks_done: AtomicU64,
    /// Traces that wait for crashes.
    pub(crate) traces_waiting: AtomicU64,
    pub(crate) crash_images: AtomicU64,
    /// In seconds of the campaign: the bits of an `f64`.
    last_new: AtomicU64,
    begun: Instant,
    /// What earlier runs of the campaign took.
    pub(crate) before: Before,
    exchange: Mutex<Exchange>,
    newcomers: Mutex<VecDeque<TestCase>>,
    /// By their kinds.
    waiting: [Mutex<BinaryHeap<Waiting>>; Kind::ALL.len()],
    said: Mutex<HashSet<String>>,
    /// A test case did not end in time.
    has_hung: AtomicBool,
    pub(crate) stop: Arc<AtomicBool>,
    interrupted: AtomicBool,
    failure: Mutex<Option<CampaignError>>,
}

/// What earlier runs of a campaign had come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    pub(crate) time_s: f64,
    pub(crate) execs: u64,
    pub(crate) pm_paths: u64,
    pub(crate) last_new_s: f64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'o> Shared<'o> {
    pub(crate) fn new(
        options: &Arc<CampaignOptions>,
        runtime: &Arc<[u8]>,
        observer: &'o dyn Observer,
        kept: Kept,
        findings: Findings,
        before: Before,
        machines: Option<Machines>,
    ) -> Result<Self, CampaignError> {
        let workers = options.jobs.max(1);
        let (known, mut locations) = (Arc::default(), Locations::default());
        let checked = Checked::open(kept.directory(), &known, &mut locations)?;
        Ok(Self {
            options: Arc::clone(options),
            runtime: Arc::clone(runtime),
            observer,
            kept: Arc::new(kept),
            findings,
            known,
            locations: Mutex::new(locations),
            checked,
            paths: Arc::default(),
            progress: (0..workers).map(|_| Mutex::default()).collect(),
            machines,
            suspects: Arc::default(),
            checks_done: AtomicU64::new(0),
            traces_waiting: AtomicU64::new(0),
            crash_images: AtomicU64::new(0),
            last_new: AtomicU64::new(before.last_new_s.to_bits()),
            begun: Instant::now(),
            before,
            exchange: Mutex::default(),
            newcomers: Mutex::default(),
            waiting: Default::default(),
            said: Mutex::default(),
            has_hung: AtomicBool::new(false),
            stop: Arc::default(),
            interrupted: AtomicBool::new(false),
            failure: Mutex::new(None),
        })
    }

    /// Seconds of the campaign.
    pub(crate) fn time_s(&self) -> f64 {
        self.before.time_s + self.begun.elapsed().as_secs_f64()
    }

    /// How long this run of the campaign has gone on.
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

    /// Executions of this run of the campaign.
    pub(crate) fn executions_now(&self) -> u64 {
        self.executions() - self.before.execs
    }

    /// Whether everything has to come to an end.
    pub(crate) fn is_over(&self) -> bool {
        if self.observer.is_interrupted() {
            self.interrupt();
        }
        self.stop.load(Ordering::Relaxed)
    }

    /// The time or the executions are used up.
    pub(crate) fn finish(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The user wants it to end.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.finish();
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Something went wrong that ends the campaign. The first is told.
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

    /// Tells a limit of the campaign, once.
    pub(crate) fn warn(&self, sentence: &str) {
        if lock(&self.said).insert(sentence.to_owned()) {
            self.observer.warning(sentence);
        }
    }

    /// A worker has found a test case: it is kept, the others get to know it, and it will be checked.
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
        let (number, is_new) = self.kept.queue().append(&discovery.case, &entry)?;
        if is_normal {
            let known = Arc::new(KnownCase::from(discovery));
            lock(&self.exchange).cases.push((worker, known));
        } else {
            let because = match discovery.end {
                End::Timeout => HANGS,
                _ => CRASHES,
            };
            self.kept.queue().retire(number, because)?;
        }
        if !is_new {
            return Ok(());
        }
        if let Some(machines) = &self.machines
            && is_normal
        {
            machines.send(&discovery.case, self.kept.images())?;
        }
        let now = self.time_s().to_bits();
        self.last_new.store(now, Ordering::Relaxed);
        let case = discovery.case.clone();
        let end = discovery.end;
        if is_normal {
            let job = Job::Record { number, case };
            self.submit(job, entry.priority, entry.new_locations);
        } else if end != End::Signal(libc::SIGXFSZ) {
            // That one is ours: the target has written more than it may.
            let (priority, news) = self.worth_of_failure(end);
            let job = Job::Blame {
                number: Some(number),
                case,
                end: Some(end),
            };
            self.submit(job, priority, news);
        }
        Ok(())
    }

    /// How soon it is looked for what is to blame. A hang takes long to see again, so hangs wait for everything
    /// else; but for the first: it is news, and most likely that of an input that the user has given.
    fn worth_of_failure(&self, end: End) -> (Priority, u64) {
        match end {
            End::Timeout if self.has_hung.swap(true, Ordering::Relaxed) => (Priority::Low, 0),
            End::Timeout => (Priority::High, u64::MAX),
            _ => (Priority::Medium, 0),
        }
    }

    /// Something is to be done by a checker. A campaign without checks does not ask why executions fail; it is asked
    /// when it is resumed with some.
    pub(crate) fn submit(&self, job: Job, priority: Priority, news: u64) {
        if matches!(job, Job::Blame { .. }) && self.options.checks == Checks::NONE {
            return;
        }
        let mut waiting = lock(&self.waiting[job.kind() as usize]);
        let number = waiting.len() as u64;
        waiting.push(Waiting::new(job, priority, news, number));
    }

    /// The most promising thing of a kind.
    pub(crate) fn next_job(&self, kind: Kind) -> Option<Job> {
        let waiting = &self.waiting[kind as usize];
        lock(waiting).pop().map(|waiting| waiting.job)
    }

    /// How many things wait.
    pub(crate) fn waiting_count(&self) -> u64 {
        let all = self.waiting.iter();
        all.map(|waiting| lock(waiting).len() as u64).sum()
    }

    /// Test cases on new images, to be tried by whoever comes first.
    pub(crate) fn offer(&self, cases: impl IntoIterator<Item = TestCase>) {
        lock(&self.newcomers).extend(cases);
    }

    /// One of them, the newest first in every second case: what is new promises most, and nothing waits forever.
    pub(crate) fn newcomer(&self, is_even: bool) -> Option<TestCase> {
        let mut newcomers = lock(&self.newcomers);
        if is_even {
            newcomers.pop_back()
        } else {
            newcomers.pop_front()
        }
    }

    /// What others have found since the last time.
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

    /// A worker ignores these locations from now on.
    pub(crate) fn tell_unstable(&self, worker: usize, unstable: Unstable) {
        let unstable = Arc::new(unstable);
        lock(&self.exchange).unstable.push((worker, unstable));
    }

    /// Keeps and tells what a check has found. What is new is to be minimised.
    pub(crate) fn report(
        &self,
        findings: Vec<Finding>,
        basis: &Basis<'_>,
    ) -> Result<(), CampaignError> {
        for finding in findings {
            if self.findings.knows(&finding) {
                continue;
            }
            if let Added::New(stored) = self.findings.add(finding, basis)? {
                self.observer.finding(&stored.finding, &stored.directory);
                self.submit(
                    Job::Minimise {
                        stored,
                        case: basis.case.clone(),
                        recovery: Box::new(basis.recovery.clone()),
                        recovery_input: basis.recovery_input.map(<[u8]>::to_vec),
                    },
                    Priority::Medium,
                    0,
                );
            }
        }
        Ok(())
    }

    /// The number of a case in the queue, if it is there.
    pub(crate) fn queued(&self) -> Vec<(CaseNumber, ImageId)> {
        let cases = self.kept.queue().cases();
        let active = cases.iter().filter(|case| case.retired.is_none());
        active.map(|case| (case.number, case.image)).collect()
    }
}
