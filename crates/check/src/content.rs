//! Silent loss: recovery succeeds, and what it recovered is not what it should be.
//!
//! Operations end where the program says so: at lines of its output that match the pattern for
//! acknowledgements, or at marks in the trace. If the pattern has a group, what it matched must be a
//! line of the content from then on, whatever survives. Otherwise the content after a crash must be
//! that after the last operation that had ended, or that after the next one. A recorder that knows what each operation
//! leaves declares it with the mark at its end; then that is compared, and nothing has to be learnt.

mod declared;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use powerfail_finding::{Code, RecoveryOutcome};
use powerfail_model::EventIndex;
use powerfail_oracle::Verdict;
use powerfail_trace::{Body, DeclaredContent, MarkKind, Trace};
use powerfail_trace::{Scope, ScopeChange};
use regex::bytes::Regex;

use crate::error::CheckError;
use crate::reading::WatchedRecords;
use crate::symptom::{Symptom, symptom_of};
use declared::{DeclaredContents, Wrong};

/// The end of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// The event behind the one that ended it.
    pub(crate) end: EventIndex,
    /// What must be in the content from then on.
    pub(crate) promise: Option<Vec<u8>>,
    /// Annotations let a failure count there.
    pub(crate) in_scope: bool,
}

/// The operations of a trace, and contents after them as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct ExpectedContents {
    operations: Vec<Operation>,
    promises: bool,
    /// Several operations end at one moment: the program's output comes in bulk, and where each of them
    /// ended is unknown.
    is_bulk: bool,
    /// Content by the number of operations that have ended.
    known: BTreeMap<usize, Vec<u8>>,
    /// So many have ended, whatever the moment.
    fixed: Option<usize>,
    /// What the recorder says that operations leave.
    declared: DeclaredContents,
    /// The pattern of acknowledgements, if no line of the workload's output matches it.
    unmatched: Option<String>,
    /// How many contents were judged that need not have all that the workload acknowledges.
    early: AtomicU64,
    /// How many of them had it all the same.
    early_and_complete: AtomicU64,
}

/// How much of a content is shown.
const SHOWN_LINES: usize = 12;

impl ExpectedContents {
    /// What a trace says. `progress` hears how many bytes of it were read.
    pub(crate) fn new(
        trace: &Trace,
        ack: Option<&Regex>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, CheckError> {
        let mut operations: Vec<Operation> = Vec::new();
        let mut declared = DeclaredContents::default();
        let mut scope = Scope::new();
        let mut records = WatchedRecords::of(trace, progress);
        let mut partial = Vec::new();
        while let Some(record) = records.next_record()? {
            if scope.push(&record) == Some(ScopeChange::FirstRegion) {
                for operation in &mut operations {
                    operation.in_scope = false;
                }
            }
            let end = EventIndex(record.index.0 + 1);
            let Body::Mark(mark) = record.body else {
                continue;
            };
            let in_scope = scope.admits_failure(record.thread);
            match (mark.kind, ack) {
                (MarkKind::Output { full_len_bytes, .. }, Some(ack)) => {
                    // Lines may come in pieces; of a long output only the beginning is known.
                    partial.extend_from_slice(mark.payload);
                    let is_cut = full_len_bytes > mark.payload.len() as u64;
                    while let Some(at) = partial.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = partial.drain(..=at).collect();
                        operations.extend(acknowledged(ack, &line[..at], end, in_scope));
                    }
                    if is_cut {
                        partial.clear();
                    }
                }
                (MarkKind::OperationEnd, None) => {
                    if let Some(content) = DeclaredContent::parse(mark.payload) {
                        declared.push(content);
                    }
                    operations.push(Operation {
                        end,
                        promise: None,
                        in_scope,
                    });
                }
                _ => {}
            }
        }
        Ok(Self {
            promises: operations.iter().any(|op| op.promise.is_some()),
            is_bulk: operations.windows(2).any(|pair| pair[0].end == pair[1].end),
            unmatched: ack
                .filter(|_| operations.is_empty())
                .map(|it| it.as_str().to_owned()),
            operations,
            known: BTreeMap::new(),
            fixed: None,
            declared,
            ..Self::default()
        })
    }

    /// What is expected of the content from a moment on while recovery runs and the workload does not: what was promised. What
    /// else recovery makes of it is not compared, because it may be the workload once more.
    pub(crate) fn fixed_at(&self, at: EventIndex) -> Self {
        let promised = self.operations.iter().filter(|_| self.promises);
        Self {
            operations: promised.cloned().collect(),
            promises: self.promises,
            is_bulk: self.is_bulk,
            known: BTreeMap::new(),
            fixed: Some(if self.promises { self.ended(at) } else { 0 }),
            declared: DeclaredContents::default(),
            unmatched: None,
            ..Self::default()
        }
    }

    /// An error if the dump without a crash has nothing that was acknowledged: it prints something else, and a crash is not to
    /// blame.
    pub(crate) fn refuse_other_dump(&self, dump: Option<&[u8]>) -> Result<(), CheckError> {
        let missing = dump.and_then(|dump| self.first_of_all_missing(dump));
        missing.map_or(Ok(()), |first| Err(CheckError::NotDumped { first }))
    }

    /// What the workload has acknowledged first, if a content has nothing of all that it has acknowledged.
    fn first_of_all_missing(&self, dump: &[u8]) -> Option<String> {
        let lines: BTreeSet<&[u8]> = dump.split(|byte| *byte == b'\n').collect();
        let mut promises = { self.operations.iter() }.filter_map(|it| it.promise.as_deref());
        let first = promises.clone().next()?;
        let is_missing = promises.all(|it| !lines.contains(it));
        is_missing.then(|| String::from_utf8_lossy(first).into_owned())
    }

    /// What limits the comparison of contents, if anything does. `dumps` says whether there is a content to compare.
    pub(crate) fn note(&self, dumps: bool) -> Option<String> {
        if let Some(pattern) = &self.unmatched {
            return Some(format!(
                "no line of the workload's output matches --ack '{pattern}', so no operation counts as acknowledged, and none \
                 that is lost can be found"
            ));
        }
        if dumps && self.operations.is_empty() {
            return Some(
                "contents are not compared: nothing says when an operation of the workload has ended; give the lines that say \
                 so with --ack"
                    .to_owned(),
            );
        }
        (self.is_bulk && !self.promises).then(|| {
            "contents are not compared: several operations are acknowledged in one write, so where \
             each of them ended is not known; let the workload flush its output after each one"
                .into()
        })
    }

    /// Notes whether a content has what the workload acknowledges only after the crash. What the operation in flight promises
    /// may be there.
    fn note_later_promises(&self, ended: usize, lines: &[&[u8]]) {
        if self.fixed.is_some() {
            return;
        }
        let promise = |operation: &Operation| operation.promise.clone();
        let begun = self.operations.len().min(ended + 1);
        let known: BTreeSet<_> = self.operations[..begun]
            .iter()
            .filter_map(promise)
            .collect();
        let later = self.operations[begun..].iter().filter_map(promise);
        let mut later = later.filter(|it| !known.contains(it)).peekable();
        if later.peek().is_none() {
            return;
        }
        self.early.fetch_add(1, Ordering::Relaxed);
        if later.all(|promise| lines.contains(&promise.as_slice())) {
            self.early_and_complete.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Says that recovery hides what is lost, if that is so: whenever the power fails, the content has all that the workload
    /// acknowledges in the whole run.
    pub(crate) fn hidden_losses(&self) -> Option<String> {
        let early = self.early.load(Ordering::Relaxed);
        let complete = self.early_and_complete.load(Ordering::Relaxed);
        (early > 0 && early == complete).then(|| {
            "losses cannot be seen: after each crash, the content has also what the workload acknowledges only later, so recovery \
             stores it again; give a --recover that only opens the data"
                .to_owned()
        })
    }

    /// The ends of operations at which a failure counts.
    pub(crate) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.operations
            .iter()
            .filter(|operation| operation.in_scope && self.fixed.is_none())
    }

    /// How many operations have ended at a moment.
    pub(crate) fn ended(&self, at: EventIndex) -> usize {
        self.fixed.unwrap_or_else(|| {
            self.operations
                .partition_point(|operation| operation.end <= at)
        })
    }

    /// Whether the same content is right at two moments.
    pub(crate) fn expects_the_same(&self, one: EventIndex, other: EventIndex) -> bool {
        self.ended(one) == self.ended(other)
    }

    /// The moments whose contents are needed to judge these ones, and their numbers.
    pub(crate) fn missing(
        &self,
        moments: &[EventIndex],
        trace: &Trace,
    ) -> Vec<(usize, EventIndex)> {
        let is_known = self.promises || !self.declared.is_empty();
        if is_known || self.is_bulk || self.operations.is_empty() {
            return Vec::new();
        }
        let mut numbers: Vec<usize> = moments
            .iter()
            .flat_map(|at| {
                let ended = self.ended(*at);
                // The one before tells what is lost from what is torn.
                [ended.saturating_sub(1), ended, ended + 1]
            })
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
        if !self.declared.is_empty() {
            let (wrong, difference) = self.declared.judge(ended, dump)?;
            let code = match wrong {
                Wrong::Lost => Code::AcknowledgedLost,
                Wrong::Torn => Code::ContentTorn,
            };
            return Some(content(code, dump, difference));
        }
        if self.promises {
            let lines: Vec<&[u8]> = dump.split(|byte| *byte == b'\n').collect();
            let lost = self.operations[..ended]
                .iter()
                .filter_map(|operation| operation.promise.as_deref())
                .find(|promise| !lines.contains(promise));
            if lost.is_none() {
                self.note_later_promises(ended, &lines);
            }
            let lost = lost?;
            let missing = String::from_utf8_lossy(lost);
            return Some(content(
                Code::AcknowledgedLost,
                dump,
                format!("- {missing}\n"),
            ));
        }
        if self.is_bulk || self.operations.is_empty() {
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

fn acknowledged(ack: &Regex, line: &[u8], end: EventIndex, in_scope: bool) -> Option<Operation> {
    let captures = ack.captures(line)?;
    Some(Operation {
        end,
        promise: captures.get(1).map(|group| group.as_bytes().to_vec()),
        in_scope,
    })
}

/// The beginning of a content, as a finding has it.
pub(crate) fn shown_content(dump: &[u8]) -> String {
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
        others: Vec::new(),
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

#[cfg(test)]
mod tests {
    use super::{DeclaredContents, ExpectedContents, Operation};
    use powerfail_finding::Code;
    use powerfail_model::EventIndex;
    use powerfail_oracle::Verdict;

    fn contents(
        ends: &[u64],
        promises: &[Option<&str>],
        known: &[(usize, &str)],
    ) -> ExpectedContents {
        let operations: Vec<Operation> = ends
            .iter()
            .zip(promises)
            .map(|(end, promise)| Operation {
                end: EventIndex(*end),
                promise: promise.map(|text| text.as_bytes().to_vec()),
                in_scope: true,
            })
            .collect();
        ExpectedContents {
            promises: promises.iter().any(Option::is_some),
            is_bulk: ends.windows(2).any(|pair| pair[0] == pair[1]),
            operations,
            known: known
                .iter()
                .map(|(number, text)| (*number, text.as_bytes().to_vec()))
                .collect(),
            declared: DeclaredContents::default(),
            ..ExpectedContents::default()
        }
    }

    fn code(contents: &ExpectedContents, at: u64, dump: &str) -> Option<Code> {
        let verdict = Verdict::Success {
            dump: Some(dump.as_bytes().to_vec()),
        };
        let symptom = contents.judge(EventIndex(at), &verdict);
        symptom.map(|symptom| symptom.code)
    }

    /// A dump that prints something else than what the group of `--ack` matches says nothing about a crash.
    #[test]
    fn a_dump_with_nothing_that_was_acknowledged_is_refused() {
        let contents = contents(&[1, 2], &[Some("0"), Some("1")], &[]);
        let refused = contents.refuse_other_dump(Some(b"saved 0\nsaved 1\n"));
        let message = refused.map_err(|error| error.to_string());
        assert!(message.is_err_and(|it| it.ends_with("would be `0`")));
        assert!(contents.refuse_other_dump(Some(b"1\n")).is_ok());
        assert!(contents.refuse_other_dump(None).is_ok());
    }

    #[test]
    fn old_or_new_and_nothing_else() {
        let known = [(0, ""), (1, "a\n"), (2, "a\nb\n")];
        let contents = contents(&[10, 20], &[None, None], &known);
        assert_eq!(code(&contents, 15, "a\n"), None);
        assert_eq!(code(&contents, 15, "a\nb\n"), None);
        assert_eq!(code(&contents, 15, "b\n"), Some(Code::ContentTorn));
        assert_eq!(code(&contents, 15, ""), Some(Code::AcknowledgedLost));
        assert_eq!(code(&contents, 5, ""), None);
    }

    #[test]
    fn a_promise_must_be_kept() {
        let contents = contents(&[10, 20], &[Some("a"), Some("b")], &[]);
        assert_eq!(code(&contents, 9, ""), None);
        assert_eq!(code(&contents, 10, ""), Some(Code::AcknowledgedLost));
        assert_eq!(code(&contents, 19, "x\na\n"), None);
        assert_eq!(code(&contents, 20, "ab\na\n"), Some(Code::AcknowledgedLost));
    }

    /// The workload as recovery makes up for what is lost.
    #[test]
    fn recovery_that_stores_everything_again_hides_losses() {
        let promises = [Some("a"), Some("b"), Some("c")];
        let hiding = contents(&[10, 20, 30], &promises, &[]);
        assert_eq!(code(&hiding, 30, "a\nb\nc\n"), None);
        assert_eq!(hiding.hidden_losses(), None);
        // The operation in flight may be there.
        assert_eq!(code(&hiding, 25, "a\nb\nc\n"), None);
        assert_eq!(hiding.hidden_losses(), None);
        assert_eq!(code(&hiding, 5, "a\nb\nc\n"), None);
        assert_eq!(code(&hiding, 15, "a\nb\nc\n"), None);
        assert!(hiding.hidden_losses().is_some());
        assert_eq!(code(&hiding, 15, "a\nb\n"), None);
        assert_eq!(hiding.hidden_losses(), None);
    }

    /// A program whose output is buffered says nothing about where its operations ended.
    #[test]
    fn acknowledgements_in_bulk_cause_no_false_error() {
        let known = [(0, ""), (1, "a\nb\n"), (2, "a\nb\n")];
        let contents = contents(&[20, 20], &[None, None], &known);
        assert_eq!(code(&contents, 15, "a\n"), None);
        assert!(contents.note(true).is_some());
    }
}
