//! `powerfail fuzz` and its subcommands: from flags to a campaign, and from a campaign to what is shown.
//!
//! The campaign itself is in `powerfail_campaign`. Only `afl` runs a target here, for afl-fuzz.

mod afl;
mod history;
mod minimise;
mod options;
mod panel;
mod plot;
mod run;
mod screen;
mod show;
mod summary;

use powerfail_campaign::CampaignError;

use crate::args::{FuzzArgs, FuzzCommand};
use crate::exit::Exit;

pub(crate) fn fuzz(args: FuzzArgs) -> anyhow::Result<Exit> {
    match args.command {
        None => run::run(&args.campaign),
        Some(FuzzCommand::Plot(args)) => plot::plot(&args),
        Some(FuzzCommand::Show(args)) => show::show(&args),
        Some(FuzzCommand::Cmin(args)) => minimise::corpus(&args),
        Some(FuzzCommand::Tmin(args)) => minimise::case(&args),
        Some(FuzzCommand::Afl(args)) => afl::afl(&args),
    }
}

/// Says why a campaign cannot be run.
fn refusal(error: CampaignError) -> anyhow::Result<Exit> {
    Err(error.into())
}
