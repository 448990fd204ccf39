//! Records a workload several times with other orders of its threads, for `--schedules`.
//!
//! Each recording has a scheduler with another seed. In the first one the priorities of threads do not change: it shows
//! how many steps there are, among which the others change them. Recordings whose threads are interleaved in a known way
//! are removed again: they show nothing new.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use powerfail_explore::Interleaving;
use powerfail_finding::Severity;
use powerfail_recorder::{RecordOptions, RecordingSummary, Schedule};
use powerfail_trace::{Trace, TraceError};

use crate::crash::Crashed;
use crate::merge::merge;
use crate::workload::{ServerWorkload, WorkloadError, WorkloadFailure, record_workload};

/// A recording may take this many times as long as the first one.
const SLOWDOWN: u32 = 20;
/// The time that a scheduled run may take in any case.
const TIME_MIN: Duration = Duration::from_secs(20);

/// Which schedules are recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedules {
    /// How many recordings there are, with the first one.
    pub(crate) count: u64,
    /// The number of order changes plus one.
    pub(crate) depth: u32,
    /// The seed of the first recording; each further one has the next number.
    pub(crate) seed: u64,
}

/// The first recording that succeeded.
#[derive(Debug)]
pub(crate) struct FirstRecording {
    pub(crate) summary: RecordingSummary,
    /// Those before it: they failed, although there was no crash. With their seeds.
    failures: Vec<(u64, WorkloadFailure)>,
}

/// A recording with an order of threads of its own.
#[derive(Debug)]
pub(crate) struct ScheduledTrace {
    /// The trace.
    pub(crate) trace: Trace,
    /// Its path.
    pub(crate) path: PathBuf,
    /// Its file name, which evidence refers to.
    pub(crate) name: String,
    /// How many recordings were made before.
    pub(crate) number: u64,
    /// The seed of its schedule.
    pub(crate) seed: u64,
}

/// The recordings of a workload besides the first one.
#[derive(Debug)]
pub(crate) struct ScheduledTraces {
    /// Those with an order of threads of their own.
    pub(crate) distinct: Vec<ScheduledTrace>,
    /// How many recordings were made, with the first one and those that are not distinct.
    pub(crate) count: u64,
    /// Runs that failed without any crash, with their seeds.
    pub(crate) failures: Vec<(u64, WorkloadFailure)>,
    /// Why there are fewer recordings than asked for, or why another run may record other orders.
    pub(crate) notes: Vec<String>,
}

/// Why schedules cannot be recorded or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The workload cannot be recorded.
    #[error(transparent)]
    Workload(WorkloadError),
    /// A trace cannot be read.
    #[error("{}", path.display())]
    Trace {
        /// The path of the trace.
        path: PathBuf,
        /// What is wrong with it.
        source: TraceError,
    },
    /// The runs did not begin with the same content.
    #[error(
        "a pool of the workload did not have the same content as in the first run, so --schedules cannot compare \
         the recordings; write {{pool}} wherever the path of a pool is"
    )]
    OtherContent,
}

fn unreadable(path: &Path) -> impl FnOnce(TraceError) -> ScheduleError {
    let path = path.to_path_buf();
    |source| ScheduleError::Trace { path, source }
}

/// Records a workload with priorities of its threads that do not change. If it fails in that order, the next seed
/// decides.
pub(crate) fn record_first(
    options: &RecordOptions,
    runtime: &[u8],
    server: Option<&ServerWorkload>,
    schedules: &Schedules,
) -> Result<FirstRecording, WorkloadError> {
    let mut failures = Vec::new();
    loop {
        let number = failures.len() as u64;
        let seed = schedules.seed.wrapping_add(number);
        let mut options = options.clone();
        options.schedule = Schedule {
            depth: 1,
            seed,
            length: 0,
        };
        match record_workload(&options, runtime, server, &mut |_| {}) {
            Ok(summary) => return Ok(FirstRecording { summary, failures }),
            Err(WorkloadError::Failed(failure)) if number + 1 < schedules.count => {
                failures.push((seed, failure));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Records a workload with other orders of its threads. `first` is its first trace, made with `options` by
/// [`record_first`]; `progress` is called for each recording.
pub(crate) fn record_schedules(
    first: &Trace,
    recording: FirstRecording,
    options: &RecordOptions,
    runtime: &[u8],
    server: Option<&ServerWorkload>,
    schedules: &Schedules,
    progress: &mut dyn FnMut(),
) -> Result<ScheduledTraces, ScheduleError> {
    let usual = Interleaving::of(first).map_err(unreadable(&options.trace))?;
    let (steps, first_time) = (
        recording.summary.schedule_steps,
        recording.summary.wall_time,
    );
    let mut traces = ScheduledTraces {
        distinct: Vec::new(),
        count: recording.failures.len() as u64 + 1,
        failures: recording.failures,
        notes: Vec::new(),
    };
    for _ in 0..traces.count {
        progress();
    }
    let mut lapses = u64::from(recording.summary.schedule_lapses > 0);
    let count = if steps == 0 {
        traces.notes.push(
            "the workload was recorded once: it never has two threads at the same time, so there is no other order"
                .to_owned(),
        );
        0
    } else {
        schedules.count
    };
    let mut known = BTreeSet::from([usual.digest]);
    for number in traces.count..count {
        let name = format!("schedule-{number}.trace");
        let path = options.trace.with_file_name(&name);
        let seed = schedules.seed.wrapping_add(number);
        let mut options = options.clone();
        options.trace.clone_from(&path);
        options.time_limit = Some(TIME_MIN.max(first_time * SLOWDOWN));
        options.schedule = Schedule {
            depth: schedules.depth,
            seed,
            length: steps,
        };
        let recorded = record_workload(&options, runtime, server, &mut |_| {});
        traces.count += 1;
        progress();
        match recorded {
            Ok(summary) => lapses += u64::from(summary.schedule_lapses > 0),
            Err(WorkloadError::Failed(failure)) => {
                traces.failures.push((seed, failure));
                let _ = std::fs::remove_file(&path);
                continue;
            }
            Err(error) => return Err(ScheduleError::Workload(error)),
        }
        let trace = Trace::open(&path).map_err(unreadable(&path))?;
        let other = Interleaving::of(&trace).map_err(unreadable(&path))?;
        if other.initial != usual.initial {
            return Err(ScheduleError::OtherContent);
        }
        if !known.insert(other.digest) {
            let _ = std::fs::remove_file(&path);
            continue;
        }
        traces.distinct.push(ScheduledTrace {
            trace,
            path,
            name,
            number,
            seed,
        });
    }
    if lapses > 0 {
        traces.notes.push(format!(
            "in {lapses} of {} recordings a thread waited for something that the scheduler does not know, so the same \
             seed may give another order",
            traces.count
        ));
    }
    Ok(traces)
}

impl ScheduledTraces {
    /// How many recordings have an order of threads of their own, with the first one.
    pub(crate) const fn distinct_count(&self) -> u64 {
        self.distinct.len() as u64 + 1
    }

    /// Merges the result of the first recording with those of the distinct ones, and removes the traces that no
    /// finding refers to.
    pub(crate) fn merge(&self, first: Crashed, others: Vec<(&ScheduledTrace, Crashed)>) -> Crashed {
        let others = others.into_iter();
        let others = others.map(|(scheduled, crashed)| named(crashed, &scheduled.name));
        let mut merged = merge(std::iter::once(first).chain(others));
        merged.totals.schedules = self.count;
        merged.totals.distinct_schedules = self.distinct_count();
        let traces = merged.findings.iter().flat_map(|finding| {
            let read = finding.read.as_ref().and_then(|it| it.trace.as_deref());
            let evidence = finding.evidence.as_ref().and_then(|it| it.trace.as_deref());
            read.into_iter().chain(evidence)
        });
        let needed: BTreeSet<&str> = traces.collect();
        for scheduled in &self.distinct {
            if !needed.contains(scheduled.name.as_str()) {
                let _ = std::fs::remove_file(&scheduled.path);
            }
        }
        merged
    }
}

/// Names the trace in all evidence. Findings that only cost time are those of the first recording: an instruction that
/// is superfluous in one order of threads need not be so in another.
fn named(mut crashed: Crashed, trace: &str) -> Crashed {
    crashed
        .findings
        .retain(|finding| finding.severity == Severity::Error);
    for finding in &mut crashed.findings {
        if let Some(evidence) = &mut finding.evidence {
            evidence.trace = Some(trace.to_owned());
        }
        if let Some(read) = &mut finding.read {
            read.trace = Some(trace.to_owned());
        }
    }
    crashed
}
