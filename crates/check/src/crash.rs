//! A crash test: recovery runs undisturbed first, then on the crash images of each strategy.
//!
//! This file is the order of the phases. Each phase has a file: `undisturbed.rs`, `prefix.rs`, `candidate.rs`,
//! `second.rs`, `lazy_findings.rs`, `losses.rs`, and outside of this folder `eager`, `lazy` and `races`. `finding.rs` makes
//! findings of failures, `shown_loads.rs` what recovery reads in them, `words.rs` has their sentences, `engine.rs` what all
//! phases share.

mod beside;
mod candidate;
mod engine;
mod finding;
mod interrupts;
mod lazy_findings;
mod losses;
mod oracle_test;
mod prefix;
mod second;
mod shown_loads;
mod undisturbed;
mod words;

pub(crate) use engine::{BoundedObserver, Clock, Engine, Share};
pub(crate) use finding::{Failed, evidence};
pub(crate) use lazy_findings::written;
pub(crate) use words::scope_note;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use powerfail_explore::{EagerOptions, Granularity};
use powerfail_finding::{Code, Coverage, Finding, NotChecked, Totals};
use powerfail_lint::{LintOptions, Linted};
use powerfail_model::EventIndex;
use powerfail_trace::{StackId, Trace};

use crate::content::ExpectedContents;
use crate::coverage::TriedStacks;
use crate::denials;
use crate::eager;
use crate::error::CheckError;
use crate::event::{CheckStep, Observer};
use crate::group::group;
use crate::lazy as exploration;
use crate::lint;
use crate::marks::add_marks;
use crate::options::{CrashOptions, LazyOptions, LazyTime, RaceOptions};
use crate::places::Places;
use crate::races;
use crate::runner::Runner;
use crate::share::own_items;
use oracle_test::OracleTest;
use undisturbed::UndisturbedRecovery;

/// How long lost and reordered lines are explored at least where no budget is given.
const SHARE_MIN: Duration = Duration::from_secs(30);

/// So many events are linted even if the time is up: that takes less than a second.
const LINTED_ANYWAY: u64 = 1 << 20;

/// How long recovery may take without a crash, even if the budget is less.
const UNDISTURBED_MIN: Duration = Duration::from_secs(10);

/// How long the report may take to finish when the time is up.
const FINISHING: Duration = Duration::from_secs(1);

/// The result of a crash test.
#[derive(Clone, Debug, Default)]
pub struct Crashed {
    /// The findings, those of the lint included.
    pub findings: Vec<Finding>,
    /// Counts of what was done.
    pub totals: Totals,
    /// What limits the result.
    pub notes: Vec<String>,
    /// The user has interrupted the run; the findings are those made before.
    pub is_interrupted: bool,
    /// It is known that what recovery does depends on the pools. False also if there was no time to find out.
    pub depends_on_pools: bool,
    /// How many threads of the workload store, of all its processes, as far as that is known.
    pub threads: usize,
    /// Which failure points were tried. Empty if a selection chose them.
    pub coverage: Coverage,
    /// The same while it is collected.
    pub(crate) tried: TriedStacks,
    /// Lines of code whose flush, fence or add did something. Empty if a selection chose what to try.
    pub(crate) needed: BTreeSet<NeededLine>,
}

/// A line of the sources that a finding of this kind must not call useless.
pub(crate) type NeededLine = (Code, String, u32);

/// The note about a run whose time was up.
const BUDGET_SPENT: &str =
    "the budget is spent: the report covers only what was tried until then; see --budget";

/// Lints the trace, lets the power fail as the options say, and groups the findings by root cause.
pub(crate) fn crash<'t>(
    trace: &'t Trace,
    options: &CrashOptions,
    lint_options: &LintOptions,
    runner: &mut Runner<'t>,
    observer: &mut dyn Observer,
) -> Result<Crashed, CheckError> {
    let clock = Clock {
        begun: options.begun.unwrap_or_else(Instant::now),
        budget: options.budget,
    };
    let end = clock.after(100);
    let mut bounded = BoundedObserver {
        observer,
        end: end.max(end.map(|_| Instant::now() + UNDISTURBED_MIN)),
    };
    let undisturbed = match options.undisturbed {
        Some(_) => None,
        None => match undisturbed::undisturbed(trace, runner, &mut bounded) {
            Err(CheckError::Interrupted) if !bounded.observer.is_interrupted() => {
                return Ok(without_time(trace, runner));
            }
            undisturbed => Some(undisturbed?),
        },
    };
    bounded.end = end;
    let each = match &undisturbed {
        Some(undisturbed) => undisturbed.each,
        None => options.undisturbed.unwrap_or_default(),
    };
    let opens_pool = undisturbed.as_ref().is_none_or(|it| it.opens_pool);
    let mut places = Places::new(trace, &lint_options.trust).of_domain(lint_options.domain);
    let events = trace.event_count();
    let ack = options.ack.as_ref();
    let mut contents = ExpectedContents::new(trace, ack, &mut |read| {
        (&mut bounded as &mut dyn Observer).read(trace, read);
    })?;
    contents.refuse_other_dump(undisturbed.as_ref().and_then(|it| it.dump.as_deref()))?;
    let mut crashed = Crashed::default();
    crashed.totals.events = events;
    let dumps = undisturbed.as_ref().is_some_and(|it| it.dump.is_some());
    crashed.notes.extend(contents.note(dumps));
    let notes_before_lint = crashed.notes.len();
    crashed.notes.extend(denied_note(undisturbed.as_ref()));
    if !opens_pool {
        crashed.totals.recovery_runs = runner.runs;
        let mut engine = Engine::new(trace, runner, &mut bounded, &mut contents, clock);
        let linted = engine.lint(lint_options, &mut crashed, &mut places)?;
        crashed.notes.extend(lint::note(&linted));
        return without_crashes(crashed, &linted, &mut places);
    }
    let mut engine = Engine::new(trace, runner, &mut bounded, &mut contents, clock);
    // Those that can be watched are those of guests.
    engine.has_slow_recoveries = options.watched.is_some();
    engine.explores_losses =
        options.lazy.is_some() || options.eager.is_some() || options.races.is_some();
    let linted = try_crashes(
        &mut engine,
        options,
        lint_options,
        each,
        &mut crashed,
        &mut places,
    )?;
    crashed
        .notes
        .splice(notes_before_lint..notes_before_lint, lint::note(&linted));
    let suspects = engine.runner.take_suspects();
    let tested = engine.test_oracle(undisturbed.as_ref(), options, &crashed)?;
    // A recovery that has failed can fail.
    let can_fail = has_failed(&crashed) || tested == Some(OracleTest::CanFail);
    crashed.depends_on_pools = can_fail || tested == Some(OracleTest::AcceptsAll);
    engine.weigh_losses(&linted, options, can_fail, places.remedy(), &mut crashed)?;
    races::fold_unproven(&mut crashed.findings);
    engine.join_beside(&linted, &mut crashed)?;
    let (is_stopped, untraced) = (engine.is_interrupted, engine.untraced);
    crashed.is_interrupted = (is_stopped || tested.is_some()) && bounded.observer.is_interrupted();
    if !crashed.is_interrupted {
        crashed.notes.extend(words::untraced_note(untraced));
    }
    if is_stopped && !crashed.is_interrupted {
        crashed.notes.push(BUDGET_SPENT.to_owned());
    }
    // What is known already is finished even if the time is up.
    let end = end.map(|end| end.max(Instant::now()) + FINISHING);
    crashed.notes.extend(contents.hidden_losses());
    group_findings(&mut crashed, &mut places, end)?;
    if options.selection.is_none() {
        crashed.threads = linted.threads;
        crashed.needed = places.needed_lines(&linted.needed);
        crashed.coverage = std::mem::take(&mut crashed.tried).named(&mut places);
    }
    if options.judges_oracle() && !crashed.is_interrupted {
        crashed.totals.not_checked = not_checked(&crashed.totals, options.tree.granularity);
    }
    if !crashed.is_interrupted {
        doubt_denials(&mut crashed, runner, &|| bounded.observer.is_interrupted())?;
    }
    if let Some(undisturbed) = &undisturbed {
        crashed
            .notes
            .extend(suspect_note(&suspects, &undisturbed.harmless_words));
    }
    if let Some(tested) = tested.filter(|_| !crashed.is_interrupted) {
        judge_oracle(tested, options, &mut crashed);
    }
    crashed.totals.recovery_runs = runner.runs;
    Ok(crashed)
}

/// Lets the power fail in each way that the options name, and lints the trace on the way.
fn try_crashes(
    engine: &mut Engine<'_, '_>,
    options: &CrashOptions,
    lint_options: &LintOptions,
    each: Duration,
    crashed: &mut Crashed,
    places: &mut Places<'_>,
) -> Result<Linted, CheckError> {
    let mut known = Vec::new();
    if options.prefix {
        engine.allow(Share::Crashes);
        let outcome = engine.prefix_crashes(options, each, crashed, places);
        known = engine.unless_interrupted(outcome)?.unwrap_or_default();
    }
    if let Some(eager) = &options.eager {
        engine.allow(Share::Lazy);
        let outcome = engine.eager_crashes(eager, options, crashed, places);
        engine.unless_interrupted(outcome)?;
    }
    // A crash can be tried at once, while the lint reads the whole trace first.
    let linted = if options.only_races() {
        Linted::default()
    } else {
        engine.lint(lint_options, crashed, places)?
    };
    engine.allow_candidates();
    engine.candidates(&linted, options, crashed, places)?;
    engine.add_acknowledged(crashed);
    if let Some(lazy) = options.lazy.as_ref().filter(|_| !engine.is_interrupted) {
        let until = engine.allow(match options.races {
            Some(_) => Share::LazyBeforeRaces,
            None => Share::Lazy,
        });
        let time = lazy_time(lazy.time, until, engine.clock.begun.elapsed());
        let limits = Limits { time, each };
        let outcome = engine.lazy_crashes(lazy, options, &limits, &known, crashed, places);
        engine.unless_interrupted(outcome)?;
        let joined = engine.join_second_rollbacks(&linted, &mut crashed.findings);
        engine.unless_interrupted(joined)?;
    }
    if let Some(races) = options.races.as_ref().filter(|_| !engine.is_interrupted) {
        let until = engine.allow(Share::Races);
        engine.watch_reads(races, options, until, crashed, places)?;
    }
    engine.fail_during_watched(options, crashed, places)?;
    Ok(linted)
}

/// The result if the time was up before recovery had run once.
fn without_time(trace: &Trace, runner: &Runner<'_>) -> Crashed {
    let mut crashed = Crashed::default();
    crashed.totals.events = trace.event_count();
    crashed.totals.recovery_runs = runner.runs;
    crashed.totals.not_checked = Some(NotChecked::NoTime);
    crashed.notes.push(BUDGET_SPENT.to_owned());
    crashed
}

/// What recovery was denied without any crash.
fn denied_note(undisturbed: Option<&UndisturbedRecovery>) -> Option<String> {
    let denied = undisturbed?.denied.as_ref()?;
    Some(format!("recovery was denied {denied}"))
}

/// Makes one finding of each root cause, and completes what its text says.
fn group_findings(
    crashed: &mut Crashed,
    places: &mut Places<'_>,
    end: Option<Instant>,
) -> Result<(), CheckError> {
    crashed.findings = group(std::mem::take(&mut crashed.findings));
    places.name_syncs(&mut crashed.findings)?;
    let is_late = || end.is_some_and(|end| Instant::now() >= end);
    if !add_marks(places.trace(), &mut crashed.findings, &is_late)? {
        crashed.notes.push(
            "the budget is spent: marks and operations of the program were not looked for; see --budget"
                .to_owned(),
        );
    }
    crashed.notes.extend(places.notes());
    Ok(())
}

/// Doubts failures that may come from what recovery was denied.
fn doubt_denials(
    crashed: &mut Crashed,
    runner: &mut Runner<'_>,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<(), CheckError> {
    let end = EventIndex(crashed.totals.events);
    match denials::doubt(crashed, runner, end, is_interrupted) {
        Err(CheckError::Interrupted) => crashed.is_interrupted = true,
        doubted => doubted?,
    }
    Ok(())
}

/// Whether a crash has shown that recovery fails.
fn has_failed(crashed: &Crashed) -> bool {
    crashed.findings.iter().any(|it| it.evidence.is_some())
}

/// The result if recovery does not open its pool: crashes would show nothing, but what the lint has proved holds.
fn without_crashes(
    mut crashed: Crashed,
    linted: &Linted,
    places: &mut Places<'_>,
) -> Result<Crashed, CheckError> {
    let proved = linted.hits.iter().filter(|hit| hit.confirmed);
    let findings: Result<Vec<Finding>, CheckError> =
        proved.map(|hit| lint::finding(hit, places)).collect();
    crashed.findings = group(findings?);
    places.name_syncs(&mut crashed.findings)?;
    add_marks(places.trace(), &mut crashed.findings, &|| false)?;
    crashed.notes.extend(places.notes());
    crashed.totals.not_checked = Some(NotChecked::PoolNotOpened);
    Ok(crashed)
}

/// Why nothing was checked, if that is so.
fn not_checked(totals: &Totals, granularity: Granularity) -> Option<NotChecked> {
    if totals.events == 0 {
        Some(NotChecked::NoStore)
    } else if totals.failure_points == 0 && !loses_lines(totals) {
        Some(match granularity {
            Granularity::FlushAndFence | Granularity::Store | Granularity::All => {
                NotChecked::NoFailurePoint
            }
            Granularity::Flush | Granularity::Fence | Granularity::Only(_) => {
                NotChecked::NoFailurePointOfKind
            }
        })
    } else if is_untried(totals) {
        Some(NotChecked::NoTime)
    } else {
        None
    }
}

/// Whether recovery has read lines that a crash can lose.
fn loses_lines(totals: &Totals) -> bool {
    let explored = totals.exploration.as_ref();
    explored.is_some_and(|it| it.choices > 0)
}

/// Whether no crash that loses lines was explored.
fn is_unexplored(totals: &Totals) -> bool {
    let explored = totals.exploration.as_ref();
    explored.is_none_or(|it| it.exhaustive + it.sampled + it.unchanged == 0)
}

/// Whether the time was up before any crash was tried.
fn is_untried(totals: &Totals) -> bool {
    let is_unwatched = totals.races.as_ref().is_none_or(|it| it.watched == 0);
    let is_lack_of_time = totals.failure_points_not_run.no_time > 0;
    is_lack_of_time
        && totals.failure_points_run == 0
        && is_unexplored(totals)
        && is_unwatched
        && totals.eager.is_none()
}

/// Says what it means for the result that recovery accepts changed pools.
fn judge_oracle(tested: OracleTest, options: &CrashOptions, crashed: &mut Crashed) {
    // Races and robustness are judged by what recovery reads.
    let races = crashed.totals.races.as_ref();
    let reads_are_judged = races.is_some_and(|it| it.watched > 0)
        || options.lazy.as_ref().is_some_and(|it| it.robustness);
    if tested == OracleTest::IgnoresAll && !reads_are_judged {
        crashed.totals.not_checked = Some(NotChecked::RecoveryCannotFail);
    } else if tested == OracleTest::Unfinished {
        crashed.notes.push(
            "the budget is spent: whether recovery can fail at all was not tested; see --budget"
                .to_owned(),
        );
    } else if tested != OracleTest::CanFail {
        crashed.notes.push(
            "it seems that this recovery cannot fail: it also accepts an empty pool, and data that was changed; let it check \
             what it recovers, or give a --checker"
                .to_owned(),
        );
    }
}

/// A note about lines that look like failures in what recovery writes after a crash, and only then.
pub(crate) fn suspect_note(
    suspects: &BTreeMap<String, String>,
    harmless_words: &BTreeSet<String>,
) -> Option<String> {
    let mut suspects = suspects.iter();
    let (word, line) = suspects.find(|(word, _)| !harmless_words.contains(*word))?;
    Some(format!(
        "recovery succeeded after a crash, but wrote a line that looks like a failure, and that it does not write without \
         a crash: `{}`; with --fail-pattern '(?i){word}' it counts as one",
        line.trim()
    ))
}

/// How long exploration may take, and how long one recovery takes.
struct Limits {
    time: Option<Duration>,
    each: Duration,
}

/// How long lost and reordered lines may be explored, after other crashes took `spent`. `until` is when their part of
/// the budget ends.
fn lazy_time(time: LazyTime, until: Option<Instant>, spent: Duration) -> Option<Duration> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    match (time, left) {
        (_, Some(left)) => Some(left),
        (LazyTime::Any | LazyTime::Budget, None) => None,
        (LazyTime::Share, None) => Some(SHARE_MIN.max(2 * spent)),
    }
}

impl Engine<'_, '_> {
    /// Lints the trace. If there is no time for all of it, nothing is concluded: what it lacks may be the flush of a store.
    fn lint(
        &mut self,
        options: &LintOptions,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<Linted, CheckError> {
        let until = self.allow(Share::Lint);
        let events = self.trace.event_count();
        let observer = &mut *self.observer;
        let linted = lint::found_while(self.trace, options, places, &mut |done| {
            let is_late = || until.is_some_and(|until| Instant::now() >= until);
            let is_allowed = observer.tick(CheckStep::Lint, done, events) && !is_late();
            is_allowed || done <= LINTED_ANYWAY || done == events
        })?;
        if let Some(linted) = linted {
            return Ok(linted);
        }
        self.is_interrupted |= self.observer.is_interrupted();
        crashed
            .notes
            .push("there was no time to lint the trace; see --budget".to_owned());
        Ok(Linted::default())
    }

    /// Lets the power fail in every segment, with every combination of what may survive.
    fn eager_crashes(
        &mut self,
        eager: &EagerOptions,
        options: &CrashOptions,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let explored = eager::explore(self, eager, options, places)?;
        crashed.findings.extend(explored.findings);
        let prefixes = prefix::once_for_each_stack(explored.prefixes);
        self.allow(Share::LazyExplained);
        crashed.findings.extend(self.explain(&prefixes, places)?);
        crashed.totals.failure_points = explored.eager.segments;
        crashed.totals.failure_point_stacks = explored.stacks;
        crashed.totals.failure_points_run = explored.segments_run;
        crashed.totals.eager = Some(explored.eager);
        crashed.notes.extend(explored.notes);
        Ok(())
    }

    /// Tests whether recovery can fail, if it has not failed and all of it is to be checked.
    fn test_oracle(
        &mut self,
        undisturbed: Option<&UndisturbedRecovery>,
        options: &CrashOptions,
        crashed: &Crashed,
    ) -> Result<Option<OracleTest>, CheckError> {
        let is_everything = !options.only_races() && options.judges_oracle();
        let is_open = not_checked(&crashed.totals, options.tree.granularity).is_none()
            && !self.is_interrupted;
        let Some(undisturbed) =
            undisturbed.filter(|_| is_open && is_everything && !has_failed(crashed))
        else {
            return Ok(None);
        };
        let can_watch = options.lazy.is_some() || options.races.is_some();
        let (runner, observer) = (&mut *self.runner, &mut *self.observer);
        let tested =
            oracle_test::oracle_test(self.trace, runner, undisturbed, can_watch, observer)?;
        // An interruption has ended the processes that run recovery.
        self.is_interrupted |= self.observer.is_interrupted();
        Ok(Some(tested))
    }

    /// Adds what the lint has proved, and confirms by crashes what it has not.
    fn candidates(
        &mut self,
        linted: &Linted,
        options: &CrashOptions,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let (mut unconfirmed, mut passed_over) = (0_u64, 0_u64);
        let costs: Vec<u64> = linted
            .hits
            .iter()
            .map(|it| (!it.confirmed).into())
            .collect();
        let own = options
            .partition
            .map(|partition| own_items(partition, &costs));
        for (number, hit) in linted.hits.iter().enumerate() {
            if !hit.confirmed && !options.wants_candidate(hit) {
                passed_over += 1;
                continue;
            }
            if !hit.confirmed && own.as_ref().is_some_and(|own| !own[number]) {
                continue;
            }
            let finding = if hit.confirmed {
                Some(lint::finding(hit, places)?)
            } else if hit.code == Code::StoreNotAdded {
                Some(self.confirm_rollback(hit, linted, places)?)
            } else {
                let confirmed = self.confirm(hit, places);
                let confirmed = self.unless_interrupted(confirmed)?;
                unconfirmed += u64::from(confirmed.is_none());
                confirmed.flatten()
            };
            if let Some(finding) = &finding {
                self.announce(finding);
            }
            crashed.findings.extend(finding);
        }
        let joined = self.join_rollbacks(linted, &mut crashed.findings);
        self.unless_interrupted(joined)?;
        if unconfirmed > 0 && self.is_late() {
            let what = words::suspicions_are(unconfirmed);
            crashed
                .notes
                .push(format!("the budget is spent: {what} not tried"));
        }
        if let Some(at) = options.at {
            crashed.notes.push(words::single_note(at, passed_over));
        }
        Ok(())
    }

    /// Explores lost and reordered lines, and explains the failures. `known` are those of prefix crashes.
    fn lazy_crashes(
        &mut self,
        lazy: &LazyOptions,
        options: &CrashOptions,
        limits: &Limits,
        known: &[(StackId, Code)],
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let explored = self.explore(lazy, options, limits, places);
        let Some(mut explored) = self.unless_interrupted(explored)? else {
            if self.is_late() {
                crashed.notes.push(
                    "there was no time to explore lost and reordered lines; see --budget"
                        .to_owned(),
                );
            }
            return Ok(());
        };
        let exploration = std::mem::take(&mut explored.exploration);
        for (stack, tries) in std::mem::take(&mut explored.tries) {
            crashed.tried.lost_lines(stack).add(tries);
        }
        let note = words::untried_note(&explored.untried, places)?;
        crashed.notes.extend(note);
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
        self.allow(match options.races {
            Some(_) => Share::LazyExplainedBeforeRaces,
            None => Share::LazyExplained,
        });
        self.explain_lazy(explored, known, crashed, places)
    }

    /// Explores lost and reordered lines.
    fn explore(
        &mut self,
        lazy: &LazyOptions,
        options: &CrashOptions,
        limits: &Limits,
        places: &mut Places<'_>,
    ) -> Result<exploration::LazyResult, CheckError> {
        self.begin_points();
        let is_stopped = || self.is_late() || self.observer.is_interrupted();
        let mut points =
            exploration::LazyPoints::of(self.trace, self.runner, options, &is_stopped)?;
        points.retain(|point| options.wants_point(CheckStep::Lazy, point));
        let (new, _) = options.new_stacks(points.stacks(), places);
        points.prefer(&new);
        if let Some(partition) = options.partition {
            points.share(self.trace, self.runner.rules(), partition)?;
        }
        let moments: Vec<EventIndex> = points.moments().collect();
        self.learn(CheckStep::Lazy, &moments)?;
        exploration::explore(
            self.trace,
            self.runner,
            &points,
            self.contents,
            &exploration::LazyLimits {
                options: lazy,
                time: limits.time,
                each: limits.each,
                seed: options.tree.seed,
            },
            self.observer,
        )
    }

    /// Watches the reads of recovery, and folds what they show into the findings.
    fn watch_reads(
        &mut self,
        races: &RaceOptions,
        options: &CrashOptions,
        until: Option<Instant>,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let found = self.races(races, options, until, places);
        let Some(found) = self.unless_interrupted(found)? else {
            return Ok(());
        };
        self.is_interrupted |= found.is_interrupted;
        if options.only_races() {
            let totals = &mut crashed.totals;
            totals.failure_points = found.races.failure_points;
            totals.failure_point_stacks = found.stacks;
            totals.failure_points_run = found.races.watched;
        }
        crashed.totals.races = Some(found.races);
        crashed.totals.commit_variables = found.commit_variables;
        for note in found.notes {
            // Exploration may have said the same already.
            if !crashed.notes.contains(&note) {
                crashed.notes.push(note);
            }
        }
        for finding in found.findings.iter().chain(&found.survivors) {
            self.announce(finding);
        }
        races::fold(&mut crashed.findings, found.findings);
        races::fold_survivors(&mut crashed.findings, found.survivors);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use powerfail_finding::{Exploration, NotChecked, Totals};

    use super::Granularity;

    #[test]
    fn without_time_for_one_crash_nothing_was_checked() {
        let not_checked = |totals: &Totals| super::not_checked(totals, Granularity::default());
        let mut totals = Totals {
            events: 10,
            failure_points: 4,
            ..Totals::default()
        };
        totals.failure_points_not_run.no_time = 3;
        totals.exploration = Some(Exploration::default());
        assert_eq!(not_checked(&totals), Some(NotChecked::NoTime));
        let mut ran = totals.clone();
        ran.failure_points_run = 1;
        assert_eq!(not_checked(&ran), None);
        let mut explored = totals.clone();
        explored.exploration.get_or_insert_default().sampled = 1;
        assert_eq!(not_checked(&explored), None);
        // No moment is of the kind that was asked for, but lost lines were explored.
        explored.failure_points = 0;
        explored.exploration.get_or_insert_default().choices = 1;
        assert_eq!(not_checked(&explored), None);
        // Nothing was lost.
        explored.exploration.get_or_insert_default().choices = 0;
        assert_eq!(not_checked(&explored), Some(NotChecked::NoFailurePoint));
        let of_kind = super::not_checked(&explored, Granularity::Flush);
        assert_eq!(of_kind, Some(NotChecked::NoFailurePointOfKind));
        // A share without work has had all the time that it needs.
        totals.failure_points_not_run.no_time = 0;
        assert_eq!(not_checked(&totals), None);
    }
}
