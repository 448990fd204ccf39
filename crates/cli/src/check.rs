//! `powerfail check`: records the workload and judges what a crash would leave of it.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use powerfail_check::{
    LazyTime, Schedules, ServerCommand, ServerWorkload, WorkloadError, free_port, output_directory,
    record_schedules, record_workload, with_port,
};
use powerfail_config::{CheckArgs, CheckSettings, CommandText};
use powerfail_recorder::{Options, RecordError, Stacks};

use crate::crash::{self, Work};
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::progress::{Progress, open_trace};
use crate::record::RUNTIME;
use crate::schedules;
use crate::settings;

pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<Exit> {
    let config = settings::configuration()?;
    let settings = args.clone().settle(config.check)?;
    let workload = &settings.command;
    let baseline = settings::baseline(settings.test.output.baseline.as_deref())?;
    let heap_bytes = settings.recording.heap.map(|heap| heap.0);
    if settings.schedules > 1 {
        schedules::refuse_other_pools(workload, heap_bytes.is_some())?;
    }
    interrupt::watch();
    let out = settings.test.output.out.clone();
    let out = out.unwrap_or_else(|| PathBuf::from(output_directory::DEFAULT));
    let _owned = output_directory::create(&out)?;
    let trace_path = out.join(output_directory::TRACE);
    let port = port_of(&settings)?;
    let recorded: Vec<OsString> = workload.iter().map(|word| with_port(word, port)).collect();
    let mut options = Options::new(recorded, &trace_path);
    options.pools.clone_from(&settings.recording.pool);
    options.pm_dir.clone_from(&settings.recording.pm_dir);
    options.stacks = Stacks::Full;
    options.heap_bytes = heap_bytes;
    options.valgrind_requests = settings.recording.valgrind_requests;
    options.domain = settings.test.domain;
    // An acknowledgement is looked for in what the workload writes.
    options.output_prefix_bytes = 4096;
    let server = server_of(&settings, port);
    let summary = match record_workload(&options, RUNTIME, server.as_ref()) {
        Ok(summary) => summary,
        Err(error) => return recording_failed(error),
    };
    for sentence in &summary.warnings {
        let _ = writeln!(anstream::stderr(), "warning: {sentence}");
    }
    let trace = open_trace(&trace_path)?;
    let recovery = settings::recovery(&settings.test, workload, &trace)?;
    let work = Work {
        trace: &trace,
        trace_path: &trace_path,
        recovery: &recovery,
        settings: &settings.test,
        suppress: &config.suppress,
        baseline: baseline.as_ref(),
        out: Some(&out),
        prefix: true,
        eager: None,
        no_snapshot: false,
        lazy: settings
            .lazy
            .as_ref()
            .map(|lazy| settings::lazy(lazy, LazyTime::Share)),
        races: settings.races.as_ref().map(settings::races),
        schedule: 0,
        share: 1,
    };
    if settings.schedules == 1 {
        return crash::judge(&work);
    }
    let schedules = Schedules {
        count: settings.schedules,
        depth: settings.recording.schedule_depth.to_u32(),
        seed: settings.test.failures.seed,
        first_time: summary.wall_time,
    };
    let progress = Progress::items(schedules.count);
    let server = server.as_ref();
    let recorded = record_schedules(&trace, &options, RUNTIME, server, &schedules, &mut || {
        progress.advance(1);
    });
    drop(progress);
    schedules::judge(&work, recorded)
}

/// Says why there is no trace to check.
pub(crate) fn recording_failed(error: WorkloadError) -> anyhow::Result<Exit> {
    match error {
        WorkloadError::Record(RecordError::Unsupported(unsupported)) => {
            complain(&unsupported.to_string());
            Ok(Exit::Unsupported)
        }
        WorkloadError::Unsupported(sentences) => {
            for sentence in &sentences {
                complain(sentence);
            }
            Ok(Exit::Unsupported)
        }
        WorkloadError::Record(error @ RecordError::SelfCheck(_)) => {
            complain(&error.to_string());
            Ok(Exit::Internal)
        }
        error => Err(error.into()),
    }
}

/// The client, if the workload is a server.
fn server_of(settings: &CheckSettings, port: u16) -> Option<ServerWorkload> {
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
        timeout: settings.test.failures.timeout,
    })
}

/// A free port if the workload or its client needs one, or 0.
fn port_of(settings: &CheckSettings) -> anyhow::Result<u16> {
    if settings.uses_port() {
        return free_port().context("find a free port");
    }
    Ok(0)
}
