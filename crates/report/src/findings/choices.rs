//! The loads of recovery that could have read from several stores, and which choice mattered.

use powerfail_finding::{Choice, Source, SourcePlace};

use super::snippet::Sources;
use crate::text::{BAD, FAINT, plural, printable};

/// Choices and sources that are shown; JSON has all of them.
const CHOICES_SHOWN: usize = 4;
const SOURCES_SHOWN: usize = 4;

/// The decisive choices, in words. Nothing if there are none.
pub(super) fn text(choices: &[Choice], sources: &Sources<'_>) -> Option<String> {
    let decisive: Vec<&Choice> = choices.iter().filter(|choice| choice.decisive).collect();
    if decisive.is_empty() {
        return None;
    }
    let mut lines = Vec::new();
    for choice in decisive.iter().take(CHOICES_SHOWN) {
        lines.push(format!(
            "the load at {} could read {}:",
            place(&choice.load, sources),
            plural(choice.sources.len() as u64, "value")
        ));
        // What was taken is shown whatever is cut.
        let shown = choice.sources.iter().enumerate();
        let shown = shown.filter(|(number, source)| *number < SOURCES_SHOWN || source.taken);
        lines.extend(shown.map(|(_, source)| from(source, sources)));
        if choice.sources.len() > SOURCES_SHOWN {
            let left = choice.sources.len() - SOURCES_SHOWN;
            lines.push(format!(
                "    {FAINT}{}{FAINT:#}",
                plural(left as u64, "more value")
            ));
        }
    }
    let left = choices.len() - decisive.len().min(CHOICES_SHOWN);
    if left > 0 {
        let others = plural(left as u64, "other load");
        lines.push(format!("{FAINT}{others} had a choice, too{FAINT:#}"));
    }
    Some(lines.join("\n"))
}

fn from(source: &Source, sources: &Sources<'_>) -> String {
    let store = source.store.as_ref();
    let store = store.map_or_else(
        || "the content before".to_owned(),
        |store| place(store, sources),
    );
    let bytes = printable(&source.bytes);
    if source.taken {
        format!("    {BAD}{store}: {bytes} (taken){BAD:#}")
    } else {
        format!("    {store}: {bytes}")
    }
}

/// `map.c:17`, or the module where there is no source.
fn place(place: &SourcePlace, sources: &Sources<'_>) -> String {
    match (&place.file, place.line) {
        (Some(file), Some(line)) => format!("{}:{line}", sources.shown(file)),
        (Some(file), None) => sources.shown(file),
        (None, _) => match (&place.module, place.code()) {
            (Some(module), Some((_, offset))) => format!("{}+{offset:#x}", printable(module)),
            (Some(module), None) => printable(module).into_owned(),
            (None, _) => "an unknown place".to_owned(),
        },
    }
}
