//! From settings to the options of the libraries, and the files that settings name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use powerfail_check::{CrashOptions, Inference, LazyOptions, LazyTime, RaceOptions, Recovery};
use powerfail_config::{
    Baseline, Config, EagerSettings, FILE_NAME, FailurePoints, Infer, LazySettings, RaceSettings,
    ReportSettings, TestSettings,
};
use powerfail_explore::{EagerOptions, FailurePointOptions, Granularity, PassOptions};
use powerfail_lint::{LintOptions, Standing, Trust};
use powerfail_model::Domain;
use powerfail_trace::{DOMAIN_NOTE, Trace};

use crate::crash::Work;

/// The configuration file, or an empty one if there is none.
pub(crate) fn configuration() -> anyhow::Result<Config> {
    match std::fs::read_to_string(FILE_NAME) {
        Ok(text) => Config::parse(&text).context(FILE_NAME),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
        Err(error) => Err(error).context(FILE_NAME),
    }
}

/// The baseline in a file.
pub(crate) fn baseline(path: Option<&Path>) -> anyhow::Result<Option<Baseline>> {
    let read = |path: &Path| {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(name)?;
        Baseline::parse(&text).with_context(name)
    };
    path.map(read).transpose()
}

/// Which combinations of stores are tried. Seed and rules are filled in later.
pub(crate) fn eager(settings: &EagerSettings) -> EagerOptions {
    let threshold = settings.threshold;
    let threshold = threshold.map_or(EagerOptions::THRESHOLD, powerfail_config::Whole::get);
    let sample = settings
        .sample
        .map_or(threshold, powerfail_config::Whole::get);
    EagerOptions {
        pass: PassOptions {
            coalesce: settings.coalesce,
            ..PassOptions::default()
        },
        threshold,
        sample: usize::try_from(sample).unwrap_or(usize::MAX),
        segments: settings.segments.as_ref().map(|range| range.0.clone()),
        ..EagerOptions::default()
    }
}

/// How far lost and reordered lines are explored.
pub(crate) fn lazy(settings: &LazySettings, time: LazyTime) -> LazyOptions {
    let usual = LazyOptions::default();
    LazyOptions {
        depth: settings.depth.to_u32(),
        fork: !settings.no_fork,
        limit: usual.limit.filter(|_| !settings.exhaustive),
        max_executions: settings.max_executions.map(powerfail_config::Whole::get),
        robustness: false,
        time: if settings.exhaustive {
            LazyTime::Any
        } else {
            time
        },
    }
}

/// Which reads of recovery are reported.
pub(crate) fn races(settings: &RaceSettings) -> RaceOptions {
    RaceOptions {
        alone: false,
        strict: settings.strict,
        confirm: true,
        infer: settings.infer.map(|infer| match infer {
            Infer::Propose => Inference::Propose,
            Infer::Use => Inference::Use,
        }),
        only: None,
        commit_variables: Vec::new(),
    }
}

/// The persistence domain: that of the settings, of the trace, or the usual one.
pub(crate) fn domain_of(given: Option<Domain>, trace: &Trace) -> Domain {
    let noted = trace.meta().note(DOMAIN_NOTE);
    given
        .or_else(|| noted.and_then(Domain::from_name))
        .unwrap_or_default()
}

pub(crate) fn lint_options(
    report: &ReportSettings,
    domain: Option<Domain>,
    trace: &Trace,
) -> LintOptions {
    let mut trust = Trust::default();
    for module in &report.trust {
        trust.add(module, Standing::Opaque);
    }
    for module in &report.no_trust {
        trust.add(module, Standing::User);
    }
    LintOptions {
        domain: domain_of(domain, trace),
        trust,
        warnings: report.shows_warnings(),
    }
}

pub(crate) fn crash_options(work: &Work<'_>) -> CrashOptions {
    let TestSettings {
        recovery,
        failures,
        report,
        ..
    } = work.settings;
    let granularity = match failures.failure_points {
        None => Granularity::FlushAndFence,
        Some(FailurePoints::Flush) => Granularity::Flush,
        Some(FailurePoints::Fence) => Granularity::Fence,
        Some(FailurePoints::Store) => Granularity::Store,
        Some(FailurePoints::All) => Granularity::All,
    };
    let mut lazy = work.lazy.clone();
    if let Some(lazy) = &mut lazy {
        lazy.robustness = report.shows_warnings();
    }
    let mut eager = work.eager.clone();
    if let Some(eager) = &mut eager {
        eager.seed = failures.seed;
        eager.include_create = recovery.include_create;
    }
    CrashOptions {
        tree: FailurePointOptions {
            granularity,
            per_stack: usize::try_from(failures.per_stack).unwrap_or(usize::MAX),
            // Other failure points of the same call stacks in each recording.
            seed: failures.seed.wrapping_add(work.schedule),
            include_create: recovery.include_create,
            digests: true,
        },
        budget: failures.budget.map(|budget| budget / work.share.max(1)),
        warnings: report.shows_warnings(),
        // Many short runs of one command: most of their time is its start.
        snapshots: !work.no_snapshot,
        ack: failures.ack.clone().map(|pattern| pattern.0),
        prefix: work.prefix,
        lazy,
        eager,
        races: work.races.clone(),
        selection: None,
        undisturbed: None,
    }
}

/// How recovery is run. Without a command of its own it is the workload again.
pub(crate) fn recovery(
    settings: &TestSettings,
    workload: &[OsString],
    trace: &Trace,
) -> anyhow::Result<Recovery> {
    let TestSettings {
        recovery,
        server,
        failures,
        domain,
        report,
        ..
    } = settings;
    let words = |command: &Option<powerfail_config::CommandText>| {
        command.as_ref().map(|command| command.words.clone())
    };
    let recover = words(&recovery.recover).unwrap_or_else(|| workload.to_vec());
    anyhow::ensure!(
        !recover.is_empty(),
        "the trace does not name its workload; give --recover"
    );
    let patterns = recovery.fail_pattern.iter();
    Ok(Recovery {
        recover,
        checker: words(&recovery.checker),
        dump: words(&recovery.dump),
        client: words(&server.client_recover),
        ready: server.ready.clone(),
        stop: words(&server.stop),
        timeout: failures.timeout,
        ok_exit: recovery.ok_exit.clone(),
        fail_patterns: patterns.map(|it| it.0.clone()).collect(),
        memory_bytes: recovery
            .memory_limit
            .map(powerfail_config::Mebibytes::bytes),
        file_bytes: recovery.file_limit.map(powerfail_config::Mebibytes::bytes),
        working_directory: working_directory(trace),
        domain: domain_of(*domain, trace),
        atomicity: recovery.atomicity,
        fill: failures.fill.map(|byte| byte.0),
        trust: report.trust.clone(),
        no_trust: report.no_trust.clone(),
        input: None,
        desock: false,
    })
}

fn working_directory(trace: &Trace) -> PathBuf {
    let recorded = &trace.meta().working_directory;
    if recorded.is_dir() {
        recorded.clone()
    } else {
        PathBuf::from(".")
    }
}
