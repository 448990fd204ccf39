//! Robustness, as in `PSan`: could all that recovery read have been read after a crash of a machine that
//! keeps everything in the order of the program?
//!
//! On such a machine a crash at a moment leaves every line as it was at that moment. So an execution is
//! robust if there is one moment of the run at which every line that was read had one of the contents that
//! are still possible for it. If there is none, a store was seen and an earlier one was not: a flush
//! and a fence are missing between them, whether or not recovery notices.
//!
//! With nested failures there is a moment for each run: that of the recorded run at which the power failed
//! first, that of the first recovery at which it failed next, and so on.
//!
//! Deviations from the paper:
//!
//! 1. It asks which store a load has read from; here stores of equal bytes are not told apart. A finding
//!    that only the identity of equal values would explain is not one.
//! 2. A store that does not become durable as a whole, because it crosses lines or is longer than what
//!    the hardware writes in one piece, is torn on any machine: no flush could prevent it. So the
//!    *middle* of a store is a moment, too.
//! 3. Only lines are looked at from which recovery had a choice. That it read a line that was surely
//!    durable is not known; but before the fence that made it so, the same line was open, and the crash
//!    there shows the same pair of stores.

use powerfail_model::{EventIndex, LineId};

use crate::lazy::table::CrashLine;

/// A moment of a run: before, or in the middle of, an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Before the first event.
    pub const START: Self = Self(0);

    /// Just before an event.
    pub const fn before(event: EventIndex) -> Self {
        Self(event.0 * 2)
    }

    /// In the middle of an event.
    pub const fn during(event: EventIndex) -> Self {
        Self(event.0 * 2 + 1)
    }

    /// The event that follows or is going on.
    pub const fn event(self) -> EventIndex {
        EventIndex(self.0 / 2)
    }
}

/// From a moment to another one, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first moment.
    pub first: Moment,
    /// The last moment.
    pub last: Moment,
}

impl Span {
    /// All of a run.
    pub const ALL: Self = Self {
        first: Moment::START,
        last: Moment(u64::MAX),
    };

    const fn contains(&self, moment: Moment) -> bool {
        self.first.0 <= moment.0 && moment.0 <= self.last.0
    }
}

/// A line that was read, and when it had what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadLine {
    /// Which line.
    pub id: LineId,
    /// Each entry is one explanation: a span for each run, the recorded one first. Where a run has
    /// no span, its moment does not matter.
    pub explained: Vec<Vec<Span>>,
}

impl ReadLine {
    /// An open line of which some contents are still possible. `since` is the newest store that its
    /// durable floor owes the bytes that were read, if it is known; the power failed before `crash`.
    pub fn open(
        line: &CrashLine,
        possible: impl IntoIterator<Item = usize>,
        since: Option<EventIndex>,
        crash: EventIndex,
    ) -> Self {
        let versions = possible
            .into_iter()
            .flat_map(|content| line.contents[content].versions.iter().copied());
        let spans = versions.map(|version| version_span(&line.stores, version, since, crash));
        Self {
            id: line.id,
            explained: merged(spans).into_iter().map(|span| vec![span]).collect(),
        }
    }

    /// A line that was surely durable: it held what `since` had stored.
    pub fn durable(id: LineId, since: EventIndex, crash: EventIndex) -> Self {
        let span = Span {
            first: Moment::during(since),
            last: Moment::before(crash),
        };
        Self {
            id,
            explained: vec![vec![span]],
        }
    }
}

/// When a line had a version. `stores` are those that made each version from the one before.
pub(crate) fn version_span(
    stores: &[EventIndex],
    version: usize,
    since: Option<EventIndex>,
    crash: EventIndex,
) -> Span {
    let made = match version.checked_sub(1) {
        Some(store) => stores.get(store).copied(),
        None => since,
    };
    let ended = stores.get(version);
    Span {
        first: made.map_or(Moment::START, Moment::during),
        last: ended.map_or(Moment::before(crash), |event| Moment::during(*event)),
    }
}

/// Spans in ascending order, those that touch or overlap made one.
pub(crate) fn merged(spans: impl IntoIterator<Item = Span>) -> Vec<Span> {
    let mut spans: Vec<Span> = spans.into_iter().collect();
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.first <= last.last => last.last = last.last.max(span.last),
            _ => merged.push(span),
        }
    }
    merged
}

/// A store of one of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunStore {
    /// Which run: 0 is the recorded one, 1 the first recovery.
    pub run: usize,
    /// The event of it.
    pub event: EventIndex,
    /// The line that it stored to.
    pub line: LineId,
}

/// No moment explains what was read. A flush of the lost store's line behind it, and a fence before the
/// seen store, would have kept them in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unexplained {
    /// The later store, whose effect was read.
    pub seen: RunStore,
    /// The earlier store, without whose effect its line was read.
    pub lost: RunStore,
    /// Further lines without which there would be a moment: with contents that come and go, it can take
    /// more than two lines to exclude all of them.
    pub with: Vec<LineId>,
}

/// The moments, one for each run, that explain what was read; or two stores that exclude each other, of
/// all such pairs the closest.
pub fn robust(lines: &[ReadLine]) -> Result<Vec<Moment>, Box<Unexplained>> {
    let all: Vec<&ReadLine> = lines.iter().collect();
    common(&all).ok_or_else(|| Box::new(closest(&all)))
}

/// How many runs the explanations of these lines speak of.
fn run_count(lines: &[&ReadLine]) -> usize {
    let boxes = lines.iter().flat_map(|line| &line.explained);
    boxes.map(Vec::len).max().unwrap_or(0)
}

fn span(spans: &[Span], run: usize) -> Span {
    spans.get(run).copied().unwrap_or(Span::ALL)
}

fn common(lines: &[&ReadLine]) -> Option<Vec<Moment>> {
    let boxes: Vec<Vec<&[Span]>> = lines
        .iter()
        .map(|line| line.explained.iter().map(Vec::as_slice).collect())
        .collect();
    let mut moments = Vec::new();
    search(&boxes, run_count(lines), &mut moments).then_some(moments)
}

/// Finds moments for the runs from `moments.len()` on, given those before.
fn search(lines: &[Vec<&[Span]>], runs: usize, moments: &mut Vec<Moment>) -> bool {
    let run = moments.len();
    if run == runs {
        return lines.iter().all(|boxes| !boxes.is_empty());
    }
    let spans = lines
        .iter()
        .map(|boxes| merged(boxes.iter().map(|spans| span(spans, run))));
    let spans: Vec<Vec<Span>> = spans.collect();
    let mut from = Moment::START;
    // A set of spans has a common moment if and only if it has one where a span of it begins. So after
    // a moment that does not do, the next one to try is where another span begins.
    while let Some(moment) = leap(&spans, from) {
        moments.push(moment);
        let rest: Vec<Vec<&[Span]>> = lines
            .iter()
            .map(|boxes| {
                let here = boxes
                    .iter()
                    .filter(|spans| span(spans, run).contains(moment));
                here.copied().collect()
            })
            .collect();
        if search(&rest, runs, moments) {
            return true;
        }
        moments.pop();
        let begins = lines.iter().flatten().map(|spans| span(spans, run).first);
        match begins.filter(|begin| *begin > moment).min() {
            Some(next) => from = next,
            None => return false,
        }
    }
    false
}

/// The first moment from `from` on that lies in a span of every line.
fn leap(lines: &[Vec<Span>], from: Moment) -> Option<Moment> {
    let mut moment = from;
    loop {
        let mut next = moment;
        for spans in lines {
            let at = spans.partition_point(|span| span.last < next);
            next = next.max(spans.get(at)?.first);
        }
        if next == moment {
            return Some(moment);
        }
        moment = next;
    }
}

/// Two spans that exclude each other: how far they are apart, which is the later, and in which run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Gap {
    distance: u64,
    run: usize,
    seen: Moment,
    lost: Moment,
    /// Whether the later span is that of the first line.
    first_is_seen: bool,
}

/// Whether two lines have no moment in common, and the smallest gap between explanations of theirs.
fn gap(one: &ReadLine, other: &ReadLine) -> (bool, Option<Gap>) {
    let mut excluded = true;
    let mut smallest: Option<Gap> = None;
    for spans in &one.explained {
        for others in &other.explained {
            let runs = spans.len().min(others.len());
            let gaps = (0..runs).filter_map(|run| gap_of_spans(run, spans[run], others[run]));
            match gaps.min() {
                Some(gap) => smallest = Some(smallest.map_or(gap, |old| old.min(gap))),
                None => excluded = false,
            }
        }
    }
    (excluded, smallest)
}

fn gap_of_spans(run: usize, one: Span, other: Span) -> Option<Gap> {
    let (later, earlier, first_is_seen) = if one.first > other.last {
        (one, other, true)
    } else if other.first > one.last {
        (other, one, false)
    } else {
        return None;
    };
    Some(Gap {
        distance: later.first.0 - earlier.last.0,
        run,
        seen: later.first,
        lost: earlier.last,
        first_is_seen,
    })
}

fn closest(lines: &[&ReadLine]) -> Unexplained {
    let pairs = || (0..lines.len()).flat_map(|one| (one + 1..lines.len()).map(move |o| (one, o)));
    let exclusive = pairs().filter_map(|(one, other)| match gap(lines[one], lines[other]) {
        (true, Some(gap)) => Some((gap, one, other)),
        _ => None,
    });
    if let Some((gap, one, other)) = exclusive.min() {
        return unexplained(gap, lines[one], lines[other], Vec::new());
    }
    // No two lines do. Leave out lines as long as the others have no common moment.
    let mut core: Vec<&ReadLine> = lines.to_vec();
    let mut at = 0;
    while at < core.len() {
        let mut fewer = core.clone();
        fewer.remove(at);
        if common(&fewer).is_none() {
            core = fewer;
        } else {
            at += 1;
        }
    }
    let pairs = (0..core.len()).flat_map(|one| (one + 1..core.len()).map(move |o| (one, o)));
    let nearest = pairs
        .filter_map(|(one, other)| Some((gap(core[one], core[other]).1?, one, other)))
        .min();
    match nearest {
        Some((gap, one, other)) => {
            let with = (0..core.len()).filter(|at| *at != one && *at != other);
            let with = with.map(|at| core[at].id).collect();
            unexplained(gap, core[one], core[other], with)
        }
        // A line without any explanation: it excludes itself.
        None => {
            let line = core.first().map(|line| line.id).unwrap_or_default();
            let store = RunStore {
                run: 0,
                event: EventIndex(0),
                line,
            };
            Unexplained {
                seen: store,
                lost: store,
                with: Vec::new(),
            }
        }
    }
}

fn unexplained(gap: Gap, one: &ReadLine, other: &ReadLine, with: Vec<LineId>) -> Unexplained {
    let (seen, lost) = if gap.first_is_seen {
        (one, other)
    } else {
        (other, one)
    };
    let store = |moment: Moment, line: &ReadLine| RunStore {
        run: gap.run,
        event: moment.event(),
        line: line.id,
    };
    Unexplained {
        seen: store(gap.seen, seen),
        lost: store(gap.lost, lost),
        with,
    }
}
