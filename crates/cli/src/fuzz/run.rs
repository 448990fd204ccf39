//! `powerfail fuzz`: runs a campaign and shows it.

use std::io::Write;
use std::sync::Arc;

use powerfail_config::FuzzArgs;
use powerfail_finding::{Finding, Severity};
use powerfail_report::fuzz::{summary_json, write_summary};

use super::options::{Campaign, campaign, refuse_commands};
use super::screen::Screen;
use crate::configuration::configuration;
use crate::exit::Exit;
use crate::interrupt;
use crate::output::{print, print_json};
use crate::runtime::runtime;

pub(crate) fn run(args: FuzzArgs, yes: bool) -> anyhow::Result<Exit> {
    let settings = args.settle(configuration()?.fuzz);
    let Campaign { options, shown_out } = campaign(&settings, yes)?;
    if let Err(error) = refuse_commands(&options) {
        return super::refusal(error);
    }
    interrupt::watch();
    // Removes what killed campaigns have left.
    let _ = powerfail_image::sweep_leftovers(&powerfail_image::default_parent());
    let words: Vec<_> = options
        .command
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    let is_bug: fn(&Finding) -> bool = if settings.denies_warnings {
        |_| true
    } else {
        |finding| finding.severity != Severity::Warning
    };
    let ends_with = if settings.campaign.until_found {
        is_bug
    } else {
        |_: &_| false
    };
    let screen = Screen::new(words.join(" "), ends_with);
    let runtime: Arc<[u8]> = runtime().into();
    let summary = powerfail_fuzz::run(&options, &runtime, &screen);
    screen.finish();
    let powerfail_fuzz::CampaignSummary {
        stats,
        findings,
        unchecked,
        ..
    } = match summary {
        Ok(summary) => summary,
        Err(error) => return super::refusal(error),
    };
    if settings.campaign.json {
        // A finding that ends the campaign is not an interruption.
        let is_interrupted = interrupt::is_interrupted();
        print_json(&summary_json(
            &shown_out,
            &stats,
            &findings,
            unchecked,
            is_interrupted,
        ))?;
    } else {
        print(|out: &mut dyn Write| {
            Ok(write_summary(
                out, &shown_out, &stats, &findings, unchecked,
            )?)
        })?;
    }
    let is_any = findings.iter().any(|it| is_bug(&it.finding));
    Ok(match unchecked {
        _ if is_any => Exit::Findings,
        Some(_) => Exit::NotChecked,
        None => Exit::Clean,
    })
}
