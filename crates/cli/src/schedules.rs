//! `powerfail check --schedules`: the workload is recorded again and again with other orders of its
//! threads, and every recording that is different is judged.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use powerfail_check::{Crashed, merge};
use powerfail_explore::Interleaving;
use powerfail_finding::Severity;
use powerfail_recorder::{Options, Schedule, Summary};
use powerfail_report::findings;
use powerfail_trace::Trace;

use crate::check::Recorded;
use crate::crash::{self, Examined, Work, image_name};
use crate::exit::Exit;
use crate::interrupt;
use crate::progress::{Progress, open_trace};

/// A scheduled run may take that much longer than one in which threads run as they like.
const SLOWER: u32 = 200;
/// And that long in any case.
const TIME_MIN: Duration = Duration::from_secs(20);

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

/// A recording besides the first that is judged.
struct Scheduled {
    trace: Trace,
    path: PathBuf,
    /// The name of its file.
    name: String,
    /// How many were recorded before.
    number: u64,
}

/// What was recorded besides the first.
struct Recordings {
    others: Vec<Scheduled>,
    /// How many there are, with those that are the same as another, and the first.
    count: u64,
    /// What went wrong without any crash.
    failures: Vec<String>,
}

/// Records the workload until there are enough recordings, and judges those that are different. `work` is
/// the first of them, `record` makes another one.
pub(crate) fn judge(
    work: &Work<'_>,
    schedules: u64,
    options: &Options,
    record: &dyn Fn(&Options) -> anyhow::Result<Recorded>,
    depth: u32,
    summary: &Summary,
) -> anyhow::Result<Exit> {
    let recordings = match record_all(work, schedules, options, record, depth, summary)? {
        Ok(recordings) => recordings,
        Err(exit) => return Ok(exit),
    };
    let distinct = recordings.others.len() as u64 + 1;
    let _ = writeln!(
        anstream::stderr(),
        "{}",
        findings::schedules_sentence(recordings.count, distinct)
    );
    let share = u32::try_from(distinct).unwrap_or(u32::MAX);
    let first = Work {
        share,
        ..work.clone()
    };
    let mut all = match crash::examine(&first)? {
        Examined::Done(crashed) => vec![*crashed],
        Examined::Fails { image, outcome } => return Ok(crash::refuse(image, &outcome)),
        Examined::Interrupted => return Ok(crash::say_interrupted()),
    };
    let mut failures = recordings.failures;
    for scheduled in &recordings.others {
        let other = Work {
            trace: &scheduled.trace,
            trace_path: &scheduled.path,
            schedule: scheduled.number,
            ..first.clone()
        };
        match crash::examine(&other)? {
            Examined::Done(crashed) => all.push(named(*crashed, &scheduled.name)),
            Examined::Fails { image, outcome } => failures.push(format!(
                "{}: recovery {} {} without any crash",
                seed_name(work, scheduled.number),
                findings::outcome_sentence(&outcome).0,
                image_name(image)
            )),
            Examined::Interrupted => return Ok(crash::say_interrupted()),
        }
    }
    let mut merged = merge(all);
    merged.totals.schedules = recordings.count;
    merged.totals.distinct_schedules = distinct;
    let fails = !failures.is_empty();
    merged.notes.extend(failures.into_iter().map(|failure| {
        format!("{failure}; that is a bug of the order of threads, not of a crash")
    }));
    let shown: BTreeSet<String> = merged
        .findings
        .iter()
        .flat_map(|finding| {
            let read = finding.read.as_ref().and_then(|it| it.trace.clone());
            let shown = finding.evidence.as_ref().and_then(|it| it.trace.clone());
            read.into_iter().chain(shown)
        })
        .collect();
    for scheduled in &recordings.others {
        if !shown.contains(&scheduled.name) {
            // Nothing refers to it.
            let _ = std::fs::remove_file(&scheduled.path);
        }
    }
    let exit = crash::conclude(work, merged)?;
    Ok(match exit {
        Exit::Clean if fails => Exit::Findings,
        exit => exit,
    })
}

/// Says in all evidence which trace shows it. What is superfluous in one order of threads only is not: the
/// first recording decides about that.
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

fn seed_name(work: &Work<'_>, number: u64) -> String {
    format!("with schedule seed {}", seed_of_schedule(work, number))
}

fn seed_of_schedule(work: &Work<'_>, number: u64) -> u64 {
    work.settings.failures.seed.wrapping_add(number)
}

fn record_all(
    work: &Work<'_>,
    schedules: u64,
    options: &Options,
    record: &dyn Fn(&Options) -> anyhow::Result<Recorded>,
    depth: u32,
    summary: &Summary,
) -> anyhow::Result<Result<Recordings, Exit>> {
    let interleaving = |trace: &Trace, path: &PathBuf| {
        Interleaving::of(trace).with_context(|| path.display().to_string())
    };
    let usual = interleaving(work.trace, &options.trace)?;
    let mut recordings = Recordings {
        others: Vec::new(),
        count: 1,
        failures: Vec::new(),
    };
    let mut known = BTreeSet::from([usual.digest]);
    if usual.operations == 0 {
        // One thread does everything: there is no other order.
        return Ok(Ok(recordings));
    }
    let progress = Progress::items(schedules);
    progress.advance(1);
    for number in 1..schedules {
        let name = format!("schedule-{number}.trace");
        let path = options.trace.with_file_name(&name);
        let mut options = options.clone();
        options.trace.clone_from(&path);
        options.time_limit = Some(TIME_MIN.max(summary.wall_time * SLOWER));
        options.schedule = Schedule {
            depth,
            seed: seed_of_schedule(work, number),
            length: usual.operations,
        };
        let recorded = record(&options)?;
        if interrupt::is_interrupted() {
            return Ok(Err(crash::say_interrupted()));
        }
        recordings.count += 1;
        progress.advance(1);
        match recorded {
            Recorded::Done(_) => {}
            Recorded::Failed(sentence) => {
                let name = seed_name(work, number);
                recordings.failures.push(format!("{name}: {sentence}"));
                let _ = std::fs::remove_file(&path);
                continue;
            }
            Recorded::Ends(exit) => return Ok(Err(exit)),
        }
        let trace = open_trace(&path)?;
        let other = interleaving(&trace, &path)?;
        anyhow::ensure!(
            other.initial == usual.initial,
            "the workload has a pool that it did not find as the first time, so --schedules cannot \
             compare its recordings; write {{pool}} wherever the path of a pool is"
        );
        if known.insert(other.digest) {
            recordings.others.push(Scheduled {
                trace,
                path,
                name,
                number,
            });
        } else {
            let _ = std::fs::remove_file(&path);
        }
    }
    Ok(Ok(recordings))
}
