//! What recovery makes of lost stores that only the lint has found.
//!
//! A store that is never made durable is an error as long as nothing speaks for it. Two things do, if everything that a
//! crash can leave was explored and no failure came of this store: recovery reads what may be lost and can fail, or it
//! writes the right value itself. Then it is a warning. What recovery neither reads nor writes stays an error: recovery
//! says nothing about it.
//!
//! Data in lines that are never flushed may be transient. It is not if recovery reads it: then a flush is missing. Data beside
//! what is flushed, such as the statistics of an allocator, may be transient as well: if the program has never waited for it
//! to be durable, however often it was stored, and recovery never reads it.

use std::ops::Range;

use powerfail_explore::lazy::Observed;
use powerfail_finding::{Code, Exploration, Finding, Severity, SourcePlace};
use powerfail_image::Patch;
use powerfail_lint::Linted;
use powerfail_model::{CrashState, Event, EventIndex, Place, PoolIndex};
use powerfail_oracle::{Branch, ExploreRequest};
use powerfail_trace::Body;

use super::Crashed;
use super::engine::Engine;
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::lazy::LazyPoints;
use crate::lazy::executor::LazyExecutor;
use crate::lazy::walk::Attempt;
use crate::options::CrashOptions;
use crate::remedy::Remedy;
use crate::runner::{Survival, Trial, TrialResult};

/// At how many moments the reads of recovery are watched.
const MOMENTS_MAX: usize = 16;
/// At how many moments it is tried whether recovery writes the value itself.
const REPAIRS_MAX: usize = 3;
/// How many bytes of a store are compared.
const BYTES_MAX: usize = 64;

/// Bytes that recovery reads, and that a crash at this moment may have changed.
struct UnsureRead {
    at: EventIndex,
    place: Place,
}

/// A store that may be lost.
struct Loss {
    event: EventIndex,
    at: Place,
    len: usize,
}

impl Loss {
    fn is_read_by(&self, read: &UnsureRead) -> bool {
        let bytes = self.at.offset.0..self.at.offset.0 + self.len as u64;
        read.at > self.event
            && read.place.pool == self.at.pool
            && bytes.contains(&read.place.offset.0)
    }
}

/// What watching recovery has shown.
#[derive(Default)]
struct Watched {
    reads: Vec<UnsureRead>,
    /// The lines that a crash may have changed at one of the moments.
    places: Vec<(PoolIndex, Range<u64>)>,
}

impl Watched {
    /// Whether the bytes of a store could have been read with several values, and never were, whatever was stored there last.
    fn never_reads(&self, loss: &Loss) -> bool {
        let bytes = loss.at.offset.0..loss.at.offset.0 + loss.len as u64;
        let is_it = |read: &UnsureRead| {
            read.place.pool == loss.at.pool && bytes.contains(&read.place.offset.0)
        };
        let mut places = self.places.iter();
        places.any(|(pool, line)| *pool == loss.at.pool && line.contains(&bytes.start))
            && !self.reads.iter().any(is_it)
    }
}

impl Engine<'_, '_> {
    /// Weighs the losses among the findings that no crash has shown to matter. `can_fail` says whether recovery rejects
    /// anything at all.
    pub(super) fn weigh_losses(
        &mut self,
        linted: &Linted,
        options: &CrashOptions,
        can_fail: bool,
        remedy: Remedy,
        crashed: &mut Crashed,
    ) -> Result<(), CheckError> {
        let outcome = self.weigh(linted, options, can_fail, remedy, crashed);
        self.unless_interrupted(outcome).map(|_| ())
    }

    fn weigh(
        &mut self,
        linted: &Linted,
        options: &CrashOptions,
        can_fail: bool,
        remedy: Remedy,
        crashed: &mut Crashed,
    ) -> Result<(), CheckError> {
        let is_loss = |finding: &Finding| is_error(finding) || is_transient(finding);
        if options.lazy.is_none()
            || options.is_partial()
            || self.is_interrupted
            || !crashed.findings.iter().any(is_loss)
        {
            return Ok(());
        }
        let is_explored = crashed.totals.exploration.as_ref().is_some_and(is_complete);
        let points = LazyPoints::of(self.trace, self.runner, options, &|| false)?;
        let mut moments: Vec<EventIndex> = points.moments().collect();
        moments.sort_unstable();
        let looked_at = spread(&moments, MOMENTS_MAX);
        let Some(watched) = self.unsure_reads(&looked_at)? else {
            return Ok(());
        };
        let reads = &watched.reads;
        let mut again = None;
        for finding in crashed.findings.iter_mut().filter(|it| is_loss(it)) {
            let Some((losses, is_left_dirty)) = self.losses_of(finding, linted)? else {
                continue;
            };
            let is_read = |loss: &Loss| reads.iter().any(|read| loss.is_read_by(read));
            if is_transient(finding) {
                if !losses.iter().any(is_read) {
                    continue;
                }
                // Where recovery has several threads, a store of one can be missed while another one is held. Then
                // recovery seems to read what it has just written: a real read is seen twice.
                let seen_again = match &mut again {
                    Some(reads) => reads,
                    None => again.insert(self.unsure_reads(&looked_at)?.unwrap_or_default()),
                };
                let is_read_again =
                    |loss: &Loss| seen_again.reads.iter().any(|read| loss.is_read_by(read));
                if losses.iter().any(is_read_again) {
                    become_missing_flush(finding, is_explored && can_fail, remedy);
                }
            } else if is_explored && can_fail && losses.iter().all(is_read) {
                finding.severity = Severity::Warning;
                finding.message.push_str(SUCCEEDS);
            } else if is_explored
                && !losses.iter().any(is_read)
                && self.are_repaired(&losses, &moments)?
            {
                finding.severity = Severity::Warning;
                finding.message.push_str("; recovery puts it right");
            } else if is_explored
                && can_fail
                && is_left_dirty
                && losses.iter().all(|loss| watched.never_reads(loss))
            {
                become_transient(finding);
            }
        }
        Ok(())
    }

    fn are_repaired(
        &mut self,
        losses: &[Loss],
        moments: &[EventIndex],
    ) -> Result<bool, CheckError> {
        for loss in losses {
            if self.is_stopped() || !self.is_repaired(loss, moments)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What recovery reads at these moments that a crash may have changed, if all other reads see the newest value.
    /// Nothing if its reads cannot be watched.
    fn unsure_reads(&mut self, moments: &[EventIndex]) -> Result<Option<Watched>, CheckError> {
        let mut reads = Vec::new();
        let mut places = Vec::new();
        let mut executors = self.runner.executors(false)?;
        let Some(executor) = executors.first_mut() else {
            return Ok(None);
        };
        for &at in moments {
            executor.move_to(at)?;
            let table = executor.crash_table();
            if table.lines.is_empty() {
                continue;
            }
            places.extend(table.lines.iter().map(|line| {
                let begin = line.id.line.0 * table.line_bytes as u64;
                let end = begin + table.line_bytes as u64;
                (line.id.pool, begin..end)
            }));
            let lines = executor.pools().line_table(&table);
            let request = ExploreRequest {
                table: &lines,
                prefix: &[],
                branch: Branch::Never,
                watches: &[],
                observations: false,
                log: false,
                max_executions: 1,
            };
            let Attempt::Explored(explored) = executor.explore(&[], &request)? else {
                return Ok(None);
            };
            let choices = explored.executions.iter().flat_map(|it| &it.choices);
            for observed in choices.map(Observed::from) {
                let Some(line) = table.lines.get(observed.line) else {
                    continue;
                };
                let begin = line.id.line.0 * table.line_bytes as u64;
                reads.extend(observed.bytes.iter().map(|byte| UnsureRead {
                    at,
                    place: Place::new(
                        line.id.pool,
                        powerfail_model::PoolOffset(begin + byte as u64),
                    ),
                }));
            }
        }
        Ok(Some(Watched { reads, places }))
    }

    /// The stores that a finding says are lost, if all of them are known, and whether the program leaves them dirty.
    fn losses_of(
        &self,
        finding: &Finding,
        linted: &Linted,
    ) -> Result<Option<(Vec<Loss>, bool)>, CheckError> {
        let first = finding.places.first().and_then(|place| place.event);
        let hit = linted.hits.iter().find(|hit| {
            let site = hit.sites.first();
            hit.code == finding.code && site.map(|site| site.event.0) == first
        });
        let Some(hit) = hit.filter(|hit| hit.more.len() as u64 == hit.count) else {
            return Ok(None);
        };
        let mut losses = Vec::new();
        for &event in &hit.more {
            let mut records = self.trace.records_from(event);
            if let Some(Body::Pm(Event::Store { at, bytes, .. })) =
                records.next_record()?.map(|record| record.body)
            {
                let len = bytes.len().min(BYTES_MAX);
                losses.push(Loss { event, at, len });
            }
        }
        Ok(Some((losses, hit.is_left_dirty)).filter(|(losses, _)| !losses.is_empty()))
    }

    /// Whether recovery succeeds and leaves the same value, lost or not, at several of these moments.
    fn is_repaired(&mut self, loss: &Loss, moments: &[EventIndex]) -> Result<bool, CheckError> {
        let behind = moments.partition_point(|at| *at <= loss.event);
        let mut tried = 0;
        for at in spread(&moments[behind..], REPAIRS_MAX) {
            let [old, new] = self.runner.read_at([loss.event, at], loss.at, loss.len)?;
            if old == new {
                continue;
            }
            tried += 1;
            self.learn(CheckStep::Reasons, &[at])?;
            let patch = Patch {
                pool: loss.at.pool,
                offset: loss.at.offset.0,
                bytes: old,
            };
            let undone = Survival::Again(CrashState::default(), vec![patch]);
            let mut left = Vec::new();
            for trial in [Trial::prefix(at), Trial { at, state: undone }] {
                let (verdict, after) = self.runner.run_and_read(&trial, loss.at, loss.len)?;
                let result = TrialResult {
                    verdict: Some(verdict),
                    ..TrialResult::default()
                };
                if self.judge(&trial, &result).is_some() {
                    return Ok(false);
                }
                left.push(after);
            }
            if left[0].is_none() || left[0] != left[1] {
                return Ok(false);
            }
        }
        Ok(tried > 0)
    }
}

const SUCCEEDS: &str = "; recovery succeeds whether it is lost or not";

fn is_error(finding: &Finding) -> bool {
    finding.evidence.is_none()
        && finding.severity == Severity::Error
        && matches!(
            finding.code,
            Code::StoreNotFlushed | Code::FlushNotFenced | Code::ObjectNotPersisted
        )
}

fn is_transient(finding: &Finding) -> bool {
    finding.code == Code::TransientData
}

/// Whether everything that recovery can observe was tried.
const fn is_complete(exploration: &Exploration) -> bool {
    exploration.failure_points > 0 && exploration.exhaustive == exploration.failure_points
}

/// Recovery reads what was taken for transient data.
fn become_missing_flush(finding: &mut Finding, is_explored: bool, remedy: Remedy) {
    let here = finding.places.first();
    let whose = here.map_or_else(String::new, SourcePlace::in_function);
    let at = here.and_then(SourcePlace::file_and_line);
    let what = if is_explored { SUCCEEDS } else { "" };
    let message = format!(
        "the store{whose} is never {}, and recovery reads it{what}",
        remedy.done()
    );
    let suggestion = finding.fix.is_some().then(|| {
        let at = at.as_deref().unwrap_or("this place");
        remedy.after_store(at)
    });
    *finding = Finding {
        count: finding.count,
        severity: Severity::Warning,
        suggestion,
        fix: finding.fix.take(),
        ..Finding::new(
            Code::StoreNotFlushed,
            message,
            std::mem::take(&mut finding.places),
        )
    };
}

/// The program has never waited for this data to be durable, and recovery does not read it.
fn become_transient(finding: &mut Finding) {
    let here = finding.places.first();
    let whose = here.map_or_else(String::new, SourcePlace::in_function);
    let message = format!(
        "the data stored{whose} is never made durable for its own sake, and recovery does not read it"
    );
    let explanation = "data that need not survive can be kept in volatile memory";
    *finding = Finding {
        count: finding.count,
        explanation: Some(explanation.to_owned()),
        ..Finding::new(
            Code::TransientData,
            message,
            std::mem::take(&mut finding.places),
        )
    };
}

/// A few of many: the first, the last, and some in between.
fn spread(all: &[EventIndex], count: usize) -> Vec<EventIndex> {
    if all.len() <= count {
        return all.to_vec();
    }
    let last = all.len() - 1;
    let places = (0..count).map(|number| number * last / (count - 1));
    places.map(|place| all[place]).collect()
}
