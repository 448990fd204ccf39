//! `powerfail fuzz` and its subcommands: from flags to a campaign, and from a campaign to what is shown.
//!
//! The campaign itself is in `powerfail_fuzz`, the words are in `powerfail_report::fuzz`.

mod afl;
mod minimise;
mod options;
mod plot;
mod repair;
mod run;
mod screen;
mod show;

use std::io::Write;

use powerfail_fuzz::CampaignError;
use powerfail_recorder::RecordError;
use powerfail_recorder::executor::ExecutorError;

use crate::args::{FuzzCommand, FuzzSubcommand};
use crate::exit::{Exit, complain};

pub(crate) fn fuzz(args: FuzzCommand) -> anyhow::Result<Exit> {
    match args.command {
        None => run::run(*args.options, args.consent.yes),
        Some(FuzzSubcommand::Plot(args)) => plot::plot(&args),
        Some(FuzzSubcommand::Show(args)) => show::show(&args),
        Some(FuzzSubcommand::Cmin(args)) => minimise::corpus(&args),
        Some(FuzzSubcommand::Tmin(args)) => minimise::one(&args),
        Some(FuzzSubcommand::Repair(args)) => repair::campaign(&args),
        Some(FuzzSubcommand::Afl(args)) => afl::afl(&args),
    }
}

/// Shows a warning.
fn warn(sentence: &str) {
    // A closed standard error is not a reason to stop.
    let _ = writeln!(anstream::stderr(), "warning: {sentence}");
}

/// Reports why a campaign cannot be run.
fn refusal(error: CampaignError) -> anyhow::Result<Exit> {
    let error = match error {
        CampaignError::Execute(ExecutorError::Record(error)) => CampaignError::Record(error),
        other => other,
    };
    match error {
        CampaignError::Record(RecordError::Unsupported(unsupported)) => {
            complain(&unsupported.to_string());
            Ok(Exit::Unsupported)
        }
        CampaignError::Record(error @ RecordError::SelfCheck(_)) => {
            complain(&error.to_string());
            Ok(Exit::Internal)
        }
        other => Err(other.into()),
    }
}
