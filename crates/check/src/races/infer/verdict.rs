//! What all tests of a candidate say together.

use std::collections::BTreeSet;
use std::sync::Arc;

use powerfail_finding::{DecidedRange, InferredCommitVariable, ReadWith, Role, SourcePlace};
use powerfail_model::{Event, EventIndex, PoolIndex};
use powerfail_races::Candidate;
use powerfail_trace::{Body, Frame, Module, Trace};

use super::CandidateTest;
use super::probe::{Bytes, Outcome, Reading};
use crate::error::CheckError;
use crate::places::{Places, RecoveryPlaces, line_of};

/// How many events before a commit are looked at for what it commits.
const LOOK_BACK: u64 = 1 << 16;
/// A read that is among so many first ones is early, whatever there is in all.
const EARLY: usize = 4;
/// How many places of stores are shown.
const PLACES_MAX: usize = 8;

/// What speaks for a commit variable, in percent: that it decides anything, that it does so wherever it was tried,
/// that it is read early, that what it decides about was stored just before it, and that all of that was durable.
const DECIDES: u64 = 40;
const ALWAYS: u64 = 20;
const IS_EARLY: u64 = 15;
const GUARDS: u64 = 15;
const FOLLOWS_ALL: u64 = 10;

/// What is known of a candidate.
#[derive(Default)]
pub(super) struct CandidateEvidence {
    tests: u64,
    /// Tests in which it was read with both values, and those in which that made a difference.
    read: u64,
    decided: u64,
    failed: u64,
    /// Whether what is read with the new value only was stored since the store before, in any test.
    guards: bool,
    /// The worst place among first reads: of how many.
    order: Option<(usize, usize)>,
    only_new: Bytes,
    only_old: Bytes,
    reader: Option<(Arc<[Module]>, Vec<Frame>)>,
}

impl CandidateEvidence {
    /// Adds what came of a test.
    pub(super) fn add(
        &mut self,
        trace: &Trace,
        test: &CandidateTest,
        outcome: Outcome,
    ) -> Result<(), CheckError> {
        self.tests += 1;
        let reading = match outcome {
            Outcome::NotRead => return Ok(()),
            Outcome::Fails => {
                self.failed += 1;
                return Ok(());
            }
            Outcome::Read(reading) => *reading,
        };
        self.read += 1;
        let Reading {
            order,
            reads,
            modules,
            frames,
            only_new,
            only_old,
        } = reading;
        self.order = self.order.max(Some((order, reads)));
        if only_new.is_empty() && only_old.is_empty() {
            return Ok(());
        }
        self.decided += 1;
        self.guards = self.guards || stores_before(trace, test, &only_new)?;
        merge(&mut self.only_new, &only_new);
        merge(&mut self.only_old, &only_old);
        if let Some(modules) = modules {
            self.reader.get_or_insert((modules, frames));
        }
        Ok(())
    }

    /// The proposal, if there is one.
    pub(super) fn verdict(
        &self,
        trace: &Trace,
        candidate: &Candidate,
        places: &mut Places<'_>,
    ) -> Result<Option<InferredCommitVariable>, CheckError> {
        if self.decided == 0 {
            return Ok(None);
        }
        let follows_all = candidate.writes.iter().filter(|it| it.follows_all).count() as u64;
        let writes = candidate.writes.len() as u64;
        let (order, reads) = self.order.unwrap_or((1, 1));
        let is_early = order <= EARLY || order * 4 <= reads;
        let mut confidence = DECIDES + ALWAYS * self.decided / (self.read + self.failed);
        for (is_so, share) in [
            (is_early, IS_EARLY),
            (self.guards, GUARDS),
            (follows_all == writes, FOLLOWS_ALL),
        ] {
            if is_so {
                confidence += share;
            }
        }
        let name = |pool: PoolIndex| {
            let pool = trace.pools().get(pool.0 as usize);
            pool.map_or_else(String::new, |it| it.path.display().to_string())
        };
        let mut decides = Vec::new();
        for (bytes, with) in [
            (&self.only_new, ReadWith::New),
            (&self.only_old, ReadWith::Old),
        ] {
            decides.extend(ranges(bytes).into_iter().map(|(pool, offset, len_bytes)| {
                DecidedRange {
                    pool: name(pool),
                    offset,
                    len_bytes,
                    read_with: with,
                }
            }));
        }
        Ok(Some(InferredCommitVariable {
            pool: name(candidate.at.pool),
            offset: candidate.at.offset.0,
            len_bytes: candidate.at.len,
            confidence: u8::try_from(confidence).unwrap_or(100),
            stores: stores(candidate, places)?,
            reader: self.reader.as_ref().and_then(|(modules, frames)| {
                RecoveryPlaces::new(modules.to_vec(), places.trust()).of_load(frames)
            }),
            decides,
            evidence: self.evidence(writes, follows_all),
            used: false,
        }))
    }

    fn evidence(&self, writes: u64, follows_all: u64) -> Vec<String> {
        let mut sentences = vec![format!(
            "{} to it {} ordered on both sides; before {} all that the thread had stored was durable",
            plural(writes, "store"),
            if writes == 1 { "is" } else { "are" },
            match follows_all {
                all if all == writes => "each".to_owned(),
                0 => "none of them".to_owned(),
                some => some.to_string(),
            }
        )];
        if let Some((order, reads)) = self.order {
            sentences.push(format!(
                "it is number {order} of {} of recovery of what was stored",
                plural(reads as u64, "first read")
            ));
        }
        let count = |bytes: &Bytes| bytes.values().map(|it| u64::from(it.count_ones())).sum();
        sentences.push(format!(
            "with the old value recovery reads other memory at {} of {} at which it reads it: {} only with the \
             new value, {} only with the old one",
            self.decided,
            plural(self.read, "failure point"),
            plural(count(&self.only_new), "byte"),
            plural(count(&self.only_old), "byte"),
        ));
        if self.guards {
            sentences.push(
                "what is read only with the new value was stored just before the variable"
                    .to_owned(),
            );
        }
        if self.failed > 0 {
            sentences.push(format!(
                "at {} recovery fails with one of its values, which says nothing",
                plural(self.failed, "failure point")
            ));
        }
        sentences
    }
}

/// `1 store`, `2 stores`.
fn plural(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn merge(into: &mut Bytes, more: &Bytes) {
    for (line, bytes) in more {
        *into.entry(*line).or_default() |= bytes;
    }
}

/// Bytes as ranges: pool, offset, length.
fn ranges(bytes: &Bytes) -> Vec<(PoolIndex, u64, u64)> {
    let mut ranges: Vec<(PoolIndex, u64, u64)> = Vec::new();
    for ((pool, line), mask) in bytes {
        for byte in (0..64).filter(|byte| mask >> byte & 1 != 0) {
            let at = line + byte;
            match ranges.last_mut() {
                Some((last, offset, len)) if last == pool && *offset + *len == at => *len += 1,
                _ => ranges.push((*pool, at, 1)),
            }
        }
    }
    ranges
}

/// Where a candidate is stored: each line of code once.
fn stores(candidate: &Candidate, places: &mut Places<'_>) -> Result<Vec<SourcePlace>, CheckError> {
    let mut stacks = BTreeSet::new();
    let mut found: Vec<SourcePlace> = Vec::new();
    for write in &candidate.writes {
        if found.len() == PLACES_MAX {
            break;
        }
        if !stacks.insert(write.stack) {
            continue;
        }
        let user = places.user_of(write.stack);
        let place = places.of_event_by(Role::Commit, write.store, user)?;
        if found.iter().all(|known| line_of(known) != line_of(&place)) {
            found.push(place);
        }
    }
    Ok(found)
}

/// Whether some of these bytes were stored between the store of a test and the one before it.
fn stores_before(trace: &Trace, test: &CandidateTest, bytes: &Bytes) -> Result<bool, CheckError> {
    let earliest = EventIndex(test.store.0.saturating_sub(LOOK_BACK));
    let from = test.previous.map_or(earliest, |it| it.max(earliest));
    let mut records = trace.records_from(from);
    while let Some(record) = records.next_record()? {
        if record.index >= test.store {
            break;
        }
        if record.index == from && test.previous == Some(from) {
            continue;
        }
        let Body::Pm(Event::Store {
            at, bytes: stored, ..
        }) = record.body
        else {
            continue;
        };
        let end = at.offset.0 + stored.len() as u64;
        let is_hit = (at.offset.0..end).any(|byte| {
            let mask = bytes.get(&(at.pool, byte / 64 * 64));
            mask.is_some_and(|mask| mask >> (byte % 64) & 1 != 0)
        });
        if is_hit {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_side_by_side_are_one_range() {
        let pool = PoolIndex(0);
        let bytes: Bytes = [
            ((pool, 0), 0xff << 56),
            ((pool, 64), 0b1011),
            ((PoolIndex(1), 128), 1),
        ]
        .into_iter()
        .collect();
        let expected = [(pool, 56, 10), (pool, 67, 1), (PoolIndex(1), 128, 1)];
        assert_eq!(ranges(&bytes), expected);
    }
}
