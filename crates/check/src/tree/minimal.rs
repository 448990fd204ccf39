//! The smallest loss that still makes recovery fail, and the earliest moment.

use std::collections::BTreeSet;

use powerfail_model::files::{CrashState, Difference, Frontier, LostPage, NodeId, OperationIndex};

use super::engine::TreeEngine;
use super::lossy::Failing;
use super::remedy::Remedy;
use super::runner::TreeTrial;
use crate::error::CheckError;
use crate::symptom::Symptom;

/// How many recoveries a search may take.
const RUNS_MAX: usize = 64;

/// A failure that no smaller loss explains.
pub(super) struct Minimal {
    /// The power fails before the operation at this place.
    pub(super) place: usize,
    pub(super) state: CrashState,
    pub(super) symptom: Symptom,
}

/// What a failure is due to.
pub(super) enum Reduced {
    /// A loss that cannot be smaller.
    To(Box<Minimal>),
    /// One that the syncs of the known bug with this number prevent.
    ToKnown(usize),
    /// The workload had not created its files yet, or a crash has lost that: no bug.
    ToCreation,
    /// Recovery does not fail again.
    Unstable,
}

impl TreeEngine<'_, '_> {
    /// Minimises a failure, unless the syncs that a known bug lacks prevent it.
    pub(super) fn minimal(
        &mut self,
        failing: &Failing,
        known: &[(usize, &Remedy)],
    ) -> Result<Reduced, CheckError> {
        let mut place = failing.place;
        let mut frontier = self.frontier(self.file_system, place);
        let mut state = failing.state.clone();
        let difference = frontier.difference(&state);
        if self.is_creation_tree(place, &difference) {
            return Ok(Reduced::Unstable);
        }
        let Some(mut symptom) = self.judge_again(&TreeTrial { place, difference })? else {
            return Ok(Reduced::Unstable);
        };
        if let Some((later, found)) = self.latest_cut(&frontier, place, &state, &symptom)? {
            (state, symptom) = (later, found);
        }
        if let Some(earlier) = self.cut_off(place, &state, &symptom)? {
            (place, state, symptom) = (earlier.place, earlier.state, earlier.symptom);
            frontier = self.frontier(self.file_system, place);
        }
        for (number, remedy) in known {
            match self.left_by(remedy, place, &state, symptom.code)? {
                Some(left) if left.is_newest() => return Ok(Reduced::ToKnown(*number)),
                Some(left) => state = left,
                None => {}
            }
        }
        let mut runs = 0;
        let mut tried: BTreeSet<CrashState> = BTreeSet::new();
        'smaller: loop {
            for candidate in smaller(&state) {
                if candidate.is_newest()
                    || !tried.insert(candidate.clone())
                    || !frontier.permits(&candidate)
                {
                    continue;
                }
                runs += 1;
                if runs > RUNS_MAX {
                    break 'smaller;
                }
                let judged = self.judge_state(&frontier, place, &candidate)?;
                if let Some(found) = judged.filter(|it| it.code == symptom.code) {
                    (state, symptom) = (candidate, found);
                    continue 'smaller;
                }
            }
            break;
        }
        if self.is_of_creation(&frontier, place, &state, &symptom)? {
            return Ok(Reduced::ToCreation);
        }
        let (place, symptom) = self.earliest(place, &state, symptom)?;
        Ok(Reduced::To(Box::new(Minimal {
            place,
            state,
            symptom,
        })))
    }

    /// Whether a smaller loss leaves a tree that the workload had while it created its files, on which recovery fails in the
    /// same way.
    fn is_of_creation(
        &mut self,
        frontier: &Frontier,
        place: usize,
        state: &CrashState,
        symptom: &Symptom,
    ) -> Result<bool, CheckError> {
        if self.creation_trees.is_empty() {
            return Ok(false);
        }
        for smaller in smaller(state) {
            let difference = frontier.difference(&smaller);
            if frontier.permits(&smaller) && self.is_creation_tree(place, &difference) {
                let judged = self.judge(&TreeTrial { place, difference })?;
                return Ok(judged.is_some_and(|it| it.code == symptom.code));
            }
        }
        Ok(false)
    }

    /// Whether the workload had a tree while it created its files.
    fn is_creation_tree(&self, place: usize, difference: &Difference) -> bool {
        !self.creation_trees.is_empty() && {
            let digest = self.recording.image(place, difference).digest();
            self.creation_trees.contains(&digest)
        }
    }

    /// If a state has lost all operations on names from one on: the state that loses the fewest of them and fails in the
    /// same way. What is lost with a name, such as the length of its file, makes each of them a state of its own, so that
    /// leaving out single losses does not lead from one to the other.
    fn latest_cut(
        &mut self,
        frontier: &Frontier,
        place: usize,
        state: &CrashState,
        symptom: &Symptom,
    ) -> Result<Option<(CrashState, Symptom)>, CheckError> {
        let all: BTreeSet<OperationIndex> = state.lost.iter().copied().collect();
        let mut counts = BTreeSet::new();
        let is_smaller = |it: &CrashState| {
            // One that loses no names loses data, of all files.
            !it.lost.is_empty()
                && it != state
                && it.lost.len() <= all.len()
                && it.lost.iter().all(|lost| all.contains(lost))
        };
        // The newest state of each cut, the least loss first.
        let mut cuts: Vec<CrashState> = frontier.prefixes(usize::MAX);
        cuts.retain(|it| is_smaller(it) && counts.insert(it.lost.len()));
        cuts.sort_by_key(|it| it.lost.len());
        let mut best = None;
        let (mut low, mut high) = (0, cuts.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let judged = self.judge_state(frontier, place, &cuts[middle])?;
            match judged.filter(|it| it.code == symptom.code) {
                Some(found) => {
                    best = Some((cuts[middle].clone(), found));
                    high = middle;
                }
                None => low = middle + 1,
            }
        }
        Ok(best)
    }

    /// A state that has lost some operations, at the end of a run with few syncs, is like one at an earlier moment, at which
    /// most of what it has lost was not done yet. This is the first such moment at which recovery fails in the same way, if
    /// there is one.
    fn cut_off(
        &mut self,
        place: usize,
        state: &CrashState,
        symptom: &Symptom,
    ) -> Result<Option<Minimal>, CheckError> {
        let operations = &self.recording.operations;
        let Some(oldest) = lost_operations(state).min() else {
            return Ok(None);
        };
        let first = operations.partition_point(|it| it.index <= oldest);
        let first = first.max(self.creation_end);
        let mut best = None;
        let (mut low, mut high) = (first, place);
        while low < high {
            let middle = low + (high - low) / 2;
            let next = self.recording.operations.get(middle);
            let end = next.map_or(LostPage::NOTHING, |it| it.index);
            let cut = before(state, end);
            match self.fails_at(middle, &cut, symptom)? {
                Some(found) => {
                    best = Some(Minimal {
                        place: middle,
                        state: cut,
                        symptom: found,
                    });
                    high = middle;
                }
                None => low = middle + 1,
            }
        }
        Ok(best)
    }

    /// What is wrong after a crash that leaves a state. Nothing if the workload had that tree while it created its files.
    pub(super) fn judge_state(
        &mut self,
        frontier: &Frontier,
        place: usize,
        state: &CrashState,
    ) -> Result<Option<Symptom>, CheckError> {
        let difference = frontier.difference(state);
        if self.is_creation_tree(place, &difference) {
            return Ok(None);
        }
        self.judge(&TreeTrial { place, difference })
    }

    /// The earliest moment at which the same loss makes recovery fail.
    fn earliest(
        &mut self,
        place: usize,
        state: &CrashState,
        symptom: Symptom,
    ) -> Result<(usize, Symptom), CheckError> {
        let newest_lost = lost_operations(state).max().unwrap_or(OperationIndex(0));
        let operations = &self.recording.operations;
        let first = operations.partition_point(|it| it.index <= newest_lost);
        let (mut low, mut high, mut symptom) = (first, place, symptom);
        if low >= high {
            return Ok((place, symptom));
        }
        // `high` fails. `low` is tried first: most failures need no later operation, or the next one.
        for near in [low, low + 1] {
            if near >= high {
                break;
            }
            match self.fails_at(near, state, &symptom)? {
                Some(found) => return Ok((near, found)),
                None => low = near,
            }
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.fails_at(middle, state, &symptom)? {
                Some(found) => (high, symptom) = (middle, found),
                None => low = middle,
            }
        }
        Ok((high, symptom))
    }

    fn fails_at(
        &mut self,
        place: usize,
        state: &CrashState,
        like: &Symptom,
    ) -> Result<Option<Symptom>, CheckError> {
        let frontier = self.frontier(self.file_system, place);
        if state.is_newest() || !frontier.permits(state) {
            return Ok(None);
        }
        let judged = self.judge_state(&frontier, place, state)?;
        let Some(found) = judged.filter(|it| it.code == like.code) else {
            return Ok(None);
        };
        // What fails without any loss is not caused by this one.
        let fails_anyway = self.judge(&TreeTrial::newest(place))?.is_some();
        Ok((!fails_anyway).then_some(found))
    }
}

/// The operations that a state has lost, as far as it names them.
pub(super) fn lost_operations(state: &CrashState) -> impl Iterator<Item = OperationIndex> {
    let names = state.lost.iter().copied();
    let lengths = state.lengths.iter().map(|it| it.first_lost);
    let sectors = state.pages.iter().flat_map(|it| it.first_lost);
    let sectors = sectors.filter(|it| *it != LostPage::NOTHING);
    names.chain(lengths).chain(sectors)
}

/// What a state has lost of the operations before one.
fn before(state: &CrashState, end: OperationIndex) -> CrashState {
    let mut earlier = state.clone();
    earlier.lost.retain(|it| *it < end);
    earlier.lengths.retain(|it| it.first_lost < end);
    for page in &mut earlier.pages {
        for lost in &mut page.first_lost {
            if *lost >= end {
                *lost = LostPage::NOTHING;
            }
        }
    }
    drop_whole_pages(&mut earlier);
    earlier
}

/// Leaves out pages of which nothing is lost.
fn drop_whole_pages(state: &mut CrashState) {
    let nothing = [LostPage::NOTHING; powerfail_model::files::SECTORS_PER_PAGE];
    state.pages.retain(|it| it.first_lost != nothing);
}

/// States that lose less, those that lose much less first. Not all of them are possible.
pub(super) fn smaller(state: &CrashState) -> Vec<CrashState> {
    let mut all = Vec::new();
    if !state.lost.is_empty() {
        let mut half = state.lost.len();
        while half > 0 {
            all.push(CrashState {
                lost: state.lost[half..].to_vec(),
                ..state.clone()
            });
            half /= 2;
        }
    }
    let mut nodes: BTreeSet<NodeId> = state.pages.iter().map(|it| it.node).collect();
    nodes.extend(state.lengths.iter().map(|it| it.node));
    for node in nodes {
        let without_pages = CrashState {
            pages: { state.pages.iter() }
                .filter(|it| it.node != node)
                .copied()
                .collect(),
            ..state.clone()
        };
        let without_length = |state: &CrashState| CrashState {
            lengths: { state.lengths.iter() }
                .filter(|it| it.node != node)
                .copied()
                .collect(),
            ..state.clone()
        };
        all.push(without_length(&without_pages));
        all.push(without_pages);
        all.push(without_length(state));
    }
    let count = state.pages.len();
    if count > 1 {
        for half in [0..count / 2, count / 2..count] {
            let pages = state.pages.iter().enumerate();
            all.push(CrashState {
                pages: pages
                    .filter(|(number, _)| !half.contains(number))
                    .map(|(_, page)| *page)
                    .collect(),
                ..state.clone()
            });
        }
    }
    for (number, page) in state.pages.iter().enumerate().take(16) {
        let mut fewer = state.clone();
        fewer.pages.remove(number);
        all.push(fewer);
        for sector in 0..page.first_lost.len() {
            if page.first_lost[sector] != LostPage::NOTHING {
                let mut fewer = state.clone();
                fewer.pages[number].first_lost[sector] = LostPage::NOTHING;
                drop_whole_pages(&mut fewer);
                all.push(fewer);
            }
        }
    }
    all.retain(|it| it != state);
    all
}
