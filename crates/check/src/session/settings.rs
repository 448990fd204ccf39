//! From the settings of commands to the options of the parts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use powerfail_config::{
    CheckSettings, CommandText, CrashSettings, CrashStrategy, EagerSettings, FailurePoints,
    FailureSettings, Infer, LazySettings, LintSettings, Mebibytes, RaceSettings, RacesSettings,
    TestSettings, Whole,
};
use powerfail_explore::{
    EagerOptions, FailurePointOptions, FailurePointsByStack, Granularity, OperationKind,
    PassOptions,
};
use powerfail_files::seal::Origin;
use powerfail_lint::{LintOptions, Trust};
use powerfail_model::{Domain, EventIndex, FenceKind, FlushKind};
use powerfail_recorder::{Backend, RecordOptions, Stacks, trace_origin};
use powerfail_trace::{DERANDOMISE_NOTE, DOMAIN_NOTE, Trace};

use super::SessionError;
use crate::domain::detect_domain;
use crate::error::CheckError;
use crate::event::{CheckEvent, Observer};
use crate::options::{CrashOptions, Inference, LazyOptions, LazyTime, RaceOptions};
use crate::recovery::{Recovery, TIMEOUT_DEFAULT};
use crate::workload::{ServerCommand, ServerWorkload, free_port, with_port};

/// How much of what the workload writes is recorded, to look for an acknowledgement in it.
const OUTPUT_PREFIX_BYTES: usize = 4096;

/// How a workload is recorded, and its client if it is a server.
pub(super) fn workload(
    settings: &CheckSettings,
    trace: &Path,
    plugin: &'static [u8],
) -> Result<(RecordOptions, Option<ServerWorkload>), SessionError> {
    let port = if settings.uses_port() {
        free_port().map_err(SessionError::Port)?
    } else {
        0
    };
    let words = settings.command.iter().map(|word| with_port(word, port));
    let mut options = RecordOptions::new(words.collect::<Vec<OsString>>(), trace);
    options.pools.clone_from(&settings.recording.pool);
    options.not_pools.clone_from(&settings.recording.not_pool);
    options.pm_dir.clone_from(&settings.recording.pm_dir);
    options.backend = backend(settings.recording.backend);
    options.plugin = plugin;
    options.stacks = Stacks::Full;
    options.heap_bytes = settings.recording.heap.map(|heap| heap.0);
    options.choose_trees(&settings.recording.tree);
    options
        .not_in_trees
        .extend(trace.parent().map(Path::to_path_buf));
    options.valgrind_requests = settings.recording.valgrind_requests;
    options.derandomise = settings.recording.derandomise;
    options.time_limit = Some(settings.recording.record_timeout);
    options.domain = settings.test.domain;
    options.output_prefix_bytes = OUTPUT_PREFIX_BYTES;
    Ok((options, server(settings, port)))
}

/// The recorder that was asked for.
const fn backend(backend: powerfail_config::Backend) -> Backend {
    match backend {
        powerfail_config::Backend::Auto => Backend::Auto,
        powerfail_config::Backend::Preload => Backend::Preload,
        powerfail_config::Backend::Qemu => Backend::Qemu,
    }
}

/// The client, if the workload is a server.
fn server(settings: &CheckSettings, port: u16) -> Option<ServerWorkload> {
    let command = |command: &CommandText| ServerCommand {
        text: command.text.clone(),
        words: command.words.clone(),
    };
    let server = &settings.test.server;
    Some(ServerWorkload {
        client: command(settings.client.as_ref()?),
        ready: server.ready.clone()?,
        stop: server.stop.as_ref().map(command),
        port,
        timeout: settings.test.failures.timeout.unwrap_or(TIMEOUT_DEFAULT),
    })
}

/// What `check` tries.
pub(super) fn check(settings: &CheckSettings) -> CrashOptions {
    let lazy = settings.lazy.as_ref();
    CrashOptions {
        prefix: true,
        lazy: lazy.map(|lazy| lazy_options(lazy, LazyTime::Share, &settings.test)),
        races: settings.races.as_ref().map(race_options),
        ..crash_options(&settings.test)
    }
}

/// What `crash` tries.
pub(super) fn crash(settings: &CrashSettings) -> CrashOptions {
    let test = &settings.test;
    let usual = crash_options(test);
    match &settings.strategy {
        CrashStrategy::Prefix => CrashOptions {
            prefix: true,
            ..usual
        },
        CrashStrategy::Eager(eager) => CrashOptions {
            eager: Some(eager_options(eager, test)),
            // Many short runs of one command: most of their time is its start.
            snapshots: !eager.no_snapshot,
            ..usual
        },
        CrashStrategy::Lazy(lazy) => CrashOptions {
            lazy: Some(lazy_options(lazy, LazyTime::Budget, test)),
            ..usual
        },
    }
}

/// What `races` tries.
pub(super) fn races(settings: &RacesSettings) -> CrashOptions {
    CrashOptions {
        races: Some(RaceOptions {
            alone: true,
            ..race_options(&settings.races)
        }),
        ..crash_options(&settings.test)
    }
}

/// How `lint` lints.
pub(super) fn lint(
    settings: &LintSettings,
    trace: &Trace,
    observer: &mut dyn Observer,
) -> LintOptions {
    let report = &settings.report;
    LintOptions {
        domain: domain(settings.domain, trace, observer),
        trust: Trust::with(&report.trust, &report.no_trust),
        warnings: report.shows_warnings(),
        dirty_fences: report
            .dirty_fences
            .map_or(LintOptions::DIRTY_FENCES, Whole::to_u32),
    }
}

/// What all crash tests have in common. Nothing is tried yet.
fn crash_options(settings: &TestSettings) -> CrashOptions {
    let TestSettings {
        recovery,
        failures,
        report,
        ..
    } = settings;
    CrashOptions {
        tree: FailurePointOptions {
            granularity: failures.failure_points.map(granularity).unwrap_or_default(),
            per_stack: usize::try_from(failures.per_stack).unwrap_or(usize::MAX),
            seed: failures.seed,
            include_create: recovery.include_create,
            digests: true,
        },
        at: failures.at.map(EventIndex),
        budget: failures.budget,
        begun: Some(Instant::now()),
        warnings: report.shows_warnings(),
        partition: settings.shares.partition,
        ack: failures.ack.clone().map(|pattern| pattern.0),
        ..CrashOptions::default()
    }
}

/// Before which events the power may fail.
const fn granularity(points: FailurePoints) -> Granularity {
    let operation = match points {
        FailurePoints::Flush => return Granularity::Flush,
        FailurePoints::Fence => return Granularity::Fence,
        FailurePoints::Store => return Granularity::Store,
        FailurePoints::All => return Granularity::All,
        FailurePoints::Clflush => OperationKind::Flush(FlushKind::Clflush),
        FailurePoints::Clflushopt => OperationKind::Flush(FlushKind::Clflushopt),
        FailurePoints::Clwb => OperationKind::Flush(FlushKind::Clwb),
        FailurePoints::Sfence => OperationKind::Fence(FenceKind::Sfence),
        FailurePoints::Mfence => OperationKind::Fence(FenceKind::Mfence),
        FailurePoints::Locked => OperationKind::Locked,
        FailurePoints::Msync => OperationKind::Sync,
    };
    Granularity::Only(operation)
}

/// Fails if the only event before which the power is to fail is not in the trace, or is not one of the failure points
/// that were asked for.
pub(super) fn inspect_single_point(
    failures: &FailureSettings,
    trace: &Trace,
) -> Result<(), SessionError> {
    let Some(at) = failures.at else { return Ok(()) };
    let events = trace.event_count();
    if at > events {
        return Err(SessionError::NoSuchEvent { at, events });
    }
    let Some(points) = failures.failure_points else {
        return Ok(());
    };
    let options = FailurePointOptions {
        granularity: granularity(points),
        per_stack: 0,
        include_create: true,
        digests: false,
        ..FailurePointOptions::default()
    };
    let points = FailurePointsByStack::of(trace, options).map_err(CheckError::from);
    let points = points.map_err(SessionError::Check)?;
    let points = points.stacks().iter().flat_map(|stack| &stack.points);
    let mut events: Vec<u64> = points.map(|point| point.at.0).collect();
    events.sort_unstable();
    match events.binary_search(&at) {
        Ok(_) => Ok(()),
        Err(next) => Err(SessionError::NotAFailurePoint {
            at,
            before: next.checked_sub(1).map(|last| events[last]),
            after: events.get(next).copied(),
        }),
    }
}

/// Which combinations of stores are tried. The rules are those of recovery.
fn eager_options(settings: &EagerSettings, test: &TestSettings) -> EagerOptions {
    let threshold = settings.threshold.map(Whole::get);
    let threshold = threshold.unwrap_or(EagerOptions::THRESHOLD);
    let sample = settings.sample.map_or(threshold, Whole::get);
    EagerOptions {
        pass: PassOptions {
            coalesce: settings.coalesce,
            ..PassOptions::default()
        },
        threshold,
        sample: usize::try_from(sample).unwrap_or(usize::MAX),
        segments: settings.segments.as_ref().map(|range| range.0.clone()),
        seed: test.failures.seed,
        include_create: test.recovery.include_create,
        varied: None,
    }
}

/// How far lost and reordered lines are explored.
fn lazy_options(settings: &LazySettings, time: LazyTime, test: &TestSettings) -> LazyOptions {
    let usual = LazyOptions::default();
    // Second failures come after everything else: where executions are counted, they are asked for.
    let is_counted = settings.max_executions.is_some() || settings.random.is_some();
    let usual_depth = if time == LazyTime::Share && !is_counted {
        2
    } else {
        1
    };
    LazyOptions {
        depth: settings.depth.map_or(usual_depth, Whole::to_u32),
        fork: !settings.no_fork,
        limit: usual.limit.filter(|_| !settings.exhaustive),
        max_executions: settings.max_executions.map(Whole::get),
        random: settings.random.map(Whole::get),
        robustness: test.report.shows_warnings(),
        time: if settings.exhaustive {
            LazyTime::Any
        } else {
            time
        },
    }
}

/// Which reads of recovery are reported.
fn race_options(settings: &RaceSettings) -> RaceOptions {
    RaceOptions {
        strict: settings.strict,
        confirm: true,
        infer: settings.infer.map(|infer| match infer {
            Infer::Propose => Inference::Propose,
            Infer::Use => Inference::Use,
        }),
        ..RaceOptions::default()
    }
}

/// The persistence domain: that of the settings, of the trace, or what the workload does suggests, which is said.
fn domain(given: Option<Domain>, trace: &Trace, observer: &mut dyn Observer) -> Domain {
    let noted = trace.meta().note(DOMAIN_NOTE);
    let given = given.or_else(|| noted.and_then(Domain::from_name));
    if let Some(domain) = given {
        return domain;
    }
    // What reads a damaged trace next refuses it.
    let Ok(detected) = detect_domain(trace, &mut |read| observer.read(trace, read)) else {
        return Domain::default();
    };
    if let Some(reason) = &detected.reason {
        observer.event(CheckEvent::Note(reason));
    }
    detected.domain
}

/// How recovery is run. Without a command of its own it is the workload again.
pub(super) fn recovery(
    settings: &TestSettings,
    workload: &[OsString],
    trace: &Trace,
    observer: &mut dyn Observer,
) -> Result<Recovery, SessionError> {
    let TestSettings {
        recovery,
        server,
        failures,
        report,
        ..
    } = settings;
    let words =
        |command: &Option<CommandText>| command.as_ref().map(|command| command.words.clone());
    let recover = words(&recovery.recover).unwrap_or_else(|| workload.to_vec());
    if recover.is_empty() {
        return Err(SessionError::NoRecovery);
    }
    let patterns = recovery.fail_pattern.iter();
    Ok(Recovery {
        checker: words(&recovery.checker),
        dump: words(&recovery.dump),
        client: words(&server.client_recover),
        ready: server.ready.clone(),
        stop: words(&server.stop),
        timeout: failures.timeout,
        ok_exit: recovery.ok_exit.clone(),
        fail_patterns: patterns.map(|it| it.0.clone()).collect(),
        memory_bytes: recovery.memory_limit.map(Mebibytes::bytes),
        file_bytes: recovery.file_limit.map(Mebibytes::bytes),
        writable: writable(&recovery.writable)?,
        unconfined: recovery.no_confine,
        domain: domain(settings.domain, trace, observer),
        atomicity: recovery.atomicity,
        file_system: failures.fs,
        fill: failures.fill.map(|byte| byte.0),
        trust: report.trust.clone(),
        no_trust: report.no_trust.clone(),
        dirty_fences: report.dirty_fences.map(Whole::to_u32),
        input: recovery_input(recovery.recover_input.as_deref())?,
        environment: Recovery::environment_that_matters(),
        derandomise: trace.meta().note(DERANDOMISE_NOTE).is_some(),
        ..Recovery::new(
            recover,
            working_directory(trace, recovery.recover.is_some()),
        )
    })
}

/// What recovery may write to, wherever it is run. That it exists is checked before recovery runs.
fn writable(paths: &[PathBuf]) -> Result<Vec<PathBuf>, SessionError> {
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(|source| SessionError::File {
            path: path.clone(),
            source,
        })
    };
    paths.iter().map(absolute).collect()
}

/// The file that recovery reads, wherever it is run.
fn recovery_input(path: Option<&Path>) -> Result<Option<PathBuf>, SessionError> {
    let Some(path) = path else { return Ok(None) };
    let failed = |source| SessionError::File {
        path: path.to_path_buf(),
        source,
    };
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("not a regular file")));
    }
    std::path::absolute(path).map(Some).map_err(failed)
}

/// Where recovery runs: where the trace was recorded. A command of the user is not looked for in a directory that others
/// have chosen.
fn working_directory(trace: &Trace, is_recovery_given: bool) -> PathBuf {
    let recorded = &trace.meta().working_directory;
    let is_trusted = !is_recovery_given || trace_origin(trace.meta()) == Origin::Own;
    if is_trusted && recorded.is_dir() {
        recorded.clone()
    } else {
        std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."))
    }
}
