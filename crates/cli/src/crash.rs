//! `powerfail crash` and `powerfail lint`, and what `check` does once there is a trace.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::Context;
use powerfail_check::{
    CheckError, Checker, Crashed, Event, LazyOptions, LazyTime, Observer, RaceOptions, Recovery,
    Sieve, SiftedEvents, SiftedReport, Step, Undisturbed, output_directory,
};
use powerfail_config::{
    Baseline, Exploration, Format, OutputSettings, ReportSettings, Suppression, TestSettings,
};
use powerfail_explore::EagerOptions;
use powerfail_finding::{Finding, RecoveryOutcome, Report, Severity, Totals};
use powerfail_report::findings;
use powerfail_trace::{Completeness, Trace};

use crate::args::{CrashCommand, LintCommand};
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::output::{print, width};
use crate::progress::{Progress, open_trace};
use crate::record::RUNTIME;
use crate::settings::{
    baseline, configuration, crash_options, eager, lazy, lint_options, recovery,
};

/// Opens a trace that is to be judged. Of one that ends early nothing can be said: what it lacks may be
/// the flush of a store.
pub(crate) fn open_whole_trace(path: &Path) -> anyhow::Result<Trace> {
    let trace = open_trace(path)?;
    anyhow::ensure!(
        trace.completeness() == Completeness::Complete,
        "{}: the recording ended before the trace was finished, so it cannot be judged; record again",
        path.display()
    );
    Ok(trace)
}

pub(crate) fn lint(args: &LintCommand) -> anyhow::Result<Exit> {
    let config = configuration()?;
    let settings = args.options.clone().settle(config.lint);
    let trace = open_whole_trace(&args.trace)?;
    let options = lint_options(&settings.report, settings.domain, &trace);
    let progress = Progress::items(trace.event_count());
    let mut last = 0;
    let linted = powerfail_check::lint(&trace, &options, &mut |done| {
        progress.advance(done.saturating_sub(last));
        last = done;
    })
    .with_context(|| args.trace.display().to_string())?;
    drop(progress);
    let totals = Totals {
        events: trace.event_count(),
        ..Totals::default()
    };
    let baseline = baseline(settings.output.baseline.as_deref())?;
    let sieve = Sieve {
        suppressions: &config.suppress,
        baseline: baseline.as_ref(),
        only: &settings.output.only,
    };
    let sifted = sieve.report(&trace, linted.findings, totals, linted.notes);
    let report = with_unused(sifted);
    finish(&report, &settings.report, &settings.output, None)
}

/// A trace in which the power is to fail, and what that takes.
pub(crate) struct Subject {
    pub(crate) trace: Trace,
    pub(crate) recovery: Recovery,
    pub(crate) out: Option<PathBuf>,
    pub(crate) baseline: Option<Baseline>,
    /// Lock on the output directory, released on drop.
    _owned: Option<output_directory::OutputLock>,
}

impl Subject {
    /// From here on interruptions are looked for. The trace is kept with the evidence.
    pub(crate) fn open(path: &Path, settings: &TestSettings) -> anyhow::Result<Self> {
        let baseline = baseline(settings.output.baseline.as_deref())?;
        interrupt::watch();
        let trace = open_whole_trace(path)?;
        let workload: Vec<_> = trace.meta().command.clone();
        let recovery = recovery(settings, &workload, &trace)?;
        let out = settings.output.out.clone();
        let owned = out.as_deref().map(output_directory::create).transpose()?;
        if let Some(out) = &out {
            output_directory::keep_trace(out, path)?;
        }
        Ok(Self {
            trace,
            recovery,
            out,
            baseline,
            _owned: owned,
        })
    }
}

pub(crate) fn crash(args: &CrashCommand) -> anyhow::Result<Exit> {
    let config = configuration()?;
    let settings = args.options.clone().settle(config.crash)?;
    let subject = Subject::open(&args.trace, &settings.test)?;
    let exploration = &settings.exploration;
    judge(&Work {
        trace: &subject.trace,
        trace_path: &args.trace,
        recovery: &subject.recovery,
        settings: &settings.test,
        suppress: &config.suppress,
        baseline: subject.baseline.as_ref(),
        out: subject.out.as_deref(),
        prefix: matches!(exploration, Exploration::Prefix),
        lazy: match exploration {
            Exploration::Lazy(settings) => Some(lazy(settings, LazyTime::Budget)),
            _ => None,
        },
        no_snapshot: matches!(exploration, Exploration::Eager(settings) if settings.no_snapshot),
        eager: match exploration {
            Exploration::Eager(settings) => Some(eager(settings)),
            _ => None,
        },
        races: None,
        schedule: 0,
        share: 1,
    })
}

/// What is to be judged.
#[derive(Clone)]
pub(crate) struct Work<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) trace_path: &'a Path,
    pub(crate) recovery: &'a Recovery,
    pub(crate) settings: &'a TestSettings,
    pub(crate) suppress: &'a [Suppression],
    pub(crate) baseline: Option<&'a Baseline>,
    /// Where evidence goes; the trace is there.
    pub(crate) out: Option<&'a Path>,
    /// Let all stores before a failure survive.
    pub(crate) prefix: bool,
    /// Explore lost and reordered lines.
    pub(crate) lazy: Option<LazyOptions>,
    /// Try combinations of what may survive; seed and rules are filled in.
    pub(crate) eager: Option<EagerOptions>,
    /// Watch what recovery reads.
    pub(crate) races: Option<RaceOptions>,
    /// Start each recovery anew.
    pub(crate) no_snapshot: bool,
    /// Which of several recordings of one workload it is.
    pub(crate) schedule: u64,
    /// Among how many of them the budget is divided.
    pub(crate) share: u32,
}

impl<'a> Work<'a> {
    const fn sieve(&self) -> Sieve<'a> {
        Sieve {
            suppressions: self.suppress,
            baseline: self.baseline,
            only: self.settings.output.only.as_slice(),
        }
    }
}

/// The result of a crash test.
pub(crate) enum Examined {
    Done(Box<Crashed>),
    /// Recovery fails without a crash.
    Fails {
        image: Undisturbed,
        outcome: Box<RecoveryOutcome>,
    },
    Interrupted,
}

/// Lints, crashes, recovers, reports.
pub(crate) fn judge(work: &Work<'_>) -> anyhow::Result<Exit> {
    match examine(work)? {
        Examined::Done(crashed) => conclude(work, *crashed),
        Examined::Fails { image, outcome } => Ok(refuse(image, &outcome)),
        Examined::Interrupted => Ok(say_interrupted()),
    }
}

pub(crate) fn say_interrupted() -> Exit {
    complain("interrupted; everything that was started is ended and removed");
    Exit::Setup
}

/// Lints, crashes, recovers.
pub(crate) fn examine(work: &Work<'_>) -> anyhow::Result<Examined> {
    let options = crash_options(work);
    // Removes what a killed run has left behind. A failure to do so does not matter here.
    let _ = powerfail_image::sweep_leftovers(&powerfail_image::default_parent());
    let mut watcher = Watcher::default();
    let jobs = work.settings.failures.jobs.to_usize();
    let checker = Checker::new(work.trace, work.recovery, RUNTIME.into(), jobs);
    let mut events = SiftedEvents {
        sieve: work.sieve(),
        observer: &mut watcher,
    };
    let crashed = checker.crash(&options, &mut events);
    watcher.progress = None;
    match crashed {
        Ok(crashed) => Ok(Examined::Done(Box::new(crashed))),
        Err(CheckError::Undisturbed { image, outcome }) => Ok(Examined::Fails { image, outcome }),
        Err(CheckError::Interrupted) => Ok(Examined::Interrupted),
        Err(
            error @ (CheckError::Trace(_)
            | CheckError::Image(powerfail_image::ImageError::Trace(_))),
        ) => Err(error).with_context(|| work.trace_path.display().to_string()),
        Err(error) => Err(error.into()),
    }
}

/// Reports what crashes have shown.
pub(crate) fn conclude(work: &Work<'_>, crashed: Crashed) -> anyhow::Result<Exit> {
    let sifted = work
        .sieve()
        .report(work.trace, crashed.findings, crashed.totals, crashed.notes);
    let report = with_unused(sifted);
    if let Some(out) = work.out {
        output_directory::save(out, &report, work.recovery)?;
    }
    let exit = finish(
        &report,
        &work.settings.report,
        &work.settings.output,
        work.out,
    )?;
    if !crashed.is_interrupted {
        return Ok(exit);
    }
    if exit == Exit::Clean {
        return Ok(say_interrupted());
    }
    complain("interrupted; the report covers only what was tried until then");
    Ok(exit)
}

/// Recovery fails without a crash: nothing is blamed on one.
pub(crate) fn refuse(image: Undisturbed, outcome: &RecoveryOutcome) -> Exit {
    let on_what = image_name(image);
    let (what, output) = findings::outcome_sentence(outcome);
    complain(&format!(
        "recovery fails without any crash, {on_what}: it {what}. Nothing can be blamed on crashes \
         until it succeeds; see --recover"
    ));
    if !output.is_empty() {
        use std::io::Write;
        let _ = writeln!(anstream::stderr(), "{output}");
    }
    Exit::Setup
}

/// What recovery runs on without a crash.
pub(crate) const fn image_name(image: Undisturbed) -> &'static str {
    match image {
        Undisturbed::Final => "on the pool as the workload left it",
        Undisturbed::FinalAgain => "the second time in a row on the pool as the workload left it",
        Undisturbed::Initial => "on the pool as it was before the workload",
    }
}

/// The report, with a note for each suppression that matches nothing.
fn with_unused(sifted: SiftedReport) -> Report {
    let mut report = sifted.report;
    let unused = sifted.unused_suppressions.iter();
    report
        .notes
        .extend(unused.map(findings::unused_suppression));
    report
}

/// Prints the report; the exit code.
fn finish(
    report: &Report,
    settings: &ReportSettings,
    output: &OutputSettings,
    out: Option<&Path>,
) -> anyhow::Result<Exit> {
    match output.format {
        Format::Json => print(|to| Ok(findings::json(to, report)?))?,
        Format::Text => {
            let base = std::env::current_dir().unwrap_or_default();
            print(|to| {
                let options = findings::Options {
                    width: width(),
                    base: &base,
                    out,
                    // A user who asks for races wants to see those that recovery survives.
                    warnings: settings.shows_warnings(),
                };
                Ok(findings::report(to, report, &options)?)
            })?;
        }
    }
    let is_bug =
        |finding: &Finding| finding.severity != Severity::Warning || settings.denies_warnings();
    Ok(if report.findings.iter().any(is_bug) {
        Exit::Findings
    } else {
        Exit::Clean
    })
}

/// Shows the events of a check on standard error.
#[derive(Default)]
pub(crate) struct Watcher {
    progress: Option<(Step, u64, Progress)>,
}

impl Watcher {
    fn advance(&mut self, step: Step, done: u64, of: u64) {
        match &mut self.progress {
            Some((current, last, progress)) if *current == step && done >= *last => {
                progress.advance(done - *last);
                *last = done;
            }
            _ => {
                // The old bar is removed before the new one is drawn.
                self.progress = None;
                let progress = Progress::items(of);
                progress.advance(done);
                self.progress = Some((step, done, progress));
            }
        }
    }

    /// Writes a line in place of the progress bar.
    fn line(&mut self, text: &str) {
        use std::io::Write;
        self.progress = None;
        let _ = writeln!(anstream::stderr(), "{text}");
    }
}

impl Observer for Watcher {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Progress { step, done, of } => self.advance(step, done, of),
            Event::Plan {
                runs,
                points,
                estimate,
            } => self.line(&findings::plan_sentence(runs, points, estimate)),
            Event::Combinations {
                eager,
                states,
                estimate,
            } => {
                self.progress = None;
                let _ = findings::combinations(&mut anstream::stderr(), eager, states, estimate);
            }
            // The report follows; a notice is for a user who waits at a terminal.
            Event::Finding(finding) if std::io::stderr().is_terminal() => {
                self.line(&findings::notice(finding));
            }
            _ => {}
        }
    }

    fn is_interrupted(&self) -> bool {
        interrupt::is_interrupted()
    }
}
