//! When the durable content of a line was stored.
//!
//! A frontier forgets what is sure. To say whether one moment explains what recovery has read, one must
//! know since when a line held its durable floor. Takes memory for every line that was ever changed, and a
//! pass of its own, so it is apart from the frontier. Without it less is found at one failure point, but
//! little in all: before the fence that made a store sure, it was open.

use powerfail_model::{Event, EventIndex, Frontier, Image, LineId, LineIndex, Place, PoolOffset};
use powerfail_model::{Rules, SparseImage, Step};
use powerfail_protocol::observe::ByteSet;
use powerfail_trace::RecordCursor;
use rustc_hash::FxHashMap;

use crate::lazy::robust::ReadLine;
use crate::lazy::seen::Seen;

const WORD_BYTES: usize = 8;
/// How many stores to a line are kept before those that are sure are put together.
const RECENT: usize = 16;

/// A frontier that also knows when the durable content of each line was stored. Stores that change nothing do not count.
#[derive(Clone, Debug)]
pub struct History<I = SparseImage> {
    frontier: Frontier<I>,
    position: EventIndex,
    lines: FxHashMap<LineId, LineHistory>,
    scratch: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct LineHistory {
    /// The last store to each word before the recent ones; zero where there is none, else one more than
    /// its event.
    words: Box<[u64]>,
    /// Later stores: event, first byte, end.
    recent: Vec<(EventIndex, u16, u16)>,
}

impl LineHistory {
    /// Keeps only the words of the stores before an event.
    fn settle(&mut self, before: EventIndex) {
        let count = self.recent.partition_point(|(event, ..)| *event < before);
        for (event, from, to) in self.recent.drain(..count) {
            let words = usize::from(from) / WORD_BYTES..usize::from(to).div_ceil(WORD_BYTES);
            self.words[words].fill(event.0 + 1);
        }
    }

    fn since(&self, bytes: &ByteSet, before: EventIndex) -> Option<EventIndex> {
        let touched = |at: usize| bytes.contains(at);
        let settled = self.words.iter().enumerate().filter(|(word, _)| {
            let start = word * WORD_BYTES;
            (start..start + WORD_BYTES).any(touched)
        });
        let settled = settled.filter_map(|(_, event)| Some(EventIndex(event.checked_sub(1)?)));
        let recent = self.recent.iter().filter(|(event, from, to)| {
            *event < before && (usize::from(*from)..usize::from(*to)).any(touched)
        });
        settled.chain(recent.map(|recent| recent.0)).max()
    }
}

impl<I: Image> History<I> {
    /// A pass over a trace that starts with the pools as they are in `image`.
    pub fn new(rules: Rules, image: I) -> Self {
        Self {
            frontier: Frontier::new(rules, image),
            position: EventIndex(0),
            lines: FxHashMap::default(),
            scratch: Vec::new(),
        }
    }

    /// The frontier at the present position.
    pub const fn frontier(&self) -> &Frontier<I> {
        &self.frontier
    }

    /// Moves over one event.
    pub fn apply(&mut self, step: &Step<'_>) {
        if let Event::Store { at, bytes, .. } = step.event {
            self.note(step.index, at, bytes);
        }
        self.frontier.apply(step);
        self.position = EventIndex(step.index.0 + 1);
    }

    /// Moves forward to the moment just before event `at`. `records` are those of the trace from the present
    /// position on.
    pub fn move_to(
        &mut self,
        records: &mut RecordCursor<'_>,
        at: EventIndex,
    ) -> powerfail_trace::Result<()> {
        while self.position < at {
            let Some(record) = records.next_record()? else {
                break;
            };
            let behind = EventIndex(record.index.0 + 1);
            if let Some(step) = record.step() {
                self.apply(&step);
            }
            self.position = behind;
        }
        Ok(())
    }

    fn note(&mut self, event: EventIndex, at: Place, bytes: &[u8]) {
        let line_bytes = self.frontier.rules().domain.line_bytes();
        let mut at = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let from = (at.offset.0 % line_bytes as u64) as usize;
            let (piece, later) = rest.split_at(rest.len().min(line_bytes - from));
            self.scratch.resize(piece.len(), 0);
            self.frontier.newest().read(at, &mut self.scratch);
            if self.scratch != piece {
                let id = LineId {
                    pool: at.pool,
                    line: LineIndex(at.offset.0 / line_bytes as u64),
                };
                let first_open = self.first_open(id);
                let line = self.lines.entry(id).or_insert_with(|| LineHistory {
                    words: vec![0; line_bytes / WORD_BYTES].into(),
                    recent: Vec::new(),
                });
                // A line that never closes must not remember all that was ever stored to it.
                if line.recent.len() >= RECENT {
                    line.settle(first_open);
                }
                let small = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
                line.recent
                    .push((event, small(from), small(from + piece.len())));
            }
            at.offset = PoolOffset(at.offset.0.wrapping_add(piece.len() as u64));
            rest = later;
        }
    }

    /// The first store to a line that is not sure, or the end of time.
    fn first_open(&self, id: LineId) -> EventIndex {
        let open = self.frontier.open_line(id);
        let store = open.and_then(|line| line.stores().next());
        store.map_or(EventIndex(u64::MAX), |store| store.event)
    }

    /// The last store to any of these bytes of a line (more precisely, to the words of 8 bytes that hold
    /// them) that is surely durable here.
    pub fn durable_since(&self, id: LineId, bytes: &ByteSet) -> Option<EventIndex> {
        let first_open = self.first_open(id);
        self.lines.get(&id)?.since(bytes, first_open)
    }

    /// The lines from which an execution chose, for [`robust`](crate::lazy::robust). The present position
    /// is that of the table, before event `crash`.
    pub fn read_lines(&self, seen: &Seen<'_>, crash: EventIndex) -> Vec<ReadLine> {
        let lines = seen.observed_lines().into_iter().map(|number| {
            let line = &seen.table().lines[number];
            let since = self.durable_since(line.id, &seen.observed_bytes(number));
            ReadLine::open(line, seen.possible(number), since, crash)
        });
        lines.collect()
    }
}
