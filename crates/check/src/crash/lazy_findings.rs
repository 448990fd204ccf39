//! From the failures of lazy exploration to findings.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use powerfail_finding::{Code, Finding, Role, SecondFailure, Severity, SourcePlace, Written, hex};
use powerfail_model::{CrashState, EventIndex};
use powerfail_trace::{Frame, StackId};

use super::Crashed;
use super::engine::Engine;
use super::finding::{Failed, evidence};
use super::prefix::once_for_each_stack;
use super::shown_loads::UnreadState;
use super::words::message;
use crate::diagnose::{Cause, Diagnosis, Failing, diagnose};
use crate::error::CheckError;
use crate::fix::{BadState, Missing};
use crate::lazy::{Contradiction, LazyFailure, LazyResult, Load, choices};
use crate::places::{CodeLine, Places, is_same_code, line_of};
use crate::root_cause::{absorb, add_consequence};
use crate::runner::{Survival, Trial};

/// How many kinds of failures are explained.
const KINDS_MAX: usize = 64;
/// How many failures are diagnosed at a time: the causes of the first may explain the others.
const DIAGNOSED_AT_A_TIME: usize = 8;
/// How many stores of a line are looked at to see whether another finding is about it.
const STORES_MAX: usize = 64;

/// What makes failures of different failure points the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    code: Code,
    failures: u32,
    load: Option<(u32, u64)>,
    store: Option<StackId>,
}

impl Engine<'_, '_> {
    /// Adds what exploring has shown to the findings. `known` are failures of prefix crashes that were
    /// found before.
    pub(super) fn explain_lazy(
        &mut self,
        explored: LazyResult,
        known: &[(StackId, Code)],
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        self.is_interrupted |= explored.is_interrupted;
        crashed.notes.extend(explored.notes);
        let mut whole: Vec<Failed> = Vec::new();
        let mut kinds: BTreeMap<Kind, LazyFailure> = BTreeMap::new();
        for (failure, stack) in explored.failures.into_iter().zip(explored.stacks) {
            if failure.state.versions.is_empty() && failure.recovery_crash.is_none() {
                whole.push(Failed {
                    trial: Trial::prefix(failure.at),
                    state: failure.state,
                    stack,
                    symptom: failure.symptom,
                    count: failure.count,
                });
                continue;
            }
            match kinds.entry(kind(&failure)) {
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    known.count += failure.count;
                    known.symptom.also(&failure.symptom);
                }
                Entry::Vacant(new) => {
                    new.insert(failure);
                }
            }
        }
        let left = kinds.len().saturating_sub(KINDS_MAX);
        if left > 0 {
            crashed.notes.push(format!(
                "{left} more kinds of failures with lost lines are not diagnosed; repair the others first"
            ));
        }
        let all = kinds.into_values().take(KINDS_MAX);
        let (again, once): (Vec<LazyFailure>, Vec<LazyFailure>) =
            all.partition(|failure| failure.recovery_crash.is_some());
        self.explain_once(once, &mut whole, crashed, places)?;
        let unread = std::mem::take(&mut self.unread);
        let outcome = self.add_choices(unread, &mut crashed.findings, places);
        self.unless_interrupted(outcome)?;
        for failure in again {
            let finding = self.again_finding(&failure, places)?;
            add(&mut crashed.findings, finding);
        }
        self.warn(explored.contradictions, crashed, places)?;
        whole.retain(|failed| !known.contains(&(failed.stack, failed.symptom.code)));
        let whole = once_for_each_stack(whole);
        for finding in self.explain(&whole, places)? {
            add(&mut crashed.findings, finding);
        }
        Ok(())
    }

    /// Adds what is known about acknowledged operations that are lost.
    pub(super) fn add_acknowledged(&mut self, crashed: &mut Crashed) {
        for (finding, beside) in std::mem::take(&mut self.acknowledged) {
            match same_as(&crashed.findings, &finding, &beside, None) {
                Some(known) => merge(&mut crashed.findings[known], finding),
                None => crashed.findings.push(finding),
            }
        }
    }

    /// Adds warnings about executions that no moment of the run explains, one for each pair of lines of
    /// code. What another finding says is not said again.
    fn warn(
        &self,
        contradictions: BTreeMap<Contradiction, u64>,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let mut pairs: BTreeMap<(StackId, StackId), (Contradiction, u64)> = BTreeMap::new();
        for (pair, count) in contradictions {
            let stacks = (self.stack_of(pair.lost)?, self.stack_of(pair.seen)?);
            pairs.entry(stacks).or_insert((pair, 0)).1 += count;
        }
        for (pair, count) in pairs.into_values() {
            let lost = places.of_event(Role::Store, pair.lost)?;
            let seen = places.of_event(Role::Survivor, pair.seen)?;
            let lines = [line_of(&lost), line_of(&seen)];
            let is_said = crashed.findings.iter().any(|finding| {
                finding.severity == Severity::Error
                    && (names(finding, &lines)
                        || stores(finding).any(|store| line_of(store) == lines[0]))
            });
            if is_said {
                continue;
            }
            let name = |place: &SourcePlace| {
                let line = place.file_and_line();
                line.unwrap_or_else(|| "the place of the store".to_owned())
            };
            let remedy = places.remedy();
            let durable = remedy.of(&format!("the data stored at {}", name(&lost)));
            let suggestion = format!("{durable} before the store at {}", name(&seen));
            let message = format!(
                "recovery can read the store{} and miss the earlier one{}",
                seen.in_function(),
                lost.in_function()
            );
            let mut finding = Finding {
                count,
                ..Finding::new(Code::NotRobust, message, vec![lost, seen])
            };
            if let Some(place) = self.store_at(pair.lost)? {
                let (at, len_bytes) = place;
                let bad = BadState::never_durable(at, len_bytes, pair.lost, remedy.0);
                let bad = bad.until(Some(pair.seen.0));
                places.advise(&mut finding, Missing::Flush(pair.lost), &bad, suggestion)?;
            }
            crashed.findings.push(finding);
        }
        Ok(())
    }

    /// Finds the causes of failures, and adds findings for them. What needs nothing to be lost goes to
    /// `whole`. If it is interrupted, the rest is shown as it was found.
    fn explain_once(
        &mut self,
        failures: Vec<LazyFailure>,
        whole: &mut Vec<Failed>,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let rules = self.runner.rules();
        let mut left = failures;
        while !left.is_empty() {
            let later = left.split_off(left.len().min(DIAGNOSED_AT_A_TIME));
            let batch = std::mem::replace(&mut left, later);
            let failing: Vec<Failing> = batch.iter().map(failing_of).collect();
            let diagnoses = if self.is_stopped() {
                None
            } else {
                let diagnoses = diagnose(self.trace, rules, &failing, self);
                self.unless_interrupted(diagnoses)?
            };
            let Some(diagnoses) = diagnoses else {
                for failure in batch.into_iter().chain(left) {
                    self.show_undiagnosed(&failure, crashed, places)?;
                }
                return Ok(());
            };
            for (failure, diagnosis) in batch.iter().zip(&diagnoses) {
                self.add_diagnosed(failure, diagnosis, whole, crashed, places)?;
            }
            // What these causes explain is not diagnosed again.
            for diagnosis in &diagnoses {
                let mut rest = Vec::new();
                for failure in left {
                    if self.is_explained(&failure, diagnosis)? {
                        count_again(&mut crashed.findings, diagnosis, &failure, places)?;
                    } else {
                        rest.push(failure);
                    }
                }
                left = rest;
            }
        }
        Ok(())
    }

    /// Adds the finding of a diagnosis.
    fn add_diagnosed(
        &mut self,
        failure: &LazyFailure,
        diagnosis: &Diagnosis,
        whole: &mut Vec<Failed>,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        if diagnosis.cause == Cause::ProgramOrder {
            whole.push(Failed {
                trial: Trial::prefix(diagnosis.at),
                state: CrashState::default(),
                stack: self.stack_of(diagnosis.at)?,
                symptom: diagnosis.symptom.clone(),
                count: failure.count,
            });
            return Ok(());
        }
        let doubtful = self.doubtful(failure, &diagnosis.state, places)?;
        let pair = pair(diagnosis, places)?;
        let finding = self.diagnosed(diagnosis, failure.count, places)?;
        let loads = Loads::of(failure, (diagnosis.at, &diagnosis.state));
        self.add_once(crashed, finding, &doubtful, pair.as_ref(), loads, places)
    }

    /// Adds a failure of which nothing is known but that it is there.
    fn show_undiagnosed(
        &mut self,
        failure: &LazyFailure,
        crashed: &mut Crashed,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let failed = failed_of(failure);
        let finding = self.undiagnosed(&failed, places)?;
        let doubtful = self.doubtful(failure, &failed.state, places)?;
        let loads = Loads::of(failure, (failure.at, &failed.state));
        self.add_once(crashed, finding, &doubtful, None, loads, places)
    }

    /// Adds a finding, unless another one is about the same bug. The loads are resolved only if they are shown.
    fn add_once(
        &mut self,
        crashed: &mut Crashed,
        mut finding: Finding,
        doubtful: &[CodeLine],
        pair: Option<&[CodeLine; 2]>,
        loads: Loads<'_>,
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let known = same_as(&crashed.findings, &finding, doubtful, pair);
        let is_shown = known.is_none_or(|known| crashed.findings[known].evidence.is_none());
        if let Some(evidence) = finding.evidence.as_mut().filter(|_| is_shown) {
            let rules = self.runner.rules();
            match loads {
                Loads::Known(loads, state) => {
                    evidence.choices = choices(self.trace, loads, state, rules, places)?;
                }
                Loads::Unread(unread) => self.unread.push(unread),
            }
        }
        match known {
            Some(known) => merge(&mut crashed.findings[known], finding),
            None => crashed.findings.push(finding),
        }
        Ok(())
    }

    /// Whether the cause of one failure is that of another.
    fn is_explained(
        &self,
        failure: &LazyFailure,
        diagnosis: &Diagnosis,
    ) -> Result<bool, CheckError> {
        if diagnosis.cause == Cause::ProgramOrder
            || diagnosis.lost.is_empty()
            || failure.symptom.code != diagnosis.symptom.code
        {
            return Ok(false);
        }
        let mut stacks = Vec::new();
        for (_, stores) in &failure.stores {
            for store in stores.iter().rev().take(STORES_MAX) {
                stacks.push(self.stack_of(*store)?);
            }
        }
        for lost in &diagnosis.lost {
            if !stacks.contains(&self.stack_of(lost.event)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The lines of code whose stores are in doubt together with those that are lost: one flush is for all
    /// of them.
    fn doubtful(
        &self,
        failure: &LazyFailure,
        state: &CrashState,
        places: &mut Places<'_>,
    ) -> Result<Vec<CodeLine>, CheckError> {
        let mut stacks: Vec<StackId> = Vec::new();
        let mut lines = Vec::new();
        for (line, stores) in &failure.stores {
            if !state.versions.iter().any(|(lost, _)| lost == line) {
                continue;
            }
            for store in stores.iter().rev().take(STORES_MAX) {
                let stack = self.stack_of(*store)?;
                if !stacks.contains(&stack) {
                    stacks.push(stack);
                    lines.push(line_of(&places.of_event(Role::Store, *store)?));
                }
            }
        }
        Ok(lines)
    }

    /// A failure that takes a second crash.
    fn again_finding(
        &mut self,
        failure: &LazyFailure,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let failed = failed_of(failure);
        let mut found = Vec::new();
        if let Some(again) = &failure.recovery_crash {
            found.extend(again.lost.iter().map(|lost| {
                let mut place = places.of_backtrace(Role::Store, &lost.stack);
                place.pool_offset = Some(lost.offset);
                place.len_bytes = Some(lost.len_bytes);
                place
            }));
        }
        if let Some(store) = self.first_lost_store(&failed)? {
            found.push(places.of_event(Role::Store, store)?);
        }
        found.push(places.of_event(Role::Failure, failure.at)?);
        let message = format!(
            "{}, and again in recovery",
            message(failed.symptom.code, &found)
        );
        let mut evidence = evidence(&failed, self.runner.line_bytes());
        let (loads, rules) = (&failure.loads, self.runner.rules());
        evidence.choices = choices(self.trace, loads, &failed.state, rules, places)?;
        evidence.failure.again = failure.recovery_crash.as_ref().map(|again| SecondFailure {
            failures: again.failures,
            events: again.events,
            written: again.overlay.iter().map(written).collect(),
        });
        let lost = failure.recovery_crash.as_ref().map(|again| &again.lost);
        let explanation = if lost.is_some_and(Vec::is_empty) {
            "what recovery had stored survived the second failure, and what the first one lost is still missing"
        } else {
            "some stores of recovery survived the second failure, and others did not"
        };
        let explanation = explanation.to_owned();
        self.finish(&failed, found, message, Some(explanation), evidence, places)
    }
}

/// What recovery reads in the crash state that a finding shows.
enum Loads<'l> {
    /// These loads; the state is that of the execution that failed.
    Known(&'l [Load], &'l CrashState),
    /// It is not known yet.
    Unread(UnreadState),
}

impl<'l> Loads<'l> {
    fn of(failure: &'l LazyFailure, (at, state): (EventIndex, &'l CrashState)) -> Self {
        let is_its_own = at == failure.at && *state == failure.state;
        if is_its_own && !failure.loads.is_empty() {
            return Self::Known(&failure.loads, state);
        }
        let state = state.clone();
        Self::Unread(UnreadState { at, state })
    }
}

fn failing_of(failure: &LazyFailure) -> Failing {
    Failing {
        at: failure.at,
        state: failure.state.clone(),
        symptom: failure.symptom.clone(),
    }
}

/// Counts a failure that a diagnosis explains with the finding about it, and lists what recovery does there.
fn count_again(
    findings: &mut [Finding],
    diagnosis: &Diagnosis,
    failure: &LazyFailure,
    places: &mut Places<'_>,
) -> Result<(), CheckError> {
    let Some(lost) = diagnosis.lost.first() else {
        return Ok(());
    };
    let line = line_of(&places.of_event(Role::Store, lost.event)?);
    let is_it = |known: &&mut Finding| {
        known.severity == Severity::Error && stores(known).any(|store| line_of(store) == line)
    };
    if let Some(known) = findings.iter_mut().find(is_it) {
        known.count += failure.count;
        for outcome in std::iter::once(&failure.symptom.outcome).chain(&failure.symptom.others) {
            add_consequence(known, outcome);
        }
    }
    Ok(())
}

fn failed_of(failure: &LazyFailure) -> Failed {
    Failed {
        trial: Trial {
            at: failure.at,
            state: match &failure.recovery_crash {
                None => Survival::Exactly(failure.state.clone()),
                Some(again) => Survival::Again(failure.state.clone(), again.overlay.clone()),
            },
        },
        state: failure.state.clone(),
        stack: StackId::NONE,
        symptom: failure.symptom.clone(),
        count: failure.count,
    }
}

fn kind(failure: &LazyFailure) -> Kind {
    let decisive = failure.loads.iter().find(|load| load.decisive);
    let frame = decisive
        .and_then(|load| load.stack.as_ref())
        .and_then(|stack| stack.threads.first())
        .and_then(|thread| thread.frames.first());
    let load = frame.map(|frame| match *frame {
        Frame::Module { module, offset } => (module.0, offset),
        Frame::Absolute { address } => (u32::MAX, address),
    });
    Kind {
        code: failure.key.code,
        failures: failure.key.failures,
        load,
        store: failure.key.store,
    }
}

/// The two lines of code that belong together, if that is the cause.
fn pair(
    diagnosis: &Diagnosis,
    places: &mut Places<'_>,
) -> Result<Option<[CodeLine; 2]>, CheckError> {
    let (Cause::Atomicity, Some(lost), Some(survivor)) =
        (diagnosis.cause, diagnosis.lost.first(), diagnosis.survivor)
    else {
        return Ok(None);
    };
    let mut line = |event: EventIndex| -> Result<CodeLine, CheckError> {
        Ok(line_of(&places.of_event(Role::Store, event)?))
    };
    Ok(Some([line(lost.event)?, line(survivor)?]))
}

pub(crate) fn written(patch: &powerfail_image::Patch) -> Written {
    Written {
        pool: patch.pool.0,
        pool_offset: patch.offset,
        bytes: hex(&patch.bytes),
    }
}

/// Adds a finding, unless another one is about the same bug.
fn add(findings: &mut Vec<Finding>, finding: Finding) {
    match same_as(findings, &finding, &[], None) {
        Some(known) => merge(&mut findings[known], finding),
        None => findings.push(finding),
    }
}

/// The first says it best.
fn merge(known: &mut Finding, finding: Finding) {
    let count = known.count + finding.count;
    absorb(known, finding);
    known.count = count;
}

/// The number of a finding that is about the same bug: one that says that a store is lost which one flush would have
/// saved together with this one's, or that names the same two stores.
fn same_as(
    findings: &[Finding],
    finding: &Finding,
    doubtful: &[CodeLine],
    pair: Option<&[CodeLine; 2]>,
) -> Option<usize> {
    let is_lost = |store: &SourcePlace| {
        let mut lost = stores(finding);
        lost.any(|lost| is_same_code(store, lost)) || doubtful.contains(&line_of(store))
    };
    findings.iter().position(|known| {
        known.severity == Severity::Error
            && (stores(known).any(is_lost) || pair.is_some_and(|pair| names(known, pair)))
    })
}

/// The stores that are lost.
fn stores(finding: &Finding) -> impl Iterator<Item = &SourcePlace> {
    let places = finding.places.iter();
    places.filter(|place| place.role == Role::Store)
}

/// Whether a finding is about two stores.
fn names(finding: &Finding, pair: &[CodeLine; 2]) -> bool {
    let blamed: Vec<CodeLine> = finding
        .places
        .iter()
        .filter(|place| matches!(place.role, Role::Store | Role::Survivor | Role::Publish))
        .map(line_of)
        .collect();
    pair.iter().all(|line| blamed.contains(line))
}
