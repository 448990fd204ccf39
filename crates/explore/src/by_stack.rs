//! One pass over a trace finds the failure points of each call stack.
//!
//! The idea is Mumak's: code that is reached in the same way does the same, so one failure per
//! distinct call stack finds most bugs. Deviations: (1) the points come from a recorded trace and not
//! from running the program again; (2) besides the first occurrence the last one and random ones are
//! kept, because the state of the data structure differs between them; (3) a call stack is one
//! number here, since the trace has interned the tree of stacks already. Where a trace holds sites
//! only, points are told apart by their site; points without any stack are all taken as one.
//!
//! Annotations of the program leave points out and add others ([`Scope`]).
//!
//! An event costs constant time, and the memory is that of the distinct call stacks plus, where
//! digests are wanted, that of the pages which are not zero. If these are too many, points have no digests, and all
//! that were kept are tried.

use powerfail_model::{
    Event, EventIndex, FailurePoints, Frontier, Rules, SparseImage, Step, ThreadIndex,
};
use powerfail_protocol::random::Random;
use powerfail_trace::{
    Annotation, Body, ImageRun, MarkKind, Pool, Record, RecordCursor, Result, Scope, ScopeChange,
    StackId, Trace,
};
use rustc_hash::FxHashMap;

use crate::creation::Creation;
use crate::digest::DigestedImage;
use crate::granularity::Granularity;
use crate::ordering::OrderingPoints;
use crate::point::{FailurePoint, Trigger};
use crate::samples::Samples;

/// What is a failure point, and how many to keep of each call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePointOptions {
    /// Before which events the power may fail.
    pub granularity: Granularity,
    /// How many failure points to keep of each call stack: 1 is the first, 2 the first and the last,
    /// more are random ones between them; 0 keeps all.
    pub per_stack: usize,
    /// Decides which random ones.
    pub seed: u64,
    /// Also fail while a pool is being created inside of PMDK.
    pub include_create: bool,
    /// Whether points get the digest of their images. Costs memory for the pages of the pools.
    pub digests: bool,
}

impl Default for FailurePointOptions {
    fn default() -> Self {
        Self {
            granularity: Granularity::default(),
            per_stack: 3,
            seed: 0,
            include_create: false,
            digests: true,
        }
    }
}

/// The failure points that were kept of one call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackPoints {
    /// The call stack.
    pub stack: StackId,
    /// How many failure points have it.
    pub occurrences: u64,
    /// Those that were kept: the first, the last, then the others.
    pub points: Vec<FailurePoint>,
}

/// The failure points of a trace, grouped by call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailurePointsByStack {
    stacks: Vec<StackPoints>,
    excluded: u64,
    out_of_scope: u64,
    unsearched: u64,
}

impl FailurePointsByStack {
    /// Finds the failure points of a trace.
    pub fn of(trace: &Trace, options: FailurePointOptions) -> Result<Self> {
        Self::of_unless(trace, options, &|| false)
    }

    /// The same, unless it is stopped: then it has those of the beginning of the trace.
    pub fn of_unless(
        trace: &Trace,
        options: FailurePointOptions,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let mut search = PointSearch::new(trace, options)?;
        while search.next_first(is_stopped)?.is_some() {}
        Ok(search.finish())
    }

    /// Finds the fewest failure points whose crash states are those of all moments of a trace: where lost
    /// and reordered lines are looked for. The granularity of the options does not matter.
    pub fn covering(trace: &Trace, rules: Rules, options: FailurePointOptions) -> Result<Self> {
        Self::covering_unless(trace, rules, options, &|| false)
    }

    /// The same, unless it is stopped: then it has those of the beginning of the trace.
    pub fn covering_unless(
        trace: &Trace,
        rules: Rules,
        options: FailurePointOptions,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let mut builder = FailurePointsBuilder::new(
            trace.pools(),
            FailurePointOptions {
                digests: false,
                ..options
            },
        );
        // Which states are possible matters here, and not what they hold.
        builder.frontier = Some(Box::new(Frontier::new(rules, SparseImage::new())));
        let mut records = trace.records_from(EventIndex(0));
        while let Some(record) = records.next_record()? {
            if is_time_to_ask(record.index) && is_stopped() {
                let unsearched = trace.event_count() - record.index.0;
                return Ok(Self {
                    unsearched,
                    ..builder.finish()
                });
            }
            builder.push(&record);
        }
        builder.push_end(EventIndex(trace.event_count()));
        Ok(builder.finish())
    }

    /// Finds the failure points before ordering points: where recovery is watched. `is_own` says of a record
    /// whether it is a trusted library's own business. The granularity of the options does not matter.
    pub fn ordering(
        trace: &Trace,
        rules: Rules,
        options: FailurePointOptions,
        is_own: &mut dyn FnMut(&Record<'_>) -> bool,
    ) -> Result<Self> {
        let mut builder = FailurePointsBuilder::new(
            trace.pools(),
            FailurePointOptions {
                digests: false,
                ..options
            },
        );
        builder.ordering = Some(Box::new(OrderingPoints::new(rules)));
        let mut records = trace.records_from(EventIndex(0));
        while let Some(record) = records.next_record()? {
            let is_own = is_own(&record);
            builder.push_ordering(&record, is_own);
        }
        builder.push_end(EventIndex(trace.event_count()));
        Ok(builder.finish())
    }

    /// The moment just before one event, or at the end of the trace, and nothing else.
    pub fn at(trace: &Trace, at: EventIndex) -> Result<Self> {
        let mut records = trace.records_from(at);
        let record = records.next_record()?;
        let point = FailurePoint {
            at,
            stack: record.as_ref().map_or(StackId::NONE, |it| it.stack),
            thread: record.as_ref().map_or(ThreadIndex(0), |it| it.thread),
            trigger: match record.as_ref().map(|it| &it.body) {
                Some(Body::Pm(event)) => Trigger::of(event),
                Some(_) => Trigger::Annotation,
                None => Trigger::End,
            },
            occurrence: 0,
            digest: None,
        };
        Ok(Self {
            stacks: vec![StackPoints {
                stack: point.stack,
                occurrences: 1,
                points: vec![point],
            }],
            ..Self::default()
        })
    }

    /// Keeps only the points that `is_wanted` wants. How often a call stack occurs stays as it is.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&FailurePoint) -> bool) {
        for stack in &mut self.stacks {
            stack.points.retain(&mut is_wanted);
        }
        self.stacks.retain(|stack| !stack.points.is_empty());
    }

    /// The distinct call stacks, by their first failure point.
    pub fn stacks(&self) -> &[StackPoints] {
        &self.stacks
    }

    /// How many failure points there are in all, kept or not.
    pub fn point_count(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.occurrences).sum()
    }

    /// How many failure points were kept.
    pub fn kept_count(&self) -> u64 {
        let kept = self.stacks.iter().map(|stack| stack.points.len() as u64);
        kept.sum()
    }

    /// How many failure points do not count because a pool was being created.
    pub const fn excluded_count(&self) -> u64 {
        self.excluded
    }

    /// How many failure points do not count because annotations of the program say so.
    pub const fn out_of_scope_count(&self) -> u64 {
        self.out_of_scope
    }

    /// How many of the last events were not searched, because it was stopped.
    pub const fn unsearched_count(&self) -> u64 {
        self.unsearched
    }

    /// How many different images the kept points have, if digests were asked for.
    pub fn distinct_image_count(&self) -> Option<usize> {
        let points = self.stacks.iter().flat_map(|stack| &stack.points);
        let digests: Option<rustc_hash::FxHashSet<_>> = points.map(|point| point.digest).collect();
        digests.map(|digests| digests.len())
    }
}

/// Whether to ask before an event if the search is to stop: not for each of them.
const fn is_time_to_ask(at: EventIndex) -> bool {
    const EVENTS_AT_A_TIME: u64 = 1 << 16;
    at.0 % EVENTS_AT_A_TIME == EVENTS_AT_A_TIME - 1
}

/// Finds failure points on the way, so that they can be tried before the whole trace was read.
pub struct PointSearch<'t> {
    trace: &'t Trace,
    records: RecordCursor<'t>,
    builder: FailurePointsBuilder,
    /// How many events were searched.
    searched: u64,
}

impl<'t> PointSearch<'t> {
    /// Before the first event of a trace.
    pub fn new(trace: &'t Trace, options: FailurePointOptions) -> Result<Self> {
        let mut builder = FailurePointsBuilder::new(trace.pools(), options);
        if options.digests {
            let mut runs = trace.initial_images();
            while let Some(run) = runs.next_run()? {
                builder.initial(&run);
            }
        }
        Ok(Self {
            trace,
            records: trace.records_from(EventIndex(0)),
            builder,
            searched: 0,
        })
    }

    /// Reads the trace up to the next failure point that is the first of its call stack, and returns it; `None` at the end. Failure
    /// points in the creation of a pool are skipped, because they may be left out. Later annotations can still exclude the others.
    pub fn next_first(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<Option<FailurePoint>> {
        while let Some(record) = self.records.next_record()? {
            self.builder.push(&record);
            self.searched = record.index.0 + 1;
            if let Some(first) = self.builder.first.take() {
                return Ok(Some(first));
            }
            if is_time_to_ask(record.index) && is_stopped() {
                break;
            }
        }
        Ok(None)
    }

    /// The failure points of what was searched.
    pub fn finish(self) -> FailurePointsByStack {
        FailurePointsByStack {
            unsearched: self.trace.event_count() - self.searched,
            ..self.builder.finish()
        }
    }
}

/// Builds a [`FailurePointsByStack`] from records, for those who pass over the trace anyway.
#[derive(Debug)]
pub(crate) struct FailurePointsBuilder {
    options: FailurePointOptions,
    stacks: FxHashMap<StackId, Samples>,
    creation: Creation,
    scope: Scope,
    /// How many failure points annotations have left out.
    out_of_scope: u64,
    image: Option<DigestedImage>,
    /// The pools have more pages than are kept for digests, so no point has one.
    without_digests: bool,
    /// Finds the covering failure points instead of those of the granularity.
    frontier: Option<Box<Frontier>>,
    /// Finds those before ordering points instead of those of the granularity.
    ordering: Option<Box<OrderingPoints>>,
    /// The pools were changed since the last failure point, or since an event that could be one.
    changed: bool,
    /// The newest failure point with a new call stack, if it is sure to count.
    first: Option<FailurePoint>,
}

impl FailurePointsBuilder {
    /// Before the first record of a trace with these pools.
    pub(crate) fn new(pools: &[Pool], options: FailurePointOptions) -> Self {
        let image = options
            .digests
            .then(|| DigestedImage::new(pools.iter().map(|pool| pool.len_bytes)));
        Self {
            options,
            stacks: FxHashMap::default(),
            creation: Creation::default(),
            scope: Scope::new(),
            out_of_scope: 0,
            image,
            without_digests: false,
            frontier: None,
            ordering: None,
            changed: false,
            first: None,
        }
    }

    /// Content that a pool had when it was mapped; only digests need it.
    pub(crate) fn initial(&mut self, run: &ImageRun<'_>) {
        if let Some(image) = &mut self.image {
            let at = powerfail_model::Place::new(run.pool, run.offset);
            image.store(at, run.bytes);
        }
        self.bound_memory();
    }

    /// Does without digests if the pools have too many pages.
    fn bound_memory(&mut self) {
        if self
            .image
            .as_ref()
            .is_some_and(DigestedImage::is_incomplete)
        {
            self.image = None;
            self.without_digests = true;
        }
    }

    /// The next record of the trace.
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        if let Some(turn) = self.scope.push(record) {
            self.turn(record, turn);
        }
        match &record.body {
            Body::Pm(event) => {
                match &mut self.frontier {
                    None if self.ordering.is_some() => {}
                    None => self.fail_before(record, event),
                    Some(frontier) => {
                        let step = Step {
                            index: record.index,
                            thread: record.thread,
                            event: *event,
                        };
                        let is_point = frontier.is_failure_point(FailurePoints::Covering, &step);
                        frontier.apply(&step);
                        if is_point {
                            self.note(FailurePoint {
                                at: record.index,
                                stack: record.stack,
                                thread: record.thread,
                                trigger: Trigger::of(event),
                                occurrence: 0,
                                digest: None,
                            });
                        }
                    }
                }
                self.apply(event);
            }
            Body::Mark(mark) if !self.options.include_create => match mark.kind {
                MarkKind::Annotation(Annotation::CreationBegin) => {
                    self.creation.begin(record.thread);
                }
                MarkKind::Annotation(Annotation::CreationEnd) => {
                    self.creation.end(record.thread, &mut self.stacks);
                }
                _ => {}
            },
            Body::ThreadEnd => self.creation.abandon(record.thread),
            _ => {}
        }
    }

    /// The next record of the trace, if failure points before ordering points are wanted.
    fn push_ordering(&mut self, record: &Record<'_>, is_own: bool) {
        let trigger = self
            .ordering
            .as_ref()
            .and_then(|it| it.trigger(record, is_own));
        if let Some(trigger) = trigger {
            let is_kept = self.note(FailurePoint {
                at: record.index,
                stack: record.stack,
                thread: record.thread,
                trigger,
                occurrence: 0,
                digest: None,
            });
            if let Some(ordering) = &mut self.ordering
                && is_kept
            {
                ordering.take();
            }
        }
        self.push(record);
        if let Some(ordering) = &mut self.ordering {
            ordering.apply(record, is_own);
        }
    }

    /// After the last record.
    pub(crate) fn finish(self) -> FailurePointsByStack {
        let excluded = self.creation.excluded();
        let mut stacks: Vec<StackPoints> = self
            .stacks
            .into_iter()
            .map(|(stack, samples)| StackPoints {
                stack,
                occurrences: samples.occurrences,
                points: samples.into_points(),
            })
            .collect();
        if self.without_digests {
            for point in stacks.iter_mut().flat_map(|stack| &mut stack.points) {
                point.digest = None;
            }
        }
        stacks.sort_unstable_by_key(|stack| stack.points.first().map(|point| point.at));
        FailurePointsByStack {
            stacks,
            excluded,
            out_of_scope: self.out_of_scope,
            unsearched: 0,
        }
    }

    /// An annotation decides about failure points.
    fn turn(&mut self, record: &Record<'_>, turn: ScopeChange) {
        match turn {
            ScopeChange::FirstRegion => {
                // What a creation has left out lies before the region as well, and is counted once.
                let found = self.stacks.drain().map(|(_, samples)| samples.occurrences);
                self.out_of_scope += found.sum::<u64>() + self.creation.excluded();
                self.creation.forget();
            }
            ScopeChange::FailurePoint => {
                self.keep(self.annotated(record));
                if let Some(ordering) = &mut self.ordering {
                    ordering.take();
                }
            }
            ScopeChange::SkippedFailurePoint => self.out_of_scope += 1,
            ScopeChange::Closed => {
                // The moment whose crash states are those of the moments before it may come too late.
                let may_lose = |frontier: &Frontier| {
                    frontier.is_failure_point_at_end(FailurePoints::Covering)
                        && frontier.open_lines().len() > 0
                };
                let is_changed = |ordering: &OrderingPoints| ordering.is_changed();
                if self.frontier.as_deref().is_some_and(may_lose)
                    || self.ordering.as_deref().is_some_and(is_changed)
                {
                    self.keep(self.annotated(record));
                }
            }
        }
    }

    /// The moment of an annotation.
    fn annotated(&self, record: &Record<'_>) -> FailurePoint {
        FailurePoint {
            at: record.index,
            stack: record.stack,
            thread: record.thread,
            trigger: Trigger::Annotation,
            occurrence: 0,
            digest: self.image.as_ref().map(DigestedImage::digest),
        }
    }

    /// Notes the moment before an event, if it is a failure point.
    fn fail_before(&mut self, record: &Record<'_>, event: &Event<'_>) {
        let Some(trigger) = self.options.granularity.trigger(event) else {
            return;
        };
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let point = FailurePoint {
            at: record.index,
            stack: record.stack,
            thread: record.thread,
            trigger,
            occurrence: 0,
            digest: self.image.as_ref().map(DigestedImage::digest),
        };
        self.note(point);
    }

    /// The end of the trace, which is a failure point if something may still be lost there.
    fn push_end(&mut self, end: EventIndex) {
        let is_point = self
            .frontier
            .as_ref()
            .is_some_and(|frontier| frontier.is_failure_point_at_end(FailurePoints::Covering))
            || self.ordering.as_ref().is_some_and(|it| it.is_changed());
        if !is_point {
            return;
        }
        if !self.scope.admits_failure_at_end() {
            self.out_of_scope += 1;
            return;
        }
        self.keep(FailurePoint {
            at: end,
            stack: StackId::NONE,
            thread: ThreadIndex(0),
            trigger: Trigger::End,
            occurrence: 0,
            digest: None,
        });
    }

    /// A failure point before an event, if annotations let it count. Whether they do.
    fn note(&mut self, point: FailurePoint) -> bool {
        let counts = self.scope.admits_failure(point.thread);
        if counts {
            self.keep(point);
        } else if !self.scope.is_in_heap(point.thread) {
            self.out_of_scope += 1;
        }
        counts
    }

    fn keep(&mut self, point: FailurePoint) {
        self.creation.note(point.stack, &self.stacks);
        match self.stacks.get_mut(&point.stack) {
            Some(samples) => samples.push(point, self.options.per_stack),
            None => {
                let random = Random::stream(self.options.seed, point.stack.0.into());
                self.stacks.insert(point.stack, Samples::new(point, random));
                if !self.creation.is_going_on() {
                    self.first = Some(point);
                }
            }
        }
    }

    fn apply(&mut self, event: &Event<'_>) {
        match *event {
            Event::Store { at, bytes, .. } => {
                self.changed |= !bytes.is_empty();
                if let Some(image) = &mut self.image {
                    image.store(at, bytes);
                    self.bound_memory();
                }
            }
            Event::Resize { pool, len_bytes } => {
                self.changed = true;
                if let Some(image) = &mut self.image {
                    image.resize(pool, len_bytes);
                }
            }
            Event::Flush { .. } | Event::Fence(_) | Event::Sync { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use powerfail_model::{FenceKind, Place, PoolIndex, PoolOffset, StoreKind};

    use super::*;

    /// The digests of the points of a run that stores to one page after the other, with memory for so many pages.
    fn digests_with(pages: usize) -> Vec<bool> {
        let options = FailurePointOptions {
            granularity: Granularity::Fence,
            per_stack: 0,
            ..FailurePointOptions::default()
        };
        let mut builder = FailurePointsBuilder::new(&[], options);
        builder.image = Some(DigestedImage::with_pages([1 << 20], pages));
        for number in 0..6 {
            let at = Place::new(PoolIndex(0), PoolOffset(number / 2 * 4096));
            let event = if number % 2 == 0 {
                Event::Store {
                    kind: StoreKind::Plain,
                    at,
                    bytes: &[1],
                }
            } else {
                Event::Fence(FenceKind::Sfence)
            };
            builder.push(&Record {
                index: EventIndex(number),
                thread: ThreadIndex(0),
                stack: StackId::NONE,
                body: Body::Pm(event),
            });
        }
        let found = builder.finish();
        let points = found.stacks.iter().flat_map(|stack| &stack.points);
        points.map(|point| point.digest.is_some()).collect()
    }

    #[test]
    fn without_memory_no_point_has_a_digest() {
        assert_eq!(digests_with(3), [true; 3]);
        assert_eq!(digests_with(2), [false; 3]);
    }
}
