//! Why a crash state is bad: the fewest lost stores, the store that survived without them, and what would
//! have kept them in order.
//!
//! Input is a crash state on which recovery fails. The way to the cause:
//!
//! 1. With nothing lost at the same moment: if recovery fails there too, no lost line is to blame.
//! 2. The lost lines, by delta debugging (Zeller's ddmin): the fewest that still make recovery fail.
//! 3. Of each of them the fewest lost stores: the newest version that is still bad. Where that is a part of a store and
//!    the loss of all of it is not bad, the store is torn.
//! 4. The survivor: the first store after the lost ones with which recovery fails. If it fails as soon as
//!    the store is lost, the program's own order is bad at that moment.
//! 5. The state just before the survivor, with nothing lost: if recovery fails there too, neither order is
//!    right and the two belong together. Otherwise flushes and fences in between say what is missing.
//!
//! Every step is run, nothing is inferred; all failures go through it together, so that one pass over the
//! trace serves a whole round of trials for all of them. The same for eager and lazy exploration.

mod flushes;
mod minimal;
mod survivor;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use powerfail_explore::{LostLines, OlderVersion};
use powerfail_finding::Code;
use powerfail_image::{CursorOptions, ImageCursor};
use powerfail_model::{CrashState, EventIndex, LineId, Rules};
use powerfail_trace::Trace;

use crate::error::CheckError;
use crate::runner::{Survival, Trial};
use crate::symptom::Symptom;

pub(crate) use flushes::LostStore;
use minimal::{Minimal, TornStore};
use survivor::SurvivorSearch;

/// A crash state on which recovery fails.
#[derive(Clone, Debug)]
pub(crate) struct Failing {
    /// The power fails just before this event.
    pub(crate) at: EventIndex,
    /// The lines that do not have their newest content.
    pub(crate) state: CrashState,
    /// What recovery does.
    pub(crate) symptom: Symptom,
}

/// Runs trials and judges them.
pub(crate) trait TrialJudge {
    /// What is wrong with each of them, if anything is; nothing either for those that are not possible.
    fn judge_all(&mut self, trials: &[Trial]) -> Result<Vec<Option<Symptom>>, CheckError>;
}

/// What kind of bug it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// Recovery fails with nothing lost, at [`Diagnosis::at`]: the order of the program itself is bad.
    ProgramOrder,
    /// What is lost was never flushed.
    MissingFlush,
    /// What is lost was flushed, and no fence came before the survivor.
    MissingFence,
    /// What is lost was flushed after the survivor.
    WrongOrder,
    /// What is lost and the survivor must become durable together: recovery fails in either order.
    Atomicity,
    /// A part of a store is lost while the rest survives: recovery succeeds with all of it, and without it.
    Torn,
}

/// What a failure comes from.
#[derive(Clone, Debug)]
pub(crate) struct Diagnosis {
    /// The power fails just before this event.
    pub(crate) at: EventIndex,
    /// The fewest lines that must be lost, each with as many of its stores as possible.
    pub(crate) state: CrashState,
    /// What recovery does with this state.
    pub(crate) symptom: Symptom,
    /// What kind of bug it is.
    pub(crate) cause: Cause,
    /// The first lost store of each line, oldest first.
    pub(crate) lost: Vec<LostStore>,
    /// The store that survived without them and made the state bad.
    pub(crate) survivor: Option<EventIndex>,
    /// The store of which one line has only the first pieces, if that is the cause.
    pub(crate) torn: Option<TornStore>,
    /// How many stores survive in lines whose version counts pieces of stores, where each of them is whole.
    pub(crate) whole: BTreeMap<LineId, usize>,
}

impl Diagnosis {
    /// The code under which it is reported: that of the cause where one store is to blame, and that of
    /// the symptom where two are.
    pub(crate) fn code(&self) -> Code {
        let is_fenced = self.lost.first().is_some_and(LostStore::is_fenced);
        match (self.cause, self.survivor) {
            // It is not a store that comes too early.
            (_, None) if self.symptom.code == Code::AcknowledgedLost => self.symptom.code,
            (Cause::MissingFlush, _) => Code::StoreNotFlushed,
            (Cause::MissingFence, _) if !is_fenced => Code::FlushNotFenced,
            (Cause::MissingFence | Cause::WrongOrder, Some(_)) => Code::PublishedBeforeDurable,
            _ => self.symptom.code,
        }
    }
}

/// The stores of the open lines that are lost in some failure, at its moment.
pub(crate) type StoresOf = BTreeMap<LineId, Vec<EventIndex>>;

/// Finds the causes of failures; the answers are in their order.
pub(crate) fn diagnose(
    trace: &Trace,
    rules: Rules,
    failures: &[Failing],
    judge: &mut dyn TrialJudge,
) -> Result<Vec<Diagnosis>, CheckError> {
    let stores = stores_of(trace, rules, failures)?;
    let mut minimal: Vec<Minimal> = failures
        .iter()
        .zip(&stores)
        .map(|(failing, stores)| Minimal::new(failing, stores))
        .collect();
    rounds(&mut minimal, judge)?;

    let mut survivors = Vec::new();
    for (case, stores) in minimal.iter().zip(&stores) {
        survivors.push(SurvivorSearch::new(trace, case, stores)?);
    }
    rounds(&mut survivors, judge)?;

    let lost: Vec<Vec<EventIndex>> = survivors.iter().map(|it| it.lost().to_vec()).collect();
    let flushed = flushes::look_up(trace, rules, &minimal, &stores, &lost)?;
    let all = minimal.iter().zip(&survivors).zip(flushed);
    Ok(all
        .map(|((minimal, survivor), lost)| conclude(minimal, survivor, lost))
        .collect())
}

/// Something that asks for trials until it knows enough.
pub(crate) trait Inquiry {
    /// What to try next; nothing when it is over.
    fn probes(&self) -> Vec<Trial>;
    /// What became of these, in their order.
    fn answer(&mut self, symptoms: Vec<Option<Symptom>>);
}

/// Lets all inquiries go on until they are over, a batch of trials for each round.
fn rounds(inquiries: &mut [impl Inquiry], judge: &mut dyn TrialJudge) -> Result<(), CheckError> {
    loop {
        let probes: Vec<Vec<Trial>> = inquiries.iter().map(Inquiry::probes).collect();
        let trials: Vec<Trial> = probes.iter().flatten().cloned().collect();
        if trials.is_empty() {
            return Ok(());
        }
        let mut symptoms = judge.judge_all(&trials)?.into_iter();
        for (inquiry, probes) in inquiries.iter_mut().zip(probes) {
            if !probes.is_empty() {
                inquiry.answer(symptoms.by_ref().take(probes.len()).collect());
            }
        }
    }
}

/// One pass for all moments.
fn stores_of(
    trace: &Trace,
    rules: Rules,
    failures: &[Failing],
) -> Result<Vec<StoresOf>, CheckError> {
    let mut order: Vec<usize> = (0..failures.len()).collect();
    order.sort_by_key(|number| failures[*number].at);
    let options = CursorOptions {
        rules: Some(rules),
        ..CursorOptions::default()
    };
    let mut cursor = ImageCursor::new(trace, options)?;
    let mut stores = vec![StoresOf::new(); failures.len()];
    for number in order {
        cursor.move_to(failures[number].at)?;
        let Some(frontier) = cursor.frontier() else {
            continue;
        };
        for (id, _) in &failures[number].state.versions {
            if let Some(line) = frontier.open_line(*id) {
                let events = line.stores().map(|store| store.event).collect();
                stores[number].insert(*id, events);
            }
        }
    }
    Ok(stores)
}

fn conclude(minimal: &Minimal, search: &SurvivorSearch, mut lost: Vec<LostStore>) -> Diagnosis {
    if minimal.is_whole() || search.is_program_order() {
        let at = if minimal.is_whole() {
            minimal.at()
        } else {
            search.first_lost().unwrap_or_else(|| minimal.at())
        };
        return Diagnosis {
            at,
            state: CrashState::default(),
            symptom: search
                .program_order_symptom()
                .unwrap_or_else(|| minimal.symptom()),
            cause: Cause::ProgramOrder,
            lost: Vec::new(),
            survivor: None,
            torn: None,
            whole: BTreeMap::new(),
        };
    }
    let torn = minimal.torn();
    let survivor = search.survivor();
    let limit = survivor.unwrap_or_else(|| minimal.at());
    // Another line of the same store survives.
    let is_one_store = lost.iter().any(|store| Some(store.event) == survivor);
    let cause = match lost.first() {
        _ if torn.is_some() || is_one_store => Cause::Torn,
        _ if search.fails_either_way() => Cause::Atomicity,
        Some(first) => first.cause(limit),
        None => Cause::Atomicity,
    };
    if cause == Cause::Torn {
        // What is torn comes first.
        let event = torn.map(|torn| torn.event).or(survivor);
        lost.sort_by_key(|store| (Some(store.event) != event, store.event));
    }
    Diagnosis {
        at: minimal.at(),
        state: minimal.state(),
        symptom: minimal.symptom(),
        cause,
        lost,
        survivor: survivor.filter(|_| cause != Cause::Torn),
        torn,
        whole: minimal.whole_stores(),
    }
}

/// The trial in which lines are lost from these stores on, at any moment: stores that did not happen yet
/// cannot be lost.
pub(crate) fn lost_at(at: EventIndex, lost: &[(LineId, EventIndex)]) -> Trial {
    let lines: LostLines = lost
        .iter()
        .filter(|(_, event)| *event < at)
        .map(|(line, event)| (*line, OlderVersion::Before(*event)))
        .collect();
    Trial {
        at,
        state: Survival::Lost(lines),
    }
}
