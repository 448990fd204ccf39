//! The shadow of persistent memory: what a reader after a failure has to know of each byte.

use std::collections::BTreeMap;

use powerfail_model::{
    Domain, Event, EventIndex, Frontier, LineId, LineIndex, Place, PoolIndex, PoolOffset, Step,
    StoreKind, ThreadIndex,
};
use powerfail_protocol::mark;
use powerfail_trace::{
    AnnotatedRange, Annotation, Body, Mark, MarkKind, Record, Scope, ScopeChange, Trace,
};
use rustc_hash::FxHashMap;

use crate::cells::{NEVER, Needs, Span, Stores, Time};
use crate::commits::{Change, Commits, Consistency};
use crate::judgement::{ByteWatch, Judgement, NotDurable, Persistence};
use crate::objects::Objects;
use crate::options::{CommitError, ShadowOptions};
use powerfail_lint::ranges::PoolRange;
use powerfail_lint::ranges::{Cell, LINE_BYTES, RangeMap};

/// What a reader after a failure at the present position of a trace has to know: the shadow PM of `XFDetector`.
///
/// An event costs what it touches; a commit write costs the lines stored since the last one but one. The memory is
/// that of the stores that are not durable, of the bytes that a commit variable decides about and that were
/// stored since it is known, and of the ranges that were allocated and not written.
#[derive(Clone, Debug)]
pub struct Shadow {
    domain: Domain,
    strict: bool,
    pools: Vec<String>,
    frontier: Frontier<()>,
    /// How many ordering points there were.
    now: Time,
    cells: FxHashMap<Cell, Stores>,
    commits: Commits,
    objects: Objects,
    scope: Scope,
    /// The bytes whose reads are findings, without those that are uninitialised.
    watched: BTreeMap<Cell, u64>,
    /// Lines whose floors an event has raised; empty between events.
    risen: Vec<(LineId, EventIndex)>,
    /// Lines of which something has changed; empty between events.
    changed: Vec<Cell>,
}

impl Shadow {
    /// Before the first record of a trace.
    pub fn new(trace: &Trace, options: &ShadowOptions) -> Result<Self, CommitError> {
        let pools = trace.pools().iter();
        let mut shadow = Self {
            domain: options.rules.domain,
            strict: options.strict,
            pools: pools.map(|pool| pool.path.display().to_string()).collect(),
            frontier: Frontier::new(options.rules, ()),
            now: 0,
            cells: FxHashMap::default(),
            commits: Commits::default(),
            objects: Objects::default(),
            scope: Scope::new(),
            watched: BTreeMap::new(),
            risen: Vec::new(),
            changed: Vec::new(),
        };
        for variable in &options.commit_variables {
            shadow.register(variable.at, None)?;
            for range in &variable.ranges {
                shadow.register(variable.at, Some(*range))?;
            }
        }
        Ok(shadow)
    }

    /// Moves over one record. The records have to come in their order, from the first one on.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<(), CommitError> {
        if self.scope.push(record) == Some(ScopeChange::FirstRegion) {
            self.leave_all_out();
        }
        match &record.body {
            Body::Pm(_) => {
                if let Some(step) = record.step() {
                    self.step(&step);
                }
            }
            Body::Mark(mark) => self.mark(record.index, record.thread, mark)?,
            Body::ThreadEnd => self.objects.end_thread(record.thread),
            Body::File(_)
            | Body::Mapped { .. }
            | Body::ThreadStart
            | Body::VolatileFlush { .. } => {}
        }
        Ok(())
    }

    /// The bytes of which a read would be a finding, by pool and offset; without those that may be value-aware
    /// races. Costs these bytes and no others.
    pub fn watches(&self) -> Vec<ByteWatch> {
        let mut watches: Vec<ByteWatch> = Vec::with_capacity(self.watched.len());
        let mut others = self.watched.iter().peekable();
        let watch = |cell: Cell, bytes| ByteWatch {
            pool: cell.pool,
            offset: PoolOffset(cell.offset()),
            bytes,
        };
        let uninitialised = self.objects.uninitialised.iter();
        for (cell, bytes) in uninitialised.flat_map(|(range, _)| range.cells()) {
            while let Some((&before, &mask)) = others.next_if(|(other, _)| **other < cell) {
                watches.push(watch(before, mask));
            }
            let new = watch(cell, bytes);
            match watches.last_mut() {
                // Two ranges of one line.
                Some(last) if (last.pool, last.offset) == (new.pool, new.offset) => {
                    last.bytes |= bytes;
                }
                _ => watches.push(new),
            }
            if let Some((_, mask)) = others.next_if(|(other, _)| **other == cell)
                && let Some(last) = watches.last_mut()
            {
                last.bytes |= mask;
            }
        }
        watches.extend(others.map(|(&cell, &mask)| watch(cell, mask)));
        watches
    }

    /// What a read of these bytes of the line at `offset` is, by kind and writer.
    pub fn judge(&self, pool: PoolIndex, offset: PoolOffset, bytes: u64) -> Vec<Judgement> {
        let cell = Cell::of(pool, offset);
        let mut judgements = Vec::new();
        let mut rest = bytes;
        for (mask, allocation) in self.objects.uninitialised.in_cell(cell) {
            add(&mut judgements, bytes & mask, |bytes| {
                Judgement::Uninitialised { bytes, allocation }
            });
            rest &= !mask;
        }
        rest &= !self.commits.own_bytes(cell);
        let Some(stores) = self.cells.get(&cell) else {
            return judgements;
        };
        let mut spans: Vec<&Span> = stores.spans.iter().collect();
        spans.sort_by_key(|span| span.writer);
        for span in spans {
            let writer = span.writer;
            if !span.is_durable() {
                if self.strict && !span.left_out {
                    let why = stores.why(span);
                    add(&mut judgements, span.bytes & rest, |bytes| {
                        Judgement::Race { bytes, writer, why }
                    });
                }
                continue;
            }
            for (decided, variable) in self.commits.deciding(cell) {
                let bytes = span.bytes & decided & rest;
                match self.commits.consistency(variable, span) {
                    Consistency::Consistent => {}
                    Consistency::Uncommitted(commit) => {
                        add(&mut judgements, bytes, |bytes| Judgement::Uncommitted {
                            bytes,
                            writer,
                            commit,
                        });
                    }
                    Consistency::Stale(commits) => {
                        add(&mut judgements, bytes, |bytes| Judgement::Stale {
                            bytes,
                            writer,
                            commits,
                        });
                    }
                }
            }
        }
        judgements
    }

    /// Whether a commit variable decides about all of these bytes that are not surely durable, and none was committed since
    /// it was stored: they are not valid, whether or not they survive.
    pub fn is_uncommitted(&self, pool: PoolIndex, offset: PoolOffset, len: u64) -> bool {
        let range = PoolRange { pool, offset, len };
        let mut is_any = false;
        for (cell, bytes) in range.cells() {
            let Some(stores) = self.cells.get(&cell) else {
                continue;
            };
            let open = stores.spans.iter().filter(|span| !span.is_durable());
            for span in open.filter(|span| span.bytes & bytes != 0) {
                let mut rest = span.bytes & bytes;
                for (decided, variable) in self.commits.deciding(cell) {
                    if self.commits.consistency(variable, span) == Consistency::Uncommitted(None) {
                        rest &= !decided;
                    }
                }
                if rest != 0 {
                    return false;
                }
                is_any = true;
            }
        }
        is_any
    }

    /// Who wrote the newest of these bytes that are not surely durable, and why they are not; none if all are.
    pub fn why_not_durable(
        &self,
        pool: PoolIndex,
        offset: PoolOffset,
        len: u64,
    ) -> Option<(EventIndex, NotDurable)> {
        let range = PoolRange { pool, offset, len };
        let mut newest: Option<(EventIndex, NotDurable)> = None;
        for (cell, bytes) in range.cells() {
            let Some(stores) = self.cells.get(&cell) else {
                continue;
            };
            let open = stores.spans.iter().filter(|span| !span.is_durable());
            for span in open.filter(|span| span.bytes & bytes != 0) {
                if newest.is_none_or(|(writer, _)| writer < span.writer) {
                    newest = Some((span.writer, stores.why(span)));
                }
            }
        }
        newest
    }

    /// Whether some of these bytes are not surely durable, and all that are not were stored where annotations of the
    /// program want no findings: a read of them is none.
    pub fn is_left_out(&self, pool: PoolIndex, offset: PoolOffset, len: u64) -> bool {
        let range = PoolRange { pool, offset, len };
        let mut open = range
            .cells()
            .filter_map(|(cell, bytes)| Some((self.cells.get(&cell)?, bytes)))
            .flat_map(|(stores, bytes)| {
                let touched = stores.spans.iter();
                touched.filter(move |span| span.bytes & bytes != 0 && !span.is_durable())
            })
            .peekable();
        open.peek().is_some() && open.all(|span| span.left_out)
    }

    /// The persistence state of a byte.
    pub fn persistence(&self, pool: PoolIndex, offset: PoolOffset) -> Persistence {
        match self.why_not_durable(pool, offset, 1) {
            None => Persistence::Settled,
            Some((_, NotDurable::NotFenced { .. })) => Persistence::WritebackPending,
            Some(_) => Persistence::Modified,
        }
    }

    /// Whether all of these bytes belong to commit variables: reading them is not a race.
    pub fn is_commit_variable(&self, pool: PoolIndex, offset: PoolOffset, len: u64) -> bool {
        let range = PoolRange { pool, offset, len };
        range
            .cells()
            .all(|(cell, bytes)| bytes & !self.commits.own_bytes(cell) == 0)
    }

    /// The bytes of the line at `offset` that belong to commit variables.
    pub fn commit_variable_bytes(&self, pool: PoolIndex, offset: PoolOffset) -> u64 {
        self.commits.own_bytes(Cell::of(pool, offset))
    }

    fn step(&mut self, step: &Step<'_>) {
        let mut risen = std::mem::take(&mut self.risen);
        self.frontier
            .apply_and(step, |line, event| risen.push((line, event)));
        let fences_order = self.domain != Domain::PageCache;
        let (orders, orders_alone) = match step.event {
            Event::Fence(_) => (fences_order, false),
            Event::Sync { .. } => (true, false),
            Event::Store { kind, at, bytes } => {
                // Where stores are durable in their order, each of them is an ordering point; those that make up one
                // commit write stay together.
                let alone = self.domain == Domain::Eadr
                    && !bytes.is_empty()
                    && !self.commits.touches(range_of(at, bytes.len()));
                (kind == StoreKind::Locked && fences_order || alone, alone)
            }
            Event::Flush { .. } | Event::Resize { .. } => (false, false),
        };
        if orders || !risen.is_empty() {
            self.now += 1;
        }
        for (line, event) in risen.drain(..) {
            self.rise(line, event);
        }
        self.risen = risen;
        match step.event {
            Event::Store { kind, at, bytes } => self.store(step, kind, range_of(at, bytes.len())),
            Event::Flush { at, .. } => self.flush(at, step.index),
            Event::Resize { pool, len_bytes } => self.resize(pool, len_bytes),
            Event::Fence(_) | Event::Sync { .. } => {}
        }
        if orders_alone {
            self.now += 1;
        }
        self.evaluate_changed();
    }

    /// All stores to a line of the model up to `event` are durable now.
    fn rise(&mut self, line: LineId, event: EventIndex) {
        self.commits.rise(line, event, self.now);
        let cells_in_line = self.domain.line_bytes() as u64 / LINE_BYTES;
        for number in 0..cells_in_line {
            let cell = Cell {
                pool: line.pool,
                line: line.line.0 * cells_in_line + number,
            };
            if let Some(stores) = self.cells.get_mut(&cell) {
                stores.rise(event, self.now);
                self.changed.push(cell);
            }
        }
    }

    fn store(&mut self, step: &Step<'_>, kind: StoreKind, range: PoolRange) {
        if range.len == 0 {
            return;
        }
        let needs = match kind {
            StoreKind::NonTemporal => Needs::Fence,
            _ if self.domain == Domain::Eadr => Needs::Nothing,
            _ => Needs::Flush,
        };
        let is_sure = needs == Needs::Nothing;
        let left_out = !self.scope.admits_findings(step.thread);
        self.objects.uninitialised.remove(range);
        for (cell, bytes) in range.cells() {
            let restored = self.objects.restored(step.thread, cell);
            let stores = self.cells.entry(cell).or_default();
            for (bytes, protected) in [(bytes & restored, true), (bytes & !restored, false)] {
                if bytes != 0 {
                    stores.push(Span {
                        bytes,
                        writer: step.index,
                        stored: self.now,
                        durable: if is_sure { self.now + 1 } else { NEVER },
                        needs,
                        protected,
                        left_out,
                    });
                }
            }
            self.commits.note_store(cell, bytes);
            self.changed.push(cell);
        }
        let line_bytes = self.domain.line_bytes() as u64;
        let pending = |range: PoolRange| -> Vec<LineId> {
            if is_sure {
                return Vec::new();
            }
            let lines = range.offset.0 / line_bytes..=(range.end() - 1) / line_bytes;
            let of_pool = |line| LineId {
                pool: range.pool,
                line: LineIndex(line),
            };
            lines.map(of_pool).collect()
        };
        self.commits
            .write(range, step.index, self.now, &pending, &mut self.changed);
    }

    fn flush(&mut self, at: Place, event: EventIndex) {
        if self.domain != Domain::Adr {
            return;
        }
        if let Some(stores) = self.cells.get_mut(&Cell::of(at.pool, at.offset))
            && stores.is_open()
        {
            stores.flush = Some(event);
        }
    }

    /// What lay beyond the new end is gone.
    fn resize(&mut self, pool: PoolIndex, len_bytes: u64) {
        let changed = &mut self.changed;
        self.cells.retain(|cell, stores| {
            let kept = cell.mask(0, len_bytes);
            if cell.pool != pool || kept == u64::MAX {
                return true;
            }
            changed.push(*cell);
            !stores.cut(kept)
        });
        self.objects.uninitialised.remove(PoolRange {
            pool,
            offset: PoolOffset(len_bytes),
            len: u64::MAX,
        });
    }

    fn mark(
        &mut self,
        event: EventIndex,
        thread: ThreadIndex,
        mark: &Mark<'_>,
    ) -> Result<(), CommitError> {
        let MarkKind::Annotation(annotation) = mark.kind else {
            return Ok(());
        };
        let ranges = || AnnotatedRange::all(mark.payload).map(PoolRange::of_mark);
        match annotation {
            Annotation::LibraryEnter => self.now += Time::from(mark::orders(mark.value)),
            Annotation::Clean => ranges().flatten().for_each(|range| self.clean(range)),
            Annotation::CommitVariable | Annotation::CommitRange => {
                let mut ranges = ranges();
                if let Some(Some(variable)) = ranges.next() {
                    let decided = ranges.next().flatten();
                    self.register(variable, decided)
                        .map_err(|error| error.at(event))?;
                }
            }
            _ => {
                let ranges = || ranges().flatten().filter(|range| range.len > 0);
                let allocation = self.scope.admits_findings(thread).then_some(event);
                if self
                    .objects
                    .mark(allocation, thread, annotation, mark.value, ranges())
                {
                    ranges().for_each(|range| self.protect(range));
                }
            }
        }
        self.evaluate_changed();
        Ok(())
    }

    /// The first region of interest begins: nothing before it counts.
    fn leave_all_out(&mut self) {
        for (cell, stores) in &mut self.cells {
            for span in &mut stores.spans {
                span.left_out = true;
            }
            self.changed.push(*cell);
        }
        self.objects.uninitialised = RangeMap::default();
        self.evaluate_changed();
    }

    fn register(
        &mut self,
        variable: PoolRange,
        decided: Option<PoolRange>,
    ) -> Result<(), CommitError> {
        let pools = &self.pools;
        let change = self.commits.register(variable, decided).map_err(|error| {
            error.named(|pool| match pools.get(pool.0 as usize) {
                Some(name) => name.clone(),
                None => format!("pool {pool}"),
            })
        })?;
        match change {
            Change::Nothing => {}
            Change::Of(range) => self.touch(range),
            Change::Everything => self.changed.extend(self.cells.keys()),
        }
        let mut changed = std::mem::take(&mut self.changed);
        for cell in &changed {
            if let Some(stores) = self.cells.get(cell) {
                let bytes = stores.spans.iter().fold(0, |all, span| all | span.bytes);
                self.commits.note_store(*cell, bytes);
            }
        }
        std::mem::swap(&mut self.changed, &mut changed);
        self.evaluate_changed();
        Ok(())
    }

    fn protect(&mut self, range: PoolRange) {
        self.touch(range);
        for cell in &self.changed {
            if let Some(stores) = self.cells.get_mut(cell) {
                stores.protect(cell.mask(range.offset.0, range.end()));
            }
        }
    }

    /// The program says that the stores to a range need no flush.
    fn clean(&mut self, range: PoolRange) {
        if range.len == 0 {
            return;
        }
        self.touch(range);
        for cell in &self.changed {
            if let Some(stores) = self.cells.get_mut(cell) {
                stores.cut(!cell.mask(range.offset.0, range.end()));
            }
        }
    }

    /// Something has changed about the stores to a range.
    fn touch(&mut self, range: PoolRange) {
        if range.cell_count() <= self.cells.len() as u64 {
            let cells = range.cells().map(|(cell, _)| cell);
            self.changed
                .extend(cells.filter(|cell| self.cells.contains_key(cell)));
        } else {
            let cells = self.cells.keys().filter(|cell| {
                cell.pool == range.pool && cell.mask(range.offset.0, range.end()) != 0
            });
            self.changed.extend(cells);
        }
    }

    /// Forgets what is not needed of changed lines, and finds out which of their bytes are to be watched.
    fn evaluate_changed(&mut self) {
        let mut changed = std::mem::take(&mut self.changed);
        for cell in changed.drain(..) {
            self.evaluate(cell);
        }
        self.changed = changed;
    }

    fn evaluate(&mut self, cell: Cell) {
        let mut watched = 0;
        if let Some(stores) = self.cells.get_mut(&cell) {
            if stores.settle(self.commits.decided_bytes(cell)) {
                self.cells.remove(&cell);
            } else if self.strict || !self.commits.is_empty() {
                if self.strict {
                    let open = stores.spans.iter().filter(|span| !span.is_durable());
                    watched |= open
                        .filter(|span| !span.left_out)
                        .fold(0, |all, span| all | span.bytes);
                    watched &= !self.commits.own_bytes(cell);
                }
                for (decided, variable) in self.commits.deciding(cell) {
                    for span in stores.spans.iter().filter(|span| span.is_durable()) {
                        if self.commits.consistency(variable, span) != Consistency::Consistent {
                            watched |= span.bytes & decided;
                        }
                    }
                }
            }
        }
        if watched == 0 {
            self.watched.remove(&cell);
        } else {
            self.watched.insert(cell, watched);
        }
    }
}

fn range_of(at: Place, len: usize) -> PoolRange {
    PoolRange {
        pool: at.pool,
        offset: at.offset,
        len: len as u64,
    }
}

/// Adds bytes to the judgement that says the same of others.
fn add(judgements: &mut Vec<Judgement>, bytes: u64, judgement: impl Fn(u64) -> Judgement) {
    if bytes == 0 {
        return;
    }
    let same = judgements
        .iter_mut()
        .find(|known| judgement(known.bytes()) == **known);
    match same {
        Some(known) => *known = judgement(known.bytes() | bytes),
        None => judgements.push(judgement(bytes)),
    }
}

impl Judgement {
    /// The bytes that it is about.
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::Race { bytes, .. }
            | Self::Uncommitted { bytes, .. }
            | Self::Stale { bytes, .. }
            | Self::Uninitialised { bytes, .. } => *bytes,
        }
    }
}
