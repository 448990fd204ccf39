//! Stretches of the run in which one tree of observations is valid, and the lines to watch there.
//!
//! A [tree](crate::lazy::tree) holds for failure points between which only watched bytes differ. Watching costs time in
//! every execution, so of a line only the bytes are watched that can have several values in the segment, and a run that
//! changes many lines is divided: a segment ends where too many lines would have to be watched, and where a pool gets another
//! length.

use std::collections::BTreeMap;

use powerfail_model::{
    Event, EventIndex, Image, LineId, LineIndex, OpenLine, Place, PoolIndex, Rules, Step,
};
use powerfail_protocol::observe::{ByteSet, LINE_BYTES_MAX};
use powerfail_trace::Trace;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::lazy::initial_image::initial_image;
use crate::lazy::reuse::{ChangeLogBuilder, place_in_page};

/// The versions of lines with more than this are not compared: all of their bytes are watched.
const VERSIONS_COMPARED: usize = 64;

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
    /// The lines that are in doubt at one of them, or have other contents at one than at another. Of each at least the bytes
    /// that do not have one value wherever the power fails here.
    pub watched: BTreeMap<LineId, ByteSet>,
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
        let mut builder = SegmentsBuilder::with(changes, limits, fill.is_some());
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
    /// The bytes to which stores have given another value since the last failure point.
    stored: FxHashMap<LineId, ByteSet>,
    /// Memory changes where nothing is stored: it is filled when it is first used.
    is_filled: bool,
    done: Vec<Segment>,
}

impl<I: Image> SegmentsBuilder<I> {
    /// A pass over a run that starts with the pools as they are in `image`.
    pub fn new(rules: Rules, image: I, limits: SegmentLimits) -> Self {
        Self::with(ChangeLogBuilder::new(rules, image), limits, false)
    }

    fn with(changes: ChangeLogBuilder<I>, limits: SegmentLimits, is_filled: bool) -> Self {
        Self {
            changes,
            limits,
            pages: FxHashSet::default(),
            stored: FxHashMap::default(),
            is_filled,
            done: Vec::new(),
        }
    }

    /// Moves over one event.
    pub fn apply(&mut self, step: &Step<'_>) {
        if let Event::Store { at, bytes, .. } = step.event {
            self.note_store(at, bytes);
        }
        self.changes.apply(step);
    }

    /// Notes which bytes a store is about to change.
    fn note_store(&mut self, at: Place, bytes: &[u8]) {
        let mut before = vec![0; bytes.len()];
        self.changes.frontier().newest().read(at, &mut before);
        let line_bytes = self.changes.line_bytes() as u64;
        let mut done = 0;
        while done < bytes.len() {
            let offset = at.offset.0 + done as u64;
            let start = (offset % line_bytes) as usize;
            let len = (line_bytes as usize - start).min(bytes.len() - done);
            // Each part at its place in the line.
            let mut parts = [[0; LINE_BYTES_MAX]; 2];
            parts[0][start..start + len].copy_from_slice(&before[done..done + len]);
            parts[1][start..start + len].copy_from_slice(&bytes[done..done + len]);
            let changed = ByteSet::differing(&parts[0], &parts[1]);
            if !changed.is_empty() {
                let id = LineId {
                    pool: at.pool,
                    line: LineIndex(offset / line_bytes),
                };
                let stored = self.stored.entry(id).or_default();
                *stored = stored.union(&changed);
            }
            done += len;
        }
    }

    fn all_bytes(&self) -> ByteSet {
        ByteSet::range(0, self.changes.line_bytes())
    }

    /// The bytes of a line that can have several values now.
    fn in_doubt(&self, id: LineId) -> ByteSet {
        match self.changes.frontier().open_line(id) {
            _ if self.is_filled => self.all_bytes(),
            None => ByteSet::EMPTY,
            Some(line) if line.version_count() > VERSIONS_COMPARED => self.all_bytes(),
            Some(line) => differing_versions(line),
        }
    }

    /// The present position is a failure point.
    pub fn point(&mut self, at: EventIndex) {
        self.changes.point(at);
        let (changed, is_resized) = self.changes.take_last();
        let open: Vec<LineId> = self.changes.open_lines().to_vec();
        let line_bytes = self.changes.line_bytes();
        let page_of = |id: LineId| place_in_page(id, line_bytes).0;
        let stored = std::mem::take(&mut self.stored);
        let (all, is_filled) = (self.all_bytes(), self.is_filled);
        // A line that is new in a segment had one content there until now.
        let bytes_of = |id: &LineId| match stored.get(id) {
            _ if is_filled => all,
            Some(stored) => *stored,
            None if changed.contains(id) => all,
            None => ByteSet::EMPTY,
        };
        if !is_resized && let Some(segment) = self.done.last_mut() {
            let lines = changed.iter().chain(&open);
            let mut lines: Vec<LineId> = lines
                .copied()
                .filter(|id| !segment.watched.contains_key(id))
                .collect();
            lines.sort_unstable();
            lines.dedup();
            let pages: FxHashSet<_> = lines.iter().map(|id| page_of(*id)).collect();
            let new_pages = pages.iter().filter(|page| !self.pages.contains(*page));
            if segment.watched.len() + lines.len() <= self.limits.lines
                && self.pages.len() + new_pages.count() <= self.limits.pages
            {
                segment.last = at;
                segment.points += 1;
                for (id, stored) in &stored {
                    if let Some(bytes) = segment.watched.get_mut(id) {
                        *bytes = bytes.union(stored);
                    }
                }
                let new = lines.into_iter();
                segment.watched.extend(new.map(|id| (id, bytes_of(&id))));
                self.pages.extend(pages);
                return;
            }
        }
        self.pages = open.iter().map(|id| page_of(*id)).collect();
        let watched = open.into_iter().map(|id| (id, self.in_doubt(id)));
        let watched = watched.collect();
        self.done.push(Segment {
            first: at,
            last: at,
            points: 1,
            watched,
        });
    }

    /// All failure points were shown.
    pub fn finish(self) -> Segments {
        Segments(self.done)
    }
}

/// The bytes in which versions of a line differ.
fn differing_versions(line: &OpenLine) -> ByteSet {
    let mut first: Option<Vec<u8>> = None;
    let mut differing = ByteSet::EMPTY;
    line.for_each_version(|_, bytes| match &first {
        None => first = Some(bytes.to_vec()),
        Some(first) => differing = differing.union(&ByteSet::differing(first, bytes)),
    });
    differing
}
