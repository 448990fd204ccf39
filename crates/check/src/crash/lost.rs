//! Failures that need lost lines: from executions that fail to findings.

use std::collections::BTreeMap;

use powerfail_finding::{Code, Finding, Role, SecondFailure, Severity, SourcePlace, Written};
use powerfail_model::{CrashState, EventIndex};
use powerfail_trace::{Frame, StackId};

use super::{Bench, Failed, evidence, message, name_of};
use crate::error::CheckError;
use crate::lazy::{Explored, Failure, choices};
use crate::options::Step;
use crate::places::Places;
use crate::runner::{Trial, TrialState};

/// How many kinds of failures are explained.
const KINDS_MAX: usize = 64;
/// With more lost lines than this, which of them matter is not looked for.
const LINES_MAX: usize = 64;

/// What makes failures of different failure points the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    code: Code,
    failures: u32,
    load: Option<(u32, u64)>,
    store: Option<StackId>,
}

impl Bench<'_, '_> {
    /// Adds what exploring has shown to the findings. `known` are failures of prefix crashes that were
    /// found before.
    pub(super) fn explain_lost(
        &mut self,
        explored: Explored,
        known: &[(StackId, Code)],
        findings: &mut Vec<Finding>,
        places: &mut Places<'_>,
    ) -> Result<Vec<String>, CheckError> {
        self.is_interrupted = explored.is_interrupted;
        let mut notes = explored.notes;
        let mut whole: Vec<Failed> = Vec::new();
        let mut kinds: BTreeMap<Kind, (Failure, u64)> = BTreeMap::new();
        for (failure, stack) in explored.failures.into_iter().zip(explored.stacks) {
            if failure.state.versions.is_empty() && failure.again.is_none() {
                let code = failure.symptom.code;
                let same = whole
                    .iter_mut()
                    .find(|whole| (whole.stack, whole.symptom.code) == (stack, code));
                match same {
                    Some(same) => same.count += failure.count,
                    None if known.contains(&(stack, code)) => {}
                    None => whole.push(Failed {
                        trial: Trial::prefix(failure.at),
                        state: failure.state,
                        stack,
                        symptom: failure.symptom,
                        count: failure.count,
                    }),
                }
                continue;
            }
            let count = failure.count;
            kinds
                .entry(kind(&failure))
                .and_modify(|(_, known)| *known += count)
                .or_insert((failure, count));
        }
        for finding in self.explain(whole, places)? {
            merge(findings, finding);
        }
        let left = kinds.len().saturating_sub(KINDS_MAX);
        if left > 0 {
            notes.push(format!(
                "{left} more kinds of failures with lost lines are not explained; repair the others first"
            ));
        }
        for (mut failure, count) in kinds.into_values().take(KINDS_MAX) {
            failure.count = count;
            let finding = self.lost_finding(failure, places)?;
            merge(findings, finding);
        }
        Ok(notes)
    }

    fn lost_finding(
        &mut self,
        mut failure: Failure,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let state = self.minimal(&failure)?;
        failure
            .lost
            .retain(|(line, _)| state.versions.iter().any(|(kept, _)| kept == line));
        let trial = Trial {
            at: failure.at,
            state: match &failure.again {
                None => TrialState::Exactly(state.clone()),
                Some(again) => TrialState::Again(state.clone(), again.overlay.clone()),
            },
        };
        let failed = Failed {
            trial,
            state,
            stack: StackId::NONE,
            symptom: failure.symptom.clone(),
            count: failure.count,
        };
        let mut found = Vec::new();
        if let Some(again) = &failure.again {
            found.extend(again.lost.iter().map(|stack| {
                let mut place = places.of_backtrace(Role::Store, &stack.stack);
                place.pool_offset = Some(stack.offset);
                place.len_bytes = Some(stack.len_bytes);
                place
            }));
        }
        let lost = failure.lost.iter().map(|(_, event)| *event).min();
        if let Some(lost) = lost {
            found.push(places.of_event(Role::Store, lost)?);
        }
        if let Some(survivor) = survivor(&failure, lost) {
            found.push(places.of_event(Role::Survivor, survivor)?);
        }
        found.push(places.of_event(Role::Failure, failure.at)?);
        let mut message = message(failed.symptom.code, &found);
        if failure.again.is_some() {
            message += ", and again in recovery";
        }
        let suggestion = suggestion(&found);
        let line_bytes = self.runner.line_bytes();
        let mut evidence = evidence(&failed, line_bytes);
        evidence.choices = choices(self.trace, &failure, &failed.state, line_bytes, places)?;
        evidence.failure.again = failure.again.as_ref().map(|again| SecondFailure {
            failures: again.failures,
            events: again.events,
            written: again.overlay.iter().map(written).collect(),
        });
        self.finish(&failed, found, message, suggestion, evidence, places)
    }

    /// The fewest lost lines that make recovery fail in the same way.
    fn minimal(&mut self, failure: &Failure) -> Result<CrashState, CheckError> {
        let mut state = failure.state.clone();
        if self.is_interrupted || failure.again.is_some() || state.versions.len() > LINES_MAX {
            return Ok(state);
        }
        while state.versions.len() > 1 {
            // Without each of the lines in turn: what fails all the same does not need it.
            let trials: Vec<Trial> = (0..state.versions.len())
                .map(|number| {
                    let mut versions = state.versions.clone();
                    versions.remove(number);
                    Trial {
                        at: failure.at,
                        state: TrialState::Exactly(CrashState { versions }),
                    }
                })
                .collect();
            let tried = self.run(Step::Reasons, &trials)?;
            let same = trials.iter().zip(&tried).find(|(trial, tried)| {
                let symptom = self.judge(trial, tried);
                symptom.is_some_and(|symptom| symptom.code == failure.symptom.code)
            });
            match same {
                Some((_, tried)) => state = tried.state.clone(),
                None => break,
            }
        }
        Ok(state)
    }
}

fn kind(failure: &Failure) -> Kind {
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

/// The newest store that was read where recovery reads what is lost, if it came after that.
fn survivor(failure: &Failure, lost: Option<EventIndex>) -> Option<EventIndex> {
    let decisive = failure.loads.iter().filter(|load| load.decisive);
    let read = decisive.filter_map(|load| load.sources.get(load.taken)?.stores.last().copied());
    read.filter(|event| lost.is_some_and(|lost| *event > lost))
        .max()
}

fn suggestion(found: &[SourcePlace]) -> Option<String> {
    let lost = found.first().filter(|place| place.role == Role::Store)?;
    let survivor = found.iter().find(|place| place.role == Role::Survivor);
    Some(match survivor {
        Some(survivor) => format!(
            "flush {} and fence before {}",
            name_of(lost),
            name_of(survivor)
        ),
        None => format!(
            "flush {} and fence before anything depends on it",
            name_of(lost)
        ),
    })
}

fn written(patch: &powerfail_image::Patch) -> Written {
    use std::fmt::Write;
    let mut bytes = String::with_capacity(2 * patch.bytes.len());
    for byte in &patch.bytes {
        let _ = write!(bytes, "{byte:02x}");
    }
    Written {
        pool: patch.pool.0,
        pool_offset: patch.offset,
        bytes,
    }
}

/// Adds a finding, unless another one is about the same lost store: one bug has one finding, and the
/// first one says it best.
fn merge(findings: &mut Vec<Finding>, finding: Finding) {
    let store = |finding: &Finding| {
        let place = finding.places.first()?;
        (place.role == Role::Store).then(|| line_of(place))
    };
    let lost = store(&finding);
    let same = findings
        .iter_mut()
        .find(|known| known.severity == Severity::Error && lost.is_some() && store(known) == lost);
    match same {
        Some(known) => {
            known.count += finding.count;
            known.evidence = known.evidence.take().or(finding.evidence);
        }
        None => findings.push(finding),
    }
}

/// What names a line of code, also where there are no sources.
fn line_of(place: &SourcePlace) -> (Option<String>, Option<u32>, Option<String>, Option<u64>) {
    let offset = match place.file {
        Some(_) => None,
        None => place.stack.first().map(|frame| frame.offset),
    };
    (
        place.file.clone(),
        place.line,
        place.module.clone().filter(|_| place.file.is_none()),
        offset,
    )
}
