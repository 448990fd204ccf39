//! A thread that checks test cases: records them, lints the traces, makes images from them, and tries power failures.
//!
//! The other jobs of a checker have their own modules: [`crate::failed_execution`] and [`crate::minimise_finding`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use powerfail_explore::{PointKey, PointKeys, Random, StackNames};
use powerfail_finding::RecoveryOutcome;
use powerfail_fuzz_store::{CaseNumber, Edge, Entry, Images, Priority, TestCase, Unchecked};
use powerfail_image::DirectoryContents;
use powerfail_model::EventIndex;
use powerfail_recorder::TargetStatus;
use powerfail_trace::{Body, Trace};
use rustc_hash::FxHashSet;

use crate::check_history::{PerCheck, TriedPoints};
use crate::crash_images::{ImageOptions, choose_moments, contents_at};
use crate::crash_test::{CrashTest, CrashTestResult, TraceTester};
use crate::error::CampaignError;
use crate::findings::{Basis, CaseRecord};
use crate::job::{ExecutionFailure, Job, Kind, Shares};
use crate::machines::RemoteCase;
use crate::point_selection::UntriedPoints;
use crate::recording::{Recorded, Recorder, Recording};
use crate::shared_state::{SharedState, lock};
use crate::worker::cases_on;

/// How many failure points of one trace are tried at a time.
const POINTS_MAX: PerCheck<usize> = PerCheck {
    crash: 40,
    lazy: 12,
    races: 12,
};
/// In how many traces a moment is tried while other traces wait. The data differs between traces.
const TRACES_PER_MOMENT: u32 = 2;
/// In how many traces a moment is tried when no trace waits.
const TRACES_PER_MOMENT_IDLE: u32 = 3;
/// Explaining what a check has found may take longer than its budget, by this factor.
const OVERTIME: u32 = 2;
/// Checking a trace with this many events takes about twice as long as checking a short one.
const EVENTS_DOUBLING_TIME: u64 = 5000;

/// The state of a checking thread.
pub(crate) struct CheckWorker<'s, 'o> {
    pub(crate) shared: &'s SharedState<'o>,
    pub(crate) recorder: Recorder,
    pub(crate) tester: TraceTester,
    random: Random,
    /// Recorded traces that wait for crashes, each with its worth. They name paths in this checker's own directory.
    traces: Vec<(u64, Job)>,
    trace_count: u64,
    /// Call stacks from which ordinary files were changed, by names that are the same in all traces.
    operations: FxHashSet<u32>,
    shares: Shares,
}

impl<'s, 'o> CheckWorker<'s, 'o> {
    pub(crate) fn new(number: usize, shared: &'s SharedState<'o>) -> Result<Self, CampaignError> {
        let options = &shared.options;
        Ok(Self {
            shared,
            recorder: Recorder::new(options, &shared.runtime)?,
            tester: TraceTester::new(options, &shared.runtime),
            random: Random::stream(options.seed, number as u64),
            traces: Vec::new(),
            trace_count: 0,
            operations: FxHashSet::default(),
            shares: Shares::default(),
        })
    }

    /// Does the most promising job; returns whether there was one.
    pub(crate) fn step(&mut self) -> Result<bool, CampaignError> {
        let suspects = std::mem::take(&mut *lock(&self.shared.suspects));
        for image in suspects {
            let case = TestCase {
                image,
                input: Vec::new(),
            };
            let job = Job::Explain {
                number: None,
                case,
                failure: ExecutionFailure::GaveUp,
            };
            self.shared.submit(job, Priority::Medium, 0);
        }
        let mut idle = Vec::new();
        let next = self.shares.order().into_iter().find_map(|kind| {
            let job = self.next_of(kind);
            if job.is_none() {
                idle.push(kind);
            }
            job
        });
        let Some(job) = next else {
            return Ok(false);
        };
        let (kind, begun) = (job.kind(), Instant::now());
        let done = self.run(job);
        self.shares.spend(kind, begun.elapsed(), &idle);
        match done {
            // A problem with one test case does not end the campaign.
            Err(
                error @ (CampaignError::Target(_)
                | CampaignError::Record(_)
                | CampaignError::Check(_)
                | CampaignError::Image(_)
                | CampaignError::Trace(_)),
            ) => {
                let sentence = sentence(&error);
                self.shared
                    .warn(&format!("a test case could not be checked: {sentence}"));
                Ok(true)
            }
            done => done.map(|()| true),
        }
    }

    fn next_of(&mut self, kind: Kind) -> Option<Job> {
        match kind {
            Kind::Crash => self.next_trace(),
            _ => self.shared.next_job(kind),
        }
    }

    /// The trace with the most new moments.
    fn next_trace(&mut self) -> Option<Job> {
        let best = (0..self.traces.len()).max_by_key(|place| self.traces[*place].0)?;
        self.shared.traces_waiting.fetch_sub(1, Ordering::Relaxed);
        Some(self.traces.swap_remove(best).1)
    }

    fn run(&mut self, job: Job) -> Result<(), CampaignError> {
        match job {
            Job::Record { number, case } => self.take_in(number, case),
            Job::Crash {
                number,
                case,
                trace,
                moments,
            } => {
                let (left, tried) = self.crash(&case, &trace)?;
                if left > 0 {
                    let job = Job::Crash {
                        number,
                        case,
                        trace,
                        moments,
                    };
                    // It had its turn: the others come first.
                    self.traces.push((0, job));
                    self.shared.traces_waiting.fetch_add(1, Ordering::Relaxed);
                } else {
                    let _ = fs::remove_file(&trace);
                    self.done(number, &moments, tried)?;
                }
                Ok(())
            }
            Job::Explain {
                number,
                case,
                failure,
            } => {
                self.explain(&case, failure)?;
                match number {
                    Some(number) => self.done(number, &[], TriedPoints::default()),
                    None => Ok(()),
                }
            }
            Job::Import(received) => self.import(&received),
            Job::Minimise { stored, progress } => {
                if let Some(progress) = self.minimise_for_a_while(&stored, *progress)? {
                    let progress = Box::new(progress);
                    // Others come first.
                    let job = Job::Minimise { stored, progress };
                    self.shared.submit(job, Priority::Low, 0);
                }
                Ok(())
            }
        }
    }

    /// Records an input on an image; `None` if the recording cannot be used.
    pub(crate) fn record(
        &self,
        contents: &DirectoryContents,
        input: &[u8],
    ) -> Result<Option<Box<Recording>>, CampaignError> {
        match self.recorder.record(contents, input)? {
            Recorded::Done(recording) => Ok(Some(recording)),
            Recorded::Unusable(sentence) => {
                self.shared
                    .warn(&format!("a test case could not be recorded: {sentence}"));
                Ok(None)
            }
            Recorded::Interrupted => Err(CampaignError::Interrupted),
        }
    }

    /// The description of a test case for a finding.
    pub(crate) fn record_of(&self, case: &TestCase) -> Result<CaseRecord, CampaignError> {
        let path = self.shared.campaign.images.path(case.image)?;
        Ok(CaseRecord {
            image: case.image.to_string(),
            path: path.iter().map(Into::into).collect(),
            time_s: self.shared.time_s(),
            execs: self.shared.executions(),
        })
    }

    pub(crate) fn command(&self) -> Vec<String> {
        let words = self.shared.options.command.iter();
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    /// Takes in a new test case: lints its trace, makes images, and queues the trace for crashes.
    fn take_in(&mut self, number: CaseNumber, case: TestCase) -> Result<(), CampaignError> {
        let contents = self.shared.campaign.images.load(case.image)?;
        let Some(recording) = self.record(&contents, &case.input)? else {
            return Ok(());
        };
        if recording.trace.pools().is_empty() && !recording.trace.trees().is_empty() {
            return self.take_in_files(number, case, &recording);
        }
        if recording.trace.pools().is_empty() {
            self.shared.warn(
                "the target mapped no pool on an input, so there is nothing that a power failure could damage",
            );
            self.shared.checked.is_not(Unchecked::NoPool);
            return Ok(());
        }
        let checks = self.shared.options.checks;
        let mut is_urgent = false;
        if checks.lint {
            is_urgent = self.lint(&recording, &case)?;
            if !checks.has_crashes() {
                self.shared.checked.is();
            }
        }
        self.make_images(&recording, &contents, &case)?;
        let locations = lock(&self.shared.locations).take_new();
        self.shared.check_journal.imaged(number, locations)?;
        let keys = PointKeys::of(&recording.trace)?;
        let moments = self.shared.history.absorb(&recording.trace, &keys);
        if checks.has_crashes() && (is_urgent || !moments.is_empty()) {
            let news = moments.len() as u64;
            let worth = if is_urgent {
                u64::MAX
            } else {
                news * 1000 / (EVENTS_DOUBLING_TIME + recording.trace.event_count())
            };
            self.queue(number, case, &recording, moments, worth)
        } else {
            self.done(number, &moments, TriedPoints::default())
        }
    }

    /// The same for a target that keeps ordinary files. No images are made of them: each test case begins with the files of
    /// its own image.
    fn take_in_files(
        &mut self,
        number: CaseNumber,
        case: TestCase,
        recording: &Recording,
    ) -> Result<(), CampaignError> {
        // What the lint would say is only reported if a crash confirms it.
        let checks = self.shared.options.checks;
        let news = self.new_operations(&recording.trace)?;
        if news == 0 || !(checks.prefix || checks.lazy) {
            return self.done(number, &[], TriedPoints::default());
        }
        self.queue(number, case, recording, Vec::new(), news)
    }

    /// How many call stacks of operations on files this checker has not seen before.
    fn new_operations(&mut self, trace: &Trace) -> Result<u64, CampaignError> {
        let mut names = StackNames::new(trace);
        let mut records = trace.records_from(EventIndex(0));
        let mut news = 0;
        while let Some(record) = records.next_record()? {
            if matches!(record.body, Body::File(_)) {
                news += u64::from(self.operations.insert(names.of(record.stack).0));
            }
        }
        Ok(news)
    }

    /// Keeps a trace for crashes.
    fn queue(
        &mut self,
        number: CaseNumber,
        case: TestCase,
        recording: &Recording,
        moments: Vec<PointKey>,
        worth: u64,
    ) -> Result<(), CampaignError> {
        self.trace_count += 1;
        let trace = self.trace_path(self.trace_count);
        fs::rename(&recording.path, &trace).map_err(CampaignError::file(&trace))?;
        let job = Job::Crash {
            number,
            case,
            trace,
            moments,
        };
        self.traces.push((worth, job));
        self.shared.traces_waiting.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Reports what the trace alone shows; whether it also has something new that only a crash can prove.
    fn lint(&self, recording: &Recording, case: &TestCase) -> Result<bool, CampaignError> {
        let (findings, suspects) = self.tester.lint(&recording.trace)?;
        let is_urgent = self.shared.history.add_suspects(suspects);
        let basis = Basis {
            trace: &recording.path,
            command: self.command(),
            recovery: &self.tester.recovery_for(&recording.trace)?,
            recovery_input: None,
            case,
            record: self.record_of(case)?,
        };
        self.shared.report(findings, &basis)?;
        Ok(is_urgent)
    }

    /// Records that a test case needs no more work.
    fn done(
        &self,
        number: CaseNumber,
        moments: &[PointKey],
        tried: TriedPoints,
    ) -> Result<(), CampaignError> {
        self.shared.checks_done.fetch_add(1, Ordering::Relaxed);
        self.shared.check_journal.done(number, moments, tried)
    }

    fn trace_path(&self, number: u64) -> PathBuf {
        self.recorder.directory().join(format!("{number}.trace"))
    }

    /// Makes the images of a run: what it left at its end, and what crashes would have left.
    fn make_images(
        &mut self,
        recording: &Recording,
        parent: &DirectoryContents,
        case: &TestCase,
    ) -> Result<(), CampaignError> {
        let trace = &recording.trace;
        let options = &self.shared.options;
        let choice = ImageOptions {
            rules: self.tester.recovery_for(trace)?.rules(),
            include_create: options.judging.include_create,
            stacks: options.stacks,
            random_images: options.random_images,
        };
        let mut at = {
            let mut locations = lock(&self.shared.locations);
            choose_moments(trace, &choice, &mut locations, &mut self.random)?
        };
        let end = EventIndex(trace.event_count());
        at.retain(|at| *at != end);
        let ended = matches!(recording.summary.status, TargetStatus::Exited(_));
        if ended && !recording.summary.timed_out {
            at.push(end);
        }
        let directory = self.recorder.pool_directory();
        let shared = self.shared;
        contents_at(trace, &directory, parent, &at, |at, contents| {
            let edge = Edge {
                input: case.input.clone(),
                failure_point: (at != end).then_some(at.0),
            };
            let (image, is_new) = shared
                .campaign
                .images
                .insert(case.image, &edge, &contents)?;
            if is_new {
                let is_crash = u64::from(edge.failure_point.is_some());
                shared.crash_images.fetch_add(is_crash, Ordering::Relaxed);
                shared.offer(cases_on(image, &case.input));
            }
            Ok(())
        })
    }

    /// Tries power failures at moments that are new; returns how many failure points are left, and what was tried.
    fn crash(&mut self, case: &TestCase, path: &Path) -> Result<(u64, TriedPoints), CampaignError> {
        let trace = Trace::open(path)?;
        let keys = PointKeys::of(&trace)?;
        let traces_max = if self.traces.is_empty() {
            TRACES_PER_MOMENT_IDLE
        } else {
            TRACES_PER_MOMENT
        };
        let points = UntriedPoints::new(&trace, keys, &self.shared.history, traces_max, POINTS_MAX);
        let points = Arc::new(points);
        let test = CrashTest {
            checks: self.shared.options.checks,
            selection: Arc::clone(&points) as _,
            recovery: self.tester.recovery_for(&trace)?,
            budget: self.shared.options.check_budget,
            seed: self.shared.options.seed,
            tests_oracle: !self.shared.checked.is_known(),
        };
        match self.run_test(&trace, &test)? {
            CrashTestResult::Findings {
                findings,
                unchecked,
                depends_on_pools,
            } => {
                let checked = &self.shared.checked;
                match unchecked {
                    Some(reason) => checked.is_not(reason.into()),
                    None if depends_on_pools => checked.is(),
                    None => checked.is_perhaps(),
                }
                let basis = Basis {
                    trace: path,
                    command: self.command(),
                    recovery: &test.recovery,
                    recovery_input: None,
                    case,
                    record: self.record_of(case)?,
                };
                self.shared.report(findings, &basis)?;
                Ok((points.over_limit(), points.tried()))
            }
            CrashTestResult::FailsUndisturbed(image, outcome) => {
                self.shared.checked.is_not(Unchecked::RecoveryFails);
                self.undisturbed(image, &outcome);
                Ok((0, points.tried()))
            }
            CrashTestResult::NoPool => {
                self.shared.checked.is_not(Unchecked::NoPool);
                Ok((0, TriedPoints::default()))
            }
        }
    }

    /// Checks a trace. Stops when the campaign stops or when it takes too long; what was found by then counts.
    pub(crate) fn run_test(
        &self,
        trace: &Trace,
        test: &CrashTest,
    ) -> Result<CrashTestResult, CampaignError> {
        let deadline = Instant::now() + OVERTIME * test.budget;
        let is_over = || self.shared.is_over() || Instant::now() > deadline;
        self.tester.crash(trace, test, &is_over)
    }

    /// Warns that recovery fails on an image that no crash has made.
    fn undisturbed(&self, image: powerfail_check::Undisturbed, outcome: &RecoveryOutcome) {
        if image == powerfail_check::Undisturbed::Initial {
            // The image of the test case is a crash image. The failure was reported where the image was made.
            return;
        }
        let what = match outcome {
            RecoveryOutcome::Exit { status, .. } => format!("exit status {status}"),
            RecoveryOutcome::Signal { signal, .. } => format!("signal {signal}"),
            RecoveryOutcome::Timeout { .. } => "timeout".to_owned(),
            RecoveryOutcome::Output { pattern, .. } => format!("output that matches `{pattern}`"),
            RecoveryOutcome::Content { .. } => "wrong content".to_owned(),
        };
        self.shared.warn(&format!(
            "recovery fails without any power failure ({what}), so crashes in such runs are not checked; see \
             --recover"
        ));
    }

    /// Imports a test case of another machine. Makes its image first, if that does not exist here.
    fn import(&mut self, received: &RemoteCase) -> Result<(), CampaignError> {
        let images = &self.shared.campaign.images;
        let mut image = Images::empty();
        if !images.contains(received.case.image) {
            for edge in &received.path {
                let contents = images.load(image)?;
                let made = self.recorder.follow(&contents, edge)?;
                image = images.insert(image, edge, &made)?.0;
            }
            if image != received.case.image {
                self.shared.warn(
                    "test cases of another machine were skipped: the target behaves differently on this machine",
                );
                return Ok(());
            }
        }
        let entry = Entry {
            priority: Priority::Medium,
            time_s: self.shared.time_s(),
            execs: self.shared.executions(),
            new_locations: 0,
            found_by: "another machine".to_owned(),
            minimised_from: None,
        };
        self.shared.import(received.case.clone(), &entry)
    }
}

/// An error and its causes, in one sentence.
pub(crate) fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}
