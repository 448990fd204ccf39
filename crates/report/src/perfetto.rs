//! A trace for Perfetto (<https://ui.perfetto.dev>), and for whatever else reads the JSON of Chrome's tracing.
//!
//! The number of an event is its time, in microseconds: a trace has an order and no clock. Each thread has its
//! events. Each line is a slice from the store that opens it to the event that makes it durable. Two counters show the
//! open lines and the decimal logarithm of the number of crash states. Operations on files have their names and bytes; what of
//! them is durable is not shown.

use std::io::{self, Write};

use powerfail_model::{Event, EventIndex, Frontier, LineId, LineIndex, Place, PoolIndex, Rules};
use powerfail_trace::{Body, MarkKind, Record, RecordKind, Trace, TraceError};
use rustc_hash::FxHashSet;
use serde_json::{Value, json};

use crate::files::{self, FirstNames};
use crate::trace::Places;

/// Why a trace could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PerfettoError {
    /// The file cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// The process of the events, and the one of lines and counters.
const PROGRAM: u32 = 1;
const MEMORY: u32 = 2;

/// Writes the trace.
pub fn perfetto(
    out: &mut dyn Write,
    trace: &Trace,
    rules: Rules,
    places: &mut Places<'_>,
) -> Result<(), PerfettoError> {
    let mut frontier = Frontier::new(rules, ());
    let mut list = List {
        out,
        is_first: true,
    };
    write!(list.out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for (process, name) in [(PROGRAM, "program"), (MEMORY, "persistent memory")] {
        list.push(
            &json!({"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}),
        )?;
    }
    for (number, thread) in trace.threads().iter().enumerate() {
        let name = thread.name.as_deref().map(String::from_utf8_lossy);
        let name = name.unwrap_or_default();
        let name = format!("thread {number} {name}");
        list.push(&json!({
            "name": "thread_name", "ph": "M", "pid": PROGRAM, "tid": number,
            "args": {"name": name.trim_end()},
        }))?;
    }
    let names = FirstNames::of(trace);
    let mut open: FxHashSet<LineId> = FxHashSet::default();
    let mut risen = Vec::new();
    let mut counted = (usize::MAX, f64::NAN);
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        let time = record.index.0;
        let (name, arguments) = described(&record, places, &names);
        list.push(&json!({
            "name": name, "ph": "X", "dur": 1, "ts": time, "pid": PROGRAM, "tid": record.thread.0,
            "args": arguments,
        }))?;
        let Some(step) = record.step() else { continue };
        risen.clear();
        frontier.apply_and(&step, |line, _| risen.push(line));
        for line in &risen {
            if frontier.open_line(*line).is_none() && open.remove(line) {
                list.push(&slice("e", *line, time, rules))?;
            }
        }
        if let Event::Store { at, bytes, .. } = step.event {
            for line in lines(at, bytes.len(), rules) {
                if frontier.open_line(line).is_some() && open.insert(line) {
                    list.push(&slice("b", line, time, rules))?;
                }
            }
        }
        let now = (
            frontier.open_lines().len(),
            frontier.crash_state_count_log10(),
        );
        if now.0 != counted.0 {
            list.push(&counter("open lines", time, now.0))?;
        }
        if now.1.to_bits() != counted.1.to_bits() {
            list.push(&counter("crash states (log10)", time, now.1))?;
        }
        counted = now;
    }
    // What is never made durable stays open to the end.
    let end = trace.event_count();
    let mut left: Vec<LineId> = open.into_iter().collect();
    left.sort_unstable();
    for line in left {
        list.push(&slice("e", line, end, rules))?;
    }
    writeln!(list.out, "\n]}}")?;
    Ok(())
}

/// The name of a record, and what is known of it.
fn described(record: &Record<'_>, places: &mut Places<'_>, names: &FirstNames) -> (String, Value) {
    let mut arguments = json!({"event": record.index.0});
    if let Some(place) = places.own(record) {
        arguments["place"] = place.into();
    }
    let name = match record.body {
        Body::Mark(mark) if mark.kind == MarkKind::OperationBegin => {
            format!("operation {} begins", mark.value)
        }
        Body::Mark(mark) if mark.kind == MarkKind::OperationEnd => {
            format!("operation {} ends", mark.value)
        }
        _ => RecordKind::of(&record.body).name().to_owned(),
    };
    if let Body::File(operation) = &record.body {
        arguments["files"] = names.without_tree(&files::text(operation, names)).into();
    }
    if let Body::Pm(Event::Store { at, .. } | Event::Flush { at, .. }) = record.body {
        arguments["pool"] = at.pool.0.into();
        arguments["offset"] = format!("{:#x}", at.offset.0).into();
    }
    if let Body::Pm(Event::Store { bytes, .. }) = record.body {
        arguments["len_bytes"] = bytes.len().into();
    }
    (name, arguments)
}

/// The elements of a list, one on each line.
struct List<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
}

impl List<'_> {
    fn push(&mut self, value: &Value) -> io::Result<()> {
        let comma = if self.is_first { "" } else { "," };
        self.is_first = false;
        write!(self.out, "{comma}\n{value}")
    }
}

fn lines(at: Place, len: usize, rules: Rules) -> impl Iterator<Item = LineId> {
    let line_bytes = rules.domain.line_bytes() as u64;
    let last = at.offset.0.saturating_add(len.max(1) as u64 - 1) / line_bytes;
    let pool: PoolIndex = at.pool;
    (at.offset.0 / line_bytes..=last).map(move |line| LineId {
        pool,
        line: LineIndex(line),
    })
}

fn slice(phase: &str, line: LineId, time: u64, rules: Rules) -> Value {
    let offset = line.line.0 * rules.domain.line_bytes() as u64;
    let name = format!("pool {} {offset:#x}", line.pool.0);
    json!({
        "name": name, "cat": "open line", "ph": phase, "id": name, "ts": time, "pid": MEMORY, "tid": 0,
    })
}

fn counter(name: &str, time: u64, value: impl Into<Value>) -> Value {
    let value: Value = value.into();
    json!({"name": name, "ph": "C", "ts": time, "pid": MEMORY, "args": {"value": value}})
}
