//! What all phases of a crash test share: the trace, the runner, and the observer that hears of events.

use std::cell::RefCell;
use std::collections::HashSet;

use powerfail_finding::Finding;
use powerfail_model::EventIndex;
use powerfail_trace::{StackId, Trace};

use crate::content::Contents;
use crate::diagnose::TrialJudge;
use crate::error::CheckError;
use crate::event::{Event, Observer, Step};
use crate::group::{Cause, cause_of};
use crate::runner::{Runner, Trial, TrialResult};
use crate::symptom::Symptom;

/// What all phases of a crash test share.
pub(crate) struct Engine<'b, 't> {
    pub(crate) trace: &'t Trace,
    pub(crate) runner: &'b mut Runner<'t>,
    pub(crate) observer: &'b mut dyn Observer,
    pub(crate) contents: &'b mut Contents,
    /// The user has interrupted the run: nothing can be run any more.
    pub(crate) is_interrupted: bool,
    /// The root causes that the observer has heard of.
    announced: HashSet<Cause>,
}

impl TrialJudge for Engine<'_, '_> {
    fn judge_all(&mut self, trials: &[Trial]) -> Result<Vec<Option<Symptom>>, CheckError> {
        let results = self.run(Step::Reasons, trials)?;
        let results = trials.iter().zip(&results);
        Ok(results
            .map(|(trial, result)| self.judge(trial, result))
            .collect())
    }
}

impl<'b, 't> Engine<'b, 't> {
    pub(super) fn new(
        trace: &'t Trace,
        runner: &'b mut Runner<'t>,
        observer: &'b mut dyn Observer,
        contents: &'b mut Contents,
    ) -> Self {
        Self {
            trace,
            runner,
            observer,
            contents,
            is_interrupted: false,
            announced: HashSet::new(),
        }
    }

    /// Tells the observer about a confirmed finding, once for each root cause. The report may still merge it with
    /// another one.
    pub(crate) fn announce(&mut self, finding: &Finding) {
        if self.announced.insert(cause_of(finding)) {
            self.observer.event(Event::Finding(finding));
        }
    }

    /// Turns an interruption into `None` and remembers it: what was found before is still reported.
    pub(crate) fn unless_interrupted<T>(
        &mut self,
        outcome: Result<T, CheckError>,
    ) -> Result<Option<T>, CheckError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(CheckError::Interrupted) => {
                self.is_interrupted = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Runs trials, and first those that are needed to judge them.
    pub(super) fn run(
        &mut self,
        step: Step,
        trials: &[Trial],
    ) -> Result<Vec<TrialResult>, CheckError> {
        let moments: Vec<EventIndex> = trials.iter().map(|trial| trial.at).collect();
        self.learn(step, &moments)?;
        self.run_all(step, trials)
    }

    /// Learns the contents that are needed to judge what is recovered at these moments.
    pub(crate) fn learn(&mut self, step: Step, moments: &[EventIndex]) -> Result<(), CheckError> {
        let missing = self.contents.missing(moments, self.trace);
        let references: Vec<Trial> = missing.iter().map(|(_, at)| Trial::prefix(*at)).collect();
        let known = self.run_all(step, &references)?;
        for ((number, _), tried) in missing.iter().zip(&known) {
            self.contents.learn(*number, tried.verdict.as_ref());
        }
        Ok(())
    }

    fn run_all(&mut self, step: Step, trials: &[Trial]) -> Result<Vec<TrialResult>, CheckError> {
        if trials.is_empty() {
            return Ok(Vec::new());
        }
        if self.is_interrupted {
            return Err(CheckError::Interrupted);
        }
        let of = trials.len() as u64;
        let observer = RefCell::new(&mut *self.observer);
        self.runner.run(
            trials,
            &|| observer.borrow().is_interrupted(),
            &mut |done| observer.borrow_mut().progress(step, done, of),
        )
    }

    /// What is wrong with a result, if anything.
    pub(crate) fn judge(&self, trial: &Trial, result: &TrialResult) -> Option<Symptom> {
        self.contents.judge(trial.at, result.verdict.as_ref()?)
    }

    /// The call stack of the last event before a moment.
    pub(super) fn stack_before(&self, at: EventIndex) -> Result<StackId, CheckError> {
        self.stack_of(EventIndex(at.0.saturating_sub(1)))
    }

    /// The call stack of an event.
    pub(crate) fn stack_of(&self, event: EventIndex) -> Result<StackId, CheckError> {
        let mut records = self.trace.records_from(event);
        Ok(records.next_record()?.map_or(StackId::NONE, |it| it.stack))
    }
}
