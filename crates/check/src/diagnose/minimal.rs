//! The fewest lost lines, and of each the fewest lost stores, with which recovery still fails.
//!
//! Where that is a part of a store, it is tried whether the loss of the whole store is bad, too. If it is not, the store
//! is *torn*.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_model::{CrashState, EventIndex, LineId};

use super::{Failing, Inquiry, StoresOf};
use crate::runner::{Survival, Trial};
use crate::symptom::Symptom;

/// How many versions of a line a round tries.
const VERSIONS_TRIED: usize = 7;
/// Of how many lines the versions are tried: fewer lost lines matter more than newer versions of many.
const LINES_TRIED: usize = 8;

/// Searches the smallest failing crash state of one failure, a batch of trials at a time.
#[derive(Clone, Debug)]
pub(crate) struct Minimal {
    at: EventIndex,
    lines: Vec<(LineId, usize)>,
    /// The stores of each of the lines; of one that becomes durable in pieces each piece.
    stores: StoresOf,
    symptom: Symptom,
    /// The store of which a part must be lost, and not all of it.
    torn: Option<TornStore>,
    phase: Phase,
}

/// A store of which one line has only the first pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TornStore {
    pub(crate) event: EventIndex,
    /// How many of its pieces in that line survive, and how many there are.
    pub(crate) pieces: usize,
    pub(crate) of: usize,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Nothing is lost.
    Whole,
    /// Lines, in so many parts.
    Lines {
        parts: usize,
    },
    /// Versions of one line, which are bad at its present one and not known to be from `good` on.
    Versions {
        line: usize,
        good: usize,
    },
    /// One line without the whole store of which it has a part.
    Torn {
        line: usize,
    },
    Over {
        whole: bool,
    },
}

impl Minimal {
    pub(crate) fn new(failing: &Failing, stores: &StoresOf) -> Self {
        // Lines that have their newest content are not lost.
        let is_lost = |(id, version): &&(LineId, usize)| {
            stores.get(id).is_some_and(|stores| *version < stores.len())
        };
        let lines: Vec<(LineId, usize)> = failing
            .state
            .versions
            .iter()
            .filter(is_lost)
            .copied()
            .collect();
        Self {
            at: failing.at,
            phase: if lines.is_empty() {
                Phase::Over { whole: true }
            } else {
                Phase::Whole
            },
            lines,
            stores: stores.clone(),
            symptom: failing.symptom.clone(),
            torn: None,
        }
    }

    pub(crate) const fn at(&self) -> EventIndex {
        self.at
    }

    pub(crate) fn state(&self) -> CrashState {
        CrashState {
            versions: self.lines.clone(),
        }
    }

    pub(crate) fn symptom(&self) -> Symptom {
        self.symptom.clone()
    }

    /// Whether recovery fails with nothing lost.
    pub(crate) const fn is_whole(&self) -> bool {
        matches!(self.phase, Phase::Over { whole: true })
    }

    /// The store that is torn, if one is.
    pub(crate) const fn torn(&self) -> Option<TornStore> {
        self.torn
    }

    /// Takes what recovery does with less lost; what it did before is listed with it.
    fn take(&mut self, mut symptom: Symptom) {
        symptom.also(&self.symptom);
        self.symptom = symptom;
    }

    fn trial(&self, lines: Vec<(LineId, usize)>) -> Trial {
        Trial {
            at: self.at,
            state: Survival::Exactly(CrashState { versions: lines }),
        }
    }

    /// The sets of lines to try: each part alone, then all but each part.
    fn sets(&self, parts: usize) -> Vec<Vec<(LineId, usize)>> {
        let count = self.lines.len();
        let range = |part: usize| part * count / parts..(part + 1) * count / parts;
        let mut sets: Vec<Vec<(LineId, usize)>> = (0..parts)
            .map(|part| self.lines[range(part)].to_vec())
            .collect();
        if parts > 2 {
            for part in 0..parts {
                let mut rest = self.lines.clone();
                rest.drain(range(part));
                sets.push(rest);
            }
        }
        sets
    }

    fn versions_between(bad: usize, good: usize) -> Vec<usize> {
        let between = good - bad - 1;
        let tried = between.min(VERSIONS_TRIED);
        (0..tried)
            .map(|number| good - 1 - number * between / tried)
            .collect()
    }

    fn count_of(&self, id: LineId) -> usize {
        self.stores.get(&id).map_or(1, |stores| stores.len() + 1)
    }

    /// The store that a line has a part of, and the version before it.
    fn partial(&self, line: usize) -> Option<(TornStore, usize)> {
        let (id, version) = self.lines.get(line)?;
        let stores = self.stores.get(id)?;
        let event = *stores.get(*version)?;
        let of = stores.iter().filter(|it| **it == event).count();
        let before = stores[..*version].iter().filter(|it| **it == event);
        let pieces = before.count();
        let torn = TornStore { event, pieces, of };
        (pieces > 0).then_some((torn, *version - pieces))
    }

    /// How many stores the lines have whose versions count pieces, if they have no store in part.
    pub(crate) fn whole_stores(&self) -> BTreeMap<LineId, usize> {
        let lines = self.lines.iter().enumerate();
        let lines = lines.filter(|(number, _)| self.partial(*number).is_none());
        let counted = lines.filter_map(|(_, (id, version))| {
            let pieces = self.stores.get(id)?.get(..*version)?;
            let stores: BTreeSet<EventIndex> = pieces.iter().copied().collect();
            (stores.len() < pieces.len()).then_some((*id, stores.len()))
        });
        counted.collect()
    }

    /// Goes to the next line that has a part of a store, or to the end.
    fn torn_from(&mut self, line: usize) {
        let mut lines = line..self.lines.len().min(LINES_TRIED);
        self.phase = match lines.find(|line| self.partial(*line).is_some()) {
            Some(line) => Phase::Torn { line },
            None => Phase::Over { whole: false },
        };
    }

    fn without_whole_store(&mut self, line: usize, symptom: Option<Symptom>) {
        if let Some((torn, before)) = self.partial(line) {
            // Whatever recovery does without all of it: a store is torn only if it succeeds then.
            match symptom {
                Some(symptom) => {
                    self.take(symptom);
                    self.lines[line].1 = before;
                }
                None => self.torn = self.torn.or(Some(torn)),
            }
        }
        self.torn_from(line + 1);
    }

    /// Goes to a line, or to the end.
    fn versions_of(&mut self, mut line: usize) {
        loop {
            let Some((id, version)) = self.lines.get(line).filter(|_| line < LINES_TRIED) else {
                self.torn_from(0);
                return;
            };
            let good = self.count_of(*id) - 1;
            if good > version + 1 {
                self.phase = Phase::Versions { line, good };
                return;
            }
            line += 1;
        }
    }

    fn fewer_lines(&mut self, parts: usize, symptoms: Vec<Option<Symptom>>) {
        let found = self
            .sets(parts)
            .into_iter()
            .zip(symptoms)
            .enumerate()
            .find_map(|(number, (set, symptom))| {
                let symptom = symptom.filter(|it| it.code == self.symptom.code)?;
                Some((number, set, symptom))
            });
        let parts = match found {
            Some((number, set, symptom)) => {
                self.lines = set;
                self.take(symptom);
                if number < parts {
                    2
                } else {
                    (parts - 1).max(2)
                }
            }
            None if parts >= self.lines.len() => {
                self.versions_of(0);
                return;
            }
            None => parts * 2,
        };
        if self.lines.len() < 2 {
            self.versions_of(0);
        } else {
            self.phase = Phase::Lines {
                parts: parts.min(self.lines.len()),
            };
        }
    }

    fn newer_version(&mut self, line: usize, good: usize, symptoms: &[Option<Symptom>]) {
        let bad = self.lines[line].1;
        let tried = Self::versions_between(bad, good);
        // The newest come first.
        let is_same = |symptom: &Option<Symptom>| {
            symptom
                .as_ref()
                .is_some_and(|it| it.code == self.symptom.code)
        };
        let found = symptoms.iter().position(is_same);
        let (bad, good) = match found {
            Some(number) => {
                if let Some(symptom) = &symptoms[number] {
                    self.take(symptom.clone());
                }
                let next = number.checked_sub(1).map_or(good, |newer| tried[newer]);
                (tried[number], next)
            }
            None => (bad, tried.last().copied().unwrap_or(bad + 1)),
        };
        self.lines[line].1 = bad;
        if good > bad + 1 {
            self.phase = Phase::Versions { line, good };
        } else {
            self.versions_of(line + 1);
        }
    }
}

impl Inquiry for Minimal {
    fn probes(&self) -> Vec<Trial> {
        match self.phase {
            Phase::Whole => vec![Trial::prefix(self.at)],
            Phase::Lines { parts } => {
                let sets = self.sets(parts).into_iter();
                sets.map(|set| self.trial(set)).collect()
            }
            Phase::Versions { line, good } => {
                let versions = Self::versions_between(self.lines[line].1, good);
                let with = |version| {
                    let mut lines = self.lines.clone();
                    lines[line].1 = version;
                    self.trial(lines)
                };
                versions.into_iter().map(with).collect()
            }
            Phase::Torn { line } => {
                let mut lines = self.lines.clone();
                if let Some((_, before)) = self.partial(line) {
                    lines[line].1 = before;
                }
                vec![self.trial(lines)]
            }
            Phase::Over { .. } => Vec::new(),
        }
    }

    fn answer(&mut self, mut symptoms: Vec<Option<Symptom>>) {
        match self.phase {
            Phase::Whole => match symptoms.pop().flatten() {
                Some(symptom) if symptom.code == self.symptom.code => {
                    self.take(symptom);
                    self.lines.clear();
                    self.phase = Phase::Over { whole: true };
                }
                _ if self.lines.len() > 1 => self.phase = Phase::Lines { parts: 2 },
                _ => self.versions_of(0),
            },
            Phase::Lines { parts } => self.fewer_lines(parts, symptoms),
            Phase::Versions { line, good } => self.newer_version(line, good, &symptoms),
            Phase::Torn { line } => self.without_whole_store(line, symptoms.pop().flatten()),
            Phase::Over { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use powerfail_finding::{Code, RecoveryOutcome};
    use powerfail_model::{LineIndex, PoolIndex};
    use proptest::prelude::*;

    use super::*;

    fn line(number: u64) -> LineId {
        LineId {
            pool: PoolIndex(0),
            line: LineIndex(number),
        }
    }

    fn symptom() -> Symptom {
        Symptom {
            code: Code::RecoveryRejects,
            outcome: RecoveryOutcome::Exit {
                status: 1,
                command: "recovery".into(),
                output: String::new(),
            },
            backtrace: None,
            difference: None,
            others: Vec::new(),
        }
    }

    /// Runs an inquiry against a rule that says which states are bad; how many trials it took.
    fn run(minimal: &mut Minimal, is_bad: impl Fn(&[(LineId, usize)]) -> bool) -> usize {
        let mut trials = 0;
        loop {
            let probes = minimal.probes();
            if probes.is_empty() {
                return trials;
            }
            trials += probes.len();
            assert!(trials < 10_000, "it must come to an end");
            let verdict = |trial: &Trial| match &trial.state {
                Survival::Exactly(state) => is_bad(&state.versions).then(symptom),
                _ => is_bad(&[]).then(symptom),
            };
            minimal.answer(probes.iter().map(verdict).collect());
        }
    }

    fn failing(lines: u64, stores: usize) -> (Failing, StoresOf) {
        let failing = Failing {
            at: EventIndex(1000),
            state: CrashState {
                versions: (0..lines).map(|number| (line(number), 0)).collect(),
            },
            symptom: symptom(),
        };
        let events: Vec<EventIndex> = (0..stores as u64).map(EventIndex).collect();
        let stores = (0..lines).map(|number| (line(number), events.clone()));
        (failing, stores.collect())
    }

    proptest! {
        #[test]
        fn what_is_left_is_bad_and_nothing_of_it_can_be_restored(
            lines in 1_u64..40,
            stores in 1_usize..20,
            needed in prop::collection::btree_map(0_u64..40, 0_usize..20, 1..4),
        ) {
            let (failing, of) = failing(lines, stores);
            let needed: Vec<(LineId, usize)> = needed
                .into_iter()
                .map(|(number, version)| (line(number % lines), version % stores))
                .collect();
            // Bad if each needed line is lost, at that version or an older one.
            let is_bad = |state: &[(LineId, usize)]| {
                needed.iter().all(|(id, newest)| {
                    state.iter().any(|(line, version)| line == id && version <= newest)
                })
            };
            let mut minimal = Minimal::new(&failing, &of);
            run(&mut minimal, is_bad);
            prop_assert!(!minimal.is_whole());
            let left = minimal.state().versions;
            prop_assert!(is_bad(&left));
            for number in 0..left.len() {
                let mut fewer = left.clone();
                fewer.remove(number);
                prop_assert!(!is_bad(&fewer));
                let mut newer = left.clone();
                newer[number].1 += 1;
                prop_assert!(!is_bad(&newer));
            }
        }
    }

    /// Two pieces of the store 0, and the store 1.
    fn failing_in_pieces() -> (Failing, StoresOf) {
        let (failing, _) = failing(1, 3);
        let events = vec![EventIndex(0), EventIndex(0), EventIndex(1)];
        (failing, StoresOf::from([(line(0), events)]))
    }

    /// As [`failing_in_pieces`], where one piece of the first store survives.
    fn failing_with_one_piece() -> (Failing, StoresOf) {
        let (failing, of) = failing_in_pieces();
        let state = CrashState {
            versions: vec![(line(0), 1)],
        };
        (Failing { state, ..failing }, of)
    }

    #[test]
    fn a_store_is_torn_if_only_a_part_of_it_must_be_lost() {
        let (torn, of) = failing_with_one_piece();
        let mut minimal = Minimal::new(&torn, &of);
        run(&mut minimal, |state| state.iter().any(|(_, it)| *it == 1));
        let expected = TornStore {
            event: EventIndex(0),
            pieces: 1,
            of: 2,
        };
        assert_eq!(minimal.torn(), Some(expected));
        assert_eq!(minimal.state().versions, [(line(0), 1)]);
    }

    #[test]
    fn a_store_whose_whole_loss_is_bad_is_not_torn() {
        let (failing, of) = failing_in_pieces();
        let mut minimal = Minimal::new(&failing, &of);
        run(&mut minimal, |state| state.iter().any(|(_, it)| *it <= 1));
        assert_eq!(minimal.torn(), None);
        assert_eq!(minimal.state().versions, [(line(0), 0)]);
    }

    #[test]
    fn a_store_whose_whole_loss_is_bad_in_another_way_is_not_torn() {
        let (torn, of) = failing_with_one_piece();
        let mut minimal = Minimal::new(&torn, &of);
        loop {
            let probes = minimal.probes();
            if probes.is_empty() {
                break;
            }
            let verdict = |trial: &Trial| match &trial.state {
                Survival::Exactly(state) if state.versions == [(line(0), 0)] => Some(Symptom {
                    code: Code::RecoveryHangs,
                    ..symptom()
                }),
                Survival::Exactly(state) if state.versions == [(line(0), 1)] => Some(symptom()),
                _ => None,
            };
            minimal.answer(probes.iter().map(verdict).collect());
        }
        assert_eq!(minimal.torn(), None);
        assert_eq!(minimal.state().versions, [(line(0), 0)]);
        assert_eq!(minimal.symptom().code, Code::RecoveryHangs);
    }

    #[test]
    fn where_nothing_must_be_lost_nothing_is_searched() {
        let (failing, of) = failing(30, 3);
        let mut minimal = Minimal::new(&failing, &of);
        assert_eq!(run(&mut minimal, |_| true), 1);
        assert!(minimal.is_whole());
        assert!(minimal.state().versions.is_empty());
    }

    #[test]
    fn one_line_among_many_takes_few_trials() {
        let (failing, of) = failing(1000, 1);
        let mut minimal = Minimal::new(&failing, &of);
        let trials = run(&mut minimal, |state| {
            state.iter().any(|(id, _)| *id == line(700))
        });
        assert_eq!(minimal.state().versions, [(line(700), 0)]);
        assert!(trials <= 2 * 10 + 1, "{trials}");
    }
}
