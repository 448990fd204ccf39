//! A second, naive implementation of the rules in `docs/reference/races-rules.md`, byte by byte: it answers every
//! question by a pass over the whole trace. It has no time stamps, only the order of events. Shares no code with the
//! shadow.

use crate::common::{POOL_BYTES, Script};
use powerfail_model::{
    Domain, Event, EventIndex, FenceKind, FlushKind, Frontier, LineId, LineIndex, PoolIndex,
    PoolOffset, Rules, SparseImage, StoreKind,
};
use powerfail_races::{
    CommitVariable, Judgement, NotDurable, Persistence, PoolRange, Shadow, ShadowOptions,
};
use powerfail_trace::{Annotation, Record, Trace};
use proptest::prelude::*;

/// The bytes that traces use.
const BYTES: u64 = 208;

/// Commit variables: first byte and length.
const VARIABLES: [(u64, u64); 3] = [(0, 8), (8, 16), (40, 4)];

/// The ranges that they may decide about: variable, first byte and length. One range contains another variable.
const RANGES: [(usize, u64, u64); 6] = [
    (0, 64, 64),
    (0, 130, 10),
    (0, 0, 32),
    (1, 128, 2),
    (1, 160, 32),
    (2, 44, 20),
];

const INTEREST: [Annotation; 8] = [
    Annotation::InterestBegin,
    Annotation::InterestEnd,
    Annotation::InterestBegin,
    Annotation::SkipDetectionBegin,
    Annotation::SkipDetectionEnd,
    Annotation::SkipDetectionEnd,
    Annotation::Complete,
    Annotation::SkipFailureBegin,
];

#[derive(Clone, Debug)]
enum Act {
    Store(StoreKind, u64, u64),
    Flush(FlushKind, u64),
    Fence,
    Sync(u64, u64),
    /// Truncated, and extended to the previous length.
    Cut(u64),
    Library,
    /// An annotation about regions of interest.
    Interest(Annotation),
    Variable(usize),
    Range(usize),
    Begin,
    Add(u64, u64, u64),
    AllocateInside(u64, u64, u64),
    FreeInside(u64, u64),
    Abort,
    End,
    Allocate(u64, u64, u64),
    Free(u64, u64),
}

#[derive(Clone, Debug)]
struct Step {
    thread: u32,
    act: Act,
}

/// A variable, or a range of one, and since when it is known.
#[derive(Clone, Copy, Debug)]
struct Named {
    since: usize,
    variable: usize,
    range: Option<usize>,
}

struct Naive<'a> {
    domain: Domain,
    strict: bool,
    steps: &'a [Step],
    names: Vec<Named>,
    /// By store, line and position: whether the store is surely durable in the line.
    sure: Vec<Vec<Vec<bool>>>,
}

/// The expected result for a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Fine,
    Race(u64, NotDurable),
    Uncommitted(u64, Option<u64>),
    Stale(u64, [u64; 2]),
    Uninitialised(u64),
}

fn contains(from: u64, len: u64, byte: u64) -> bool {
    from <= byte && byte < from + len
}

impl<'a> Naive<'a> {
    fn new(domain: Domain, strict: bool, steps: &'a [Step], given: &[Named]) -> Self {
        let mut names = given.to_vec();
        for (at, step) in steps.iter().enumerate() {
            let (variable, range) = match step.act {
                Act::Variable(variable) => (variable, None),
                Act::Range(range) => (RANGES[range].0, Some(range)),
                _ => continue,
            };
            names.push(Named {
                since: at + 1,
                variable,
                range,
            });
        }
        let mut naive = Self {
            domain,
            strict,
            steps,
            names,
            sure: Vec::new(),
        };
        let lines = BYTES / naive.line_bytes() + 1;
        naive.sure = (0..steps.len())
            .map(|store| {
                (0..lines)
                    .map(|line| {
                        (0..=steps.len())
                            .map(|at| naive.is_sure_slowly(store, line, at))
                            .collect()
                    })
                    .collect()
            })
            .collect();
        naive
    }

    fn line_bytes(&self) -> u64 {
        match self.domain {
            Domain::PageCache => 512,
            _ => 64,
        }
    }

    fn stores_to(&self, at: usize, byte: u64) -> bool {
        matches!(self.steps[at].act, Act::Store(_, from, len) if contains(from, len, byte))
    }

    fn touches_line(&self, at: usize, line: u64) -> bool {
        let bytes = self.line_bytes();
        matches!(self.steps[at].act, Act::Store(_, from, len)
            if from < (line + 1) * bytes && from + len > line * bytes)
    }

    fn kind(&self, at: usize) -> Option<StoreKind> {
        match self.steps[at].act {
            Act::Store(kind, ..) => Some(kind),
            _ => None,
        }
    }

    /// Whether the step is a fence of its thread.
    fn is_fence(&self, at: usize) -> bool {
        matches!(
            self.steps[at].act,
            Act::Fence | Act::Sync(..) | Act::Store(StoreKind::Locked, ..)
        )
    }

    /// Whether a store to a line is guaranteed to be durable just before step `at`.
    fn is_sure(&self, store: usize, line: u64, at: usize) -> bool {
        self.sure[store][usize::try_from(line).unwrap()][at]
    }

    fn is_sure_slowly(&self, store: usize, line: u64, at: usize) -> bool {
        if store >= at {
            return false;
        }
        let kind = self.kind(store);
        if self.domain == Domain::Eadr && kind != Some(StoreKind::NonTemporal) {
            return true;
        }
        let start = line * self.line_bytes();
        // Some step that flushes the line, or stores to it past the cache, and a later fence of its thread.
        let fenced = |asked: usize| {
            let thread = self.steps[asked].thread;
            (asked + 1..at).any(|it| self.steps[it].thread == thread && self.is_fence(it))
        };
        let adr = self.domain == Domain::Adr;
        let streams = |it: usize| {
            self.kind(it) == Some(StoreKind::NonTemporal) && self.touches_line(it, line)
        };
        if self.domain != Domain::PageCache && (store..at).any(|it| streams(it) && fenced(it)) {
            return true;
        }
        (store + 1..at).any(|it| match self.steps[it].act {
            Act::Flush(FlushKind::Clflush, byte) => adr && byte / 64 == line,
            Act::Flush(_, byte) => adr && byte / 64 == line && fenced(it),
            Act::Sync(from, len) => from < start + self.line_bytes() && from + len > start,
            Act::Cut(len) => start >= len,
            Act::Store(kind, ..) => {
                self.domain == Domain::Eadr
                    && kind != StoreKind::NonTemporal
                    && self.touches_line(it, line)
            }
            _ => false,
        })
    }

    /// The last writer of a byte before step `at`, if the byte was not truncated since.
    fn writer(&self, byte: u64, at: usize) -> Option<usize> {
        let last = (0..at).rev().find(|it| self.stores_to(*it, byte))?;
        let cut = |it: usize| matches!(self.steps[it].act, Act::Cut(len) if byte >= len);
        (!(last..at).any(cut)).then_some(last)
    }

    fn is_durable(&self, writer: usize, byte: u64, at: usize) -> bool {
        self.is_sure(writer, byte / self.line_bytes(), at)
    }

    fn why(&self, writer: usize, byte: u64, at: usize) -> NotDurable {
        let line = byte / 64;
        // Everything stored to the line before a step is durable when its fence is complete.
        let all_durable = |it: usize| {
            (64 * line..64 * line + 64).all(|byte| match self.writer(byte, it) {
                None => true,
                Some(writer) => self.is_durable(writer, byte, it + 1),
            })
        };
        let flush = (0..at).rev().find(|it| {
            let of_line = matches!(self.steps[*it].act, Act::Flush(_, byte) if byte / 64 == line);
            self.domain == Domain::Adr && of_line && !(*it..at).any(all_durable)
        });
        let event = |at: usize| EventIndex(at as u64);
        match flush {
            Some(flush) if flush > writer => NotDurable::NotFenced {
                flush: event(flush),
            },
            _ if self.kind(writer) == Some(StoreKind::NonTemporal) => NotDurable::NotFenced {
                flush: event(writer),
            },
            Some(flush) => NotDurable::FlushedBefore {
                flush: event(flush),
            },
            None => NotDurable::NeverFlushed,
        }
    }

    /// Since when a variable is known before step `at`.
    fn known(&self, variable: usize, at: usize) -> Option<usize> {
        let names = self.names.iter();
        let of_it = names.filter(|it| it.variable == variable && it.since <= at);
        of_it.map(|it| it.since).min()
    }

    /// Whether a byte belongs to a variable that is known before step `at`.
    fn is_own(&self, byte: u64, at: usize) -> bool {
        (0..VARIABLES.len()).any(|it| {
            let (from, len) = VARIABLES[it];
            self.known(it, at).is_some() && contains(from, len, byte)
        })
    }

    /// The variable that decides about a byte.
    fn decides(&self, byte: u64, at: usize) -> Option<usize> {
        if self.is_own(byte, at) {
            return None;
        }
        let known: Vec<usize> = (0..VARIABLES.len())
            .filter(|it| self.known(*it, at).is_some())
            .collect();
        let mut ranges = self.names.iter().filter(|it| it.since <= at);
        match known[..] {
            [only] if ranges.clone().all(|it| it.range.is_none()) => Some(only),
            _ => ranges.find_map(|it| {
                let (variable, from, len) = RANGES[it.range?];
                contains(from, len, byte).then_some(variable)
            }),
        }
    }

    /// Whether a step stores to a known variable.
    fn commits(&self, at: usize, variable: usize) -> bool {
        let (first, bytes) = VARIABLES[variable];
        let known = self.known(variable, at).is_some();
        known
            && matches!(self.steps[at].act, Act::Store(_, from, len)
                if from < first + bytes && from + len > first)
    }

    /// Whether commit writes at step `at` or later differ from those before it.
    fn orders(&self, at: usize) -> bool {
        let fences = self.domain != Domain::PageCache;
        let is_plain = match self.steps[at].act {
            Act::Fence => return fences,
            Act::Sync(..) | Act::Library => return true,
            Act::Store(StoreKind::Locked, ..) if fences => return true,
            Act::Store(..) => !(0..VARIABLES.len()).any(|it| self.commits(at, it)),
            _ => false,
        };
        let lines = 0..=BYTES / self.line_bytes();
        let makes_durable = lines.into_iter().any(|line| {
            (0..at).any(|it| {
                self.touches_line(it, line)
                    && !self.is_sure(it, line, at)
                    && self.is_sure(it, line, at + 1)
            })
        });
        makes_durable || self.domain == Domain::Eadr && is_plain
    }

    /// The commit writes of a variable before step `at`, each with all its stores.
    fn commit_writes(&self, variable: usize, at: usize) -> Vec<Vec<usize>> {
        let mut writes: Vec<Vec<usize>> = Vec::new();
        let mut is_new = true;
        for it in 0..at {
            is_new |= self.orders(it);
            if self.commits(it, variable) {
                match writes.last_mut() {
                    Some(write) if !is_new => write.push(it),
                    _ => writes.push(vec![it]),
                }
                is_new = false;
            }
        }
        writes
    }

    /// The bytes that the transaction of a thread restores when a step begins.
    fn is_restored(&self, byte: u64, thread: u32, at: usize) -> bool {
        let mut is_restored = false;
        for step in self.steps[..at].iter().filter(|it| it.thread == thread) {
            match step.act {
                Act::Begin | Act::End => is_restored = false,
                Act::Add(value, from, len) => {
                    is_restored |= value == 0 && contains(from, len, byte);
                }
                Act::AllocateInside(_, from, len) => is_restored |= contains(from, len, byte),
                _ => {}
            }
        }
        is_restored
    }

    fn is_protected(&self, writer: usize, byte: u64, at: usize) -> bool {
        self.is_restored(byte, self.steps[writer].thread, writer)
            || self.steps[writer..at].iter().any(|step| match step.act {
                Act::Add(value, from, len) => value == 0 && contains(from, len, byte),
                Act::AllocateInside(_, from, len) => contains(from, len, byte),
                _ => false,
            })
    }

    /// Whether annotations known before step `at` exclude findings about a step.
    fn is_left_out(&self, step: usize, at: usize) -> bool {
        let said = |from: usize, to: usize, annotation: Annotation| {
            let steps = self.steps[from..to].iter();
            steps.filter(move |it| matches!(it.act, Act::Interest(said) if said == annotation))
        };
        let depth = |begin: Annotation, end: Annotation, thread: Option<u32>| {
            let steps = self.steps[..step].iter();
            let steps = steps.filter(|it| thread.is_none_or(|thread| it.thread == thread));
            steps.fold(0_u32, |depth, it| match it.act {
                Act::Interest(annotation) if annotation == begin => depth + 1,
                Act::Interest(annotation) if annotation == end => depth.saturating_sub(1),
                _ => depth,
            })
        };
        let has_regions = said(0, at, Annotation::InterestBegin).next().is_some();
        let thread = Some(self.steps[step].thread);
        said(0, step, Annotation::Complete).next().is_some()
            || has_regions && depth(Annotation::InterestBegin, Annotation::InterestEnd, None) == 0
            || depth(
                Annotation::SkipDetectionBegin,
                Annotation::SkipDetectionEnd,
                thread,
            ) > 0
    }

    /// The allocation since which a byte was not written.
    fn uninitialised(&self, byte: u64, at: usize) -> Option<usize> {
        let is_written = |value: u64| value & 3 != 0;
        let mut since = None;
        for it in 0..at {
            let step = &self.steps[it];
            match step.act {
                Act::Store(_, from, len) | Act::Free(from, len) if contains(from, len, byte) => {
                    since = None;
                }
                Act::Cut(len) if byte >= len => since = None,
                Act::Allocate(value, from, len) | Act::AllocateInside(value, from, len)
                    if contains(from, len, byte) =>
                {
                    since = (!is_written(value)).then_some(it);
                }
                Act::End => {
                    // The transaction's own allocations or frees, whichever did not take effect.
                    let begin = (0..it).rev().find(|before| {
                        let before = &self.steps[*before];
                        before.thread == step.thread && matches!(before.act, Act::Begin | Act::End)
                    });
                    let steps = &self.steps[begin.map_or(0, |begin| begin + 1)..it];
                    let own = || steps.iter().filter(|own| own.thread == step.thread);
                    let is_aborted = own().any(|own| matches!(own.act, Act::Abort));
                    let is_gone = own().any(|own| match own.act {
                        Act::AllocateInside(_, from, len) => {
                            is_aborted && contains(from, len, byte)
                        }
                        Act::FreeInside(from, len) => !is_aborted && contains(from, len, byte),
                        _ => false,
                    });
                    if is_gone {
                        since = None;
                    }
                }
                _ => {}
            }
        }
        since
    }

    fn expected(&self, byte: u64, at: usize) -> Expected {
        if let Some(allocation) = self.uninitialised(byte, at)
            && !self.is_left_out(allocation, at)
        {
            return Expected::Uninitialised(allocation as u64);
        }
        let Some(writer) = self.writer(byte, at) else {
            return Expected::Fine;
        };
        if self.is_own(byte, at) || self.is_left_out(writer, at) {
            return Expected::Fine;
        }
        if !self.is_durable(writer, byte, at) {
            return if self.strict {
                Expected::Race(writer as u64, self.why(writer, byte, at))
            } else {
                Expected::Fine
            };
        }
        // A byte for which no variable decided when it became durable is unmodified.
        let durable = (writer + 1..=at).filter(|it| self.is_durable(writer, byte, *it));
        let mut deciding = None;
        for moment in durable {
            deciding = self.decides(byte, moment);
            if deciding.is_none() {
                return Expected::Fine;
            }
        }
        let Some(variable) = deciding else {
            return Expected::Fine;
        };
        if self.is_protected(writer, byte, at) {
            return Expected::Fine;
        }
        let commits = self.commit_writes(variable, at);
        let mut backwards = commits.iter().rev();
        let Some(last) = backwards.next() else {
            return Expected::Uncommitted(writer as u64, None);
        };
        // A fence that is part of the commit write comes before its store.
        let waits_for_it = writer < last[0] && self.is_durable(writer, byte, last[0] + 1);
        if !waits_for_it {
            let early = (writer < last[0]).then_some(last[0] as u64);
            return Expected::Uncommitted(writer as u64, early);
        }
        let Some(before) = backwards.next() else {
            return Expected::Fine;
        };
        let (first, bytes) = VARIABLES[variable];
        let waited = before.iter().all(|&commit| {
            commit < writer
                && (first..first + bytes)
                    .filter(|byte| self.stores_to(commit, *byte))
                    .all(|byte| self.is_durable(commit, byte, writer + 1))
        });
        if waited {
            Expected::Fine
        } else {
            Expected::Stale(writer as u64, [before[0] as u64, last[0] as u64])
        }
    }
}

fn trace_of(steps: &[Step]) -> Trace {
    let mut script = Script::default();
    for step in steps {
        script.thread(step.thread);
        match step.act {
            Act::Store(kind, from, len) => {
                let bytes = vec![1; usize::try_from(len).unwrap()];
                script.store_as(kind, from, &bytes);
            }
            Act::Flush(kind, byte) => {
                script.flush_as(kind, byte);
            }
            Act::Fence => {
                script.pm(Event::Fence(FenceKind::Sfence));
            }
            Act::Sync(from, len) => {
                script.sync(from, len);
            }
            Act::Cut(len_bytes) => {
                let pool = PoolIndex(0);
                script.pm(Event::Resize { pool, len_bytes });
            }
            Act::Library => {
                script.mark(Annotation::LibraryEnter);
            }
            Act::Interest(annotation) => {
                script.mark(annotation);
            }
            Act::Variable(variable) => {
                script.mark_ranges(Annotation::CommitVariable, 0, &[VARIABLES[variable]]);
            }
            Act::Range(range) => {
                let (variable, from, len) = RANGES[range];
                let ranges = [VARIABLES[variable], (from, len)];
                script.mark_ranges(Annotation::CommitRange, 0, &ranges);
            }
            Act::Begin => {
                script.mark(Annotation::TransactionBegin);
            }
            Act::Add(value, from, len) => {
                script.mark_ranges(Annotation::TransactionAdd, value, &[(from, len)]);
            }
            Act::AllocateInside(value, from, len) => {
                script.mark_ranges(Annotation::TransactionAllocate, value, &[(from, len)]);
            }
            Act::FreeInside(from, len) => {
                script.mark_ranges(Annotation::TransactionFree, 0, &[(from, len)]);
            }
            Act::Abort => {
                script.mark(Annotation::TransactionAbort);
            }
            Act::End => {
                script.mark(Annotation::TransactionEnd);
            }
            Act::Allocate(value, from, len) => {
                script.mark_ranges(Annotation::Allocate, value, &[(from, len)]);
            }
            Act::Free(from, len) => {
                script.mark_ranges(Annotation::Free, 0, &[(from, len)]);
            }
        }
    }
    script.trace()
}

fn acts() -> impl Strategy<Value = Act> {
    let kind = prop_oneof![
        4 => Just(StoreKind::Plain),
        1 => Just(StoreKind::NonTemporal),
        1 => Just(StoreKind::Locked),
        1 => Just(StoreKind::System),
    ];
    let flush = prop_oneof![
        3 => Just(FlushKind::Clwb),
        1 => Just(FlushKind::Clflushopt),
        1 => Just(FlushKind::Clflush),
    ];
    let range = || (0..BYTES - 16, 1..=16_u64);
    let value = 0..4_u64;
    prop_oneof![
        8 => (kind, range()).prop_map(|(kind, (from, len))| Act::Store(kind, from, len)),
        4 => (0..VARIABLES.len(), any::<bool>()).prop_map(|(variable, is_whole)| {
            let (from, len) = VARIABLES[variable];
            Act::Store(StoreKind::Plain, from, if is_whole { len } else { 4 })
        }),
        8 => (flush, 0..BYTES).prop_map(|(kind, byte)| Act::Flush(kind, byte)),
        6 => Just(Act::Fence),
        1 => range().prop_map(|(from, len)| Act::Sync(from, len)),
        1 => (64..BYTES).prop_map(Act::Cut),
        1 => Just(Act::Library),
        1 => prop::sample::select(&INTEREST[..]).prop_map(Act::Interest),
        1 => (0..VARIABLES.len()).prop_map(Act::Variable),
        1 => (0..RANGES.len()).prop_map(Act::Range),
        1 => Just(Act::Begin),
        1 => (0..2_u64, range()).prop_map(|(value, (from, len))| Act::Add(value, from, len)),
        1 => (value.clone(), range())
            .prop_map(|(value, (from, len))| Act::AllocateInside(value, from, len)),
        1 => range().prop_map(|(from, len)| Act::FreeInside(from, len)),
        1 => Just(Act::Abort),
        1 => Just(Act::End),
        1 => (value, range()).prop_map(|(value, (from, len))| Act::Allocate(value, from, len)),
        1 => range().prop_map(|(from, len)| Act::Free(from, len)),
    ]
}

fn scripts() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..3_u32, acts()).prop_map(|(thread, act)| Step { thread, act });
    prop::collection::vec(step, 1..32).prop_map(|steps| {
        // Stores end at the end of a pool: after a truncation it is extended to the previous length.
        let with_growth = steps.into_iter().flat_map(|step| {
            let grow = matches!(step.act, Act::Cut(_)).then(|| Step {
                thread: step.thread,
                act: Act::Cut(POOL_BYTES),
            });
            std::iter::once(step).chain(grow)
        });
        with_growth.collect()
    })
}

fn domains() -> impl Strategy<Value = Domain> {
    prop_oneof![
        3 => Just(Domain::Adr),
        1 => Just(Domain::Eadr),
        1 => Just(Domain::PageCache),
    ]
}

/// Calls `at` before each record, and after the last one.
fn follow(
    trace: &Trace,
    shadow: &mut Shadow,
    mut at: impl FnMut(&Shadow, usize, Option<&Record<'_>>),
) {
    let mut records = trace.records_from(EventIndex(0));
    let mut position = 0;
    while let Some(record) = records.next_record().expect("the trace is good") {
        at(shadow, position, Some(&record));
        shadow.apply(&record).expect("no ranges overlap");
        position += 1;
    }
    at(shadow, position, None);
}

/// The shadow's result for each byte, obtained by judging whole lines.
fn judged(shadow: &Shadow) -> Vec<Expected> {
    let lines = BYTES.div_ceil(64);
    let mut bytes = vec![Expected::Fine; usize::try_from(64 * lines).unwrap()];
    for line in 0..lines {
        for judgement in shadow.judge(PoolIndex(0), PoolOffset(64 * line), u64::MAX) {
            let meaning = match judgement {
                Judgement::Race { writer, why, .. } => Expected::Race(writer.0, why),
                Judgement::Uncommitted { writer, commit, .. } => {
                    Expected::Uncommitted(writer.0, commit.map(|commit| commit.0))
                }
                Judgement::Stale {
                    writer, commits, ..
                } => Expected::Stale(writer.0, commits.map(|commit| commit.0)),
                Judgement::Uninitialised { allocation, .. } => {
                    Expected::Uninitialised(allocation.0)
                }
            };
            for bit in 0..64 {
                if judgement.bytes() >> bit & 1 == 1 {
                    let byte = &mut bytes[usize::try_from(64 * line + bit).unwrap()];
                    assert_eq!(*byte, Expected::Fine, "judged twice");
                    *byte = meaning;
                }
            }
        }
    }
    bytes
}

fn rules(domain: Domain) -> Rules {
    Rules {
        domain,
        ..Rules::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_shadow_is_what_the_rules_say(
        steps in scripts(),
        domain in domains(),
        strict in any::<bool>(),
        given in 0..3_usize,
    ) {
        // None, a variable that decides about everything, or one with a range.
        let names = [
            Named { since: 0, variable: 0, range: None },
            Named { since: 0, variable: 0, range: Some(0) },
        ];
        let range = |(from, len)| PoolRange {
            pool: PoolIndex(0),
            offset: PoolOffset(from),
            len,
        };
        let (_, from, len) = RANGES[0];
        let variable = CommitVariable {
            at: range(VARIABLES[0]),
            ranges: if given == 2 { vec![range((from, len))] } else { vec![] },
        };
        let options = ShadowOptions {
            rules: rules(domain),
            strict,
            commit_variables: if given == 0 { vec![] } else { vec![variable] },
        };
        let naive = Naive::new(domain, strict, &steps, &names[..given]);
        let trace = trace_of(&steps);
        let mut shadow = Shadow::new(&trace, &options).expect("no ranges overlap");
        follow(&trace, &mut shadow, |shadow, at, _| {
            let judged = judged(shadow);
            for byte in 0..BYTES {
                let found = judged[usize::try_from(byte).unwrap()];
                assert_eq!(found, naive.expected(byte, at), "byte {byte} before step {at}");
                let expected = match naive.writer(byte, at) {
                    Some(writer) if !naive.is_durable(writer, byte, at) => {
                        match naive.why(writer, byte, at) {
                            NotDurable::NotFenced { .. } => Persistence::WritebackPending,
                            _ => Persistence::Modified,
                        }
                    }
                    _ => Persistence::Settled,
                };
                let found = shadow.persistence(PoolIndex(0), PoolOffset(byte));
                assert_eq!(found, expected, "byte {byte} before step {at}");
                let is_own = shadow.is_commit_variable(PoolIndex(0), PoolOffset(byte), 1);
                assert_eq!(is_own, naive.is_own(byte, at));
            }
            // The watched lines are those that would be judged, in order and each once.
            let watches = shadow.watches();
            assert!(watches.is_sorted_by_key(|watch| watch.offset), "{watches:?}");
            let mut bytes = vec![false; judged.len()];
            for watch in &watches {
                for bit in (0..64).filter(|bit| watch.bytes >> bit & 1 == 1) {
                    let byte = &mut bytes[usize::try_from(watch.offset.0 + bit).unwrap()];
                    assert!(!*byte, "watched twice");
                    *byte = true;
                }
            }
            let wanted: Vec<bool> = judged.iter().map(|it| *it != Expected::Fine).collect();
            assert_eq!(bytes, wanted, "before step {at}");
        });
    }

    #[test]
    fn what_is_not_durable_is_what_is_open_in_the_model(
        steps in scripts(),
        domain in domains(),
    ) {
        let options = ShadowOptions {
            rules: rules(domain),
            ..ShadowOptions::default()
        };
        let trace = trace_of(&steps);
        let mut shadow = Shadow::new(&trace, &options).expect("no ranges overlap");
        let mut frontier = Frontier::new(rules(domain), SparseImage::new());
        let line_bytes = domain.line_bytes() as u64;
        follow(&trace, &mut shadow, |shadow, at, record| {
            for byte in 0..BYTES {
                let line = LineId {
                    pool: PoolIndex(0),
                    line: LineIndex(byte / line_bytes),
                };
                let writer = frontier.open_line(line).and_then(|line| {
                    let in_line = usize::try_from(byte % line_bytes).unwrap();
                    let holds = |from: usize, len: usize| (from..from + len).contains(&in_line);
                    let stores = line.stores();
                    stores
                        .filter(|store| holds(store.offset_in_line, store.bytes.len()))
                        .last()
                        .map(|store| store.event)
                });
                let found = shadow.why_not_durable(PoolIndex(0), PoolOffset(byte), 1);
                let found = found.map(|(writer, _)| writer);
                assert_eq!(found, writer, "byte {byte} before step {at}");
            }
            if let Some(step) = record.and_then(Record::step) {
                frontier.apply(&step);
            }
        });
    }
}
