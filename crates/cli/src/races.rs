//! `powerfail races`: the reads of recovery that are not safe, from a trace.

use powerfail_check::RaceOptions;
use powerfail_config::CheckSection;

use crate::args::RacesArgs;
use crate::crash::{self, Work};
use crate::evidence;
use crate::exit::Exit;
use crate::interrupt;

pub(crate) fn races(args: &RacesArgs) -> anyhow::Result<Exit> {
    let config = crash::configuration()?;
    crash::refuse_slips(&args.recovery, &args.report, &config.check)?;
    interrupt::watch();
    let trace = crash::open_whole_trace(&args.trace)?;
    let workload: Vec<_> = trace.meta().command.clone();
    let recovery = crash::recovery(
        &args.recovery,
        &args.report,
        &config.check,
        &workload,
        &trace,
    )?;
    let out = args.report.out.clone().or(config.check.out.clone());
    let _owned = out.as_deref().map(evidence::create).transpose()?;
    if let Some(out) = &out {
        evidence::keep_trace(out, &args.trace)?;
    }
    crash::judge(&Work {
        trace: &trace,
        trace_path: &args.trace,
        recovery: &recovery,
        recovery_args: &args.recovery,
        report_args: &args.report,
        config: &config,
        out: out.as_deref(),
        prefix: false,
        lazy: None,
        eager: None,
        races: Some(RaceOptions {
            alone: true,
            ..options(args.strict, &config.check)
        }),
        no_snapshot: false,
        schedule: 0,
        share: 1,
    })
}

/// How reads are watched, from flags and configuration.
pub(crate) fn options(strict: bool, section: &CheckSection) -> RaceOptions {
    RaceOptions {
        alone: false,
        strict: strict || section.strict.unwrap_or(false),
        confirm: true,
        only: None,
    }
}
