//! Tries a program and proposes how to check it: what `powerfail init` does.
//!
//! The program is recorded as the user gave it, to see which files it maps and writes. Then its data is replaced by `{pool}`
//! or `{dir}`, so that each run begins empty, and it is recorded again: a proposal that does not work is not made. At last
//! recovery runs, as in a check, for a short time.

mod arguments;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use powerfail_config::{CHECK_BUDGET, CommandText, CrashArgs, SettingsError};
use powerfail_finding::{Health, NotChecked, Proposal, ProposedDomain, RecoveryTrial};
use powerfail_recorder::{Input, InputChannel, RecordOptions, RecordingSummary};
use powerfail_trace::Trace;

use crate::doctor;
use crate::domain::detect_domain;
use crate::error::CheckError;
use crate::event::{CheckEvent, Observer};
use crate::session::{Session, SessionError};
use crate::workload::{WorkloadError, record_workload};

/// How long recovery is tried.
const TRIAL_BUDGET: Duration = Duration::from_secs(5);
/// How many orders of threads are proposed.
const SCHEDULES: u64 = 8;
/// How many files are named in a sentence.
const NAMED_MAX: usize = 5;

/// What is tried.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The command that recovers, if it is not the same again.
    pub recover: Option<CommandText>,
    /// How long the program may run.
    pub time_limit: Duration,
    /// The plugin of QEMU, which records a program that is statically linked.
    pub plugin: &'static [u8],
}

/// Why nothing can be proposed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The program cannot be recorded, or recovery cannot be run.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The options of the trial contradict each other.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Directories cannot be made.
    #[error("a directory for the trial cannot be made")]
    Scratch(#[source] std::io::Error),
    /// The program changes nothing.
    #[error(
        "the program mapped no file and wrote none, so there is nothing that a power failure could damage; give it arguments \
         with which it stores something"
    )]
    NothingWritten,
    /// The program changes files, but they cannot be recorded.
    #[error(
        "the program wrote {}, but that cannot be recorded: {reason}; name the directory with {{dir}} in an argument",
        files(written)
    )]
    NothingRecorded {
        /// What it wrote.
        written: Vec<String>,
        /// Why that was not recorded.
        reason: String,
    },
}

impl From<WorkloadError> for InitError {
    fn from(error: WorkloadError) -> Self {
        Self::Session(error.into())
    }
}

/// A command that is recorded, with its trees.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Invocation {
    command: Vec<String>,
    trees: Vec<String>,
}

/// A recording of the program that can be checked.
struct Tried {
    invocation: Invocation,
    summary: RecordingSummary,
    trace: PathBuf,
}

/// Tries a program. `observer` hears how far that is.
pub fn init(
    options: &InitOptions,
    runtime: &[u8],
    observer: &mut dyn Observer,
) -> Result<Proposal, InitError> {
    let scratch = powerfail_image::scratch_directory()
        .map_err(|error| InitError::Scratch(std::io::Error::other(error)))?;
    let given = Invocation {
        command: options.command.clone(),
        trees: arguments::observed(&options.command, scratch.path())?,
    };
    let trace = scratch.path().join("given.trace");
    let summary = record(&given, options, &trace, runtime)?;
    let seen = arguments::Seen::of(&summary);
    let first = Tried {
        invocation: given,
        summary,
        trace,
    };
    let tried = choose(first, &seen, options, scratch.path(), runtime)?;
    let trace = open(&tried.trace)?;
    let domain = if tried.summary.trees.is_empty() {
        Some(domain(&trace)?)
    } else {
        None
    };
    let (recover, trial) = recover(options, &tried, &trace, runtime, observer)?;
    let mut unseen = unseen(&tried, &options.command);
    unseen.extend(trial.notes);
    // Each process has one thread at least.
    let has_threads = tried.summary.thread_count > tried.summary.process_count;
    let schedules = has_threads.then_some(SCHEDULES);
    if has_threads {
        unseen.push(
            "other orders of the program's threads; `schedules` in the file tries some".to_owned(),
        );
    }
    if !arguments::uses_placeholder(&tried.invocation.command) {
        unseen.push(
            "no argument names the data, so every check runs on the same files and begins with what the last run left there"
                .to_owned(),
        );
    }
    // What the user has given as {pool} or {dir} has no name of its own.
    let is_fresh = arguments::uses_placeholder(&options.command);
    Ok(Proposal {
        given: options.command.clone(),
        command: tried.invocation.command,
        trees: tried.invocation.trees,
        mapped: if is_fresh {
            Vec::new()
        } else {
            seen.mapped_names()
        },
        written: if is_fresh {
            Vec::new()
        } else {
            seen.written_names()
        },
        events: tried.summary.events(),
        domain,
        recover,
        recovery: trial.recovery,
        recovery_time: trial.each,
        failure_points: trial.points,
        budget: budget(trial.needed),
        bugs: trial.bugs,
        schedules,
        unseen,
    })
}

/// Records one invocation of the program.
fn record(
    invocation: &Invocation,
    options: &InitOptions,
    trace: &Path,
    runtime: &[u8],
) -> Result<RecordingSummary, WorkloadError> {
    let command: Vec<OsString> = invocation.command.iter().map(OsString::from).collect();
    let mut recording = RecordOptions::new(command, trace);
    // Only what is proposed, and {dir}: what is written elsewhere is to be seen, not recorded.
    let trees: Vec<PathBuf> = invocation.trees.iter().map(PathBuf::from).collect();
    if !trees.is_empty() {
        recording.choose_trees(&trees);
    }
    recording.time_limit = Some(options.time_limit);
    recording.plugin = options.plugin;
    // What the user has typed would be gone in the second recording.
    recording.input = Some(Input {
        bytes: Vec::new(),
        channel: InputChannel::Stdin,
    });
    record_workload(&recording, runtime, None, &mut |_| {})
}

/// The best invocation that works: fresh data, or the files that the program names itself.
fn choose(
    first: Tried,
    seen: &arguments::Seen,
    options: &InitOptions,
    scratch: &Path,
    runtime: &[u8],
) -> Result<Tried, InitError> {
    if arguments::has_directory(&options.command) && is_recorded(&first.summary) {
        return Ok(first);
    }
    if seen.is_nothing() {
        return Err(InitError::NothingWritten);
    }
    let mut reason = "no argument names its directory".to_owned();
    for (number, (command, trees)) in seen.ways(&options.command).into_iter().enumerate() {
        let invocation = Invocation { command, trees };
        let trace = scratch.join(format!("{number}.trace"));
        match record(&invocation, options, &trace, runtime) {
            Ok(summary) if is_recorded(&summary) => {
                return Ok(Tried {
                    invocation,
                    summary,
                    trace,
                });
            }
            Ok(_) => {
                reason = format!(
                    "`{}` changes no file in a tree",
                    invocation.command.join(" ")
                );
            }
            Err(error @ (WorkloadError::Interrupted | WorkloadError::Output(_))) => {
                return Err(error.into());
            }
            Err(error) => reason = format!("`{}`: {error}", invocation.command.join(" ")),
        }
    }
    Err(InitError::NothingRecorded {
        written: [seen.mapped_names(), seen.written_names()].concat(),
        reason,
    })
}

/// Whether there is something that a crash could damage.
fn is_recorded(summary: &RecordingSummary) -> bool {
    !summary.pools.is_empty() || summary.trees.iter().any(|tree| tree.names > 0)
}

fn open(path: &Path) -> Result<Trace, SessionError> {
    Trace::open(path).map_err(|error| SessionError::Trace {
        path: path.to_path_buf(),
        source: error.into(),
    })
}

fn domain(trace: &Trace) -> Result<ProposedDomain, SessionError> {
    let detected =
        detect_domain(trace, &mut |_| ()).map_err(|error| SessionError::Check(error.into()))?;
    let usual = "caches are lost in a power failure, so stores need a flush and a fence";
    Ok(ProposedDomain {
        name: detected.domain.name(),
        reason: detected.reason.unwrap_or_else(|| usual.to_owned()),
    })
}

/// What a short check has shown.
struct Trial {
    recovery: RecoveryTrial,
    /// How long one recovery takes.
    each: Duration,
    points: u64,
    /// How long all crashes take in which earlier stores survive.
    needed: Duration,
    bugs: u64,
    /// What limits the result.
    notes: Vec<String>,
}

/// Tries recoveries until one succeeds; otherwise the first.
fn recover(
    options: &InitOptions,
    tried: &Tried,
    trace: &Trace,
    runtime: &[u8],
    observer: &mut dyn Observer,
) -> Result<(Option<String>, Trial), InitError> {
    let first = try_recovery(options.recover.clone(), &tried.trace, runtime, observer)?;
    let text = options.recover.as_ref().map(|it| it.text.clone());
    if options.recover.is_some() || !matches!(first.recovery, RecoveryTrial::Fails(_)) {
        return Ok((text, first));
    }
    let Some(command) = known_recovery(tried, trace) else {
        return Ok((text, first));
    };
    let Ok(parsed) = command.parse::<CommandText>() else {
        return Ok((text, first));
    };
    let second = try_recovery(Some(parsed), &tried.trace, runtime, observer)?;
    Ok(match second.recovery {
        RecoveryTrial::Succeeds => (Some(command), second),
        _ => (text, first),
    })
}

/// The command of a library of pools that examines one.
fn known_recovery(tried: &Tried, trace: &Trace) -> Option<String> {
    const TOOL: &str = "pmempool";
    let is_pmdk = trace.modules().iter().any(|module| {
        let name = module.path.file_name();
        name.is_some_and(|name| name.as_encoded_bytes().starts_with(b"libpmemobj"))
    });
    let has_pool = tried
        .invocation
        .command
        .iter()
        .any(|word| word.contains("{pool}"));
    let is_installed = doctor::find_program(TOOL).is_some();
    (is_pmdk && has_pool && is_installed).then(|| format!("{TOOL} check {{pool}}"))
}

fn try_recovery(
    recover: Option<CommandText>,
    trace: &Path,
    runtime: &[u8],
    observer: &mut dyn Observer,
) -> Result<Trial, InitError> {
    let mut arguments = CrashArgs::default();
    arguments.test.recovery.recover = recover;
    arguments.test.failures.budget = Some(TRIAL_BUDGET);
    let settings = arguments.settle(CrashArgs::default())?;
    let mut session = Session {
        runtime,
        plugin: &[],
        suppressions: &[],
        arguments: &[],
        shares: None,
        changed: None,
        watched: None,
        observer: &mut OnlyProgress(observer),
    };
    let begun = Instant::now();
    let result = match session.crash(trace, &settings) {
        Ok(result) => result,
        Err(SessionError::Check(error @ CheckError::Undisturbed { .. })) => {
            return Ok(Trial {
                recovery: RecoveryTrial::Fails(error.to_string()),
                each: Duration::ZERO,
                points: 0,
                needed: Duration::ZERO,
                bugs: 0,
                notes: Vec::new(),
            });
        }
        Err(error) => return Err(error.into()),
    };
    if result.is_interrupted {
        return Err(WorkloadError::Interrupted.into());
    }
    let totals = &result.report.totals;
    let runs = u32::try_from(totals.recovery_runs)
        .unwrap_or(u32::MAX)
        .max(1);
    let each = begun.elapsed() / runs;
    let left = totals.failure_points_run + totals.failure_points_not_run.no_time;
    Ok(Trial {
        recovery: match totals.not_checked {
            // It has succeeded without a crash, and a check has more time.
            None | Some(NotChecked::NoTime) => RecoveryTrial::Succeeds,
            Some(reason) => RecoveryTrial::ShowsNothing(reason),
        },
        each,
        points: totals.failure_points,
        needed: each.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX)),
        bugs: result.report.findings.len() as u64,
        // A check has more time.
        notes: result
            .report
            .notes
            .iter()
            .filter(|note| !note.contains("--budget"))
            .cloned()
            .collect(),
    })
}

/// Time for everything: as much again for lost lines and for explanations, in whole minutes.
fn budget(needed: Duration) -> Duration {
    let minutes = (needed * 3).as_secs().div_ceil(60);
    CHECK_BUDGET.max(Duration::from_mins(minutes))
}

/// What one run cannot show.
fn unseen(tried: &Tried, given: &[String]) -> Vec<String> {
    let mut sentences = vec![
        "what the program does with other arguments and inputs; powerfail fuzz tries some"
            .to_owned(),
        "what it does with a standard input: it got an empty one".to_owned(),
        "whether the recovered data is right, unless recovery checks it; see `checker` and `dump`"
            .to_owned(),
    ];
    let outside: Vec<String> = tried
        .summary
        .elsewhere
        .iter()
        .map(|it| it.display().to_string())
        .collect();
    if !outside.is_empty() {
        sentences.push(format!(
            "{} is written, but not recorded: crashes leave it alone",
            files(&outside)
        ));
    }
    let program = given.first().map(OsString::from).unwrap_or_default();
    for diagnosis in doctor::program(&program) {
        if diagnosis.health != Health::Good {
            let remedy = diagnosis.remedy.unwrap_or_default();
            sentences.push(format!(
                "{}: {}; {remedy}",
                diagnosis.subject, diagnosis.fact
            ));
        }
    }
    sentences.extend(tried.summary.warnings.iter().cloned());
    sentences.extend(tried.summary.notes.iter().cloned());
    sentences
}

/// The first names of a list.
fn files(names: &[String]) -> String {
    let shown = names
        .iter()
        .take(NAMED_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Hears only how far the trial is: its notes are about a run that the user has not asked for.
struct OnlyProgress<'a>(&'a mut dyn Observer);

impl Observer for OnlyProgress<'_> {
    fn event(&mut self, event: CheckEvent<'_>) {
        if matches!(event, CheckEvent::Progress { .. }) {
            self.0.event(event);
        }
    }

    fn is_interrupted(&self) -> bool {
        self.0.is_interrupted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_grows_with_what_is_needed() {
        assert_eq!(budget(Duration::from_secs(1)), CHECK_BUDGET);
        assert_eq!(budget(Duration::from_secs(61)), Duration::from_mins(4));
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..7).map(|it| it.to_string()).collect();
        assert_eq!(files(&names), "0, 1, 2, 3, 4 and 2 more");
        assert_eq!(files(&names[..2]), "0, 1");
    }
}
