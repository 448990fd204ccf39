//! `powerfail record`: runs a command and writes what it did to its pools.

use anyhow::Context;
use powerfail_config::RecordArgs;
use powerfail_recorder::{RecordError, RecordOptions, Schedule};
use powerfail_report::record as report;

use crate::configuration::configuration;
use crate::exit::{Exit, complain};
use crate::output::print_json;
use crate::runtime::runtime;

/// The plugin of QEMU, which records statically linked targets and whole machines.
pub(crate) static QEMU_PLUGIN: &[u8] = include_bytes!(env!("POWERFAIL_QEMU_PLUGIN"));

pub(crate) fn record(args: &RecordArgs) -> anyhow::Result<Exit> {
    let settings = args.clone().settle(configuration()?.record)?;
    let output = &settings.output;
    let mut options = RecordOptions::new(settings.command.clone(), output);
    options.pools.clone_from(&settings.recording.pool);
    options.not_pools.clone_from(&settings.recording.not_pool);
    options.pm_dir.clone_from(&settings.recording.pm_dir);
    options.backend = match settings.recording.backend {
        powerfail_config::Backend::Auto => powerfail_recorder::Backend::Auto,
        powerfail_config::Backend::Preload => powerfail_recorder::Backend::Preload,
        powerfail_config::Backend::Qemu => powerfail_recorder::Backend::Qemu,
    };
    options.plugin = QEMU_PLUGIN;
    options.mode = match settings.mode {
        powerfail_config::Mode::Patch => powerfail_recorder::Mode::Patch,
        powerfail_config::Mode::Trap => powerfail_recorder::Mode::Trap,
    };
    options.stacks = match settings.stacks {
        powerfail_config::Stacks::Full => powerfail_recorder::Stacks::Full,
        powerfail_config::Stacks::Sites => powerfail_recorder::Stacks::Sites,
        powerfail_config::Stacks::None => powerfail_recorder::Stacks::None,
    };
    options.domain = settings.domain;
    options.heap_bytes = settings.recording.heap.map(|heap| heap.0);
    options.choose_trees(&settings.recording.tree);
    options.valgrind_requests = settings.recording.valgrind_requests;
    options.derandomise = settings.recording.derandomise;
    options.time_limit = Some(settings.recording.record_timeout);
    if let Some(schedule) = settings.schedule {
        options.schedule = Schedule {
            depth: schedule.depth,
            seed: schedule.seed,
            length: schedule.length,
        };
    }
    let (summary, failure) = match powerfail_recorder::record(&options, runtime()) {
        Ok(summary) => (summary, None),
        Err(RecordError::Unsupported(unsupported)) => {
            complain(&unsupported.to_string());
            return Ok(Exit::Unsupported);
        }
        Err(RecordError::SelfCheck(failure)) => {
            let sentence = failure.to_string();
            (failure.summary, Some(sentence))
        }
        Err(RecordError::TreeCheck(failure)) => {
            let sentence = failure.to_string();
            (failure.summary, Some(sentence))
        }
        Err(RecordError::Trace(error)) => {
            return Err(error).with_context(|| output.display().to_string());
        }
        Err(error) => return Err(error.into()),
    };
    if settings.json {
        print_json(&report::summary_json(output, &summary, failure.as_deref()))?;
    } else {
        // Standard output belongs to the target. A closed standard error is not a failure.
        let _ = report::summary(&mut anstream::stderr(), output, &summary);
    }
    if let Some(sentence) = failure {
        complain(&sentence);
        for sentence in &summary.unrecorded {
            complain(sentence);
        }
        return Ok(if summary.unrecorded.is_empty() {
            Exit::Internal
        } else {
            Exit::Unsupported
        });
    }
    if summary.timed_out {
        complain(&late(&summary.waiting));
        return Ok(Exit::Setup);
    }
    for sentence in summary.fatal.iter().chain(&summary.unrecorded) {
        complain(sentence);
    }
    Ok(
        if summary.fatal.is_empty() && summary.unrecorded.is_empty() {
            Exit::Clean
        } else {
            Exit::Unsupported
        },
    )
}

/// What is said of a workload that does not end in time.
fn late(waiting: &[String]) -> String {
    let waiting = match waiting {
        [] => String::new(),
        sentences => format!(": {}", sentences.join("; ")),
    };
    format!("the workload did not end in time{waiting}; give it more time with --record-timeout")
}
