//! `powerfail check --schedules`: checks every recording with an order of threads of its own.

use std::ffi::OsString;
use std::io::Write;

use powerfail_check::{ScheduleError, ScheduledTraces};
use powerfail_report::findings;

use crate::check::recording_failed;
use crate::crash::{self, Examined, Work, image_name};
use crate::exit::Exit;

/// Every recording has to begin with the same content.
pub(crate) fn refuse_other_pools(workload: &[OsString], has_heap: bool) -> anyhow::Result<()> {
    let is_fresh = |word: &OsString| word.to_string_lossy().contains("{pool}");
    anyhow::ensure!(
        has_heap || workload.iter().any(is_fresh),
        "--schedules runs the workload several times, each time on a fresh pool: write {{pool}} in its \
         command where the path of the pool is"
    );
    Ok(())
}

/// Checks the recordings and reports on all of them together. `work` is the first one.
pub(crate) fn judge(
    work: &Work<'_>,
    recorded: Result<ScheduledTraces, ScheduleError>,
) -> anyhow::Result<Exit> {
    let traces = match recorded {
        Ok(traces) => traces,
        Err(ScheduleError::Workload(error)) => return recording_failed(error),
        Err(error) => return Err(error.into()),
    };
    let distinct = traces.distinct_count();
    let sentence = findings::schedules_sentence(traces.count, distinct);
    let _ = writeln!(anstream::stderr(), "{sentence}");
    let first = Work {
        share: u32::try_from(distinct).unwrap_or(u32::MAX),
        ..work.clone()
    };
    let crashed = match crash::examine(&first)? {
        Examined::Done(crashed) => *crashed,
        Examined::Fails { image, outcome } => return Ok(crash::refuse(image, &outcome)),
        Examined::Interrupted => return Ok(crash::say_interrupted()),
    };
    let failure = |seed: u64, text: &str| format!("with schedule seed {seed}: {text}");
    let mut failures: Vec<String> = traces
        .failures
        .iter()
        .map(|(seed, error)| failure(*seed, &error.to_string()))
        .collect();
    let mut others = Vec::new();
    for scheduled in &traces.distinct {
        let other = Work {
            trace: &scheduled.trace,
            trace_path: &scheduled.path,
            schedule: scheduled.number,
            ..first.clone()
        };
        match crash::examine(&other)? {
            Examined::Done(crashed) => others.push((scheduled, *crashed)),
            Examined::Fails { image, outcome } => {
                let (what, _) = findings::outcome_sentence(&outcome);
                let text = format!("recovery {what} {} without any crash", image_name(image));
                failures.push(failure(scheduled.seed, &text));
            }
            Examined::Interrupted => return Ok(crash::say_interrupted()),
        }
    }
    let mut merged = traces.merge(crashed, others);
    let has_failures = !failures.is_empty();
    merged.notes.extend(failures.into_iter().map(|failure| {
        format!("{failure}; this is a bug of the order of threads, not of a crash")
    }));
    let exit = crash::conclude(work, merged)?;
    Ok(match exit {
        Exit::Clean if has_failures => Exit::Findings,
        exit => exit,
    })
}
