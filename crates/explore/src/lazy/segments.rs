//! Stretches of the run in which one tree of observations is valid, and the lines to watch there.
//!
//! A [tree](crate::lazy::tree) holds for failure points between which only watched lines differ. Watching costs time in
//! every execution, so a run that changes many lines is divided: a segment ends where too many lines would have to be
//! watched, and where a pool gets another length.

use std::collections::BTreeSet;

use powerfail_model::{EventIndex, Image, LineId, PoolIndex, Rules, Step};
use powerfail_trace::Trace;
use rustc_hash::FxHashSet;

use crate::lazy::initial_image::initial_image;
use crate::lazy::reuse::{ChangeLogBuilder, place_in_page};

/// How many lines are watched in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLimits {
    /// At most this many lines.
    pub lines: usize,
    /// On at most this many pages.
    pub pages: usize,
}

impl Default for SegmentLimits {
    fn default() -> Self {
        Self {
            lines: 2048,
            pages: 128,
        }
    }
}

/// A stretch of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first failure point.
    pub first: EventIndex,
    /// Its last failure point.
    pub last: EventIndex,
    /// How many failure points it has.
    pub points: usize,
    /// The lines that are in doubt at one of them, or have other contents at one than at another.
    pub watched: BTreeSet<LineId>,
}

/// All segments of a run, in the order of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Passes over a trace whose fresh memory is filled with a byte, or zero. `points` are in ascending order.
    pub fn of(
        trace: &Trace,
        rules: Rules,
        fill: Option<u8>,
        points: &[EventIndex],
        limits: SegmentLimits,
    ) -> powerfail_trace::Result<Self> {
        let image = initial_image(trace, fill)?;
        let changes = ChangeLogBuilder::filled(rules, image, fill.is_some());
        let mut builder = SegmentsBuilder::with(changes, limits);
        let mut rest = points.iter().copied().peekable();
        let mut records = trace.records_from(EventIndex(0));
        while rest.peek().is_some() {
            let record = records.next_record()?;
            let position = record.as_ref().map_or(EventIndex(u64::MAX), |it| it.index);
            while let Some(at) = rest.next_if(|at| *at <= position) {
                builder.point(at);
            }
            if let Some(step) = record.and_then(|record| record.step()) {
                builder.apply(&step);
            }
        }
        Ok(builder.finish())
    }

    /// The segment of a failure point, by its number.
    pub fn number_of(&self, at: EventIndex) -> Option<usize> {
        let number = self.0.partition_point(|segment| segment.last < at);
        let segment = self.0.get(number)?;
        (segment.first <= at).then_some(number)
    }

    /// All of them.
    pub fn all(&self) -> &[Segment] {
        &self.0
    }
}

/// Divides a run in a pass over it.
#[derive(Clone, Debug)]
pub struct SegmentsBuilder<I> {
    changes: ChangeLogBuilder<I>,
    limits: SegmentLimits,
    pages: FxHashSet<(PoolIndex, u64)>,
    done: Vec<Segment>,
}

impl<I: Image> SegmentsBuilder<I> {
    /// A pass over a run that starts with the pools as they are in `image`.
    pub fn new(rules: Rules, image: I, limits: SegmentLimits) -> Self {
        Self::with(ChangeLogBuilder::new(rules, image), limits)
    }

    fn with(changes: ChangeLogBuilder<I>, limits: SegmentLimits) -> Self {
        Self {
            changes,
            limits,
            pages: FxHashSet::default(),
            done: Vec::new(),
        }
    }

    /// Moves over one event.
    pub fn apply(&mut self, step: &Step<'_>) {
        self.changes.apply(step);
    }

    /// The present position is a failure point.
    pub fn point(&mut self, at: EventIndex) {
        self.changes.point(at);
        let (changed, is_resized) = self.changes.take_last();
        let open: Vec<LineId> = self.changes.open_lines().to_vec();
        let line_bytes = self.changes.line_bytes();
        let page_of = |id: LineId| place_in_page(id, line_bytes).0;
        if !is_resized && let Some(segment) = self.done.last_mut() {
            let mut lines: Vec<LineId> = changed.into_iter().chain(open.iter().copied()).collect();
            lines.retain(|id| !segment.watched.contains(id));
            lines.sort_unstable();
            lines.dedup();
            let pages: FxHashSet<_> = lines.iter().map(|id| page_of(*id)).collect();
            let new_pages = pages.iter().filter(|page| !self.pages.contains(*page));
            if segment.watched.len() + lines.len() <= self.limits.lines
                && self.pages.len() + new_pages.count() <= self.limits.pages
            {
                segment.last = at;
                segment.points += 1;
                segment.watched.extend(lines);
                self.pages.extend(pages);
                return;
            }
        }
        self.pages = open.iter().map(|id| page_of(*id)).collect();
        self.done.push(Segment {
            first: at,
            last: at,
            points: 1,
            watched: open.into_iter().collect(),
        });
    }

    /// All failure points were shown.
    pub fn finish(self) -> Segments {
        Segments(self.done)
    }
}
