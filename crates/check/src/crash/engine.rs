//! What all phases of a crash test share: the trace, the runner, and the observer that hears of events.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use powerfail_finding::{Code, Finding};
use powerfail_model::{Event, EventIndex, Place};
use powerfail_trace::{Body, StackId, Trace};

use super::prefix::Stretch;
use super::shown_loads::UnreadState;
use crate::content::ExpectedContents;
use crate::diagnose::TrialJudge;
use crate::error::CheckError;
use crate::event::{CheckEvent, CheckStep, Observer};
use crate::group::{BugKey, bug_key};
use crate::places::CodeLine;
use crate::runner::{Runner, Trial, TrialResult};
use crate::symptom::Symptom;

/// What all phases of a crash test share.
pub(crate) struct Engine<'b, 't> {
    pub(crate) trace: &'t Trace,
    pub(crate) runner: &'b mut Runner<'t>,
    pub(crate) observer: &'b mut dyn Observer,
    pub(crate) contents: &'b mut ExpectedContents,
    /// The user has interrupted the run, or the budget is spent: nothing can be run any more.
    pub(crate) is_interrupted: bool,
    pub(super) clock: Clock,
    /// When the present phase ends, if the time is limited.
    until: Option<Instant>,
    /// The root causes that the observer has heard of.
    announced: HashSet<BugKey>,
    /// Acknowledged operations that are lost, each with the lines of code that lack the same flush.
    pub(super) acknowledged: Vec<(Finding, Vec<CodeLine>)>,
    /// Crash states of findings of which it is not known what recovery reads there.
    pub(super) unread: Vec<UnreadState>,
    /// Where recovery fails in one way.
    pub(super) stretches: Vec<Stretch>,
    /// Moments at which recovery is known to succeed with every earlier store.
    pub(crate) good: BTreeSet<EventIndex>,
    /// The first failure, which the observer has heard of.
    pub(super) first_failing: Option<(Code, EventIndex)>,
    /// Whether a recovery takes longer than a pass over the trace.
    pub(crate) has_slow_recoveries: bool,
    /// Whether crashes that keep all earlier stores are not the only ones.
    pub(super) explores_losses: bool,
    /// How many failures are shown as they were found, because there was no time to trace them back to stores.
    pub(super) untraced: u64,
}

/// When a run has begun, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) begun: Instant,
    pub(crate) budget: Option<Duration>,
}

impl Clock {
    /// When a part of the budget is spent.
    pub(crate) fn after(&self, percent: u32) -> Option<Instant> {
        let budget = self.budget?;
        self.begun.checked_add(budget / 100 * percent)
    }
}

/// Until when a phase may take, so that the others get their part of the budget. What a phase does not need is left to
/// the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Crashes,
    CrashesExplained,
    Lint,
    Candidates,
    /// Lost and reordered lines, if the reads of recovery are watched after them, or if they are not.
    LazyBeforeRaces,
    Lazy,
    LazyExplainedBeforeRaces,
    LazyExplained,
    Races,
    RacesConfirmed,
}

impl Share {
    /// After which percentage of the budget this part ends. If lost lines are not explored, their time is left to the others.
    const fn percent(self, explores_losses: bool) -> u32 {
        match self {
            Self::Crashes if !explores_losses => 60,
            Self::CrashesExplained if !explores_losses => 85,
            Self::Lint if !explores_losses => 90,
            Self::Crashes => 35,
            Self::CrashesExplained => 50,
            Self::Lint => 70,
            Self::Candidates => 55,
            Self::LazyBeforeRaces => 65,
            Self::LazyExplainedBeforeRaces => 75,
            Self::Lazy => 80,
            Self::LazyExplained | Self::RacesConfirmed => 98,
            Self::Races => 90,
        }
    }
}

/// An observer that also stops a run whose budget is spent.
pub(crate) struct BoundedObserver<'o> {
    pub(crate) observer: &'o mut dyn Observer,
    pub(crate) end: Option<Instant>,
}

impl Observer for BoundedObserver<'_> {
    fn event(&mut self, event: CheckEvent<'_>) {
        self.observer.event(event);
    }

    fn is_interrupted(&self) -> bool {
        self.observer.is_interrupted() || self.end.is_some_and(|end| Instant::now() >= end)
    }
}

impl TrialJudge for Engine<'_, '_> {
    fn judge_all(&mut self, trials: &[Trial]) -> Result<Vec<Option<Symptom>>, CheckError> {
        let results = self.run(CheckStep::Reasons, trials)?;
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
        contents: &'b mut ExpectedContents,
        clock: Clock,
    ) -> Self {
        Self {
            trace,
            runner,
            observer,
            contents,
            is_interrupted: false,
            clock,
            until: None,
            announced: HashSet::new(),
            acknowledged: Vec::new(),
            unread: Vec::new(),
            stretches: Vec::new(),
            good: BTreeSet::new(),
            first_failing: None,
            has_slow_recoveries: false,
            explores_losses: true,
            untraced: 0,
        }
    }

    /// Lets the phase that begins now take until its part of the budget is spent.
    pub(crate) fn allow(&mut self, share: Share) -> Option<Instant> {
        self.until = self.clock.after(share.percent(self.explores_losses));
        self.until
    }

    /// The same for candidates, which get a part of the time even if the lint took long to find them.
    pub(super) fn allow_candidates(&mut self) {
        const PERCENT: u32 = 5;
        self.allow(Share::Candidates);
        let least = { self.clock.budget }
            .and_then(|budget| Instant::now().checked_add(budget / 100 * PERCENT));
        self.until = self.until.max(least).min(self.clock.after(98));
    }

    /// When the present phase ends, if time is limited.
    pub(crate) const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether time is limited.
    pub(crate) fn is_bounded(&self) -> bool {
        self.clock.budget.is_some()
    }

    /// Whether the present phase has used up its time.
    pub(crate) fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Whether the present phase has used up its time, or nothing can be run any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_interrupted || self.is_late()
    }

    /// Tells the observer about a confirmed finding, once for each root cause. The report may still merge it with
    /// another one.
    pub(crate) fn announce(&mut self, finding: &Finding) {
        if self.announced.insert(bug_key(finding)) {
            self.observer.event(CheckEvent::Finding(finding));
        }
    }

    /// Turns an interruption, or the end of a phase, into `None` and remembers it: what was found before is still
    /// reported.
    pub(crate) fn unless_interrupted<T>(
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

    /// Failure points are collected from now on.
    pub(crate) fn begin_points(&mut self) {
        let events = self.trace.event_count();
        self.observer.progress(CheckStep::Points, 0, events);
    }

    /// Runs trials, and first those that are needed to judge them.
    pub(crate) fn run(
        &mut self,
        step: CheckStep,
        trials: &[Trial],
    ) -> Result<Vec<TrialResult>, CheckError> {
        let moments: Vec<EventIndex> = trials.iter().map(|trial| trial.at).collect();
        self.learn(step, &moments)?;
        self.run_all(step, trials)
    }

    /// Learns the contents that are needed to judge what is recovered at these moments.
    pub(crate) fn learn(
        &mut self,
        step: CheckStep,
        moments: &[EventIndex],
    ) -> Result<(), CheckError> {
        let missing = self.contents.missing(moments, self.trace);
        let references: Vec<Trial> = missing.iter().map(|(_, at)| Trial::prefix(*at)).collect();
        let known = self.run_all(step, &references)?;
        for ((number, _), tried) in missing.iter().zip(&known) {
            self.contents.learn(*number, tried.verdict.as_ref());
        }
        Ok(())
    }

    /// Runs all trials, or fails: what is concluded from some of them would be wrong.
    fn run_all(
        &mut self,
        step: CheckStep,
        trials: &[Trial],
    ) -> Result<Vec<TrialResult>, CheckError> {
        let mut results = vec![TrialResult::default(); trials.len()];
        let all = (0, trials.len() as u64);
        if self.run_into(step, trials, all, &mut results)? {
            return Ok(results);
        }
        Err(CheckError::Interrupted)
    }

    /// Runs as many trials as there is time for; the others have no verdict. They continue progress of which a part is
    /// done.
    pub(super) fn run_partly(
        &mut self,
        trials: &[Trial],
        all: (u64, u64),
    ) -> Result<Vec<TrialResult>, CheckError> {
        let moments: Vec<EventIndex> = trials.iter().map(|trial| trial.at).collect();
        self.learn(CheckStep::Crashes, &moments)?;
        let mut results = vec![TrialResult::default(); trials.len()];
        let outcome = self.run_into(CheckStep::Crashes, trials, all, &mut results);
        self.unless_interrupted(outcome)?;
        Ok(results)
    }

    /// Returns whether all trials were run.
    fn run_into(
        &mut self,
        step: CheckStep,
        trials: &[Trial],
        (done_before, of): (u64, u64),
        results: &mut [TrialResult],
    ) -> Result<bool, CheckError> {
        if trials.is_empty() {
            return Ok(true);
        }
        if self.is_stopped() {
            return Err(CheckError::Interrupted);
        }
        let until = self.until;
        let contents = &*self.contents;
        let first_failing = &mut self.first_failing;
        let observer = RefCell::new(&mut *self.observer);
        let mut finished = done_before;
        self.runner.run_until(
            trials,
            &|| until.is_some_and(|until| Instant::now() >= until),
            &|| observer.borrow().is_interrupted(),
            &mut |number, result| {
                if step == CheckStep::Crashes {
                    let at = trials[number].at;
                    tell_first_failing(contents, first_failing, at, &result, &observer);
                }
                results[number] = result;
                finished += 1;
                observer.borrow_mut().progress(step, finished, of);
            },
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

    /// Where an event stores, and how many bytes; nothing if it is not a store.
    pub(crate) fn store_at(&self, event: EventIndex) -> Result<Option<(Place, u64)>, CheckError> {
        let mut records = self.trace.records_from(event);
        let record = records.next_record()?;
        Ok(record.and_then(|record| match record.body {
            Body::Pm(Event::Store { at, bytes, .. }) => Some((at, bytes.len() as u64)),
            _ => None,
        }))
    }
}

/// Who waits hears of the first failure at once.
pub(super) fn tell_first_failing(
    contents: &ExpectedContents,
    first_failing: &mut Option<(Code, EventIndex)>,
    at: EventIndex,
    result: &TrialResult,
    observer: &RefCell<&mut (dyn Observer + '_)>,
) {
    if first_failing.is_none()
        && let Some(verdict) = &result.verdict
        && let Some(symptom) = contents.judge(at, verdict)
    {
        let code = symptom.code;
        *first_failing = Some((code, at));
        observer
            .borrow_mut()
            .event(CheckEvent::Failing { code, at });
    }
}

#[cfg(test)]
mod tests {
    use super::Share;

    #[test]
    fn crashes_have_the_time_that_nothing_else_needs() {
        let ends = |explores_losses: bool| {
            [
                Share::Crashes,
                Share::CrashesExplained,
                Share::Lint,
                Share::LazyExplained,
            ]
            .map(|share| share.percent(explores_losses))
        };
        assert_eq!(ends(true), [35, 50, 70, 98]);
        // What follows, if anything, are second failures of guests.
        assert_eq!(ends(false), [60, 85, 90, 98]);
    }
}
