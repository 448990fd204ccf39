//! `powerfail fuzz`: runs a campaign and shows it.

use std::io::Write;
use std::sync::Arc;

use powerfail_finding::Severity;

use super::options::{Campaign, campaign};
use super::screen::Screen;
use super::summary;
use crate::args::FuzzCampaignArgs;
use crate::crash::configuration;
use crate::exit::Exit;
use crate::interrupt;
use crate::output::{print, print_json};
use crate::record::RUNTIME;

pub(crate) fn run(args: &FuzzCampaignArgs) -> anyhow::Result<Exit> {
    let config = configuration()?;
    let Campaign { options, shown_out } = campaign(args, &config.check)?;
    interrupt::watch();
    // What killed campaigns have left.
    let _ = powerfail_image::sweep_leftovers(&powerfail_image::default_parent());
    let words: Vec<_> = options
        .command
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    let screen = Screen::new(words.join(" "));
    let runtime: Arc<[u8]> = RUNTIME.into();
    let summary = powerfail_campaign::run(&options, &runtime, &screen);
    screen.finish();
    let summary = match summary {
        Ok(summary) => summary,
        Err(error) => return super::refusal(error),
    };
    if args.json {
        print_json(&summary::json(&shown_out, &summary))?;
    } else {
        print(|out: &mut dyn Write| Ok(summary::text(out, &shown_out, &summary)?))?;
    }
    let denies = args.recovery.deny.is_some();
    let mut found = summary.findings.iter().map(|it| it.finding.severity);
    Ok(
        if found.any(|severity| severity != Severity::Warning || denies) {
            Exit::Findings
        } else {
            Exit::Clean
        },
    )
}
