//! `powerfail crash` and `powerfail lint`, and what `check` does once there is a trace.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use powerfail_check::{
    CheckError, Crashed, LazyOptions, LazyTime, Observer, Persistent, RaceOptions, Recovery,
    Runner, RunnerOptions, Step, Undisturbed, output_directory,
};
use powerfail_config::{
    Baseline, Exploration, Format, OutputSettings, ReportSettings, Suppression, TestSettings, sift,
};
use powerfail_explore::EagerOptions;
use powerfail_finding::{Eager, Finding, RecoveryOutcome, Report, Severity, Totals};
use powerfail_oracle::{Oracle, Settings};
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
    let report = Report {
        schema: 1,
        powerfail: env!("CARGO_PKG_VERSION").into(),
        command: command_of(&trace),
        findings: linted.findings,
        totals,
        notes: linted.notes,
    };
    let baseline = baseline(settings.output.baseline.as_deref())?;
    let mut report = sifted(report, &config.suppress, baseline.as_ref());
    report
        .findings
        .retain(|finding| settings.output.wants(finding.code));
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

/// What came of crashes.
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
    let trace = work.trace;
    let is_watched = work.lazy.is_some() || work.eager.is_some() || work.races.is_some();
    let settings = Settings {
        runtime: (is_watched || Persistent::of(trace).is_any()).then(|| RUNTIME.into()),
        // Many short runs of one command: what starting it takes is most of their time.
        snapshot: work.eager.is_some() && !work.no_snapshot,
        ..Settings::default()
    };
    let oracle = Oracle::new(work.recovery.plan(trace), settings)?;
    let parent = powerfail_image::default_parent();
    let _ = powerfail_image::sweep_leftovers(&parent);
    let runner_options = RunnerOptions {
        jobs: work.settings.failures.jobs.to_usize(),
        rules: work.recovery.rules(),
        fill: work.recovery.fill(),
        companions: Vec::new(),
    };
    let options = crash_options(work);
    let mut watcher = Watcher::default();
    let crashed = Runner::new(trace, &oracle, &parent, runner_options).and_then(|mut runner| {
        let crashed = powerfail_check::crash(trace, &options, &mut runner, &mut watcher)?;
        let reasons = runner
            .isolation()
            .map(|isolation| isolation.reasons.clone())
            .unwrap_or_default();
        Ok((crashed, reasons))
    });
    watcher.progress = None;
    let (mut crashed, reasons) = match crashed {
        Ok(crashed) => crashed,
        Err(CheckError::Undisturbed { image, outcome }) => {
            return Ok(Examined::Fails { image, outcome });
        }
        Err(CheckError::Interrupted) => return Ok(Examined::Interrupted),
        Err(
            error @ (CheckError::Trace(_)
            | CheckError::Image(powerfail_image::ImageError::Trace(_))),
        ) => {
            return Err(error).with_context(|| work.trace_path.display().to_string());
        }
        Err(error) => return Err(error.into()),
    };
    crashed.notes.extend(
        reasons
            .iter()
            .map(|reason| format!("recovery is not fully kept apart: {reason}")),
    );
    Ok(Examined::Done(Box::new(crashed)))
}

/// Reports what crashes have shown.
pub(crate) fn conclude(work: &Work<'_>, crashed: Crashed) -> anyhow::Result<Exit> {
    let report = Report {
        schema: 1,
        powerfail: env!("CARGO_PKG_VERSION").into(),
        command: command_of(work.trace),
        findings: crashed.findings,
        totals: crashed.totals,
        notes: crashed.notes,
    };
    let mut report = sifted(report, work.suppress, work.baseline);
    report
        .findings
        .retain(|finding| work.settings.output.wants(finding.code));
    if let Some(out) = work.out {
        output_directory::save(out, &report, work.recovery)?;
    }
    let exit = finish(
        &report,
        &work.settings.report,
        &work.settings.output,
        work.out,
    )?;
    if crashed.is_interrupted && exit == Exit::Clean {
        complain("interrupted; everything that was started is ended and removed");
        return Ok(Exit::Setup);
    }
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

fn command_of(trace: &Trace) -> Vec<String> {
    let words = trace.meta().command.iter();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

fn sifted(mut report: Report, suppress: &[Suppression], baseline: Option<&Baseline>) -> Report {
    let sifted = sift(suppress, std::mem::take(&mut report.findings));
    report.totals.suppressed = sifted.matched.iter().map(|(_, count)| count).sum();
    let unused = sifted.unused.iter().map(findings::unused_suppression);
    report.notes.extend(unused);
    report.findings = sifted.kept;
    if let Some(baseline) = baseline {
        let comparison = baseline.compare(report.findings);
        report.findings = comparison.new;
        report.totals.in_baseline = comparison.known;
        report.totals.fixed = comparison.fixed;
    }
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
                    // Whoever asks for races wants to see those that recovery survives.
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

/// Shows how far things are.
#[derive(Default)]
pub(crate) struct Watcher {
    progress: Option<(Step, u64, Progress)>,
}

impl Observer for Watcher {
    fn progress(&mut self, step: Step, done: u64, of: u64) {
        match &mut self.progress {
            Some((current, last, progress)) if *current == step && done >= *last => {
                progress.advance(done - *last);
                *last = done;
            }
            _ => {
                // The old bar goes before the new one comes.
                self.progress = None;
                let progress = Progress::items(of);
                progress.advance(done);
                self.progress = Some((step, done, progress));
            }
        }
    }

    fn plan(&mut self, runs: u64, points: u64, estimate: Duration) {
        use std::io::Write;
        self.progress = None;
        let _ = writeln!(
            anstream::stderr(),
            "{}",
            powerfail_report::findings::plan_sentence(runs, points, estimate)
        );
    }

    fn combinations(&mut self, eager: &Eager, states: u64, estimate: Duration) {
        self.progress = None;
        let _ = findings::combinations(&mut anstream::stderr(), eager, states, estimate);
    }

    fn is_interrupted(&self) -> bool {
        interrupt::is_interrupted()
    }
}
