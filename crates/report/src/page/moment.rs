//! Pictures of the moment of failure: the lines that matter to a finding, and what happens to them before it.
//!
//! The lines are those that the finding names. One pass over the trace collects the events on them, for all findings
//! of the trace. A long history keeps its beginning, its end and what the finding names; the rest is counted.

use std::collections::{BTreeMap, VecDeque};

use powerfail_finding::{Evidence, Finding, Role, SourcePlace};
use powerfail_model::{
    Event, EventIndex, FailurePoints, FenceKind, FlushKind, Frontier, LineId, LineIndex, PoolIndex,
    Rules, Step, StoreKind,
};
use powerfail_symbol::Symbolizer;
use powerfail_trace::{Body, Record, StackId, Trace, TraceError};

use super::model::{MarkOnRows, Moment, Outcome, ReadOfRow, Row};
use super::timeline::Events;
use crate::own_place::own_place;
use crate::text::plural;

/// Rows of one picture.
pub(super) const ROWS_MAX: usize = 16;
/// Events that are kept of the beginning of a picture, and of its end.
pub(super) const FIRST_MARKS: usize = 24;
pub(super) const LAST_MARKS: usize = 56;
/// How far a picture goes beyond what the finding names.
const EVENTS_BEFORE: u64 = 48;
const EVENTS_AFTER: u64 = 24;
/// Bytes of a store that are shown.
const BYTES_SHOWN: usize = 8;

/// The pictures of all findings of one trace.
pub(super) struct Moments<'f> {
    pictures: Vec<Picture<'f>>,
    /// Which rows of which pictures a line is.
    lines: BTreeMap<LineId, Vec<(usize, usize)>>,
    /// Where the power fails: the pictures, by event.
    failures: BTreeMap<u64, Vec<usize>>,
}

struct Picture<'f> {
    finding: &'f Finding,
    line_bytes: u64,
    rows: Vec<Row>,
    ids: Vec<LineId>,
    rows_left_out: usize,
    /// The first and the last event that are shown.
    window: (u64, u64),
    failure: Option<u64>,
    /// Events that the finding names.
    named: Vec<u64>,
    first: Vec<(MarkOnRows, StackId)>,
    last: VecDeque<(MarkOnRows, StackId)>,
    kept: Vec<(MarkOnRows, StackId)>,
    left_out: u64,
}

impl<'f> Moments<'f> {
    pub(super) fn new(
        trace: &Trace,
        rules: Rules,
        findings: &[&'f Finding],
    ) -> Result<Self, TraceError> {
        let mut moments = Self {
            pictures: Vec::new(),
            lines: BTreeMap::new(),
            failures: BTreeMap::new(),
        };
        for finding in findings {
            let picture = Picture::new(trace, rules, finding)?;
            let number = moments.pictures.len();
            for (row, id) in picture.ids.iter().enumerate() {
                moments.lines.entry(*id).or_default().push((number, row));
            }
            if let Some(failure) = picture.failure {
                moments.failures.entry(failure).or_default().push(number);
            }
            moments.pictures.push(picture);
        }
        Ok(moments)
    }

    /// What the rows are when the power fails just before an event.
    fn fail(&mut self, frontier: &Frontier<()>, event: u64) {
        let Some(numbers) = self.failures.remove(&event) else {
            return;
        };
        for number in numbers {
            let picture = &mut self.pictures[number];
            let evidence = picture.finding.evidence.as_ref();
            let lost = evidence.map_or(&[][..], |it| &it.failure.lost_lines);
            let line_bytes = frontier.rules().domain.line_bytes() as u64;
            for (row, id) in picture.rows.iter_mut().zip(&picture.ids) {
                let open = frontier
                    .open_line(*id)
                    .map_or(0, |line| line.stores().len());
                let lost = lost.iter().find(|lost| {
                    lost.pool == id.pool.0 && lost.pool_offset / line_bytes == id.line.0
                });
                row.open = open;
                row.kept = lost.map_or(open, |lost| lost.version.min(open));
                row.outcome = match (lost, open) {
                    (Some(_), _) => Outcome::Lost,
                    (None, 0) => Outcome::Durable,
                    (None, _) => Outcome::Survives,
                };
            }
        }
    }

    /// Adds an event to the pictures that it belongs to. `touched` are its own lines, `risen` those of which it makes
    /// stores durable.
    fn add(
        &mut self,
        record: &Record<'_>,
        step: &Step<'_>,
        touched: &[LineId],
        risen: &[LineId],
        frontier: &Frontier<()>,
    ) {
        let event = step.index.0;
        let mut marks: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for id in touched.iter().chain(risen) {
            let Some(rows) = self.lines.get(id) else {
                continue;
            };
            let open = frontier
                .open_line(*id)
                .map_or(0, |line| line.stores().len());
            for (picture, row) in rows {
                let (first, last) = self.pictures[*picture].window;
                let rows = marks.entry(*picture).or_default();
                if (first..=last).contains(&event) && !rows.iter().any(|(known, _)| known == row) {
                    rows.push((*row, open));
                }
            }
        }
        for (picture, rows) in marks {
            if rows.is_empty() {
                continue;
            }
            let mark = MarkOnRows {
                event,
                kind: kind_of(&step.event),
                shape: shape_of(&step.event),
                thread: step.thread.0,
                rows,
                place: String::new(),
                text: text_of(&step.event),
            };
            self.pictures[picture].push(mark, record.stack);
        }
    }

    /// The pictures, with the places of their events.
    pub(super) fn finish(self, trace: &Trace) -> Vec<Option<Moment<'f>>> {
        let mut symbolizer = Symbolizer::of(trace);
        let mut places: BTreeMap<u32, String> = BTreeMap::new();
        let pictures = self.pictures.into_iter();
        pictures
            .map(|picture| {
                let reads = picture.reads();
                let Picture {
                    rows,
                    rows_left_out,
                    first,
                    last,
                    kept,
                    left_out,
                    failure,
                    ..
                } = picture;
                if rows.is_empty() {
                    return None;
                }
                let all = first.into_iter().chain(kept).chain(last);
                let mut marks: Vec<MarkOnRows> = all
                    .map(|(mut mark, stack)| {
                        let name = || own_place(trace, &mut symbolizer, stack).unwrap_or_default();
                        mark.place
                            .clone_from(places.entry(stack.0).or_insert_with(name));
                        mark
                    })
                    .collect();
                marks.sort_by_key(|mark| mark.event);
                marks.dedup_by_key(|mark| mark.event);
                Some(Moment {
                    of: "lines",
                    rows,
                    rows_left_out,
                    marks,
                    marks_left_out: left_out,
                    failure,
                    reads,
                })
            })
            .collect()
    }
}

/// One pass over a trace, for pictures and for the trace as a whole.
pub(super) fn pass(
    trace: &Trace,
    rules: Rules,
    moments: &mut Moments<'_>,
    mut events: Option<&mut Events>,
) -> Result<(), TraceError> {
    let mut frontier = Frontier::new(rules, ());
    let mut records = trace.records_from(EventIndex(0));
    let (mut touched, mut risen) = (Vec::new(), Vec::new());
    while let Some(record) = records.next_record()? {
        moments.fail(&frontier, record.index.0);
        let Some(step) = record.step() else { continue };
        if let Some(events) = &mut events {
            events.before(&frontier, &step);
        }
        risen.clear();
        frontier.apply_and(&step, |line, _| risen.push(line));
        if let Some(events) = &mut events {
            events.after(&frontier, &step);
        }
        if moments.lines.is_empty() {
            continue;
        }
        touched.clear();
        lines_of(&step.event, rules, &mut touched);
        let is_ours = |id: &LineId| moments.lines.contains_key(id);
        if touched.iter().any(is_ours) || risen.iter().any(is_ours) {
            moments.add(&record, &step, &touched, &risen, &frontier);
        }
    }
    let end = trace.event_count();
    moments.fail(&frontier, end);
    if let Some(events) = events
        && frontier.is_failure_point_at_end(FailurePoints::Covering)
    {
        events.moment(&frontier, end);
    }
    Ok(())
}

/// The lines that an event stores to or flushes. A sync is shown where it makes something durable.
fn lines_of(event: &Event<'_>, rules: Rules, to: &mut Vec<LineId>) {
    let (pool, first, len) = match *event {
        Event::Store { at, bytes, .. } => (at.pool, at.offset.0, bytes.len() as u64),
        Event::Flush { at, .. } => (at.pool, at.offset.0, 1),
        Event::Fence(_) | Event::Sync { .. } | Event::Resize { .. } => return,
    };
    to.extend(lines_in(pool, first, len, rules).take(ROWS_MAX * 64));
}

fn lines_in(pool: PoolIndex, first: u64, len: u64, rules: Rules) -> impl Iterator<Item = LineId> {
    let line_bytes = rules.domain.line_bytes() as u64;
    let last = first.saturating_add(len.max(1) - 1) / line_bytes;
    (first / line_bytes..=last).map(move |line| LineId {
        pool,
        line: LineIndex(line),
    })
}

const fn kind_of(event: &Event<'_>) -> &'static str {
    match event {
        Event::Store { kind, .. } => match kind {
            StoreKind::Plain => "store",
            StoreKind::NonTemporal => "non-temporal store",
            StoreKind::Locked => "locked store",
            StoreKind::System => "write by the kernel",
        },
        Event::Flush { kind, .. } => match kind {
            FlushKind::Clflush => "clflush",
            FlushKind::Clflushopt => "clflushopt",
            FlushKind::Clwb => "clwb",
        },
        Event::Fence(kind) => match kind {
            FenceKind::Sfence => "sfence",
            FenceKind::Mfence => "mfence",
            FenceKind::Locked => "locked operation",
        },
        Event::Sync { .. } => "msync",
        Event::Resize { .. } => "resize",
    }
}

const fn shape_of(event: &Event<'_>) -> &'static str {
    match event {
        Event::Store { .. } => "store",
        Event::Flush { .. } => "flush",
        Event::Fence(_) | Event::Sync { .. } | Event::Resize { .. } => "fence",
    }
}

fn text_of(event: &Event<'_>) -> String {
    match *event {
        Event::Store { at, bytes, .. } => {
            let shown = powerfail_finding::hex(&bytes[..bytes.len().min(BYTES_SHOWN)]);
            let more = if bytes.len() > BYTES_SHOWN { "…" } else { "" };
            let len = plural(bytes.len() as u64, "byte");
            format!("{len} at {:#x}: {shown}{more}", at.offset.0)
        }
        Event::Flush { at, .. } => format!("line of {:#x}", at.offset.0),
        _ => String::new(),
    }
}

impl<'f> Picture<'f> {
    fn new(trace: &Trace, rules: Rules, finding: &'f Finding) -> Result<Self, TraceError> {
        let evidence = finding.evidence.as_ref();
        let read = finding.read.as_ref();
        let failure = evidence
            .map(|it| it.failure.event)
            .or(read.map(|it| it.event));
        let line_bytes = rules.domain.line_bytes() as u64;
        let mut picture = Self {
            finding,
            line_bytes,
            rows: Vec::new(),
            ids: Vec::new(),
            rows_left_out: 0,
            window: (0, 0),
            failure,
            named: Vec::new(),
            first: Vec::new(),
            last: VecDeque::new(),
            kept: Vec::new(),
            left_out: 0,
        };
        for lost in evidence.map_or(&[][..], |it| &it.failure.lost_lines) {
            let line = LineIndex(lost.pool_offset / line_bytes);
            let pool = PoolIndex(lost.pool);
            picture.row(LineId { pool, line }, rules);
        }
        let mut named: Vec<u64> = Vec::new();
        for place in picture.named_places() {
            let Some(event) = place.event else { continue };
            named.push(event);
            let mut records = trace.records_from(EventIndex(event));
            if let Some(record) = records.next_record()?
                && let Body::Pm(event) = record.body
            {
                let mut lines = Vec::new();
                lines_of(&event, rules, &mut lines);
                for line in lines {
                    picture.row(line, rules);
                }
            }
        }
        // What recovery reads may be elsewhere.
        let loads = evidence.map_or(&[][..], |it| &it.choices);
        for load in loads.iter().map(|it| &it.load).chain(&finding.places) {
            if let Some(offset) = load.pool_offset.filter(|_| load.role == Role::Load) {
                let pool = pool_of(trace, load);
                picture.row(
                    LineId {
                        pool,
                        line: LineIndex(offset / line_bytes),
                    },
                    rules,
                );
            }
        }
        named.sort_unstable();
        named.dedup();
        let ends = || named.iter().copied().chain(failure);
        let first = ends().min().unwrap_or(0);
        let last = ends().max().unwrap_or(0);
        picture.window = (
            first.saturating_sub(EVENTS_BEFORE),
            last.saturating_add(EVENTS_AFTER),
        );
        picture.named = named;
        Ok(picture)
    }

    /// The places of the finding, and the stores that recovery could read from.
    fn named_places(&self) -> Vec<&'f SourcePlace> {
        let evidence: Option<&'f Evidence> = self.finding.evidence.as_ref();
        let choices = evidence.map_or(&[][..], |it| &it.choices);
        let sources = choices.iter().flat_map(|choice| &choice.sources);
        let sources = sources.filter_map(|source| source.store.as_ref());
        self.finding.places.iter().chain(sources).collect()
    }

    fn row(&mut self, id: LineId, rules: Rules) {
        if self.ids.contains(&id) {
            return;
        }
        if self.ids.len() == ROWS_MAX {
            self.rows_left_out += 1;
            return;
        }
        let offset = id.line.0 * rules.domain.line_bytes() as u64;
        let pool = match id.pool.0 {
            0 => String::new(),
            other => format!("pool {other} "),
        };
        self.ids.push(id);
        self.rows.push(Row {
            label: format!("{pool}{offset:#x}"),
            outcome: Outcome::Durable,
            open: 0,
            kept: 0,
        });
    }

    fn push(&mut self, mark: MarkOnRows, stack: StackId) {
        if self.named.binary_search(&mark.event).is_ok() {
            self.kept.push((mark, stack));
        } else if self.first.len() < FIRST_MARKS {
            self.first.push((mark, stack));
        } else {
            // The end of a picture is that before the failure: what follows is only added while there is room.
            let is_after = self.failure.is_some_and(|failure| mark.event >= failure);
            if is_after && self.last.len() >= LAST_MARKS {
                self.left_out += 1;
                return;
            }
            self.last.push_back((mark, stack));
            if self.last.len() > LAST_MARKS {
                self.last.pop_front();
                self.left_out += 1;
            }
        }
    }

    /// What recovery reads after the failure, joined to the stores that it sees.
    fn reads(&self) -> Vec<ReadOfRow<'f>> {
        let evidence: Option<&'f Evidence> = self.finding.evidence.as_ref();
        let mut reads = Vec::new();
        for choice in evidence.map_or(&[][..], |it| &it.choices) {
            let taken = choice.sources.iter().find(|source| source.taken);
            let store = taken.and_then(|source| source.store.as_ref());
            let saw = store.and_then(|store| store.event);
            let Some(row) = self.row_of(&choice.load, saw) else {
                continue;
            };
            reads.push(ReadOfRow {
                row,
                place: words(&choice.load),
                bytes: taken.map_or("", |source| &source.bytes),
                saw,
                saw_floor: taken.is_some() && store.is_none(),
                decisive: choice.decisive,
            });
        }
        if let Some(read) = &self.finding.read
            && let Some(load) = self.finding.places.iter().find(|it| it.role == Role::Load)
        {
            let store = self.finding.places.iter().find(|it| it.role == Role::Store);
            let saw = store.and_then(|store| store.event);
            let saw = saw.filter(|event| *event < read.event);
            if let Some(row) = self.row_of(load, saw) {
                reads.push(ReadOfRow {
                    row,
                    place: words(load),
                    bytes: &read.bytes,
                    saw,
                    saw_floor: false,
                    decisive: false,
                });
            }
        }
        reads
    }

    /// The row of a load: by its offset, or that of the store that it sees.
    fn row_of(&self, load: &SourcePlace, saw: Option<u64>) -> Option<usize> {
        let by_offset = load.pool_offset.and_then(|offset| {
            let line = LineIndex(offset / self.line_bytes);
            self.ids.iter().position(|id| id.line == line)
        });
        let all = self.first.iter().chain(&self.kept).chain(&self.last);
        let mut of_event = all.filter(|(mark, _)| Some(mark.event) == saw);
        by_offset.or_else(|| of_event.next()?.0.rows.first().map(|(row, _)| *row))
    }
}

/// The pool that a place names; the first one if it does not say.
fn pool_of(trace: &Trace, place: &SourcePlace) -> PoolIndex {
    let name = place.pool.as_deref().unwrap_or_default();
    let mut pools = trace.pools().iter();
    let found = pools.position(|pool| pool.path.to_str() == Some(name));
    PoolIndex(u32::try_from(found.unwrap_or(0)).unwrap_or(0))
}

fn words(place: &SourcePlace) -> String {
    let line = place.file_and_line().unwrap_or_default();
    format!("{line}{}", place.in_function())
}
