//! `powerfail crash` and `powerfail lint`, and what `check` does once there is a trace.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use powerfail_check::{
    CheckError, CrashOptions, Crashed, LazyOptions, LazyTime, Observer, RaceOptions, Runner,
    RunnerOptions, Step, Undisturbed,
};
use powerfail_config::{Baseline, CheckSection, Config, FILE_NAME, Only, sift};
use powerfail_evidence::{self as evidence, Persistent, Recovery};
use powerfail_explore::{EagerOptions, Granularity, PassOptions, TreeOptions};
use powerfail_finding::{Code, Eager, Finding, RecoveryOutcome, Report, Severity, Totals};
use powerfail_lint::{LintOptions, Standing, Trust};
use powerfail_model::{Atomicity, Domain};
use powerfail_oracle::{Oracle, Settings};
use powerfail_report::findings;
use powerfail_trace::{Completeness, Trace};

use crate::args::{
    CrashArgs, EagerArgs, FormatArg, LazyArgs, LintArgs, RecoveryArgs, ReportArgs, StrategyArg,
};
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::output::{print, width};
use crate::progress::{Progress, open_trace};
use crate::record::RUNTIME;
use crate::words::command;

const MIB: u64 = 1 << 20;

/// What powerfail.toml says, if it is there.
pub(crate) fn configuration() -> anyhow::Result<Config> {
    match std::fs::read_to_string(FILE_NAME) {
        Ok(text) => Config::parse(&text).context(FILE_NAME),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
        Err(error) => Err(error).context(FILE_NAME),
    }
}

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

pub(crate) fn lint(args: &LintArgs) -> anyhow::Result<Exit> {
    let config = configuration()?;
    let trace = open_whole_trace(&args.trace)?;
    let options = lint_options(&args.report, &config.check, &trace);
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
    let mut report = sifted(report, &args.report, &config)?;
    let wanted = wanted_codes(&args.report, &config.check);
    report
        .findings
        .retain(|finding| wanted.contains(&finding.code));
    finish(&report, &args.report, None)
}

/// A trace in which the power is to fail, and what that takes.
pub(crate) struct Subject {
    pub(crate) trace: Trace,
    pub(crate) recovery: Recovery,
    pub(crate) out: Option<PathBuf>,
    /// Nobody else has the directory as long as this is there.
    _owned: Option<std::fs::File>,
}

impl Subject {
    /// From here on interruptions are looked for. The trace is kept with the evidence.
    pub(crate) fn open(
        path: &Path,
        recovery_args: &RecoveryArgs,
        report_args: &ReportArgs,
        config: &Config,
    ) -> anyhow::Result<Self> {
        interrupt::watch();
        let trace = open_whole_trace(path)?;
        let workload: Vec<_> = trace.meta().command.clone();
        let recovery = recovery(recovery_args, report_args, &config.check, &workload, &trace)?;
        let out = report_args.out.clone().or(config.check.out.clone());
        let owned = out.as_deref().map(evidence::create).transpose()?;
        if let Some(out) = &out {
            evidence::keep_trace(out, path)?;
        }
        Ok(Self {
            trace,
            recovery,
            out,
            _owned: owned,
        })
    }
}

pub(crate) fn crash(args: &CrashArgs) -> anyhow::Result<Exit> {
    let config = configuration()?;
    refuse_slips(&args.recovery, &args.report, &config.check)?;
    let strategy = strategy_of(args, &config.check)?;
    let subject = Subject::open(&args.trace, &args.recovery, &args.report, &config)?;
    judge(&Work {
        trace: &subject.trace,
        trace_path: &args.trace,
        recovery: &subject.recovery,
        recovery_args: &args.recovery,
        report_args: &args.report,
        config: &config,
        out: subject.out.as_deref(),
        prefix: strategy == StrategyArg::Prefix,
        lazy: (strategy == StrategyArg::Lazy)
            .then(|| lazy(&args.lazy, &config.check, LazyTime::Budget)),
        no_snapshot: args.eager.no_snapshot || config.check.snapshot == Some(false),
        eager: (strategy == StrategyArg::Eager).then(|| eager(&args.eager, &config.check)),
        races: None,
        schedule: 0,
        share: 1,
    })
}

/// The strategy, from flags and configuration. Flags of another one are a slip.
fn strategy_of(args: &CrashArgs, section: &CheckSection) -> anyhow::Result<StrategyArg> {
    let named = section.strategy.as_deref();
    let named = named.and_then(|name| StrategyArg::from_str(name, false).ok());
    let strategy = args.strategy.or(named).unwrap_or_default();
    if strategy != StrategyArg::Eager {
        let eager = &args.eager;
        for (is_given, flag) in [
            (eager.threshold.is_some(), "--threshold"),
            (eager.sample.is_some(), "--sample"),
            (eager.coalesce, "--coalesce"),
            (eager.segments.is_some(), "--segments"),
            (eager.no_snapshot, "--no-snapshot"),
        ] {
            anyhow::ensure!(!is_given, "{flag} is for --strategy eager");
        }
    }
    if strategy != StrategyArg::Lazy {
        let lazy = &args.lazy;
        for (is_given, flag) in [
            (lazy.depth.is_some(), "--depth"),
            (lazy.max_executions.is_some(), "--max-executions"),
            (lazy.exhaustive, "--exhaustive"),
            (lazy.no_fork, "--no-fork"),
        ] {
            anyhow::ensure!(!is_given, "{flag} is for --strategy lazy");
        }
    }
    Ok(strategy)
}

/// Which combinations of stores are tried.
fn eager(args: &EagerArgs, section: &CheckSection) -> EagerOptions {
    let threshold = args.threshold.or(section.threshold);
    let threshold = threshold.unwrap_or(EagerOptions::THRESHOLD);
    let sample = args.sample.or(section.sample).unwrap_or(threshold);
    let segments = args.segments;
    EagerOptions {
        pass: PassOptions {
            coalesce: args.coalesce || section.coalesce.unwrap_or(false),
            ..PassOptions::default()
        },
        threshold,
        sample: usize::try_from(sample).unwrap_or(usize::MAX),
        segments: segments.map(|(from, to)| from..to.unwrap_or(usize::MAX)),
        ..EagerOptions::default()
    }
}

/// How far lost and reordered lines are explored.
pub(crate) fn lazy(args: &LazyArgs, section: &CheckSection, time: LazyTime) -> LazyOptions {
    let usual = LazyOptions::default();
    let depth = section.depth.and_then(|depth| u32::try_from(depth).ok());
    // A flag takes away what the configuration says to the contrary.
    let is_bounded = args.max_executions.is_some();
    let exhaustive = args.exhaustive || !is_bounded && section.exhaustive.unwrap_or(false);
    let max_executions = section.max_executions.filter(|_| !args.exhaustive);
    LazyOptions {
        depth: args.depth.or(depth).unwrap_or(usual.depth),
        fork: !args.no_fork && section.fork.unwrap_or(true),
        limit: usual.limit.filter(|_| !exhaustive),
        max_executions: args.max_executions.or(max_executions),
        robustness: false,
        time: if exhaustive { LazyTime::Any } else { time },
    }
}

/// What is to be judged.
#[derive(Clone)]
pub(crate) struct Work<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) trace_path: &'a Path,
    pub(crate) recovery: &'a Recovery,
    pub(crate) recovery_args: &'a RecoveryArgs,
    pub(crate) report_args: &'a ReportArgs,
    pub(crate) config: &'a Config,
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
    let section = &work.config.check;
    let is_watched = work.lazy.is_some() || work.eager.is_some() || work.races.is_some();
    let settings = Settings {
        runtime: (is_watched || Persistent::of(trace).is_any()).then(|| RUNTIME.into()),
        // Many short runs of one command: what starting it takes is most of their time.
        snapshot: work.eager.is_some() && !work.no_snapshot,
        ..Settings::default()
    };
    let oracle = Oracle::new(work.recovery.plan(trace)?, settings)?;
    let parent = powerfail_image::default_parent();
    let _ = powerfail_image::sweep_leftovers(&parent);
    let jobs = work.recovery_args.jobs.or(section.jobs);
    let jobs = jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        |jobs| usize::try_from(jobs).unwrap_or(1).max(1),
    );
    let runner_options = RunnerOptions {
        jobs,
        rules: work.recovery.rules(),
        fill: work.recovery.fill(),
        companions: Vec::new(),
    };
    let options = crash_options(work)?;
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
    let mut report = sifted(report, work.report_args, work.config)?;
    let wanted = wanted_codes(work.report_args, &work.config.check);
    report
        .findings
        .retain(|finding| wanted.contains(&finding.code));
    if let Some(out) = work.out {
        evidence::save(out, &report, work.recovery)?;
    }
    let exit = finish(&report, work.report_args, work.out)?;
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

fn sifted(mut report: Report, args: &ReportArgs, config: &Config) -> anyhow::Result<Report> {
    let sifted = sift(&config.suppress, std::mem::take(&mut report.findings));
    report.totals.suppressed = sifted.matched.iter().map(|(_, count)| count).sum();
    let unused = sifted.unused.iter().map(findings::unused_suppression);
    report.notes.extend(unused);
    report.findings = sifted.kept;
    if let Some(baseline) = baseline_of(args)? {
        let comparison = baseline.compare(report.findings);
        report.findings = comparison.new;
        report.totals.in_baseline = comparison.known;
        report.totals.fixed = comparison.fixed;
    }
    Ok(report)
}

/// Prints the report; the exit code.
fn finish(report: &Report, args: &ReportArgs, out: Option<&Path>) -> anyhow::Result<Exit> {
    match args.format {
        FormatArg::Json => print(|to| Ok(findings::json(to, report)?))?,
        FormatArg::Text => {
            let base = std::env::current_dir().unwrap_or_default();
            print(|to| {
                let options = findings::Options {
                    width: width(),
                    base: &base,
                    out,
                    // Whoever asks for races wants to see those that recovery survives.
                    warnings: args.warnings || args.deny.is_some(),
                };
                Ok(findings::report(to, report, &options)?)
            })?;
        }
    }
    let is_bug = |finding: &Finding| finding.severity != Severity::Warning || args.deny.is_some();
    Ok(if report.findings.iter().any(is_bug) {
        Exit::Findings
    } else {
        Exit::Clean
    })
}

fn wanted_codes(args: &ReportArgs, section: &CheckSection) -> Vec<Code> {
    let only: &[Only] = if args.only.is_empty() {
        section.only.as_deref().unwrap_or_default()
    } else {
        &args.only
    };
    let all = Code::ALL.iter().copied();
    all.filter(|code| only.is_empty() || only.iter().any(|only| only.admits(*code)))
        .collect()
}

fn domain_of(args: &ReportArgs, section: &CheckSection, trace: &Trace) -> Domain {
    let noted = trace.meta().notes.iter().find(|(name, _)| name == "domain");
    args.domain
        .map(Domain::from)
        .or_else(|| section.domain.as_deref().and_then(Domain::from_name))
        .or_else(|| noted.and_then(|(_, value)| Domain::from_name(value)))
        .unwrap_or_default()
}

fn lint_options(args: &ReportArgs, section: &CheckSection, trace: &Trace) -> LintOptions {
    let mut trust = Trust::default();
    for module in section.trust.iter().flatten().chain(&args.trust) {
        trust.add(module, Standing::Opaque);
    }
    for module in section.no_trust.iter().flatten().chain(&args.no_trust) {
        trust.add(module, Standing::User);
    }
    LintOptions {
        domain: domain_of(args, section, trace),
        trust,
        warnings: args.warnings || args.deny.is_some(),
    }
}

fn crash_options(work: &Work<'_>) -> anyhow::Result<CrashOptions> {
    let (args, section) = (work.recovery_args, &work.config.check);
    let points = args
        .failure_points
        .as_ref()
        .or(section.failure_points.as_ref());
    let granularity = match points.map(String::as_str) {
        None => Granularity::FlushAndFence,
        Some("flush") => Granularity::Flush,
        Some("fence") => Granularity::Fence,
        Some("store") => Granularity::Store,
        Some("all") => Granularity::All,
        Some(other) => {
            anyhow::bail!("`{other}` are no failure points; write flush, fence, store or all")
        }
    };
    let per_stack = args.per_stack.or(section.per_stack).unwrap_or(3);
    let ack = ack_of(args, section)?;
    let mut lazy = work.lazy.clone();
    if let Some(lazy) = &mut lazy {
        lazy.robustness = work.report_args.warnings || work.report_args.deny.is_some();
    }
    let seed = args.seed.or(section.seed).unwrap_or(0);
    let include_create = args.include_create || section.include_create.unwrap_or(false);
    let mut eager = work.eager.clone();
    if let Some(eager) = &mut eager {
        eager.seed = seed;
        eager.include_create = include_create;
        eager.pass.rules = work.recovery.rules();
    }
    Ok(CrashOptions {
        tree: TreeOptions {
            granularity,
            per_stack: usize::try_from(per_stack).unwrap_or(usize::MAX),
            // Other failure points of the same call stacks in each recording.
            seed: seed.wrapping_add(work.schedule),
            include_create,
            digests: true,
        },
        budget: args
            .budget
            .or(section.budget)
            .map(|budget| budget / work.share.max(1)),
        lint: lint_options(work.report_args, section, work.trace),
        ack,
        prefix: work.prefix,
        lazy,
        eager,
        races: work.races.clone(),
        selection: None,
        undisturbed: None,
    })
}

/// What decides all that is chosen at random.
pub(crate) fn seed_of(args: &RecoveryArgs, section: &CheckSection) -> u64 {
    args.seed.or(section.seed).unwrap_or(0)
}

fn fill_of(args: &RecoveryArgs, section: &CheckSection) -> anyhow::Result<Option<u8>> {
    let fill = args.fill.as_ref().or(section.fill.as_ref());
    fill.map(|text| {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.with_context(|| format!("--fill: `{text}` is not a byte"))
    })
    .transpose()
}

fn ack_of(
    args: &RecoveryArgs,
    section: &CheckSection,
) -> anyhow::Result<Option<regex::bytes::Regex>> {
    let ack = args.ack.as_ref().or(section.ack.as_ref());
    anyhow::ensure!(
        ack.is_none() || args.dump.is_some() || section.dump.is_some(),
        "--ack says what must survive, and --dump how to see what did: give both"
    );
    ack.map(|pattern| {
        regex::bytes::Regex::new(pattern)
            .with_context(|| format!("--ack: `{pattern}` is not a regular expression"))
    })
    .transpose()
}

/// Finds what is wrong with flags and configuration by themselves. A workload can take long, and so
/// can recoveries: what can be said before is said before.
pub(crate) fn refuse_slips(
    args: &RecoveryArgs,
    report: &ReportArgs,
    section: &CheckSection,
) -> anyhow::Result<()> {
    for (name, flag, key) in [
        ("--recover", &args.recover, &section.recover),
        ("--checker", &args.checker, &section.checker),
        ("--dump", &args.dump, &section.dump),
        (
            "--client-recover",
            &args.client_recover,
            &section.client_recover,
        ),
        ("--stop", &args.stop, &section.stop),
    ] {
        // To a shell it would be a command that always succeeds.
        let text = flag.as_ref().or(key.as_ref());
        anyhow::ensure!(
            text.is_none_or(|text| !text.trim().is_empty()),
            "{name}: the command is empty"
        );
    }
    fill_of(args, section)?;
    ack_of(args, section)?;
    for pattern in &args.fail_pattern {
        evidence::regex(pattern).context("--fail-pattern")?;
    }
    let ready = args.ready.as_ref().or(section.ready.as_ref());
    if let Some(ready) = ready {
        ready
            .parse::<powerfail_oracle::Ready>()
            .map_err(anyhow::Error::msg)?;
    }
    anyhow::ensure!(
        ready.is_some() || (args.client_recover.is_none() && section.client_recover.is_none()),
        "a client needs to know when its server is ready: give --ready"
    );
    anyhow::ensure!(
        section.max_executions.is_none() || section.exhaustive != Some(true),
        "{FILE_NAME}: exhaustive has no limits, and max-executions is one; leave one of them out"
    );
    baseline_of(report)?;
    Ok(())
}

fn baseline_of(args: &ReportArgs) -> anyhow::Result<Option<Baseline>> {
    let read = |path: &PathBuf| {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(name)?;
        Baseline::parse(&text).with_context(name)
    };
    args.baseline.as_ref().map(read).transpose()
}

/// How recovery is to be run, from flags and configuration.
pub(crate) fn recovery(
    args: &RecoveryArgs,
    report: &ReportArgs,
    section: &CheckSection,
    workload: &[std::ffi::OsString],
    trace: &Trace,
) -> anyhow::Result<Recovery> {
    let words = |flag: &Option<String>, key: &Option<String>| {
        flag.as_ref()
            .or(key.as_ref())
            .map(|text| command(text).words)
    };
    let recover = words(&args.recover, &section.recover).unwrap_or_else(|| workload.to_vec());
    anyhow::ensure!(
        !recover.is_empty(),
        "the trace does not say how it was made; give --recover"
    );
    let fill = fill_of(args, section)?;
    let ready = args.ready.clone().or(section.ready.clone());
    let client = words(&args.client_recover, &section.client_recover);
    anyhow::ensure!(
        client.is_none() || ready.is_some(),
        "a client needs to know when its server is ready: give --ready"
    );

    Ok(Recovery {
        recover,
        checker: words(&args.checker, &section.checker),
        dump: words(&args.dump, &section.dump),
        client,
        ready,
        stop: words(&args.stop, &section.stop),
        timeout: args
            .timeout
            .or(section.timeout)
            .unwrap_or(Duration::from_secs(10)),
        ok_exit: if args.ok_exit.is_empty() {
            section.ok_exit.clone().unwrap_or_default()
        } else {
            args.ok_exit.clone()
        },
        fail_patterns: args.fail_pattern.clone(),
        memory_bytes: args.memory_limit.map(|limit| limit * MIB),
        file_bytes: args.file_limit.map(|limit| limit * MIB),
        working_directory: working_directory(trace),
        domain: domain_of(report, section, trace).name().into(),
        atomicity: Some(atomicity_of(args, section).name().into()),
        fill,
        trust: section
            .trust
            .iter()
            .flatten()
            .chain(&report.trust)
            .cloned()
            .collect(),
        no_trust: section
            .no_trust
            .iter()
            .flatten()
            .chain(&report.no_trust)
            .cloned()
            .collect(),
        input: None,
        desock: false,
    })
}

fn atomicity_of(args: &RecoveryArgs, section: &CheckSection) -> Atomicity {
    let configured = section.atomicity.as_deref().and_then(Atomicity::from_name);
    args.atomicity
        .map(Into::into)
        .or(configured)
        .unwrap_or_default()
}

fn working_directory(trace: &Trace) -> PathBuf {
    let recorded = &trace.meta().working_directory;
    if recorded.is_dir() {
        recorded.clone()
    } else {
        PathBuf::from(".")
    }
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
