//! The content of a trace, and what a crash at a position in it can leave.

use std::collections::BTreeMap;
use std::io::{self, Write};

use powerfail_finding::hex;
use powerfail_model::{Event, EventIndex, FlushKind, Frontier, Image, OpenLine};
use powerfail_symbol::{AddressKind, Symbolizer};
use powerfail_trace::replay::PoolReplay;
use powerfail_trace::tree_replay::TreeReplay;
use powerfail_trace::{
    Body, Completeness, Frame, MarkKind, Module, Record, RecordGroup, RecordKind, SEAL_NOTE,
    StackId, Statistics, Trace,
};
use serde_json::{Value, json};

use crate::files::{self, FirstNames};
use crate::marks;
use crate::own_place::own_place;
use crate::text::{
    BAD, FAINT, GOOD, STRONG, WARNING, big_count, big_plural, bytes, count, plural, power_of_ten,
    printable,
};

/// Bytes of a store or mark that a line of text shows; `--json` shows all.
const BYTES_SHOWN: usize = 16;

/// A warning for a trace whose writer did not finish; nothing for a complete one.
pub fn incompleteness(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    if let Completeness::Incomplete { lost_bytes, .. } = trace.completeness() {
        let events = plural(trace.event_count(), "event");
        let lost = bytes(lost_bytes);
        writeln!(
            out,
            "{WARNING}warning{WARNING:#}: the recording ended before the trace was finished: \
             {events} can be read, {lost} after them cannot"
        )?;
    }
    Ok(())
}

/// Counts and ratios of a trace.
pub fn info(out: &mut dyn Write, trace: &Trace, statistics: &Statistics) -> io::Result<()> {
    let meta = trace.meta();
    let mut field = |name: &str, value: &str| {
        let (name, value) = (printable(name), printable(value));
        writeln!(out, "{STRONG}{name:<11}{STRONG:#} {value}")
    };
    if !meta.command.is_empty() {
        let command: Vec<_> = meta
            .command
            .iter()
            .map(|part| part.to_string_lossy())
            .collect();
        field("command", &command.join(" "))?;
    }
    if !meta.powerfail_version.is_empty() {
        field("recorder", &format!("powerfail {}", meta.powerfail_version))?;
    }
    for (name, value) in meta.notes.iter().filter(|(name, _)| name != SEAL_NOTE) {
        field(name, value)?;
    }
    let complete = match trace.completeness() {
        Completeness::Complete => "complete".to_owned(),
        Completeness::Incomplete { lost_bytes, .. } => {
            format!(
                "INCOMPLETE: the recording ended early, {} are lost",
                bytes(lost_bytes)
            )
        }
    };
    field(
        "file",
        &format!("{}, {complete}", bytes(statistics.file_bytes)),
    )?;
    field(
        "events",
        &format!(
            "{}, {:.1} bytes each, compressed {:.1} times",
            count(statistics.events),
            statistics.bytes_per_event(),
            statistics.compression_ratio()
        ),
    )?;
    for group in RecordGroup::ALL {
        let total = statistics.of_group(group);
        if total == 0 {
            continue;
        }
        let kinds: Vec<String> = RecordKind::ALL
            .into_iter()
            .filter(|kind| kind.group() == group && statistics.of(*kind) > 0)
            .map(|kind| format!("{} {}", kind.name(), count(statistics.of(kind))))
            .collect();
        field(
            &format!("  {}", group.name()),
            &format!("{} ({})", count(total), kinds.join(", ")),
        )?;
    }
    field("stored", &bytes(statistics.store_bytes))?;
    if let Some(ratios) = ratios(statistics) {
        field("ratios", &ratios)?;
    }
    field("threads", &count(trace.threads().len() as u64))?;
    field("modules", &count(trace.modules().len() as u64))?;
    field(
        "stacks",
        &format!("{} call-tree nodes", count(u64::from(trace.stack_count()))),
    )?;
    field("pools", &count(trace.pools().len() as u64))?;
    for (index, pool) in trace.pools().iter().enumerate() {
        let path = pool.path.display();
        let text = format!("{path}, {} at {:#x}", bytes(pool.len_bytes), pool.address);
        field(&format!("  {index}"), &text)?;
    }
    if !trace.trees().is_empty() {
        field("written", &bytes(statistics.written_bytes))?;
        let names = plural(trace.initial_entries().len() as u64, "initial name");
        let trees = count(trace.trees().len() as u64);
        field("trees", &format!("{trees}, {names}"))?;
        for (index, tree) in trace.trees().iter().enumerate() {
            field(&format!("  {index}"), &tree.path.display().to_string())?;
        }
    }
    Ok(())
}

/// How often a store is flushed and fenced: the first question about a PM program.
fn ratios(statistics: &Statistics) -> Option<String> {
    let stores = statistics.of_group(RecordGroup::Stores);
    // A flush of volatile memory makes no store durable.
    let flushes =
        statistics.of_group(RecordGroup::Flushes) - statistics.of(RecordKind::VolatileFlush);
    let fences = statistics.of_group(RecordGroup::Fences);
    if stores == 0 {
        return None;
    }
    let per = |part: u64, whole: u64| {
        if whole == 0 {
            "no".to_owned()
        } else {
            tenths(part, whole)
        }
    };
    Some(format!(
        "{} stores per flush, {} flushes per fence, {} bytes per store",
        per(stores, flushes),
        per(flushes, fences),
        tenths(statistics.store_bytes, stores)
    ))
}

fn tenths(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 10 / u128::from(whole.max(1));
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Counts and ratios, as one JSON object.
pub fn info_json(trace: &Trace, statistics: &Statistics) -> Value {
    let counts: serde_json::Map<String, Value> = RecordKind::ALL
        .into_iter()
        .map(|kind| (kind.name().to_owned(), json!(statistics.of(kind))))
        .collect();
    let meta = trace.meta();
    let command: Vec<_> = meta
        .command
        .iter()
        .map(|part| part.to_string_lossy())
        .collect();
    let notes: serde_json::Map<String, Value> = meta
        .notes
        .iter()
        .filter(|(name, _)| name != SEAL_NOTE)
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let pools: Vec<Value> = trace
        .pools()
        .iter()
        .map(|pool| {
            json!({
                "path": pool.path.to_string_lossy(),
                "len_bytes": pool.len_bytes,
                "address": pool.address,
            })
        })
        .collect();
    json!({
        "command": command,
        "powerfail_version": meta.powerfail_version,
        "started_unix_ms": meta.started_unix_ms,
        "notes": notes,
        "complete": trace.completeness() == Completeness::Complete,
        "file_bytes": statistics.file_bytes,
        "events": statistics.events,
        "bytes_per_event": statistics.bytes_per_event(),
        "compression_ratio": statistics.compression_ratio(),
        "store_bytes": statistics.store_bytes,
        "counts": counts,
        "threads": trace.threads().len(),
        "modules": trace.modules().len(),
        "stacks": trace.stack_count(),
        "pools": pools,
        "written_bytes": statistics.written_bytes,
        "trees": trace
            .trees()
            .iter()
            .map(|tree| tree.path.to_string_lossy())
            .collect::<Vec<_>>(),
    })
}

/// How places in the code are shown: the module and the offset in it, with the source if it is wanted
/// and known.
pub struct Places<'t> {
    trace: &'t Trace,
    symbolizer: Option<Symbolizer>,
    with_stacks: bool,
    /// Under which names the files of the trees were first seen.
    files: FirstNames,
    /// The places of call stacks that were asked for.
    own: BTreeMap<StackId, String>,
}

impl<'t> Places<'t> {
    /// The places of a trace: with their sources or not, with whole call stacks or only with the
    /// innermost frame.
    pub fn new(trace: &'t Trace, with_sources: bool, with_stacks: bool) -> Self {
        let symbolizer = with_sources.then(|| Symbolizer::of(trace));
        Self {
            trace,
            symbolizer,
            with_stacks,
            files: FirstNames::of(trace),
            own: BTreeMap::new(),
        }
    }

    /// The frames to show, innermost first.
    fn frames(&self, record: &Record<'_>) -> impl Iterator<Item = Frame> + use<'t> {
        let count = if self.with_stacks { usize::MAX } else { 1 };
        self.trace.stack(record.stack).take(count)
    }

    /// The source of a frame, if it is wanted and known.
    fn source(&mut self, frame: Frame, kind: AddressKind) -> Option<String> {
        let resolved = self.symbolizer.as_mut()?.resolve(frame, kind);
        resolved.innermost().map(|_| resolved.to_string())
    }

    /// A record for people, in a narrow column: files are named without the path of their tree.
    pub(crate) fn short_text(&self, body: &Body<'_>) -> String {
        self.files.without_tree(&body_text(body, &self.files))
    }

    /// Where a record is in the program's own sources, or else its innermost frame; nothing if it has no call stack.
    pub(crate) fn own(&mut self, record: &Record<'_>) -> Option<String> {
        let frame = self.trace.stack(record.stack).next()?;
        if let Some(place) = self.own.get(&record.stack) {
            return Some(place.clone());
        }
        let symbolizer = self.symbolizer.as_mut();
        let place = symbolizer.and_then(|it| own_place(self.trace, it, record.stack));
        let place = match place {
            Some(place) => printable(&place).into_owned(),
            None => self.text(frame, AddressKind::Instruction),
        };
        self.own.insert(record.stack, place.clone());
        Some(place)
    }

    /// A frame for people: its source, or else where it is.
    fn text(&mut self, frame: Frame, kind: AddressKind) -> String {
        let source = self.source(frame, kind);
        let text = source.unwrap_or_else(|| frame_text(self.trace.modules(), frame));
        printable(&text).into_owned()
    }
}

/// How the frames of a stack are looked up: the innermost is where something happened, the others
/// are where a call returns to.
fn address_kinds() -> impl Iterator<Item = AddressKind> {
    std::iter::once(AddressKind::Instruction).chain(std::iter::repeat(AddressKind::Return))
}

/// One record as one line of text, or several with its stack.
pub fn record(out: &mut dyn Write, places: &mut Places<'_>, record: &Record<'_>) -> io::Result<()> {
    let Record {
        index,
        thread,
        ref body,
        ..
    } = *record;
    let text = body_text(body, &places.files);
    write!(out, "{index:>10}  {thread:>3}  {text}")?;
    for (number, (frame, kind)) in places.frames(record).zip(address_kinds()).enumerate() {
        let text = places.text(frame, kind);
        if number == 0 {
            write!(out, "  {FAINT}{text}{FAINT:#}")?;
        } else {
            write!(out, "\n{:17}{FAINT}called from {text}{FAINT:#}", "")?;
        }
    }
    writeln!(out)
}

fn body_text(body: &Body<'_>, names: &FirstNames) -> String {
    let name = RecordKind::of(body).name();
    match body {
        Body::Pm(event) => event_text(event),
        Body::VolatileFlush { kind, address } => {
            format!("{name:<12} {} {address:#x}", instruction(*kind))
        }
        Body::Mark(mark) => {
            let about = match mark.kind {
                MarkKind::Output { fd, full_len_bytes } => {
                    let about = format!("fd {fd}, {}", bytes(full_len_bytes));
                    format!("{about} {}", marks::payload_text(mark.payload))
                }
                MarkKind::Annotation(annotation) => {
                    marks::text(annotation, mark.value, mark.payload)
                }
                MarkKind::OperationBegin | MarkKind::OperationEnd => mark.value.to_string(),
            };
            format!("{name:<12} {about}")
        }
        Body::File(operation) => format!("{name:<12} {}", files::text(operation, names)),
        Body::Mapped { pool, node } => {
            format!("{name:<12} pool {pool} is {}", names.name(*node))
        }
        Body::ThreadStart | Body::ThreadEnd => name.to_owned(),
    }
}

/// The name of a flush instruction.
const fn instruction(kind: FlushKind) -> &'static str {
    match kind {
        FlushKind::Clflush => "clflush",
        FlushKind::Clflushopt => "clflushopt",
        FlushKind::Clwb => "clwb",
    }
}

/// An event on persistent memory as text.
pub(crate) fn event_text(event: &Event<'_>) -> String {
    let name = RecordKind::of(&Body::Pm(*event)).name();
    match event {
        Event::Store {
            at, bytes: stored, ..
        } => {
            let shown = hex(&stored[..stored.len().min(BYTES_SHOWN)]);
            let more = if stored.len() > BYTES_SHOWN {
                "..."
            } else {
                ""
            };
            let len = stored.len();
            format!("{name:<12} {at} +{len} = {shown}{more}")
        }
        Event::Flush { at, .. } => format!("{name:<12} {at}"),
        Event::Fence(_) => name.to_owned(),
        Event::Sync {
            pool,
            offset,
            len_bytes,
        } => {
            format!("{name:<12} {pool}:{offset} +{len_bytes}")
        }
        Event::Resize { pool, len_bytes } => format!("{name:<12} pool {pool} to {len_bytes} bytes"),
    }
}

fn frame_text(modules: &[Module], frame: Frame) -> String {
    match frame {
        Frame::Module { module, offset } => {
            let name = modules
                .get(module.0 as usize)
                .and_then(|module| module.path.file_name());
            match name {
                Some(name) => format!("{}+{offset:#x}", name.to_string_lossy()),
                None => format!("module {module}+{offset:#x}"),
            }
        }
        Frame::Absolute { address } => format!("{address:#x}"),
    }
}

/// One record as one JSON object.
pub fn record_json(places: &mut Places<'_>, record: &Record<'_>) -> Value {
    let mut value = json!({
        "index": record.index.0,
        "thread": record.thread.0,
        "kind": RecordKind::of(&record.body).name(),
    });
    match record.body {
        Body::Pm(Event::Store { at, bytes, .. }) => {
            value["pool"] = json!(at.pool.0);
            value["offset"] = json!(at.offset.0);
            value["len_bytes"] = json!(bytes.len());
            value["bytes"] = json!(hex(bytes));
        }
        Body::Pm(Event::Flush { at, .. }) => {
            value["pool"] = json!(at.pool.0);
            value["offset"] = json!(at.offset.0);
        }
        Body::Pm(Event::Sync {
            pool,
            offset,
            len_bytes,
        }) => {
            value["pool"] = json!(pool.0);
            value["offset"] = json!(offset.0);
            value["len_bytes"] = json!(len_bytes);
        }
        Body::Pm(Event::Resize { pool, len_bytes }) => {
            value["pool"] = json!(pool.0);
            value["len_bytes"] = json!(len_bytes);
        }
        Body::VolatileFlush { kind, address } => {
            value["instruction"] = json!(instruction(kind));
            value["address"] = json!(address);
        }
        Body::Mark(mark) => {
            value["value"] = json!(mark.value);
            value["payload"] = json!(hex(mark.payload));
            match mark.kind {
                MarkKind::Output { fd, full_len_bytes } => {
                    value["fd"] = json!(fd);
                    value["full_len_bytes"] = json!(full_len_bytes);
                }
                MarkKind::Annotation(annotation) => {
                    marks::add_json(&mut value, annotation, mark.value, mark.payload);
                }
                MarkKind::OperationBegin | MarkKind::OperationEnd => {}
            }
        }
        Body::File(operation) => files::add_json(&mut value, &operation, &places.files),
        Body::Mapped { pool, node } => {
            value["pool"] = json!(pool.0);
            value["node"] = json!(node.0);
            value["path"] = json!(places.files.name(node));
        }
        Body::Pm(Event::Fence(_)) | Body::ThreadStart | Body::ThreadEnd => {}
    }
    let frames: Vec<(Frame, AddressKind)> = places.frames(record).zip(address_kinds()).collect();
    let site = |frame| json!(frame_text(places.trace.modules(), frame));
    if places.with_stacks {
        value["stack"] = frames.iter().map(|(frame, _)| site(*frame)).collect();
    }
    if let Some((frame, kind)) = frames.first() {
        value["site"] = site(*frame);
        if let Some(source) = places.source(*frame, *kind) {
            value["source"] = json!(source);
        }
    }
    value
}

/// Open lines and number of crash states at a position; at most `lines_max` lines in full.
pub fn states<I: Image>(
    out: &mut dyn Write,
    at: EventIndex,
    event_count: u64,
    frontier: &Frontier<I>,
    lines_max: usize,
) -> io::Result<()> {
    let lines = frontier.open_lines_sorted();
    let combinations = frontier.crash_state_count();
    let distinct = frontier.distinct_state_count();
    if event_count == 0 {
        writeln!(out, "crash without any event")?;
    } else if at.0 >= event_count {
        writeln!(out, "crash after the last event, {}", event_count - 1)?;
    } else {
        writeln!(out, "crash just before event {at}")?;
    }
    let open = plural(lines.len() as u64, "open line");
    writeln!(
        out,
        "{STRONG}{open}, {}{STRONG:#}",
        big_plural(&combinations, "crash state")
    )?;
    if combinations != distinct {
        writeln!(out, "{} of them differ in content", big_count(&distinct))?;
    }
    for line in lines.iter().take(lines_max) {
        open_line(out, line)?;
    }
    if lines.len() > lines_max {
        let more = plural((lines.len() - lines_max) as u64, "more open line");
        writeln!(out, "{FAINT}{more}; --lines N shows more of them{FAINT:#}")?;
    }
    Ok(())
}

fn open_line(out: &mut dyn Write, line: &OpenLine) -> io::Result<()> {
    let id = line.id();
    let (versions, offset) = (line.version_count(), line.offset());
    writeln!(
        out,
        "  line {} of pool {} at {offset}: {versions} versions",
        id.line, id.pool
    )?;
    for store in line.stores().take(LINE_STORES_SHOWN) {
        let shown = hex(&store.bytes[..store.bytes.len().min(BYTES_SHOWN)]);
        let more = if store.bytes.len() > BYTES_SHOWN {
            "..."
        } else {
            ""
        };
        let (event, offset, len) = (store.event, store.offset_in_line, store.bytes.len());
        writeln!(
            out,
            "    {FAINT}event {event}: +{offset} {len} B = {shown}{more}{FAINT:#}"
        )?;
    }
    if versions - 1 > LINE_STORES_SHOWN {
        let more = plural((versions - 1 - LINE_STORES_SHOWN) as u64, "more store");
        writeln!(out, "    {FAINT}{more}{FAINT:#}")?;
    }
    Ok(())
}

/// Open stores of a line that text shows; `--json` shows all.
const LINE_STORES_SHOWN: usize = 8;

/// Open lines and number of crash states at a position, as one JSON object. Numbers of states are
/// strings, because they exceed what JSON readers take as numbers.
pub fn states_json<I: Image>(at: EventIndex, frontier: &Frontier<I>) -> Value {
    let lines: Vec<Value> = frontier
        .open_lines_sorted()
        .iter()
        .map(|line| {
            let stores: Vec<Value> = line
                .stores()
                .map(|store| {
                    json!({
                        "event": store.event.0,
                        "offset_in_line": store.offset_in_line,
                        "bytes": hex(store.bytes),
                    })
                })
                .collect();
            json!({
                "pool": line.id().pool.0,
                "offset": line.offset().0,
                "versions": line.version_count(),
                "floor": hex(line.floor()),
                "stores": stores,
            })
        })
        .collect();
    json!({
        "at": at.0,
        "combinations": frontier.crash_state_count().to_string(),
        "distinct": frontier.distinct_state_count().to_string(),
        "open_lines": lines,
    })
}

/// One failure point and how many crash states it has.
pub fn failure_point<I: Image>(
    out: &mut dyn Write,
    at: EventIndex,
    frontier: &Frontier<I>,
) -> io::Result<()> {
    let lines = plural(frontier.open_lines().len() as u64, "open line");
    // A list of failure points must not cost the digits of the number at each.
    let states = match frontier.crash_state_count_log10() {
        large if large > 15.0 => format!("{} crash states", power_of_ten(large)),
        _ => big_plural(&frontier.crash_state_count(), "crash state"),
    };
    writeln!(out, "{at:>10}  {lines}, {states}")
}

/// The same as one JSON object.
pub fn failure_point_json<I: Image>(at: EventIndex, frontier: &Frontier<I>) -> Value {
    json!({
        "at": at.0,
        "open_lines": frontier.open_lines().len(),
        "combinations": frontier.crash_state_count().to_string(),
    })
}

/// The result of an integrity and replay check.
pub fn check(
    out: &mut dyn Write,
    trace: &Trace,
    pools: &[PoolReplay],
    trees: &[TreeReplay],
) -> io::Result<()> {
    for replay in pools {
        let path = trace
            .pools()
            .get(replay.pool.0 as usize)
            .map_or_else(String::new, |pool| {
                printable(&pool.path.to_string_lossy()).into_owned()
            });
        let (style, text) = match replay.matches() {
            Some(true) => (GOOD, "the stores give the final image".to_owned()),
            Some(false) => (
                BAD,
                format!(
                    "the stores do NOT give the final image: {} bytes with hash {:.16}, expected {}",
                    replay.len_bytes,
                    replay.hash.to_string(),
                    replay
                        .expected
                        .map_or_else(String::new, |(len, hash)| format!(
                            "{len} bytes with hash {:.16}",
                            hash.to_string()
                        ))
                ),
            ),
            None => (WARNING, "the recorder left no final hash".to_owned()),
        };
        writeln!(out, "pool {} {path}: {style}{text}{style:#}", replay.pool)?;
        if replay.outside_bytes > 0 {
            let outside = bytes(replay.outside_bytes);
            writeln!(
                out,
                "  {BAD}{outside} were stored beyond the end of the pool{BAD:#}"
            )?;
        }
    }
    for (replay, tree) in trees.iter().zip(trace.trees()) {
        let path = tree.path.display().to_string();
        let path = printable(&path);
        let names = plural(replay.names, "name");
        let (style, text) = match replay.matches() {
            Some(true) => (GOOD, format!("{names}, the replay gives the final tree")),
            Some(false) => (BAD, "the replay does NOT give the final tree".to_owned()),
            None => (WARNING, format!("{names}, the final tree is unknown")),
        };
        writeln!(out, "tree {} {path}: {style}{text}{style:#}", replay.tree)?;
    }
    let events = plural(trace.event_count(), "event");
    let blocks = plural(trace.blocks().len() as u64, "block");
    writeln!(out, "{events} in {blocks}: all checksums match")
}

/// Why a readable trace is not sound; empty if it is.
pub fn problems(trace: &Trace, pools: &[PoolReplay], trees: &[TreeReplay]) -> Vec<String> {
    let mut problems = Vec::new();
    if let Completeness::Incomplete { lost_bytes, .. } = trace.completeness() {
        problems.push(format!(
            "the recording ended before the trace was finished, {} cannot be read",
            bytes(lost_bytes)
        ));
    }
    for replay in pools {
        let pool = replay.pool;
        if replay.matches() == Some(false) {
            problems.push(format!(
                "the stores do not give the final image of pool {pool}"
            ));
        }
        if replay.outside_bytes > 0 {
            let outside = bytes(replay.outside_bytes);
            problems.push(format!(
                "{outside} were stored beyond the end of pool {pool}"
            ));
        }
    }
    for replay in trees {
        if let Some(difference) = &replay.difference {
            let tree = replay.tree;
            problems.push(format!(
                "the operations do not give the final tree {tree}: {}",
                printable(&difference.to_string())
            ));
        }
    }
    problems
}

/// The closing line of a check.
pub fn verdict(out: &mut dyn Write, problems: &[String]) -> io::Result<()> {
    if problems.is_empty() {
        writeln!(out, "{GOOD}sound{GOOD:#}")
    } else {
        writeln!(out, "{BAD}NOT sound{BAD:#}: {}", problems.join("; "))
    }
}

/// The result of a check of a trace that is so damaged that it cannot be read, as one JSON object.
pub fn damage_json(problems: &[String]) -> Value {
    json!({"sound": false, "problems": problems})
}

/// The result of an integrity and replay check, as one JSON object.
pub fn check_json(
    trace: &Trace,
    problems: &[String],
    pools: &[PoolReplay],
    trees: &[TreeReplay],
) -> Value {
    let trees: Vec<Value> = trees
        .iter()
        .map(|replay| {
            json!({
                "tree": replay.tree.0,
                "matches": replay.matches(),
                "names": replay.names,
            })
        })
        .collect();
    let pools: Vec<Value> = pools
        .iter()
        .map(|replay| {
            json!({
                "pool": replay.pool.0,
                "matches": replay.matches(),
                "len_bytes": replay.len_bytes,
                "hash": replay.hash.to_string(),
                "expected_len_bytes": replay.expected.map(|(len, _)| len),
                "expected_hash": replay.expected.map(|(_, hash)| hash.to_string()),
                "outside_bytes": replay.outside_bytes,
            })
        })
        .collect();
    json!({
        "sound": problems.is_empty(),
        "problems": problems,
        "complete": trace.completeness() == Completeness::Complete,
        "events": trace.event_count(),
        "pools": pools,
        "trees": trees,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use powerfail_model::{FlushKind, Place, PoolIndex, PoolOffset, StoreKind, ThreadIndex};
    use powerfail_trace::{Meta, Pool, PoolKind, Thread, TraceWriter, WriterOptions};

    /// Two stores, a flush, a flush of volatile memory; with call stacks of two frames.
    fn small_trace() -> Trace {
        let mut bytes = Vec::new();
        let mut writer = TraceWriter::new(&mut bytes, &Meta::default(), WriterOptions::default())
            .expect("memory does not fail");
        let pool = Pool {
            path: "pool".into(),
            kind: PoolKind::File,
            len_bytes: 4096,
            address: 0,
        };
        writer.define_pool(&pool).expect("a good pool");
        let thread = Thread {
            os_id: 1,
            name: None,
        };
        writer.define_thread(&thread).expect("a good thread");
        let frames = [0x20, 0x10].map(|address| Frame::Absolute { address });
        let stack = writer.intern_stack(&frames).expect("a good stack");
        let at = Place::new(PoolIndex(0), PoolOffset(64));
        let store = Body::Pm(Event::Store {
            kind: StoreKind::Plain,
            at,
            bytes: &[1; 8],
        });
        let kind = FlushKind::Clwb;
        let flush = Body::Pm(Event::Flush { kind, at });
        let volatile = Body::VolatileFlush { kind, address: 1 };
        for body in [store, store, flush, volatile] {
            writer
                .append(ThreadIndex(0), stack, body)
                .expect("a good record");
        }
        writer.finish(&[]).expect("memory does not fail");
        Trace::from_bytes(bytes).expect("a good trace")
    }

    #[test]
    fn flushes_of_volatile_memory_are_not_in_the_ratios() {
        let statistics = Statistics::collect(&small_trace()).expect("a good trace");
        assert_eq!(
            ratios(&statistics).as_deref(),
            Some("2.0 stores per flush, no flushes per fence, 8.0 bytes per store")
        );
    }

    #[test]
    fn the_site_is_the_innermost_frame_with_and_without_stacks() {
        let trace = small_trace();
        let mut records = trace.records_from(EventIndex(0));
        let record = records
            .next_record()
            .expect("a good trace")
            .expect("a record");
        let short = record_json(&mut Places::new(&trace, false, false), &record);
        assert_eq!(
            (&short["site"], &short["stack"]),
            (&json!("0x20"), &Value::Null)
        );
        let long = record_json(&mut Places::new(&trace, false, true), &record);
        assert_eq!(long["site"], "0x20");
        assert_eq!(long["stack"], json!(["0x20", "0x10"]));
    }
}
