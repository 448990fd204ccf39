//! Races of ordinary files: recovery reads data that is not surely durable, and does not check it.
//!
//! At each failure point recovery is watched on the newest tree. What it reads of a write that a crash can lose is a pair of a
//! writer and a reader, as lines of code. Then recovery runs on the trees that lose or tear the write. It *checks* the data if it
//! does one and the same thing whatever part is missing, and another thing with all of it. A write that is atomic is a *commit
//! variable* if it decides what else recovery reads. Both are right, and so is the name of a file, which changes in one step. What
//! makes recovery fail is found by other crashes.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use powerfail_finding::{
    Code, Finding, Races, RecoveryOutcome, Role, Severity, SourcePlace, Tried, UnsafeRead,
};
use powerfail_image::{NodeKey, TreeImage};
use powerfail_model::files::{CrashState, Frontier, NodeId, Operation};
use powerfail_oracle::{Backtrace, Verdict};
use powerfail_trace::StackId;

use super::engine::TreeEngine;
use super::prefix::Prefixes;
use super::runner::TreeTrial;
use super::words::in_sentence;
use crate::error::CheckError;
use crate::event::CheckStep;
use crate::options::RaceOptions;
use crate::places::{Places, hex_prefix};

/// How many trees that lack a write are tried for a pair.
const VARIANTS_MAX: usize = 8;
/// How many pairs are tried.
const PAIRS_MAX: usize = 32;

/// A run of recovery that was watched.
pub(super) struct WatchedTree {
    pub(super) verdict: Verdict,
    pub(super) outputs: Vec<String>,
    pub(super) uses: Vec<NodeUse>,
}

/// A part of a file that recovery has used.
pub(super) struct NodeUse {
    pub(super) node: NodeKey,
    pub(super) range: Range<u64>,
    /// From where it was read; `None` if it was written.
    pub(super) reader: Option<Backtrace>,
}

/// What recovery does with a tree, as far as it can be seen, apart from reading a certain write.
#[derive(PartialEq, Eq)]
struct Behaviour {
    outputs: Vec<String>,
    dump: Option<Vec<u8>>,
    /// What it reads, by file.
    reads: BTreeMap<NodeKey, Vec<Range<u64>>>,
}

/// A write, and where recovery reads it.
struct Pair {
    /// The place of the write in the list of operations.
    writer: usize,
    /// The first failure point, as a place in the list.
    at: usize,
    reader: SourcePlace,
    /// What of the write is read first.
    read: Range<u64>,
    /// At how many failure points.
    points: u64,
}

/// What became of a pair.
enum Judgement {
    /// Recovery fails on one of the trees: other crashes report that.
    Fails,
    /// It is made for it.
    Safe,
    /// Recovery fails while it is watched, and only then: how.
    Unknown(String),
    /// It is not. What it reads instead, and whether it does the same as with all of the data.
    Unsafe {
        instead: Vec<String>,
        is_unnoticed: bool,
        /// It prints and dumps nothing by which it could be told.
        is_silent: bool,
        executions: u64,
    },
}

/// What watching has shown.
#[derive(Default)]
pub(super) struct TreeRaces {
    pub(super) findings: Vec<Finding>,
    pub(super) races: Races,
    pub(super) notes: Vec<String>,
}

impl TreeEngine<'_, '_> {
    /// Watches what recovery reads at failure points, and tries whether it checks it.
    pub(super) fn races(
        &mut self,
        points: &[usize],
        options: &RaceOptions,
        prefixes: &Prefixes,
        known: &[Finding],
        places: &mut Places<'_>,
    ) -> Result<TreeRaces, CheckError> {
        let mut found = TreeRaces::default();
        found.races.failure_points = points.len() as u64;
        let (pairs, mut failed) = self.pairs(points, prefixes, &mut found.races, places)?;
        found.races.pairs = pairs.len() as u64;
        if pairs.len() > PAIRS_MAX {
            found.notes.push(format!(
                "recovery reads {} writes that are not durable; {PAIRS_MAX} of them were looked at",
                pairs.len()
            ));
        }
        for pair in pairs.into_iter().take(PAIRS_MAX) {
            if self.is_stopped() {
                break;
            }
            let writer = self.place_of(Role::Store, pair.writer, places)?;
            let is_known = known.iter().filter(|it| it.severity == Severity::Error);
            let is_same = |it: &SourcePlace| {
                it.role == Role::Store
                    && (&it.file, it.line, &it.function)
                        == (&writer.file, writer.line, &writer.function)
            };
            if { is_known }.flat_map(|it| &it.places).any(is_same) {
                found.races.confirmed += 1;
                continue;
            }
            match self.judge_pair(&pair, &mut found.races)? {
                Judgement::Fails => found.races.confirmed += 1,
                Judgement::Safe => found.races.validated += 1,
                Judgement::Unknown(outcome) => failed.push(outcome),
                Judgement::Unsafe {
                    instead,
                    is_unnoticed,
                    is_silent,
                    executions,
                } => {
                    let mut finding =
                        self.race(&pair, writer, (instead, executions), is_unnoticed, places)?;
                    if is_silent {
                        finding.explain(
                            "recovery prints nothing: let it print what it recovers, or give a --dump, so that it can be seen \
                             whether it checks the data"
                                .to_owned(),
                        );
                    }
                    found.findings.push(if options.strict {
                        Finding {
                            severity: Severity::Error,
                            ..finding
                        }
                    } else {
                        finding
                    });
                }
            }
        }
        if let Some(outcome) = failed.first() {
            found.notes.push(format!(
                "recovery fails only while its reads are watched (runs: {}): it {outcome}; reads after that are not known",
                failed.len()
            ));
        }
        Ok(found)
    }

    /// Which writes that a crash can lose recovery reads, and where; and how recovery failed because it was watched.
    fn pairs(
        &mut self,
        points: &[usize],
        prefixes: &Prefixes,
        races: &mut Races,
        places: &mut Places<'_>,
    ) -> Result<(Vec<Pair>, Vec<String>), CheckError> {
        type Key = (StackId, Option<String>, Option<u32>, Option<String>);
        let mut pairs: BTreeMap<Key, Pair> = BTreeMap::new();
        let mut readers: Vec<(Backtrace, SourcePlace)> = Vec::new();
        let mut frontier = Frontier::new(self.file_system, &self.recording.initial);
        let mut failed = Vec::new();
        let mut applied = 0;
        let of = points.len() as u64;
        for (done, &point) in (0..).zip(points) {
            for it in &self.recording.operations[applied..point.min(self.recording.len())] {
                frontier.apply(it.index, &it.operation);
            }
            applied = point.min(self.recording.len());
            // Where it fails with nothing lost, what it reads is not to blame.
            let fails = prefixes.judged.get(&point).is_some_and(Option::is_some);
            let writes = self.open_writes(&frontier);
            if fails || writes.is_empty() {
                races.unchanged += 1;
                continue;
            }
            if self.is_stopped() {
                races.not_tried += 1;
                continue;
            }
            self.observer.progress(CheckStep::Races, done, of);
            let watched = self.watch(&TreeTrial::newest(point))?;
            races.executions += 1;
            match failure_of(&watched) {
                Some(_) if self.judge(&TreeTrial::newest(point))?.is_some() => {
                    races.unchanged += 1;
                    continue;
                }
                Some(outcome) => {
                    races.refused += 1;
                    failed.push(outcome);
                }
                None => races.watched += 1,
            }
            let mut overwritten: Vec<(NodeKey, Range<u64>)> = Vec::new();
            let mut seen: HashSet<Key> = HashSet::new();
            for used in &watched.uses {
                let Some(reader) = &used.reader else {
                    overwritten.push((used.node, used.range.clone()));
                    continue;
                };
                for &(writer, node, ref range) in &writes {
                    if NodeKey(node.0.into()) != used.node {
                        continue;
                    }
                    let mut read = vec![overlap(range, &used.range)];
                    for (node, range) in &overwritten {
                        if *node == used.node {
                            read = without(&read, range);
                        }
                    }
                    let Some(read) = read.into_iter().find(|it| !it.is_empty()) else {
                        continue;
                    };
                    let known = readers.iter().find(|(stack, _)| stack == reader);
                    let at = match known {
                        Some((_, at)) => at.clone(),
                        None => {
                            let at = places.of_backtrace(Role::Load, reader);
                            readers.push((reader.clone(), at.clone()));
                            at
                        }
                    };
                    let stack = self.recording.operations[writer].stack;
                    let key = (stack, at.file.clone(), at.line, at.function.clone());
                    let is_first = seen.insert(key.clone());
                    let pair = pairs.entry(key).or_insert(Pair {
                        writer,
                        at: point,
                        reader: at,
                        read,
                        points: 0,
                    });
                    pair.points += u64::from(is_first);
                }
            }
        }
        let mut pairs: Vec<Pair> = pairs.into_values().collect();
        pairs.sort_by_key(|pair| (pair.at, pair.writer));
        Ok((pairs, failed))
    }

    /// The writes that are not sure, by their places in the list.
    fn open_writes(&self, frontier: &Frontier) -> Vec<(usize, NodeId, Range<u64>)> {
        let open = frontier.fates(&CrashState::default());
        let open = open.iter().filter_map(|(index, _)| {
            let operations = &self.recording.operations;
            let place = operations.binary_search_by_key(index, |it| it.index).ok()?;
            match &operations[place].operation {
                Operation::Write { node, range } => Some((place, *node, range.offset..range.end())),
                _ => None,
            }
        });
        open.collect()
    }

    fn watch(&mut self, trial: &TreeTrial) -> Result<WatchedTree, CheckError> {
        let observer = &mut *self.observer;
        self.runner.watch(trial, &|| observer.is_interrupted())
    }

    /// Runs recovery on trees that lack the write of a pair, or a part of it.
    fn judge_pair(&mut self, pair: &Pair, races: &mut Races) -> Result<Judgement, CheckError> {
        let traced = &self.recording.operations[pair.writer];
        let Operation::Write { node, range } = &traced.operation else {
            return Ok(Judgement::Safe);
        };
        let key = NodeKey(node.0.into());
        let written = (key, range.offset..range.end());
        let frontier = self.frontier(self.file_system, pair.at);
        let newest = self
            .recording
            .image(pair.at, &TreeTrial::newest(pair.at).difference);
        let mut seen = HashSet::from([newest.digest()]);
        let lost = frontier.losing(traced.index, &traced.operation);
        let torn = frontier.tearing(traced.index, &traced.operation);
        let mut variants = Vec::new();
        let mut instead = Vec::new();
        for state in lost.iter().chain(&torn) {
            let difference = frontier.difference(state);
            let image = self.recording.image(pair.at, &difference);
            let bytes = bytes_read(&image, key, &pair.read);
            if bytes == bytes_read(&newest, key, &pair.read) || !seen.insert(image.digest()) {
                continue;
            }
            let bytes = hex_prefix(&bytes);
            if !bytes.is_empty() && !instead.contains(&bytes) {
                instead.push(bytes);
            }
            variants.push(TreeTrial {
                place: pair.at,
                difference,
            });
        }
        let is_atomic = variants.len() == 1;
        variants.truncate(VARIANTS_MAX);
        if variants.is_empty() {
            return Ok(Judgement::Safe);
        }
        let whole = self.watch(&TreeTrial::newest(pair.at))?;
        if let Some(outcome) = failure_of(&whole) {
            return Ok(Judgement::Unknown(outcome));
        }
        let whole = behaviour(whole, &written);
        let mut others: Vec<Behaviour> = Vec::new();
        races.confirmations += 1 + variants.len() as u64;
        for trial in &variants {
            if self.judge(trial)?.is_some() {
                return Ok(Judgement::Fails);
            }
            let watched = self.watch(trial)?;
            if let Some(outcome) = failure_of(&watched) {
                return Ok(Judgement::Unknown(outcome));
            }
            others.push(behaviour(watched, &written));
        }
        let is_one = others.windows(2).all(|pair| pair[0] == pair[1]);
        let is_unnoticed = others.contains(&whole);
        let is_safe = if is_atomic {
            others.iter().any(|it| it.reads != whole.reads)
        } else {
            is_one && !is_unnoticed
        };
        if is_safe {
            return Ok(Judgement::Safe);
        }
        Ok(Judgement::Unsafe {
            instead,
            is_unnoticed,
            executions: 1 + variants.len() as u64,
            is_silent: whole.dump.is_none() && whole.outputs.iter().all(String::is_empty),
        })
    }

    fn race(
        &mut self,
        pair: &Pair,
        writer: SourcePlace,
        (instead, executions): (Vec<String>, u64),
        is_unnoticed: bool,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let mut reader = pair.reader.clone();
        reader.pool.clone_from(&writer.pool);
        reader.pool_offset = Some(pair.read.start);
        reader.len_bytes = Some(pair.read.end - pair.read.start);
        reader.operation = Some("read".to_owned());
        let mut found = vec![writer, reader];
        if pair.at < self.recording.len() {
            found.push(self.place_of(Role::Failure, pair.at, places)?);
        }
        let newest = self
            .recording
            .image(pair.at, &TreeTrial::newest(pair.at).difference);
        let traced = &self.recording.operations[pair.writer];
        let node = traced.operation.node().unwrap_or_default();
        let write = in_sentence(self.recording, pair.writer);
        let message = if is_unnoticed {
            format!(
                "recovery reads {write}, which is not durable, and does not notice if a part of it is lost"
            )
        } else {
            format!(
                "recovery reads {write}, which is not durable, and uses what is left if a part of it is lost"
            )
        };
        Ok(Finding {
            severity: Severity::Warning,
            count: pair.points,
            read: Some(UnsafeRead {
                event: self.event_at(pair.at).0,
                failure_points: pair.points,
                command: "recovery".to_owned(),
                bytes: hex_prefix(&bytes_read(&newest, NodeKey(node.0.into()), &pair.read)),
                instead,
                not_durable: None,
                trace: None,
                strict: false,
                tried: Some(Tried {
                    other_value: 1,
                    executions,
                    ..Tried::default()
                }),
            }),
            ..Finding::new(Code::CrossFailureRace, message, found)
        })
    }
}

/// The bytes of a file of a tree that a read sees, as far as the file has them.
fn bytes_read(image: &TreeImage, node: NodeKey, read: &Range<u64>) -> Vec<u8> {
    let has_name = image.names_of(node).next().is_some();
    let Some(file) = image.files.get(&node).filter(|_| has_name) else {
        return Vec::new();
    };
    let end = read.end.min(file.content.len_bytes());
    let len = end.saturating_sub(read.start);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file.content.read(read.start, &mut bytes);
    bytes
}

/// How recovery failed in a run that was watched.
fn failure_of(watched: &WatchedTree) -> Option<String> {
    match &watched.verdict {
        Verdict::Success { .. } => None,
        Verdict::Failure(failure) => Some(match &failure.outcome {
            RecoveryOutcome::Timeout { .. } => {
                "did not end, although a run that is watched has ten times the limit of --timeout"
                    .to_owned()
            }
            outcome => outcome.to_string(),
        }),
    }
}

/// What a run shows, apart from what it reads of a write.
fn behaviour(watched: WatchedTree, (node, write): &(NodeKey, Range<u64>)) -> Behaviour {
    let mut reads: BTreeMap<NodeKey, Vec<Range<u64>>> = BTreeMap::new();
    for used in watched.uses.iter().filter(|it| it.reader.is_some()) {
        let mut parts = vec![used.range.clone()];
        if used.node == *node {
            parts = without(&parts, write);
        }
        reads.entry(used.node).or_default().extend(parts);
    }
    for parts in reads.values_mut() {
        *parts = joined(std::mem::take(parts));
    }
    reads.retain(|_, parts| !parts.is_empty());
    let dump = match watched.verdict {
        Verdict::Success { dump } => dump,
        Verdict::Failure(_) => None,
    };
    Behaviour {
        outputs: watched.outputs,
        dump,
        reads,
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

/// What is left of ranges without another one.
fn without(ranges: &[Range<u64>], other: &Range<u64>) -> Vec<Range<u64>> {
    let parts = ranges.iter().flat_map(|it| {
        [
            it.start..it.end.min(other.start).max(it.start),
            it.start.max(other.end).min(it.end)..it.end,
        ]
    });
    parts.filter(|it| !it.is_empty()).collect()
}

/// Ranges in order, those that touch as one.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|it| (it.start, it.end));
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{joined, overlap, without};

    #[test]
    fn ranges() {
        assert_eq!(overlap(&(0..10), &(5..20)), 5..10);
        assert!(overlap(&(0..10), &(10..20)).is_empty());
        assert_eq!(
            without(std::slice::from_ref(&(0..10)), &(3..5)),
            [0..3, 5..10]
        );
        assert_eq!(without(&[0..10, 20..30], &(5..25)), [0..5, 25..30]);
        assert!(without(std::slice::from_ref(&(3..5)), &(0..10)).is_empty());
        assert_eq!(joined(vec![5..9, 0..5, 20..21, 8..12]), [0..12, 20..21]);
    }
}
