//! `powerfail check`, `crash`, `races` and `lint`: settings go to the library, its report to the terminal.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use powerfail_check::{
    ChangedSince, CheckError, Session, SessionError, SessionResult, Shares, WorkloadError,
    WorkloadFailure,
};
use powerfail_config::{OutputSettings, ReportSettings, Suppression, TestSettings};
use powerfail_finding::{Finding, Severity};
use powerfail_recorder::RecordError;
use powerfail_report::findings;

use crate::args::{CheckCommand, CrashCommand, LintCommand, RacesCommand};
use crate::changed;
use crate::configuration::configuration;
use crate::exit::{Exit, complain};
use crate::html;
use crate::interrupt;
use crate::progress::open_watched;
use crate::record::QEMU_PLUGIN;
use crate::report_output;
use crate::runtime::runtime;
use crate::watcher::Watcher;

pub(crate) fn check(args: &CheckCommand) -> anyhow::Result<Exit> {
    let config = configuration()?;
    let settings = args.options.clone().settle(config.check)?;
    let changed = changed_since(&settings.test)?;
    interrupt::watch();
    let result = run(&config.suppress, args.consent.yes, |session| {
        session.changed = changed;
        session.check(&settings)
    });
    conclude(result, &settings.test.report, &settings.test.output)
}

pub(crate) fn crash(args: &CrashCommand) -> anyhow::Result<Exit> {
    let config = configuration()?;
    let settings = args.options.clone().settle(config.crash)?;
    let changed = changed_since(&settings.test)?;
    interrupt::watch();
    let result = run(&config.suppress, args.consent.yes, |session| {
        session.changed = changed;
        session.crash(&args.trace, &settings)
    });
    conclude(result, &settings.test.report, &settings.test.output)
}

pub(crate) fn races(args: &RacesCommand) -> anyhow::Result<Exit> {
    let config = configuration()?;
    let settings = args.options.clone().settle(config.races)?;
    let changed = changed_since(&settings.test)?;
    interrupt::watch();
    let result = run(&config.suppress, args.consent.yes, |session| {
        session.changed = changed;
        session.races(&args.trace, &settings)
    });
    conclude(result, &settings.test.report, &settings.test.output)
}

pub(crate) fn lint(args: &LintCommand) -> anyhow::Result<Exit> {
    let config = configuration()?;
    let settings = args.options.clone().settle(config.lint)?;
    let result = run(&config.suppress, false, |session| {
        session.lint(&args.trace, &settings)
    });
    conclude(result, &settings.report, &settings.output)
}

/// What is tried first.
fn changed_since(test: &TestSettings) -> anyhow::Result<Option<Arc<ChangedSince>>> {
    changed::since(test.failures.changed_since.as_deref())
}

/// Calls the library, and shows what happens meanwhile. With `yes`, the commands of traces of others run without a question.
fn run<T>(suppressions: &[Suppression], yes: bool, call: impl FnOnce(&mut Session<'_>) -> T) -> T {
    run_with(suppressions, None, yes, call)
}

/// The same, with the shares that are joined.
pub(crate) fn run_with<T>(
    suppressions: &[Suppression],
    shares: Option<Shares>,
    yes: bool,
    call: impl FnOnce(&mut Session<'_>) -> T,
) -> T {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    call(&mut Session {
        runtime: runtime(),
        plugin: QEMU_PLUGIN,
        suppressions,
        arguments: &arguments,
        shares,
        changed: None,
        watched: None,
        observer: &mut Watcher::new(yes),
    })
}

/// Prints the report; the exit code.
pub(crate) fn conclude(
    result: Result<SessionResult, SessionError>,
    settings: &ReportSettings,
    output: &OutputSettings,
) -> anyhow::Result<Exit> {
    let result = match result {
        Ok(result) => result,
        Err(error) => return refuse(error),
    };
    if let Some(file) = &output.html {
        write_page(&result, file)?;
    }
    report_output::write(&result.report, result.out.as_deref(), settings, output)?;
    let is_bug =
        |finding: &Finding| finding.severity != Severity::Warning || settings.denies_warnings();
    let has_bug = result.report.findings.iter().any(is_bug);
    if result.is_interrupted && !has_bug {
        return Ok(say_interrupted());
    }
    if result.is_interrupted {
        complain("interrupted; the report covers only what was tried until then");
    }
    // A share has done its work, whatever it has found: the whole run is judged when shares are merged.
    if result.share.is_some() && !result.is_interrupted {
        return Ok(Exit::Clean);
    }
    Ok(if has_bug || result.fails_without_crash {
        Exit::Findings
    } else if result.report.totals.not_checked.is_some() {
        Exit::NotChecked
    } else {
        Exit::Clean
    })
}

fn write_page(result: &SessionResult, file: &Path) -> anyhow::Result<()> {
    let details = &result.details;
    let trace = open_watched(&details.trace)?;
    let run = html::Run {
        report: &result.report,
        rules: details.rules,
        trace: &trace,
        coverage: Some(&details.coverage),
        sources: Some(&details.sources),
        out: result.out.as_deref(),
    };
    html::write(&run, file)
}

pub(crate) fn say_interrupted() -> Exit {
    complain("interrupted; everything that was started is ended and removed");
    Exit::Setup
}

/// Says why there is no report; the exit code.
pub(crate) fn refuse(error: SessionError) -> anyhow::Result<Exit> {
    match error {
        SessionError::Workload(WorkloadError::Record(RecordError::Unsupported(unsupported))) => {
            complain(&unsupported.to_string());
            Ok(Exit::Unsupported)
        }
        SessionError::Workload(WorkloadError::Unsupported(sentences)) => {
            for sentence in &sentences {
                complain(sentence);
            }
            Ok(Exit::Unsupported)
        }
        SessionError::Workload(WorkloadError::Record(
            error @ (RecordError::SelfCheck(_) | RecordError::TreeCheck(_)),
        )) => {
            complain(&error.to_string());
            Ok(Exit::Internal)
        }
        SessionError::Check(CheckError::Interrupted) => Ok(say_interrupted()),
        SessionError::Check(error @ CheckError::NoPool) => {
            complain(&error.to_string());
            Ok(Exit::NotChecked)
        }
        SessionError::Check(error @ CheckError::NotDumped { .. }) => {
            complain(&error.to_string());
            Ok(Exit::Setup)
        }
        SessionError::Check(error @ CheckError::Undisturbed { .. }) => {
            complain(&error.to_string());
            if let CheckError::Undisturbed { outcome, .. } = &error {
                let output = findings::outcome_output(outcome);
                if !output.is_empty() {
                    let _ = writeln!(anstream::stderr(), "{output}");
                }
            }
            Ok(Exit::Setup)
        }
        SessionError::Workload(WorkloadError::Failed(
            failure @ WorkloadFailure::TimedOut { .. },
        )) => {
            complain(&format!(
                "{failure}; give it more time with --record-timeout; a server needs --client and --ready of powerfail check"
            ));
            Ok(Exit::Setup)
        }
        error => Err(error.into()),
    }
}
