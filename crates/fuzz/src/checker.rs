//! A thread that checks: records what was found, lints it, makes images of it, and lets the power fail in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use powerfail_explore::{PointKey, PointKeys, Random};
use powerfail_finding::RecoveryOutcome;
use powerfail_fuzz_store::{CaseNumber, Edge, Images, Priority, TestCase};
use powerfail_image::Contents;
use powerfail_model::EventIndex;
use powerfail_recorder::TargetStatus;
use powerfail_trace::Trace;

use crate::error::CampaignError;
use crate::findings::{Basis, CaseRecord};
use crate::harvest::{Choice, contents_at, moments};
use crate::job::{Job, Kind, Shares};
use crate::judge::{Judge, Judged, Question};
use crate::known::{NewPoints, Tried};
use crate::messages::Received;
use crate::recording::{Recorded, Recorder, Recording};
use crate::shared::{Shared, lock};
use crate::worker::cases_on;

/// How many failure points of one trace are tried at a time, by step: crashes, lost lines, reads.
const POINTS_MAX: [usize; 4] = [40, 12, 12, 0];
/// In how many traces a moment is tried, if others wait: the data differs.
const TRIES: u32 = 2;
/// And if none does.
const TRIES_IDLE: u32 = 3;
/// Explaining what was found may take longer than the budget for finding it, but not longer than this.
const OVERTIME: u32 = 2;
/// A trace with this many events takes twice as long as one with hardly any.
const EVENTS: u64 = 5000;

/// See the module header.
pub(crate) struct Checker<'s, 'o> {
    pub(crate) shared: &'s Shared<'o>,
    pub(crate) recorder: Recorder,
    pub(crate) judge: Judge,
    random: Random,
    /// Traces that this one has recorded and that wait for crashes: they are about its own paths.
    traces: Vec<(u64, Job)>,
    spooled: u64,
    shares: Shares,
}

impl<'s, 'o> Checker<'s, 'o> {
    pub(crate) fn new(number: usize, shared: &'s Shared<'o>) -> Result<Self, CampaignError> {
        let options = &shared.options;
        Ok(Self {
            shared,
            recorder: Recorder::new(options, &shared.runtime)?,
            judge: Judge::new(options, &shared.runtime),
            random: Random::stream(options.seed, number as u64),
            traces: Vec::new(),
            spooled: 0,
            shares: Shares::default(),
        })
    }

    /// Does the most promising thing. Whether there was any.
    pub(crate) fn step(&mut self) -> Result<bool, CampaignError> {
        let suspects = std::mem::take(&mut *lock(&self.shared.suspects));
        for image in suspects {
            let case = TestCase {
                image,
                input: Vec::new(),
            };
            let job = Job::Blame {
                number: None,
                case,
                end: None,
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
            // What is wrong with one test case does not end the campaign.
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

    /// The trace with most new moments.
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
                    // Others come first: this one had its turn.
                    self.traces.push((0, job));
                    self.shared.traces_waiting.fetch_add(1, Ordering::Relaxed);
                } else {
                    let _ = fs::remove_file(&trace);
                    self.done(number, &moments, tried)?;
                }
                Ok(())
            }
            Job::Blame { number, case, end } => {
                self.blame(&case, end)?;
                match number {
                    Some(number) => self.done(number, &[], Tried::default()),
                    None => Ok(()),
                }
            }
            Job::Import(received) => self.import(&received),
            Job::Minimise {
                stored,
                case,
                recovery,
                recovery_input,
            } => self.minimise(&stored, &case, &recovery, recovery_input.as_deref()),
        }
    }

    /// Records an input on an image; nothing if nothing can be said of it.
    pub(crate) fn record(
        &self,
        contents: &Contents,
        input: &[u8],
    ) -> Result<Option<Box<Recording>>, CampaignError> {
        match self.recorder.record(contents, input)? {
            Recorded::Done(recording) => Ok(Some(recording)),
            Recorded::Useless(sentence) => {
                self.shared
                    .warn(&format!("a test case could not be recorded: {sentence}"));
                Ok(None)
            }
            Recorded::Interrupted => Err(CampaignError::Interrupted),
        }
    }

    /// What a finding about a test case rests on.
    pub(crate) fn record_of(&self, case: &TestCase) -> Result<CaseRecord, CampaignError> {
        let path = self.shared.kept.images().path(case.image)?;
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

    /// A new test case: lint at once, images, and its trace waits for crashes.
    fn take_in(&mut self, number: CaseNumber, case: TestCase) -> Result<(), CampaignError> {
        let contents = self.shared.kept.images().load(case.image)?;
        let Some(recording) = self.record(&contents, &case.input)? else {
            return Ok(());
        };
        if recording.trace.pools().is_empty() {
            self.shared.warn(
                "an input on which the target maps no pool: there is nothing that a power failure could damage",
            );
            return Ok(());
        }
        let checks = self.shared.options.checks;
        let mut is_urgent = false;
        if checks.lint {
            let (findings, suspects) = self.judge.lint(&recording.trace)?;
            is_urgent = self.shared.known.suspect(suspects);
            let basis = Basis {
                trace: &recording.path,
                command: self.command(),
                recovery: self.judge.recovery(),
                recovery_input: None,
                case: &case,
                record: self.record_of(&case)?,
            };
            self.shared.report(findings, &basis)?;
        }
        self.harvest(&recording, &contents, &case)?;
        let locations = lock(&self.shared.locations).take_new();
        self.shared.checked.harvested(number, locations)?;
        let keys = PointKeys::of(&recording.trace)?;
        let moments = self.shared.known.absorb(&recording.trace, &keys);
        let crashes = checks.prefix || checks.lazy || checks.races;
        if crashes && (is_urgent || !moments.is_empty()) {
            self.spooled += 1;
            let trace = self.trace_path(self.spooled);
            fs::rename(&recording.path, &trace).map_err(CampaignError::file(&trace))?;
            let news = moments.len() as u64;
            let job = Job::Crash {
                number,
                case,
                trace,
                moments,
            };
            let worth = if is_urgent {
                u64::MAX
            } else {
                news * 1000 / (EVENTS + recording.trace.event_count())
            };
            self.traces.push((worth, job));
            self.shared.traces_waiting.fetch_add(1, Ordering::Relaxed);
            Ok(())
        } else {
            self.done(number, &moments, Tried::default())
        }
    }

    /// Nothing more is to be done with a test case.
    fn done(
        &self,
        number: CaseNumber,
        moments: &[PointKey],
        tried: Tried,
    ) -> Result<(), CampaignError> {
        self.shared.checks_done.fetch_add(1, Ordering::Relaxed);
        self.shared.checked.done(number, moments, tried)
    }

    fn trace_path(&self, number: u64) -> PathBuf {
        self.recorder.directory().join(format!("{number}.trace"))
    }

    /// Images of a run: what it left, and crash images.
    fn harvest(
        &mut self,
        recording: &Recording,
        parent: &Contents,
        case: &TestCase,
    ) -> Result<(), CampaignError> {
        let trace = &recording.trace;
        let options = &self.shared.options;
        let choice = Choice {
            rules: self.judge.recovery().rules(),
            include_create: options.judging.include_create,
            stacks: options.stacks,
            random_images: options.random_images,
        };
        let mut at = {
            let mut locations = lock(&self.shared.locations);
            moments(trace, &choice, &mut locations, &mut self.random)?
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
            let (image, is_new) = shared.kept.images().insert(case.image, &edge, &contents)?;
            if is_new {
                let is_crash = u64::from(edge.failure_point.is_some());
                shared.crash_images.fetch_add(is_crash, Ordering::Relaxed);
                shared.offer(cases_on(image, &case.input));
            }
            Ok(())
        })
    }

    /// Lets the power fail where it is new. How many failure points are left, and what was tried.
    fn crash(&mut self, case: &TestCase, path: &Path) -> Result<(u64, Tried), CampaignError> {
        let trace = Trace::open(path)?;
        let keys = PointKeys::of(&trace)?;
        let tries = if self.traces.is_empty() {
            TRIES_IDLE
        } else {
            TRIES
        };
        let points = NewPoints::new(&trace, keys, &self.shared.known, tries, POINTS_MAX);
        let points = Arc::new(points);
        let question = Question {
            checks: self.shared.options.checks,
            selection: Arc::clone(&points) as _,
            recovery: self.judge.recovery().clone(),
            budget: self.shared.options.check_budget,
            seed: self.shared.options.seed,
        };
        match self.ask(&trace, &question)? {
            Judged::Findings(findings) => {
                let basis = Basis {
                    trace: path,
                    command: self.command(),
                    recovery: &question.recovery,
                    recovery_input: None,
                    case,
                    record: self.record_of(case)?,
                };
                self.shared.report(findings, &basis)?;
                Ok((points.refused(), points.tried()))
            }
            Judged::FailsUndisturbed(image, outcome) => {
                self.undisturbed(image, &outcome);
                Ok((0, points.tried()))
            }
            Judged::NoPool => Ok((0, Tried::default())),
        }
    }

    /// Asks, and stops if everybody does, or if it takes too long: what was found until then counts.
    pub(crate) fn ask(&self, trace: &Trace, question: &Question) -> Result<Judged, CampaignError> {
        let deadline = Instant::now() + OVERTIME * question.budget;
        let is_over = || self.shared.is_over() || Instant::now() > deadline;
        self.judge.judge(trace, question, &is_over)
    }

    /// Recovery fails on an image that no crash has made.
    fn undisturbed(&self, image: powerfail_check::Undisturbed, outcome: &RecoveryOutcome) {
        if image == powerfail_check::Undisturbed::Initial {
            // The image of the test case is a crash image, and its failure is known where it was made.
            return;
        }
        let what = match outcome {
            RecoveryOutcome::Exit { status, .. } => format!("exit status {status}"),
            RecoveryOutcome::Signal { signal, .. } => format!("signal {signal}"),
            RecoveryOutcome::Timeout { .. } => "no end in time".to_owned(),
            RecoveryOutcome::Output { pattern, .. } => format!("output that matches `{pattern}`"),
            RecoveryOutcome::Content { .. } => "wrong content".to_owned(),
        };
        self.shared.warn(&format!(
            "recovery fails on a pool that the target has left by itself ({what}): nothing is blamed on crashes \
             there; see --recover"
        ));
    }

    /// A test case of another machine: its image is made, if it is not there.
    fn import(&mut self, received: &Received) -> Result<(), CampaignError> {
        let images = self.shared.kept.images();
        let mut image = Images::empty();
        if !images.contains(received.case.image) {
            for edge in &received.path {
                let contents = images.load(image)?;
                let made = self.recorder.follow(&contents, edge)?;
                image = images.insert(image, edge, &made)?.0;
            }
            if image != received.case.image {
                self.shared.warn(
                    "test cases of another machine are left out: the target does something else here",
                );
                return Ok(());
            }
        }
        self.shared.offer(std::iter::once(received.case.clone()));
        Ok(())
    }
}

/// An error with what lies behind it, in one sentence.
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
