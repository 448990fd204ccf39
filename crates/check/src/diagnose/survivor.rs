//! The store that survived without the lost ones, and should not have.
//!
//! The lost stores stay lost while the crash moves towards them, store by store: the first store with which
//! recovery fails is the survivor. Good and bad moments are taken to lie on two sides of it, as in
//! [`crate::reason`].

use powerfail_finding::Code;
use powerfail_model::{Event, EventIndex, LineId};
use powerfail_trace::{Body, Trace};

use super::minimal::Minimal;
use super::{Inquiry, StoresOf, lost_at};
use crate::error::CheckError;
use crate::runner::Trial;
use crate::symptom::Symptom;
use crate::window;

/// How many moments a round tries between two known ones.
const SPLITS: usize = 7;
/// How many events before the failure are looked through for the survivor.
const EVENTS_MAX: u64 = 1 << 18;

/// Searches the store that survived and should not have, a batch of trials at a time.
#[derive(Clone, Debug)]
pub(crate) struct SurvivorSearch {
    /// The first lost store of each line, oldest first.
    lost: Vec<EventIndex>,
    lines: Vec<(LineId, EventIndex)>,
    /// Stores between the oldest lost one and the failure, in its window.
    stores: Vec<EventIndex>,
    /// Where that window begins, if the oldest lost store lies before it.
    border: Option<EventIndex>,
    code: Option<Code>,
    phase: Phase,
    program_order: Option<Symptom>,
    either_way: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Right behind the oldest lost store: all that came before it is there.
    Begin,
    /// Right behind the last store: if recovery succeeds there, it is not a store that makes the loss bad.
    Last,
    /// With the first `good` stores it succeeds, with the first `bad` it fails.
    Between {
        good: usize,
        bad: usize,
    },
    /// Just before the survivor, with nothing lost.
    Either {
        survivor: usize,
    },
    Over {
        survivor: Option<usize>,
    },
}

impl SurvivorSearch {
    pub(crate) fn new(
        trace: &Trace,
        minimal: &Minimal,
        stores: &StoresOf,
    ) -> Result<Self, CheckError> {
        let state = minimal.state();
        let mut lines: Vec<(LineId, EventIndex)> = state
            .versions
            .iter()
            .filter_map(|(id, version)| Some((*id, *stores.get(id)?.get(*version)?)))
            .collect();
        lines.sort_by_key(|(_, event)| *event);
        let mut search = Self {
            lost: lines.iter().map(|(_, event)| *event).collect(),
            lines,
            stores: Vec::new(),
            border: None,
            code: Some(minimal.symptom().code),
            phase: Phase::Over { survivor: None },
            program_order: None,
            either_way: false,
        };
        if minimal.torn().is_some() {
            // A part of the store itself survives.
            return Ok(search);
        }
        if let Some(oldest) = search.first_lost() {
            (search.stores, search.border) = stores_between(trace, oldest, minimal.at())?;
            search.phase = Phase::Begin;
        }
        Ok(search)
    }

    pub(crate) fn lost(&self) -> &[EventIndex] {
        &self.lost
    }

    pub(crate) fn first_lost(&self) -> Option<EventIndex> {
        self.lost.first().copied()
    }

    /// Whether recovery fails as soon as the oldest store is lost: then it fails just before that store with
    /// nothing lost at all.
    pub(crate) const fn is_program_order(&self) -> bool {
        self.program_order.is_some()
    }

    pub(crate) fn program_order_symptom(&self) -> Option<Symptom> {
        self.program_order.clone()
    }

    pub(crate) fn survivor(&self) -> Option<EventIndex> {
        match self.phase {
            Phase::Over { survivor } => survivor.map(|number| self.stores[number]),
            _ => None,
        }
    }

    /// Whether recovery fails just before the survivor, too, when nothing is lost.
    pub(crate) const fn fails_either_way(&self) -> bool {
        self.either_way
    }

    /// Right behind the first so many stores.
    fn moment(&self, count: usize) -> Trial {
        let after = |event: EventIndex| EventIndex(event.0 + 1);
        let at = match (count.checked_sub(1), self.border) {
            (Some(number), _) => after(self.stores[number]),
            (None, Some(border)) => border,
            (None, None) => after(self.lost[0]),
        };
        lost_at(at, &self.lines)
    }

    fn counts_between(good: usize, bad: usize) -> Vec<usize> {
        let between = bad - good - 1;
        let tried = between.min(SPLITS);
        (1..=tried)
            .map(|number| good + number * (between + 1) / (tried + 1))
            .collect()
    }

    fn narrow(&mut self, good: usize, bad: usize) {
        self.phase = if bad > good + 1 {
            Phase::Between { good, bad }
        } else {
            Phase::Either { survivor: bad - 1 }
        };
    }

    /// Whether what is right changes without a store, when an operation is acknowledged.
    fn depends_on_acknowledgement(&self) -> bool {
        matches!(self.code, Some(Code::AcknowledgedLost | Code::ContentTorn))
    }

    fn is_same(&self, symptom: Option<&Symptom>) -> bool {
        symptom.is_some_and(|symptom| Some(symptom.code) == self.code)
    }
}

impl Inquiry for SurvivorSearch {
    fn probes(&self) -> Vec<Trial> {
        match self.phase {
            Phase::Begin => {
                let border = self.border.map(|at| lost_at(at, &self.lines));
                let first = self.lost.first().map(|at| Trial::prefix(*at));
                border.or(first).into_iter().collect()
            }
            Phase::Last => vec![self.moment(self.stores.len())],
            Phase::Between { good, bad } => {
                let counts = Self::counts_between(good, bad).into_iter();
                counts.map(|count| self.moment(count)).collect()
            }
            Phase::Either { survivor } => vec![Trial::prefix(self.stores[survivor])],
            Phase::Over { .. } => Vec::new(),
        }
    }

    fn answer(&mut self, mut symptoms: Vec<Option<Symptom>>) {
        match self.phase {
            Phase::Begin => {
                let symptom = symptoms.pop().flatten();
                if self.is_same(symptom.as_ref()) {
                    self.program_order = symptom.filter(|_| self.border.is_none());
                    self.phase = Phase::Over { survivor: None };
                } else if self.stores.is_empty() {
                    self.phase = Phase::Over { survivor: None };
                } else if self.depends_on_acknowledgement() {
                    self.phase = Phase::Last;
                } else {
                    self.narrow(0, self.stores.len());
                }
            }
            Phase::Last => {
                if self.is_same(symptoms.pop().flatten().as_ref()) {
                    self.narrow(0, self.stores.len());
                } else {
                    self.phase = Phase::Over { survivor: None };
                }
            }
            Phase::Between { good, bad } => {
                let counts = Self::counts_between(good, bad);
                let first_bad = symptoms.iter().position(|it| self.is_same(it.as_ref()));
                let (good, bad) = match first_bad {
                    Some(0) => (good, counts[0]),
                    Some(number) => (counts[number - 1], counts[number]),
                    None => (counts.last().copied().unwrap_or(good), bad),
                };
                self.narrow(good, bad);
            }
            Phase::Either { survivor } => {
                let symptom = symptoms.pop().flatten();
                self.either_way = self.is_same(symptom.as_ref());
                self.phase = Phase::Over {
                    survivor: Some(survivor),
                };
            }
            Phase::Over { .. } => {}
        }
    }
}

/// The stores after one event and before another, and where the window of the latter begins if that is between them.
fn stores_between(
    trace: &Trace,
    after: EventIndex,
    before: EventIndex,
) -> Result<(Vec<EventIndex>, Option<EventIndex>), CheckError> {
    let first = (after.0 + 1).max(before.0.saturating_sub(EVENTS_MAX));
    let mut records = trace.records_from(EventIndex(first));
    let mut stores = Vec::new();
    let mut border = None;
    while let Some(record) = records.next_record()? {
        if record.index >= before {
            break;
        }
        if let Body::Pm(Event::Store { .. }) = record.body {
            stores.push(record.index);
        }
        if window::begins(&record.body) {
            stores.clear();
            border = Some(EventIndex(record.index.0 + 1));
        }
    }
    Ok((stores, border))
}
