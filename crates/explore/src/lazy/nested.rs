//! The power fails again while recovery runs.
//!
//! When recovery is interrupted, memory holds what the first crash had left, of which only what recovery
//! has read is known, and over it those stores of recovery that became durable. So a line can hold any
//! of its contents that are still possible, with any of the versions of recovery's stores on top. That
//! is again a [`CrashTable`] over an image, and the recovery of the recovery is explored on it in the
//! same way: to any depth.
//!
//! What of recovery's stores is durable is the model's matter: a [`Frontier`] follows recovery's log. A second
//! one follows the same events with all bytes set, over an image of zeros: what it holds is the *mask*
//! of the bytes that the versions of the first one owe to recovery.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_model::{
    CrashState, Event, EventIndex, FailurePoints, FenceKind, FlushKind, Frontier, Image, LineId,
    LineIndex, Place, PoolOffset, Rules, SparseImage, Step, StoreKind, ThreadIndex,
};
use powerfail_protocol::explore::LogKind;

use crate::lazy::digest::digest_bytes;
use crate::lazy::distinct::{Distinct, distinct};
use crate::lazy::robust::{ReadLine, Span, version_span};
use crate::lazy::seen::{Impossible, Observed, Seen};
use crate::lazy::table::{CrashTable, TableLimits};

/// What recovery did to the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryEvent<'a> {
    /// What it was.
    pub event: Event<'a>,
    /// Who did it.
    pub thread: ThreadIndex,
    /// How many choices had been made before it.
    pub choices: usize,
}

impl<'a> RecoveryEvent<'a> {
    /// An entry of the log that the runtime writes.
    pub fn logged(
        kind: LogKind,
        at: Place,
        bytes: &'a [u8],
        len_bytes: u64,
        thread: ThreadIndex,
        choices: usize,
    ) -> Self {
        let store = |kind| Event::Store { kind, at, bytes };
        let flush = |kind| Event::Flush { kind, at };
        let event = match kind {
            LogKind::Store => store(StoreKind::Plain),
            LogKind::StoreNonTemporal => store(StoreKind::NonTemporal),
            LogKind::Flush => flush(FlushKind::Clflush),
            LogKind::FlushOptimized => flush(FlushKind::Clwb),
            LogKind::Fence => Event::Fence(FenceKind::Sfence),
            LogKind::Sync => Event::Sync {
                pool: at.pool,
                offset: at.offset,
                len_bytes,
            },
        };
        Self {
            event,
            thread,
            choices,
        }
    }
}

/// Lines that differ from the image of the first failure point, whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    lines: BTreeMap<LineId, Vec<u8>>,
}

impl Overlay {
    /// The lines with their bytes, by pool and offset.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = (LineId, &[u8])> {
        self.lines.iter().map(|(id, bytes)| (*id, bytes.as_slice()))
    }

    /// A line, if it differs.
    pub fn line(&self, id: LineId) -> Option<&[u8]> {
        self.lines.get(&id).map(Vec::as_slice)
    }
}

/// A crash: what is sure, and what is not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrashPoint {
    /// What recovery can observe.
    pub table: CrashTable,
    /// Over the image of the first failure point: the newest content of every line that differs from it,
    /// open or not.
    pub overlay: Overlay,
    /// Where the contents of each line of the table come from. Empty at the first failure point.
    pub origins: Vec<Origins>,
}

/// How the versions of a line in the table of a nested failure are to be read.
///
/// With no store of recovery in doubt the line has one version for each content that it could have before;
/// with *n* of them, as many for each number of stores that survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origins {
    /// Its place in the table of the crash before, if it was in doubt there.
    pub outer: Option<usize>,
    /// How many contents it had there; 1 if it was not in doubt.
    pub outer_contents: usize,
}

/// Where one content of a line of a nested failure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// What the line held when recovery began, by its place among the contents of the outer table.
    pub content: usize,
    /// How many of recovery's stores to the line, of those in doubt, survived.
    pub stores: usize,
}

impl Origins {
    /// What a version means.
    pub const fn of(&self, version: usize) -> Origin {
        Origin {
            content: self.outer_contents - 1 - version % self.outer_contents,
            stores: version / self.outer_contents,
        }
    }

    /// The version with a meaning. The newest of all is the greatest.
    const fn version(&self, origin: Origin) -> usize {
        origin.stores * self.outer_contents + (self.outer_contents - 1 - origin.content)
    }
}

/// What tells the nested failure points after one crash apart: executions with the same choices up to a
/// store have the failure point after it in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NestedPointKey(u128);

/// A moment in recovery at which the power fails.
#[derive(Clone, Debug)]
pub struct NestedPoint {
    /// Just before this event of the log; its length: at its end.
    pub position: usize,
    /// The event of the last store before that. Crash states of this point are those of the moment just after
    /// it, too: what comes between leaves nothing behind.
    pub last_store: usize,
    /// How many choices had been made before the last store. Those after it are open again: a run that shows
    /// this failure stops recovery after the last store, since what it does then can be
    /// something else.
    pub choices: usize,
    /// What it has in common with equal ones of other executions.
    pub key: NestedPointKey,
    /// What can be left.
    pub crash: CrashPoint,
}

/// An execution of recovery, after a crash.
#[derive(Clone, Copy, Debug)]
pub struct InterruptedRecovery<'a> {
    /// The crash.
    pub crash: &'a CrashPoint,
    /// What it chose.
    pub choices: &'a [Observed],
    /// What it did.
    pub log: &'a [RecoveryEvent<'a>],
}

/// Pairs of contents and versions that are looked at for one line.
const PAIRS_MAX: usize = 1 << 20;

impl CrashPoint {
    /// That of the recorded run.
    pub fn first(table: CrashTable) -> Self {
        Self {
            table,
            ..Self::default()
        }
    }

    /// Equal for crashes that leave the same. Different executions can be interrupted so that it does not
    /// matter any more which of them it was; exploring one of them is enough.
    pub fn digest(&self) -> u128 {
        let mut bytes = Vec::new();
        let mut add = |id: LineId, count: usize| {
            let numbers = [u64::from(id.pool.0), id.line.0, count as u64];
            bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
        };
        let mut digests = Vec::new();
        for (id, line) in self.overlay.lines() {
            add(id, 1);
            digests.push(digest_bytes(line));
        }
        for line in &self.table.lines {
            add(line.id, line.contents.len());
            digests.extend(line.contents.iter().map(|c| digest_bytes(&c.bytes)));
        }
        bytes.extend(digests.into_iter().flat_map(u128::to_le_bytes));
        digest_bytes(&bytes)
    }

    /// The image of one crash state that shows recovery what it saw: the lines that differ from the image
    /// of the first failure point, everything as new as it can be.
    pub fn concrete(&self, seen: &Seen<'_>) -> Overlay {
        let mut overlay = self.overlay.clone();
        for number in seen.observed_lines() {
            let line = &self.table.lines[number];
            let bytes = &line.contents[seen.newest(number)].bytes;
            overlay.lines.insert(line.id, bytes.clone());
        }
        overlay
    }

    /// Where that crash state comes from: what each line of the table of the crash before held, and which
    /// stores of the recovery in between survived.
    pub fn explain(&self, seen: &Seen<'_>) -> (Vec<(usize, usize)>, CrashState) {
        let mut outer = Vec::new();
        let mut versions = Vec::new();
        for (number, (line, origins)) in self.table.lines.iter().zip(&self.origins).enumerate() {
            let content = &line.contents[seen.newest(number)];
            let origin = origins.of(content.newest_version());
            if let Some(place) = origins.outer {
                outer.push((place, origin.content));
            }
            if origin.stores < line.stores.len() {
                versions.push((line.id, origin.stores));
            }
        }
        (outer, CrashState { versions })
    }
}

/// The failure points of an execution of recovery: before each event that raises a durable floor,
/// unless no store was made since the one before; and its end. `image` is that of the first failure
/// point; points for whose key `is_known` says so are left out.
pub fn failure_points(
    rules: Rules,
    execution: &InterruptedRecovery<'_>,
    image: &dyn Fn(Place, &mut [u8]),
    limits: TableLimits,
    is_known: &mut dyn FnMut(NestedPointKey) -> bool,
) -> Result<Vec<NestedPoint>, Impossible> {
    let mut pass = Pass {
        rules,
        execution,
        image,
        limits,
        bytes: Frontier::new(rules, SparseImage::new()),
        mask: Frontier::new(rules, SparseImage::new()),
        stored: BTreeSet::new(),
        last_store: None,
    };
    let mut points = Vec::new();
    for (position, logged) in execution.log.iter().enumerate() {
        let step = Step {
            index: EventIndex(position as u64),
            thread: logged.thread,
            event: logged.event,
        };
        if pass.bytes.is_failure_point(FailurePoints::Covering, &step) {
            points.extend(pass.point(position, is_known)?);
        }
        pass.apply(&step);
    }
    if pass.bytes.is_failure_point_at_end(FailurePoints::Covering) {
        points.extend(pass.point(execution.log.len(), is_known)?);
    }
    Ok(points)
}

struct Pass<'a> {
    rules: Rules,
    execution: &'a InterruptedRecovery<'a>,
    image: &'a dyn Fn(Place, &mut [u8]),
    limits: TableLimits,
    bytes: Frontier,
    mask: Frontier,
    /// Lines that recovery has stored to.
    stored: BTreeSet<LineId>,
    last_store: Option<usize>,
}

impl Pass<'_> {
    fn apply(&mut self, step: &Step<'_>) {
        self.bytes.apply(step);
        let Event::Store { kind, at, bytes } = step.event else {
            self.mask.apply(step);
            return;
        };
        let ones = vec![u8::MAX; bytes.len()];
        self.mask.apply(&Step {
            event: Event::Store {
                kind,
                at,
                bytes: &ones,
            },
            ..*step
        });
        if bytes.is_empty() {
            return;
        }
        let line_bytes = self.line_bytes() as u64;
        let last = at.offset.0.saturating_add(bytes.len() as u64 - 1) / line_bytes;
        for line in at.offset.0 / line_bytes..=last {
            self.stored.insert(LineId {
                pool: at.pool,
                line: LineIndex(line),
            });
        }
        self.last_store = usize::try_from(step.index.0).ok();
    }

    const fn line_bytes(&self) -> usize {
        self.rules.domain.line_bytes()
    }

    fn start_of(&self, id: LineId) -> Place {
        Place::new(id.pool, PoolOffset(id.line.0 * self.line_bytes() as u64))
    }

    /// The failure point here. Before recovery's first store there is none: the crash is still the first
    /// one.
    fn point(
        &self,
        position: usize,
        is_known: &mut dyn FnMut(NestedPointKey) -> bool,
    ) -> Result<Option<NestedPoint>, Impossible> {
        let Some(last_store) = self.last_store else {
            return Ok(None);
        };
        let made = self.execution.log[last_store].choices;
        let choices = self.execution.choices.get(..made);
        let choices = choices.ok_or(Impossible { choice: made })?;
        let key = key_of(choices, last_store);
        if is_known(key) {
            return Ok(None);
        }
        let outer = self.execution.crash;
        let seen = Seen::of(&outer.table, choices.iter().copied())?;
        Ok(Some(NestedPoint {
            position,
            last_store,
            choices: made,
            key,
            crash: self.crash(&seen),
        }))
    }

    fn crash(&self, seen: &Seen<'_>) -> CrashPoint {
        let outer = self.execution.crash;
        let mut crash = CrashPoint {
            table: CrashTable {
                line_bytes: self.line_bytes(),
                truncated: outer.table.truncated.clone(),
                ..CrashTable::default()
            },
            overlay: outer.overlay.clone(),
            origins: Vec::new(),
        };
        let mut ids = self.stored.clone();
        ids.extend(outer.table.lines.iter().map(|line| line.id));
        for id in ids {
            self.add_line(&mut crash, seen, id);
        }
        crash.table.limit_bytes(self.limits);
        crash
    }

    /// Adds a line to a table, if it is in doubt, and to the overlay, if its newest content is another one
    /// than that of the image.
    fn add_line(&self, crash: &mut CrashPoint, seen: &Seen<'_>, id: LineId) {
        let outer = self.execution.crash;
        let place = outer.table.index_of(id);
        let certain = place.is_none().then(|| self.certain(id));
        let before = |content: usize| -> &[u8] {
            match (place, &certain) {
                (Some(place), _) => &outer.table.lines[place].contents[content].bytes,
                (None, Some(bytes)) => bytes,
                (None, None) => &[],
            }
        };
        let origins = Origins {
            outer: place,
            outer_contents: place.map_or(1, |place| outer.table.lines[place].contents.len()),
        };
        let mut possible = place.map_or_else(|| vec![0], |place| seen.possible(place));
        let layers = self.layers(id);
        let pairs = possible.len().saturating_mul(layers.len());
        let is_thinned = pairs > PAIRS_MAX;
        if is_thinned {
            thin_evenly(&mut possible, (PAIRS_MAX / layers.len()).max(2));
        }
        // From the oldest to the newest: the order of versions.
        let versions = |visit: &mut dyn FnMut(usize, &[u8])| {
            let mut bytes = Vec::new();
            for (stores, layer) in layers.iter().enumerate() {
                for &content in possible.iter().rev() {
                    bytes.clear();
                    bytes.extend_from_slice(before(content));
                    layer.apply_to(&mut bytes);
                    visit(origins.version(Origin { content, stores }), &bytes);
                }
            }
        };
        let count = possible.len() * layers.len();
        let limit = self.limits.contents_per_line;
        let mut found: Distinct = distinct(count, &versions, limit, self.limits.seed);
        if is_thinned {
            found.left_out_of = Some(found.left_out_of.unwrap_or(0).max(pairs));
        }
        #[allow(
            clippy::cast_precision_loss,
            reason = "a logarithm needs no more than 52 bits"
        )]
        {
            crash.table.log10_states += (pairs as f64).log10();
        }
        let newest = &found.contents[0].bytes;
        let is_untouched = !self.stored.contains(&id) && possible[0] == 0;
        if !is_untouched {
            crash.overlay.lines.insert(id, newest.clone());
        }
        let open = self.bytes.open_line(id);
        let stores = open.map_or_else(Vec::new, |line| {
            line.stores().map(|store| store.event).collect()
        });
        if found.contents.len() > 1 {
            crash.origins.push(origins);
        }
        crash.table.push(id, stores, found);
    }

    /// A line that was not in doubt when recovery began.
    fn certain(&self, id: LineId) -> Vec<u8> {
        match self.execution.crash.overlay.line(id) {
            Some(bytes) => bytes.to_vec(),
            None => {
                let mut bytes = vec![0; self.line_bytes()];
                (self.image)(self.start_of(id), &mut bytes);
                bytes
            }
        }
    }

    /// What recovery's stores make of a line, for each number of those in doubt that survive.
    fn layers(&self, id: LineId) -> Vec<Layer> {
        let (Some(bytes), Some(mask)) = (self.bytes.open_line(id), self.mask.open_line(id)) else {
            let read = |frontier: &Frontier| {
                let mut bytes = vec![0; self.line_bytes()];
                frontier.newest().read(self.start_of(id), &mut bytes);
                bytes
            };
            return vec![Layer {
                bytes: read(&self.bytes),
                mask: read(&self.mask),
            }];
        };
        let mut layers = Vec::with_capacity(bytes.version_count());
        bytes.for_each_version(|_, bytes| {
            layers.push(Layer {
                bytes: bytes.to_vec(),
                mask: Vec::new(),
            });
        });
        mask.for_each_version(|version, mask| layers[version].mask = mask.to_vec());
        layers
    }
}

/// One crash of several, for [`read_lines`].
#[derive(Clone, Copy, Debug)]
pub struct CrashRead<'a> {
    /// The crash.
    pub crash: &'a CrashPoint,
    /// What the recovery after it has observed, until it was itself interrupted.
    pub seen: &'a Seen<'a>,
    /// Before which event of the run before it the power failed: of the recorded run for the first
    /// crash, of the log of a recovery for the others.
    pub at: EventIndex,
}

/// The lines from which the recoveries of nested failures chose, for [`robust`](crate::lazy::robust):
/// each is explained by a moment in every run that has stored to it.
pub fn read_lines(crashes: &[CrashRead<'_>]) -> Vec<ReadLine> {
    let mut lines = Vec::new();
    for (depth, read) in crashes.iter().enumerate() {
        if depth == 0 {
            lines.extend(read.seen.read_lines(read.at));
            continue;
        }
        for number in read.seen.observed_lines() {
            let possible = read.seen.possible(number).into_iter();
            let mut explained: Vec<Vec<Span>> = possible
                .flat_map(|content| explanations(&crashes[..=depth], number, content))
                .collect();
            explained.sort_unstable();
            explained.dedup();
            lines.push(ReadLine {
                id: read.crash.table.lines[number].id,
                explained,
            });
        }
    }
    lines
}

/// The moments of all runs so far at which a line of the last table had a content.
fn explanations(crashes: &[CrashRead<'_>], line: usize, content: usize) -> Vec<Vec<Span>> {
    let Some((last, before)) = crashes.split_last() else {
        return vec![Vec::new()];
    };
    let table_line = &last.crash.table.lines[line];
    let origins = last.crash.origins.get(line);
    let versions = table_line.contents[content].versions.iter();
    let found = versions.flat_map(|&version| {
        let Some(origins) = origins else {
            return vec![vec![version_span(
                &table_line.stores,
                version,
                None,
                last.at,
            )]];
        };
        let origin = origins.of(version);
        let mut outer = match origins.outer {
            Some(place) => explanations(before, place, origin.content),
            None => vec![vec![Span::ALL; before.len()]],
        };
        let span = version_span(&table_line.stores, origin.stores, None, last.at);
        for spans in &mut outer {
            spans.push(span);
        }
        outer
    });
    found.collect()
}

/// Bytes that recovery has put over a line.
struct Layer {
    bytes: Vec<u8>,
    mask: Vec<u8>,
}

impl Layer {
    fn apply_to(&self, line: &mut [u8]) {
        for ((byte, over), mask) in line.iter_mut().zip(&self.bytes).zip(&self.mask) {
            *byte = *byte & !mask | over & mask;
        }
    }
}

/// Keeps the ends, and others at equal distances.
fn thin_evenly(contents: &mut Vec<usize>, count: usize) {
    let last = contents.len() - 1;
    *contents = (0..count)
        .map(|at| contents[at * last / (count - 1)])
        .collect();
    contents.dedup();
}

fn key_of(choices: &[Observed], last_store: usize) -> NestedPointKey {
    let numbers = choices
        .iter()
        .flat_map(|choice| [choice.line, choice.content])
        .chain([last_store]);
    let bytes: Vec<u8> = numbers.flat_map(usize::to_le_bytes).collect();
    NestedPointKey(digest_bytes(&bytes))
}
