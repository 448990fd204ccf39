//! Pictures of the moment of failure in files: names, blocks and lengths as rows, operations as marks.
//!
//! The rows are those that the finding names. A first pass over the trace chooses the operations on them; a second one
//! runs the model, and counts at the chosen operations how many changes of a row are not surely durable. Both are one pass for
//! all findings of the trace.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use powerfail_finding::Finding;
use powerfail_model::EventIndex;
use powerfail_model::files::{FileSystem, Frontier, NodeId, Operation, OperationIndex};
use powerfail_symbol::Symbolizer;
use powerfail_trace::{Body, FileOperations, Record, StackId, Trace, TraceError};

use super::model::{MarkOnRows, Moment, Outcome, Row};
use super::moment::{FIRST_MARKS, LAST_MARKS, ROWS_MAX};
use super::timeline::FileEvents;
use super::tree_rows::{Lengths, Part, kind_of, parts_of};
use crate::files::{self, FirstNames};
use crate::own_place::own_place;

/// How far a picture goes beyond what the finding names.
const EVENTS_BEFORE: u64 = 256;
const EVENTS_AFTER: u64 = 64;
/// Open operations of a row are looked at again when there are so many, and then whenever they have doubled.
const OPEN_MIN: usize = 64;

/// Whether a finding is about files, and not about pools in persistent memory.
pub(super) fn is_about_files(trace: &Trace, finding: &Finding) -> Result<bool, TraceError> {
    if finding.tree.is_some() || trace.trees().is_empty() {
        return Ok(finding.tree.is_some());
    }
    for event in finding.places.iter().filter_map(|it| it.event) {
        let mut records = trace.records_from(EventIndex(event));
        if let Some(record) = records.next_record()?
            && matches!(record.body, Body::File(_))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The pictures of findings about files, in their order, and what the trace as a whole has.
pub(super) fn pictures<'f>(
    trace: &Trace,
    file_system: FileSystem,
    findings: &[&'f Finding],
    events: Option<&mut FileEvents>,
) -> Result<Vec<Option<Moment<'f>>>, TraceError> {
    let names = FirstNames::of(trace);
    let mut pictures = Vec::new();
    for finding in findings {
        pictures.push(Picture::new(trace, finding)?);
    }
    choose(trace, &names, &mut pictures)?;
    count(trace, file_system, &mut pictures, events)?;
    let mut symbolizer = Symbolizer::of(trace);
    let mut places: BTreeMap<u32, String> = BTreeMap::new();
    let mut place = |stack: StackId| {
        let known = places.entry(stack.0);
        known
            .or_insert_with(|| own_place(trace, &mut symbolizer, stack).unwrap_or_default())
            .clone()
    };
    let moments = pictures.into_iter();
    Ok(moments.map(|it| it.finish(&names, &mut place)).collect())
}

struct Picture<'f> {
    finding: &'f Finding,
    parts: Vec<Part>,
    rows_left_out: usize,
    /// Changes of each row that are not surely durable, and how many there were when that was last known.
    open: Vec<(Vec<(OperationIndex, Operation)>, usize)>,
    /// The outcome, the number of open changes and how many of them survive.
    outcomes: Vec<(Outcome, usize, usize)>,
    /// The first and the last event that are shown.
    window: (u64, u64),
    failure: Option<u64>,
    named: BTreeSet<u64>,
    chosen: Chosen,
    left_out: u64,
}

/// Marks by their role in a picture.
#[derive(Default)]
struct Chosen {
    first: Vec<(MarkOnRows, StackId)>,
    last: VecDeque<(MarkOnRows, StackId)>,
    named: Vec<(MarkOnRows, StackId)>,
}

impl<'f> Picture<'f> {
    fn new(trace: &Trace, finding: &'f Finding) -> Result<Self, TraceError> {
        let failure = finding.evidence.as_ref().map(|it| it.failure.event);
        let mut picture = Self {
            finding,
            parts: Vec::new(),
            rows_left_out: 0,
            open: Vec::new(),
            outcomes: Vec::new(),
            window: (0, 0),
            failure,
            named: finding.places.iter().filter_map(|it| it.event).collect(),
            chosen: Chosen::default(),
            left_out: 0,
        };
        let crash = finding.tree.as_ref();
        let lost = crash.map_or(&[][..], |it| &it.lost);
        // What is lost comes first. A store to a mapped file is no record of an operation; the crash names its page.
        for event in lost.iter().chain(&picture.named.clone()) {
            let mut records = trace.records_from(EventIndex(*event));
            if let Some(record) = records.next_record()?
                && let Body::File(operation) = record.body
            {
                for part in operation.to_operation().iter().flat_map(parts_of) {
                    picture.row(part);
                }
            }
        }
        if let Some(crash) = crash {
            for length in &crash.lengths {
                picture.row(Part::Length(NodeId(length.node)));
            }
            for page in &crash.pages {
                let number = powerfail_model::files::PageIndex(page.page);
                picture.row(Part::Block(NodeId(page.node), number));
            }
        }
        picture.named.extend(lost);
        let ends = || picture.named.iter().copied().chain(failure);
        picture.window = (
            ends().min().unwrap_or(0).saturating_sub(EVENTS_BEFORE),
            ends().max().unwrap_or(0).saturating_add(EVENTS_AFTER),
        );
        Ok(picture)
    }

    fn row(&mut self, part: Part) {
        if self.parts.contains(&part) {
            return;
        }
        if self.parts.len() == ROWS_MAX {
            self.rows_left_out += 1;
            return;
        }
        self.parts.push(part);
        self.open.push((Vec::new(), OPEN_MIN));
        self.outcomes.push((Outcome::Durable, 0, 0));
    }

    fn choose(&mut self, mark: MarkOnRows, stack: StackId) {
        let chosen = &mut self.chosen;
        if self.named.contains(&mark.event) {
            chosen.named.push((mark, stack));
        } else if chosen.first.len() < FIRST_MARKS {
            chosen.first.push((mark, stack));
        } else {
            // What follows the failure is only added while there is room.
            let is_after = self.failure.is_some_and(|failure| mark.event >= failure);
            if !is_after || chosen.last.len() < LAST_MARKS {
                chosen.last.push_back((mark, stack));
            } else {
                self.left_out += 1;
            }
            if chosen.last.len() > LAST_MARKS {
                chosen.last.pop_front();
                self.left_out += 1;
            }
        }
    }

    /// Forgets the changes of a row that are durable now.
    fn settle(&mut self, row: usize, frontier: &Frontier) -> usize {
        let (open, known) = &mut self.open[row];
        open.retain(|(index, operation)| !frontier.is_sure(*index, operation));
        *known = (open.len() * 2).max(OPEN_MIN);
        open.len()
    }

    fn change(&mut self, row: usize, index: OperationIndex, operation: &Operation) -> bool {
        let (open, known) = &mut self.open[row];
        open.push((index, operation.clone()));
        open.len() > *known
    }

    /// What the rows are when the power fails.
    fn fail(&mut self, frontier: &Frontier, created: &BTreeMap<NodeId, u64>) {
        let crash = self.finding.tree.as_ref();
        for row in 0..self.parts.len() {
            let open = self.settle(row, frontier);
            let indexes: Vec<OperationIndex> = self.open[row].0.iter().map(|it| it.0).collect();
            let part = &self.parts[row];
            let first_lost = crash.and_then(|crash| {
                // Nothing is left of a file whose creation is lost.
                let own = part.first_lost(crash, &indexes);
                let creation = created.get(&part.node()).copied();
                let is_file = !matches!(part, Part::Name(_));
                own.or(creation.filter(|it| is_file && crash.lost.contains(it)))
            });
            let kept = first_lost.map_or(open, |first| {
                indexes.iter().filter(|index| index.0 < first).count()
            });
            let outcome = match (open, kept < open) {
                (0, _) => Outcome::Durable,
                (_, true) => Outcome::Lost,
                (_, false) => Outcome::Survives,
            };
            self.outcomes[row] = (outcome, open, kept);
        }
    }

    fn finish(
        self,
        names: &FirstNames,
        place: &mut dyn FnMut(StackId) -> String,
    ) -> Option<Moment<'f>> {
        if self.parts.is_empty() {
            return None;
        }
        let chosen = self.chosen;
        let all = chosen.first.into_iter();
        let all = all.chain(chosen.named).chain(chosen.last);
        let mut marks: Vec<MarkOnRows> = all
            .map(|(mark, stack)| MarkOnRows {
                place: place(stack),
                ..mark
            })
            .collect();
        marks.sort_by_key(|mark| mark.event);
        let rows = self.parts.iter().zip(&self.outcomes);
        let rows = rows.map(|(part, (outcome, open, kept))| Row {
            label: part.label(names),
            outcome: *outcome,
            open: *open,
            kept: *kept,
        });
        Some(Moment {
            of: "files",
            rows: rows.collect(),
            rows_left_out: self.rows_left_out,
            marks,
            marks_left_out: self.left_out,
            failure: self.failure,
            reads: Vec::new(),
        })
    }
}

/// Which rows of which pictures operations touch.
struct Touched {
    by_node: BTreeMap<NodeId, Vec<(usize, usize)>>,
    all: Vec<(usize, usize)>,
    lengths: Lengths,
    /// The names that rows have, by the node that last had them: a sync of a file can make its name durable.
    names: BTreeMap<NodeId, BTreeSet<(usize, usize)>>,
}

impl Touched {
    fn new(trace: &Trace, pictures: &[Picture<'_>]) -> Self {
        let mut touched = Self {
            by_node: BTreeMap::new(),
            all: Vec::new(),
            lengths: Lengths::default(),
            names: BTreeMap::new(),
        };
        for initial in trace.initial_nodes() {
            touched.lengths.set(initial.node, initial.len_bytes);
        }
        for (number, picture) in pictures.iter().enumerate() {
            for (row, part) in picture.parts.iter().enumerate() {
                let rows = touched.by_node.entry(part.node()).or_default();
                rows.push((number, row));
                touched.all.push((number, row));
            }
        }
        touched
    }

    /// The rows that an operation changes, or may make durable.
    fn by(&mut self, operation: &Operation, pictures: &[Picture<'_>]) -> Vec<(usize, usize)> {
        let before = self.lengths.apply(operation);
        let mut rows: Vec<(usize, usize)> = match operation {
            Operation::SyncFileSystem => self.all.clone(),
            Operation::SyncFile { node, .. } | Operation::SyncRange { node, .. } => {
                let own = self.by_node.get(node).into_iter().flatten();
                own.chain(self.names.get(node).into_iter().flatten())
                    .copied()
                    .collect()
            }
            _ => {
                let directories = super::tree_rows::entries(operation).map(|it| it.directory);
                let nodes = directories.chain(operation.file());
                let rows = nodes.flat_map(|node| self.by_node.get(&node).into_iter().flatten());
                let changed = rows.filter(|(picture, row)| {
                    pictures[*picture].parts[*row].is_changed_by(operation, before)
                });
                changed.copied().collect()
            }
        };
        rows.sort_unstable();
        rows.dedup();
        if operation.is_namespace()
            && let Some(node) = operation.node()
            && !rows.is_empty()
        {
            self.names.entry(node).or_default().extend(&rows);
        }
        rows
    }
}

/// The first pass: which operations the pictures show.
fn choose(
    trace: &Trace,
    names: &FirstNames,
    pictures: &mut [Picture<'_>],
) -> Result<(), TraceError> {
    let mut touched = Touched::new(trace, pictures);
    if touched.all.is_empty() {
        return Ok(());
    }
    let mut operations = FileOperations::default();
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        let Some((operation, _)) = operations.operation(&record) else {
            continue;
        };
        let Some((kind, shape)) = kind_of(&operation) else {
            continue;
        };
        let event = record.index.0;
        let mut by_picture: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (picture, row) in touched.by(&operation, pictures) {
            let (first, last) = pictures[picture].window;
            if (first..=last).contains(&event) {
                by_picture.entry(picture).or_default().push((row, 0));
            }
        }
        for (picture, rows) in by_picture {
            let mark = MarkOnRows {
                event,
                kind,
                shape,
                thread: record.thread.0,
                rows,
                place: String::new(),
                text: text_of(&record, names),
            };
            pictures[picture].choose(mark, record.stack);
        }
    }
    Ok(())
}

fn text_of(record: &Record<'_>, names: &FirstNames) -> String {
    match &record.body {
        Body::File(operation) => names.without_tree(&files::text(operation, names)),
        _ => String::new(),
    }
}

/// The second pass: what is open at the chosen operations and when the power fails.
fn count(
    trace: &Trace,
    file_system: FileSystem,
    pictures: &mut [Picture<'_>],
    mut events: Option<&mut FileEvents>,
) -> Result<(), TraceError> {
    let mut touched = Touched::new(trace, pictures);
    let mut frontier = Frontier::new(file_system, &trace.initial_tree());
    let mut created: BTreeMap<NodeId, u64> = BTreeMap::new();
    let mut failures: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut wanted: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, picture) in pictures.iter().enumerate() {
        if let Some(failure) = picture.failure {
            failures.entry(failure).or_default().push(number);
        }
        let chosen = &picture.chosen;
        let all = chosen.first.iter().chain(&chosen.named).chain(&chosen.last);
        for (mark, _) in all {
            wanted.entry(mark.event).or_default().push(number);
        }
    }
    let mut operations = FileOperations::default();
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        let event = record.index.0;
        while let Some(entry) = failures.first_entry().filter(|it| *it.key() <= event) {
            for number in entry.remove() {
                pictures[number].fail(&frontier, &created);
            }
        }
        let Some((operation, _)) = operations.operation(&record) else {
            continue;
        };
        let index = OperationIndex(event);
        let raises_floor = frontier.raises_floor(&operation);
        frontier.apply(index, &operation);
        if let Some(events) = &mut events {
            events.after(&frontier, index, &operation, raises_floor);
        }
        if let Operation::Create { node, .. } = operation {
            created.insert(node, event);
        }
        let rows = touched.by(&operation, pictures);
        if !operation.is_sync() {
            for (picture, row) in &rows {
                if pictures[*picture].change(*row, index, &operation) {
                    pictures[*picture].settle(*row, &frontier);
                }
            }
        }
        for number in wanted.remove(&event).unwrap_or_default() {
            let picture = &mut pictures[number];
            let counted: Vec<usize> = (0..picture.parts.len())
                .map(|row| picture.settle(row, &frontier))
                .collect();
            let chosen = &mut picture.chosen;
            let all = chosen.first.iter_mut();
            let all = all.chain(&mut chosen.named).chain(&mut chosen.last);
            for (mark, _) in all.filter(|(mark, _)| mark.event == event) {
                for (row, open) in &mut mark.rows {
                    *open = counted[*row];
                }
            }
        }
    }
    for number in failures.into_values().flatten() {
        pictures[number].fail(&frontier, &created);
    }
    Ok(())
}
