//! The model of a recorded trace: one forward pass that knows, at each moment, what may survive.
//!
//! Semantics: `tests/litmus/README.md`, section "Traces". A trace has one recorded order, the order
//! in which stores reached memory, so there are no store buffers here; programs with all their
//! interleavings are the matter of [`crate::program`].
//!
//! The frontier keeps the newest bytes (in an [`Image`]) and, for each *open* line, its durable
//! floor with the stores above it. A line that becomes sure is forgotten. So the memory is that of
//! the open stores, and a step costs what it touches, whatever the length of the trace.
//!
//! Deviations from the published Px86 model, and choices where it is silent:
//!
//! 1. Flushes are synchronous: what a clflush covers is durable when the event is recorded.
//! 2. A non-temporal store keeps its recorded place among the stores of its line and is sure at its
//!    thread's next fence. Under `eadr` a later ordinary store to the line makes it sure too.
//! 3. A sync (msync, fsync, fdatasync) covers every line that its range touches, at once, and is a
//!    fence of its thread: the kernel flushes and fences on that thread's behalf.
//! 4. What the kernel writes for the program is an ordinary store.
//! 5. The words of one store under [`Atomicity::Word`](crate::Atomicity) become durable upwards.
//! 6. The length of a file is durable at once.

use std::collections::BTreeMap;

use num_bigint::BigUint;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{Event, FlushKind, Step, StoreKind};
use crate::ids::{EventIndex, LineId, LineIndex, Place, PoolIndex, PoolOffset, ThreadIndex};
use crate::image::{Image, SparseImage};
use crate::line::OpenLine;
use crate::rules::{Domain, Rules};
use crate::states::CrashStates;

/// What may survive a crash at the present position of a forward pass over a trace.
#[derive(Clone, Debug)]
pub struct Frontier<I = SparseImage> {
    rules: Rules,
    newest: I,
    open: FxHashMap<LineId, OpenLine>,
    /// The lines in which each thread's next fence raises the floor. Never an entry without effect.
    promised: FxHashMap<ThreadIndex, FxHashSet<LineId>>,
    /// How many open lines have each number of versions: the factors of the number of states.
    version_counts: BTreeMap<usize, u32>,
    /// Lines that were closed: their allocations are used again.
    spare: Vec<OpenLine>,
    /// A state became possible since the last failure point.
    grown: bool,
    /// A store happened since the last flush or fence.
    stored: bool,
}

/// Two kinds of moments at which to let the power fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailurePoints {
    /// By subsumption: the fewest moments whose crash states are those of all moments. Between two
    /// rises of a floor the states only grow, so it is the moment before each event that raises
    /// one, unless no state was added since the moment before; and the end.
    Covering,
    /// Before every flush and fence that follows a store: where all stores so far are taken as
    /// durable, these moments have different images.
    Prefix,
}

impl<I: Image> Frontier<I> {
    /// A pass over a trace that starts with the pools as they are in `image`.
    pub fn new(rules: Rules, image: I) -> Self {
        Self {
            rules,
            newest: image,
            open: FxHashMap::default(),
            promised: FxHashMap::default(),
            version_counts: BTreeMap::new(),
            spare: Vec::new(),
            grown: true,
            stored: false,
        }
    }

    /// The parameters of the model.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// The pools with every store so far.
    pub fn newest(&self) -> &I {
        &self.newest
    }

    /// The same, to add pools that are mapped in mid-run. Bytes of open lines are not to be changed.
    pub fn newest_mut(&mut self) -> &mut I {
        &mut self.newest
    }

    /// Moves over one event. The cost is that of the lines it touches.
    pub fn apply(&mut self, step: &Step<'_>) {
        if self.grown && self.raises_floor(step) {
            self.grown = false;
        }
        match step.event {
            Event::Store { kind, at, bytes } => {
                if kind == StoreKind::Locked {
                    self.fence(step.thread);
                }
                self.store(step, kind, at, bytes);
            }
            Event::Flush { kind, at } => {
                if self.rules.domain == Domain::Adr {
                    let line = self.line_of(at);
                    match kind {
                        FlushKind::Clflush => self.make_sure(line, step.index),
                        FlushKind::Clflushopt | FlushKind::Clwb => {
                            self.promise(step.thread, line, step.index);
                        }
                    }
                }
                self.stored = false;
            }
            Event::Fence(_) => {
                self.fence(step.thread);
                self.stored = false;
            }
            Event::Sync {
                pool,
                offset,
                len_bytes,
            } => {
                for line in self.open_lines_in(pool, offset, len_bytes) {
                    self.make_sure(line, step.index);
                }
                self.fence(step.thread);
                self.stored = false;
            }
            Event::Resize { pool, len_bytes } => self.resize(pool, len_bytes),
        }
    }

    /// Whether the moment before `step`, which is not applied yet, is a failure point.
    pub fn is_failure_point(&self, points: FailurePoints, step: &Step<'_>) -> bool {
        match points {
            FailurePoints::Covering => self.grown && self.raises_floor(step),
            FailurePoints::Prefix => {
                self.stored
                    && match step.event {
                        Event::Store { kind, .. } => kind == StoreKind::Locked,
                        Event::Flush { .. } | Event::Fence(_) | Event::Sync { .. } => true,
                        Event::Resize { .. } => false,
                    }
            }
        }
    }

    /// Whether the end of the trace, if it is here, is a failure point. A prefix crash at the end
    /// is no crash: it is the final image.
    pub fn is_failure_point_at_end(&self, points: FailurePoints) -> bool {
        match points {
            FailurePoints::Covering => self.grown,
            FailurePoints::Prefix => false,
        }
    }

    /// The open lines, in no particular order. See [`Self::open_lines_sorted`].
    pub fn open_lines(&self) -> impl ExactSizeIterator<Item = &OpenLine> {
        self.open.values()
    }

    /// The open lines by pool and offset.
    pub fn open_lines_sorted(&self) -> Vec<&OpenLine> {
        let mut lines: Vec<&OpenLine> = self.open.values().collect();
        lines.sort_unstable_by_key(|line| line.id());
        lines
    }

    /// A line, if it is open.
    pub fn open_line(&self, id: LineId) -> Option<&OpenLine> {
        self.open.get(&id)
    }

    /// The content of a line that is surely durable, whether it is open or not.
    pub fn floor(&self, id: LineId) -> Vec<u8> {
        if let Some(line) = self.open.get(&id) {
            return line.floor().to_vec();
        }
        let mut content = vec![0; self.rules.domain.line_bytes()];
        self.newest.read(self.start_of(id), &mut content);
        content
    }

    /// How many combinations of versions a crash here can leave. Costs the number of distinct
    /// version counts among the open lines, not the number of lines.
    pub fn crash_state_count(&self) -> BigUint {
        self.version_counts
            .iter()
            .map(|(&versions, &lines)| BigUint::from(versions).pow(lines))
            .product()
    }

    /// How many different contents a crash here can leave: silent stores make no difference.
    pub fn distinct_state_count(&self) -> BigUint {
        let mut factors = BTreeMap::new();
        for line in self.open.values() {
            *factors.entry(line.distinct_versions().len()).or_insert(0) += 1;
        }
        factors
            .iter()
            .map(|(&contents, &lines): (_, &u32)| BigUint::from(contents).pow(lines))
            .product()
    }

    /// Every combination of versions, each once, starting with nothing but the floors.
    pub fn crash_states(&self) -> CrashStates {
        CrashStates::new(
            self.open_lines_sorted()
                .iter()
                .map(|line| (line.id(), (0..line.version_count()).collect()))
                .collect(),
        )
    }

    /// Every different content, each once.
    pub fn distinct_crash_states(&self) -> CrashStates {
        CrashStates::new(
            self.open_lines_sorted()
                .iter()
                .map(|line| (line.id(), line.distinct_versions()))
                .collect(),
        )
    }

    fn line_of(&self, at: Place) -> LineId {
        let line = at.offset.0 / self.rules.domain.line_bytes() as u64;
        LineId {
            pool: at.pool,
            line: LineIndex(line),
        }
    }

    fn start_of(&self, id: LineId) -> Place {
        let offset = id.line.0 * self.rules.domain.line_bytes() as u64;
        Place::new(id.pool, PoolOffset(offset))
    }

    /// Whether `step` raises the floor of some line.
    fn raises_floor(&self, step: &Step<'_>) -> bool {
        let fence_raises = || {
            self.promised
                .get(&step.thread)
                .is_some_and(|lines| !lines.is_empty())
        };
        match step.event {
            Event::Store { kind, bytes, .. } => match self.rules.domain {
                Domain::Adr => kind == StoreKind::Locked && fence_raises(),
                Domain::Eadr => {
                    kind != StoreKind::NonTemporal && !bytes.is_empty()
                        || kind == StoreKind::Locked && fence_raises()
                }
                Domain::PageCache => false,
            },
            Event::Flush { kind, at } => {
                self.rules.domain == Domain::Adr
                    && kind == FlushKind::Clflush
                    && self.open.contains_key(&self.line_of(at))
            }
            Event::Fence(_) => fence_raises(),
            Event::Sync {
                pool,
                offset,
                len_bytes,
            } => fence_raises() || !self.open_lines_in(pool, offset, len_bytes).is_empty(),
            // What was beyond the new end is lost at once, whatever was durable of it.
            Event::Resize { .. } => true,
        }
    }

    /// Makes the bytes beyond the new end zero in every version.
    fn resize(&mut self, pool: PoolIndex, len_bytes: u64) {
        let line_bytes = self.rules.domain.line_bytes() as u64;
        let cut: Vec<LineId> = self
            .open
            .keys()
            .filter(|id| id.pool == pool && (id.line.0 + 1).saturating_mul(line_bytes) > len_bytes)
            .copied()
            .collect();
        for id in cut {
            let start = id.line.0 * line_bytes;
            if start >= len_bytes {
                self.make_sure(id, EventIndex(u64::MAX));
            } else if let Some(line) = self.open.get_mut(&id) {
                line.cut((len_bytes - start) as usize);
            }
        }
        self.newest.clear_from(pool, PoolOffset(len_bytes));
        self.grown = true;
        self.stored = true;
    }

    fn store(&mut self, step: &Step<'_>, kind: StoreKind, at: Place, bytes: &[u8]) {
        let line_bytes = self.rules.domain.line_bytes();
        let piece_bytes = self.rules.piece_bytes();
        let sure_at_once = self.rules.domain == Domain::Eadr && kind != StoreKind::NonTemporal;
        let mut rest = bytes;
        let mut at = at;
        while !rest.is_empty() {
            let in_line = (at.offset.0 % line_bytes as u64) as usize;
            let in_piece = (at.offset.0 % piece_bytes as u64) as usize;
            let (piece, after) = rest.split_at(rest.len().min(piece_bytes - in_piece));
            let id = self.line_of(at);
            if sure_at_once {
                self.make_sure(id, step.index);
                self.newest.write(at, piece);
            } else {
                self.push(id, step.index, in_line, piece);
                self.newest.write(at, piece);
                if kind == StoreKind::NonTemporal && self.rules.domain != Domain::PageCache {
                    self.promise(step.thread, id, step.index);
                }
            }
            at.offset.0 = at.offset.0.wrapping_add(piece.len() as u64);
            rest = after;
        }
        if !bytes.is_empty() {
            self.grown = true;
            self.stored = true;
        }
    }

    fn push(&mut self, id: LineId, event: EventIndex, offset_in_line: usize, bytes: &[u8]) {
        let start = self.start_of(id);
        let line_bytes = self.rules.domain.line_bytes();
        let line = self.open.entry(id).or_insert_with(|| {
            let mut line = self.spare.pop().unwrap_or_default();
            line.reopen(id, line_bytes, |floor| self.newest.read(start, floor));
            line
        });
        line.push(event, offset_in_line, bytes);
        let now = line.version_count();
        recount(&mut self.version_counts, now - 1, now);
    }

    /// The next fence of `thread` makes sure what `line` holds up to `event`.
    fn promise(&mut self, thread: ThreadIndex, line: LineId, event: EventIndex) {
        let Some(open) = self.open.get_mut(&line) else {
            return;
        };
        if let Some((_, covered)) = open.promises.iter_mut().find(|(of, _)| *of == thread) {
            *covered = event;
        } else {
            open.promises.push((thread, event));
            self.promised.entry(thread).or_default().insert(line);
        }
    }

    fn fence(&mut self, thread: ThreadIndex) {
        let Some(lines) = self.promised.get_mut(&thread) else {
            return;
        };
        if lines.is_empty() {
            return;
        }
        let mut lines = std::mem::take(lines);
        for line in lines.drain() {
            let promised = self.open.get(&line).and_then(|open| {
                open.promises
                    .iter()
                    .find(|(of, _)| *of == thread)
                    .map(|&(_, event)| event)
            });
            if let Some(event) = promised {
                self.make_sure(line, event);
            }
        }
        // Give the allocation back; nothing was promised meanwhile.
        self.promised.insert(thread, lines);
    }

    /// Raises the floor of a line over all stores up to `event`, and forgets it if nothing is open.
    fn make_sure(&mut self, id: LineId, event: EventIndex) {
        let Some(line) = self.open.get_mut(&id) else {
            return;
        };
        let before = line.version_count();
        line.raise_floor(event);
        let after = line.version_count();
        recount(&mut self.version_counts, before, after);
        match line.oldest_open() {
            None => {
                if let Some(line) = self.open.remove(&id) {
                    for (thread, _) in &line.promises {
                        withdraw(&mut self.promised, *thread, id);
                    }
                    self.spare.push(line);
                }
            }
            Some(oldest) => line.promises.retain(|&(thread, covered)| {
                let useful = covered >= oldest;
                if !useful {
                    withdraw(&mut self.promised, thread, id);
                }
                useful
            }),
        }
    }

    fn open_lines_in(&self, pool: PoolIndex, offset: PoolOffset, len_bytes: u64) -> Vec<LineId> {
        if len_bytes == 0 {
            return Vec::new();
        }
        let line_bytes = self.rules.domain.line_bytes() as u64;
        let first = offset.0 / line_bytes;
        let last = offset.0.saturating_add(len_bytes - 1) / line_bytes;
        if last - first < self.open.len() as u64 {
            (first..=last)
                .map(|line| LineId {
                    pool,
                    line: LineIndex(line),
                })
                .filter(|id| self.open.contains_key(id))
                .collect()
        } else {
            self.open
                .keys()
                .filter(|id| id.pool == pool && (first..=last).contains(&id.line.0))
                .copied()
                .collect()
        }
    }
}

/// One line had `before` versions and has `after` now; lines with one version are not counted.
fn recount(version_counts: &mut BTreeMap<usize, u32>, before: usize, after: usize) {
    if before > 1
        && let Some(lines) = version_counts.get_mut(&before)
    {
        *lines -= 1;
        if *lines == 0 {
            version_counts.remove(&before);
        }
    }
    if after > 1 {
        *version_counts.entry(after).or_insert(0) += 1;
    }
}

fn withdraw(
    promised: &mut FxHashMap<ThreadIndex, FxHashSet<LineId>>,
    thread: ThreadIndex,
    line: LineId,
) {
    if let Some(lines) = promised.get_mut(&thread) {
        lines.remove(&line);
    }
}
