//! Crashes at which everything before them survives: what fails there is wrong in the program's own order.

use std::collections::BTreeMap;

use powerfail_explore::prefix_places;
use powerfail_finding::{
    Code, Evidence, FailurePoint, Finding, Role, SourcePlace, TreeCrash, Tries,
};
use powerfail_model::files::Operation;
use powerfail_trace::StackId;

use super::engine::TreeEngine;
use super::finding::FinishedPlaces;
use super::runner::TreeTrial;
use super::words::in_sentence;
use crate::coverage::TriedStacks;
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::options::CrashOptions;
use crate::places::Places;
use crate::symptom::Symptom;

/// What crashes with nothing lost have shown.
#[derive(Default)]
pub(super) struct Prefixes {
    /// What was wrong before the operation at a place, if anything was.
    pub(super) judged: BTreeMap<usize, Option<Symptom>>,
    /// Before this place recovery has not succeeded yet: what it needs is being created.
    pub(super) creation_end: usize,
    /// How many places were to be tried.
    pub(super) planned: u64,
    /// How many of these were.
    pub(super) run: u64,
    /// Which call stacks were tried first, if some are preferred.
    pub(super) note: Option<String>,
    /// Places at which recovery succeeds and changes something.
    changed: Vec<usize>,
}

impl Prefixes {
    /// The crashes after which recovery changes something.
    pub(super) fn changed(&self) -> impl Iterator<Item = TreeTrial> {
        let places = self.changed.iter().filter(|it| **it >= self.creation_end);
        places.map(|it| TreeTrial::newest(*it))
    }
}

impl TreeEngine<'_, '_> {
    /// Lets the power fail with nothing lost, at a few places of each call stack.
    pub(super) fn prefixes(
        &mut self,
        options: &CrashOptions,
        accepts_initial: bool,
        places: &mut Places<'_>,
    ) -> Result<Prefixes, CheckError> {
        let operations = self.recording.listed();
        let mut tried = match options.at {
            Some(at) => vec![self.recording.place_at(at)],
            None => prefix_places(&operations, options.tree.per_stack, options.tree.seed),
        };
        tried.dedup();
        let stacks = tried.iter().map(|place| self.stack_at(*place));
        let (new, note) = options.new_stacks(stacks, places);
        tried.sort_by_key(|place| !new.contains(&self.stack_at(*place)));
        let trials: Vec<TreeTrial> = tried.iter().map(|it| TreeTrial::newest(*it)).collect();
        let of = trials.len() as u64;
        let judged = self.judge_all(CheckStep::Crashes, &trials, (0, of))?;
        let uses = std::mem::take(&mut self.runner.uses);
        let changed = { tried.iter().zip(&judged).zip(&uses) }
            .filter(|((_, judged), used)| matches!(judged, Some(None)) && used.is_changed)
            .map(|((place, _), _)| *place);
        let changed = changed.collect();
        let run = judged.iter().filter(|it| it.is_some()).count() as u64;
        let judged = tried.iter().copied().zip(judged);
        let mut prefixes = Prefixes {
            judged: judged
                .filter_map(|(place, it)| Some((place, it?)))
                .collect(),
            creation_end: 0,
            planned: of,
            run,
            note,
            changed,
        };
        if !accepts_initial && !options.tree.include_create {
            prefixes.judged.entry(0).or_insert(None);
            let first_good = { prefixes.judged.iter() }
                .find(|(place, symptom)| **place > 0 && symptom.is_none())
                .map_or(self.recording.len(), |(place, _)| *place);
            let last_bad = prefixes.judged.range(..first_good).next_back();
            let last_bad = last_bad.map_or(0, |(place, _)| *place);
            prefixes.judged.remove(&0);
            let (_, good) = self.boundary(last_bad, first_good, &mut prefixes.judged, false)?;
            prefixes.creation_end = good;
        }
        Ok(prefixes)
    }

    /// What was tried with nothing lost, by call stack.
    pub(super) fn count_prefixes(&self, prefixes: &Prefixes, to: &mut TriedStacks) {
        for (place, symptom) in prefixes.judged.range(prefixes.creation_end..) {
            to.prefix(self.stack_at(*place)).add(Tries {
                points: 1,
                tried: 1,
                sampled: 0,
                failed: u64::from(symptom.is_some()),
            });
        }
    }

    /// Between a place at which recovery fails (or succeeds, if `from_good`) and a later one at which it does the
    /// opposite: two neighbours of which the same is true.
    fn boundary(
        &mut self,
        from: usize,
        to: usize,
        judged: &mut BTreeMap<usize, Option<Symptom>>,
        from_good: bool,
    ) -> Result<(usize, usize), CheckError> {
        let (mut from, mut to) = (from, to);
        while to - from > 1 {
            let middle = from + (to - from) / 2;
            let symptom = match judged.get(&middle) {
                Some(known) => known.clone(),
                None => {
                    let symptom = self.judge(&TreeTrial::newest(middle))?;
                    judged.insert(middle, symptom.clone());
                    symptom
                }
            };
            if symptom.is_none() == from_good {
                from = middle;
            } else {
                to = middle;
            }
        }
        Ok((from, to))
    }

    /// Adds the findings of places at which recovery fails with nothing lost. If the time of the phase is up, those that were
    /// found stay.
    pub(super) fn explain_prefixes(
        &mut self,
        prefixes: &mut Prefixes,
        places: &mut Places<'_>,
        findings: &mut Vec<Finding>,
    ) -> Result<(), CheckError> {
        let mut known: BTreeMap<StackId, usize> = BTreeMap::new();
        let failing: Vec<usize> = { prefixes.judged.iter() }
            .filter(|(place, symptom)| symptom.is_some() && **place >= prefixes.creation_end)
            .map(|(place, _)| *place)
            .collect();
        for place in failing {
            if self.is_stopped() {
                return Err(CheckError::Interrupted);
            }
            let before = { prefixes.judged.range(..place) }
                .rev()
                .find(|(_, symptom)| symptom.is_none())
                .map_or(prefixes.creation_end.min(place), |(place, _)| *place);
            let (_, first_bad) = self.boundary(before, place, &mut prefixes.judged, true)?;
            let survivor = first_bad.saturating_sub(1);
            let stack =
                { self.recording.operations.get(survivor) }.map_or(StackId::NONE, |it| it.stack);
            let code = self.code_between(survivor);
            // A call that truncates a file also creates it where there is none: that loses nothing.
            let replaced = known.get(&stack).copied();
            let is_worse = |it: usize| {
                code == Some(Code::TruncatedInPlace) && findings[it].code != Code::TruncatedInPlace
            };
            if replaced.is_some_and(|it| !is_worse(it)) {
                continue;
            }
            let after = { prefixes.judged.range(place..) }
                .find(|(_, symptom)| symptom.is_none())
                .map(|(place, _)| *place);
            let next_good = match after {
                Some(after) => Some(self.boundary(place, after, &mut prefixes.judged, false)?.1),
                None => None,
            };
            let trial = TreeTrial::newest(first_bad);
            // It must fail again: a recovery that fails by chance is no evidence.
            let Some(symptom) = self.judge_again(&trial)? else {
                continue;
            };
            let missing = next_good.map(|it| it.saturating_sub(1));
            let found = self.places_between(survivor, missing, first_bad, places)?;
            // Where one write ends several bad moments of a file, it is written in place: that is one bug.
            let same = || { findings.iter() }.position(|it| is_ended_alike(&it.places, &found));
            let replaced = replaced.or_else(same);
            if let Some(known) = replaced.filter(|it| !is_worse(*it)) {
                findings[known].count += 1;
                continue;
            }
            let survived = in_sentence(self.recording, survivor);
            let until = next_good.map_or_else(String::new, |next| {
                format!(
                    " before {}",
                    in_sentence(self.recording, next.saturating_sub(1))
                )
            });
            let message = format!(
                "{} if the power fails after {survived}{until}",
                symptom_words(&symptom)
            );
            let evidence = Evidence {
                failure: FailurePoint {
                    event: self.event_at(first_bad).0,
                    lost_lines: Vec::new(),
                    again: None,
                    filled: Vec::new(),
                },
                recovery: symptom.outcome.clone(),
                last_good_event: (survivor > before || before > 0)
                    .then(|| self.event_at(survivor).0),
                next_good_event: next_good.map(|it| self.event_at(it).0),
                trace: None,
                difference: symptom.difference.clone(),
                torn: false,
                choices: Vec::new(),
            };
            let crash = TreeCrash {
                file_system: self.file_system.to_string(),
                ..TreeCrash::default()
            };
            let finished = FinishedPlaces {
                places: found,
                message,
                evidence,
                crash,
                code: code.unwrap_or(symptom.code),
            };
            let mut finding = self.finish(finished, &trial, &symptom, places)?;
            match replaced {
                Some(number) => {
                    finding.count += findings[number].count;
                    findings[number] = finding;
                }
                None => {
                    known.insert(stack, findings.len());
                    findings.push(finding);
                }
            }
        }
        Ok(())
    }
}

impl TreeEngine<'_, '_> {
    /// The places of a failure with nothing lost. To blame is the operation that comes too early; another one would have helped.
    fn places_between(
        &mut self,
        survivor: usize,
        missing: Option<usize>,
        first_bad: usize,
        places: &mut Places<'_>,
    ) -> Result<Vec<SourcePlace>, CheckError> {
        let failure = Some(first_bad).filter(|_| missing != Some(first_bad));
        let all = [
            (Role::Survivor, Some(survivor)),
            (Role::Store, missing),
            (Role::Failure, failure),
        ];
        let mut found = Vec::new();
        for (role, at) in all {
            if let Some(at) = at.filter(|it| *it < self.recording.len()) {
                found.push(self.place_of(role, at, places)?);
            }
        }
        Ok(found)
    }

    /// The kind of bug if recovery fails after an operation with nothing lost, if the operation says it.
    fn code_between(&self, survivor: usize) -> Option<Code> {
        match self.recording.operations.get(survivor)?.operation {
            Operation::Truncate { .. } => Some(Code::TruncatedInPlace),
            Operation::Unlink { .. } => Some(Code::RemovedBeforeSynced),
            _ => None,
        }
    }
}

/// Whether the same code ends both of two moments at which recovery fails, and began both on the file that it writes.
fn is_ended_alike(one: &[SourcePlace], other: &[SourcePlace]) -> bool {
    let of = |places: &[SourcePlace], role: Role| {
        let place = places.iter().find(|it| it.role == role)?;
        let line = (place.file.clone()?, place.line?, place.function.clone());
        Some((line, place.pool.clone()?))
    };
    let write = |places| {
        let (line, file) = of(places, Role::Store)?;
        let (_, begun) = of(places, Role::Survivor)?;
        (begun == file).then_some((line, file))
    };
    let (one, other) = (write(one), write(other));
    one.is_some() && one == other
}

/// What recovery does, as the beginning of a sentence.
pub(super) fn symptom_words(symptom: &Symptom) -> &'static str {
    match symptom.code {
        Code::RecoveryCrashes => "recovery crashes",
        Code::RecoveryHangs => "recovery hangs",
        Code::CheckerRejects => "the checker rejects what is recovered",
        Code::ContentTorn => "what is recovered is neither the old nor the new content",
        Code::AcknowledgedLost => "an acknowledged operation is lost",
        _ => "recovery fails",
    }
}
