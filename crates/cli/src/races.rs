//! `powerfail races`: the reads of recovery that are not safe, from a trace.

use powerfail_check::{CrashOptions, RaceOptions, Recovery, Runner, RunnerOptions};
use powerfail_explore::FailurePointOptions;
use powerfail_finding::{Finding, Role};
use powerfail_lint::LintOptions;
use powerfail_model::EventIndex;
use powerfail_oracle::{Oracle, Settings};
use powerfail_trace::Trace;

use crate::args::RacesCommand;
use crate::crash::{self, Subject, Work};
use crate::exit::Exit;
use crate::record::RUNTIME;
use crate::settings;

pub(crate) fn races(args: &RacesCommand) -> anyhow::Result<Exit> {
    let config = settings::configuration()?;
    let settings = args.options.clone().settle(config.races)?;
    let subject = Subject::open(&args.trace, &settings.test)?;
    crash::judge(&Work {
        trace: &subject.trace,
        trace_path: &args.trace,
        recovery: &subject.recovery,
        settings: &settings.test,
        suppress: &config.suppress,
        baseline: subject.baseline.as_ref(),
        out: subject.out.as_deref(),
        prefix: false,
        lazy: None,
        eager: None,
        races: Some(RaceOptions {
            alone: true,
            ..settings::races(&settings.races)
        }),
        no_snapshot: false,
        schedule: 0,
        share: 1,
    })
}

/// What recovery is seen to read if the power fails just before one event.
pub(crate) fn at_one_point(
    trace: &Trace,
    recovery: &Recovery,
    at: EventIndex,
    strict: bool,
) -> anyhow::Result<Vec<Finding>> {
    let settings = Settings {
        runtime: Some(RUNTIME.into()),
        ..Settings::default()
    };
    let oracle = Oracle::new(recovery.plan(trace), settings)?;
    let runner_options = RunnerOptions {
        jobs: 1,
        rules: recovery.rules(),
        fill: recovery.fill(),
        companions: Vec::new(),
    };
    let parent = powerfail_image::default_parent();
    let mut runner = Runner::new(trace, &oracle, &parent, runner_options)?;
    let options = CrashOptions {
        tree: FailurePointOptions::default(),
        budget: None,
        lint: LintOptions {
            domain: recovery.rules().domain,
            trust: recovery.trusted(),
            warnings: false,
        },
        ack: None,
        prefix: false,
        eager: None,
        lazy: None,
        races: Some(RaceOptions {
            alone: true,
            strict,
            confirm: false,
            infer: None,
            only: Some(at),
            commit_variables: Vec::new(),
        }),
        selection: None,
        undisturbed: None,
    };
    let mut watcher = crash::Watcher::default();
    let crashed = powerfail_check::crash(trace, &options, &mut runner, &mut watcher)?;
    Ok(crashed.findings)
}

/// Whether two findings are about the same read, by lines of code.
pub(crate) fn is_same(one: &Finding, other: &Finding) -> bool {
    let lines = |finding: &Finding| -> Vec<_> {
        let places = finding.places.iter();
        places
            .filter(|it| matches!(it.role, Role::Store | Role::Allocation | Role::Load))
            .map(|it| (it.role, it.file.clone(), it.line, it.function.clone()))
            .collect()
    };
    one.code == other.code && lines(one) == lines(other)
}
