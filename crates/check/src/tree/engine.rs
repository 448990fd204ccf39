//! What all phases of a crash test of trees share: the recording, the runner, and the observer that hears of events.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Instant;

use powerfail_finding::Finding;
use powerfail_image::TreeDigest;
use powerfail_model::EventIndex;
use powerfail_model::files::{FileSystem, Frontier, OperationIndex};
use powerfail_trace::{StackId, Trace};

use super::memory::{Judgements, Seen};
use super::recording::TreeRecording;
use super::runner::{TreeRunner, TreeTrial};
use crate::content::ExpectedContents;
use crate::crash::Clock;
use crate::error::CheckError;
use crate::event::{CheckEvent, CheckStep, Observer};
use crate::group::{BugKey, bug_key};
use crate::symptom::Symptom;

/// The result of a trial: nothing if it did not run, and else what is wrong, if something is.
pub(super) type Judged = Option<Option<Symptom>>;

/// What all phases share.
pub(super) struct TreeEngine<'e, 'r> {
    pub(super) trace: &'e Trace,
    pub(super) recording: &'r TreeRecording,
    pub(super) runner: &'e mut TreeRunner<'r>,
    pub(super) observer: &'e mut dyn Observer,
    pub(super) contents: &'e mut ExpectedContents,
    pub(super) file_system: FileSystem,
    pub(super) clock: Clock,
    /// When the present phase ends, if time is limited.
    until: Option<Instant>,
    /// The user has interrupted the run, or the budget is spent.
    pub(super) is_interrupted: bool,
    announced: HashSet<BugKey>,
    /// Set if the power fails during recovery, which was recorded.
    pub(super) again: Option<Again>,
    /// The first place at which the workload has created its files.
    pub(super) creation_end: usize,
    /// Trees of places before that: what recovery needs is not there yet, so that it fails is no bug.
    pub(super) creation_trees: HashSet<TreeDigest>,
    /// What was wrong after the crashes so far.
    pub(super) judgements: Judgements,
}

/// What a second power failure is about.
#[derive(Clone, Debug)]
pub(super) struct Again {
    /// The name of the trace of recovery in the output directory.
    pub(super) trace: String,
    /// Before what the power failed for the first time.
    pub(super) first: String,
}

impl<'e, 'r> TreeEngine<'e, 'r> {
    pub(super) fn new(
        trace: &'e Trace,
        runner: &'e mut TreeRunner<'r>,
        observer: &'e mut dyn Observer,
        contents: &'e mut ExpectedContents,
        file_system: FileSystem,
        clock: Clock,
    ) -> Self {
        Self {
            trace,
            recording: runner.recording,
            runner,
            observer,
            contents,
            file_system,
            clock,
            until: None,
            is_interrupted: false,
            announced: HashSet::new(),
            again: None,
            creation_end: 0,
            creation_trees: HashSet::new(),
            judgements: Judgements::default(),
        }
    }

    /// Lets the phase that begins now take until so much of the budget is spent.
    pub(super) fn allow(&mut self, percent: u32) {
        self.until = self.clock.after(percent);
    }

    /// Whether the present phase has used up its time, or nothing can be run any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_interrupted || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// The event before which the power fails at a place of the list.
    pub(super) fn event_at(&self, place: usize) -> EventIndex {
        self.recording.event_at(place, self.trace)
    }

    /// Runs as many trials as there is time for, and judges them.
    pub(super) fn judge_all(
        &mut self,
        step: CheckStep,
        trials: &[TreeTrial],
        (done_before, of): (u64, u64),
    ) -> Result<Vec<Judged>, CheckError> {
        let moments: Vec<EventIndex> = trials.iter().map(|it| self.event_at(it.place)).collect();
        let missing = self.contents.missing(&moments, self.trace);
        let references: Vec<TreeTrial> = missing
            .iter()
            .map(|(_, at)| TreeTrial::newest(self.recording.place_at(*at)))
            .collect();
        let known = self.run(step, &references, (0, references.len() as u64))?;
        for ((number, _), verdict) in missing.iter().zip(&known) {
            self.contents.learn(*number, verdict.as_ref());
        }
        let verdicts = self.run(step, trials, (done_before, of))?;
        let judged = moments.iter().zip(&verdicts);
        let judged = judged.map(|(at, verdict)| {
            let verdict = verdict.as_ref()?;
            Some(self.contents.judge(*at, verdict))
        });
        let judged: Vec<Judged> = judged.collect();
        for (number, judged) in judged.iter().enumerate() {
            if let (Some(symptom), Some(used)) = (judged, self.runner.uses.get(number)) {
                let seen = self.seen(&trials[number]);
                self.judgements.add(&seen, &used.opened, symptom.as_ref());
            }
        }
        Ok(judged)
    }

    /// What recovery can see of a crash, and what its result is judged by.
    pub(super) fn seen(&self, trial: &TreeTrial) -> Seen {
        Seen {
            image: self.recording.image(trial.place, &trial.difference),
            ended: self.contents.ended(self.event_at(trial.place)),
        }
    }

    /// What is wrong after one crash. Recovery does not run on what looks to it like a tree on which it ran. An error of the
    /// phase's end if there is no time.
    pub(super) fn judge(&mut self, trial: &TreeTrial) -> Result<Option<Symptom>, CheckError> {
        match self.judgements.of(&self.seen(trial)) {
            Some(known) => Ok(known),
            None => self.judge_again(trial),
        }
    }

    /// Judges trials, of which only those run that look to recovery like none before.
    pub(super) fn judge_unknown(
        &mut self,
        trials: &[TreeTrial],
    ) -> Result<Vec<Judged>, CheckError> {
        let known = trials.iter().map(|it| self.judgements.of(&self.seen(it)));
        let mut judged: Vec<Judged> = known.collect();
        let unknown: Vec<usize> = (0..trials.len())
            .filter(|it| judged[*it].is_none())
            .collect();
        let to_run: Vec<TreeTrial> = unknown.iter().map(|it| trials[*it].clone()).collect();
        let found = self.judge_all(CheckStep::Reasons, &to_run, (0, to_run.len() as u64))?;
        for (number, found) in unknown.into_iter().zip(found) {
            judged[number] = found;
        }
        Ok(judged)
    }

    /// What is wrong after one crash, in a run of its own.
    pub(super) fn judge_again(&mut self, trial: &TreeTrial) -> Result<Option<Symptom>, CheckError> {
        let trials = std::slice::from_ref(trial);
        let judged = self.judge_all(CheckStep::Reasons, trials, (0, 1))?;
        let judged = judged.into_iter().next().flatten();
        judged.ok_or(CheckError::Interrupted)
    }

    fn run(
        &mut self,
        step: CheckStep,
        trials: &[TreeTrial],
        (done_before, of): (u64, u64),
    ) -> Result<Vec<Option<powerfail_oracle::Verdict>>, CheckError> {
        if trials.is_empty() {
            return Ok(Vec::new());
        }
        if self.is_stopped() {
            return Err(CheckError::Interrupted);
        }
        let until = self.until;
        let observer = RefCell::new(&mut *self.observer);
        self.runner.run(
            trials,
            &|| until.is_some_and(|until| Instant::now() >= until),
            &|| observer.borrow().is_interrupted(),
            &mut |done| {
                observer.borrow_mut().progress(step, done_before + done, of);
            },
        )
    }

    /// Turns an interruption, or the end of a phase, into `None` and remembers it.
    pub(super) fn unless_interrupted<T>(
        &mut self,
        outcome: Result<T, CheckError>,
    ) -> Result<Option<T>, CheckError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(CheckError::Interrupted) => {
                self.is_interrupted |= self.observer.is_interrupted();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Tells the observer about a confirmed finding, once for each root cause.
    pub(super) fn announce(&mut self, finding: &Finding) {
        if self.announced.insert(bug_key(finding)) {
            self.observer.event(CheckEvent::Finding(finding));
        }
    }

    /// What a crash may leave before the operation at a place, by the rules of a file system.
    pub(super) fn frontier(&self, file_system: FileSystem, place: usize) -> Frontier {
        let mut frontier = Frontier::new(file_system, &self.recording.initial);
        for it in &self.recording.operations[..place.min(self.recording.len())] {
            frontier.apply(it.index, &it.operation);
        }
        frontier
    }

    /// The call stack of the operation at a place of the list, or of the last one.
    pub(super) fn stack_at(&self, place: usize) -> StackId {
        let operations = &self.recording.operations;
        let operation = operations.get(place).or(operations.last());
        operation.map_or(StackId::NONE, |it| it.stack)
    }

    /// The call stack of an operation.
    pub(super) fn stack_of(&self, index: OperationIndex) -> StackId {
        let operation = self.recording.operation(index);
        operation.map_or(StackId::NONE, |it| it.stack)
    }
}
