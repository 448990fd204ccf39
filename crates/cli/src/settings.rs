//! From flags and powerfail.toml to the options of the libraries.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use powerfail_check::{CrashOptions, LazyOptions, LazyTime, Recovery};
use powerfail_config::{Baseline, CheckSection, Config, FILE_NAME, Only};
use powerfail_explore::{EagerOptions, FailurePointOptions, Granularity, PassOptions};
use powerfail_finding::Code;
use powerfail_lint::{LintOptions, Standing, Trust};
use powerfail_model::{Atomicity, Domain};
use powerfail_trace::{DOMAIN_NOTE, Trace};

use crate::args::{CrashArgs, EagerArgs, LazyArgs, RecoveryArgs, ReportArgs, StrategyArg};
use crate::crash::Work;
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

/// The strategy, from flags and configuration. Flags of another one are a slip.
pub(crate) fn strategy_of(args: &CrashArgs, section: &CheckSection) -> anyhow::Result<StrategyArg> {
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
pub(crate) fn eager(args: &EagerArgs, section: &CheckSection) -> EagerOptions {
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

pub(crate) fn wanted_codes(args: &ReportArgs, section: &CheckSection) -> Vec<Code> {
    let only: &[Only] = if args.only.is_empty() {
        section.only.as_deref().unwrap_or_default()
    } else {
        &args.only
    };
    let all = Code::ALL.iter().copied();
    all.filter(|code| only.is_empty() || only.iter().any(|only| only.admits(*code)))
        .collect()
}

pub(crate) fn domain_of(args: &ReportArgs, section: &CheckSection, trace: &Trace) -> Domain {
    let noted = trace.meta().note(DOMAIN_NOTE);
    args.domain
        .map(Domain::from)
        .or_else(|| section.domain.as_deref().and_then(Domain::from_name))
        .or_else(|| noted.and_then(Domain::from_name))
        .unwrap_or_default()
}

pub(crate) fn lint_options(
    args: &ReportArgs,
    section: &CheckSection,
    trace: &Trace,
) -> LintOptions {
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

pub(crate) fn crash_options(work: &Work<'_>) -> anyhow::Result<CrashOptions> {
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
        tree: FailurePointOptions {
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

pub(crate) fn fill_of(args: &RecoveryArgs, section: &CheckSection) -> anyhow::Result<Option<u8>> {
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

pub(crate) fn ack_of(
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
    fail_patterns(&args.fail_pattern)?;
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

/// The regular expressions of `--fail-pattern`.
pub(crate) fn fail_patterns(texts: &[String]) -> anyhow::Result<Vec<regex::bytes::Regex>> {
    let pattern = |text: &String| {
        regex::bytes::Regex::new(text)
            .with_context(|| format!("--fail-pattern: `{text}` is not a regular expression"))
    };
    texts.iter().map(pattern).collect()
}

pub(crate) fn baseline_of(args: &ReportArgs) -> anyhow::Result<Option<Baseline>> {
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
    let ready = args.ready.as_ref().or(section.ready.as_ref());
    let ready = ready.map(|text| text.parse()).transpose();
    let ready = ready.map_err(anyhow::Error::msg)?;
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
        fail_patterns: fail_patterns(&args.fail_pattern)?,
        memory_bytes: args.memory_limit.map(|limit| limit * MIB),
        file_bytes: args.file_limit.map(|limit| limit * MIB),
        working_directory: working_directory(trace),
        domain: domain_of(report, section, trace),
        atomicity: atomicity_of(args, section),
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

pub(crate) fn atomicity_of(args: &RecoveryArgs, section: &CheckSection) -> Atomicity {
    let configured = section.atomicity.as_deref().and_then(Atomicity::from_name);
    args.atomicity
        .map(Into::into)
        .or(configured)
        .unwrap_or_default()
}

pub(crate) fn working_directory(trace: &Trace) -> PathBuf {
    let recorded = &trace.meta().working_directory;
    if recorded.is_dir() {
        recorded.clone()
    } else {
        PathBuf::from(".")
    }
}
