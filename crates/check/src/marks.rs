//! Where findings lie among the marks and operations of the program.

use std::cmp::Reverse;

use powerfail_finding::{Finding, Marks, ProgramMark, Role};
use powerfail_model::{EventIndex, ThreadIndex};
use powerfail_trace::{Annotation, Body, Mark, MarkKind, Record, Result, Trace};
use rustc_hash::FxHashMap;

/// When something happens that a finding is about.
struct Moment {
    /// Just before this event.
    at: EventIndex,
    /// The thread that was to act next, whose marks count.
    thread: ThreadIndex,
    /// The number of the finding.
    finding: usize,
}

/// Says of findings between which marks of the program they lie, and in which operation: one pass over the trace for all
/// of them. Whether there was time for it.
pub(crate) fn add_marks(
    trace: &Trace,
    findings: &mut [Finding],
    is_late: &dyn Fn() -> bool,
) -> Result<bool> {
    /// So many events are read before the clock is looked at.
    const EVENTS_AT_A_TIME: u64 = 1 << 16;
    let mut moments = Vec::new();
    for (number, finding) in findings.iter().enumerate() {
        moments.extend(moment_of(trace, number, finding)?);
    }
    moments.sort_by_key(|moment| moment.at);
    let mut moments = moments.into_iter().peekable();
    let mut threads: FxHashMap<ThreadIndex, Marks> = FxHashMap::default();
    // Findings that wait for the next mark of their thread.
    let mut waiting: FxHashMap<ThreadIndex, Vec<usize>> = FxHashMap::default();
    let mut records = trace.records_from(EventIndex(0));
    while (moments.peek().is_some() || !waiting.is_empty())
        && let Some(record) = records.next_record()?
    {
        if record.index.0 % EVENTS_AT_A_TIME == EVENTS_AT_A_TIME - 1 && is_late() {
            return Ok(false);
        }
        while let Some(moment) = moments.next_if(|moment| moment.at <= record.index) {
            findings[moment.finding].marks = marks_of(&threads, moment.thread);
            let same = waiting.entry(moment.thread).or_default();
            same.push(moment.finding);
        }
        let Body::Mark(mark) = &record.body else {
            continue;
        };
        let thread = threads.entry(record.thread).or_default();
        if let Some(made) = follow(thread, &record, mark) {
            for finding in waiting.remove(&record.thread).into_iter().flatten() {
                findings[finding].marks.before = Some(made.clone());
            }
        }
    }
    for moment in moments {
        findings[moment.finding].marks = marks_of(&threads, moment.thread);
    }
    Ok(true)
}

fn marks_of(threads: &FxHashMap<ThreadIndex, Marks>, thread: ThreadIndex) -> Marks {
    let mut marks = threads.get(&thread).cloned().unwrap_or_default();
    let others = threads.iter().filter(|(other, _)| **other != thread);
    marks.others = others.filter_map(|(_, it)| it.after.clone()).collect();
    marks.others.sort_by_key(|mark| Reverse(mark.event));
    marks
}

/// Moves a thread over a mark. Returns the mark if the program made it for people.
fn follow(thread: &mut Marks, record: &Record<'_>, mark: &Mark<'_>) -> Option<ProgramMark> {
    match mark.kind {
        MarkKind::Annotation(Annotation::User) => {
            let made = ProgramMark::new(record.index.0, mark.value, mark.payload);
            thread.after = Some(made.clone());
            return Some(made);
        }
        // The newest one counts: an operation that failed may never end.
        MarkKind::OperationBegin => thread.operation = Some(mark.value),
        MarkKind::OperationEnd if thread.operation == Some(mark.value) => thread.operation = None,
        _ => {}
    }
    None
}

/// When the power fails, or else when the first place of a finding acts.
fn moment_of(trace: &Trace, number: usize, finding: &Finding) -> Result<Option<Moment>> {
    let mut places = finding.places.iter();
    let (at, acting) = match &finding.evidence {
        Some(evidence) => {
            let at = evidence.failure.event;
            let failure = places.find(|place| place.role == Role::Failure);
            (at, failure.and_then(|place| place.event).unwrap_or(at))
        }
        None => match places.find_map(|place| place.event) {
            Some(event) => (event, event),
            None => return Ok(None),
        },
    };
    // At the end of the run nothing was to act next.
    let acting = acting.min(trace.event_count().saturating_sub(1));
    let mut records = trace.records_from(EventIndex(acting));
    Ok(records.next_record()?.map(|record| Moment {
        at: EventIndex(at),
        thread: record.thread,
        finding: number,
    }))
}
