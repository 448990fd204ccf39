//! `powerfail trace`: what is in a trace.

use std::io::Write;

use anyhow::Context;
use powerfail_model::{Event, EventIndex, FailurePoints, Frontier, Image, Place, PoolIndex, Rules};
use powerfail_report::trace as report;
use powerfail_trace::replay::{PoolReplay, replay_within};
use powerfail_trace::tree_replay::{TreeReplay, replay_trees_within};
use powerfail_trace::{Body, Record, RecordKind, Statistics, Trace, TraceError};

use crate::args::{TraceCheckArgs, TraceEventsArgs, TraceFileArgs, TraceStatesArgs};
use crate::exit::Exit;
use crate::memory::{LimitedImage, MemoryLimit};
use crate::output::{json_line, print, print_json};
use crate::progress::open_watched;

pub(crate) fn info(args: &TraceFileArgs) -> anyhow::Result<Exit> {
    let trace = open_watched(&args.file)?;
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
    let trace = open_watched(path)?;
    // If standard error is closed the warning cannot be shown.
    let _ = report::incompleteness(&mut anstream::stderr(), &trace);
    Ok(trace)
}

pub(crate) fn events(args: &TraceEventsArgs) -> anyhow::Result<Exit> {
    let trace = open_with_warning(&args.file)?;
    let context = || args.file.display().to_string();
    refuse_filters_of_nothing(&trace, args).with_context(context)?;
    let mut places = report::Places::new(&trace, !args.no_source, args.stacks);
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
                json_line(out, &report::record_json(&mut places, &record))?;
            } else {
                report::record(out, &mut places, &record)?;
            }
        }
        Ok(())
    })?;
    Ok(Exit::Clean)
}

/// A thread, pool or position that the trace does not have is a slip, and not an empty answer.
fn refuse_filters_of_nothing(trace: &Trace, args: &TraceEventsArgs) -> anyhow::Result<()> {
    let (threads, pools, events) = (
        trace.threads().len(),
        trace.pools().len(),
        trace.event_count(),
    );
    if let Some(thread) = args.thread {
        anyhow::ensure!(
            (thread as usize) < threads,
            "there is no thread {thread}; it has {threads}, counted from 0"
        );
    }
    if let Some(pool) = args.pool {
        anyhow::ensure!(
            (pool as usize) < pools,
            "there is no pool {pool}; it has {pools}, counted from 0"
        );
    }
    let from = args.from;
    anyhow::ensure!(
        from <= events,
        "--from {from} is beyond its {events} events"
    );
    Ok(())
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
    let mut memory = MemoryLimit::new(args.memory.memory_limit);
    let mut frontier = start(&trace, args.rules.into(), &memory).with_context(context)?;
    print(|out| match args.failure_points {
        Some(points) => {
            let points = points.into();
            list_failure_points(out, &trace, &mut frontier, &mut memory, points, args.json)
                .with_context(context)
        }
        None => {
            let at = EventIndex(args.at.unwrap_or(count));
            advance(&trace, &mut frontier, &mut memory, at).with_context(context)?;
            if args.json {
                Ok(json_line(out, &report::states_json(at, &frontier))?)
            } else {
                Ok(report::states(out, at, count, &frontier, args.lines)?)
            }
        }
    })?;
    Ok(Exit::Clean)
}

/// The model before the first event: pools as they were when they were mapped.
fn start(
    trace: &Trace,
    rules: Rules,
    memory: &MemoryLimit,
) -> anyhow::Result<Frontier<LimitedImage>> {
    let mut image = memory.image();
    let mut runs = trace.initial_images();
    while let Some(run) = runs.next_run()? {
        image.write(Place::new(run.pool, run.offset), run.bytes);
        memory.check_image(&image)?;
    }
    Ok(Frontier::new(rules, image))
}

fn advance(
    trace: &Trace,
    frontier: &mut Frontier<LimitedImage>,
    memory: &mut MemoryLimit,
    to: EventIndex,
) -> anyhow::Result<()> {
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()?
        && record.index < to
    {
        if let Some(step) = record.step() {
            frontier.apply(&step);
            memory.check(frontier)?;
        }
    }
    Ok(())
}

fn list_failure_points(
    out: &mut dyn Write,
    trace: &Trace,
    frontier: &mut Frontier<LimitedImage>,
    memory: &mut MemoryLimit,
    points: FailurePoints,
    json: bool,
) -> anyhow::Result<()> {
    let mut show = |frontier: &Frontier<LimitedImage>, at| {
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
            memory.check(frontier)?;
        }
    }
    if frontier.is_failure_point_at_end(points) {
        show(frontier, EventIndex(trace.event_count()))?;
    }
    Ok(())
}

pub(crate) fn check(args: &TraceCheckArgs) -> anyhow::Result<Exit> {
    let (trace, pools, trees) = match examine(args) {
        Ok(examined) => examined,
        Err(error) => {
            let Some(damage) = error.downcast_ref().filter(|error| is_damage(error)) else {
                return Err(error);
            };
            let problems = [damage.to_string()];
            if args.json {
                print_json(&report::damage_json(&problems))?;
            } else {
                print(|out| Ok(report::verdict(out, &problems)?))?;
            }
            return Ok(Exit::Findings);
        }
    };
    let problems = report::problems(&trace, &pools, &trees);
    if args.json {
        print_json(&report::check_json(&trace, &problems, &pools, &trees))?;
    } else {
        print(|out| {
            report::check(out, &trace, &pools, &trees)?;
            Ok(report::verdict(out, &problems)?)
        })?;
    }
    Ok(if problems.is_empty() {
        Exit::Clean
    } else {
        Exit::Findings
    })
}

fn examine(args: &TraceCheckArgs) -> anyhow::Result<(Trace, Vec<PoolReplay>, Vec<TreeReplay>)> {
    let context = || args.file.display().to_string();
    let trace = open_with_warning(&args.file)?;
    trace.verify().with_context(context)?;
    let limit = args.memory.memory_limit;
    let too_large = |error: TraceError| match error {
        // Everything else that can be too large was found before.
        TraceError::TooLarge { .. } => anyhow::anyhow!(MemoryLimit::new(limit).complaint()),
        other => other.into(),
    };
    let pools = replay_within(&trace, limit)
        .map_err(too_large)
        .with_context(context)?;
    let trees = replay_trees_within(&trace, limit)
        .map_err(too_large)
        .with_context(context)?;
    Ok((trace, pools, trees))
}

/// Whether the file is a trace of a version that we know, but not a sound one.
fn is_damage(error: &TraceError) -> bool {
    matches!(
        error,
        TraceError::Truncated { .. }
            | TraceError::Corrupt { .. }
            | TraceError::TooLarge { .. }
            | TraceError::Undefined { .. }
            | TraceError::OutsidePool { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_judged_is_no_damage() {
        let io = std::io::Error::other("no");
        let (found, supported) = (9, 1);
        let (what, code, offset) = ("kind", 1, 0);
        for error in [
            TraceError::Empty,
            TraceError::NotATrace,
            TraceError::NewerVersion { found, supported },
            TraceError::UnknownCode { what, code, offset },
            TraceError::Io(io),
        ] {
            assert!(!is_damage(&error), "{error}");
        }
        assert!(is_damage(&TraceError::Corrupt { what, offset }));
        assert!(is_damage(&TraceError::Truncated { what }));
    }
}
