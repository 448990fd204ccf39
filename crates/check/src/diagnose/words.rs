//! From a diagnosis to a finding: its places, its message, and how to prevent it.

use powerfail_finding::{Code, Evidence, FailurePoint, Finding, LostLine, Role, SourcePlace};
use powerfail_model::EventIndex;
use powerfail_trace::Trace;

use super::{Cause, Diagnosis, LostStore};
use crate::error::CheckError;
use crate::fix::{BadState, Missing};
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
        let named = Named {
            store: line_of(found.first()),
            survivor: line_of(survivor.as_ref()),
            flush: line_of(flush.as_ref()),
            is_of_another_thread: self.is_of_another_thread(places.trace())?,
        };
        let message = self.message(found.first(), places.remedy());
        found.extend(survivor);
        found.extend(flush);
        found.push(places.of_event(Role::Failure, self.moment())?);
        let mut finding = Finding {
            count,
            evidence: Some(self.evidence(line_bytes)),
            consequences: self.symptom.others.clone(),
            ..Finding::new(code, message, found)
        };
        if let Some((missing, words)) = self.advice(&named, places.remedy()) {
            places.advise(&mut finding, missing, &self.bad_state(), words)?;
        }
        if finding.fix.is_none() {
            finding.explanation = Some(self.explanation(&named));
        }
        Ok(finding)
    }

    /// The event to show for the failure: the one that it comes before, or the acknowledgement that it follows.
    fn moment(&self) -> EventIndex {
        match (self.symptom.code, self.survivor) {
            (Code::AcknowledgedLost, None) => EventIndex(self.at.0.saturating_sub(1)),
            _ => self.at,
        }
    }

    /// Whether the store that survives is of another thread than the one that is lost.
    fn is_of_another_thread(&self, trace: &Trace) -> Result<bool, CheckError> {
        let (Some(survivor), Some(lost)) = (self.survivor, self.lost.first()) else {
            return Ok(false);
        };
        let thread = |event: EventIndex| {
            let mut records = trace.records_from(event);
            let thread = records.next_record()?.map(|record| record.thread);
            Ok::<_, CheckError>(thread)
        };
        Ok(thread(survivor)? != thread(lost.event)?)
    }

    /// The lost stores, and what survives without them.
    fn bad_state(&self) -> BadState {
        let lost = self.lost.iter().map(|store| (store.line, store.event));
        let before = EventIndex(self.at.0.saturating_sub(1));
        BadState::new(lost.collect(), self.survivor.unwrap_or(before))
    }

    /// The evidence, which `replay` shows again.
    pub(crate) fn evidence(&self, line_bytes: u64) -> Evidence {
        let lost = self.state.versions.iter().map(|(line, version)| LostLine {
            pool: line.pool.0,
            pool_offset: line.line.0 * line_bytes,
            version: *version,
            stores: self.whole.get(line).copied(),
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
            torn: self.cause == Cause::Torn,
            choices: Vec::new(),
            trace: None,
        }
    }

    /// The flush that came too late, or that no fence follows in time.
    fn flush_to_name(&self) -> Option<EventIndex> {
        match self.cause {
            Cause::MissingFence | Cause::WrongOrder => self.lost.first()?.flush(),
            Cause::ProgramOrder | Cause::MissingFlush | Cause::Atomicity | Cause::Torn => None,
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
        let first = self.lost.first();
        let why = match self.cause {
            Cause::Torn => {
                return format!(
                    "{what} if a power failure tears the store{whose}: a part of it is durable, the rest is lost"
                );
            }
            Cause::MissingFlush if first.is_some_and(|it| it.flush().is_none()) => {
                format!(", which is never {}", remedy.done())
            }
            Cause::MissingFlush => format!(", which is not {} in time", remedy.done()),
            Cause::MissingFence if first.is_some_and(|it| it.flush().is_none()) => {
                ", which bypasses the cache and is not fenced in time".to_owned()
            }
            Cause::MissingFence if first.is_some_and(LostStore::is_fenced) => {
                ", whose flush is fenced too late".to_owned()
            }
            Cause::MissingFence => ", whose flush is not fenced".to_owned(),
            Cause::WrongOrder => format!(", which is {} too late", remedy.done()),
            Cause::Atomicity | Cause::ProgramOrder => {
                " but not the store that belongs to it".to_owned()
            }
        };
        format!("{what} if a power failure loses the store{whose}{why}")
    }

    /// What is missing, and what to do about it. Nothing where more than a flush or fence is.
    fn advice(&self, named: &Named, remedy: Remedy) -> Option<(Missing, String)> {
        let lost = self.lost.first()?;
        let before = match (&named.survivor, self.symptom.code) {
            (Some(line), _) if named.is_of_another_thread => {
                format!(" before another thread makes the store at {line}")
            }
            (Some(line), _) => format!(" before the store at {line}"),
            (None, Code::AcknowledgedLost) => " before the operation is acknowledged".to_owned(),
            (None, _) => String::new(),
        };
        match self.cause {
            Cause::MissingFlush | Cause::WrongOrder => {
                let words = format!("{}{before}", remedy.of(&named.stored()));
                Some((Missing::Flush(lost.event), words))
            }
            // Its own thread fences it. The other one does not wait for that.
            Cause::MissingFence if named.is_of_another_thread && lost.is_fenced() => {
                let words = format!("{}{before}", remedy.of(&named.stored()));
                Some((Missing::Flush(lost.event), words))
            }
            Cause::MissingFence => {
                let (event, what) = match (lost.flush(), &named.flush) {
                    (None, _) => (lost.event, named.store()),
                    (Some(flush), Some(line)) => (flush, format!("the flush at {line}")),
                    (Some(flush), None) => (flush, "its flush".to_owned()),
                };
                Some((Missing::Fence(event), format!("fence after {what}{before}")))
            }
            Cause::Atomicity | Cause::ProgramOrder | Cause::Torn => None,
        }
    }

    /// What is known where nothing is advised.
    fn explanation(&self, named: &Named) -> String {
        match (self.cause, self.torn) {
            (Cause::Torn, Some(torn)) => format!(
                "only 8 aligned bytes become durable at once (--atomicity 8): of the {} pieces of {} in this line, {} \
                 survived; recovery succeeds with all of them, and with none; no flush or fence prevents it, but a copy \
                 that one store of 8 bytes makes valid would; with a checksum, recovery can tell that a store is torn",
                torn.of,
                named.store(),
                match torn.pieces {
                    1 => "only the first".to_owned(),
                    pieces => format!("only the first {pieces}"),
                },
            ),
            (Cause::Torn, None) => format!(
                "{} crosses the end of a line, and lines become durable one by one; no flush or fence prevents it, but a copy \
                 that a store within one line makes valid would; with a checksum, recovery can tell that a store is torn",
                named.store()
            ),
            (Cause::Atomicity | Cause::ProgramOrder, _) => format!(
                "recovery fails if only one of {} and {} survives, and no flush or fence makes both durable at once",
                named.stored(),
                named.other()
            ),
            _ => format!(
                "{} is lost while {} survives",
                named.stored(),
                named.other()
            ),
        }
    }
}

/// The lines of code of a diagnosis, as far as they are known.
struct Named {
    store: Option<String>,
    survivor: Option<String>,
    flush: Option<String>,
    /// Whether the survivor is of another thread than the lost store.
    is_of_another_thread: bool,
}

impl Named {
    fn stored(&self) -> String {
        let store = self.store.as_ref();
        store.map_or_else(
            || "the lost data".to_owned(),
            |line| format!("the data stored at {line}"),
        )
    }

    fn store(&self) -> String {
        let store = self.store.as_ref();
        store.map_or_else(
            || "the lost store".to_owned(),
            |line| format!("the store at {line}"),
        )
    }

    fn other(&self) -> String {
        let survivor = self.survivor.as_ref();
        survivor.map_or_else(
            || "what was stored later".to_owned(),
            |line| format!("the store at {line}"),
        )
    }
}

/// `map.c:17`.
fn line_of(place: Option<&SourcePlace>) -> Option<String> {
    place?.file_and_line()
}
