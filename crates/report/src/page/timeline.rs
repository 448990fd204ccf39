//! The trace as a whole: open lines and crash states over time, in a fixed number of buckets.
//!
//! The page stays small however long the trace is: a bucket keeps the largest values of its events, so that no peak is
//! lost. A trace with no more events than buckets is shown event by event. [`Events`] is that of pools, [`FileEvents`] that
//! of files.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use powerfail_model::files::{self, FileSystem, Operation, OperationIndex};
use powerfail_model::{Event, FailurePoints, Frontier, Image, Rules, Step, StoreKind};
use powerfail_trace::{Completeness, DIRECTORY_NOTE, POOL_NOTE, Trace};

use super::model::{PagePool, PageTrace};

/// More would make the page large and show no more.
const BUCKETS_MAX: u64 = 1 << 17;

/// What is known of a trace before it is read.
pub(super) fn header(trace: &Trace, rules: Rules, files: Option<FileSystem>) -> PageTrace {
    let trees = trace.trees().iter();
    let pools = trace.pools().iter().map(|pool| PagePool {
        path: pool.path.display().to_string(),
        bytes: pool.len_bytes,
    });
    PageTrace {
        events: trace.event_count(),
        of: if files.is_some() { "files" } else { "lines" },
        rules: files.map_or(rules.domain.name(), FileSystem::as_str),
        trees: trees.map(|it| shown(trace, &it.path)).collect(),
        pools: pools.collect(),
        threads: trace.threads().len(),
        bucket_events: 1,
        buckets: 0,
        open: String::new(),
        states: String::new(),
        stores: String::new(),
        flushes: String::new(),
        fences: String::new(),
        total_stores: 0,
        total_flushes: 0,
        total_fences: 0,
        state_space: Vec::new(),
        largest: None,
        is_whole: trace.completeness() == Completeness::Complete,
    }
}

/// The path of a tree. A fresh directory has a random name, and is shown as the user wrote it.
fn shown(trace: &Trace, path: &Path) -> String {
    let is = |note: &str, of: fn(&Path) -> Option<&Path>| {
        let fresh = trace.meta().note(note).map(Path::new);
        fresh.and_then(of) == Some(path)
    };
    if is(DIRECTORY_NOTE, |it| Some(it)) {
        "{dir}".to_owned()
    } else if is(POOL_NOTE, Path::parent) {
        "{pool}/..".to_owned()
    } else {
        path.display().to_string()
    }
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    open: u32,
    states: f32,
    stores: u32,
    flushes: u32,
    fences: u32,
}

/// What happens in a pass over the trace.
pub(super) struct Events {
    width: u64,
    buckets: Vec<Bucket>,
    state_space: BTreeMap<u64, u64>,
    largest: Option<(u64, f64)>,
}

impl Events {
    pub(super) fn new(trace: &Trace) -> Self {
        let events = trace.event_count();
        let bucket_events = events.div_ceil(BUCKETS_MAX).max(1);
        Self {
            width: bucket_events,
            buckets: vec![Bucket::default(); events.div_ceil(bucket_events) as usize],
            state_space: BTreeMap::new(),
            largest: None,
        }
    }

    /// Before an event is applied.
    pub(super) fn before<I: Image>(&mut self, frontier: &Frontier<I>, step: &Step<'_>) {
        if frontier.is_failure_point(FailurePoints::Covering, step) {
            self.moment(frontier, step.index.0);
        }
    }

    /// A moment that covers others.
    #[expect(clippy::cast_sign_loss, reason = "a number of states is at least one")]
    pub(super) fn moment<I: Image>(&mut self, frontier: &Frontier<I>, event: u64) {
        let states = frontier.crash_state_count_log10();
        *self.state_space.entry(states.floor() as u64).or_default() += 1;
        if self.largest.is_none_or(|(_, largest)| states > largest) {
            self.largest = Some((event, states));
        }
    }

    /// After it was applied.
    pub(super) fn after<I: Image>(&mut self, frontier: &Frontier<I>, step: &Step<'_>) {
        let number = (step.index.0 / self.width) as usize;
        let Some(bucket) = self.buckets.get_mut(number) else {
            return;
        };
        let open = u32::try_from(frontier.open_lines().len()).unwrap_or(u32::MAX);
        bucket.open = bucket.open.max(open);
        bucket.states = bucket.states.max(frontier.crash_state_count_log10() as f32);
        match step.event {
            Event::Store { kind, .. } => {
                bucket.stores += 1;
                bucket.fences += u32::from(kind == StoreKind::Locked);
            }
            Event::Flush { .. } => bucket.flushes += 1,
            Event::Fence(_) => bucket.fences += 1,
            Event::Sync { .. } => {
                bucket.flushes += 1;
                bucket.fences += 1;
            }
            Event::Resize { .. } => {}
        }
    }

    pub(super) fn finish_into(mut self, to: &mut PageTrace) {
        // A bucket without an event on memory has what was before it.
        let mut last = Bucket::default();
        for bucket in &mut self.buckets {
            if (bucket.stores, bucket.flushes, bucket.fences) == (0, 0, 0) {
                (bucket.open, bucket.states) = (last.open, last.states);
            }
            last = *bucket;
        }
        let numbers = |of: fn(&Bucket) -> u32| {
            let bytes: Vec<u8> = self
                .buckets
                .iter()
                .flat_map(|it| of(it).to_le_bytes())
                .collect();
            BASE64_STANDARD.encode(bytes)
        };
        to.bucket_events = self.width;
        to.buckets = self.buckets.len();
        to.open = numbers(|it| it.open);
        to.states = numbers(|it| it.states.to_bits());
        to.stores = numbers(|it| it.stores);
        to.flushes = numbers(|it| it.flushes);
        to.fences = numbers(|it| it.fences);
        let sum = |of: fn(&Bucket) -> u32| self.buckets.iter().map(|it| u64::from(of(it))).sum();
        to.total_stores = sum(|it| it.stores);
        to.total_flushes = sum(|it| it.flushes);
        to.total_fences = sum(|it| it.fences);
        to.state_space = self.state_space.into_iter().collect();
        to.largest = self.largest;
    }
}

/// So many open operations are looked at after each sync. With more, some syncs are left out, and the number can be too
/// high for a while.
const OPEN_MAX: usize = 512;

/// The same for operations on files.
pub(super) struct FileEvents {
    events: Events,
    open: Vec<(OperationIndex, Operation)>,
    /// Syncs since the open operations were last looked at.
    skipped: usize,
}

impl FileEvents {
    pub(super) fn new(trace: &Trace) -> Self {
        Self {
            events: Events::new(trace),
            open: Vec::new(),
            skipped: 0,
        }
    }

    /// After an operation was applied. `raises_floor`: it makes something durable.
    pub(super) fn after(
        &mut self,
        frontier: &files::Frontier,
        index: OperationIndex,
        operation: &Operation,
        raises_floor: bool,
    ) {
        let number = (index.0 / self.events.width) as usize;
        let Some(bucket) = self.events.buckets.get_mut(number) else {
            return;
        };
        if operation.is_namespace() {
            bucket.flushes += 1;
        } else if operation.file().is_some() {
            bucket.stores += 1;
        } else if operation.is_sync() {
            bucket.fences += 1;
        } else {
            return;
        }
        if !operation.is_sync() && !frontier.is_sure(index, operation) {
            self.open.push((index, operation.clone()));
        }
        if raises_floor {
            self.skipped += 1;
            if self.skipped * OPEN_MAX >= self.open.len() {
                self.skipped = 0;
                self.open
                    .retain(|(index, operation)| !frontier.is_sure(*index, operation));
            }
        }
        let open = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        bucket.open = bucket.open.max(open);
    }

    pub(super) fn finish_into(self, to: &mut PageTrace) {
        self.events.finish_into(to);
    }
}
