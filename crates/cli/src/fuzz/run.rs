//! `powerfail fuzz`: runs a campaign and shows it.

use std::io::Write;
use std::sync::Arc;

use powerfail_config::FuzzArgs;
use powerfail_finding::{Finding, Severity};

use super::options::{Campaign, campaign, refuse_commands};
use super::screen::Screen;
use super::summary;
use crate::exit::Exit;
use crate::interrupt;
use crate::output::{print, print_json};
use crate::record::RUNTIME;
use crate::settings::configuration;

pub(crate) fn run(args: FuzzArgs) -> anyhow::Result<Exit> {
    let settings = args.settle(configuration()?.fuzz);
    let Campaign { options, shown_out } = campaign(&settings)?;
    if let Err(error) = refuse_commands(&options) {
        return super::refusal(error);
    }
    interrupt::watch();
    // What killed campaigns have left.
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
    let runtime: Arc<[u8]> = RUNTIME.into();
    let summary = powerfail_fuzz::run(&options, &runtime, &screen);
    screen.finish();
    let mut summary = match summary {
        Ok(summary) => summary,
        Err(error) => return super::refusal(error),
    };
    // A finding that ends it is no interruption.
    summary.is_interrupted = interrupt::is_interrupted();
    if settings.campaign.json {
        print_json(&summary::json(&shown_out, &summary))?;
    } else {
        print(|out: &mut dyn Write| Ok(summary::text(out, &shown_out, &summary)?))?;
    }
    let is_any = summary.findings.iter().any(|it| is_bug(&it.finding));
    Ok(if is_any { Exit::Findings } else { Exit::Clean })
}
