//! Which failure points need no run.
//!
//! Recovery is a function of what it reads. If every line whose possible contents have changed since an
//! explored failure point was *watched* there, and no execution read it, then the executions here would be
//! those of there, one by one. What they mean can differ all the same: how much has been acknowledged by
//! then is judged at the new moment.
//!
//! - [`ChangeLog`]: one pass over the trace finds, for each failure point, the lines whose possible contents
//!   are others than at the one before.
//! - [`ReadSets`]: tells which lines to watch, keeps what was read, and decides.
//!
//! Contents are compared by digests of 128 bits. A line that changes and changes back counts as
//! unchanged.

use std::collections::BTreeMap;

use powerfail_model::{Event, EventIndex, Frontier, Image, LineId, LineIndex, OpenLine, Place};
use powerfail_model::{PoolIndex, PoolOffset, Rules, Step};
use powerfail_trace::{Record, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::lazy::digest::digest_bytes;
use crate::lazy::initial_image::initial_image;

const PAGE_BYTES: u64 = 4096;
/// Lines with more versions than this are told apart by their stores instead of their contents.
const VERSIONS_COMPARED: usize = 64;
/// The digest of memory that was neither touched nor filled.
const UNTOUCHED: u128 = 0;

/// Another set of contents is possible for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineChange {
    /// Which line.
    pub id: LineId,
    /// Digest of what was possible at the failure point before.
    pub before: u128,
    /// Digest of what is possible now.
    pub now: u128,
}

impl LineChange {
    /// Keeps in mind what lines had that now have something else.
    fn apply_to(&self, differing: &mut FxHashMap<LineId, u128>) {
        let then = *differing.entry(self.id).or_insert(self.before);
        if then == self.now {
            differing.remove(&self.id);
        }
    }
}

/// What has changed from each failure point to the next.
#[derive(Clone, Debug, Default)]
pub struct ChangeLog {
    line_bytes: usize,
    points: Vec<PointChanges>,
}

#[derive(Clone, Debug)]
struct PointChanges {
    at: EventIndex,
    lines: Box<[LineChange]>,
    /// A pool has another length.
    is_resized: bool,
}

impl ChangeLog {
    /// Passes over a trace whose fresh memory is filled with a byte, or zero. `points` are in ascending
    /// order.
    pub fn of(
        trace: &Trace,
        rules: Rules,
        fill: Option<u8>,
        points: &[EventIndex],
    ) -> powerfail_trace::Result<Self> {
        struct NoRemarks;
        impl Remarks for NoRemarks {
            fn record(&mut self, _: &Record<'_>) {}

            fn at_point(&mut self, _: &mut dyn FnMut(LineId, u128)) {}
        }
        Self::with(trace, rules, fill, points, &mut NoRemarks)
    }

    /// The same, where something else than its content matters to who reads a line.
    pub fn with(
        trace: &Trace,
        rules: Rules,
        fill: Option<u8>,
        points: &[EventIndex],
        remarks: &mut dyn Remarks,
    ) -> powerfail_trace::Result<Self> {
        let image = initial_image(trace, fill)?;
        let mut builder = ChangeLogBuilder::filled(rules, image, fill.is_some());
        let mut rest = points.iter().copied().peekable();
        let mut records = trace.records_from(EventIndex(0));
        while rest.peek().is_some() {
            let record = records.next_record()?;
            let position = record.as_ref().map_or(EventIndex(u64::MAX), |it| it.index);
            while let Some(at) = rest.next_if(|at| *at <= position) {
                remarks.at_point(&mut |line, remark| builder.remark(line, remark));
                builder.point(at);
            }
            if let Some(record) = record {
                remarks.record(&record);
                if let Some(step) = record.step() {
                    builder.apply(&step);
                }
            }
        }
        Ok(builder.finish())
    }

    /// How many failure points there are.
    pub fn point_count(&self) -> usize {
        self.points.len()
    }

    /// Where a failure point is.
    pub fn at(&self, point: usize) -> EventIndex {
        self.points[point].at
    }

    /// What has changed since the failure point before, or since the beginning. By pool and offset.
    pub fn changes(&self, point: usize) -> &[LineChange] {
        &self.points[point].lines
    }
}

/// Who passes over a trace beside a [`ChangeLog`], and knows more about lines than their content.
pub trait Remarks {
    /// The next record.
    fn record(&mut self, record: &Record<'_>);
    /// At a failure point: tells of each line with another remark than at the one before. Zero is none; equal
    /// remarks mean that nothing has changed for who reads the line.
    fn at_point(&mut self, tell: &mut dyn FnMut(LineId, u128));
}

/// Makes a [`ChangeLog`] in a pass over a trace.
#[derive(Clone, Debug)]
pub struct ChangeLogBuilder<I> {
    frontier: Frontier<I>,
    /// Lines that were stored to since the last failure point.
    touched: FxHashSet<LineId>,
    /// Lines that were open at the last failure point: their floors may have risen.
    open: Vec<LineId>,
    /// Digests of the lines that were ever touched, as of the last failure point.
    known: FxHashMap<LineId, u128>,
    is_resized: bool,
    /// Where memory is filled, the first store to a page changes all of it: memory is not filled where it is not
    /// touched.
    is_filled: bool,
    pages: FxHashSet<(PoolIndex, u64)>,
    /// What else is said of lines; never zero.
    remarks: FxHashMap<LineId, u128>,
    log: ChangeLog,
}

impl<I: Image> ChangeLogBuilder<I> {
    /// A pass over a trace that starts with the pools as they are in `image`.
    pub fn new(rules: Rules, image: I) -> Self {
        Self {
            frontier: Frontier::new(rules, image),
            touched: FxHashSet::default(),
            open: Vec::new(),
            known: FxHashMap::default(),
            is_resized: false,
            is_filled: false,
            pages: FxHashSet::default(),
            remarks: FxHashMap::default(),
            log: ChangeLog {
                line_bytes: rules.domain.line_bytes(),
                points: Vec::new(),
            },
        }
    }

    /// The same, where fresh memory may have been filled.
    pub(crate) fn filled(rules: Rules, image: I, is_filled: bool) -> Self {
        Self {
            is_filled,
            ..Self::new(rules, image)
        }
    }

    /// Takes out what has changed at the last failure point: the lines, and whether a pool has another length.
    pub(crate) fn take_last(&mut self) -> (Vec<LineId>, bool) {
        let Some(last) = self.log.points.pop() else {
            return (Vec::new(), false);
        };
        let lines = last.lines.iter().map(|change| change.id);
        (lines.collect(), last.is_resized)
    }

    /// The lines that were open at the last failure point.
    pub(crate) fn open_lines(&self) -> &[LineId] {
        &self.open
    }

    pub(crate) const fn line_bytes(&self) -> usize {
        self.log.line_bytes
    }

    /// The frontier at the present position.
    pub const fn frontier(&self) -> &Frontier<I> {
        &self.frontier
    }

    /// Moves over one event.
    pub fn apply(&mut self, step: &Step<'_>) {
        match step.event {
            Event::Store { at, bytes, .. } if !bytes.is_empty() => {
                let line_bytes = self.log.line_bytes as u64;
                let first = at.offset.0 / line_bytes;
                let last = at.offset.0.saturating_add(bytes.len() as u64 - 1) / line_bytes;
                for line in first..=last {
                    let id = LineId {
                        pool: at.pool,
                        line: LineIndex(line),
                    };
                    if self.is_filled {
                        self.fill_page_of(id);
                    }
                    self.touch(id);
                }
            }
            Event::Resize { .. } => self.is_resized = true,
            _ => {}
        }
        self.frontier.apply(step);
    }

    /// Something is said of a line that matters to who reads it; zero is nothing.
    pub fn remark(&mut self, id: LineId, remark: u128) {
        self.touch(id);
        match remark {
            0 => self.remarks.remove(&id),
            _ => self.remarks.insert(id, remark),
        };
    }

    fn touch(&mut self, id: LineId) {
        if self.touched.insert(id) && !self.known.contains_key(&id) {
            let digest = self.digest(id);
            self.known.insert(id, digest);
        }
    }

    fn fill_page_of(&mut self, id: LineId) {
        let line_bytes = self.log.line_bytes as u64;
        let (page, _) = place_in_page(id, self.log.line_bytes);
        if !self.pages.insert(page) {
            return;
        }
        let first = page.1 / line_bytes;
        for line in first..first + PAGE_BYTES / line_bytes {
            let id = LineId {
                pool: id.pool,
                line: LineIndex(line),
            };
            self.known.entry(id).or_insert(UNTOUCHED);
            self.touched.insert(id);
        }
    }

    /// The present position is a failure point.
    pub fn point(&mut self, at: EventIndex) {
        let mut ids: Vec<LineId> = self.touched.drain().chain(self.open.drain(..)).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut lines = Vec::new();
        for id in ids {
            let now = self.digest(id);
            let before = self.known.insert(id, now).unwrap_or(now);
            if before != now {
                lines.push(LineChange { id, before, now });
            }
        }
        let open = self.frontier.open_lines_sorted();
        self.open.extend(open.iter().map(|line| line.id()));
        self.log.points.push(PointChanges {
            at,
            lines: lines.into(),
            is_resized: std::mem::take(&mut self.is_resized),
        });
    }

    /// All failure points were shown.
    pub fn finish(self) -> ChangeLog {
        self.log
    }

    fn digest(&self, id: LineId) -> u128 {
        let remark = self.remarks.get(&id).copied().unwrap_or(0);
        self.digest_of_content(id).wrapping_add(remark)
    }

    fn digest_of_content(&self, id: LineId) -> u128 {
        match self.frontier.open_line(id) {
            Some(line) => digest_open(line),
            None => {
                let line_bytes = self.log.line_bytes;
                let mut bytes = vec![0; line_bytes];
                let offset = PoolOffset(id.line.0 * line_bytes as u64);
                let place = Place::new(id.pool, offset);
                self.frontier.newest().read(place, &mut bytes);
                digest_bytes(&bytes)
            }
        }
    }
}

/// Depends on the set of contents and on which of them is the newest. That of a line with one content is
/// the digest of its bytes, whether or not the line is open.
fn digest_open(line: &OpenLine) -> u128 {
    if line.version_count() > VERSIONS_COMPARED {
        let mut events = line.stores().map(|store| store.event.0);
        let first = events.next().unwrap_or(0);
        let last = events.last().unwrap_or(first);
        let words = [first, last, line.version_count() as u64, u64::MAX];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        return digest_bytes(&bytes);
    }
    let mut contents = FxHashSet::default();
    let mut newest = 0;
    line.for_each_version(|_, bytes| {
        newest = digest_bytes(bytes);
        contents.insert(newest);
    });
    if contents.len() == 1 {
        return newest;
    }
    let sum = contents.into_iter().fold(0_u128, u128::wrapping_add);
    let both = [newest.to_le_bytes(), sum.to_le_bytes()].concat();
    digest_bytes(&both)
}

/// Lines of a page, in units of 64 bytes whatever a line is: a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageLines {
    /// The pool.
    pub pool: PoolIndex,
    /// Offset of the page of 4 KiB.
    pub offset: PoolOffset,
    /// A bit for each 64 bytes.
    pub lines: u64,
}

impl PageLines {
    /// The pages that hold these lines, by pool and offset.
    pub fn of(lines: impl IntoIterator<Item = LineId>, line_bytes: usize) -> Vec<Self> {
        let mut pages: BTreeMap<(PoolIndex, u64), u64> = BTreeMap::new();
        for id in lines {
            let (page, bits) = place_in_page(id, line_bytes);
            *pages.entry(page).or_default() |= bits;
        }
        let pages = pages.into_iter().map(|((pool, offset), lines)| Self {
            pool,
            offset: PoolOffset(offset),
            lines,
        });
        pages.collect()
    }
}

/// The page that holds a line, and its bits there.
pub(crate) fn place_in_page(id: LineId, line_bytes: usize) -> ((PoolIndex, u64), u64) {
    let start = id.line.0 * line_bytes as u64;
    let page = start - start % PAGE_BYTES;
    let units = line_bytes as u64 / 64;
    let bits = (u64::MAX >> (64 - units)) << ((start - page) / 64);
    ((id.pool, page), bits)
}

/// How far to look, and how much to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReuseLimits {
    /// Lines that change within this many failure points are watched.
    pub look_ahead: usize,
    /// At most this many lines are watched.
    pub watched_lines: usize,
    /// On at most this many pages.
    pub watched_pages: usize,
    /// With this many explored failure points a new one is compared.
    pub candidates: usize,
}

impl Default for ReuseLimits {
    fn default() -> Self {
        Self {
            look_ahead: 32,
            watched_lines: 2048,
            watched_pages: 128,
            candidates: 16,
        }
    }
}

/// Whether a failure point must be explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It must.
    Explore,
    /// Its executions would be those of an earlier point.
    Same {
        /// Which point.
        point: usize,
        /// How many executions that took.
        executions: u64,
    },
}

/// What was saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReuseCounts {
    /// Failure points that needed no run.
    pub points: u64,
    /// Executions that they would have taken.
    pub executions: u64,
}

/// Keeps what executions have read, and decides which failure points need no run. Failure points are
/// asked for in ascending order.
#[derive(Clone, Debug)]
pub struct ReadSets<'l> {
    log: &'l ChangeLog,
    limits: ReuseLimits,
    candidates: Vec<Candidate>,
    /// The first failure point whose changes the candidates do not know yet.
    next: usize,
    counts: ReuseCounts,
}

/// An explored failure point.
#[derive(Clone, Debug)]
struct Candidate {
    point: usize,
    executions: u64,
    /// Of each page that was watched: the lines that were not read.
    unread: FxHashMap<(PoolIndex, u64), u64>,
    /// Lines that were read, or were not watched, and now have other contents: the digest of what they
    /// had.
    differing: FxHashMap<LineId, u128>,
}

impl Candidate {
    /// First by page, then by line.
    fn is_unread(&self, id: LineId, line_bytes: usize) -> bool {
        let (page, bits) = place_in_page(id, line_bytes);
        self.unread
            .get(&page)
            .is_some_and(|unread| unread & bits == bits)
    }

    fn apply(&mut self, change: &LineChange, line_bytes: usize) {
        if self.is_unread(change.id, line_bytes) {
            return;
        }
        change.apply_to(&mut self.differing);
    }

    const fn decision(&self) -> Decision {
        Decision::Same {
            point: self.point,
            executions: self.executions,
        }
    }
}

impl<'l> ReadSets<'l> {
    /// Nothing was explored yet.
    pub fn new(log: &'l ChangeLog, limits: ReuseLimits) -> Self {
        Self {
            log,
            limits,
            candidates: Vec::new(),
            next: 0,
            counts: ReuseCounts::default(),
        }
    }

    /// What was saved so far.
    pub const fn counts(&self) -> ReuseCounts {
        self.counts
    }

    /// The lines to watch when a failure point is explored: those that change soon after it.
    pub fn watch(&self, point: usize) -> Vec<PageLines> {
        let mut lines = FxHashSet::default();
        let mut pages = FxHashSet::default();
        let soon = self.log.points.iter().skip(point + 1);
        for change in soon
            .take(self.limits.look_ahead)
            .flat_map(|point| &point.lines)
        {
            let (page, _) = place_in_page(change.id, self.log.line_bytes);
            if lines.len() >= self.limits.watched_lines
                || pages.len() >= self.limits.watched_pages && !pages.contains(&page)
            {
                break;
            }
            pages.insert(page);
            lines.insert(change.id);
        }
        PageLines::of(lines, self.log.line_bytes)
    }

    /// Whether a failure point must be explored. Counts what is saved.
    pub fn decide(&mut self, point: usize) -> Decision {
        self.move_to(point);
        // The latest first: what was acknowledged then is most like what is acknowledged now.
        let mut latest_first = self.candidates.iter().rev();
        let Some(same) = latest_first.find(|then| then.differing.is_empty()) else {
            return Decision::Explore;
        };
        self.counts.points += 1;
        self.counts.executions += same.executions;
        same.decision()
    }

    /// What [`Self::decide`] would say if nothing were explored until then. Changes and counts nothing.
    pub fn foresee(&self, point: usize) -> Decision {
        let ahead = self.log.points.get(self.next..=point).unwrap_or_default();
        if ahead.iter().any(|changes| changes.is_resized) {
            return Decision::Explore;
        }
        let line_bytes = self.log.line_bytes;
        let change_count: usize = ahead.iter().map(|changes| changes.lines.len()).sum();
        let same = self.candidates.iter().rev().find(|then| {
            // Each change can make one line what it was.
            if then.differing.len() > change_count {
                return false;
            }
            let mut differing = then.differing.clone();
            let changes = ahead.iter().flat_map(|changes| &changes.lines);
            for change in changes.filter(|change| !then.is_unread(change.id, line_bytes)) {
                change.apply_to(&mut differing);
            }
            differing.is_empty()
        });
        same.map_or(Decision::Explore, Candidate::decision)
    }

    /// A failure point was explored, exhaustively, with these lines watched. `read` are those of them that
    /// any of its executions has read, the ones after nested failures included; it may name others, too.
    ///
    /// That a line is open does not mean that it is watched: the runtime loses sight of a page when
    /// nothing on it is in doubt any more, which can be because recovery has overwritten what was.
    pub fn explored(
        &mut self,
        point: usize,
        executions: u64,
        watched: &[PageLines],
        read: &[PageLines],
    ) {
        self.move_to(point);
        let mut unread: FxHashMap<(PoolIndex, u64), u64> = FxHashMap::default();
        for page in watched {
            *unread.entry((page.pool, page.offset.0)).or_default() |= page.lines;
        }
        for page in read {
            if let Some(lines) = unread.get_mut(&(page.pool, page.offset.0)) {
                *lines &= !page.lines;
            }
        }
        unread.retain(|_, lines| *lines != 0);
        if self.candidates.len() >= self.limits.candidates.max(1) {
            // The one that is least like the present.
            let ranked = self.candidates.iter().enumerate();
            let worst = ranked.max_by_key(|(at, then)| (then.differing.len(), usize::MAX - at));
            if let Some((at, _)) = worst {
                self.candidates.remove(at);
            }
        }
        self.candidates.push(Candidate {
            point,
            executions,
            unread,
            differing: FxHashMap::default(),
        });
    }

    fn move_to(&mut self, point: usize) {
        while self.next <= point {
            let changes = &self.log.points[self.next];
            if changes.is_resized {
                self.candidates.clear();
            }
            for candidate in &mut self.candidates {
                for change in &changes.lines {
                    candidate.apply(change, self.log.line_bytes);
                }
            }
            self.next += 1;
        }
    }
}
