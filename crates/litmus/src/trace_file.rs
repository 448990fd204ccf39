//! Litmus traces: reading them, and what the model says of them.
//!
//! There are two forms. In the common one every access is an aligned 8-byte word, given by line
//! and offset, and the file lists the states at each position. In the other one (`counts_at`)
//! stores are ranges of bytes, given by address, and the file lists only how many states there are.

use std::collections::BTreeMap;

use powerfail_model::{
    Atomicity, BigUint, Domain, Event, EventIndex, FailurePoints, FenceKind, FlushKind, Frontier,
    Image, LineId, LineIndex, Place, PoolIndex, PoolOffset, Rules, SparseImage, Step, StoreKind,
    ThreadIndex,
};

use crate::States;
use crate::fields::{FormatError, Node};
use crate::limit::{POSITION_STATE_LIMIT, Undecided, trace_state_limit};

const LINE_BYTES: u64 = 64;
const WORD_BYTES: u64 = 8;
const POOL: PoolIndex = PoolIndex(0);
/// Keeps the product of line number and line size, and what is stored there, far from overflow.
const LINE_MAX: u64 = 1 << 40;
const STORE_BYTES_MAX: u64 = 1 << 20;

/// What a trace file may have. `lines` belongs to the form with addresses, for people.
const MEMBERS: [&str; 11] = [
    "name",
    "doc",
    "note",
    "init",
    "events",
    "lines",
    "cells",
    "states_at",
    "states_at_eadr",
    "counts_at",
    "segments",
];
const COUNTS_MEMBERS: [&str; 2] = ["prefix_combinations", "distinct_images"];
const SEGMENT_MEMBERS: [&str; 4] = [
    "failure_point",
    "combinations",
    "active_writes_per_line",
    "combinations_without_empty",
];
/// What every event may have. `id` and `note` are for people.
const EVENT_MEMBERS: [&str; 4] = ["t", "op", "id", "note"];

/// A trace with the sets that it is expected to give.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// The name in the file.
    pub name: String,
    /// What it is about; may be empty.
    pub doc: String,
    /// The words that make up a state; `None` if the file names none and only counts.
    pub cells: Option<Vec<Cell>>,
    initial: Vec<(Cell, i64)>,
    events: Vec<FileEvent>,
    expected: Result<TraceExpectation, FormatError>,
}

/// An aligned 8-byte word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its line.
    pub line: u64,
    /// Its offset in the line.
    pub offset_in_line: u64,
}

impl Cell {
    fn place(self) -> Place {
        Place::new(
            POOL,
            PoolOffset(self.line * LINE_BYTES + self.offset_in_line),
        )
    }
}

/// An event of the file; `None` where it has no effect.
#[derive(Clone, Debug)]
struct FileEvent {
    thread: ThreadIndex,
    action: Option<Action>,
}

#[derive(Clone, Debug)]
enum Action {
    Store(StoreKind, Place, Vec<u8>),
    Flush(FlushKind, Place),
    Fence(FenceKind),
}

/// What a trace file lists.
#[derive(Clone, Debug)]
pub enum TraceExpectation {
    /// The states at each position, with volatile and with durable caches.
    States {
        /// `states_at`.
        adr: Vec<States>,
        /// `states_at_eadr`.
        eadr: Vec<States>,
    },
    /// Only how many there are.
    Counts(CountsExpectation),
}

/// How many states a trace file expects.
#[derive(Clone, Debug)]
pub struct CountsExpectation {
    /// At each position.
    pub counts: Vec<Counts>,
    /// The combinations at the failure points that the file names.
    pub segments: Vec<(u64, BigUint)>,
}

/// How many states there are at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Combinations of line prefixes.
    pub combinations: BigUint,
    /// Different memory contents.
    pub distinct: BigUint,
}

/// What the model says of a trace in one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceStates {
    /// For each position, from before the first event to after the last.
    pub positions: Vec<PositionStates>,
    /// The positions whose crash states are those of all positions.
    pub failure_points: Vec<u64>,
}

/// What the model says of one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionStates {
    /// The contents of the cells, if the file names them.
    pub states: Option<States>,
    /// How many states there are.
    pub counts: Counts,
}

impl TraceFile {
    pub(crate) fn read(root: &Node<'_>) -> Result<Self, FormatError> {
        root.refuse_unknown("a trace", &MEMBERS)?;
        let name = root.required("name")?.string()?.to_owned();
        let doc = match root.optional("doc")? {
            Some(doc) => doc.string()?.to_owned(),
            None => String::new(),
        };
        let events = root
            .required("events")?
            .list()?
            .iter()
            .map(FileEvent::read)
            .collect::<Result<Vec<_>, _>>()?;
        let mut initial = Vec::new();
        if let Some(list) = root.optional("init")? {
            for entry in list.list()? {
                let [line, offset, value] = &entry.list()?[..] else {
                    return Err(entry.error("must be [line, offset, value]"));
                };
                initial.push((read_cell(line, offset)?, value.integer()?));
            }
        }
        let cells = root
            .optional("cells")?
            .map(|list| {
                let cells = list.list()?.into_iter().map(|entry| {
                    let [line, offset] = &entry.list()?[..] else {
                        return Err(entry.error("must be [line, offset]"));
                    };
                    read_cell(line, offset)
                });
                cells.collect::<Result<Vec<_>, _>>()
            })
            .transpose()?;
        let expected = TraceExpectation::read(root, events.len(), cells.as_deref());
        Ok(Self {
            name,
            doc,
            cells,
            initial,
            events,
            expected,
        })
    }

    /// What the file lists; an error if something is missing.
    pub fn expected(&self) -> Result<&TraceExpectation, FormatError> {
        self.expected.as_ref().map_err(Clone::clone)
    }

    /// The memory before the first event.
    pub fn initial_image(&self) -> SparseImage {
        let mut image = SparseImage::new();
        for (cell, value) in &self.initial {
            image.write(cell.place(), &value.to_le_bytes());
        }
        image
    }

    /// Where the words of the initial image are.
    pub fn initial_places(&self) -> impl Iterator<Item = Place> {
        self.initial.iter().map(|(cell, _)| cell.place())
    }

    /// How many events the file has, those without effect included.
    pub fn event_count(&self) -> u64 {
        self.events.len() as u64
    }

    /// The event at a place in the file; `None` if it has no effect or there is none.
    pub fn step(&self, index: u64) -> Option<Step<'_>> {
        self.events.get(index as usize)?.step(index)
    }

    /// The events that have an effect, with their places in the file.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        self.events
            .iter()
            .enumerate()
            .filter_map(|(index, event)| event.step(index as u64))
    }

    /// The thread of the event at a place in the file, whether it has an effect or not.
    pub fn thread(&self, index: u64) -> Option<ThreadIndex> {
        self.events.get(index as usize).map(|event| event.thread)
    }

    /// What the model says; an error if there are too many states to list.
    pub fn states(&self, domain: Domain) -> Result<TraceStates, Undecided> {
        let mut positions: Vec<PositionStates> = Vec::new();
        let mut left = trace_state_limit(self.cells.as_ref().map_or(0, Vec::len));
        let failure_points = self.walk(domain, |frontier| {
            let counts = counts(frontier);
            let states = match &self.cells {
                Some(cells) => Some(listed_states(frontier, cells, &counts, positions.len())?),
                None => None,
            };
            let listed = states.as_ref().map_or(0, States::len);
            left = left.checked_sub(listed).ok_or_else(|| Undecided {
                what: "the whole trace".to_owned(),
                limit: trace_state_limit(self.cells.as_ref().map_or(0, Vec::len)),
            })?;
            positions.push(PositionStates { states, counts });
            Ok(())
        })?;
        Ok(TraceStates {
            positions,
            failure_points,
        })
    }

    /// How many states there are at each position: known however many they are.
    pub(crate) fn counts(&self, domain: Domain) -> Vec<Counts> {
        let mut all = Vec::new();
        let walked: Result<_, std::convert::Infallible> = self.walk(domain, |frontier| {
            all.push(counts(frontier));
            Ok(())
        });
        match walked {
            Ok(_) => all,
        }
    }

    /// Calls `visit` at each position and gives the failure points.
    fn walk<E>(
        &self,
        domain: Domain,
        mut visit: impl FnMut(&Frontier) -> Result<(), E>,
    ) -> Result<Vec<u64>, E> {
        let rules = Rules {
            domain,
            atomicity: Atomicity::Store,
        };
        let mut frontier = Frontier::new(rules, self.initial_image());
        let mut failure_points = Vec::new();
        for (index, event) in self.events.iter().enumerate() {
            visit(&frontier)?;
            if let Some(step) = event.step(index as u64) {
                if frontier.is_failure_point(FailurePoints::Covering, &step) {
                    failure_points.push(step.index.0);
                }
                frontier.apply(&step);
            }
        }
        visit(&frontier)?;
        if frontier.is_failure_point_at_end(FailurePoints::Covering) {
            failure_points.push(self.event_count());
        }
        Ok(failure_points)
    }
}

fn counts(frontier: &Frontier) -> Counts {
    Counts {
        combinations: frontier.crash_state_count(),
        distinct: frontier.distinct_state_count(),
    }
}

/// The contents that `cells` can have after a crash now.
fn listed_states(
    frontier: &Frontier,
    cells: &[Cell],
    counts: &Counts,
    position: usize,
) -> Result<States, Undecided> {
    if counts.distinct > BigUint::from(POSITION_STATE_LIMIT) {
        return Err(Undecided {
            what: format!("position {position} of the trace"),
            limit: POSITION_STATE_LIMIT,
        });
    }
    let contents: BTreeMap<LineId, Vec<Vec<u8>>> = frontier
        .open_lines()
        .map(|line| {
            let mut contents = Vec::new();
            line.for_each_version(|_, content| contents.push(content.to_vec()));
            (line.id(), contents)
        })
        .collect();
    Ok(frontier
        .distinct_crash_states()
        .map(|state| {
            let versions: BTreeMap<LineId, usize> = state.versions.into_iter().collect();
            cells
                .iter()
                .map(|cell| {
                    let id = LineId {
                        pool: POOL,
                        line: LineIndex(cell.line),
                    };
                    let mut word = [0; WORD_BYTES as usize];
                    match versions.get(&id) {
                        Some(&version) => {
                            let start = cell.offset_in_line as usize;
                            let content = &contents[&id][version];
                            word.copy_from_slice(&content[start..][..WORD_BYTES as usize]);
                        }
                        None => frontier.newest().read(cell.place(), &mut word),
                    }
                    i64::from_le_bytes(word)
                })
                .collect()
        })
        .collect())
}

impl TraceExpectation {
    fn read(root: &Node<'_>, events: usize, cells: Option<&[Cell]>) -> Result<Self, FormatError> {
        if let Some(counts_at) = root.optional("counts_at")? {
            let counts = positions(&counts_at, events, |node| {
                node.refuse_unknown("a count", &COUNTS_MEMBERS)?;
                Ok(Counts {
                    combinations: node.required("prefix_combinations")?.index()?.into(),
                    distinct: node.required("distinct_images")?.index()?.into(),
                })
            })?;
            let mut segments = Vec::new();
            if let Some(list) = root.optional("segments")? {
                for segment in list.list()? {
                    segment.refuse_unknown("a segment", &SEGMENT_MEMBERS)?;
                    let at = segment
                        .required("failure_point")?
                        .index_below(events as u64 + 1)?;
                    segments.push((at, segment.required("combinations")?.index()?.into()));
                }
            }
            return Ok(Self::Counts(CountsExpectation { counts, segments }));
        }
        root.required("cells")?;
        let width = cells.map_or(0, <[Cell]>::len);
        let states = |name| positions(&root.required(name)?, events, |node| node.states(width));
        Ok(Self::States {
            adr: states("states_at")?,
            eadr: states("states_at_eadr")?,
        })
    }
}

/// Reads an object with one member for each position, from 0 to `events`.
fn positions<T>(
    node: &Node<'_>,
    events: usize,
    read: impl Fn(&Node<'_>) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    for (name, member) in node.members()? {
        let is_position = name
            .parse::<usize>()
            .is_ok_and(|position| position <= events && position.to_string() == name);
        if !is_position {
            return Err(member.error(format!("is not a position from 0 to {events}")));
        }
    }
    (0..=events)
        .map(|position| read(&node.required(&position.to_string())?))
        .collect()
}

fn read_line(node: &Node<'_>) -> Result<u64, FormatError> {
    node.index_below(LINE_MAX)
}

fn read_cell(line: &Node<'_>, offset: &Node<'_>) -> Result<Cell, FormatError> {
    let cell = Cell {
        line: read_line(line)?,
        offset_in_line: offset.index_below(LINE_BYTES)?,
    };
    if !cell.offset_in_line.is_multiple_of(WORD_BYTES) {
        return Err(offset.error("must be a multiple of 8"));
    }
    Ok(cell)
}

impl FileEvent {
    fn step(&self, index: u64) -> Option<Step<'_>> {
        let event = match self.action.as_ref()? {
            Action::Store(kind, at, bytes) => Event::Store {
                kind: *kind,
                at: *at,
                bytes,
            },
            Action::Flush(kind, at) => Event::Flush {
                kind: *kind,
                at: *at,
            },
            Action::Fence(kind) => Event::Fence(*kind),
        };
        Some(Step {
            index: EventIndex(index),
            thread: self.thread,
            event,
        })
    }

    fn read(node: &Node<'_>) -> Result<Self, FormatError> {
        let thread = node.required("t")?.index_below(u64::from(u32::MAX))?;
        let operation = node.required("op")?;
        let store = |kind| read_store(node, kind).map(Some);
        let flush = |kind| Ok(Some(Action::Flush(kind, read_flush_place(node)?)));
        let fence = |kind| Ok(Some(Action::Fence(kind)));
        let name = operation.string()?;
        let with_address = node.optional("addr")?.is_some();
        let members: &[&str] = match name {
            "store" | "ntstore" | "rmw" if with_address => &["addr", "size", "byte"],
            "store" | "ntstore" | "rmw" => &["line", "off", "val"],
            "clflush" | "clflushopt" | "clwb" if with_address => &["addr"],
            "clflush" | "clflushopt" | "clwb" => &["line"],
            "rmw_fail" | "load" => &["line", "off"],
            _ => &[],
        };
        let action = match name {
            "store" => store(StoreKind::Plain),
            "ntstore" => store(StoreKind::NonTemporal),
            "rmw" => store(StoreKind::Locked),
            "rmw_fail" => {
                read_cell(&node.required("line")?, &node.required("off")?)?;
                fence(FenceKind::Locked)
            }
            "clflush" => flush(FlushKind::Clflush),
            "clflushopt" => flush(FlushKind::Clflushopt),
            "clwb" => flush(FlushKind::Clwb),
            "sfence" => fence(FenceKind::Sfence),
            "mfence" => fence(FenceKind::Mfence),
            "load" => {
                read_cell(&node.required("line")?, &node.required("off")?)?;
                Ok(None)
            }
            // Yat's second barrier: without effect in this model.
            "pm_wbarrier" => Ok(None),
            other => Err(operation.error(format!("is not a known operation: \"{other}\""))),
        }?;
        let members = [&EVENT_MEMBERS, members].concat();
        node.refuse_unknown(&format!("the operation {name}"), &members)?;
        Ok(Self {
            thread: ThreadIndex(u32::try_from(thread).unwrap_or(u32::MAX)),
            action,
        })
    }
}

fn read_store(node: &Node<'_>, kind: StoreKind) -> Result<Action, FormatError> {
    if node.optional("addr")?.is_some() {
        let size = node.required("size")?.index_below(STORE_BYTES_MAX)?;
        let byte = node.required("byte")?.index_below(256)?;
        let bytes = vec![u8::try_from(byte).unwrap_or(u8::MAX); size as usize];
        return Ok(Action::Store(kind, read_address(node)?, bytes));
    }
    let cell = read_cell(&node.required("line")?, &node.required("off")?)?;
    let value = node.required("val")?.integer()?;
    Ok(Action::Store(
        kind,
        cell.place(),
        value.to_le_bytes().to_vec(),
    ))
}

fn read_flush_place(node: &Node<'_>) -> Result<Place, FormatError> {
    if node.optional("addr")?.is_some() {
        return read_address(node);
    }
    let line = read_line(&node.required("line")?)?;
    Ok(Cell {
        line,
        offset_in_line: 0,
    }
    .place())
}

fn read_address(node: &Node<'_>) -> Result<Place, FormatError> {
    let field = node.required("addr")?;
    let text = field.string()?;
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let address = digits
        .bytes()
        .all(|digit| digit.is_ascii_hexdigit())
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
        .ok_or_else(|| field.error(format!("is not a hexadecimal address: \"{text}\"")))?;
    if address >= LINE_MAX * LINE_BYTES {
        return Err(field.error("is too large"));
    }
    Ok(Place::new(POOL, PoolOffset(address)))
}
