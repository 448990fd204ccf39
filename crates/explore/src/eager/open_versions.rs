//! What all open lines can hold, followed event by event.

use std::collections::BTreeSet;

use powerfail_model::{
    Event, FailurePoints, FlushKind, Frontier, Image, LineId, LineIndex, Place, PoolIndex,
    PoolOffset, Rules, Step, StoreKind, ThreadIndex,
};
use powerfail_trace::StackId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::count::{Factors, Magnitude};
use super::line_versions::{LineVersions, Storing};
use crate::digest::ImageDigest;

const PAGE_BYTES: u64 = 4096;
const WORD_BYTES: u64 = 8;

/// How a pass looks at stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassOptions {
    /// What survives.
    pub rules: Rules,
    /// Adjacent stores to one line, with no flush or fence between them, are one.
    pub coalesce: bool,
    /// The first store to a page changes bytes that it does not store, because fresh memory is
    /// filled: images before and after it are never taken as equal.
    pub fresh_pages_differ: bool,
}

/// What was done, in numbers. A sync is a flush and a fence; so is a locked store a fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    pub(crate) fences: u64,
}

/// The possible contents of all open lines at the position of a pass. An event costs the lines that it touches.
#[derive(Debug)]
pub(crate) struct OpenVersions<I> {
    frontier: Frontier<I>,
    options: PassOptions,
    len_bytes: Vec<u64>,
    lines: FxHashMap<LineId, LineVersions>,
    /// Lines in which the next fence of a thread may raise the floor.
    pending: FxHashMap<ThreadIndex, FxHashSet<LineId>>,
    /// Lines of which the floor may have changed since they were last looked at.
    dirty: FxHashSet<LineId>,
    factors: Factors,
    /// Differences of this are those of the digests of the newest images.
    newest: ImageDigest,
    touched: FxHashSet<(PoolIndex, u64)>,
    orderings: u64,
    pub(crate) tally: Tally,
}

impl<I: Image> OpenVersions<I> {
    pub(crate) fn new(image: I, len_bytes: Vec<u64>, options: PassOptions) -> Self {
        Self {
            frontier: Frontier::new(options.rules, image),
            options,
            len_bytes,
            lines: FxHashMap::default(),
            pending: FxHashMap::default(),
            dirty: FxHashSet::default(),
            factors: Factors::default(),
            newest: ImageDigest::default(),
            touched: FxHashSet::default(),
            orderings: 0,
            tally: Tally::default(),
        }
    }

    pub(crate) const fn newest(&self) -> ImageDigest {
        self.newest
    }

    /// The lines that can hold more than one content, by pool and offset; if only some count, those of them.
    pub(crate) fn uncertain(&self, only: Option<&BTreeSet<LineId>>) -> Vec<LineId> {
        let lines = self.lines.iter().filter(|(id, versions)| {
            versions.len() > 1 && only.is_none_or(|only| only.contains(*id))
        });
        let mut ids: Vec<LineId> = lines.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    pub(crate) fn line(&self, id: LineId) -> Option<&LineVersions> {
        self.lines.get(&id)
    }

    /// How many combinations all lines have.
    pub(crate) const fn all_factors(&self) -> &Factors {
        &self.factors
    }

    /// How many combinations these lines have.
    pub(crate) fn factors(&self, lines: &[LineId]) -> Factors {
        let mut factors = Factors::default();
        for line in lines.iter().filter_map(|id| self.line(*id)) {
            factors.change(1, line.len());
        }
        factors
    }

    /// How many combinations of versions there are, whatever they hold.
    pub(crate) fn raw_count(&self) -> Magnitude {
        Magnitude::new(self.frontier.crash_state_count_log10(), || {
            self.frontier.crash_state_count()
        })
    }

    /// Whether a segment ends before an event, or at the end of the trace.
    pub(crate) fn ends_segment(&self, step: Option<&Step<'_>>) -> bool {
        let points = FailurePoints::Covering;
        match step {
            Some(step) => self
                .frontier
                .is_failure_point(points, &self.within_pool(step)),
            None => self.frontier.is_failure_point_at_end(points),
        }
    }

    /// Whether something may be lost that no moment since the last segment has covered.
    pub(crate) fn may_lose(&self) -> bool {
        self.ends_segment(None) && self.frontier.open_lines().len() > 0
    }

    /// Looks again at the lines whose floors may have risen.
    pub(crate) fn settle(&mut self) {
        for id in std::mem::take(&mut self.dirty) {
            self.refresh(id, None, false);
        }
    }

    pub(crate) fn apply(&mut self, step: &Step<'_>, stack: StackId) {
        let step = self.within_pool(step);
        match step.event {
            Event::Store { kind, at, bytes } => {
                self.tally.writes += 1;
                if kind == StoreKind::Locked {
                    self.fence(step.thread);
                }
                self.store(&step, kind, at, bytes, stack);
                return;
            }
            Event::Flush { kind, at } => {
                self.tally.flushes += 1;
                self.orderings += 1;
                let line = self.line_of(at.pool, at.offset.0);
                match kind {
                    FlushKind::Clflush => {
                        self.dirty.insert(line);
                    }
                    FlushKind::Clflushopt | FlushKind::Clwb => self.await_fence(step.thread, line),
                }
            }
            Event::Fence(_) => self.fence(step.thread),
            Event::Sync {
                pool,
                offset,
                len_bytes,
            } => {
                self.tally.flushes += 1;
                self.fence(step.thread);
                let first = self.line_of(pool, offset.0);
                let last = self.line_of(pool, offset.0.saturating_add(len_bytes));
                let covered = self.lines.keys().filter(|id| (first..=last).contains(*id));
                self.dirty.extend(covered);
            }
            Event::Resize { pool, len_bytes } => {
                self.frontier.apply(&step);
                if let Some(length) = self.len_bytes.get_mut(pool.0 as usize) {
                    *length = len_bytes;
                }
                // What is cut off and what comes back is not followed word by word.
                self.newest.salt(step.index.0);
                let ids: Vec<LineId> = self.lines.keys().copied().collect();
                for id in ids {
                    self.refresh(id, None, true);
                }
                return;
            }
        }
        self.frontier.apply(&step);
    }

    fn store(&mut self, step: &Step<'_>, kind: StoreKind, at: Place, bytes: &[u8], stack: StackId) {
        if bytes.is_empty() {
            self.frontier.apply(step);
            return;
        }
        let end = at.offset.0 + bytes.len() as u64;
        let start = at.offset.0 / WORD_BYTES * WORD_BYTES;
        let words = Place::new(at.pool, PoolOffset(start));
        let mut content = vec![0; (end.next_multiple_of(WORD_BYTES) - start) as usize];
        self.frontier.newest().read(words, &mut content);
        let before = ImageDigest::of_words(words, &content);
        self.frontier.apply(step);
        self.frontier.newest().read(words, &mut content);
        let after = ImageDigest::of_words(words, &content);
        self.newest = self.newest.minus(before).plus(after);
        if self.options.fresh_pages_differ {
            for page in start / PAGE_BYTES..=(end - 1) / PAGE_BYTES {
                if self.touched.insert((at.pool, page)) {
                    self.newest.salt(page ^ (u64::from(at.pool.0) + 1) << 48);
                }
            }
        }
        let storing = Storing {
            stack,
            ordering: self.orderings,
        };
        let first = self.line_of(at.pool, at.offset.0);
        let last = self.line_of(at.pool, end - 1);
        for line in first.line.0..=last.line.0 {
            let id = LineId {
                pool: at.pool,
                line: LineIndex(line),
            };
            self.refresh(id, Some(storing), false);
            if kind == StoreKind::NonTemporal {
                self.await_fence(step.thread, id);
            }
        }
    }

    fn await_fence(&mut self, thread: ThreadIndex, line: LineId) {
        if self.lines.contains_key(&line) {
            self.pending.entry(thread).or_default().insert(line);
        }
    }

    fn fence(&mut self, thread: ThreadIndex) {
        self.tally.fences += 1;
        self.orderings += 1;
        if let Some(lines) = self.pending.get_mut(&thread) {
            self.dirty.extend(lines.drain());
        }
    }

    fn refresh(&mut self, id: LineId, storing: Option<Storing>, is_cut: bool) {
        match self.frontier.open_line(id) {
            None => {
                if let Some(closed) = self.lines.remove(&id) {
                    self.factors.change(closed.len(), 1);
                }
            }
            Some(line) => {
                let coalesce = self.options.coalesce;
                let entry = self.lines.entry(id);
                let versions = entry.or_insert_with(|| LineVersions::new(coalesce));
                let before = versions.len();
                versions.follow(line, storing, is_cut);
                self.factors.change(before, versions.len());
            }
        }
    }

    fn line_of(&self, pool: PoolIndex, offset: u64) -> LineId {
        let line = offset / self.options.rules.domain.line_bytes() as u64;
        LineId {
            pool,
            line: LineIndex(line),
        }
    }

    /// A step without what it stores beyond the end of its pool: that is never in the file.
    fn within_pool<'a>(&self, step: &Step<'a>) -> Step<'a> {
        let mut step = *step;
        if let Event::Store { at, bytes, .. } = &mut step.event {
            let len_bytes = self.len_bytes.get(at.pool.0 as usize).copied();
            let room = len_bytes.unwrap_or(0).saturating_sub(at.offset.0);
            *bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        }
        step
    }
}
