//! Whether a store that its transaction does not know of survives when the transaction is rolled back.
//!
//! The power fails just before the commit, with all stores durable, and recovery runs. What the library does
//! not roll back is still there afterwards: then the finding is an error. It is one as well if recovery fails
//! there and would not without this store, or if it fails with this one alone of those that the transaction does not know, and
//! succeeds without all of them. Otherwise it is a warning: recovery has put the value right, or the
//! transaction stored what was there before.
//!
//! Failures that such a store explains are part of its finding: those that are gone without it, and second failures if the
//! transaction was open at the first one. What the rollback has left wrong there is wrong in every recovery that follows.

use powerfail_finding::{Code, Finding, RecoveryOutcome, Severity, hex};
use powerfail_image::Patch;
use powerfail_lint::{Hit, Linted};
use powerfail_model::{CrashState, Event, EventIndex, Place};
use powerfail_oracle::Verdict;
use powerfail_trace::{Annotation, Body, MarkKind, StackId, Trace};

use crate::crash::{Engine, Failed, evidence};
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::lint;
use crate::places::Places;
use crate::root_cause::{absorb, is_symptom};
use crate::runner::{Survival, Trial, TrialResult};
use crate::symptom::Symptom;

/// How many bytes of a store are compared and shown.
const BYTES_MAX: usize = 32;
/// So many events before a failure its transaction may have begun, and so many stores of one line in it are undone.
const TRANSACTION_EVENTS_MAX: u64 = 1 << 14;
const STORES_UNDONE_MAX: usize = 16;

/// A store, and when its transaction was about to end.
struct Moment {
    store: EventIndex,
    end: EventIndex,
    /// When the library had ended it: until then a crash rolls it back, or not.
    closed: EventIndex,
    at: Place,
    len: usize,
}

/// A store whose transaction does not know it and was not committed at a moment.
struct Unknown {
    /// The number of its finding.
    finding: usize,
    store: EventIndex,
    at: Place,
    /// What its bytes held before.
    old: Vec<u8>,
}

/// What came of a crash before the commit.
enum Outcome {
    /// The transaction stored what was there before, or recovery fails for another reason.
    Nothing,
    /// Recovery has changed the value.
    PutRight,
    /// The new value is still there, or recovery fails because of it.
    Matters(Symptom),
    /// Recovery fails, and not only because of it.
    MattersAlone(Symptom),
}

impl Engine<'_, '_> {
    /// Tries what becomes of a store that was not added, at some of its occurrences.
    pub(crate) fn confirm_rollback(
        &mut self,
        hit: &Hit,
        linted: &Linted,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let mut finding = lint::finding(hit, places)?;
        finding.severity = Severity::Warning;
        for store in &hit.more {
            if self.is_stopped() {
                break;
            }
            let Some(moment) = moment_of(self.trace, *store)? else {
                continue;
            };
            let alone = self.crash_before_others(&moment, hit, linted)?;
            let (moment, outcome) = match alone {
                Some((moment, symptom)) => (moment, Outcome::Matters(symptom)),
                None => {
                    let outcome = self.crash_before_commit(&moment, hit, linted)?;
                    (moment, outcome)
                }
            };
            if matches!(outcome, Outcome::MattersAlone(_)) {
                finding.explain(
                    "the transaction has not added other memory either; recovery also fails if only this store is not rolled back"
                        .to_owned(),
                );
            }
            match outcome {
                Outcome::Nothing => {}
                Outcome::PutRight => {
                    finding.message = lint::not_added(&finding.places, "; recovery puts it right");
                }
                Outcome::Matters(symptom) | Outcome::MattersAlone(symptom) => {
                    let survives = matches!(symptom.outcome, RecoveryOutcome::Content { .. });
                    let what = if survives {
                        ", and its value survives rollback"
                    } else {
                        ", and recovery fails because it is not rolled back"
                    };
                    finding.severity = Severity::Error;
                    finding.message = lint::not_added(&finding.places, what);
                    let failed = Failed {
                        trial: Trial::prefix(moment.end),
                        state: CrashState::default(),
                        stack: StackId::NONE,
                        symptom,
                        count: 1,
                    };
                    finding.evidence = Some(evidence(&failed, self.runner.line_bytes()));
                    break;
                }
            }
        }
        Ok(finding)
    }

    /// Makes failures that need nothing to be lost a part of the finding about a store that was not added, if recovery
    /// succeeds at the same moment without the stores of the open transaction that were not added.
    pub(crate) fn join_rollbacks(
        &mut self,
        linted: &Linted,
        findings: &mut Vec<Finding>,
    ) -> Result<(), CheckError> {
        join_causes(findings, |findings, number| {
            match at_failure(&findings[number]) {
                Some(at) => self.not_rolled_back(at, linted, findings),
                None => Ok(None),
            }
        })
    }

    /// Makes failures that need a second crash, in recovery, a part of the finding about a store that was not added, if its
    /// transaction was open at the first crash.
    pub(crate) fn join_second_rollbacks(
        &mut self,
        linted: &Linted,
        findings: &mut Vec<Finding>,
    ) -> Result<(), CheckError> {
        join_causes(findings, |findings, number| {
            let Some(at) = at_first_failure(&findings[number]) else {
                return Ok(None);
            };
            let unknown = self.unknown_at(at, |moment| moment.closed, linted, findings)?;
            Ok(unknown.first().map(|it| it.finding))
        })
    }

    /// The stores that their transaction does not know, and that have changed something in a transaction that is open at a
    /// moment.
    fn unknown_at(
        &mut self,
        at: EventIndex,
        end_of: impl Fn(&Moment) -> EventIndex,
        linted: &Linted,
        findings: &[Finding],
    ) -> Result<Vec<Unknown>, CheckError> {
        let mut unknown = Vec::new();
        let hits = { linted.hits.iter() }.filter(|it| it.code == Code::StoreNotAdded);
        for hit in hits {
            let first = hit.sites.first().map(|site| site.event.0);
            let finding = findings.iter().position(|finding| {
                let place = finding.places.first().and_then(|place| place.event);
                finding.code == Code::StoreNotAdded
                    && finding.severity == Severity::Error
                    && place == first
            });
            let Some(finding) = finding else { continue };
            let is_near =
                |store: &&EventIndex| **store < at && at.0 - store.0 <= TRANSACTION_EVENTS_MAX;
            let near: Vec<EventIndex> = hit.more.iter().filter(is_near).copied().collect();
            for store in near.into_iter().rev().take(STORES_UNDONE_MAX) {
                let moment = moment_of(self.trace, store)?;
                let Some(moment) = moment.filter(|moment| at <= end_of(moment)) else {
                    continue;
                };
                let [old, new] = self.runner.read_at([store, at], moment.at, moment.len)?;
                if old != new {
                    unknown.push(Unknown {
                        finding,
                        store,
                        at: moment.at,
                        old,
                    });
                }
            }
        }
        Ok(unknown)
    }

    /// The finding about a store that was not added without which recovery succeeds at a moment.
    fn not_rolled_back(
        &mut self,
        at: EventIndex,
        linted: &Linted,
        findings: &[Finding],
    ) -> Result<Option<usize>, CheckError> {
        let mut undone = self.unknown_at(at, |moment| moment.end, linted, findings)?;
        let cause = undone.first().map(|it| it.finding);
        if undone.is_empty() || self.is_stopped() {
            return Ok(None);
        }
        // Of stores to the same bytes the oldest decides.
        undone.sort_by_key(|it| std::cmp::Reverse(it.store));
        let patches = undone.into_iter().map(|it| Patch {
            pool: it.at.pool,
            offset: it.at.offset.0,
            bytes: it.old,
        });
        let trial = Trial {
            at,
            state: Survival::Again(CrashState::default(), patches.collect()),
        };
        let tried = self.run(CheckStep::Reasons, std::slice::from_ref(&trial))?;
        let succeeds = tried[0].verdict.is_some() && self.judge(&trial, &tried[0]).is_none();
        Ok(cause.filter(|_| succeeds))
    }

    /// Whether recovery fails at a moment at which the transaction has made this store, and not yet the others that it does not
    /// know: what recovery does then is due to this one alone.
    fn crash_before_others(
        &mut self,
        moment: &Moment,
        hit: &Hit,
        linted: &Linted,
    ) -> Result<Option<(Moment, Symptom)>, CheckError> {
        let is_later = |store: &EventIndex| *store > moment.store && *store < moment.end;
        let later = others(hit, linted).filter(is_later);
        let Some(end) = later.min() else {
            return Ok(None);
        };
        let alone = Moment { end, ..*moment };
        match self.crash_before_commit(&alone, hit, linted)? {
            Outcome::Matters(symptom) if is_symptom(symptom.code) => Ok(Some((alone, symptom))),
            _ => Ok(None),
        }
    }

    fn crash_before_commit(
        &mut self,
        moment: &Moment,
        hit: &Hit,
        linted: &Linted,
    ) -> Result<Outcome, CheckError> {
        let [old, new] = self
            .runner
            .read_at([moment.store, moment.end], moment.at, moment.len)?;
        if old == new {
            return Ok(Outcome::Nothing);
        }
        self.learn(CheckStep::Reasons, &[moment.end])?;
        let trial = Trial::prefix(moment.end);
        let (verdict, after) = self.runner.run_and_read(&trial, moment.at, moment.len)?;
        if let Some(symptom) = self.judged(&trial, verdict) {
            // Is this store to blame? Without it recovery should succeed.
            let own = Patch {
                pool: moment.at.pool,
                offset: moment.at.offset.0,
                bytes: old,
            };
            if !self.fails_without(moment, vec![own.clone()])? {
                return Ok(Outcome::Matters(symptom));
            }
            // Or with this one alone of all that the transaction does not know.
            let others = self.other_stores(moment, hit, linted)?;
            let mut all = others.clone();
            all.push(own);
            let is_to_blame = !others.is_empty()
                && self.fails_without(moment, others)?
                && !self.fails_without(moment, all)?;
            return Ok(if is_to_blame {
                Outcome::MattersAlone(symptom)
            } else {
                Outcome::Nothing
            });
        }
        if after.as_ref() != Some(&new) {
            return Ok(Outcome::PutRight);
        }
        Ok(Outcome::Matters(Symptom {
            code: Code::StoreNotAdded,
            outcome: RecoveryOutcome::Content { output: hex(&new) },
            backtrace: None,
            difference: Some(format!("- {}\n+ {}\n", hex(&old), hex(&new))),
            others: Vec::new(),
        }))
    }

    /// Whether recovery fails before the commit if some bytes hold what they held before.
    fn fails_without(&mut self, moment: &Moment, patches: Vec<Patch>) -> Result<bool, CheckError> {
        let undone = Trial {
            at: moment.end,
            state: Survival::Again(CrashState::default(), patches),
        };
        let (verdict, _) = self.runner.run_and_read(&undone, moment.at, moment.len)?;
        Ok(self.judged(&undone, verdict).is_some())
    }

    /// What undoes the stores of other lines of code that the same transaction does not know.
    fn other_stores(
        &mut self,
        moment: &Moment,
        hit: &Hit,
        linted: &Linted,
    ) -> Result<Vec<Patch>, CheckError> {
        let is_near = |store: &EventIndex| {
            *store < moment.end && moment.end.0 - store.0 <= TRANSACTION_EVENTS_MAX
        };
        let mut near: Vec<EventIndex> = others(hit, linted).filter(is_near).collect();
        // Of stores to the same bytes the oldest decides.
        near.sort_unstable_by_key(|store| std::cmp::Reverse(*store));
        near.truncate(STORES_UNDONE_MAX);
        let mut patches = Vec::new();
        for store in near {
            let other = moment_of(self.trace, store)?;
            let Some(other) = other.filter(|other| other.end == moment.end) else {
                continue;
            };
            let [old, new] = self
                .runner
                .read_at([store, moment.end], other.at, other.len)?;
            if old != new {
                patches.push(Patch {
                    pool: other.at.pool,
                    offset: other.at.offset.0,
                    bytes: old,
                });
            }
        }
        Ok(patches)
    }

    fn judged(&self, trial: &Trial, verdict: Verdict) -> Option<Symptom> {
        let tried = TrialResult {
            verdict: Some(verdict),
            ..TrialResult::default()
        };
        self.judge(trial, &tried)
    }
}

/// The stores of other lines of code that their transaction does not know.
fn others<'a>(hit: &'a Hit, linted: &'a Linted) -> impl Iterator<Item = EventIndex> + 'a {
    let hits = { linted.hits.iter() }.filter(|it| it.code == Code::StoreNotAdded);
    let hits = hits.filter(|it| it.sites != hit.sites);
    hits.flat_map(|it| &it.more).copied()
}

/// The moment of a failure that needs nothing to be lost.
fn at_failure(finding: &Finding) -> Option<EventIndex> {
    let failure = &finding.evidence.as_ref()?.failure;
    let is_whole = failure.lost_lines.is_empty() && failure.again.is_none();
    (is_symptom(finding.code) && is_whole).then_some(EventIndex(failure.event))
}

/// Makes each finding a part of its cause, another one, whose number a function gives.
fn join_causes(
    findings: &mut Vec<Finding>,
    mut cause_of: impl FnMut(&[Finding], usize) -> Result<Option<usize>, CheckError>,
) -> Result<(), CheckError> {
    let mut number = 0;
    while number < findings.len() {
        match cause_of(findings, number)? {
            Some(cause) => {
                let joined = findings[number].clone();
                absorb(&mut findings[cause], joined);
                findings.remove(number);
            }
            None => number += 1,
        }
    }
    Ok(())
}

/// The moment of the first crash of a failure that needs a second one.
fn at_first_failure(finding: &Finding) -> Option<EventIndex> {
    let failure = &finding.evidence.as_ref()?.failure;
    let is_second = failure.lost_lines.is_empty() && failure.again.is_some();
    (is_symptom(finding.code) && is_second).then_some(EventIndex(failure.event))
}

/// Finds the end of the transaction that a store is in. None if it is not a store.
fn moment_of(trace: &Trace, store: EventIndex) -> Result<Option<Moment>, CheckError> {
    let mut records = trace.records_from(store);
    let Some(record) = records.next_record()? else {
        return Ok(None);
    };
    let thread = record.thread;
    let Body::Pm(Event::Store { at, bytes, .. }) = record.body else {
        return Ok(None);
    };
    let len = bytes.len().min(BYTES_MAX);
    let last = EventIndex(trace.event_count());
    let (mut end, mut closed) = (None, last);
    while let Some(record) = records.next_record()? {
        let Body::Mark(said) = &record.body else {
            continue;
        };
        match said.kind {
            _ if record.thread != thread => {}
            MarkKind::Annotation(Annotation::TransactionEnd) => {
                closed = record.index;
                break;
            }
            MarkKind::Annotation(Annotation::TransactionCommit | Annotation::TransactionAbort) => {
                end = end.or(Some(record.index));
            }
            _ => {}
        }
    }
    Ok(Some(Moment {
        store,
        end: end.unwrap_or(closed),
        closed,
        at,
        len,
    }))
}
