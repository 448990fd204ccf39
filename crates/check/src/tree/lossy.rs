//! Crashes that lose something: which are run, and which of those that fail are one bug.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use powerfail_explore::{Aim, PlannedState, TreePlan, TreePlanOptions, tree_plan};
use powerfail_finding::{Code, Finding, RecoveryOutcome, TreeTotals, Tries};
use powerfail_image::TreeDigest;
use powerfail_model::files::{CrashState, Fate, Frontier, NodeId, OperationIndex};
use powerfail_trace::StackId;

use super::engine::TreeEngine;
use super::minimal::{Minimal, Reduced};
use super::prefix::Prefixes;
use super::remedy::Remedy;
use super::runner::TreeTrial;
use super::words::{kind, role_of};
use crate::error::CheckError;
use crate::event::{CheckEvent, CheckStep};
use crate::options::CrashOptions;
use crate::places::Places;
use crate::symptom::Symptom;

/// How many states run before their results are looked at, at first and at most: what one recovery has not read can make
/// later ones unneeded.
const BATCH_FIRST: usize = 8;
const BATCH_MAX: usize = 256;
/// While files are created, so many trees are looked at.
const CREATION_MAX: usize = 256;
/// How many failures are traced back to operations.
const DIAGNOSES_MAX: usize = 64;

/// What an operation is for grouping: from where, to which kind of file, and whether it is torn.
type LostKey = (StackId, String, bool);

/// A crash state on which recovery fails.
pub(super) struct Failing {
    pub(super) place: usize,
    pub(super) state: CrashState,
    pub(super) symptom: Symptom,
    lost: BTreeSet<LostKey>,
}

/// A bug whose cause is known.
struct KnownBug {
    lost: BTreeSet<LostKey>,
    /// What would have prevented it.
    remedy: Option<Remedy>,
    /// The number of its finding.
    finding: usize,
}

/// What a failure is due to.
enum Explained {
    /// A loss, the finding about it, and what would have prevented it.
    Bug(Box<(Minimal, Finding, Option<Remedy>)>),
    /// The known bug with this number.
    ByKnown(usize),
    /// That the workload had not created its files yet.
    ByCreation,
    /// Recovery does not fail again.
    Unstable,
}

/// What crashes that lose something have shown.
#[derive(Default)]
pub(super) struct Lossy {
    pub(super) findings: Vec<Finding>,
    pub(super) totals: TreeTotals,
    pub(super) notes: Vec<String>,
    pub(super) points: u64,
    pub(super) stacks: u64,
    pub(super) points_run: u64,
    /// The failure points that were chosen, as places in the list.
    pub(super) taken: Vec<usize>,
    /// What was tried, by call stack.
    pub(super) tries: BTreeMap<StackId, Tries>,
    /// Crashes after which recovery succeeds and changes something: the power can fail while it does.
    pub(super) changed: Vec<TreeTrial>,
}

/// How far the states of a plan were tried.
struct Covered {
    /// Places at which some were.
    run_at: BTreeSet<usize>,
    /// Places at which some were not, because the time was up, and how many states these are.
    cut_short: BTreeSet<usize>,
    untried: u64,
}

impl TreeEngine<'_, '_> {
    /// Runs recovery on crash states that lose something, and explains the failures.
    pub(super) fn lossy(
        &mut self,
        options: &CrashOptions,
        prefixes: &mut Prefixes,
        places: &mut Places<'_>,
    ) -> Result<Lossy, CheckError> {
        let mut plan = self.plan(options, prefixes);
        if options.changed.is_some() {
            let stacks = plan.taken.iter().map(|place| self.stack_at(*place));
            let (new, _) = options.new_stacks(stacks, places);
            plan.states
                .sort_by_key(|it| !new.contains(&self.stack_at(it.place)));
        }
        let mut lossy = Lossy {
            totals: TreeTotals {
                file_system: self.file_system.to_string(),
                operations: self.recording.len() as u64,
                exhausted_points: plan.exhausted,
                sampled_points: plan.taken.len() as u64 - plan.exhausted,
                ..TreeTotals::default()
            },
            points: plan.points,
            stacks: plan.stacks,
            taken: plan.taken.clone(),
            ..Lossy::default()
        };
        self.allow(75);
        let failing = self.run_plan(&plan, prefixes, &mut lossy)?;
        self.allow(98);
        let explained = self.explain(failing, places, &mut lossy);
        self.unless_interrupted(explained)?;
        Ok(lossy)
    }

    fn plan(&self, options: &CrashOptions, prefixes: &Prefixes) -> TreePlan {
        let roles = self.recording.roles();
        let of_plan = TreePlanOptions {
            file_system: self.file_system,
            per_stack: options.tree.per_stack,
            seed: options.tree.seed,
            only: options.at.map(|at| self.recording.place_at(at)),
            from: prefixes.creation_end,
            also: { self.contents.operations() }
                .map(|it| self.recording.place_at(it.end))
                .collect(),
            ..TreePlanOptions::default()
        };
        let role = |node: NodeId| roles.get(&node).cloned().unwrap_or_default();
        tree_plan(
            &self.recording.initial,
            &self.recording.listed(),
            &role,
            &of_plan,
        )
    }

    /// Runs what is new in a plan. Returns the failures that a loss explains.
    fn run_plan(
        &mut self,
        plan: &TreePlan,
        prefixes: &mut Prefixes,
        lossy: &mut Lossy,
    ) -> Result<Vec<Failing>, CheckError> {
        let mut seen: HashSet<(TreeDigest, usize)> = HashSet::new();
        self.creation_end = prefixes.creation_end;
        for place in 0..prefixes.creation_end.min(CREATION_MAX) {
            let digest = self.recording.newest(place).image().digest();
            self.creation_trees.insert(digest);
            seen.extend((0..=self.contents.operations().count()).map(|ended| (digest, ended)));
        }
        // A tree on which recovery fails with nothing lost is explained already.
        for (place, symptom) in &prefixes.judged {
            let digest = self.recording.newest(*place).image().digest();
            let ended = self.contents.ended(self.event_at(*place));
            seen.insert((digest, ended));
            if symptom.is_some() {
                let all = 0..=self.contents.operations().count();
                seen.extend(all.map(|ended| (digest, ended)));
            }
        }
        let mut run_at = BTreeSet::new();
        let mut cut_short = BTreeSet::new();
        let mut failures: Vec<(usize, Symptom)> = Vec::new();
        let (mut started, of) = (0, plan.states.len() as u64);
        let mut untried = 0;
        let mut rest = plan.states.as_slice();
        let mut size = BATCH_FIRST;
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(size.min(rest.len()));
            rest = later;
            size = (size * 2).min(BATCH_MAX);
            if self.is_stopped() {
                untried += batch.len() as u64;
                cut_short.extend(batch.iter().map(|it| it.place));
                continue;
            }
            let mut numbers = Vec::new();
            let mut trials = Vec::new();
            for (number, planned) in (started as usize..).zip(batch) {
                let trial = trial_of(planned);
                let it = self.seen(&trial);
                if !seen.insert((it.image.digest(), it.ended)) {
                    lossy.totals.repeated += 1;
                    continue;
                }
                if self.judgements.of(&it).is_some() {
                    lossy.totals.unread += 1;
                    continue;
                }
                numbers.push(number);
                trials.push(trial);
            }
            let judged = self.judge_all(CheckStep::Lazy, &trials, (started, of));
            let judged = self.unless_interrupted(judged)?.unwrap_or_default();
            untried += (trials.len() - judged.len()) as u64;
            cut_short.extend(trials[judged.len()..].iter().map(|it| it.place));
            let uses = std::mem::take(&mut self.runner.uses);
            for (at, (number, judged)) in numbers.iter().zip(judged).enumerate() {
                let planned = &plan.states[*number];
                match judged {
                    Some(symptom) => {
                        let is_changed = uses.get(at).is_some_and(|used| used.is_changed);
                        if symptom.is_none() && is_changed {
                            lossy.changed.push(trials[at].clone());
                        }
                        run_at.insert(planned.place);
                        lossy.totals.states += 1;
                        failures.extend(symptom.map(|it| (*number, it)));
                    }
                    None => {
                        untried += 1;
                        cut_short.insert(planned.place);
                    }
                }
            }
            started += batch.len() as u64;
        }
        let covered = Covered {
            run_at,
            cut_short,
            untried,
        };
        self.count(plan, covered, &failures, lossy);
        self.allow(98);
        self.caused_by_loss(plan, failures, prefixes, &mut lossy.notes)
    }

    /// Counts what was tried of a plan, and says what was not.
    fn count(
        &self,
        plan: &TreePlan,
        covered: Covered,
        failures: &[(usize, Symptom)],
        lossy: &mut Lossy,
    ) {
        let Covered {
            run_at,
            cut_short,
            untried,
        } = covered;
        let of = plan.states.len();
        lossy.points_run = run_at.len() as u64;
        let mut sampled: BTreeSet<usize> = { plan.states.iter() }
            .filter(|it| it.aim == Aim::Sample)
            .map(|it| it.place)
            .collect();
        // All states of a point are meant to be tried, unless it is sampled; but the time was up.
        let unfinished = cut_short.difference(&sampled).count() as u64;
        lossy.totals.exhausted_points = plan.exhausted.saturating_sub(unfinished);
        if untried > 0 {
            let tried = plan.taken.iter().filter(|it| run_at.contains(*it));
            lossy.totals.sampled_points =
                (tried.count() as u64).saturating_sub(lossy.totals.exhausted_points);
        }
        sampled.extend(cut_short);
        lossy.tries = self.tries(plan, &run_at, &sampled, failures);
        if untried > 0 {
            lossy.notes.push(format!(
                "the budget is spent: {untried} of {of} crash states of files were not tried; see --budget"
            ));
        }
        let left_out = lossy.points - plan.taken.len().min(lossy.points as usize) as u64;
        let (sampled, taken) = (lossy.totals.sampled_points, plan.taken.len() as u64);
        if run_at.is_empty() {
            // Nothing is said about how the states were chosen: none was tried.
        } else if left_out > 0 {
            lossy.notes.push(format!(
                "{taken} of {} failure points of files were tried, a few of each call stack (--per-stack); at {} of them all \
                 crash states, at {sampled} a selection",
                lossy.points.max(taken),
                lossy.totals.exhausted_points,
            ));
        } else if sampled > 0 {
            lossy.notes.push(match taken {
                1 => "of the crash states at the failure point of files a selection was tried".to_owned(),
                _ => format!("of the crash states at {sampled} of {taken} failure points of files a selection was tried"),
            });
        }
    }

    /// What was tried, by call stack.
    fn tries(
        &self,
        plan: &TreePlan,
        run_at: &BTreeSet<usize>,
        sampled: &BTreeSet<usize>,
        failures: &[(usize, Symptom)],
    ) -> BTreeMap<StackId, Tries> {
        let failed: BTreeSet<usize> = { failures.iter() }
            .map(|(number, _)| plan.states[*number].place)
            .collect();
        let mut tries: BTreeMap<StackId, Tries> = BTreeMap::new();
        for place in &plan.taken {
            let is = |places: &BTreeSet<usize>| u64::from(places.contains(place));
            tries.entry(self.stack_at(*place)).or_default().add(Tries {
                points: 1,
                tried: is(run_at),
                sampled: is(sampled) * is(run_at),
                failed: is(&failed),
            });
        }
        tries
    }

    /// The failures at moments at which recovery succeeds with nothing lost, with what each has lost.
    fn caused_by_loss(
        &mut self,
        plan: &TreePlan,
        failures: Vec<(usize, Symptom)>,
        prefixes: &mut Prefixes,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Failing>, CheckError> {
        let needed: BTreeSet<usize> = { failures.iter() }
            .map(|(number, _)| plan.states[*number].place)
            .filter(|place| !prefixes.judged.contains_key(place))
            .collect();
        let needed: Vec<usize> = needed.into_iter().collect();
        let trials: Vec<TreeTrial> = needed.iter().map(|it| TreeTrial::newest(*it)).collect();
        let judged = self.judge_unknown(&trials);
        let judged = self.unless_interrupted(judged)?.unwrap_or_default();
        for (place, judged) in needed.into_iter().zip(judged) {
            prefixes.judged.extend(judged.map(|it| (place, it)));
        }
        let roles = self.recording.roles();
        // One at a time: states of one point are near each other within an aim.
        let mut known: Option<(usize, Frontier)> = None;
        let mut failing = Vec::new();
        let mut unjudged = 0_u64;
        for (number, symptom) in failures {
            let planned = &plan.states[number];
            match prefixes.judged.get(&planned.place) {
                Some(None) => {}
                Some(Some(_)) => continue,
                None => {
                    unjudged += 1;
                    continue;
                }
            }
            let (_, frontier) = match known.take().filter(|(place, _)| *place == planned.place) {
                Some(frontier) => known.insert(frontier),
                None => known.insert((
                    planned.place,
                    self.frontier(self.file_system, planned.place),
                )),
            };
            let lost = lost_keys(self, frontier, &planned.state, &roles);
            failing.push(Failing {
                place: planned.place,
                state: planned.state.clone(),
                symptom,
                lost,
            });
        }
        if unjudged > 0 {
            notes.push(format!(
                "the budget is spent: {unjudged} failures of recovery are not reported, because it is not known whether it fails \
                 there with nothing lost; see --budget"
            ));
        }
        // What loses least explains most.
        failing.sort_by_key(|it| (it.lost.len(), it.state.pages.len() + it.state.lost.len()));
        Ok(failing)
    }

    /// Makes one finding of each cause.
    fn explain(
        &mut self,
        failing: Vec<Failing>,
        places: &mut Places<'_>,
        lossy: &mut Lossy,
    ) -> Result<(), CheckError> {
        let mut known: Vec<KnownBug> = Vec::new();
        let roles = self.recording.roles();
        let (mut unstable, mut unexplained) = (0_u64, 0_u64);
        for failure in failing {
            if let Some(cause) = known.iter().find(|it| it.lost.is_subset(&failure.lost)) {
                let finding = &mut lossy.findings[cause.finding];
                finding.count += 1;
                add_consequence(finding, &failure.symptom.outcome);
                continue;
            }
            if known.len() >= DIAGNOSES_MAX || self.is_stopped() {
                unexplained += 1;
                continue;
            }
            self.observer.event(CheckEvent::Failing {
                code: failure.symptom.code,
                at: self.recording.event_at(failure.place, self.trace),
            });
            let explained = self.explain_one(&failure, &known, places);
            let (minimal, finding, remedy) = match self.unless_interrupted(explained)? {
                Some(Explained::Bug(bug)) => *bug,
                Some(Explained::ByKnown(number)) => {
                    let finding = &mut lossy.findings[known[number].finding];
                    finding.count += 1;
                    add_consequence(finding, &failure.symptom.outcome);
                    continue;
                }
                Some(Explained::ByCreation) => continue,
                Some(Explained::Unstable) => {
                    unstable += 1;
                    continue;
                }
                // The time is up.
                None => {
                    unexplained += 1;
                    continue;
                }
            };
            let lost = self.minimal_keys(&minimal, &roles);
            let same = match self.prevented(&minimal, &known) {
                Some(cause) => Some(cause.finding),
                None => { lossy.findings.iter() }.position(|it| is_same_bug(it, &finding)),
            };
            let number = match same {
                Some(number) => {
                    let known = &mut lossy.findings[number];
                    known.count += 1;
                    if let Some(evidence) = &finding.evidence {
                        add_consequence(known, &evidence.recovery);
                    }
                    number
                }
                None => {
                    self.announce(&finding);
                    lossy.findings.push(finding);
                    lossy.findings.len() - 1
                }
            };
            known.push(KnownBug {
                lost,
                remedy,
                finding: number,
            });
        }
        if unstable > 0 {
            lossy.notes.push(format!(
                "recovery is not deterministic: {unstable} times it failed after a crash and succeeded when it ran again on \
                 the same files; these failures are not reported"
            ));
        }
        if unexplained > 0 {
            lossy.notes.push(format!(
                "{unexplained} failures of recovery are not traced back to operations, because there are too many or the \
                 budget is spent"
            ));
        }
        Ok(())
    }

    /// The known bug whose missing syncs make a failure impossible.
    fn prevented<'k>(&self, minimal: &Minimal, known: &'k [KnownBug]) -> Option<&'k KnownBug> {
        known.iter().find(|it| {
            let remedy = it.remedy.as_ref();
            remedy.is_some_and(|it| self.is_prevented(minimal, it))
        })
    }

    /// The least that is lost where recovery fails, and the finding about it.
    fn explain_one(
        &mut self,
        failure: &Failing,
        known: &[KnownBug],
        places: &mut Places<'_>,
    ) -> Result<Explained, CheckError> {
        let remedies: Vec<(usize, &Remedy)> = { (0..).zip(known) }
            .filter_map(|(number, it)| Some((number, it.remedy.as_ref()?)))
            .collect();
        let minimal = match self.minimal(failure, &remedies)? {
            Reduced::To(minimal) => *minimal,
            Reduced::ToKnown(number) => return Ok(Explained::ByKnown(number)),
            Reduced::ToCreation => return Ok(Explained::ByCreation),
            Reduced::Unstable => return Ok(Explained::Unstable),
        };
        let is_new = self.prevented(&minimal, known).is_none();
        let (finding, remedy) = self.finding(&minimal, is_new, places)?;
        Ok(Explained::Bug(Box::new((minimal, finding, remedy))))
    }

    fn minimal_keys(
        &self,
        minimal: &Minimal,
        roles: &BTreeMap<NodeId, String>,
    ) -> BTreeSet<LostKey> {
        let frontier = self.frontier(self.file_system, minimal.place);
        lost_keys(self, &frontier, &minimal.state, roles)
    }
}

fn trial_of(planned: &PlannedState) -> TreeTrial {
    TreeTrial {
        place: planned.place,
        difference: planned.difference.clone(),
    }
}

/// What a state has lost, by the code that did it.
fn lost_keys(
    engine: &TreeEngine<'_, '_>,
    frontier: &Frontier,
    state: &CrashState,
    roles: &BTreeMap<NodeId, String>,
) -> BTreeSet<LostKey> {
    let fates = frontier.fates(state).into_iter();
    let lost = fates.filter(|(_, fate)| *fate != Fate::Survived);
    lost.map(|(index, fate)| key_of(engine, index, fate, roles))
        .collect()
}

fn key_of(
    engine: &TreeEngine<'_, '_>,
    index: OperationIndex,
    fate: Fate,
    roles: &BTreeMap<NodeId, String>,
) -> LostKey {
    let operation = engine.recording.operation(index);
    let node = operation.and_then(|it| it.operation.node());
    let role = node.and_then(|node| roles.get(&node)).cloned();
    let kind = operation.map(|it| kind(&it.operation)).unwrap_or_default();
    (
        engine.stack_of(index),
        format!("{kind} {}", role.unwrap_or_default()),
        fate == Fate::Torn,
    )
}

/// Two findings ask for the same change, or blame the same lines.
fn is_same_bug(one: &Finding, other: &Finding) -> bool {
    let line = |finding: &Finding| {
        let first = finding.places.first();
        first.map(|it| {
            let path = it.pool.as_deref().map(Path::new);
            let name = path.and_then(Path::file_name);
            let role = name.map(|it| role_of(&it.to_string_lossy()));
            (it.file.clone(), it.line, it.function.clone(), role)
        })
    };
    let torn = |finding: &Finding| finding.evidence.as_ref().is_some_and(|it| it.torn);
    let fixes = |finding: &Finding| {
        let changes = finding.fix.iter().flat_map(|fix| &fix.changes);
        changes
            .map(|it| (it.operation, it.file.clone(), it.line))
            .collect::<Vec<_>>()
    };
    let is_silent = |finding: &Finding| finding.code == Code::WriteNotSynced;
    let (fix, other_fix) = (fixes(one), fixes(other));
    // The sync that keeps a write from being lost keeps it from being torn.
    let asks_for_same = !fix.is_empty() && fix == other_fix;
    line(one) == line(other)
        && (asks_for_same
            || torn(one) == torn(other) && (fix == other_fix || is_silent(one) != is_silent(other)))
}

/// Adds what recovery also does, unless that is known.
fn add_consequence(finding: &mut Finding, outcome: &RecoveryOutcome) {
    let evidence = finding.evidence.as_ref();
    let mut known = evidence
        .map(|it| &it.recovery)
        .into_iter()
        .chain(&finding.consequences);
    if !known.any(|it| it.to_string() == outcome.to_string()) {
        finding.consequences.push(outcome.clone());
    }
}
