//! Silent loss: recovery succeeds, and what it recovered is not what it should be.
//!
//! Operations end where the program says so: at lines of its output that match the pattern for
//! acknowledgements, or at marks in the trace. If the pattern has a group, what it matched must be a
//! line of the content from then on, whatever survives. Otherwise the content after a crash must be
//! that after the last operation that had ended, or that after the next one.

use std::collections::BTreeMap;

use powerfail_finding::{Code, RecoveryOutcome};
use powerfail_model::EventIndex;
use powerfail_oracle::Verdict;
use powerfail_trace::{Body, MarkKind, Trace};
use regex::bytes::Regex;

use crate::error::CheckError;
use crate::symptom::{Symptom, symptom_of};

/// The end of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// The event behind the one that ended it.
    pub(crate) end: EventIndex,
    /// What must be in the content from then on.
    pub(crate) promise: Option<Vec<u8>>,
}

/// The operations of a trace, and contents after them as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    operations: Vec<Operation>,
    promises: bool,
    /// Content by the number of operations that have ended.
    known: BTreeMap<usize, Vec<u8>>,
}

/// How much of a content is shown.
const SHOWN_LINES: usize = 12;

impl Contents {
    pub(crate) fn new(trace: &Trace, ack: Option<&Regex>) -> Result<Self, CheckError> {
        let mut operations = Vec::new();
        let mut records = trace.records_from(EventIndex(0));
        let mut partial = Vec::new();
        while let Some(record) = records.next_record()? {
            let end = EventIndex(record.index.0 + 1);
            let Body::Mark(mark) = record.body else {
                continue;
            };
            match (mark.kind, ack) {
                (MarkKind::Output { full_len_bytes, .. }, Some(ack)) => {
                    // Lines may come in pieces; of a long output only the beginning is known.
                    partial.extend_from_slice(mark.payload);
                    let is_cut = full_len_bytes > mark.payload.len() as u64;
                    while let Some(at) = partial.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = partial.drain(..=at).collect();
                        operations.extend(acknowledged(ack, &line[..at], end));
                    }
                    if is_cut {
                        partial.clear();
                    }
                }
                (MarkKind::OperationEnd, None) => operations.push(Operation { end, promise: None }),
                _ => {}
            }
        }
        Ok(Self {
            promises: operations.iter().any(|op| op.promise.is_some()),
            operations,
            known: BTreeMap::new(),
        })
    }

    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// How many operations have ended at a moment.
    fn ended(&self, at: EventIndex) -> usize {
        self.operations
            .partition_point(|operation| operation.end <= at)
    }

    /// The moments whose contents are needed to judge these ones, and their numbers.
    pub(crate) fn missing(
        &self,
        moments: &[EventIndex],
        trace: &Trace,
    ) -> Vec<(usize, EventIndex)> {
        if self.promises || self.operations.is_empty() {
            return Vec::new();
        }
        let mut numbers: Vec<usize> = moments
            .iter()
            .flat_map(|at| [self.ended(*at), self.ended(*at) + 1])
            .filter(|number| !self.known.contains_key(number))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
            .into_iter()
            .map(|number| (number, self.moment_of(number, trace)))
            .collect()
    }

    /// A moment at which this many operations have ended, and the next has not begun to show.
    fn moment_of(&self, number: usize, trace: &Trace) -> EventIndex {
        match number.checked_sub(1) {
            None => EventIndex(0),
            Some(last) => self
                .operations
                .get(last)
                .map_or(EventIndex(trace.event_count()), |operation| operation.end),
        }
    }

    pub(crate) fn learn(&mut self, number: usize, verdict: Option<&Verdict>) {
        if let Some(Verdict::Success { dump: Some(dump) }) = verdict {
            self.known.insert(number, dump.clone());
        }
    }

    /// What is wrong with a verdict at a moment.
    pub(crate) fn judge(&self, at: EventIndex, verdict: &Verdict) -> Option<Symptom> {
        if let Some(symptom) = symptom_of(verdict) {
            return Some(symptom);
        }
        let Verdict::Success { dump: Some(dump) } = verdict else {
            return None;
        };
        let ended = self.ended(at);
        if self.promises {
            let lines: Vec<&[u8]> = dump.split(|byte| *byte == b'\n').collect();
            let lost = self.operations[..ended]
                .iter()
                .filter_map(|operation| operation.promise.as_deref())
                .find(|promise| !lines.contains(promise))?;
            let missing = String::from_utf8_lossy(lost);
            return Some(content(
                Code::AcknowledgedLost,
                dump,
                format!("- {missing}\n"),
            ));
        }
        if self.operations.is_empty() {
            return None;
        }
        let allowed = [self.known.get(&ended), self.known.get(&(ended + 1))];
        if allowed.iter().flatten().any(|content| *content == dump) {
            return None;
        }
        let expected = allowed.iter().flatten().next()?;
        let is_older = self
            .known
            .range(..ended)
            .any(|(_, content)| content == dump);
        let code = if is_older {
            Code::AcknowledgedLost
        } else {
            Code::ContentTorn
        };
        Some(content(code, dump, difference(expected, dump)))
    }
}

fn acknowledged(ack: &Regex, line: &[u8], end: EventIndex) -> Option<Operation> {
    let captures = ack.captures(line)?;
    Some(Operation {
        end,
        promise: captures.get(1).map(|group| group.as_bytes().to_vec()),
    })
}

/// The beginning of a content, as a finding has it.
pub fn shown_content(dump: &[u8]) -> String {
    let text = String::from_utf8_lossy(dump);
    let lines: Vec<&str> = text.lines().take(SHOWN_LINES).collect();
    lines.join("\n")
}

fn content(code: Code, dump: &[u8], difference: String) -> Symptom {
    Symptom {
        code,
        outcome: RecoveryOutcome::Content {
            output: shown_content(dump),
        },
        backtrace: None,
        difference: Some(difference),
    }
}

/// Lines of one that are not in the other, with signs.
fn difference(expected: &[u8], found: &[u8]) -> String {
    let (expected, found) = (
        String::from_utf8_lossy(expected),
        String::from_utf8_lossy(found),
    );
    let (expected, found): (Vec<&str>, Vec<&str>) =
        (expected.lines().collect(), found.lines().collect());
    let gone = expected.iter().filter(|line| !found.contains(line));
    let new = found.iter().filter(|line| !expected.contains(line));
    let mut text = String::new();
    for line in gone.map(|line| format!("- {line}\n")).take(SHOWN_LINES) {
        text.push_str(&line);
    }
    for line in new.map(|line| format!("+ {line}\n")).take(SHOWN_LINES) {
        text.push_str(&line);
    }
    if text.is_empty() {
        text.push_str("the same lines in another order or number\n");
    }
    text
}
