//! From a diagnosis to a finding: its places, its message, and how to prevent it.

use powerfail_finding::{Code, Evidence, FailurePoint, Finding, LostLine, Role, SourcePlace};
use powerfail_model::{Domain, EventIndex};

use super::{Cause, Diagnosis};
use crate::error::CheckError;
use crate::places::Places;
use crate::remedy::Remedy;

/// How many lost stores a finding names.
const STORES_NAMED: usize = 3;

impl Diagnosis {
    /// The finding, without the place of recovery. Not for [`Cause::ProgramOrder`], which the search for prefix crashes
    /// explains.
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
        let remedy = places.remedy();
        let message = self.message(found.first(), remedy);
        let suggestion = self.suggestion(found.first(), survivor.as_ref(), flush.as_ref(), remedy);
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

    /// The evidence, which `replay` shows again.
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

    fn message(&self, store: Option<&SourcePlace>, remedy: Remedy) -> String {
        let what = match self.symptom.code {
            Code::RecoveryCrashes => "recovery crashes",
            Code::RecoveryHangs => "recovery hangs",
            Code::CheckerRejects => "the checker rejects the recovered data",
            Code::ContentTorn => "the recovered content is neither the old nor the new one",
            Code::AcknowledgedLost => "an acknowledged operation is lost",
            _ => "recovery fails",
        };
        let whose = store.map_or_else(String::new, SourcePlace::in_function);
        let why = match self.cause {
            Cause::MissingFlush => format!(", which is not {}", remedy.done()),
            Cause::MissingFence => ", whose flush is not fenced in time".to_owned(),
            Cause::WrongOrder => format!(", which is {} too late", remedy.done()),
            Cause::Atomicity | Cause::ProgramOrder => {
                " but not the store that belongs to it".to_owned()
            }
        };
        format!("{what} if a power failure loses the store{whose}{why}")
    }

    fn suggestion(
        &self,
        store: Option<&SourcePlace>,
        survivor: Option<&SourcePlace>,
        flush: Option<&SourcePlace>,
        remedy: Remedy,
    ) -> String {
        let stored = line_of(store).map_or_else(
            || "the lost data".to_owned(),
            |line| format!("the data stored at {line}"),
        );
        let before = line_of(survivor)
            .map_or_else(String::new, |line| format!(" before the store at {line}"));
        match self.cause {
            Cause::MissingFlush => format!("{}{before}", remedy.of(&stored)),
            Cause::MissingFence => {
                let after = line_of(flush).map_or_else(
                    || "its flush".to_owned(),
                    |line| format!("the flush at {line}"),
                );
                format!("fence after {after}{before}")
            }
            Cause::WrongOrder => {
                let operation = remedy.operation();
                let line = line_of(flush);
                let flush = line.map_or_else(
                    || format!("its {operation}"),
                    |line| format!("the {operation} at {line}"),
                );
                let fence = if remedy == Remedy(Domain::PageCache) {
                    ""
                } else {
                    " and fence after it"
                };
                format!("move {flush} up{fence}, so that {stored} is durable{before}")
            }
            Cause::Atomicity | Cause::ProgramOrder => {
                let other = line_of(survivor).map_or_else(
                    || "the store that survives".to_owned(),
                    |line| format!("the store at {line}"),
                );
                format!(
                    "make {stored} and {other} durable together: with a log, or by one store that makes \
                     both reachable"
                )
            }
        }
    }
}

/// `map.c:17`.
fn line_of(place: Option<&SourcePlace>) -> Option<String> {
    place?.file_and_line()
}
