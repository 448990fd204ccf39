//! Eager exploration: recovery runs on every combination of what may survive, or on a sample of them.
//!
//! ```text
//! survey ──▶ table, plan ──states──▶ runner ──verdicts──▶ failures ──diagnose──▶ findings
//! ```
//!
//! States are made while they run, so that any number of them takes the memory of a few; what is kept of
//! those that fail is one for each kind. Under a budget one state of each update behaviour runs first.

mod failures;
mod reads;
mod rounds;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use powerfail_explore::{
    EagerOptions, EagerState, EagerStates, GroupId, Representatives, SegmentCount, Survey,
    runs_within,
};
use powerfail_finding::{Eager, EagerReads, Finding};
use powerfail_image::PoolImages;
use powerfail_model::{CrashState, EventIndex};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::crash::{Engine, Failed, Share};
use crate::diagnose::{Cause, Diagnosis, Failing, diagnose};
use crate::error::CheckError;
use crate::event::{CheckEvent, CheckStep};
use crate::options::CrashOptions;
use crate::places::Places;
use crate::runner::{Survival, Trial};
use crate::share::own_items;
use failures::{FailingState, Failures};

/// How many failures are diagnosed at a time, and how many times at most.
const DIAGNOSED_AT_A_TIME: usize = 16;
const ROUNDS_MAX: usize = 8;

/// How many states are counted before an interruption is looked for.
const STATES_BETWEEN_LOOKS: u64 = 1024;

/// Under a budget so many times more states are looked at than can run.
const CHOICE: u64 = 64;

/// What eager exploration has shown.
pub(crate) struct EagerResult {
    pub(crate) findings: Vec<Finding>,
    /// Failures that need nothing to be lost: for the search that prefix crashes have.
    pub(crate) prefixes: Vec<Failed>,
    pub(crate) eager: Eager,
    /// In how many segments the power failed.
    pub(crate) segments_run: u64,
    pub(crate) stacks: u64,
    pub(crate) notes: Vec<String>,
}

/// What was run so far.
#[derive(Default)]
struct Ran {
    states: u64,
    failures: Failures,
    failed: u64,
    groups: FxHashSet<GroupId>,
    equal_images: u64,
    /// How many states were run in each segment.
    of_segment: FxHashMap<usize, u64>,
    /// Every chosen state was run, or is equal to one that was.
    is_whole: bool,
    /// Which segments are in the share, if only a share is tried.
    own: Option<Vec<bool>>,
}

impl Ran {
    /// Whether a segment is to be tried.
    fn is_own(&self, segment: usize) -> bool {
        let own = self.own.as_ref();
        own.is_none_or(|own| own.get(segment).copied().unwrap_or(false))
    }
}

/// Lets the power fail in every segment.
pub(crate) fn explore(
    engine: &mut Engine<'_, '_>,
    options: &EagerOptions,
    crash: &CrashOptions,
    places: &mut Places<'_>,
) -> Result<EagerResult, CheckError> {
    let budget = crash.budget;
    engine.begin_points();
    let mut options = options.clone();
    options.pass.fresh_pages_differ = engine.runner.is_filled();
    let survey = Survey::of(engine.trace, engine.runner.initial_pools()?, &options)?;
    inspect_segments(&survey, &options)?;
    let mut totals = totals(&survey, &options);
    let mut notes = Vec::new();
    let survey = match &crash.watched {
        Some(watched) => {
            let read = reads::read_lines(engine, &survey, watched.as_ref())?;
            notes.extend(read.note());
            vary_read(engine, &survey, read, &mut options, &mut totals)?
        }
        None => survey,
    };
    let end = Trial::prefix(EventIndex(engine.trace.event_count()));
    let each = engine.runner.time_of_streamed(&end)?;
    let jobs = engine.runner.job_count();
    let limit = budget.map(|budget| runs_within(time_left(engine, budget), each, jobs));
    let states = limit.map_or(survey.states, |limit| survey.states.min(limit as u64));
    let runs = u32::try_from(states.div_ceil(jobs as u64)).unwrap_or(u32::MAX);
    engine.observer.event(CheckEvent::Combinations {
        eager: &totals,
        states,
        estimate: each.saturating_mul(runs),
    });
    let mut ran = Ran {
        own: crash.partition.map(|partition| {
            let cost = |segment: &SegmentCount| match segment.combinations {
                few if few <= options.threshold => few,
                _ => options.sample as u64,
            };
            let costs: Vec<u64> = survey.segments.iter().map(cost).collect();
            own_items(partition, &costs)
        }),
        ..Ran::default()
    };
    let moments: Vec<EventIndex> = survey
        .chosen
        .clone()
        .filter(|segment| ran.is_own(*segment))
        .map(|segment| survey.segments[segment].at)
        .collect();
    engine.learn(CheckStep::Crashes, &moments)?;

    notes.extend(limits_of(&survey, &options));
    match limit {
        Some(limit) if survey.states > limit as u64 => {
            let groups = run_representatives(engine, &options, &survey, limit, &mut ran)?;
            totals.groups = groups;
            notes.push(format!(
                "the budget is for {limit} of up to {} crash states: of {} of {groups} update \
                 behaviours at least one state was tried",
                survey.states,
                ran.groups.len(),
            ));
        }
        _ => {
            ran.is_whole = run_states(engine, &options, &survey, survey.states, None, &mut ran)?;
            totals.groups = ran.groups.len() as u64;
        }
    }
    let reason = engine.runner.snapshot_note()?;
    notes.extend(reason.map(|reason| {
        format!("recovery is started anew for each crash state, not from a snapshot: {reason}")
    }));
    totals.groups_covered = ran.groups.len() as u64;
    totals.run = ran.states;
    totals.failed = ran.failed;
    totals.equal_images = ran.equal_images;
    settle_exhaustive(&mut totals, &survey, &ran);
    if engine.is_stopped() {
        notes.push(format!(
            "stopped after {} of up to {states} crash states; what failed is shown as it was found, \
             with more lines lost than may be needed",
            ran.states
        ));
    }
    let mut explored = EagerResult {
        findings: Vec::new(),
        prefixes: Vec::new(),
        eager: totals,
        segments_run: if ran.is_whole {
            survey.segment_count()
        } else {
            ran.of_segment.len() as u64
        },
        stacks: survey.stacks,
        notes,
    };
    conclude(engine, ran.failures, &mut explored, places)?;
    Ok(explored)
}

/// What is left of a budget for this phase: watching has taken some of it.
fn time_left(engine: &Engine<'_, '_>, budget: Duration) -> Duration {
    let until = engine.until();
    until.map_or(budget, |until| {
        until.saturating_duration_since(Instant::now()).min(budget)
    })
}

fn states<'s, 't: 's>(
    engine: &Engine<'_, 't>,
    options: &EagerOptions,
    survey: &'s Survey,
) -> Result<EagerStates<'s, PoolImages>, CheckError> {
    let pools = engine.runner.initial_pools()?;
    Ok(EagerStates::new(
        engine.trace,
        pools,
        options.clone(),
        survey,
    ))
}

/// Runs the states of a trace, or those of them with these numbers. Returns whether none of them is left.
fn run_states(
    engine: &mut Engine<'_, '_>,
    options: &EagerOptions,
    survey: &Survey,
    of: u64,
    only: Option<&FxHashSet<u64>>,
    ran: &mut Ran,
) -> Result<bool, CheckError> {
    let mut states = states(engine, options, survey)?;
    let until = engine.until();
    let Engine {
        runner,
        observer,
        contents,
        good,
        ..
    } = engine;
    let observer = RefCell::new(&mut **observer);
    let own = ran.own.clone();
    let mut left = only.map(FxHashSet::len);
    let mut is_late = false;
    let mut next = || -> Result<Option<(EagerState, Trial)>, CheckError> {
        is_late = is_late || until.is_some_and(|until| Instant::now() >= until);
        // What comes after the last that is wanted need not be made.
        if left == Some(0) || is_late {
            return Ok(None);
        }
        while let Some(state) = states.next_state()? {
            let is_own = own
                .as_ref()
                .is_none_or(|own| own.get(state.segment) == Some(&true));
            if is_own && only.is_none_or(|only| only.contains(&state.number)) {
                left = left.map(|left| left - 1);
                let trial = Trial {
                    at: state.at,
                    state: Survival::Exactly(state.state.clone()),
                };
                return Ok(Some((state, trial)));
            }
        }
        Ok(None)
    };
    let mut done = 0;
    let outcome = runner.stream(
        &|| observer.borrow().is_interrupted(),
        &mut next,
        &mut |state, tried| {
            done += 1;
            observer.borrow_mut().progress(CheckStep::Crashes, done, of);
            ran.states += 1;
            ran.groups.insert(state.group);
            *ran.of_segment.entry(state.segment).or_default() += 1;
            let verdict = tried.verdict.as_ref();
            let symptom = verdict.and_then(|verdict| contents.judge(state.at, verdict));
            if let Some(symptom) = symptom {
                ran.failed += 1;
                ran.failures.push(state, symptom);
            } else if verdict.is_some() && state.state.versions.is_empty() {
                good.insert(state.at);
            }
        },
    );
    ran.equal_images = ran.equal_images.max(states.equal_images());
    let is_done = engine.unless_interrupted(outcome)?.is_some();
    Ok(is_done && !is_late)
}

/// Runs one state of each group, then more of those that failed or are large. How many groups there are.
fn run_representatives(
    engine: &mut Engine<'_, '_>,
    options: &EagerOptions,
    survey: &Survey,
    limit: usize,
    ran: &mut Ran,
) -> Result<u64, CheckError> {
    let mut options = options.clone();
    let each = (CHOICE * limit as u64 / survey.segment_count().max(1)).max(4);
    options.threshold = options.threshold.min(each);
    options.sample = options
        .sample
        .min(usize::try_from(each).unwrap_or(usize::MAX));
    let mut groups = Representatives::default();
    let mut all = states(engine, &options, survey)?;
    let mut count = 0_u64;
    while let Some(state) = all.next_state()? {
        count += 1;
        // Even a spent budget tells how much there is, if that takes no time.
        if count.is_multiple_of(STATES_BETWEEN_LOOKS) && engine.observer.is_interrupted() {
            return Err(CheckError::Interrupted);
        }
        groups.push(state.group);
    }
    let first = groups.first(limit);
    // Failures take longer than was estimated if recovery is slow, so the time may end first.
    let rounds = if engine.has_slow_recoveries {
        rounds::rounds(first.iter().copied())
    } else {
        vec![first.clone()]
    };
    for round in rounds {
        run_states(
            engine,
            &options,
            survey,
            round.len() as u64,
            Some(&round),
            ran,
        )?;
        if engine.is_stopped() {
            break;
        }
    }
    let left = limit - first.len();
    if left > 0 && !engine.is_interrupted {
        let mut again = states(engine, &options, survey)?;
        let mut sequence = Vec::new();
        while let Some(state) = again.next_state()? {
            sequence.push(state.group);
        }
        let failed = ran.failures.groups();
        let more = groups.more(left, failed, &first, sequence);
        run_states(
            engine,
            &options,
            survey,
            more.len() as u64,
            Some(&more),
            ran,
        )?;
    }
    Ok(groups.group_count() as u64)
}

/// Lets only those lines vary that recovery reads. What is left of the survey.
fn vary_read(
    engine: &Engine<'_, '_>,
    all: &Survey,
    read: reads::ReadLines,
    options: &mut EagerOptions,
    totals: &mut Eager,
) -> Result<Survey, CheckError> {
    options.varied = Some(Arc::new(read.lines));
    let varied = Survey::of(engine.trace, engine.runner.initial_pools()?, options)?;
    let left_out = |(all, varied): (&SegmentCount, &SegmentCount)| all.lines - varied.lines;
    let segments = all.segments.iter().zip(&varied.segments);
    totals.reads = Some(EagerReads {
        images: read.images,
        unread_lines: segments.map(left_out).sum(),
        combinations: varied.combinations.to_string(),
    });
    totals.exhaustive_segments = varied.exhaustive_segments;
    totals.exhaustive_combinations = varied.exhaustive_combinations;
    totals.chosen = varied.states;
    Ok(varied)
}

/// The segments that are wanted must be there.
fn inspect_segments(survey: &Survey, options: &EagerOptions) -> Result<(), CheckError> {
    let count = survey.segments.len();
    let Some(wanted) = &options.segments else {
        return Ok(());
    };
    // The end may be open.
    let is_beyond = wanted.end > count && wanted.end < usize::MAX;
    let last = if is_beyond {
        wanted.end - 1
    } else {
        wanted.start
    };
    if last >= count {
        let wanted = last;
        return Err(CheckError::NoSuchSegment { wanted, count });
    }
    Ok(())
}

fn totals(survey: &Survey, options: &EagerOptions) -> Eager {
    Eager {
        writes: survey.writes,
        flushes: survey.flushes,
        fences: survey.fences,
        segments: survey.segment_count(),
        combinations: survey.combinations.to_string(),
        raw_combinations: survey.raw_combinations.to_string(),
        threshold: options.threshold,
        sample: options.sample as u64,
        exhaustive_segments: survey.exhaustive_segments,
        exhaustive_combinations: survey.exhaustive_combinations,
        chosen: survey.states,
        ..Eager::default()
    }
}

/// Counts as exhaustive only segments of which every combination was run.
fn settle_exhaustive(totals: &mut Eager, survey: &Survey, ran: &Ran) {
    if ran.is_whole {
        return;
    }
    // An image that is equal to one of another segment is not counted: that one may not have been run.
    let is_whole =
        |(segment, states): &(&usize, &u64)| **states == survey.segments[**segment].combinations;
    let whole = ran.of_segment.iter().filter(is_whole);
    let combinations: Vec<u64> = whole.map(|(_, states)| *states).collect();
    totals.exhaustive_segments = combinations.len() as u64;
    totals.exhaustive_combinations = combinations.iter().sum();
}

/// What limits the result.
fn limits_of(survey: &Survey, options: &EagerOptions) -> Vec<String> {
    let mut notes = Vec::new();
    let sampled = survey.segment_count() - survey.exhaustive_segments;
    if sampled > 0 {
        notes.push(format!(
            "{sampled} of {} segments are sampled, not exhaustive: they have more than {} combinations, \
             and {} of each were chosen; see --threshold and --sample",
            survey.segment_count(),
            options.threshold,
            options.sample,
        ));
    }
    if survey.cramped_segments > 0 {
        notes.push(format!(
            "in {} of these segments more lines are open than a sample has room for: not each of them was \
             lost and kept alone; see --sample",
            survey.cramped_segments
        ));
    }
    if !survey.in_creation.is_empty() {
        notes.push(format!(
            "{} segments while PMDK creates a pool are left out; --include-create tries them",
            survey.in_creation.len()
        ));
    }
    let left_out = survey.out_of_scope.len() as u64 - survey.in_heap;
    notes.extend(crate::crash::scope_note(left_out, "segment"));
    notes
}

/// From failures to findings: the smallest first, and what a cause explains is explained.
fn conclude(
    engine: &mut Engine<'_, '_>,
    failures: Failures,
    explored: &mut EagerResult,
    places: &mut Places<'_>,
) -> Result<(), CheckError> {
    engine.allow(Share::LazyExplained);
    let (whole, mut left) = failures.into_parts();
    explored.prefixes.extend(whole.into_iter().map(prefix_of));
    for _ in 0..ROUNDS_MAX {
        let batch = failures::next_batch(&left, DIAGNOSED_AT_A_TIME);
        if batch.is_empty() || engine.is_stopped() {
            break;
        }
        let failing: Vec<Failing> = batch.iter().map(|number| left[*number].failing()).collect();
        let rules = engine.runner.rules();
        let diagnoses = diagnose(engine.trace, rules, &failing, engine);
        let Some(diagnoses) = engine.unless_interrupted(diagnoses)? else {
            break;
        };
        for (number, diagnosis) in batch.iter().zip(&diagnoses) {
            if left[*number].is_explained {
                // Another of this batch had the same cause.
                continue;
            }
            let mut sites = Vec::new();
            for store in &diagnosis.lost {
                sites.push(engine.stack_of(store.event)?);
            }
            let found = left[*number].clone();
            left[*number].is_explained = true;
            let mut count = found.count;
            let mut cause = diagnosis.clone();
            for other in left.iter_mut().filter(|other| !other.is_explained) {
                if is_explained_by(other, &found, &cause, &sites) {
                    other.is_explained = true;
                    count += other.count;
                    cause.symptom.also(&other.symptom);
                }
            }
            if cause.cause == Cause::ProgramOrder {
                explored.prefixes.push(Failed {
                    trial: Trial::prefix(cause.at),
                    state: CrashState::default(),
                    stack: engine.stack_of(cause.at)?,
                    symptom: cause.symptom.clone(),
                    count,
                });
            } else {
                explored
                    .findings
                    .push(engine.diagnosed(&cause, count, places)?);
            }
        }
    }
    left.retain(|found| !found.is_explained);
    if engine.is_stopped() {
        for found in left.drain(..) {
            let finding = engine.undiagnosed(&failed_of(found), places)?;
            explored.findings.push(finding);
        }
    }
    let rest = left.len();
    if rest > 0 {
        explored.notes.push(format!(
            "{rest} more kinds of crash states fail whose causes were not looked for"
        ));
    }
    Ok(())
}

/// Whether the cause of one failure is that of another.
fn is_explained_by(
    other: &FailingState,
    found: &FailingState,
    diagnosis: &Diagnosis,
    sites: &[powerfail_trace::StackId],
) -> bool {
    if other.symptom.code != diagnosis.symptom.code {
        return false;
    }
    if diagnosis.cause == Cause::ProgramOrder {
        return other.state.stack == found.state.stack;
    }
    let lost = &other.state.lost;
    sites.iter().all(|site| lost.binary_search(site).is_ok())
}

fn prefix_of(found: FailingState) -> Failed {
    Failed {
        trial: Trial::prefix(found.state.at),
        state: CrashState::default(),
        stack: found.state.stack,
        symptom: found.symptom,
        count: found.count,
    }
}

fn failed_of(found: FailingState) -> Failed {
    Failed {
        trial: Trial {
            at: found.state.at,
            state: Survival::Exactly(found.state.state.clone()),
        },
        state: found.state.state,
        stack: found.state.stack,
        symptom: found.symptom,
        count: found.count,
    }
}
