//! The power fails: undisturbed first, then at the chosen failure points, then the reasons.

mod lazy_findings;

pub(crate) use lazy_findings::written;

use std::time::{Duration, Instant};

use powerfail_explore::{
    EagerOptions, FailurePointsByStack, Plan, PlanOptions, PlannedPoint, runs_within,
};
use powerfail_finding::{
    Code, Evidence, FailurePoint, Finding, LostLine, Role, SourcePlace, Totals,
};
use powerfail_lint::Linted;
use powerfail_model::{CrashState, EventIndex, LineId};
use powerfail_trace::{StackId, Trace};

use crate::confirm;
use crate::content::Contents;
use crate::diagnose::{Diagnosis, Jury};
use crate::eager;
use crate::error::{CheckError, Undisturbed};
use crate::group::group;
use crate::lazy;
use crate::lint;
use crate::options::{CrashOptions, LazyOptions, LazyTime, Observer, Step};
use crate::places::Places;
use crate::races;
use crate::reason::{Direction, Search};
use crate::runner::{Runner, Trial, TrialState, Tried};
use crate::symptom::{Symptom, symptom_of};

/// Of acknowledgements with the same call stack, how many are tried.
const ACKNOWLEDGEMENTS_MAX: usize = 64;

/// How long lost and reordered lines are explored at least where nobody says how long crashes may take.
const SHARE_MIN: Duration = Duration::from_secs(30);

/// What crashes have shown.
#[derive(Clone, Debug)]
pub struct Crashed {
    /// The findings, those of the lint included.
    pub findings: Vec<Finding>,
    /// What was done.
    pub totals: Totals,
    /// Whatever limits what was done.
    pub notes: Vec<String>,
    /// The user has stopped it, and this is what was found until then.
    pub is_interrupted: bool,
}

/// A failure point at which something went wrong.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) trial: Trial,
    pub(crate) state: CrashState,
    pub(crate) stack: StackId,
    pub(crate) symptom: Symptom,
    pub(crate) count: u64,
}

/// Lets the power fail at the failure points of a trace, and gives what that shows, together with what
/// the lint says.
pub fn crash<'t>(
    trace: &'t Trace,
    options: &CrashOptions,
    runner: &mut Runner<'t>,
    observer: &mut dyn Observer,
) -> Result<Crashed, CheckError> {
    let each = match options.undisturbed {
        Some(each) => each,
        None => undisturbed(trace, runner, observer)?,
    };
    let mut places = Places::new(trace, &options.lint.trust);
    let events = trace.event_count();
    let linted = if options.only_races() {
        Linted::default()
    } else {
        lint::found(trace, &options.lint, &mut places, &mut |done| {
            observer.progress(Step::Lint, done, events);
        })?
    };
    let jobs = runner.job_count();
    let limit = options.budget.map(|budget| runs_within(budget, each, jobs));
    let mut contents = Contents::new(trace, options.ack.as_ref())?;
    let mut crashed = Crashed {
        findings: Vec::new(),
        totals: Totals {
            events,
            ..Totals::default()
        },
        notes: Vec::new(),
        is_interrupted: false,
    };
    crashed.notes.extend(contents.note());
    crashed.notes.extend(lint::note(&linted));
    let begun = Instant::now();
    let mut bench = Bench {
        trace,
        runner,
        observer,
        contents: &mut contents,
        is_interrupted: false,
    };
    let mut known = Vec::new();
    if options.prefix {
        known = bench.prefix_crashes(options, limit, each, &mut crashed, &mut places)?;
    }
    if let Some(eager) = &options.eager {
        bench.eager_crashes(eager, options.budget, &mut crashed, &mut places)?;
    }
    let selection = options.selection.as_deref();
    for hit in &linted.hits {
        if !hit.confirmed && selection.is_some_and(|it| !it.wants_candidate(hit)) {
            continue;
        }
        let finding = if hit.confirmed {
            Some(lint::finding(hit, &mut places))
        } else if hit.code == Code::StoreNotAdded {
            Some(bench.confirm_rollback(hit, &mut places)?)
        } else if bench.is_interrupted {
            None
        } else {
            bench.confirm(hit, &mut places)?
        };
        crashed.findings.extend(finding);
    }
    if let Some(lazy) = options.lazy.as_ref().filter(|_| !bench.is_interrupted) {
        let time = lazy_time(lazy.time, options.budget, begun.elapsed());
        let explored = bench.explore(lazy, options, time, each);
        if let Some(mut explored) = bench.go_on(explored)? {
            let exploration = std::mem::take(&mut explored.exploration);
            if !options.prefix {
                let totals = &mut crashed.totals;
                totals.failure_points = exploration.failure_points;
                totals.failure_point_stacks = explored.stack_count;
                totals.failure_points_run =
                    exploration.exhaustive + exploration.sampled - exploration.unchanged;
                let note = scope_note(explored.out_of_scope, "failure point");
                crashed.notes.extend(note);
            }
            crashed.totals.exploration = Some(exploration);
            bench.explain_lazy(explored, &known, &mut crashed, &mut places)?;
        }
    }
    if let Some(races) = options.races.as_ref().filter(|_| !bench.is_interrupted) {
        let spent = begun.elapsed();
        let time = options.budget.map(|budget| budget.saturating_sub(spent));
        let found = bench.races(races, options, time, &mut places);
        if let Some(found) = bench.go_on(found)? {
            bench.is_interrupted |= found.is_interrupted;
            if options.only_races() {
                let totals = &mut crashed.totals;
                totals.failure_points = found.races.failure_points;
                totals.failure_point_stacks = found.stacks;
                totals.failure_points_run = found.races.watched;
            }
            crashed.totals.races = Some(found.races);
            crashed.totals.commit_variables = found.commit_variables;
            // What watching cannot see, exploration may not have seen either.
            let is_new = |note: &String| !crashed.notes.contains(note);
            let notes: Vec<String> = found.notes.into_iter().filter(is_new).collect();
            crashed.notes.extend(notes);
            races::fold(&mut crashed.findings, found.findings);
        }
    }
    crashed.is_interrupted = bench.is_interrupted;
    crashed.totals.recovery_runs = runner.runs;
    crashed.findings = group(crashed.findings);
    Ok(crashed)
}

/// How long lost and reordered lines may be explored, after other crashes took `spent`.
fn lazy_time(time: LazyTime, budget: Option<Duration>, spent: Duration) -> Option<Duration> {
    match (time, budget) {
        (LazyTime::Any, _) | (LazyTime::Budget, None) => None,
        (LazyTime::Budget, Some(budget)) => Some(budget.saturating_sub(spent)),
        (LazyTime::Share, Some(budget)) => Some(budget.saturating_sub(spent) / 2),
        (LazyTime::Share, None) => Some(SHARE_MIN.max(2 * spent)),
    }
}

/// Recovery must succeed where no crash is to blame. Gives how long a recovery takes.
fn undisturbed(
    trace: &Trace,
    runner: &mut Runner<'_>,
    observer: &mut dyn Observer,
) -> Result<Duration, CheckError> {
    const TIMES: usize = 2;
    observer.progress(Step::Undisturbed, 0, 2);
    let end = Trial::prefix(EventIndex(trace.event_count()));
    let begun = Instant::now();
    let verdicts = runner.run_in_a_row(&end, TIMES)?;
    let each = begun.elapsed() / TIMES as u32;
    let images = [Undisturbed::Final, Undisturbed::FinalAgain];
    for (image, verdict) in images.into_iter().zip(&verdicts) {
        if let Some(symptom) = symptom_of(verdict) {
            return Err(CheckError::Undisturbed {
                image,
                outcome: Box::new(symptom.outcome),
            });
        }
    }
    observer.progress(Step::Undisturbed, 1, 2);
    // A pool that had content existed before.
    if trace.initial_images().next_run()?.is_some() {
        let verdicts = runner.run_in_a_row(&Trial::prefix(EventIndex(0)), 1)?;
        if let Some(symptom) = verdicts.first().and_then(symptom_of) {
            return Err(CheckError::Undisturbed {
                image: Undisturbed::Initial,
                outcome: Box::new(symptom.outcome),
            });
        }
    }
    Ok(each)
}

fn trials_of(plan: &Plan, contents: &Contents, dumps: bool) -> Vec<Trial> {
    let mut trials: Vec<Trial> = plan
        .points
        .iter()
        .map(|planned| Trial::prefix(planned.point.at))
        .collect();
    if dumps {
        // What was acknowledged must be among what is surely durable.
        let operations: Vec<_> = contents.operations().collect();
        let every = operations.len().div_ceil(ACKNOWLEDGEMENTS_MAX).max(1);
        let chosen = operations.iter().step_by(every).chain(operations.last());
        trials.extend(chosen.map(|operation| Trial {
            at: operation.end,
            state: TrialState::Floors,
        }));
    }
    trials
}

fn notes(plan: &Plan) -> Vec<String> {
    let left_out = plan.left_out;
    let mut notes = Vec::new();
    if left_out.over_limit > 0 {
        notes.push(format!(
            "the budget leaves out {} failure points; of {} call stacks none is tried",
            left_out.over_limit, left_out.stacks_over_limit
        ));
    }
    if left_out.in_creation > 0 {
        notes.push(format!(
            "{} failure points while PMDK creates a pool are left out; --include-create tries them",
            left_out.in_creation
        ));
    }
    notes.extend(scope_note(left_out.out_of_scope, "failure point"));
    notes
}

/// What annotations leave out, if they do; `what` is the word for one of them.
pub(crate) fn scope_note(count: u64, what: &str) -> Option<String> {
    let plural = if count == 1 { "" } else { "s" };
    (count > 0).then(|| format!("annotations of the program leave out {count} {what}{plural}"))
}

/// What all phases need.
pub(crate) struct Bench<'b, 't> {
    pub(crate) trace: &'t Trace,
    pub(crate) runner: &'b mut Runner<'t>,
    pub(crate) observer: &'b mut dyn Observer,
    pub(crate) contents: &'b mut Contents,
    /// Nothing can be run any more.
    pub(crate) is_interrupted: bool,
}

impl Jury for Bench<'_, '_> {
    fn judge_all(&mut self, trials: &[Trial]) -> Result<Vec<Option<Symptom>>, CheckError> {
        let tried = self.run(Step::Reasons, trials)?;
        let tried = trials.iter().zip(&tried);
        Ok(tried
            .map(|(trial, tried)| self.judge(trial, tried))
            .collect())
    }
}

impl Bench<'_, '_> {
    /// Lets the power fail at the failure points of the tree, with every store before them durable. Gives
    /// the kinds of failures, by call stack.
    fn prefix_crashes(
        &mut self,
        options: &CrashOptions,
        limit: Option<usize>,
        each: Duration,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<Vec<(StackId, Code)>, CheckError> {
        let events = self.trace.event_count();
        self.observer.progress(Step::Points, 0, events);
        let mut tree = FailurePointsByStack::of(self.trace, options.tree)?;
        tree.retain(|point| options.wants_point(Step::Crashes, point));
        let plan = Plan::of(
            &tree,
            PlanOptions {
                limit,
                keep_equal_images: false,
            },
        );
        let trials = trials_of(&plan, self.contents, self.runner.dumps());
        let jobs = self.runner.job_count();
        let estimate = each * u32::try_from(trials.len() / jobs).unwrap_or(u32::MAX);
        let points = tree.point_count();
        crashed.totals.failure_points = points;
        crashed.totals.failure_point_stacks = tree.stacks().len() as u64;
        self.observer.plan(trials.len() as u64, points, estimate);
        crashed.totals.failure_points_run = plan.points.len() as u64;
        crashed.notes.extend(notes(&plan));
        let tried = self.run(Step::Crashes, &trials)?;
        let failed = self.failures(&trials, &tried, &plan.points)?;
        let known = failed.iter().map(|it| (it.stack, it.symptom.code));
        let known = known.collect();
        crashed.findings.extend(self.explain(failed, places)?);
        Ok(known)
    }

    /// Lets the power fail in every segment, with every combination of what may survive.
    fn eager_crashes(
        &mut self,
        options: &EagerOptions,
        budget: Option<Duration>,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let explored = eager::explore(self, options, budget, places)?;
        crashed.findings.extend(explored.findings);
        let prefixes = once_for_each_stack(explored.prefixes);
        crashed.findings.extend(self.explain(prefixes, places)?);
        crashed.totals.failure_points = explored.eager.segments;
        crashed.totals.failure_point_stacks = explored.stacks;
        crashed.totals.failure_points_run = explored.eager.segments;
        crashed.totals.eager = Some(explored.eager);
        crashed.notes.extend(explored.notes);
        Ok(())
    }

    /// Notes that the user has stopped something: what was found until then is reported all the same.
    pub(crate) fn go_on<T>(
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

    /// A failure of which nothing is known but that it is there.
    pub(crate) fn undiagnosed(
        &mut self,
        failed: &Failed,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let mut found = Vec::new();
        if let Some(store) = self.first_lost_store(failed)? {
            found.push(places.of_event(Role::Store, store)?);
        }
        found.push(places.of_event(Role::Failure, failed.trial.at)?);
        let code = failed.symptom.code;
        Ok(Finding {
            id: String::new(),
            code,
            class: code.class(),
            severity: code.severity(),
            message: message(code, &found),
            count: failed.count,
            places: found,
            suggestion: None,
            evidence: Some(evidence(failed, self.runner.line_bytes())),
            read: None,
        })
    }

    /// The finding of a diagnosis, with where recovery was.
    pub(crate) fn diagnosed(
        &mut self,
        diagnosis: &Diagnosis,
        count: u64,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let mut finding = diagnosis.finding(places, self.runner.line_bytes(), count)?;
        let backtrace = match diagnosis.symptom.code {
            Code::RecoveryCrashes => self.runner.backtrace(&Trial {
                at: diagnosis.at,
                state: TrialState::Exactly(diagnosis.state.clone()),
            })?,
            _ => diagnosis.symptom.backtrace.clone(),
        };
        let recovery = backtrace.map(|backtrace| places.of_backtrace(Role::Recovery, &backtrace));
        finding.places.extend(recovery);
        Ok(finding)
    }

    /// Runs trials, and whatever is needed to judge them.
    fn run(&mut self, step: Step, trials: &[Trial]) -> Result<Vec<Tried>, CheckError> {
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

    /// Explores lost and reordered lines.
    fn explore(
        &mut self,
        lazy: &LazyOptions,
        options: &CrashOptions,
        time: Option<Duration>,
        each: Duration,
    ) -> Result<lazy::LazyResult, CheckError> {
        let mut points = lazy::LazyPoints::of(self.trace, self.runner, options.tree)?;
        points.retain(|point| options.wants_point(Step::Lazy, point));
        let moments: Vec<EventIndex> = points.moments().collect();
        self.learn(Step::Lazy, &moments)?;
        lazy::explore(
            self.trace,
            self.runner,
            &points,
            self.contents,
            &lazy::LazyLimits {
                options: lazy,
                time,
                each,
                seed: options.tree.seed,
            },
            self.observer,
        )
    }

    fn run_all(&mut self, step: Step, trials: &[Trial]) -> Result<Vec<Tried>, CheckError> {
        if trials.is_empty() {
            return Ok(Vec::new());
        }
        if self.is_interrupted {
            return Err(CheckError::Interrupted);
        }
        let of = trials.len() as u64;
        let observer = std::cell::RefCell::new(&mut *self.observer);
        self.runner.run(
            trials,
            &|| observer.borrow().is_interrupted(),
            &mut |done| observer.borrow_mut().progress(step, done, of),
        )
    }

    pub(crate) fn judge(&self, trial: &Trial, tried: &Tried) -> Option<Symptom> {
        self.contents.judge(trial.at, tried.verdict.as_ref()?)
    }

    /// The trials that failed, one for each kind of failure at each call stack.
    fn failures(
        &mut self,
        trials: &[Trial],
        tried: &[Tried],
        points: &[PlannedPoint],
    ) -> Result<Vec<Failed>, CheckError> {
        let mut failed: Vec<Failed> = Vec::new();
        for (number, (trial, tried)) in trials.iter().zip(tried).enumerate() {
            let Some(symptom) = self.judge(trial, tried) else {
                continue;
            };
            // Where nothing can be lost, all that is sure is all that there is.
            let trial = if tried.state.versions.is_empty() {
                &Trial::prefix(trial.at)
            } else {
                trial
            };
            let planned = points.get(number);
            let stack = match planned {
                Some(planned) => planned.point.stack,
                None => self.stack_before(trial.at)?,
            };
            let count = 1 + planned.map_or(0, |planned| planned.equal_images);
            let is_floor = |trial: &Trial| matches!(trial.state, TrialState::Floors);
            let same = failed.iter_mut().find(|known| {
                known.stack == stack
                    && known.symptom.code == symptom.code
                    && is_floor(&known.trial) == is_floor(trial)
            });
            match same {
                Some(known) => known.count += count,
                None => failed.push(Failed {
                    trial: trial.clone(),
                    state: tried.state.clone(),
                    stack,
                    symptom,
                    count,
                }),
            }
        }
        Ok(failed)
    }

    fn stack_before(&self, at: EventIndex) -> Result<StackId, CheckError> {
        self.stack_of(EventIndex(at.0.saturating_sub(1)))
    }

    /// The call stack of an event.
    pub(crate) fn stack_of(&self, event: EventIndex) -> Result<StackId, CheckError> {
        let mut records = self.trace.records_from(event);
        Ok(records.next_record()?.map_or(StackId::NONE, |it| it.stack))
    }

    /// Traces failures back to stores.
    fn explain(
        &mut self,
        failed: Vec<Failed>,
        places: &mut Places<'_>,
    ) -> Result<Vec<Finding>, CheckError> {
        let (floors, prefixes): (Vec<Failed>, Vec<Failed>) = failed
            .into_iter()
            .partition(|failed| matches!(failed.trial.state, TrialState::Floors));
        let mut searches = Vec::new();
        for failed in &prefixes {
            for direction in [Direction::Before, Direction::After] {
                searches.push(Search::new(self.trace, direction, failed.trial.at)?);
            }
        }
        self.search(&mut searches)?;
        let mut findings = Vec::new();
        for (failed, pair) in prefixes.iter().zip(searches.chunks_exact(2)) {
            findings.push(self.prefix_finding(failed, &pair[0], &pair[1], places)?);
        }
        for failed in &floors {
            findings.push(self.floor_finding(failed, places)?);
        }
        Ok(findings)
    }

    /// Lets all searches go on until they are over.
    fn search(&mut self, searches: &mut [Search]) -> Result<(), CheckError> {
        loop {
            let mut trials = Vec::new();
            let mut owners = Vec::new();
            for (owner, search) in searches.iter().enumerate() {
                for (distance, at) in search.probes() {
                    trials.push(Trial::prefix(at));
                    owners.push((owner, distance));
                }
            }
            if trials.is_empty() {
                return Ok(());
            }
            let tried = self.run(Step::Reasons, &trials)?;
            let mut answers = vec![Vec::new(); searches.len()];
            for ((owner, distance), (trial, tried)) in owners.iter().zip(trials.iter().zip(&tried))
            {
                answers[*owner].push((*distance, self.judge(trial, tried).is_none()));
            }
            for (search, answers) in searches.iter_mut().zip(&answers) {
                if !answers.is_empty() {
                    search.answer(answers);
                }
            }
        }
    }

    fn prefix_finding(
        &mut self,
        failed: &Failed,
        before: &Search,
        after: &Search,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let mut found = Vec::new();
        let lost = after.store().or_else(|| after.nearest_store());
        if let Some(lost) = lost {
            found.push(places.of_event(Role::Store, lost)?);
        }
        if let Some(survivor) = before.store() {
            found.push(places.of_event(Role::Survivor, survivor)?);
        }
        found.push(places.of_event(Role::Failure, failed.trial.at)?);
        let message = message(failed.symptom.code, &found);
        let suggestion = match (found.first(), before.store()) {
            (Some(lost), Some(_)) if lost.role == Role::Store => Some(format!(
                "make {} durable together with what came before it, or order them so that recovery \
                 can tell",
                name_of(lost)
            )),
            _ => None,
        };
        let mut evidence = evidence(failed, self.runner.line_bytes());
        evidence.last_good_event = before.good_moment().map(|at| at.0);
        evidence.next_good_event = after.good_moment().map(|at| at.0);
        self.finish(failed, found, message, suggestion, evidence, places)
    }

    /// What was lost though it was acknowledged: the newest stores that are not surely durable.
    fn floor_finding(
        &mut self,
        failed: &Failed,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let mut found = Vec::new();
        if let Some(store) = self.first_lost_store(failed)? {
            found.push(places.of_event(Role::Store, store)?);
        }
        let said = EventIndex(failed.trial.at.0.saturating_sub(1));
        found.push(places.of_event(Role::Failure, said)?);
        let message = message(failed.symptom.code, &found);
        let suggestion = found
            .first()
            .filter(|place| place.role == Role::Store)
            .map(|lost| {
                format!(
                    "flush {} and fence before it is acknowledged",
                    name_of(lost)
                )
            });
        let evidence = evidence(failed, self.runner.line_bytes());
        self.finish(failed, found, message, suggestion, evidence, places)
    }

    /// The oldest store that the crash state of a failure lost.
    fn first_lost_store(&self, failed: &Failed) -> Result<Option<EventIndex>, CheckError> {
        const EVENTS_MAX: u64 = 1 << 18;
        let lost: std::collections::BTreeSet<LineId> = failed
            .state
            .versions
            .iter()
            .map(|(line, _)| *line)
            .collect();
        let start = failed.trial.at.0.saturating_sub(EVENTS_MAX);
        let mut records = self.trace.records_from(EventIndex(start));
        let mut newest = std::collections::BTreeMap::new();
        while let Some(record) = records.next_record()? {
            if record.index >= failed.trial.at {
                break;
            }
            let Some(step) = record.step() else { continue };
            if let powerfail_model::Event::Store { at, bytes, .. } = step.event {
                let line_bytes = self.runner.line_bytes();
                let first = at.offset.0 / line_bytes;
                let end = (at.offset.0 + (bytes.len() as u64).max(1) - 1) / line_bytes;
                for line in first..=end {
                    let id = LineId {
                        pool: at.pool,
                        line: powerfail_model::LineIndex(line),
                    };
                    if lost.contains(&id) {
                        newest.insert(id, record.index);
                    }
                }
            }
        }
        Ok(newest.values().min().copied())
    }

    fn finish(
        &mut self,
        failed: &Failed,
        mut found: Vec<SourcePlace>,
        message: String,
        suggestion: Option<String>,
        evidence: Evidence,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let backtrace = self.backtrace_of(failed)?;
        if let Some(backtrace) = &backtrace {
            found.push(places.of_backtrace(Role::Recovery, backtrace));
        }
        let code = failed.symptom.code;
        Ok(Finding {
            id: String::new(),
            code,
            class: code.class(),
            severity: code.severity(),
            message,
            count: failed.count,
            places: found,
            suggestion,
            evidence: Some(evidence),
            read: None,
        })
    }

    /// Where recovery was when it failed.
    pub(crate) fn backtrace_of(
        &mut self,
        failed: &Failed,
    ) -> Result<Option<powerfail_oracle::Backtrace>, CheckError> {
        match failed.symptom.code {
            Code::RecoveryCrashes if !self.is_interrupted => {
                let state = match &failed.trial.state {
                    again @ TrialState::Again(..) => again.clone(),
                    _ => TrialState::Exactly(failed.state.clone()),
                };
                self.runner.backtrace(&Trial {
                    at: failed.trial.at,
                    state,
                })
            }
            _ => Ok(failed.symptom.backtrace.clone()),
        }
    }

    /// Tries whether recovery misses what a candidate of the lint says may be lost.
    fn confirm(
        &mut self,
        hit: &powerfail_lint::Hit,
        places: &mut Places<'_>,
    ) -> Result<Option<Finding>, CheckError> {
        let rules = self.runner.rules();
        let trials = confirm::trials(self.trace, rules, hit)?;
        let tried = self.run(Step::Reasons, &trials)?;
        for (trial, tried) in trials.iter().zip(&tried) {
            // Where even the state with nothing lost fails, the loss is not to blame.
            let Some(symptom) = self.judge(trial, tried) else {
                continue;
            };
            let whole = Trial::prefix(trial.at);
            let with_all = self.run(Step::Reasons, std::slice::from_ref(&whole))?;
            if self.judge(&whole, &with_all[0]).is_some() {
                continue;
            }
            let mut finding = lint::finding(hit, places);
            let failed = Failed {
                trial: trial.clone(),
                state: tried.state.clone(),
                stack: StackId::NONE,
                symptom,
                count: 1,
            };
            finding.evidence = Some(evidence(&failed, self.runner.line_bytes()));
            return Ok(Some(finding));
        }
        Ok(None)
    }
}

/// One failure for each call stack and kind.
fn once_for_each_stack(all: Vec<Failed>) -> Vec<Failed> {
    let mut once: Vec<Failed> = Vec::new();
    for failed in all {
        let same = once
            .iter_mut()
            .find(|known| known.stack == failed.stack && known.symptom.code == failed.symptom.code);
        match same {
            Some(known) => known.count += failed.count,
            None => once.push(failed),
        }
    }
    once
}

pub(crate) fn evidence(failed: &Failed, line_bytes: u64) -> Evidence {
    let lost = failed
        .state
        .versions
        .iter()
        .map(|(line, version)| LostLine {
            pool: line.pool.0,
            pool_offset: line.line.0 * line_bytes,
            version: *version,
        });
    Evidence {
        failure: FailurePoint {
            event: failed.trial.at.0,
            lost_lines: lost.collect(),
            again: None,
            filled: Vec::new(),
        },
        recovery: failed.symptom.outcome.clone(),
        last_good_event: None,
        next_good_event: None,
        trace: None,
        difference: failed.symptom.difference.clone(),
        choices: Vec::new(),
    }
}

fn name_of(place: &SourcePlace) -> String {
    match (&place.file, place.line) {
        (Some(file), Some(line)) => {
            let name = file.rsplit('/').next().unwrap_or(file);
            format!("the store at {name}:{line}")
        }
        _ => "the store that is lost".into(),
    }
}

fn message(code: Code, places: &[SourcePlace]) -> String {
    let failure = places.iter().find(|place| place.role == Role::Failure);
    let function = failure.and_then(|place| place.function.as_deref());
    let moment = function.map_or_else(
        || "if the power fails at this moment".to_owned(),
        |function| format!("if the power fails in {function}"),
    );
    match code {
        Code::RecoveryCrashes => format!("recovery crashes {moment}"),
        Code::RecoveryHangs => format!("recovery hangs {moment}"),
        Code::CheckerRejects => format!("the checker rejects what is recovered {moment}"),
        Code::ContentTorn => {
            format!("what is recovered is neither the old nor the new content {moment}")
        }
        Code::AcknowledgedLost => format!("an acknowledged operation is lost {moment}"),
        _ => format!("recovery fails {moment}"),
    }
}
