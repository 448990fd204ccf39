//! One call for each command: from settings to a report.
//!
//! [`Session::check`] records a workload and tests it; [`Session::crash`], [`Session::races`] and [`Session::lint`]
//! begin with a trace. All go the same way: the trace, how recovery is run, the [`Checker`], the [`Sieve`], the output
//! directory. What a user sees on the way comes as [`CheckEvent`]s; what is left to the caller is to show the report.

mod companions;
mod elsewhere;
mod error;
mod keeping;
mod settings;
#[cfg(test)]
mod tests;

pub use error::SessionError;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use powerfail_config::{
    Baseline, CheckSettings, CrashSettings, LintSettings, OutputSettings, Partition, RacesSettings,
    Suppression, TestSettings,
};
use powerfail_files::seal::Origin;
use powerfail_finding::{Coverage, KeptSources, Report, Totals};
use powerfail_image::ImageError;
use powerfail_model::{Atomicity, Rules};
use powerfail_recorder::{limits, trace_origin};
use powerfail_trace::recording::RecordingSummary;
use powerfail_trace::{Completeness, Trace};

use crate::changed::ChangedSince;
use crate::checker::Checker;
use crate::coverage::keep_sources;
use crate::crash::Crashed;
use crate::error::CheckError;
use crate::event::{CheckEvent, CheckStep, ForeignTrace, Observer};
use crate::lint::lint;
use crate::options::{CrashOptions, WatchedRecovery};
use crate::outcomes::{Outcomes, Stored};
use crate::output_directory;
use crate::recovery::Recovery;
use crate::schedules::{ScheduledTraces, Schedules, record_first, record_schedules};
use crate::shares::Shares;
use crate::sieve::{Sieve, SiftedEvents};
use crate::workload::record_workload;
use elsewhere::Elsewhere;
use keeping::Purpose;

/// What all commands need besides their settings.
pub struct Session<'a> {
    /// The library that is preloaded into the workload, and into recovery where its reads are watched.
    pub runtime: &'a [u8],
    /// The plugin of QEMU, which records what is statically linked.
    pub plugin: &'static [u8],
    /// The suppressions of the configuration file.
    pub suppressions: &'a [Suppression],
    /// The arguments of powerfail. They are kept with the outcomes of recoveries, to run a share again that was lost.
    pub arguments: &'a [OsString],
    /// The shares of the run, if they are to be joined.
    pub shares: Option<Shares>,
    /// What is new since something, and is tried first.
    pub changed: Option<Arc<ChangedSince>>,
    /// Tells what a recovery does in which the runtime is not.
    pub watched: Option<Arc<dyn WatchedRecovery>>,
    /// Hears what happens. It does not hear of findings that are not reported.
    pub observer: &'a mut dyn Observer,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct SessionResult {
    /// The report.
    pub report: Report,
    /// The output directory, if evidence was kept.
    pub out: Option<PathBuf>,
    /// The user has interrupted the run; the report covers what was done before.
    pub is_interrupted: bool,
    /// Only this share of the run was done.
    pub share: Option<Partition>,
    /// In some order of threads the workload or its recovery fails without any crash. The notes say how.
    pub fails_without_crash: bool,
    /// What is known besides, for a picture of the run.
    pub details: RunDetails,
}

/// What a picture of a run needs besides its report.
#[derive(Clone, Debug)]
pub struct RunDetails {
    /// The trace.
    pub trace: PathBuf,
    /// The rules of what survives.
    pub rules: Rules,
    /// Which failure points were tried.
    pub coverage: Coverage,
    /// The source files that the report names.
    pub sources: KeptSources,
}

/// A trace in which the power is to fail.
#[derive(Clone, Copy)]
struct Subject<'a> {
    trace: &'a Trace,
    path: &'a Path,
    recovery: &'a Recovery,
    /// How many recoveries run at a time.
    jobs: usize,
    /// Files that the workload wrote with system calls and that belong to a pool: crash images lack them.
    companions: &'a [PathBuf],
    /// Files that the workload wrote outside of all trees.
    elsewhere: &'a [PathBuf],
    /// The output directory, if evidence is kept.
    out: Option<&'a Path>,
}

impl Session<'_> {
    /// Records a workload, once or in several orders of its threads, and lets the power fail in it.
    pub fn check(&mut self, settings: &CheckSettings) -> Result<SessionResult, SessionError> {
        let test = &settings.test;
        let purpose = Purpose::check(settings);
        let out = keeping::output_directory_of(test, Some(output_directory::DEFAULT));
        if let Some(path) = &settings.trace {
            let options = settings::check(settings);
            return self.test_trace(path, test, &options, &purpose, out.as_deref());
        }
        let baseline = baseline(&test.output)?;
        if settings.schedules > 1 {
            needs_fresh_pools(settings)?;
        }
        let out = out.unwrap_or_else(|| PathBuf::from(output_directory::DEFAULT));
        let _lock = output_directory::create(&out)?;
        let path = out.join(output_directory::TRACE);
        if test.shares.resume
            && let Some((trace, companions)) = self.recorded_before(&out, &path)?
        {
            settings::inspect_single_point(&test.failures, &trace)?;
            let options = settings::check(settings);
            let recovery = settings::recovery(test, &settings.command, &trace, self.observer)?;
            let subject = Subject {
                trace: &trace,
                path: &path,
                recovery: &recovery,
                jobs: test.failures.jobs.to_usize(),
                companions: &companions,
                elsewhere: &[],
                out: Some(&out),
            };
            let outcomes = self.outcomes(&purpose, test, subject, Some(&out))?;
            let sieve = self.sieve(&test.output, baseline.as_ref());
            let crashed = self.test(&sieve, subject, &options, &outcomes)?;
            return self.conclude(&sieve, subject, crashed, &options, &outcomes, Some(&out));
        }
        let (recording, server) = settings::workload(settings, &path, self.plugin)?;
        let schedules = Schedules {
            count: settings.schedules,
            depth: settings.recording.schedule_depth.to_u32(),
            seed: test.failures.seed,
        };
        let (summary, first) = if schedules.count == 1 {
            let observer = &mut *self.observer;
            let summary = record_workload(&recording, self.runtime, server.as_ref(), &mut |it| {
                observer.event(CheckEvent::Note(it));
            })?;
            (summary, None)
        } else {
            let first = record_first(&recording, self.runtime, server.as_ref(), &schedules)?;
            (first.summary.clone(), Some(first))
        };
        self.observer.event(CheckEvent::Recorded(&summary));
        for sentence in &summary.notes {
            self.observer.event(CheckEvent::Note(sentence));
        }
        for sentence in &summary.warnings {
            self.observer.event(CheckEvent::Warning(sentence));
        }
        // The budget is for all that follows.
        let options = settings::check(settings);
        let trace = open(&path, self.observer)?;
        settings::inspect_single_point(&test.failures, &trace)?;
        let recovery = settings::recovery(test, &settings.command, &trace, self.observer)?;
        let subject = Subject {
            trace: &trace,
            path: &path,
            recovery: &recovery,
            jobs: test.failures.jobs.to_usize(),
            companions: &summary.companions,
            elsewhere: &summary.elsewhere,
            out: Some(&out),
        };
        let outcomes = self.outcomes(&purpose, test, subject, Some(&out))?;
        let sieve = self.sieve(&test.output, baseline.as_ref());
        let Some(first) = first else {
            let mut crashed = self.test(&sieve, subject, &options, &outcomes)?;
            crashed
                .notes
                .extend(order_of_threads(crashed.threads, &summary));
            return self.conclude(&sieve, subject, crashed, &options, &outcomes, Some(&out));
        };
        let mut done = 0;
        let recorded = record_schedules(
            &trace,
            first,
            &recording,
            self.runtime,
            server.as_ref(),
            &schedules,
            &mut || {
                done += 1;
                self.observer
                    .progress(CheckStep::Schedules, done, schedules.count);
            },
        )?;
        let (crashed, failures) =
            self.test_orders(&sieve, subject, &options, &outcomes, &recorded)?;
        let mut result =
            self.conclude(&sieve, subject, crashed, &options, &outcomes, Some(&out))?;
        result.fails_without_crash = failures > 0;
        Ok(result)
    }

    /// Lets the power fail in a trace.
    pub fn crash(
        &mut self,
        path: &Path,
        settings: &CrashSettings,
    ) -> Result<SessionResult, SessionError> {
        let (test, options) = (&settings.test, settings::crash(settings));
        let out = keeping::output_directory_of(test, None);
        self.test_trace(
            path,
            test,
            &options,
            &Purpose::crash(settings),
            out.as_deref(),
        )
    }

    /// Watches what recovery reads after power failures in a trace.
    pub fn races(
        &mut self,
        path: &Path,
        settings: &RacesSettings,
    ) -> Result<SessionResult, SessionError> {
        let (test, options) = (&settings.test, settings::races(settings));
        let out = keeping::output_directory_of(test, None);
        self.test_trace(
            path,
            test,
            &options,
            &Purpose::races(settings),
            out.as_deref(),
        )
    }

    /// Lints a trace.
    pub fn lint(
        &mut self,
        path: &Path,
        settings: &LintSettings,
    ) -> Result<SessionResult, SessionError> {
        let baseline = baseline(&settings.output)?;
        let trace = open_whole(path, self.observer)?;
        let options = settings::lint(settings, &trace, self.observer);
        let events = trace.event_count();
        let linted = lint(&trace, &options, &mut |done| {
            self.observer.progress(CheckStep::Lint, done, events);
        });
        let linted = linted.map_err(about(path))?;
        let totals = Totals {
            events,
            ..Totals::default()
        };
        let sieve = self.sieve(&settings.output, baseline.as_ref());
        let report = sieve.report(&trace, linted.findings, totals, linted.notes);
        let details = RunDetails {
            trace: path.to_path_buf(),
            rules: Rules {
                domain: options.domain,
                atomicity: Atomicity::default(),
            },
            coverage: Coverage::default(),
            sources: keep_sources(&report.findings, &Coverage::default()),
        };
        Ok(SessionResult {
            report,
            out: None,
            is_interrupted: false,
            share: None,
            fails_without_crash: false,
            details,
        })
    }

    /// Tests a trace that exists. With an output directory the trace is kept there, with the evidence.
    fn test_trace(
        &mut self,
        path: &Path,
        settings: &TestSettings,
        options: &CrashOptions,
        purpose: &Purpose,
        out: Option<&Path>,
    ) -> Result<SessionResult, SessionError> {
        let baseline = baseline(&settings.output)?;
        let trace = open_whole(path, self.observer)?;
        settings::inspect_single_point(&settings.failures, &trace)?;
        let recovery = settings::recovery(settings, &trace.meta().command, &trace, self.observer)?;
        if settings.recovery.recover.is_none()
            && let Origin::Foreign(reason) = trace_origin(trace.meta())
        {
            let foreign = ForeignTrace {
                path,
                reason,
                recovery: &recovery,
            };
            let allowed = self.observer.allow(&foreign);
            allowed.map_err(SessionError::NotAllowed)?;
        }
        let _lock = out.map(output_directory::create).transpose()?;
        if let Some(out) = out {
            output_directory::keep_trace(out, path)?;
        }
        let subject = Subject {
            trace: &trace,
            path,
            recovery: &recovery,
            jobs: settings.failures.jobs.to_usize(),
            companions: &[],
            elsewhere: &[],
            out,
        };
        let outcomes = self.outcomes(purpose, settings, subject, out)?;
        let sieve = self.sieve(&settings.output, baseline.as_ref());
        let crashed = self.test(&sieve, subject, options, &outcomes)?;
        self.conclude(&sieve, subject, crashed, options, &outcomes, out)
    }

    /// The trace that a run has recorded and begun to test before it was killed, and the companions of its pools. `None`
    /// if it did not come so far.
    fn recorded_before(
        &mut self,
        out: &Path,
        path: &Path,
    ) -> Result<Option<(Trace, Vec<PathBuf>)>, SessionError> {
        let Some(stored) = Stored::read(out)? else {
            return Ok(None);
        };
        let Ok(trace) = open_whole(path, self.observer) else {
            return Ok(None);
        };
        let is_same = trace
            .digest()
            .is_ok_and(|digest| digest == stored.about.trace);
        Ok(is_same.then_some((trace, stored.about.companions)))
    }

    /// The outcomes that the run begins with, and keeps in its output directory.
    fn outcomes(
        &mut self,
        purpose: &Purpose,
        test: &TestSettings,
        subject: Subject<'_>,
        out: Option<&Path>,
    ) -> Result<Outcomes, SessionError> {
        let Some(out) = out else {
            return Ok(Outcomes::default());
        };
        let about = keeping::about(
            purpose,
            self.arguments,
            subject.trace,
            subject.recovery,
            test.shares.partition,
            subject.companions,
        )?;
        keeping::outcomes(&about, self.shares.take(), test.shares.resume, out)
    }

    /// Tests recordings of one workload, each with an order of threads of its own; `first` is the first of them.
    /// Returns also how many orders fail without any crash.
    fn test_orders(
        &mut self,
        sieve: &Sieve<'_>,
        first: Subject<'_>,
        options: &CrashOptions,
        outcomes: &Outcomes,
        recorded: &ScheduledTraces,
    ) -> Result<(Crashed, usize), SessionError> {
        let distinct = recorded.distinct_count();
        self.observer.event(CheckEvent::Schedules {
            recordings: recorded.count,
            distinct,
        });
        let mut options = options.clone();
        let share = u32::try_from(distinct).unwrap_or(u32::MAX);
        options.budget = options.budget.map(|budget| budget / share.max(1));
        options.begun = None;
        let crashed = self.test(sieve, first, &options, outcomes)?;
        let failure = |seed: u64, text: &str| {
            format!(
                "with schedule seed {seed}: {text}; this is a bug of the order of threads, not of a crash"
            )
        };
        let failures = recorded.failures.iter();
        let mut failures: Vec<String> = failures
            .map(|(seed, error)| failure(*seed, &error.to_string()))
            .collect();
        let seed = options.tree.seed;
        let mut others = Vec::new();
        for scheduled in &recorded.distinct {
            // Other failure points of the same call stacks in each recording.
            options.tree.seed = seed.wrapping_add(scheduled.number);
            let subject = Subject {
                trace: &scheduled.trace,
                path: &scheduled.path,
                ..first
            };
            match self.test(sieve, subject, &options, outcomes) {
                Ok(crashed) => others.push((scheduled, crashed)),
                Err(SessionError::Check(CheckError::Undisturbed { image, outcome, .. })) => {
                    let text = format!("recovery {outcome} {image} without any crash");
                    failures.push(failure(scheduled.seed, &text));
                }
                Err(error) => return Err(error),
            }
        }
        let mut merged = recorded.merge(crashed, others);
        let count = failures.len();
        merged.notes.extend(recorded.notes.iter().cloned());
        merged.notes.extend(failures);
        Ok((merged, count))
    }

    /// Lints one trace and lets the power fail in it.
    fn test(
        &mut self,
        sieve: &Sieve<'_>,
        subject: Subject<'_>,
        options: &CrashOptions,
        outcomes: &Outcomes,
    ) -> Result<Crashed, SessionError> {
        if let Some(sentence) = address_space_warning(options) {
            self.observer.event(CheckEvent::Warning(&sentence));
        }
        powerfail_image::sweep_usual_places();
        let checker = Checker::new(
            subject.trace,
            subject.recovery,
            self.runtime.into(),
            subject.jobs,
        );
        let checker = checker.with_plugin(self.plugin).with_traces(subject.out);
        // Where whole trees are crashed, nothing that the workload wrote is missing.
        let crashes_tree = checker.crashes_tree().map_err(about(subject.path))?;
        let companions = if crashes_tree {
            &[]
        } else {
            subject.companions
        };
        let checker = if outcomes.is_on() {
            let digest = subject.trace.digest();
            let digest = digest.map_err(|error| about(subject.path)(error.into()))?;
            checker.with_outcomes(outcomes.of_trace(digest))
        } else {
            checker
        };
        let mut events = SiftedEvents {
            sieve: *sieve,
            observer: self.observer,
            hides_failures: !companions.is_empty(),
        };
        let elsewhere = Elsewhere::watch(subject.elsewhere);
        let mut options = options.clone();
        options.changed.clone_from(&self.changed);
        options.watched.clone_from(&self.watched);
        let crashed = checker.crash(&options, &mut events);
        if let Some(sentence) = elsewhere.note() {
            self.observer.event(CheckEvent::Note(&sentence));
        }
        let mut crashed = crashed.map_err(about(subject.path))?;
        companions::doubt(&mut crashed, companions);
        Ok(crashed)
    }

    /// The report about what was found, which is kept in the output directory.
    fn conclude(
        &mut self,
        sieve: &Sieve<'_>,
        subject: Subject<'_>,
        mut crashed: Crashed,
        options: &CrashOptions,
        outcomes: &Outcomes,
        out: Option<&Path>,
    ) -> Result<SessionResult, SessionError> {
        if !crashed.is_interrupted {
            let counts = outcomes.finish()?;
            if counts.known > 0 {
                self.observer.event(CheckEvent::Note(&format!(
                    "{} results of recoveries were known, {} are new",
                    counts.known, counts.new
                )));
            }
        }
        if let Some(share) = options.partition {
            crashed.notes.push(format!(
                "this is share {share} of a run: the report has only what this share shows; powerfail merge joins all shares"
            ));
        }
        let report = sieve.report(
            subject.trace,
            crashed.findings,
            crashed.totals,
            crashed.notes,
        );
        let details = RunDetails {
            trace: subject.path.to_path_buf(),
            rules: subject.recovery.rules(),
            sources: keep_sources(&report.findings, &crashed.coverage),
            coverage: crashed.coverage,
        };
        if let Some(out) = out {
            output_directory::save(out, &report, subject.recovery)?;
            output_directory::save_details(out, &details.coverage, &details.sources)?;
        }
        Ok(SessionResult {
            report,
            out: out.map(Path::to_path_buf),
            is_interrupted: crashed.is_interrupted,
            share: options.partition,
            fails_without_crash: false,
            details,
        })
    }
}

impl<'a> Session<'a> {
    /// What decides which findings are reported.
    const fn sieve<'s>(
        &self,
        output: &'s OutputSettings,
        baseline: Option<&'s Baseline>,
    ) -> Sieve<'s>
    where
        'a: 's,
    {
        Sieve {
            suppressions: self.suppressions,
            baseline,
            only: output.only.as_slice(),
        }
    }
}

/// The baseline that the settings name.
fn baseline(output: &OutputSettings) -> Result<Option<Baseline>, SessionError> {
    let Some(path) = &output.baseline else {
        return Ok(None);
    };
    let text = fs::read_to_string(path).map_err(SessionError::file(path))?;
    let baseline = Baseline::parse(&text).map_err(|source| SessionError::Baseline {
        path: path.clone(),
        source,
    })?;
    Ok(Some(baseline))
}

/// Says that only one order of the threads was recorded, if several store and a process has more than one.
fn order_of_threads(threads: usize, summary: &RecordingSummary) -> Option<String> {
    (threads > 1 && summary.thread_count > summary.process_count).then(|| {
        format!(
            "{threads} threads store, and one order of what they do was recorded; --schedules N records others"
        )
    })
}

/// Says that recoveries cannot be explored or watched if they inherit a limit of the address space.
fn address_space_warning(options: &CrashOptions) -> Option<String> {
    /// What the runtime maps in a recovery, and room for the recovery itself.
    const NEEDED: u64 = 16 << 30;
    let needs_runtime = options.lazy.is_some() || options.races.is_some() || options.snapshots;
    let limit = limits::address_space_limit().filter(|limit| needs_runtime && *limit < NEEDED)?;
    Some(format!(
        "the address space is limited to {} KiB (ulimit -v): recoveries can only be explored or watched with {} GiB",
        limit >> 10,
        NEEDED >> 30
    ))
}

/// Every recording has to begin with the same content.
fn needs_fresh_pools(settings: &CheckSettings) -> Result<(), SessionError> {
    let is_fresh = |word: &OsString| {
        let word = word.to_string_lossy();
        word.contains("{pool}") || word.contains("{dir}")
    };
    if settings.recording.heap.is_some() || settings.command.iter().any(is_fresh) {
        Ok(())
    } else {
        Err(SessionError::PoolNotFresh)
    }
}

/// Opens a trace. The observer hears how far that is.
fn open(path: &Path, observer: &mut dyn Observer) -> Result<Trace, SessionError> {
    // Asked before opening: opening a FIFO would wait for its other end.
    let metadata = fs::metadata(path).map_err(SessionError::file(path))?;
    if !metadata.is_file() {
        return Err(SessionError::NotAFile {
            path: path.to_path_buf(),
        });
    }
    let trace = Trace::open_with_progress(path, &mut |read| {
        observer.progress(CheckStep::Read, read, metadata.len());
    });
    trace.map_err(|error| about(path)(error.into()))
}

/// Opens a trace that is to be judged. Of one that ends early nothing can be said: what it lacks may be the flush of a
/// store.
fn open_whole(path: &Path, observer: &mut dyn Observer) -> Result<Trace, SessionError> {
    let trace = open(path, observer)?;
    if trace.completeness() != Completeness::Complete {
        return Err(SessionError::Unfinished {
            path: path.to_path_buf(),
        });
    }
    Ok(trace)
}

/// Names the trace in an error that is about the trace.
fn about(path: &Path) -> impl FnOnce(CheckError) -> SessionError {
    |error| match error {
        CheckError::Trace(_) | CheckError::Image(ImageError::Trace(_)) => SessionError::Trace {
            path: path.to_path_buf(),
            source: error,
        },
        error => SessionError::Check(error),
    }
}
