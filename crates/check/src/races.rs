//! Races: reads of recovery that are not safe, whether or not it survives them. `docs/design/races.md` has the route.
//!
//! At each failure point recovery runs once, on memory with every store before it, and its reads are watched:
//!
//! - a load of bytes that do not have the same value in all that the crash can have left is a
//!   *cross-failure race* (a choice of lazy exploration that is not followed);
//! - a read of bytes that a commit variable says are not valid is a *semantic bug*;
//! - a read of memory that was allocated and never written is an *uninitialised read*.
//!
//! If asked for, commit variables are inferred first ([`infer`]).
//!
//! Each pair of a reader and a writer, as lines of code, is one finding. Then it is tried whether it matters, at every
//! failure point at which it was seen ([`confirm`]): with the other value, and with the store there and others lost.
//! Where recovery fails, and fails again on that crash state without any exploration, the finding is an error with that
//! evidence. Otherwise it is a warning, or an error under the strict rule, unless recovery validates what it reads
//! ([`validated`]).
//!
//! ```text
//! points ──driver──▶ watch ──▶ suspect reads ──pairs──▶ pair ──confirm──▶ finding ──fold──▶ report
//! ```

mod confirm;
mod finding;
mod fold;
mod infer;
mod pairs;
mod points;
mod rerun;
mod shadows;
#[cfg(test)]
mod tests;
mod validated;
mod watch;

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

use powerfail_explore::FailurePoint;
use powerfail_finding::{Finding, InferredCommitVariable, Races};
use powerfail_model::{EventIndex, PoolIndex};
use powerfail_races::ShadowOptions;

use crate::crash::{Engine, Share};
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::lazy::driver::{Bounds, Progress, Round, RoundObserver, round};
use crate::lazy::executor::OracleExecutor;
use crate::lazy::reuse::{Changes, Reuse};
use crate::options::{CrashOptions, Inference, RaceOptions};
use crate::places::Places;
use confirm::ShownBy;
use infer::Inferred;
use pairs::{Pair, Pairs};
use shadows::{ShadowPass, WatchChanges};
use watch::{WatchSettings, WatchedPoint, watch};

pub(crate) use fold::{are_about_one_store, fold, fold_survivors, fold_unproven};

/// What a worker has: an executor, and the shadow at its position.
type WatchWorker<'w, 't> = (OracleExecutor<'w, 't>, ShadowPass<'t>);

/// How recovery is watched.
struct Watching<'a> {
    rules: &'a ShadowOptions,
    /// Commit variables that were inferred.
    benign: &'a [(PoolIndex, Range<u64>)],
    deadline: Option<Instant>,
}

/// The result of the races analysis.
#[derive(Debug, Default)]
pub(crate) struct RacesResult {
    pub(crate) findings: Vec<Finding>,
    /// Those that the loss of other stores shows.
    pub(crate) survivors: Vec<Finding>,
    pub(crate) races: Races,
    /// Distinct call stacks of the failure points.
    pub(crate) stacks: u64,
    pub(crate) notes: Vec<String>,
    /// Variables that seem to decide what recovery reads.
    pub(crate) commit_variables: Vec<InferredCommitVariable>,
    pub(crate) is_interrupted: bool,
}

impl Engine<'_, '_> {
    /// Watches what recovery reads at the failure points, and tries whether it matters.
    pub(crate) fn races(
        &mut self,
        options: &RaceOptions,
        crash: &CrashOptions,
        deadline: Option<Instant>,
        places: &mut Places<'_>,
    ) -> Result<RacesResult, CheckError> {
        let rules = self.runner.rules();
        self.begin_points();
        let mut points = points::of(self.trace, rules, crash, places)?;
        points.retain(|point| crash.wants_point(CheckStep::Races, point));
        if let Some(partition) = crash.partition {
            points.share(partition);
        }
        let moments: Vec<EventIndex> = points.moments().collect();
        self.learn(CheckStep::Races, &moments)?;
        let mut found = RacesResult {
            stacks: points.stacks as u64,
            ..RacesResult::default()
        };
        found.races.failure_points = points.moments().count() as u64;
        found.notes.extend(points.notes());
        let cross = ShadowOptions {
            rules: self.runner.rules(),
            strict: options.strict,
            commit_variables: options.commit_variables.clone(),
        };
        let mut inferred = Inferred::default();
        if options.infer.is_some() {
            inferred = self.infer(&points, deadline, places)?;
        }
        let is_used = options.infer == Some(Inference::Use);
        let benign = if is_used { &inferred.ranges[..] } else { &[] };
        let mut watching = Watching {
            rules: &cross,
            benign,
            deadline,
        };
        let progress = self.watch_all(&points, &watching)?;
        found.is_interrupted = progress.is_interrupted;
        count(&progress, &mut found);
        if options.alone
            && found.races.refused > 0
            && found.races.refused == progress.done()
            && let Some(reason) = progress.results.iter().find_map(|it| it.refused.clone())
        {
            return Err(CheckError::Unwatchable { reason });
        }
        found.races.executions += inferred.executions;
        found.commit_variables = inferred.variables;
        for variable in &mut found.commit_variables {
            variable.used = is_used;
        }
        let mut pairs = Pairs::of(self.trace, &progress, places)?;
        if options.confirm && !found.is_interrupted {
            let deadline = self.allow(Share::RacesConfirmed);
            // Pairs that nothing confirms must not use up the time in which recovery is seen to validate them.
            watching.deadline = deadline.map(|until| {
                let now = Instant::now();
                now + until.saturating_duration_since(now) / 2
            });
            let confirmed = self.confirm_pairs(&mut pairs, &watching, places, &mut found);
            let validated = match self.unless_interrupted(confirmed)? {
                Some(()) => self.find_validated(&mut pairs, deadline, &mut found),
                None => Err(CheckError::Interrupted),
            };
            if self.unless_interrupted(validated)?.is_none() {
                found.is_interrupted = true;
            }
        }
        found.races.pairs = pairs.all.len() as u64;
        let is_shown = |pair: &&Pair| !pair.is_validated && !pairs.is_said(pair);
        for pair in pairs.all.iter().filter(is_shown) {
            let finding = self.race_finding(pair, options.strict, places)?;
            match pair.shown_by {
                Some(ShownBy::Survivor) => found.survivors.push(finding),
                _ => found.findings.push(finding),
            }
        }
        found.races.confirmed = pairs.all.iter().filter(|it| it.is_error()).count() as u64;
        if found.is_interrupted {
            found
                .notes
                .push("stopped before the end: only the reads seen so far are reported".to_owned());
        }
        Ok(found)
    }

    /// Watches recovery at all failure points.
    fn watch_all(
        &mut self,
        points: &points::RacePoints,
        watching: &Watching<'_>,
    ) -> Result<Progress<WatchedPoint>, CheckError> {
        let step = (CheckStep::Races, points.moments().count() as u64);
        let mut progress: Progress<WatchedPoint> = Progress::default();
        for mut round_points in points.rounds(watching.deadline.is_some()) {
            if progress.is_over {
                break;
            }
            // What is watched at a point depends on the points after it, also on those of other shares.
            let mut moments: Vec<EventIndex> = round_points.iter().map(|it| it.at).collect();
            moments.extend(progress.results.iter().map(|it| it.at));
            moments.sort_unstable();
            round_points.retain(|point| points.is_own(point));
            let fill = self.runner.fill().map(|fill| fill.byte);
            let mut remarks = WatchChanges::new(self.trace, watching.rules)?;
            let rules = self.runner.rules();
            let changes = Changes::with(self.trace, rules, fill, &moments, &mut remarks)?;
            remarks.finish()?;
            self.watch_round(&round_points, &changes, watching, step, &mut progress)?;
        }
        self.runner.runs += progress.executions;
        Ok(progress)
    }

    /// Watches recovery at failure points, whatever is known of others.
    fn watch_again(
        &mut self,
        moments: &BTreeSet<EventIndex>,
        watching: &Watching<'_>,
    ) -> Result<Progress<WatchedPoint>, CheckError> {
        let points: Vec<FailurePoint> = moments.iter().map(|at| points::point_at(*at)).collect();
        let step = (CheckStep::Reasons, points.len() as u64);
        let mut progress: Progress<WatchedPoint> = Progress::default();
        self.watch_round(&points, &Changes::none(), watching, step, &mut progress)?;
        self.runner.runs += progress.executions;
        Ok(progress)
    }

    /// Watches recovery at the points of a round. `step` is what the observer is told, and the number of all points.
    fn watch_round(
        &mut self,
        points: &[FailurePoint],
        changes: &Changes,
        watching: &Watching<'_>,
        step: (CheckStep, u64),
        progress: &mut Progress<WatchedPoint>,
    ) -> Result<(), CheckError> {
        let contents = &*self.contents;
        let mut reuse = Reuse::new(changes, contents, progress.results.iter());
        let kill_handles = self.runner.kill_handles();
        let trace = self.trace;
        let executors = self.runner.executors(false)?.into_iter();
        let executors =
            executors.map(|executor| Ok((executor, ShadowPass::new(trace, watching.rules)?)));
        let executors: Vec<WatchWorker<'_, '_>> = executors.collect::<Result<_, CheckError>>()?;
        let settings = WatchSettings {
            contents,
            benign: watching.benign,
        };
        let observer = &mut *self.observer;
        let mut tick = |done| observer.tick(step.0, done, step.1);
        let this_round = Round {
            points,
            explore: &|(executor, shadow): &mut WatchWorker<'_, '_>,
                       point: &FailurePoint,
                       watched| {
                watch(executor, shadow.at(point.at)?, point, watched, &settings)
            },
            accept: &|_| (),
            bounds: Bounds {
                max_executions: None,
                deadline: watching.deadline,
            },
        };
        let mut round_observer = RoundObserver {
            tick: &mut tick,
            kill: &|| crate::runner::kill(&kill_handles),
        };
        round(
            executors,
            &this_round,
            &mut reuse,
            progress,
            &mut round_observer,
        )
    }
}

/// What was done, in numbers, and what limits it.
fn count(progress: &Progress<WatchedPoint>, found: &mut RacesResult) {
    let races = &mut found.races;
    races.unchanged = progress.unchanged;
    races.not_tried = races.failure_points - progress.done();
    races.executions = progress.executions;
    let mut refused = std::collections::BTreeMap::<&str, u64>::new();
    let mut failing = 0_u64;
    for watched in &progress.results {
        match &watched.refused {
            Some(reason) => *refused.entry(reason).or_default() += 1,
            None => races.watched += 1,
        }
        failing += u64::from(watched.failed.is_some());
        for warning in &watched.warnings {
            if !found.notes.contains(warning) {
                found.notes.push(warning.clone());
            }
        }
    }
    races.refused = refused.values().sum();
    for (reason, count) in refused {
        found.notes.push(format!(
            "at {} the reads of recovery cannot be watched: {reason}",
            points::counted(count)
        ));
    }
    if races.not_tried > 0 && !progress.is_interrupted {
        let left = points::counted(races.not_tried);
        found.notes.push(format!(
            "time was up: at {left} the reads of recovery were not watched"
        ));
    }
    if failing > 0 {
        found.notes.push(format!(
            "at {} recovery fails although every earlier store is durable, so not all of its reads were seen \
             there; powerfail crash shows why",
            points::counted(failing)
        ));
    }
}
