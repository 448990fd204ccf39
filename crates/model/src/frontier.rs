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
//! 7. Under `eadr` an ordinary store is durable as a whole, even one that crosses lines: positions
//!    are between events, and there is none between the pieces of one.

use num_bigint::BigUint;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{Event, FlushKind, Step, StoreKind};
use crate::ids::{EventIndex, LineId, LineIndex, Place, PoolIndex, PoolOffset, ThreadIndex};
use crate::image::{Image, SparseImage};
use crate::line::OpenLine;
use crate::open_lines::{OpenLineSlot, OpenLines};
use crate::rules::{Domain, Rules};
use crate::states::CrashStates;
use crate::version_counts::VersionCounts;

/// What may survive a crash at the present position of a forward pass over a trace.
#[derive(Clone, Debug)]
pub struct Frontier<I = SparseImage> {
    rules: Rules,
    newest: I,
    open: OpenLines,
    /// The lines in which each thread's next fence raises the floor. Never an entry without effect.
    promised: FxHashMap<ThreadIndex, FxHashSet<OpenLineSlot>>,
    /// How many open lines have each number of versions: the factors of the number of states.
    version_counts: VersionCounts,
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
            open: OpenLines::default(),
            promised: FxHashMap::default(),
            version_counts: VersionCounts::default(),
            grown: true,
            stored: false,
        }
    }

    /// The parameters of the model.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// The pools with every store so far.
    pub const fn newest(&self) -> &I {
        &self.newest
    }

    /// Moves over one event. The cost is that of the lines it touches.
    pub fn apply(&mut self, step: &Step<'_>) {
        self.apply_and(step, |_, _| {});
    }

    /// Moves over one event, and tells for each line whose floor it raises up to which event its stores are
    /// durable now. That happens before the event's own store, if it is one.
    pub fn apply_and(&mut self, step: &Step<'_>, mut risen: impl FnMut(LineId, EventIndex)) {
        let risen = &mut risen;
        if self.grown && self.raises_floor(step) {
            self.grown = false;
        }
        match step.event {
            Event::Store { kind, at, bytes } => {
                if kind == StoreKind::Locked {
                    self.fence(step.thread, risen);
                }
                self.store(step, kind, at, bytes, risen);
            }
            Event::Flush { kind, at } => {
                if self.rules.domain == Domain::Adr {
                    let line = self.line_of(at);
                    match kind {
                        FlushKind::Clflush => self.make_sure(line, step.index, risen),
                        FlushKind::Clflushopt | FlushKind::Clwb => {
                            self.promise(step.thread, line, step.index);
                        }
                    }
                }
                self.stored = false;
            }
            Event::Fence(_) => {
                self.fence(step.thread, risen);
                self.stored = false;
            }
            Event::Sync {
                pool,
                offset,
                len_bytes,
            } => {
                for line in self.open_lines_in(pool, offset, len_bytes) {
                    self.make_sure(line, step.index, risen);
                }
                self.fence(step.thread, risen);
                self.stored = false;
            }
            Event::Resize { pool, len_bytes } => self.resize(pool, len_bytes, risen),
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
    /// is not a crash: it is the final image.
    pub fn is_failure_point_at_end(&self, points: FailurePoints) -> bool {
        match points {
            FailurePoints::Covering => self.grown,
            FailurePoints::Prefix => false,
        }
    }

    /// The open lines, in no particular order. See [`Self::open_lines_sorted`].
    pub fn open_lines(&self) -> impl ExactSizeIterator<Item = &OpenLine> {
        self.open.iter()
    }

    /// The open lines by pool and offset.
    pub fn open_lines_sorted(&self) -> Vec<&OpenLine> {
        let mut lines: Vec<&OpenLine> = self.open.iter().collect();
        lines.sort_unstable_by_key(|line| line.id());
        lines
    }

    /// A line, if it is open.
    pub fn open_line(&self, id: LineId) -> Option<&OpenLine> {
        self.open.slot(id).map(|slot| self.open.line(slot))
    }

    /// The content of a line that is surely durable, whether it is open or not.
    pub fn floor(&self, id: LineId) -> Vec<u8> {
        if let Some(line) = self.open_line(id) {
            return line.floor().to_vec();
        }
        let mut content = vec![0; self.rules.domain.line_bytes()];
        self.newest.read(self.start_of(id), &mut content);
        content
    }

    /// How many combinations of versions a crash here can leave. Costs no pass over the lines: the
    /// factors are kept.
    pub fn crash_state_count(&self) -> BigUint {
        self.version_counts.product()
    }

    /// The decimal logarithm of [`Self::crash_state_count`], which costs nearly nothing even where
    /// the number itself has a hundred thousand digits.
    pub fn crash_state_count_log10(&self) -> f64 {
        self.version_counts.log10()
    }

    /// How many different contents a crash here can leave: silent stores make no difference.
    pub fn distinct_state_count(&self) -> BigUint {
        let contents = self.open.iter().map(|line| line.distinct_versions().len());
        contents.collect::<VersionCounts>().product()
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
                    && self.open.slot(self.line_of(at)).is_some()
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
    fn resize(
        &mut self,
        pool: PoolIndex,
        len_bytes: u64,
        risen: &mut impl FnMut(LineId, EventIndex),
    ) {
        let line_bytes = self.rules.domain.line_bytes() as u64;
        let cut: Vec<LineId> = self
            .open
            .ids()
            .filter(|id| id.pool == pool && (id.line.0 + 1).saturating_mul(line_bytes) > len_bytes)
            .collect();
        for id in cut {
            let start = id.line.0 * line_bytes;
            if start >= len_bytes {
                self.make_sure(id, EventIndex(u64::MAX), risen);
            } else if let Some(slot) = self.open.slot(id) {
                self.open.line_mut(slot).cut((len_bytes - start) as usize);
            }
        }
        self.newest.resize(pool, len_bytes);
        self.grown = true;
        self.stored = true;
    }

    fn store(
        &mut self,
        step: &Step<'_>,
        kind: StoreKind,
        at: Place,
        bytes: &[u8],
        risen: &mut impl FnMut(LineId, EventIndex),
    ) {
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
                self.make_sure(id, step.index, risen);
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
        let slot = self.open.slot_or_open(id, |line| {
            line.reopen(id, line_bytes, |floor| self.newest.read(start, floor));
        });
        let line = self.open.line_mut(slot);
        line.push(event, offset_in_line, bytes);
        let now = line.version_count();
        self.version_counts.change(now - 1, now);
    }

    /// The next fence of `thread` makes sure what `line` holds up to `event`.
    fn promise(&mut self, thread: ThreadIndex, line: LineId, event: EventIndex) {
        let Some(slot) = self.open.slot(line) else {
            return;
        };
        if self.open.line_mut(slot).promise(thread, event) {
            self.promised.entry(thread).or_default().insert(slot);
        }
    }

    fn fence(&mut self, thread: ThreadIndex, risen: &mut impl FnMut(LineId, EventIndex)) {
        let Some(promised) = self.promised.get_mut(&thread) else {
            return;
        };
        if promised.is_empty() {
            return;
        }
        let mut slots = std::mem::take(promised);
        for slot in slots.drain() {
            if let Some(event) = self.open.line(slot).promised_to(thread) {
                self.raise_floor(slot, event, risen);
            }
        }
        // Give the allocation back; nothing was promised meanwhile.
        self.promised.insert(thread, slots);
    }

    fn make_sure(
        &mut self,
        id: LineId,
        event: EventIndex,
        risen: &mut impl FnMut(LineId, EventIndex),
    ) {
        if let Some(slot) = self.open.slot(id) {
            self.raise_floor(slot, event, risen);
        }
    }

    /// Raises the floor of a line over all stores up to `event`, and forgets it if nothing is open.
    fn raise_floor(
        &mut self,
        slot: OpenLineSlot,
        event: EventIndex,
        risen: &mut impl FnMut(LineId, EventIndex),
    ) {
        let line = self.open.line_mut(slot);
        risen(line.id(), event);
        let before = line.version_count();
        line.raise_floor(event);
        self.version_counts.change(before, line.version_count());
        let is_closed = line.version_count() == 1;
        line.withdraw_promises(|thread| {
            if let Some(slots) = self.promised.get_mut(&thread) {
                slots.remove(&slot);
            }
        });
        if is_closed {
            self.open.close(slot);
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
                .filter(|&id| self.open.slot(id).is_some())
                .collect()
        } else {
            self.open
                .ids()
                .filter(|id| id.pool == pool && (first..=last).contains(&id.line.0))
                .collect()
        }
    }
}
