//! `powerfail trace`: what is in a trace.

use std::io::Write;

use anyhow::Context;
use powerfail_model::{
    Event, EventIndex, FailurePoints, Frontier, Image, Place, PoolIndex, Rules, SparseImage,
};
use powerfail_report::trace as report;
use powerfail_trace::{
    Body, Completeness, Record, RecordKind, Statistics, Trace, TraceError, replay,
};

use crate::args::{TraceEventsArgs, TraceFileArgs, TraceStatesArgs};
use crate::exit::Exit;
use crate::output::{json_line, print, print_json};
use crate::progress::open_trace;

pub(crate) fn info(args: &TraceFileArgs) -> anyhow::Result<Exit> {
    let trace = open_trace(&args.file)?;
    let statistics =
        Statistics::collect(&trace).with_context(|| args.file.display().to_string())?;
    if args.json {
        print_json(&report::info_json(&trace, &statistics))?;
    } else {
        print(|out| Ok(report::info(out, &trace, &statistics)?))?;
    }
    Ok(Exit::Clean)
}

/// Opens a trace and warns if it is not complete.
fn open_with_warning(path: &std::path::Path) -> anyhow::Result<Trace> {
    let trace = open_trace(path)?;
    report::incompleteness(&mut anstream::stderr(), &trace)?;
    Ok(trace)
}

pub(crate) fn events(args: &TraceEventsArgs) -> anyhow::Result<Exit> {
    let trace = open_with_warning(&args.file)?;
    let context = || args.file.display().to_string();
    print(|out| {
        let mut left = args.limit.unwrap_or(u64::MAX);
        let mut records = trace.records_from(EventIndex(args.from));
        while left > 0
            && let Some(record) = records.next_record().with_context(context)?
            && args.to.is_none_or(|to| record.index.0 < to)
        {
            if !admits(args, &record) {
                continue;
            }
            left -= 1;
            if args.json {
                json_line(out, &report::record_json(&trace, &record, args.stacks))?;
            } else {
                report::record(out, &trace, &record, args.stacks)?;
            }
        }
        Ok(())
    })?;
    Ok(Exit::Clean)
}

fn admits(args: &TraceEventsArgs, record: &Record<'_>) -> bool {
    let kind = RecordKind::of(&record.body);
    let span = span(&record.body);
    (args.kind.is_empty() || args.kind.iter().any(|wanted| wanted.admits(kind)))
        && args.thread.is_none_or(|thread| record.thread.0 == thread)
        && args
            .pool
            .is_none_or(|wanted| span.is_some_and(|(pool, ..)| pool.0 == wanted))
        && args
            .range
            .is_none_or(|(from, to)| span.is_some_and(|(_, start, end)| start < to && from < end))
}

/// The pool and the offsets that a record touches.
fn span(body: &Body<'_>) -> Option<(PoolIndex, u64, u64)> {
    let (pool, start, len) = match *body {
        Body::Pm(Event::Store { at, bytes, .. }) => (at.pool, at.offset.0, bytes.len() as u64),
        Body::Pm(Event::Flush { at, .. }) => (at.pool, at.offset.0 & !63, 64),
        Body::Pm(Event::Sync {
            pool,
            offset,
            len_bytes,
        }) => (pool, offset.0, len_bytes),
        Body::Pm(Event::Resize { pool, len_bytes }) => (pool, len_bytes, u64::MAX),
        _ => return None,
    };
    Some((pool, start, start.saturating_add(len)))
}

pub(crate) fn states(args: &TraceStatesArgs) -> anyhow::Result<Exit> {
    let trace = open_with_warning(&args.file)?;
    let context = || args.file.display().to_string();
    let count = trace.event_count();
    if let Some(at) = args.at {
        anyhow::ensure!(
            at <= count,
            "{}: --at {at} is beyond its {count} events",
            context()
        );
    }
    let mut frontier = start(&trace, args.rules.into()).with_context(context)?;
    print(|out| match args.failure_points {
        Some(points) => list_failure_points(out, &trace, &mut frontier, points.into(), args.json),
        None => {
            let at = EventIndex(args.at.unwrap_or(count));
            advance(&trace, &mut frontier, at).with_context(context)?;
            if args.json {
                Ok(json_line(out, &report::states_json(at, &frontier))?)
            } else {
                Ok(report::states(out, at, &frontier, args.lines)?)
            }
        }
    })?;
    Ok(Exit::Clean)
}

/// The model before the first event: pools as they were when they were mapped.
fn start(trace: &Trace, rules: Rules) -> Result<Frontier, TraceError> {
    let mut image = SparseImage::new();
    for pool in 0..trace.pools().len() {
        let pool = PoolIndex(pool as u32);
        let mut runs = trace.initial_image(pool);
        while let Some(run) = runs.next_run()? {
            image.write(Place::new(pool, run.offset), run.bytes);
        }
    }
    Ok(Frontier::new(rules, image))
}

fn advance(trace: &Trace, frontier: &mut Frontier, to: EventIndex) -> Result<(), TraceError> {
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()?
        && record.index < to
    {
        if let Some(step) = record.step() {
            frontier.apply(&step);
        }
    }
    Ok(())
}

fn list_failure_points(
    out: &mut dyn Write,
    trace: &Trace,
    frontier: &mut Frontier,
    points: FailurePoints,
    json: bool,
) -> anyhow::Result<()> {
    let mut show = |frontier: &Frontier, at| {
        if json {
            json_line(out, &report::failure_point_json(at, frontier))
        } else {
            report::failure_point(out, at, frontier)
        }
    };
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        if let Some(step) = record.step() {
            if frontier.is_failure_point(points, &step) {
                show(frontier, step.index)?;
            }
            frontier.apply(&step);
        }
    }
    if frontier.is_failure_point_at_end(points) {
        show(frontier, EventIndex(trace.event_count()))?;
    }
    Ok(())
}

pub(crate) fn check(args: &TraceFileArgs) -> anyhow::Result<Exit> {
    let context = || args.file.display().to_string();
    let trace = open_with_warning(&args.file)?;
    trace.verify().with_context(context)?;
    let pools = replay::replay(&trace).with_context(context)?;
    let complete = trace.completeness() == Completeness::Complete;
    let sound = complete
        && pools
            .iter()
            .all(|pool| pool.matches() != Some(false) && pool.outside_bytes == 0);
    if args.json {
        print_json(&report::check_json(&trace, sound, &pools))?;
    } else {
        print(|out| Ok(report::check(out, &trace, &pools)?))?;
    }
    Ok(if sound { Exit::Clean } else { Exit::Findings })
}
