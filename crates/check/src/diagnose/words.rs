//! A diagnosis as a finding: its places, what is wrong, and what would have prevented it.

use powerfail_finding::{Code, Evidence, FailurePoint, Finding, LostLine, Role, SourcePlace};
use powerfail_model::EventIndex;

use super::{Cause, Diagnosis};
use crate::error::CheckError;
use crate::places::Places;

/// How many lost stores a finding names.
const STORES_NAMED: usize = 3;

impl Diagnosis {
    /// The finding, without where recovery was. Not for [`Cause::ProgramOrder`], which is for the search
    /// that prefix crashes have.
    pub(crate) fn finding(
        &self,
        places: &mut Places<'_>,
        line_bytes: u64,
        count: u64,
    ) -> Result<Finding, CheckError> {
        let code = self.code();
        let mut found = Vec::new();
        for store in self.lost.iter().take(STORES_NAMED) {
            found.push(places.of_event(Role::Store, store.event)?);
        }
        let survivor = match self.survivor {
            Some(event) if code == Code::PublishedBeforeDurable => {
                Some(places.of_event(Role::Publish, event)?)
            }
            Some(event) => Some(places.of_event(Role::Survivor, event)?),
            None => None,
        };
        let flush = match self.flush_to_name() {
            Some(event) => Some(places.of_event(Role::Flush, event)?),
            None => None,
        };
        let message = self.message(found.first());
        let suggestion = self.suggestion(found.first(), survivor.as_ref(), flush.as_ref());
        found.extend(survivor);
        found.extend(flush);
        found.push(places.of_event(Role::Failure, self.at)?);
        Ok(Finding {
            count,
            suggestion: Some(suggestion),
            evidence: Some(self.evidence(line_bytes)),
            ..Finding::new(code, message, found)
        })
    }

    /// What shows it again.
    pub(crate) fn evidence(&self, line_bytes: u64) -> Evidence {
        let lost = self.state.versions.iter().map(|(line, version)| LostLine {
            pool: line.pool.0,
            pool_offset: line.line.0 * line_bytes,
            version: *version,
        });
        Evidence {
            failure: FailurePoint {
                event: self.at.0,
                lost_lines: lost.collect(),
                again: None,
                filled: Vec::new(),
            },
            recovery: self.symptom.outcome.clone(),
            last_good_event: None,
            next_good_event: None,
            difference: self.symptom.difference.clone(),
            choices: Vec::new(),
            trace: None,
        }
    }

    /// The flush that came too late, or that no fence follows in time.
    fn flush_to_name(&self) -> Option<EventIndex> {
        match self.cause {
            Cause::MissingFence | Cause::WrongOrder => self.lost.first()?.flush(),
            Cause::ProgramOrder | Cause::MissingFlush | Cause::Atomicity => None,
        }
    }

    fn message(&self, store: Option<&SourcePlace>) -> String {
        let what = match self.symptom.code {
            Code::RecoveryCrashes => "recovery crashes",
            Code::RecoveryHangs => "recovery hangs",
            Code::CheckerRejects => "the checker rejects what is recovered",
            Code::ContentTorn => "what is recovered is neither the old nor the new content",
            Code::AcknowledgedLost => "an acknowledged operation is lost",
            _ => "recovery fails",
        };
        let function = store.and_then(|store| store.function.as_deref());
        let whose = function.map_or_else(String::new, |function| format!(" in {function}"));
        let why = match self.cause {
            Cause::MissingFlush => ", which is not flushed",
            Cause::MissingFence => ", whose flush is not fenced in time",
            Cause::WrongOrder => ", which is flushed too late",
            Cause::Atomicity | Cause::ProgramOrder => " and not what belongs to it",
        };
        format!("{what} if the power failure takes the store{whose}{why}")
    }

    fn suggestion(
        &self,
        store: Option<&SourcePlace>,
        survivor: Option<&SourcePlace>,
        flush: Option<&SourcePlace>,
    ) -> String {
        let stored = line_of(store).map_or_else(
            || "what is lost".to_owned(),
            |line| format!("what is stored at {line}"),
        );
        let before = line_of(survivor)
            .map_or_else(String::new, |line| format!(" before the store at {line}"));
        match self.cause {
            Cause::MissingFlush => format!("flush {stored} and fence{before}"),
            Cause::MissingFence => {
                let after = line_of(flush).map_or_else(
                    || "its flush".to_owned(),
                    |line| format!("the flush at {line}"),
                );
                format!("fence after {after}{before}")
            }
            Cause::WrongOrder => {
                let line = line_of(flush);
                let flush = line.map_or_else(
                    || "its flush".to_owned(),
                    |line| format!("the flush at {line}"),
                );
                format!(
                    "move {flush} up, with a fence after it, so that {stored} is durable{before}"
                )
            }
            Cause::Atomicity | Cause::ProgramOrder => {
                let other = line_of(survivor).map_or_else(
                    || "what survives".to_owned(),
                    |line| format!("the store at {line}"),
                );
                format!(
                    "let {stored} and {other} become durable together: with a log, or by one store that \
                     makes both reachable"
                )
            }
        }
    }
}

/// `map.c:17`.
fn line_of(place: Option<&SourcePlace>) -> Option<String> {
    let place = place?;
    let file = place.file.as_deref()?;
    let name = file.rsplit('/').next().unwrap_or(file);
    Some(format!("{name}:{}", place.line?))
}
