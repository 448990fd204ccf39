//! What a crash can leave at a failure point: the different contents of each open line.
//!
//! The frontier counts versions; recovery can only tell contents apart. A line whose versions all have
//! the same bytes is not in the table: whatever survives of it, recovery cannot see a difference.

use powerfail_model::{EventIndex, Frontier, Image, LineId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::lazy::distinct::{Distinct, distinct, thin};

/// The open lines of a failure point, by pool and offset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrashTable {
    /// Length of a line.
    pub line_bytes: usize,
    /// The lines of which recovery can observe several contents.
    pub lines: Vec<CrashLine>,
    /// The decimal logarithm of the number of crash states: what eager exploration would have to run.
    pub log10_states: f64,
    /// Lines with more contents than the table may hold. If there is any, exploring the table is
    /// sampling.
    pub truncated: Vec<Truncated>,
}

/// A line of which recovery can observe several contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrashLine {
    /// Which line.
    pub id: LineId,
    /// What it can hold: all different, the newest first.
    pub contents: Vec<Content>,
    /// The event that made each version from the one before, beginning with version 1.
    pub stores: Vec<EventIndex>,
}

/// Something that a line can hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// All versions that have them, in ascending order; never empty. Versions are counted from the
    /// durable floor. In the table of a nested failure they are those of
    /// [`Origins`](crate::lazy::nested::Origins).
    pub versions: Vec<usize>,
}

/// A line has more contents than the table may hold: the oldest, the newest and some at random are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Which line.
    pub id: LineId,
    /// How many contents it has, at least.
    pub contents: usize,
    /// How many of them are in the table.
    pub kept: usize,
}

/// How much a table may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// Contents of one line; at least 2.
    pub contents_per_line: usize,
    /// Bytes of all contents. When it is exceeded, the lines with the most contents lose some.
    pub bytes: usize,
    /// Of which contents are kept where there are too many.
    pub seed: u64,
}

impl Default for TableLimits {
    fn default() -> Self {
        Self {
            contents_per_line: 65_536,
            bytes: 256 << 20,
            seed: 0,
        }
    }
}

impl Content {
    /// The newest version that has it.
    pub fn newest_version(&self) -> usize {
        self.versions.last().copied().unwrap_or(0)
    }

    /// The oldest version that has it.
    pub fn oldest_version(&self) -> usize {
        self.versions.first().copied().unwrap_or(0)
    }
}

impl CrashLine {
    /// Its contents one after the other, the newest first.
    pub fn flat(&self) -> Vec<u8> {
        let bytes = self.contents.iter().flat_map(|content| &content.bytes);
        bytes.copied().collect()
    }
}

impl CrashTable {
    /// The table at the present position of a frontier, within the usual limits.
    pub fn of<I: Image>(frontier: &Frontier<I>) -> Self {
        Self::within(frontier, TableLimits::default())
    }

    /// The table at the present position of a frontier.
    pub fn within<I: Image>(frontier: &Frontier<I>, limits: TableLimits) -> Self {
        let open = frontier.open_lines_sorted();
        let mut table = Self {
            line_bytes: frontier.rules().domain.line_bytes(),
            lines: Vec::with_capacity(open.len()),
            log10_states: frontier.crash_state_count_log10(),
            truncated: Vec::new(),
        };
        for line in open {
            let versions = |visit: &mut dyn FnMut(usize, &[u8])| line.for_each_version(visit);
            let limit = limits.contents_per_line;
            let found = distinct(line.version_count(), &versions, limit, limits.seed);
            let stores = line.stores().map(|store| store.event).collect();
            table.push(line.id(), stores, found);
        }
        table.limit_bytes(limits);
        table
    }

    /// Adds a line behind all others, if recovery can observe a difference in it.
    pub(crate) fn push(&mut self, id: LineId, stores: Vec<EventIndex>, found: Distinct) {
        let contents = found.contents;
        if let Some(out_of) = found.left_out_of {
            self.truncated.push(Truncated {
                id,
                contents: out_of,
                kept: contents.len(),
            });
        }
        if contents.len() > 1 {
            self.lines.push(CrashLine {
                id,
                contents,
                stores,
            });
        }
    }

    /// Takes contents from the lines that have the most until all fit.
    pub(crate) fn limit_bytes(&mut self, limits: TableLimits) {
        let room = limits.bytes / self.line_bytes.max(1);
        let fits = |lines: &[CrashLine], cap: usize| {
            let contents = lines.iter().map(|line| line.contents.len().min(cap));
            contents.sum::<usize>() <= room
        };
        let mut cap = limits.contents_per_line;
        if fits(&self.lines, cap) {
            return;
        }
        while cap > 2 && !fits(&self.lines, cap) {
            cap /= 2;
        }
        let mut notes: FxHashMap<LineId, Truncated> = self
            .truncated
            .drain(..)
            .map(|note| (note.id, note))
            .collect();
        for line in &mut self.lines {
            let contents = line.contents.len();
            if contents <= cap {
                continue;
            }
            thin(&mut line.contents, cap, limits.seed);
            let kept = line.contents.len();
            let id = line.id;
            notes
                .entry(id)
                .and_modify(|note| note.kept = kept)
                .or_insert(Truncated { id, contents, kept });
        }
        self.truncated = notes.into_values().collect();
        self.truncated.sort_unstable_by_key(|note| note.id);
    }

    /// A line of the table by its id.
    pub fn line(&self, id: LineId) -> Option<&CrashLine> {
        Some(&self.lines[self.index_of(id)?])
    }

    /// The place of a line in the table.
    pub fn index_of(&self, id: LineId) -> Option<usize> {
        self.lines.binary_search_by_key(&id, |line| line.id).ok()
    }

    /// Whether all that a crash can leave is in it.
    pub fn is_complete(&self) -> bool {
        self.truncated.is_empty()
    }

    /// The lines, in ascending order, of which recovery can observe other contents than by an earlier
    /// table. Lines that are in neither table can differ too, if they were stored to and made durable
    /// in between: a [`ChangeLog`](crate::lazy::ChangeLog) knows of these.
    pub fn changed_since(&self, previous: &Self) -> Vec<LineId> {
        let mut changed = Vec::new();
        let (mut new, mut old) = (
            self.lines.iter().peekable(),
            previous.lines.iter().peekable(),
        );
        loop {
            match (new.peek(), old.peek()) {
                (Some(one), Some(other)) if one.id == other.id => {
                    if !one.has_contents_of(other) {
                        changed.push(one.id);
                    }
                    new.next();
                    old.next();
                }
                (Some(one), other) if other.is_none_or(|other| one.id < other.id) => {
                    changed.push(one.id);
                    new.next();
                }
                (_, Some(other)) => {
                    changed.push(other.id);
                    old.next();
                }
                (_, None) => return changed,
            }
        }
    }
}

impl CrashLine {
    /// Whether the same contents are possible, and the same one is newest. The order of the others
    /// decides only in which order they are tried.
    fn has_contents_of(&self, other: &Self) -> bool {
        if self.contents.len() != other.contents.len()
            || self.contents[0].bytes != other.contents[0].bytes
        {
            return false;
        }
        let in_order = self.contents.iter().zip(&other.contents);
        if in_order.into_iter().all(|(a, b)| a.bytes == b.bytes) {
            return true;
        }
        let bytes = |line: &Self| -> FxHashSet<Vec<u8>> {
            line.contents.iter().map(|c| c.bytes.clone()).collect()
        };
        bytes(self) == bytes(other)
    }
}

#[cfg(test)]
mod tests {
    use powerfail_model::{
        Event, FlushKind, Frontier, LineIndex, Place, PoolIndex, PoolOffset, Rules, SparseImage,
        Step, StoreKind, ThreadIndex,
    };

    use super::*;

    struct Run {
        frontier: Frontier,
        next: u64,
    }

    impl Run {
        fn new() -> Self {
            Self {
                frontier: Frontier::new(Rules::default(), SparseImage::new()),
                next: 0,
            }
        }

        fn apply(&mut self, event: Event<'_>) {
            self.frontier.apply(&Step {
                index: EventIndex(self.next),
                thread: ThreadIndex(0),
                event,
            });
            self.next += 1;
        }

        fn store(&mut self, offset: u64, bytes: &[u8]) {
            self.apply(Event::Store {
                kind: StoreKind::Plain,
                at: Place::new(PoolIndex(0), PoolOffset(offset)),
                bytes,
            });
        }

        fn flush(&mut self, offset: u64) {
            self.apply(Event::Flush {
                kind: FlushKind::Clflush,
                at: Place::new(PoolIndex(0), PoolOffset(offset)),
            });
        }
    }

    fn line(number: u64) -> LineId {
        LineId {
            pool: PoolIndex(0),
            line: LineIndex(number),
        }
    }

    #[test]
    fn a_line_without_a_difference_is_not_in_it() {
        let mut run = Run::new();
        run.store(0, &[0]);
        run.store(70, &[1]);
        run.store(70, &[0]);
        run.store(71, &[0]);
        let table = CrashTable::of(&run.frontier);
        assert_eq!(table.lines.len(), 1);
        assert_eq!(table.index_of(line(1)), Some(0));
        let changed = table.line(line(1)).unwrap();
        assert_eq!(changed.stores, [1, 2, 3].map(EventIndex));
        let versions: Vec<_> = changed.contents.iter().map(|c| &c.versions[..]).collect();
        assert_eq!(versions, [&[0, 2, 3][..], &[1]]);
        assert!((table.log10_states - 8_f64.log10()).abs() < 1e-9);
    }

    #[test]
    fn limits_hold_and_are_told() {
        let mut run = Run::new();
        for value in 0..100_u8 {
            run.store(0, &[value]);
            run.store(64, &[value % 5]);
        }
        let limits = TableLimits {
            contents_per_line: 10,
            ..TableLimits::default()
        };
        let table = CrashTable::within(&run.frontier, limits);
        assert!(!table.is_complete());
        let note = |contents, kept| Truncated {
            id: line(0),
            contents,
            kept,
        };
        assert_eq!(table.truncated, [note(100, 10)]);
        assert_eq!(table.lines[0].contents.len(), 10);
        assert_eq!(table.lines[0].contents[0].newest_version(), 100);
        assert_eq!(table.lines[0].contents[9].oldest_version(), 0);
        assert_eq!(table.lines[1].contents.len(), 5);
        // Too many bytes: the line with the most contents loses some.
        let limits = TableLimits {
            contents_per_line: 64,
            bytes: 30 * 64,
            ..TableLimits::default()
        };
        let table = CrashTable::within(&run.frontier, limits);
        assert_eq!(table.truncated, [note(100, 16)]);
        assert_eq!(table.lines[1].contents.len(), 5);
        assert!(CrashTable::of(&run.frontier).is_complete());
    }

    #[test]
    fn changes_are_those_that_can_be_observed() {
        let mut run = Run::new();
        for number in 0..5 {
            run.store(64 * number, &[1]);
        }
        let before = CrashTable::of(&run.frontier);
        run.store(0, &[1]); // silent
        run.flush(64); // sure now
        run.store(128, &[2]); // one more
        run.store(192, &[0]); // the same two, but the other is newest
        run.store(320, &[7]); // new
        let after = CrashTable::of(&run.frontier);
        let changed = [1, 2, 3, 5].map(line);
        assert_eq!(after.changed_since(&before), changed);
        assert_eq!(before.changed_since(&after), changed);
        assert!(after.changed_since(&after).is_empty());
    }
}
