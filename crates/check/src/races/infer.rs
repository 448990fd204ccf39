//! Inference of commit variables that no annotation names.
//!
//! The trace gives candidates: words whose stores are ordered on both sides. At a failure point at which
//! such a store may be lost, recovery runs with the new value and with the old one, and all that the run has stored
//! is watched. If it then reads other memory, the word decides what is read: that is what a commit variable does. If
//! all is the same, it is plain data. What a run says that fails is not taken: it may just have stopped.
//!
//! ```text
//! trace ──survey──▶ candidates ──tests──▶ probe ──▶ outcomes ──verdict──▶ proposals
//! ```

mod probe;
pub(super) mod survey;
mod verdict;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use powerfail_finding::InferredCommitVariable;
use powerfail_model::{EventIndex, PoolIndex};
use powerfail_races::Candidate;
use powerfail_trace::StackId;

use super::points::RacePoints;
use crate::crash::Engine;
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::places::Places;
use probe::probe;
use survey::{Survey, survey};
use verdict::CandidateEvidence;

/// At how many of its stores a candidate is tried.
const STORES_MAX: usize = 3;
/// How many candidates that are stored by the same call stack are tried.
const CANDIDATES_PER_STACK: usize = 4;
/// How many tests there are in all.
const TESTS_MAX: usize = 1024;

/// A store to a candidate, and when to let the power fail so that it may be lost.
#[derive(Clone, Copy, Debug)]
struct CandidateTest {
    candidate: usize,
    store: EventIndex,
    /// The store to it before.
    previous: Option<EventIndex>,
}

/// By the moment at which the power fails.
type Tests = BTreeMap<EventIndex, Vec<CandidateTest>>;

/// What was inferred.
#[derive(Debug, Default)]
pub(super) struct Inferred {
    /// The most convincing first.
    pub(super) variables: Vec<InferredCommitVariable>,
    /// Their bytes.
    pub(super) ranges: Vec<(PoolIndex, Range<u64>)>,
    pub(super) executions: u64,
}

impl Engine<'_, '_> {
    /// Looks for variables that decide what recovery reads.
    pub(super) fn infer(
        &mut self,
        points: &RacePoints,
        deadline: Option<Instant>,
        places: &mut Places<'_>,
    ) -> Result<Inferred, CheckError> {
        let survey = survey(self.trace, self.runner.rules())?;
        let tests = tests(&survey, points, places);
        if tests.is_empty() {
            return Ok(Inferred::default());
        }
        let moments: Vec<EventIndex> = tests.keys().copied().collect();
        self.learn(CheckStep::Races, &moments)?;
        let progress = self.rerun_all(
            CheckStep::Infer,
            &tests,
            &|executor, at, tests, settings| probe(executor, at, tests, &survey, settings),
            deadline,
        )?;
        if progress.is_interrupted {
            return Err(CheckError::Interrupted);
        }
        let mut candidates: BTreeMap<usize, CandidateEvidence> = BTreeMap::new();
        let mut inferred = Inferred {
            executions: progress.executions,
            ..Inferred::default()
        };
        for probed in progress.results {
            for (test, outcome) in probed.outcomes {
                let trial = candidates.entry(test.candidate).or_default();
                trial.add(self.trace, &test, outcome)?;
            }
        }
        let mut found = Vec::new();
        for (number, trial) in &candidates {
            let candidate = &survey.candidates[*number];
            if let Some(variable) = trial.verdict(self.trace, candidate, places)? {
                found.push((variable, candidate.at));
            }
        }
        found.sort_by(|(one, at), (other, other_at)| {
            (other.confidence.cmp(&one.confidence)).then(at.cmp(other_at))
        });
        for (variable, at) in found {
            let range = at.offset.0..at.offset.0 + at.len;
            inferred.ranges.push((at.pool, range));
            inferred.variables.push(variable);
        }
        Ok(inferred)
    }
}

/// What is tried: some stores of each candidate, some candidates of each call stack, in the order of the trace.
fn tests(survey: &Survey, points: &RacePoints, places: &mut Places<'_>) -> Tests {
    let mut moments: Vec<EventIndex> = points.moments().collect();
    moments.sort_unstable();
    let mut order: Vec<usize> = (0..survey.candidates.len()).collect();
    order.sort_by_key(|number| survey.candidates[*number].writes.first().map(|it| it.store));
    let mut of_stack: BTreeMap<StackId, usize> = BTreeMap::new();
    let mut tests = Tests::new();
    let mut count = 0;
    for number in order {
        let candidate = &survey.candidates[number];
        let Some(first) = candidate.writes.first() else {
            continue;
        };
        let same = of_stack.entry(first.stack).or_default();
        // What a trusted library stores is its own business.
        if *same >= CANDIDATES_PER_STACK || places.user_of(first.stack).is_none() {
            continue;
        }
        let before = count;
        for (at, test) in tests_of(number, candidate, &moments) {
            if count < TESTS_MAX {
                tests.entry(at).or_default().push(test);
                count += 1;
            }
        }
        *same += usize::from(count > before);
    }
    tests
}

/// The first store to a candidate that can be tried, the last one, and some between them.
fn tests_of(
    number: usize,
    candidate: &Candidate,
    moments: &[EventIndex],
) -> Vec<(EventIndex, CandidateTest)> {
    let mut all = Vec::new();
    let mut previous = None;
    for write in &candidate.writes {
        let behind = moments.partition_point(|at| *at <= write.durable);
        let at = moments[..behind].last().filter(|at| **at > write.store);
        if let Some(at) = at {
            let test = CandidateTest {
                candidate: number,
                store: write.store,
                previous,
            };
            all.push((*at, test));
        }
        previous = Some(write.store);
    }
    if all.len() <= STORES_MAX {
        return all;
    }
    let last = all.len() - 1;
    (0..STORES_MAX)
        .map(|number| all[number * last / (STORES_MAX - 1)])
        .collect()
}
